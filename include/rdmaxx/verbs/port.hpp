// What a port is like: struct ibv_port_attr, and the conversions of MTUs and rates.
#ifndef RDMAXX_VERBS_PORT_HPP
#define RDMAXX_VERBS_PORT_HPP

#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/verbs_api.hpp>

#include <cstdint>
#include <limits>

namespace rdmaxx::inline v0 {

/// enum ibv_port_state.
enum class port_state : int {
    nop = IBV_PORT_NOP,
    down = IBV_PORT_DOWN,
    init = IBV_PORT_INIT,
    armed = IBV_PORT_ARMED,
    active = IBV_PORT_ACTIVE, ///< traffic can flow
    active_defer = IBV_PORT_ACTIVE_DEFER,
};

/// The enumerator's name; `unknown` for a value that this version does not know.
[[nodiscard]] constexpr const char* to_string(port_state state) noexcept {
    switch (state) {
    case port_state::nop: return "nop";
    case port_state::down: return "down";
    case port_state::init: return "init";
    case port_state::armed: return "armed";
    case port_state::active: return "active";
    case port_state::active_defer: return "active_defer";
    }
    return "unknown";
}

/// Path MTU in enum ibv_mtu's values.
enum class mtu : int {
    bytes_256 = IBV_MTU_256,
    bytes_512 = IBV_MTU_512,
    bytes_1024 = IBV_MTU_1024,
    bytes_2048 = IBV_MTU_2048,
    bytes_4096 = IBV_MTU_4096,
};

[[nodiscard]] constexpr const char* to_string(mtu value) noexcept {
    switch (value) {
    case mtu::bytes_256: return "bytes_256";
    case mtu::bytes_512: return "bytes_512";
    case mtu::bytes_1024: return "bytes_1024";
    case mtu::bytes_2048: return "bytes_2048";
    case mtu::bytes_4096: return "bytes_4096";
    }
    return "unknown";
}

/// 256 to 4096; 0 for a value that is none.
[[nodiscard]] constexpr std::uint32_t to_bytes(mtu value) noexcept {
    const int code = static_cast<int>(value);
    return code >= IBV_MTU_256 && code <= IBV_MTU_4096 ? std::uint32_t{128} << static_cast<unsigned>(code) : 0;
}

/// The largest MTU that `bytes` have room for: what of an interface's MTU is left when the headers are subtracted. Less
/// than 256 is bytes_256.
[[nodiscard]] constexpr mtu mtu_within(std::uint32_t bytes) noexcept {
    int code = IBV_MTU_4096;
    while (code > IBV_MTU_256 && to_bytes(static_cast<mtu>(code)) > bytes)
        --code;
    return static_cast<mtu>(code);
}

/// enum ibv_rate: ibv_ah_attr::static_rate.
enum class rate : int {
    max = IBV_RATE_MAX, ///< as fast as the port
    gbps_2_5 = IBV_RATE_2_5_GBPS,
    gbps_5 = IBV_RATE_5_GBPS,
    gbps_10 = IBV_RATE_10_GBPS,
    gbps_14 = IBV_RATE_14_GBPS,
    gbps_20 = IBV_RATE_20_GBPS,
    gbps_25 = IBV_RATE_25_GBPS,
    gbps_28 = IBV_RATE_28_GBPS,
    gbps_30 = IBV_RATE_30_GBPS,
    gbps_40 = IBV_RATE_40_GBPS,
    gbps_50 = IBV_RATE_50_GBPS,
    gbps_56 = IBV_RATE_56_GBPS,
    gbps_60 = IBV_RATE_60_GBPS,
    gbps_80 = IBV_RATE_80_GBPS,
    gbps_100 = IBV_RATE_100_GBPS,
    gbps_112 = IBV_RATE_112_GBPS,
    gbps_120 = IBV_RATE_120_GBPS,
    gbps_168 = IBV_RATE_168_GBPS,
    gbps_200 = IBV_RATE_200_GBPS,
    gbps_300 = IBV_RATE_300_GBPS,
    gbps_400 = IBV_RATE_400_GBPS,
    gbps_600 = IBV_RATE_600_GBPS,
    gbps_800 = 23, // rdma-core 39, as the next one
    gbps_1200 = 24,
};

/// `10 Gb/s`; `unknown` for a value that this version does not know.
[[nodiscard]] constexpr const char* to_string(rate value) noexcept {
    switch (value) {
    case rate::max: return "max";
    case rate::gbps_2_5: return "2.5 Gb/s";
    case rate::gbps_5: return "5 Gb/s";
    case rate::gbps_10: return "10 Gb/s";
    case rate::gbps_14: return "14 Gb/s";
    case rate::gbps_20: return "20 Gb/s";
    case rate::gbps_25: return "25 Gb/s";
    case rate::gbps_28: return "28 Gb/s";
    case rate::gbps_30: return "30 Gb/s";
    case rate::gbps_40: return "40 Gb/s";
    case rate::gbps_50: return "50 Gb/s";
    case rate::gbps_56: return "56 Gb/s";
    case rate::gbps_60: return "60 Gb/s";
    case rate::gbps_80: return "80 Gb/s";
    case rate::gbps_100: return "100 Gb/s";
    case rate::gbps_112: return "112 Gb/s";
    case rate::gbps_120: return "120 Gb/s";
    case rate::gbps_168: return "168 Gb/s";
    case rate::gbps_200: return "200 Gb/s";
    case rate::gbps_300: return "300 Gb/s";
    case rate::gbps_400: return "400 Gb/s";
    case rate::gbps_600: return "600 Gb/s";
    case rate::gbps_800: return "800 Gb/s";
    case rate::gbps_1200: return "1200 Gb/s";
    }
    return "unknown";
}

/// Mb/s; -1 for max and for a value that is none. C call: ibv_rate_to_mbps(3).
[[nodiscard]] inline int rate_to_mbps(rate value) noexcept {
    return ::ibv_rate_to_mbps(static_cast<ibv_rate>(value));
}
/// The rate of exactly so many Mb/s; max if there is none. C call: mbps_to_ibv_rate(3).
[[nodiscard]] inline rate mbps_to_rate(int mbps) noexcept {
    return static_cast<rate>(::mbps_to_ibv_rate(mbps));
}
/// Multiples of 2.5 Gb/s; -1 for max, for none, and for most with lanes of 14 or 25 Gb/s. C call: ibv_rate_to_mult(3).
[[nodiscard]] inline int rate_to_mult(rate value) noexcept {
    return ::ibv_rate_to_mult(static_cast<ibv_rate>(value));
}
/// C call: mult_to_ibv_rate(3).
[[nodiscard]] inline rate mult_to_rate(int mult) noexcept {
    return static_cast<rate>(::mult_to_ibv_rate(mult));
}

/// What a port is connected to (IBV_LINK_LAYER_...).
enum class link_layer : std::uint8_t {
    unspecified = IBV_LINK_LAYER_UNSPECIFIED, ///< InfiniBand, said by what is older than RoCE
    infiniband = IBV_LINK_LAYER_INFINIBAND,
    ethernet = IBV_LINK_LAYER_ETHERNET, ///< RoCE and iWARP
};

[[nodiscard]] constexpr const char* to_string(link_layer layer) noexcept {
    switch (layer) {
    case link_layer::unspecified: return "unspecified";
    case link_layer::infiniband: return "infiniband";
    case link_layer::ethernet: return "ethernet";
    }
    return "unknown";
}

/// What a port can do (enum ibv_port_cap_flags): InfiniBand's PortInfo, mostly. The values are those of the C enum, by
/// number where a C library lacks some of the names.
enum class port_cap_flags : std::uint32_t {
    none = 0,
    sm = 1 << 1,
    notice_sup = 1 << 2,
    trap_sup = 1 << 3,
    opt_ipd_sup = 1 << 4,
    auto_migr_sup = 1 << 5,
    sl_map_sup = 1 << 6,
    mkey_nvram = 1 << 7,
    pkey_nvram = 1 << 8,
    led_info_sup = 1 << 9,
    sys_image_guid_sup = 1 << 11,
    pkey_sw_ext_port_trap_sup = 1 << 12,
    extended_speeds_sup = 1 << 14,
    cap_mask2_sup = 1 << 15, ///< port_cap_flags2 says more
    cm_sup = 1 << 16,
    snmp_tunnel_sup = 1 << 17,
    reinit_sup = 1 << 18,
    device_mgmt_sup = 1 << 19,
    vendor_class_sup = 1 << 20,
    dr_notice_sup = 1 << 21,
    cap_mask_notice_sup = 1 << 22,
    boot_mgmt_sup = 1 << 23,
    link_latency_sup = 1 << 24,
    client_reg_sup = 1 << 25, ///< async_event_type::client_reregister
    ip_based_gids = 1 << 26,  ///< RoCE's GIDs are IP addresses
};

/// What else (enum ibv_port_cap_flags2).
enum class port_cap_flags2 : std::uint16_t {
    none = 0,
    set_node_desc_sup = 1 << 0,
    info_ext_sup = 1 << 1,
    virt_sup = 1 << 2,
    switch_port_state_table_sup = 1 << 3,
    link_width_2x_sup = 1 << 4,
    link_speed_hdr_sup = 1 << 5,
    link_speed_ndr_sup = 1 << 10,
    link_speed_xdr_sup = 1 << 12,
};

namespace detail {
/// A port for C, which mostly has 8 bits for one: 0, which is no port, for what does not fit.
[[nodiscard]] constexpr std::uint8_t c_port(std::uint32_t port) noexcept {
    return port <= std::numeric_limits<std::uint8_t>::max() ? static_cast<std::uint8_t>(port) : std::uint8_t{0};
}

template <>
inline constexpr bool is_flags<port_cap_flags> = true;
template <>
inline constexpr bool is_flags<port_cap_flags2> = true;
} // namespace detail

/// State and limits of a port: struct ibv_port_attr with typed views of its numbers.
struct port_attr : ibv_port_attr {
    port_attr() noexcept : ibv_port_attr{} {}

