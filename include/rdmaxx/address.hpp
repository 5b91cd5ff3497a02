// Socket addresses as values.
#ifndef RDMAXX_ADDRESS_HPP
#define RDMAXX_ADDRESS_HPP

#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/error.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#if defined(AF_IB) && __has_include(<infiniband/ib.h>)
#    include <infiniband/ib.h>
#    define RDMAXX_HAS_AF_IB 1
#else
#    define RDMAXX_HAS_AF_IB 0
#endif

namespace rdmaxx::inline v0 {

/// An IPv4 address, an IPv6 address with its scope, or an InfiniBand address (AF_IB), each with a port.
///
/// A value: copyable, comparable, hashable, owns nothing. Ports are in host byte order. Numeric text only: names are
/// resolved by rdma_getaddrinfo or getaddrinfo.
///
///     IPv4   192.0.2.9          192.0.2.9:7471
///     IPv6   fe80::1%eth0       [fe80::1%eth0]:7471
///     AF_IB  ib[fe80::1]        ib[fe80::1]:0x1061d2f        (GID and service ID)
class address {
public:
    /// Empty: family() is AF_UNSPEC.
    address() noexcept = default;

    /// @param host numeric IPv4 or IPv6 address, the latter with or without %scope, without brackets
    /// @param port in host byte order
    /// @throws error EINVAL with the text, if it is no address
    address(std::string_view host, std::uint16_t port) {
        const detail::status result = assign_host(host);
        detail::check(result, quoted{host});
        set_port(port);
    }

    /// Copies a sockaddr that is as long as its family's are. Null, or an unknown family, gives an empty address.
    explicit address(const sockaddr* from) noexcept : address(from, from != nullptr ? length_of(from->sa_family) : 0) {}
    /// The same with its length, as recvfrom(2) and getaddrinfo(3) tell it: shorter than the family's is empty, too.
    address(const sockaddr* from, std::size_t length) noexcept {
        if (from == nullptr || length < sizeof(sockaddr))
            return;
        if (const std::size_t own = length_of(from->sa_family); own != 0 && own <= length)
            std::memcpy(&raw_, from, own);
    }

    /// From text in one of the forms above; the port is 0 where the text has none.
    /// @throws error EINVAL with the text, if it is no address
    [[nodiscard]] static address parse(std::string_view text) {
        address result;
        detail::check(result.assign_text(text), quoted{text});
        return result;
    }
    [[nodiscard]] static address parse(std::string_view text, std::error_code& ec) noexcept {
        address result;
        detail::assign(ec, result.assign_text(text));
        return ec ? address() : result;
    }

    /// 0.0.0.0: every IPv4 address of this machine.
    [[nodiscard]] static address any_ipv4(std::uint16_t port = 0) noexcept {
        address result;
        result.raw_.in.sin_family = AF_INET;
        result.set_port(port);
        return result;
    }

    /// ::, every address of this machine (of both families, unless the id's option af_only says IPv6 only).
    [[nodiscard]] static address any_ipv6(std::uint16_t port = 0) noexcept {
        address result;
        result.raw_.in6.sin6_family = AF_INET6;
        result.set_port(port);
        return result;
    }

    /// AF_INET, AF_INET6, AF_IB, or AF_UNSPEC when empty.
    [[nodiscard]] int family() const noexcept { return raw_.base.sa_family; }
    [[nodiscard]] explicit operator bool() const noexcept { return family() != AF_UNSPEC; }

    /// In host byte order; 0 for AF_IB, whose service ID is 64 bits wide.
    [[nodiscard]] std::uint16_t port() const noexcept {
        switch (family()) {
        case AF_INET: return ntohs(raw_.in.sin_port);
        case AF_INET6: return ntohs(raw_.in6.sin6_port);
        default: return 0;
        }
    }

    /// In host byte order. No effect on an empty address and on AF_IB.
    void set_port(std::uint16_t port) noexcept {
        if (family() == AF_INET)
            raw_.in.sin_port = htons(port);
        else if (family() == AF_INET6)
            raw_.in6.sin6_port = htons(port);
    }

    /// The same host with another port.
    [[nodiscard]] address with_port(std::uint16_t port) const noexcept {
        address result = *this;
        result.set_port(port);
        return result;
    }

    /// The interface index of a link-local IPv6 address; 0 otherwise.
    [[nodiscard]] std::uint32_t scope_id() const noexcept { return family() == AF_INET6 ? raw_.in6.sin6_scope_id : 0; }

    /// The address for a C call, as long as this object lives; size() bytes.
    [[nodiscard]] const sockaddr* data() const& noexcept RDMAXX_LIFETIMEBOUND { return &raw_.base; }
    [[nodiscard]] const sockaddr* data() const&& = delete; // it ends with the address
    [[nodiscard]] std::size_t size() const noexcept { return length_of(raw_.base.sa_family); }

