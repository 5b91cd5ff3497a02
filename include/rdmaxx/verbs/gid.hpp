// union ibv_gid and the GID table of a device: ibv_query_gid_table(3), ibv_query_gid_ex(3).
#ifndef RDMAXX_VERBS_GID_HPP
#define RDMAXX_VERBS_GID_HPP

#include <rdmaxx/address.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/error.hpp>
#include <rdmaxx/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rdmaxx::inline v0 {

/// A port's address in packets, 128 bits. A plain value, comparable and hashable.
///
/// On RoCE it is an IP address: the IPv6 one itself, or the IPv4 one in its mapped form.
class gid {
public:
    /// All zero: no GID.
    gid() noexcept = default;
    explicit gid(const ibv_gid& raw) noexcept : raw_(raw) {}

    /// The GID that RoCE has for an IP address, and that an AF_IB address is. The port is not looked at.
    explicit gid(const address& of) noexcept {
        if (of.family() == AF_INET) {
            const auto& in = *reinterpret_cast<const sockaddr_in*>(of.data());
            raw_.raw[10] = raw_.raw[11] = 0xff;
            std::memcpy(raw_.raw + 12, &in.sin_addr, 4);
        } else if (of.family() == AF_INET6) {
            const auto& in6 = *reinterpret_cast<const sockaddr_in6*>(of.data());
            std::memcpy(raw_.raw, &in6.sin6_addr, sizeof raw_.raw);
        }
#if RDMAXX_HAS_AF_IB
        else if (of.family() == AF_IB) {
            const auto& ib = *reinterpret_cast<const sockaddr_ib*>(of.data());
            std::memcpy(raw_.raw, &ib.sib_addr, sizeof raw_.raw);
        }
#endif
    }

    /// True if any bit is set.
    [[nodiscard]] explicit operator bool() const noexcept {
        return *this != gid();
    }

    /// In host byte order, as the next one.
    [[nodiscard]] std::uint64_t subnet_prefix() const noexcept {
        return number(0);
    }
    [[nodiscard]] std::uint64_t interface_id() const noexcept {
        return number(8);
    }

    /// For C structs: ibv_ah_attr::grh.dgid.
    [[nodiscard]] const ibv_gid& raw() const noexcept {
        return raw_;
    }

    /// As an IPv6 address is written, at most 45 characters.
    [[nodiscard]] std::string to_string() const {
        char text[INET6_ADDRSTRLEN] = "";
        ::inet_ntop(AF_INET6, raw_.raw, text, sizeof text);
        return text;
    }

    /// Whether they are the same address.
    friend bool operator==(const gid& a, const gid& b) noexcept {
        return std::memcmp(a.raw_.raw, b.raw_.raw, sizeof a.raw_.raw) == 0;
    }

private:
    [[nodiscard]] std::uint64_t number(std::size_t at) const noexcept {
        std::uint64_t value = 0;
        for (std::size_t i = at; i < at + 8; ++i)
            value = value << 8 | raw_.raw[i];
        return value;
    }

    ibv_gid raw_{};
};

#if RDMAXX_HAS_LINUX_VERBS
/// Which packets carry a GID (enum ibv_gid_type).
enum class gid_type : std::uint32_t {
    ib = IBV_GID_TYPE_IB,
    roce_v1 = IBV_GID_TYPE_ROCE_V1, ///< Ethernet frames: one broadcast domain
    roce_v2 = IBV_GID_TYPE_ROCE_V2, ///< UDP: what is used today
};

[[nodiscard]] constexpr const char* to_string(gid_type type) noexcept {
    switch (type) {
    case gid_type::ib: return "ib";
    case gid_type::roce_v1: return "roce_v1";
    case gid_type::roce_v2: return "roce_v2";
    }
    return "unknown";
}

/// A row of a device's GID table, with the layout of struct ibv_gid_entry.
struct gid_entry : private ibv_gid_entry {
    gid_entry() noexcept : ibv_gid_entry{} {}

