// struct ibv_ah, an address handle: where a datagram goes. ibv_create_ah(3), ibv_create_ah_from_wc(3),
// ibv_init_ah_from_wc(3).
#ifndef RDMAXX_VERBS_AH_HPP
#define RDMAXX_VERBS_AH_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/datagram.hpp>
#include <rdmaxx/verbs/gid.hpp>
#include <rdmaxx/verbs/pd.hpp>
#include <rdmaxx/verbs/port.hpp>
#include <rdmaxx/verbs/wc.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace rdmaxx::inline v0 {
namespace detail {

struct ah_traits {
    using raw_type = ibv_ah;
    using ref_type = ah_ref;
    using block = detail::block<ibv_ah, 1>; // pd
    static status destroy(block& b) noexcept { return check_number("ibv_destroy_ah", ::ibv_destroy_ah(b.raw)); }
};

/// Why C does not find the way back: it looks for the GID that was sent to, and a group's is nobody's own.
[[nodiscard]] inline const char* no_way_back(const wc& completion, const void* grh) noexcept {
    if (!has(completion.flags(), wc_flags::grh) || !routing_header(grh).to_group())
        return "";
    return "it was sent to a multicast group: say by a gid_entry which of this side's addresses answers";
}

[[nodiscard]] inline status init_ah_from(context_ref device, const datagram& received, std::uint32_t port_num,
                                         ibv_ah_attr& attr) noexcept {
    if (!device)
        return {"ibv_init_ah_from_wc", EINVAL, empty_handle};
    ibv_wc completion = received.completion().raw(); // C takes it and the header as non-const, and does not write
    alignas(ibv_grh) std::byte header[datagram::grh_size];
    std::memcpy(header, received.header().data(), sizeof header);
    errno = 0; // not every failure sets it
    status result =
        check_errno("ibv_init_ah_from_wc", ::ibv_init_ah_from_wc(device.native_handle(), c_port(port_num), &completion,
                                                                 reinterpret_cast<ibv_grh*>(header), &attr));
    if (result.failed())
        result.cause = no_way_back(received.completion(), header);
    return result;
}

} // namespace detail

/// The path back to the sender of a datagram, to be changed before an address handle is made of it.
/// @throws error EINVAL, for one that was sent to a multicast group for example: see the form with a gid_entry
/// C call: ibv_init_ah_from_wc(3).
[[nodiscard]] inline ibv_ah_attr init_ah_from_datagram(context_ref device, const datagram& received,
                                                       std::uint32_t port_num) {
    ibv_ah_attr attr{};
    detail::check(detail::init_ah_from(device, received, port_num, attr));
    return attr;
}
[[nodiscard]] inline ibv_ah_attr init_ah_from_datagram(context_ref device, const datagram& received,
                                                       std::uint32_t port_num, std::error_code& ec) noexcept {
    ibv_ah_attr attr{};
    detail::assign(ec, detail::init_ah_from(device, received, port_num, attr));
    return attr;
}

#if RDMAXX_HAS_LINUX_VERBS
namespace detail {

[[nodiscard]] inline status path_to(const gid_entry& own, const gid& peer, std::uint8_t hop_limit,
                                    ibv_ah_attr& attr) noexcept {
    if (own.index() > std::numeric_limits<decltype(attr.grh.sgid_index)>::max())
        return {"ibv_ah_attr", ERANGE, "sgid_index has 8 bits"};
    attr.is_global = 1;
    attr.port_num = c_port(own.port_num());
    attr.grh.dgid = peer.raw();
    attr.grh.sgid_index = static_cast<std::uint8_t>(own.index());
    attr.grh.hop_limit = hop_limit;
    return {};
}

} // namespace detail

/// The path from a row of the device's own GID table to a peer, for qp_attr::ah_attr and address handles. What else a
/// path may have (traffic class, flow label, service level) is 0, and the caller's to set.
///
///     const auto own = context.find_gid(local, gid_type::roce_v2);
///     qp_attr(qp_state::rtr).ah_attr(ah_attr_to(own.value(), peer)) ...
///
/// @param hop_limit routers that packets may pass; 1 stays in the subnet
/// @throws error ERANGE for a row from 256 on, which C has no room for
[[nodiscard]] inline ibv_ah_attr ah_attr_to(const gid_entry& own, const gid& peer, std::uint8_t hop_limit = 64) {
    ibv_ah_attr attr{};
    detail::check(detail::path_to(own, peer, hop_limit, attr));
    return attr;
}
[[nodiscard]] inline ibv_ah_attr ah_attr_to(const gid_entry& own, const gid& peer, std::uint8_t hop_limit,
                                            std::error_code& ec) noexcept {
    ibv_ah_attr attr{};
    detail::assign(ec, detail::path_to(own, peer, hop_limit, attr));
    return attr;
}

