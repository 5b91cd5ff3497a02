// struct ibv_device and the list it comes from: ibv_get_device_list(3).
#ifndef RDMAXX_VERBS_DEVICE_HPP
#define RDMAXX_VERBS_DEVICE_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/pointer_list.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/error.hpp>
#include <rdmaxx/fwd.hpp>
#include <rdmaxx/verbs/device_attr.hpp>

#include <cstdint>
#include <string_view>

namespace rdmaxx::inline v0 {

/// What a device is (enum ibv_node_type).
enum class node_type : int {
    unknown = IBV_NODE_UNKNOWN,
    ca = IBV_NODE_CA, ///< InfiniBand and RoCE
    switch_ = IBV_NODE_SWITCH,
    router = IBV_NODE_ROUTER,
    rnic = IBV_NODE_RNIC, ///< iWARP
    usnic = IBV_NODE_USNIC,
    usnic_udp = IBV_NODE_USNIC_UDP,
    unspecified = 7, // rdma-core 22
};

/// The enumerator's name; `unknown` for a value that this version does not know.
[[nodiscard]] constexpr const char* to_string(node_type type) noexcept {
    switch (type) {
    case node_type::unknown: return "unknown";
    case node_type::ca: return "ca";
    case node_type::switch_: return "switch";
    case node_type::router: return "router";
    case node_type::rnic: return "rnic";
    case node_type::usnic: return "usnic";
    case node_type::usnic_udp: return "usnic_udp";
    case node_type::unspecified: return "unspecified";
    }
    return "unknown";
}

/// What a device's packets are (enum ibv_transport_type).
enum class transport_type : int {
    unknown = IBV_TRANSPORT_UNKNOWN,
    ib = IBV_TRANSPORT_IB, ///< InfiniBand and RoCE
    iwarp = IBV_TRANSPORT_IWARP,
    usnic = IBV_TRANSPORT_USNIC,
    usnic_udp = IBV_TRANSPORT_USNIC_UDP,
    unspecified = 4, // rdma-core 22
};

/// The enumerator's name; `unknown` for a value that this version does not know.
[[nodiscard]] constexpr const char* to_string(transport_type type) noexcept {
    switch (type) {
    case transport_type::unknown: return "unknown";
    case transport_type::ib: return "ib";
    case transport_type::iwarp: return "iwarp";
    case transport_type::usnic: return "usnic";
    case transport_type::usnic_udp: return "usnic_udp";
    case transport_type::unspecified: return "unspecified";
    }
    return "unknown";
}

/// One RDMA device of this machine. Valid as long as the device_list it came from, or a context opened on it.
class device_ref : public detail::ref<ibv_device> {
public:
    using ref::ref;

    /// The kernel's name of the device, `mlx5_0`. C call: ibv_get_device_name(3).
    [[nodiscard]] const char* name() const noexcept { return ::ibv_get_device_name(native_handle()); }

    /// Node GUID as an integer in host byte order; 0 if unknown. C call: ibv_get_device_guid(3).
    [[nodiscard]] std::uint64_t guid() const noexcept {
        return detail::guid_number(::ibv_get_device_guid(native_handle()));
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// The kernel's number of the device, which stays when it is renamed; -1 if unknown. C call:
    /// ibv_get_device_index(3).
    [[nodiscard]] int index() const noexcept {
        return ::ibv_get_device_index(native_handle());
    }
#endif

    /// What kind of device it is.
    [[nodiscard]] rdmaxx::node_type node_type() const noexcept {
        return static_cast<rdmaxx::node_type>(native_handle()->node_type);
    }

    /// What its packets are. No system call.
    [[nodiscard]] rdmaxx::transport_type transport_type() const noexcept {
        return static_cast<rdmaxx::transport_type>(native_handle()->transport_type);
    }

    /// True for iWARP, whose rules differ: the side that connects sends first, no UD, no atomics.
    [[nodiscard]] bool is_iwarp() const noexcept {
        return transport_type() == rdmaxx::transport_type::iwarp;
    }

    /// The name of its character device, `uverbs0`.
    [[nodiscard]] const char* dev_name() const noexcept {
        return native_handle()->dev_name;
    }
    /// The folders in sysfs of that and of the device itself, `/sys/class/infiniband/mlx5_0`.
    [[nodiscard]] const char* dev_path() const noexcept {
        return native_handle()->dev_path;
    }
    [[nodiscard]] const char* ibdev_path() const noexcept {
        return native_handle()->ibdev_path;
    }
};

namespace detail {

struct device_list_traits {
    using raw_type = ibv_device*;
    using ref_type = ref<ibv_device*>;
    using block = detail::block<raw_type, 0>;
    static status destroy(block& b) noexcept {
        ::ibv_free_device_list(b.raw);
        return {};
    }
};

} // namespace detail

/// The RDMA devices of this machine at the time of the call: a range of device_ref. No devices is an empty list, not an
/// error. The elements are valid as long as the list; a context keeps its own device.
///
/// C calls: ibv_get_device_list(3), ibv_free_device_list(3). Any number of threads may read one list.
class device_list : public detail::pointer_list<detail::device_list_traits, device_ref> {
public:
    /// Asks for the devices. System call.
    /// @throws error ENOSYS where the kernel has no RDMA support, EPERM, ENOMEM
    device_list() { detail::check(init()); }
    [[nodiscard]] static device_list create(std::error_code& ec) noexcept {
        device_list list(nullptr);
        detail::assign(ec, list.init());
        return list;
    }

    /// The device of that name, empty if there is none.
    [[nodiscard]] device_ref find(std::string_view name) const& noexcept RDMAXX_LIFETIMEBOUND {
        for (const device_ref device : *this)
            if (device.name() == name)
                return device;
        return device_ref();
    }
    device_ref find(std::string_view name) const&& = delete; // its elements end with the list

private:
    explicit device_list(std::nullptr_t) noexcept {}

    [[nodiscard]] detail::status init() noexcept {
        return make("ibv_get_device_list", []() noexcept { return ::ibv_get_device_list(nullptr); });
    }
};

} // namespace rdmaxx::inline v0

#endif
