// struct rdma_addrinfo: rdma_getaddrinfo(3), rdma_freeaddrinfo(3).
#ifndef RDMAXX_CM_ADDRINFO_HPP
#define RDMAXX_CM_ADDRINFO_HPP

#include <rdmaxx/address.hpp>
#include <rdmaxx/cm/addrinfo_hints.hpp>
#include <rdmaxx/cm/cm_id.hpp>
#include <rdmaxx/detail/cm_api.hpp>
#include <rdmaxx/detail/handle.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include <netdb.h>

namespace rdmaxx::inline v0 {
namespace detail {

class RDMAXX_EXPORT addrinfo_category_type : public std::error_category {
public:
    [[nodiscard]] const char* name() const noexcept override { return "rdma_getaddrinfo"; }
    [[nodiscard]] std::string message(int value) const override { return ::gai_strerror(value); }
    /// For classify(): what may be better later.
    [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
        switch (value) {
        case EAI_AGAIN: return std::errc::resource_unavailable_try_again;
        case EAI_MEMORY: return std::errc::not_enough_memory;
        default: return {value, *this};
        }
    }
};

} // namespace detail

/// The EAI_... codes of getaddrinfo(3): a name that is not known, a service that is not, ...
[[nodiscard]] RDMAXX_EXPORT inline const std::error_category& addrinfo_category() noexcept {
    static const detail::never_destroyed<detail::addrinfo_category_type> category;
    return category.value;
}

namespace detail {

struct addrinfo_traits {
    using raw_type = rdma_addrinfo;
    using ref_type = ref<rdma_addrinfo>;
    using block = detail::block<rdma_addrinfo, 0>;
    static status destroy(block& b) noexcept {
        ::rdma_freeaddrinfo(b.raw);
        return {};
    }
};

} // namespace detail

/// One entry of an addrinfo; valid as long as that.
class addrinfo_entry : public detail::ref<rdma_addrinfo> {
public:
    using ref::ref;

    /// What was asked for.
    [[nodiscard]] addrinfo_flags flags() const noexcept {
        return static_cast<addrinfo_flags>(native_handle()->ai_flags);
    }
    /// AF_INET, AF_INET6 or AF_IB.
    [[nodiscard]] int family() const noexcept { return native_handle()->ai_family; }
    /// What an id for this address is made with.
    [[nodiscard]] port_space ps() const noexcept { return static_cast<port_space>(native_handle()->ai_port_space); }
    /// And its queue pair.
    [[nodiscard]] qp_type type() const noexcept { return static_cast<qp_type>(native_handle()->ai_qp_type); }
    /// For a connecting side the address to connect from, for a listener the one to bind to; empty for any.
    [[nodiscard]] address source() const noexcept { return address(native_handle()->ai_src_addr); }
    /// For a connecting side the address to connect to.
    [[nodiscard]] address destination() const noexcept { return address(native_handle()->ai_dst_addr); }
    /// Null where there is none.
    [[nodiscard]] const char* source_name() const noexcept { return native_handle()->ai_src_canonname; }
    [[nodiscard]] const char* destination_name() const noexcept { return native_handle()->ai_dst_canonname; }
    /// Path records, where they were asked for; see cm_id::set_ib_path.
    [[nodiscard]] std::span<const ibv_path_data> route() const noexcept {
        return {static_cast<const ibv_path_data*>(native_handle()->ai_route),
                native_handle()->ai_route_len / sizeof(ibv_path_data)};
    }
    /// Private data that the address's kind puts before the program's own.
    [[nodiscard]] std::span<const std::byte> connect_data() const noexcept {
        return {static_cast<const std::byte*>(native_handle()->ai_connect), native_handle()->ai_connect_len};
    }
};

/// Addresses of a name and a service: a range of addrinfo_entry, in the order in which to try them. The first may be of
/// any family (AF_IB where the machine has it): choose by family().
///
/// Blocks: asks the name service. Any number of threads may read one. C calls: rdma_getaddrinfo(3),
/// rdma_freeaddrinfo(3).
///
/// After `using namespace rdmaxx` it has to be written `rdmaxx::addrinfo`: there is struct addrinfo as well.
class addrinfo : public detail::owner<detail::addrinfo_traits> {
public:
    /// A forward iterator; it ends with the list.
    class iterator {
    public:
        /// What a range needs of its iterators.
        using value_type = addrinfo_entry;
        using difference_type = std::ptrdiff_t;