    /// The text form that parse() reads; the port is left out where it is 0. Empty for an empty address.
    [[nodiscard]] std::string to_string() const {
        char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 32] = "";
        char host[INET6_ADDRSTRLEN] = "";
        if (family() == AF_INET) {
            ::inet_ntop(AF_INET, &raw_.in.sin_addr, host, sizeof host);
            std::snprintf(text, sizeof text, port() != 0 ? "%s:%u" : "%s", host, static_cast<unsigned>(port()));
        } else if (family() == AF_INET6) {
            char scope[IF_NAMESIZE + 1] = "";
            ::inet_ntop(AF_INET6, &raw_.in6.sin6_addr, host, sizeof host);
            print_scope(scope);
            std::snprintf(text, sizeof text, port() != 0 ? "[%s%s]:%u" : "%s%s", host, scope,
                          static_cast<unsigned>(port()));
        }
#if RDMAXX_HAS_AF_IB
        if (family() == AF_IB) {
            ::inet_ntop(AF_INET6, &raw_.ib.sib_addr, host, sizeof host);
            const std::uint64_t sid = service_id();
            std::snprintf(text, sizeof text, sid != 0 ? "ib[%s]:0x%llx" : "ib[%s]", host,
                          static_cast<unsigned long long>(sid));
        }
#endif
        return text;
    }

    /// Same family, address, port and scope. Padding and flow label are not compared.
    friend bool operator==(const address& a, const address& b) noexcept {
        if (a.family() != b.family() || a.port() != b.port() || a.scope_id() != b.scope_id())
            return false;
        if (a.family() == AF_INET)
            return a.raw_.in.sin_addr.s_addr == b.raw_.in.sin_addr.s_addr;
        if (a.family() == AF_INET6)
            return std::memcmp(&a.raw_.in6.sin6_addr, &b.raw_.in6.sin6_addr, sizeof(in6_addr)) == 0;
#if RDMAXX_HAS_AF_IB
        if (a.family() == AF_IB)
            return a.service_id() == b.service_id() && a.raw_.ib.sib_pkey == b.raw_.ib.sib_pkey &&
                   std::memcmp(&a.raw_.ib.sib_addr, &b.raw_.ib.sib_addr, sizeof(ib_addr)) == 0;
#endif
        return true;
    }

private:
    friend struct std::hash<address>;

    union storage {
        sockaddr base;
        sockaddr_in in;
        sockaddr_in6 in6;
#if RDMAXX_HAS_AF_IB
        sockaddr_ib ib;
#endif
    };

    /// What an error shows of a bad text: not all of it if it is long.
    struct quoted {
        std::string_view text;
        [[nodiscard]] std::string to_string() const {
            return "\"" + std::string(text.substr(0, 80)) + (text.size() > 80 ? "...\"" : "\"");
        }
    };

    /// Of what operator== compares.
    [[nodiscard]] std::size_t hash() const noexcept {
        const std::size_t rest = std::size_t{port()} + scope_id() * std::size_t{65537};
        if (family() == AF_INET)
            return hash_of(raw_.in.sin_addr) ^ rest;
        if (family() == AF_INET6)
            return hash_of(raw_.in6.sin6_addr) ^ rest;
#if RDMAXX_HAS_AF_IB
        if (family() == AF_IB)
            return hash_of(raw_.ib.sib_addr) ^ hash_of(raw_.ib.sib_sid) ^ raw_.ib.sib_pkey;
#endif
        return 0;
    }
    template <class Number>
    [[nodiscard]] static std::size_t hash_of(const Number& number) noexcept {
        return std::hash<std::string_view>()({reinterpret_cast<const char*>(&number), sizeof number});
    }

    [[nodiscard]] static std::size_t length_of(int family) noexcept {
        switch (family) {
        case AF_INET: return sizeof(sockaddr_in);
        case AF_INET6: return sizeof(sockaddr_in6);
#if RDMAXX_HAS_AF_IB
        case AF_IB: return sizeof(sockaddr_ib);
#endif
        default: return 0;
        }
    }

    [[nodiscard]] static detail::status bad(const char* cause) noexcept {
        return {"address", EINVAL, cause};
    }

    void print_scope(char (&out)[IF_NAMESIZE + 1]) const noexcept {
        if (scope_id() == 0)
            return;
        out[0] = '%';
        if (::if_indextoname(scope_id(), out + 1) == nullptr)
            std::snprintf(out + 1, IF_NAMESIZE, "%u", static_cast<unsigned>(scope_id()));
    }