namespace detail {

/// What ibv_init_ah_from_wc says of a datagram, but for the GID of this side.
[[nodiscard]] inline status init_ah_from(const datagram& received, const gid_entry& own, ibv_ah_attr& attr) noexcept {
    attr.port_num = c_port(own.port_num());
    attr.dlid = received.completion().slid().value_or(0);
    attr.sl = received.completion().sl().value_or(0);
    attr.src_path_bits = received.completion().dlid_path_bits().value_or(0);
    if (!received.has_grh())
        return {};
    const routing_header header(received.header().data());
    attr.grh.traffic_class = header.traffic_class();
    attr.grh.flow_label = header.flow_label();
    return path_to(own, header.sgid(), std::numeric_limits<std::uint8_t>::max(), attr);
}

} // namespace detail

/// The same from an address of this side's own, a row of the device's GID table: also for a datagram that was sent to a
/// multicast group, of which C finds no way back.
///
///     const auto own = id.verbs().find_gid(id.local_address(), gid_type::roce_v2);
///     const ah sender = ah::from_datagram(id.pd(), received, own.value());
///
/// @throws error ERANGE for a row from 256 on, which C has no room for
[[nodiscard]] inline ibv_ah_attr init_ah_from_datagram(const datagram& received, const gid_entry& own) {
    ibv_ah_attr attr{};
    detail::check(detail::init_ah_from(received, own, attr));
    return attr;
}
[[nodiscard]] inline ibv_ah_attr init_ah_from_datagram(const datagram& received, const gid_entry& own,
                                                       std::error_code& ec) noexcept {
    ibv_ah_attr attr{};
    detail::assign(ec, detail::init_ah_from(received, own, attr));
    return attr;
}
#endif

/// Where a path leads on Ethernet: what raw packets are sent with.
struct eth_l2 {
    std::uint8_t mac[6] = {};    ///< as it is on the wire
    std::uint16_t vlan = 0xffff; ///< 0xffff: none
};

namespace detail {

[[nodiscard]] inline status resolve_l2(context_ref device, const ibv_ah_attr& path, eth_l2& out) noexcept {
    ibv_ah_attr copy = path; // C takes it as non-const
    return check_call("ibv_resolve_eth_l2_from_gid", ::ibv_resolve_eth_l2_from_gid, device.native_handle(), &copy,
                      out.mac, &out.vlan);
}

} // namespace detail

/// The MAC address and the VLAN of a RoCE path's next hop, from the neighbour table. Asks the network and waits for the
/// answer, a second or more, if it is not there.
/// @param path with a global route: its sgid_index says the interface
/// @throws error EINVAL without a global route, EHOSTUNREACH, ETIMEDOUT
/// C call: ibv_resolve_eth_l2_from_gid(3).
[[nodiscard]] inline eth_l2 resolve_eth_l2_from_gid(context_ref device, const ibv_ah_attr& path) {
    eth_l2 result;
    detail::check(detail::resolve_l2(device, path, result));
    return result;
}
[[nodiscard]] inline eth_l2 resolve_eth_l2_from_gid(context_ref device, const ibv_ah_attr& path,
                                                    std::error_code& ec) noexcept {
    eth_l2 result;
    detail::assign(ec, detail::resolve_l2(device, path, result));
    return result;
}

#if RDMAXX_HAS_LINUX_VERBS
/// The UDP source port that RoCE v2 packets of a flow label (20 bits, host byte order) have: for ibv_ah_attr::grh and
/// routers that spread by it. C call: ibv_flow_label_to_udp_sport(3).
[[nodiscard]] inline std::uint16_t flow_label_to_udp_sport(std::uint32_t flow_label) noexcept {
    return ::ibv_flow_label_to_udp_sport(flow_label);
}
#endif

/// An address handle that somebody else owns.
class ah_ref : public detail::ref<ibv_ah> {
public:
    using ref::ref;
};

/// An address handle: the destination of datagrams, for send_wr::to(). It must stay until what was posted with it has
/// completed, and ends exactly when its owner ends.
///
///     const cm_event joined = channel.expect(id, cm_event_type::multicast_join);
///     const ah group(pd, joined.ud_param().ah_attr);
///
/// C calls: ibv_create_ah(3), ibv_destroy_ah(3). System calls on some devices. Any number of threads may post with one.
class ah : public detail::owner<detail::ah_traits> {
public:
    ah() noexcept = default;

