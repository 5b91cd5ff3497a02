// What a device can do, in types: struct ibv_device_attr and ibv_device_attr_ex, which ibv_query_device(3) and
// ibv_query_device_ex(3) fill in.
#ifndef RDMAXX_VERBS_DEVICE_ATTR_HPP
#define RDMAXX_VERBS_DEVICE_ATTR_HPP

#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/verbs_api.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmaxx::inline v0 {

/// What atomic operations are atomic with (enum ibv_atomic_cap).
enum class atomic_cap : int {
    none = IBV_ATOMIC_NONE, ///< the device has no atomic operations
    hca = IBV_ATOMIC_HCA,   ///< with each other, on this device
    glob = IBV_ATOMIC_GLOB, ///< with processors and other devices as well
};

[[nodiscard]] constexpr const char* to_string(atomic_cap cap) noexcept {
    switch (cap) {
    case atomic_cap::none: return "none";
    case atomic_cap::hca: return "hca";
    case atomic_cap::glob: return "glob";
    }
    return "unknown";
}

/// What a device can do (enum ibv_device_cap_flags, and the macros that go on where it ends). The values are those of
/// C, by number where older headers lack the name.
enum class device_cap_flags : std::uint64_t {
    none = 0,
    resize_max_wr = IBV_DEVICE_RESIZE_MAX_WR, ///< qp_attr::cap
    bad_pkey_cntr = IBV_DEVICE_BAD_PKEY_CNTR,
    bad_qkey_cntr = IBV_DEVICE_BAD_QKEY_CNTR,
    raw_multi = IBV_DEVICE_RAW_MULTI,
    auto_path_mig = IBV_DEVICE_AUTO_PATH_MIG, ///< qp_attr::alt_path
    change_phy_port = IBV_DEVICE_CHANGE_PHY_PORT,
    ud_av_port_enforce = IBV_DEVICE_UD_AV_PORT_ENFORCE,
    curr_qp_state_mod = IBV_DEVICE_CURR_QP_STATE_MOD, ///< qp_attr::cur_state
    shutdown_port = IBV_DEVICE_SHUTDOWN_PORT,
    init_type = IBV_DEVICE_INIT_TYPE,
    port_active_event = IBV_DEVICE_PORT_ACTIVE_EVENT, ///< async_event_type::port_active
    sys_image_guid = IBV_DEVICE_SYS_IMAGE_GUID,
    rc_rnr_nak_gen = IBV_DEVICE_RC_RNR_NAK_GEN,
    srq_resize = IBV_DEVICE_SRQ_RESIZE, ///< srq::resize
    n_notify_cq = IBV_DEVICE_N_NOTIFY_CQ,
    mem_window = IBV_DEVICE_MEM_WINDOW, ///< mw_type::type_1
    ud_ip_csum = IBV_DEVICE_UD_IP_CSUM, ///< send_wr::ip_csum, and wc_flags::ip_csum_ok
    xrc = IBV_DEVICE_XRC,
    mem_mgt_extensions = IBV_DEVICE_MEM_MGT_EXTENSIONS,       ///< send_wr::local_inv, send_with_inv
    mem_window_type_2a = IBV_DEVICE_MEM_WINDOW_TYPE_2A,       ///< mw_type::type_2, of a queue pair's number
    mem_window_type_2b = IBV_DEVICE_MEM_WINDOW_TYPE_2B,       ///< mw_type::type_2, of a queue pair's number and PD
    rc_ip_csum = IBV_DEVICE_RC_IP_CSUM,                       ///< as ud_ip_csum
    raw_ip_csum = IBV_DEVICE_RAW_IP_CSUM,                     ///< as ud_ip_csum
    managed_flow_steering = IBV_DEVICE_MANAGED_FLOW_STEERING, ///< flow
    raw_scatter_fcs = std::uint64_t{1} << 34,                 ///< qp_create_flags::scatter_fcs
    pci_write_end_padding = std::uint64_t{1} << 36,           ///< qp_create_flags::pci_write_end_padding
    flush_global = std::uint64_t{1} << 38,                    ///< batched_wr::flush; the kernel's, as the next two
    flush_persistent = std::uint64_t{1} << 39,
    atomic_write = std::uint64_t{1} << 40,  ///< batched_wr::atomic_write
    cc_dma_bounce = std::uint64_t{1} << 41, ///< only through memory that a hypervisor sees: buf
};

