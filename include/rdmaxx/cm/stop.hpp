// rdma_get_cm_event with a std::stop_token, where the C++ library has it (RDMAXX_HAS_STOP_TOKEN). Not part of cm.hpp:
// <stop_token> costs compile time.
#ifndef RDMAXX_CM_STOP_HPP
#define RDMAXX_CM_STOP_HPP

#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/detail/stop.hpp>

#if RDMAXX_HAS_STOP_TOKEN

namespace rdmaxx::inline v0 {

/// The next event, empty if stop was requested. An event that is there is preferred. Blocks; costs an eventfd. Errors
/// as event_channel::get_cm_event, and EMFILE.
[[nodiscard]] inline cm_event get_cm_event(event_channel& channel, const std::stop_token& token) {
    cm_event event;
    detail::check(
        detail::stop_access::none(detail::stop_access::get(channel, event, token, detail::deadline::never())));
    return event;
}
[[nodiscard]] inline cm_event get_cm_event(event_channel& channel, const std::stop_token& token,
                                           std::error_code& ec) noexcept {
    cm_event event;
    detail::assign(
        ec, detail::stop_access::none(detail::stop_access::get(channel, event, token, detail::deadline::never())));
    return event;
}

} // namespace rdmaxx::inline v0

#endif

#endif
