// struct ibv_ah, an address handle: where a datagram goes. ibv_create_ah(3), ibv_create_ah_from_wc(3).
#ifndef RDMAXX_VERBS_AH_HPP
#define RDMAXX_VERBS_AH_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/pd.hpp>
#include <rdmaxx/verbs/wc.hpp>

#include <cstdint>

namespace rdmaxx::inline v0 {
namespace detail {

struct ah_traits {
    using raw_type = ibv_ah;
    using ref_type = ah_ref;
    using block = detail::block<ibv_ah, 1>; // pd
    static status destroy(block& b) noexcept { return check_number("ibv_destroy_ah", ::ibv_destroy_ah(b.raw)); }
};

} // namespace detail

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

    /// To the sender of a datagram that was received: `completion` is of that receive, and `grh` the first 40 bytes of its
    /// buffer. C call: ibv_create_ah_from_wc(3).
    [[nodiscard]] static ah from_wc(detail::parent<ibv_pd> domain, const wc& completion, const void* grh,
                                    std::uint8_t port_num) {
        ah result;
        detail::check(result.init(domain, completion, grh, port_num));
        return result;
    }
    [[nodiscard]] static ah from_wc(detail::parent<ibv_pd> domain, const wc& completion, const void* grh,
                                    std::uint8_t port_num, std::error_code& ec) noexcept {
        ah result;
        detail::assign(ec, result.init(domain, completion, grh, port_num));
        return result;
    }

    /// Takes over a handle that ibv_create_ah made; it will be destroyed by ibv_destroy_ah.
    /// @param ec ENOMEM, and the handle is still the caller's
    [[nodiscard]] static ah adopt(ibv_ah* raw, detail::parent<ibv_pd> pinned, std::error_code& ec) noexcept {
        ah result;
        detail::assign(ec, result.make(
                               "ibv_create_ah", [raw]() noexcept { return raw; }, pinned.pin()));
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
                                      std::uint8_t port_num) noexcept {
        if (!domain)
            return {"ibv_create_ah_from_wc", EINVAL, "empty PD"};
        if (!completion.is_recv())
            return {"ibv_create_ah_from_wc", EINVAL, "the completion is not of a receive that succeeded"};
        ibv_wc copy = completion.raw(); // C takes both as non-const, and does not write
        auto* header = static_cast<ibv_grh*>(const_cast<void*>(grh));
        return make(
            "ibv_create_ah_from_wc",
            [&]() noexcept { return ::ibv_create_ah_from_wc(domain.native_handle(), &copy, header, port_num); },
            domain.pin());
    }
};

} // namespace rdmaxx::inline v0

#endif