        iterator() noexcept = default;
        /// @param at an entry of a list; null for the end
        explicit iterator(rdma_addrinfo* at) noexcept : at_(at) {}
        /// As for every forward iterator; not at the end.
        [[nodiscard]] addrinfo_entry operator*() const noexcept { return addrinfo_entry(at_); }
        iterator& operator++() noexcept {
            at_ = at_->ai_next;
            return *this;
        }
        iterator operator++(int) noexcept { return iterator(std::exchange(at_, at_->ai_next)); }
        /// Whether both are at one entry.
        friend bool operator==(const iterator&, const iterator&) noexcept = default;

    private:
        rdma_addrinfo* at_ = nullptr;
    };

    addrinfo() noexcept = default;

    /// @param node a name or a numeric address; null for any address of this machine (a listener's)
    /// @param service a port number or a service's name; null for none
    /// @throws error with an addrinfo_category() code (EAI_NONAME, ...), or an errno: ENODEV, EINVAL
    addrinfo(const char* node, const char* service, const addrinfo_hints& hints = {}) {
        detail::check(init(node, service, hints), asked{node, service});
    }
    [[nodiscard]] static addrinfo create(const char* node, const char* service, const addrinfo_hints& hints,
                                         std::error_code& ec) noexcept {
        addrinfo result;
        detail::assign(ec, result.init(node, service, hints));
        return result;
    }

#if RDMAXX_HAS_RESOLVE_ADDRINFO
    /// What cm_id::resolve_addrinfo found, after addrinfo_resolved. (RDMAXX_HAS_RESOLVE_ADDRINFO)
    /// @throws error ENOENT where there is nothing
    /// C call: rdma_query_addrinfo(3).
    [[nodiscard]] static addrinfo query(cm_id_ref id) {
        addrinfo result;
        detail::check(result.do_query(id));
        return result;
    }
    [[nodiscard]] static addrinfo query(cm_id_ref id, std::error_code& ec) noexcept {
        addrinfo result;
        detail::assign(ec, result.do_query(id));
        return result;
    }
#endif

    /// Takes over a list that rdma_getaddrinfo made.
    /// @param ec ENOMEM, and the list is still the caller's
    [[nodiscard]] static addrinfo adopt(rdma_addrinfo* raw, std::error_code& ec) noexcept {
        addrinfo result;
        detail::assign(ec, result.take_over("rdma_getaddrinfo", raw));
        return result;
    }

    /// The entries, in the order in which to try them; as long as the list.
    [[nodiscard]] iterator begin() const noexcept RDMAXX_LIFETIMEBOUND {
        return iterator(native_handle());
    }
    // NOLINTNEXTLINE(readability-convert-member-functions-to-static): a range's
    [[nodiscard]] iterator end() const noexcept {
        return iterator();
    }

    /// The first entry; must not be empty.
    [[nodiscard]] addrinfo_entry front() const& noexcept RDMAXX_LIFETIMEBOUND {
        return *begin();
    }
    addrinfo_entry front() const&& = delete; // its entries end with the list

private:
    /// What an error is about: `node:service`.
    struct asked {
        const char* node;
        const char* service;
        [[nodiscard]] std::string to_string() const {
            return std::string(node != nullptr ? node : "*") + ":" + (service != nullptr ? service : "*");
        }
    };

    [[nodiscard]] detail::status init(const char* node, const char* service, const addrinfo_hints& hints) noexcept {
        const rdma_addrinfo c_hints = detail::to_c(hints);
        rdma_addrinfo* found = nullptr;
        errno = 0;
        const int result = ::rdma_getaddrinfo(node, service, &c_hints, &found);
        if (result != 0)
            return failure(result);
        const detail::status made = make("rdma_getaddrinfo", [found]() noexcept { return found; });
        if (made.failed() && found != nullptr)
            ::rdma_freeaddrinfo(found);
        return made;
    }

    /// An EAI code, or -1 with errno (which is EAI_BADFLAGS of some C libraries: with an errno it is not meant).
    [[nodiscard]] static detail::status failure(int result) noexcept {
        if (result == -1 && errno != 0)
            return {"rdma_getaddrinfo", errno};
        if (result == EAI_SYSTEM)
            return {"rdma_getaddrinfo", detail::last_errno()};
        return {"rdma_getaddrinfo", result, "", &addrinfo_category()};
    }

#if RDMAXX_HAS_RESOLVE_ADDRINFO
    [[nodiscard]] detail::status do_query(cm_id_ref id) noexcept {
        rdma_addrinfo* found = nullptr;
        errno = 0;
        const detail::status result =
            detail::check_errno_call("rdma_query_addrinfo", ::rdma_query_addrinfo, id.native_handle(), &found);
        if (result.failed())
            return result;
        const detail::status made = make("rdma_query_addrinfo", [found]() noexcept { return found; });
        if (made.failed() && found != nullptr)
            ::rdma_freeaddrinfo(found);
        return made;
    }
#endif
};

} // namespace rdmaxx::inline v0

#endif