    [[nodiscard]] detail::status assign_text(std::string_view text) noexcept {
        raw_ = storage{};
#if RDMAXX_HAS_AF_IB
        if (text.substr(0, 3) == "ib[")
            return assign_ib(text.substr(3));
#endif
        std::string_view host = text;
        std::string_view port;
        bool has_port = false;
        if (!text.empty() && text.front() == '[') {
            const std::size_t end = text.find(']');
            if (end == std::string_view::npos)
                return bad("missing ]");
            host = text.substr(1, end - 1);
            if (host.find(':') == std::string_view::npos)
                return bad("only an IPv6 address stands in brackets");
            const std::string_view rest = text.substr(end + 1);
            if (!rest.empty() && rest.front() != ':')
                return bad("unexpected text after ]");
            has_port = !rest.empty();
            port = has_port ? rest.substr(1) : rest;
        } else if (const std::size_t colon = text.find(':');
                   colon != std::string_view::npos && text.find(':', colon + 1) == std::string_view::npos) {
            host = text.substr(0, colon);
            port = text.substr(colon + 1);
            has_port = true;
        }
        std::uint64_t number = 0;
        if (has_port && !parse_number(port, 10, 65535, number))
            return bad("the port is not a number from 0 to 65535");
        const detail::status result = assign_host(host);
        if (!result.failed())
            set_port(static_cast<std::uint16_t>(number));
        return result;
    }

    [[nodiscard]] detail::status assign_host(std::string_view host) noexcept {
        raw_ = storage{};
        const std::size_t percent = host.find('%');
        char text[INET6_ADDRSTRLEN];
        const std::string_view number = host.substr(0, percent);
        if (!terminated(number, text))
            return bad("no IPv4 or IPv6 address in numbers");
        if (percent == std::string_view::npos && ::inet_pton(AF_INET, text, &raw_.in.sin_addr) == 1) {
            raw_.in.sin_family = AF_INET;
            return {};
        }
        raw_ = storage{};
        if (::inet_pton(AF_INET6, text, &raw_.in6.sin6_addr) != 1) {
            raw_ = storage{};
            return bad("no IPv4 or IPv6 address in numbers");
        }
        if (percent != std::string_view::npos && !parse_scope(host.substr(percent + 1))) {
            raw_ = storage{};
            return bad("no interface of this name");
        }
        raw_.in6.sin6_family = AF_INET6;
        return {};
    }

    [[nodiscard]] bool parse_scope(std::string_view scope) noexcept {
        std::uint64_t index = 0;
        char name[IF_NAMESIZE];
        if (!terminated(scope, name) || scope.empty())
            return false;
        index = ::if_nametoindex(name);
        if (index == 0 && !parse_number(scope, 10, UINT32_MAX, index))
            return false;
        raw_.in6.sin6_scope_id = static_cast<std::uint32_t>(index);
        return index != 0;
    }

    template <std::size_t N>
    [[nodiscard]] static bool terminated(std::string_view text, char (&out)[N]) noexcept {
        if (text.size() >= N)
            return false;
        std::memcpy(out, text.data(), text.size());
        out[text.size()] = '\0';
        return text.find('\0') == std::string_view::npos;
    }

    [[nodiscard]] static bool parse_number(std::string_view text, unsigned base, std::uint64_t most,
                                           std::uint64_t& out) noexcept {
        if (text.empty())
            return false;
        out = 0;
        for (const char c : text) {
            const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                                   : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a') + 10
                                   : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10
                                                          : base;
            if (digit >= base || out > (most - digit) / base)
                return false;
            out = out * base + digit;
        }
        return true;
    }

#if RDMAXX_HAS_AF_IB
    [[nodiscard]] std::uint64_t service_id() const noexcept {
        return be64(raw_.ib.sib_sid);
    }

    [[nodiscard]] static std::uint64_t be64(std::uint64_t value) noexcept {
        const auto high = static_cast<std::uint64_t>(htonl(static_cast<std::uint32_t>(value)));
        const auto low = static_cast<std::uint64_t>(htonl(static_cast<std::uint32_t>(value >> 32)));
        return htonl(1) == 1 ? value : high << 32 | low;
    }

    [[nodiscard]] detail::status assign_ib(std::string_view text) noexcept {
        const std::size_t end = text.find(']');
        char gid[INET6_ADDRSTRLEN];
        if (end == std::string_view::npos || !terminated(text.substr(0, end), gid) ||
            ::inet_pton(AF_INET6, gid, &raw_.ib.sib_addr) != 1) {
            raw_ = storage{};
            return bad("no GID between the brackets");
        }
        const std::string_view rest = text.substr(end + 1);
        std::uint64_t sid = 0;
        if (!rest.empty() && (rest.substr(0, 3) != ":0x" || !parse_number(rest.substr(3), 16, UINT64_MAX, sid))) {
            raw_ = storage{};
            return bad("the service ID is not :0x and a hexadecimal number");
        }
        raw_.ib.sib_family = AF_IB;
        raw_.ib.sib_pkey = 0xffff;
        raw_.ib.sib_sid = be64(sid);
        raw_.ib.sib_sid_mask = UINT64_MAX;
        return {};
    }
#endif

    storage raw_{};
};

} // namespace rdmaxx::inline v0

//! @cond
template <>
struct std::hash<rdmaxx::address> {
    [[nodiscard]] std::size_t operator()(const rdmaxx::address& of) const noexcept { return of.hash(); }
};
//! @endcond

#endif