    /// The address.
    [[nodiscard]] rdmaxx::gid gid() const noexcept { return rdmaxx::gid(ibv_gid_entry::gid); }
    /// What C calls sgid_index: ibv_ah_attr::grh.sgid_index. It may be another one when the interface was down.
    [[nodiscard]] std::uint32_t index() const noexcept { return gid_index; }
    /// From 1.
    [[nodiscard]] std::uint32_t port_num() const noexcept { return ibv_gid_entry::port_num; }
    [[nodiscard]] rdmaxx::gid_type type() const noexcept {
        return static_cast<rdmaxx::gid_type>(ibv_gid_entry::gid_type);
    }
    /// The network interface's index, 0 where there is none: if_indextoname(3).
    [[nodiscard]] std::uint32_t ndev_ifindex() const noexcept { return ibv_gid_entry::ndev_ifindex; }

    /// The C struct.
    [[nodiscard]] const ibv_gid_entry& raw() const noexcept { return *this; }
    [[nodiscard]] ibv_gid_entry& raw() noexcept { return *this; }
};
static_assert(sizeof(gid_entry) == sizeof(ibv_gid_entry) && std::is_standard_layout_v<gid_entry>);

/// All GIDs of a device at the time of the call: a range of gid_entry, rows without a GID left out. There is no
/// default index: look for the address that packets shall have.
///
///     const auto here = context.find_gid(id.local_address(), gid_type::roce_v2);
///
/// Any number of threads may read one table.
class gid_table {
public:
    gid_table() noexcept = default;
    gid_table(gid_table&& other) noexcept
        : rows_(std::exchange(other.rows_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    gid_table& operator=(gid_table&& other) noexcept {
        gid_table taken(std::move(other));
        std::swap(rows_, taken.rows_);
        std::swap(size_, taken.size_);
        return *this;
    }
    gid_table(const gid_table&) = delete;
    gid_table& operator=(const gid_table&) = delete;
    ~gid_table() { delete[] rows_; }

    /// The entries, as long as the table.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] const gid_entry* begin() const noexcept RDMAXX_LIFETIMEBOUND { return rows_; }
    [[nodiscard]] const gid_entry* end() const noexcept RDMAXX_LIFETIMEBOUND { return rows_ + size_; }

    /// The row of that GID and type, on that port or, with 0, on any; empty if there is none.
    [[nodiscard]] std::optional<gid_entry> find(const gid& what, gid_type type, std::uint32_t port = 0) const noexcept {
        for (const gid_entry& row : *this)
            if (row.gid() == what && row.type() == type && (port == 0 || row.port_num() == port))
                return row;
        return std::nullopt;
    }

private:
    friend struct detail::gid_queries;

    gid_entry* rows_ = nullptr;
    std::size_t size_ = 0;
};

namespace detail {

/// The C calls of the GID table.
struct gid_queries {
    /// ibv_query_gid_table does not say how many rows there are: the ports' tables do.
    [[nodiscard]] static status table(ibv_context* context, gid_table& out) noexcept {
        ibv_device_attr device{};
        if (const status result = check_call("ibv_query_device", ::ibv_query_device, context, &device); result.failed())
            return result;
        std::size_t most = 0;
        for (unsigned port = 1; port <= device.phys_port_cnt; ++port) {
            ibv_port_attr attr{};
            const int error = ::ibv_query_port(context, static_cast<std::uint8_t>(port), &attr);
            if (const status result = check_number("ibv_query_port", error); result.failed())
                return result;
            most += static_cast<std::size_t>(attr.gid_tbl_len);
        }
        if (most == 0)
            return {};
        gid_table made;
        made.rows_ = new (std::nothrow) gid_entry[most];
        if (made.rows_ == nullptr)
            return {"ibv_query_gid_table", ENOMEM};
        const auto rows = ::ibv_query_gid_table(context, &made.rows_->raw(), most, 0);
        if (rows < 0)
            return {"ibv_query_gid_table", error_number(static_cast<int>(rows))};
        made.size_ = static_cast<std::size_t>(rows);
        out = std::move(made);
        return {};
    }

    [[nodiscard]] static status entry(ibv_context* context, std::uint32_t port, std::uint32_t index,
                                      gid_entry& out) noexcept {
        return check_call("ibv_query_gid_ex", ::ibv_query_gid_ex, context, port, index, &out.raw(), 0U);
    }
};

} // namespace detail
#endif

} // namespace rdmaxx::inline v0

//! @cond
template <>
struct std::hash<rdmaxx::gid> {
    [[nodiscard]] std::size_t operator()(const rdmaxx::gid& of) const noexcept {
        return std::hash<std::string_view>()({reinterpret_cast<const char*>(of.raw().raw), sizeof of.raw().raw});
    }
};
//! @endcond

#endif