    /// Whether it can carry anything: active.
    [[nodiscard]] rdmaxx::port_state port_state() const noexcept { return static_cast<rdmaxx::port_state>(state); }
    /// The path MTU that the port has now; max_mtu is what it could have.
    [[nodiscard]] rdmaxx::mtu mtu() const noexcept { return static_cast<rdmaxx::mtu>(active_mtu); }
    [[nodiscard]] rdmaxx::link_layer link_layer() const noexcept {
        return static_cast<rdmaxx::link_layer>(ibv_port_attr::link_layer);
    }
    /// True for RoCE and iWARP, which have GIDs and no LIDs.
    [[nodiscard]] bool is_ethernet() const noexcept { return link_layer() == rdmaxx::link_layer::ethernet; }

    /// What the port can do.
    [[nodiscard]] rdmaxx::port_cap_flags port_cap_flags() const noexcept {
        return static_cast<rdmaxx::port_cap_flags>(ibv_port_attr::port_cap_flags);
    }
#if RDMAXX_HAS_LINUX_VERBS
    /// And more of it, where port_cap_flags::cap_mask2_sup is set.
    [[nodiscard]] rdmaxx::port_cap_flags2 port_cap_flags2() const noexcept {
        return static_cast<rdmaxx::port_cap_flags2>(ibv_port_attr::port_cap_flags2);
    }
    /// True where every path needs a global route (IBV_QPF_GRH_REQUIRED): on RoCE, and in some InfiniBand networks.
    [[nodiscard]] bool grh_required() const noexcept {
        return (flags & IBV_QPF_GRH_REQUIRED) != 0;
    }
#endif