/// enum ibv_odp_general_caps.
enum class odp_general_caps : std::uint64_t {
    none = 0,
    support = 1 << 0,          ///< access::on_demand
    support_implicit = 1 << 1, ///< iova_mr::reg_implicit
};

/// What may be done with memory that is paged on demand (enum ibv_odp_transport_cap_bits).
enum class odp_transport_caps : std::uint32_t {
    none = 0,
    send = 1 << 0,
    recv = 1 << 1,
    write = 1 << 2,
    read = 1 << 3,
    atomic = 1 << 4,
    srq_recv = 1 << 5,
    flush = 1 << 6, // rdma-core 58, as the next one
    atomic_write = 1 << 7,
};

/// What raw packet queue pairs can (enum ibv_raw_packet_caps).
enum class raw_packet_caps : std::uint32_t {
    none = 0,
    cvlan_stripping = 1 << 0,
    scatter_fcs = 1 << 1,
    ip_csum = 1 << 2,
    delay_drop = 1 << 3,
};

/// enum ibv_tm_cap_flags.
enum class tm_cap_flags : std::uint32_t {
    none = 0,
    rc = 1 << 0, ///< tag matching on reliable connections
};

/// Sizes of a PCI atomic operation (enum ibv_pci_atomic_op_size).
enum class pci_atomic_op_size : std::uint16_t {
    none = 0,
    bytes_4 = 1 << 0,
    bytes_8 = 1 << 1,
    bytes_16 = 1 << 2,
};

/// Which function spreads packets over the queues of a table (enum ibv_rx_hash_function_flags).
enum class rx_hash_function : std::uint8_t {
    none = 0,
    toeplitz = 1 << 0,
};

/// Which fields of a packet it looks at (enum ibv_rx_hash_fields): of IPv4 or of IPv6, of TCP or of UDP.
enum class rx_hash_fields : std::uint64_t {
    none = 0,
    src_ipv4 = 1 << 0,
    dst_ipv4 = 1 << 1,
    src_ipv6 = 1 << 2,
    dst_ipv6 = 1 << 3,
    src_port_tcp = 1 << 4,
    dst_port_tcp = 1 << 5,
    src_port_udp = 1 << 6,
    dst_port_udp = 1 << 7,
    ipsec_spi = 1 << 8,
    inner = std::uint64_t{1} << 31, ///< of the packet inside a tunnel
};

namespace detail {
template <>
inline constexpr bool is_flags<device_cap_flags> = true;
template <>
inline constexpr bool is_flags<odp_general_caps> = true;
template <>
inline constexpr bool is_flags<odp_transport_caps> = true;
template <>
inline constexpr bool is_flags<raw_packet_caps> = true;
template <>
inline constexpr bool is_flags<tm_cap_flags> = true;
template <>
inline constexpr bool is_flags<pci_atomic_op_size> = true;
template <>
inline constexpr bool is_flags<rx_hash_function> = true;
template <>
inline constexpr bool is_flags<rx_hash_fields> = true;

/// A GUID, which C has in network byte order.
template <class Wire>
[[nodiscard]] std::uint64_t guid_number(const Wire& wire) noexcept {
    static_assert(sizeof wire == 8);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&wire);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof wire; ++i)
        value = value << 8 | bytes[i];
    return value;
}
} // namespace detail

/// Attributes and limits of a device: struct ibv_device_attr. Its numbers are C's fields; what C has as bits, or in
/// network byte order, has an accessor of that name in its place.
struct device_attr : ibv_device_attr {
    device_attr() noexcept : ibv_device_attr{} {}
    /// The same of what C has filled in.
    explicit device_attr(const ibv_device_attr& raw) noexcept : ibv_device_attr(raw) {}

    /// Integers in host byte order; 0 if unknown. Ports and devices of one adapter have one sys_image_guid.
    [[nodiscard]] std::uint64_t node_guid() const noexcept { return detail::guid_number(ibv_device_attr::node_guid); }
    [[nodiscard]] std::uint64_t sys_image_guid() const noexcept {
        return detail::guid_number(ibv_device_attr::sys_image_guid);
    }
    [[nodiscard]] rdmaxx::atomic_cap atomic_cap() const noexcept {
        return static_cast<rdmaxx::atomic_cap>(ibv_device_attr::atomic_cap);
    }
    /// The lower 32 of them: device_attr_ex has all.
    [[nodiscard]] rdmaxx::device_cap_flags device_cap_flags() const noexcept {
        return static_cast<rdmaxx::device_cap_flags>(static_cast<unsigned>(ibv_device_attr::device_cap_flags));
    }
};
static_assert(sizeof(device_attr) == sizeof(ibv_device_attr));