    /// @param domain a pd, which is kept, or a pd_ref, which must outlive the handle
    /// @param attr cm_event::ud_param().ah_attr, for one
    /// @throws error EINVAL, ENOMEM
    ah(detail::parent<ibv_pd> domain, const ibv_ah_attr& attr) { detail::check(init(domain, attr)); }
    [[nodiscard]] static ah create(detail::parent<ibv_pd> domain, const ibv_ah_attr& attr,
                                   std::error_code& ec) noexcept {
        ah result;
        detail::assign(ec, result.init(domain, attr));
        return result;
    }

    /// To the sender of a datagram that was received: `completion` is of that receive, and `grh` the first 40 bytes of
    /// its buffer.
    /// @throws error EINVAL, for one that was sent to a multicast group for example: see the form with a gid_entry
    /// C call: ibv_create_ah_from_wc(3).
    [[nodiscard]] static ah from_wc(detail::parent<ibv_pd> domain, const wc& completion, const void* grh,
                                    std::uint32_t port_num) {
        ah result;
        detail::check(result.init(domain, completion, grh, port_num));
        return result;
    }
    [[nodiscard]] static ah from_wc(detail::parent<ibv_pd> domain, const wc& completion, const void* grh,
                                    std::uint32_t port_num, std::error_code& ec) noexcept {
        ah result;
        detail::assign(ec, result.init(domain, completion, grh, port_num));
        return result;
    }

    /// To the sender of a datagram.
    [[nodiscard]] static ah from_datagram(detail::parent<ibv_pd> domain, const datagram& received,
                                          std::uint32_t port_num) {
        return from_wc(domain, received.completion(), received.header().data(), port_num);
    }
    [[nodiscard]] static ah from_datagram(detail::parent<ibv_pd> domain, const datagram& received,
                                          std::uint32_t port_num, std::error_code& ec) noexcept {
        return from_wc(domain, received.completion(), received.header().data(), port_num, ec);
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// To the sender of a datagram, from an address of this side's own: also of one that was sent to a multicast group.
    /// @param own a row of the device's GID table: context.find_gid(id.local_address(), gid_type::roce_v2)
    /// C call: ibv_create_ah(3).
    [[nodiscard]] static ah from_datagram(detail::parent<ibv_pd> domain, const datagram& received,
                                          const gid_entry& own) {
        return {domain, init_ah_from_datagram(received, own)};
    }
    [[nodiscard]] static ah from_datagram(detail::parent<ibv_pd> domain, const datagram& received, const gid_entry& own,
                                          std::error_code& ec) noexcept {
        const ibv_ah_attr attr = init_ah_from_datagram(received, own, ec);
        return ec ? ah() : create(domain, attr, ec);
    }
#endif

    /// Takes over a handle that ibv_create_ah made; it will be destroyed by ibv_destroy_ah.
    /// @param ec ENOMEM, and the handle is still the caller's
    [[nodiscard]] static ah adopt(ibv_ah* raw, detail::parent<ibv_pd> pinned, std::error_code& ec) noexcept {
        ah result;
        detail::assign(ec, result.take_over("ibv_create_ah", raw, pinned.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, const ibv_ah_attr& attr) noexcept {
        if (!domain)
            return {"ibv_create_ah", EINVAL, "empty PD"};
        ibv_ah_attr copy = attr; // C takes it as non-const
        return make(
            "ibv_create_ah", [&]() noexcept { return ::ibv_create_ah(domain.native_handle(), &copy); }, domain.pin());
    }

    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, const wc& completion, const void* grh,
                                      std::uint32_t port_num) noexcept {
        if (!domain)
            return {"ibv_create_ah_from_wc", EINVAL, "empty PD"};
        if (!completion.is_recv())
            return {"ibv_create_ah_from_wc", EINVAL, "the completion is not of a receive that succeeded"};
        if (grh == nullptr && has(completion.flags(), wc_flags::grh))
            return {"ibv_create_ah_from_wc", EINVAL, "no header: the first 40 bytes of the receive are wanted"};
        ibv_wc copy = completion.raw(); // C takes both as non-const, and does not write
        auto* header = static_cast<ibv_grh*>(const_cast<void*>(grh));
        detail::status result = make(
            "ibv_create_ah_from_wc",
            [&]() noexcept {
                return ::ibv_create_ah_from_wc(domain.native_handle(), &copy, header, detail::c_port(port_num));
            },
            domain.pin());
        if (result.failed())
            result.cause = detail::no_way_back(completion, grh);
        return result;
    }
};

} // namespace rdmaxx::inline v0

#endif