    /// Mb/s of all lanes together; 0 where the device tells no known speed or width. From the extended speed where the
    /// C headers have it and the device fills it in.
    [[nodiscard]] std::uint64_t speed_mbps() const noexcept {
        return lanes() * lane_mbps(speed_code(*this));
    }

private:
    template <class Attr>
    [[nodiscard]] static std::uint32_t speed_code(const Attr& attr) noexcept {
        if constexpr (requires { attr.active_speed_ex; })
            if (attr.active_speed_ex != 0)
                return attr.active_speed_ex;
        return attr.active_speed;
    }
    [[nodiscard]] std::uint64_t lanes() const noexcept {
        switch (active_width) {
        case 1: return 1;
        case 2: return 4;
        case 4: return 8;
        case 8: return 12;
        case 16: return 2;
        default: return 0;
        }
    }
    [[nodiscard]] static std::uint64_t lane_mbps(std::uint32_t code) noexcept {
        switch (code) {
        case 1: return 2'500;
        case 2: return 5'000;
        case 4:
        case 8: return 10'000; // QDR, FDR10
        case 16: return 14'000;
        case 32: return 25'000;
        case 64: return 50'000;
        case 128: return 100'000;
        case 256: return 200'000;
        default: return 0;
        }
    }
};

} // namespace rdmaxx::inline v0

#endif