/// What a device can do beyond that: struct ibv_device_attr_ex, as device_attr. A device, or a library, that does not
/// know a thing says zero.
///
/// C's fields of limits: tso_caps (bytes), rss_caps, packet_pacing_caps (kbit/s), tm_caps, cq_mod_caps (microseconds),
/// max_dm_size, hca_core_clock (kHz), completion_timestamp_mask. is_qpt_supported() reads their supported_qpts.
struct device_attr_ex : ibv_device_attr_ex {
    device_attr_ex() noexcept : ibv_device_attr_ex{} {}
    /// The same of what C has filled in.
    explicit device_attr_ex(const ibv_device_attr_ex& raw) noexcept : ibv_device_attr_ex(raw) {}

    /// What query_device() tells.
    [[nodiscard]] device_attr orig_attr() const noexcept { return device_attr(ibv_device_attr_ex::orig_attr); }

    /// All of them, wherever C has them.
    [[nodiscard]] rdmaxx::device_cap_flags device_cap_flags() const noexcept {
        return orig_attr().device_cap_flags() | static_cast<rdmaxx::device_cap_flags>(device_cap_flags_ex);
    }

    /// On-demand paging, and for each transport what it can do with such memory.
    [[nodiscard]] odp_general_caps odp() const noexcept { return static_cast<odp_general_caps>(odp_caps.general_caps); }
    [[nodiscard]] odp_transport_caps rc_odp() const noexcept {
        return of_transport(odp_caps.per_transport_caps.rc_odp_caps);
    }
    [[nodiscard]] odp_transport_caps uc_odp() const noexcept {
        return of_transport(odp_caps.per_transport_caps.uc_odp_caps);
    }
    [[nodiscard]] odp_transport_caps ud_odp() const noexcept {
        return of_transport(odp_caps.per_transport_caps.ud_odp_caps);
    }
#if RDMAXX_HAS_LINUX_VERBS
    [[nodiscard]] odp_transport_caps xrc_odp() const noexcept {
        return of_transport(xrc_odp_caps);
    }
#endif

    /// What receive-side scaling can hash.
    [[nodiscard]] rx_hash_function rx_hash_functions() const noexcept {
        return static_cast<rx_hash_function>(rss_caps.rx_hash_function);
    }
    [[nodiscard]] rdmaxx::rx_hash_fields rx_hash_fields() const noexcept {
        return static_cast<rdmaxx::rx_hash_fields>(rss_caps.rx_hash_fields_mask);
    }

    /// What raw packet queue pairs can do.
    [[nodiscard]] rdmaxx::raw_packet_caps raw_packet_caps() const noexcept {
        return static_cast<rdmaxx::raw_packet_caps>(ibv_device_attr_ex::raw_packet_caps);
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// What tag matching is there for.
    [[nodiscard]] rdmaxx::tm_cap_flags tm_cap_flags() const noexcept {
        return static_cast<rdmaxx::tm_cap_flags>(tm_caps.flags);
    }

    /// The sizes that the device's own atomic operations on memory can have.
    [[nodiscard]] pci_atomic_op_size pci_fetch_add() const noexcept {
        return static_cast<pci_atomic_op_size>(pci_atomic_caps.fetch_add);
    }
    [[nodiscard]] pci_atomic_op_size pci_swap() const noexcept {
        return static_cast<pci_atomic_op_size>(pci_atomic_caps.swap);
    }
    [[nodiscard]] pci_atomic_op_size pci_compare_swap() const noexcept {
        return static_cast<pci_atomic_op_size>(pci_atomic_caps.compare_swap);
    }
#endif

    /// How many ports it has, also where they are more than 255.
    [[nodiscard]] std::uint32_t phys_port_cnt() const noexcept {
        return ports(*this);
    }

private:
    [[nodiscard]] static odp_transport_caps of_transport(std::uint32_t caps) noexcept {
        return static_cast<odp_transport_caps>(caps);
    }
    template <class Attr> // the field came with rdma-core 35
    [[nodiscard]] static std::uint32_t ports(const Attr& attr) noexcept {
        if constexpr (requires { attr.phys_port_cnt_ex; })
            if (attr.phys_port_cnt_ex != 0)
                return attr.phys_port_cnt_ex;
        return attr.orig_attr().phys_port_cnt;
    }
};
static_assert(sizeof(device_attr_ex) == sizeof(ibv_device_attr_ex));

} // namespace rdmaxx::inline v0

#endif
