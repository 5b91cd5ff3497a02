// ibv_get_cq_event with a std::stop_token, where the C++ library has it (RDMAXX_HAS_STOP_TOKEN). Not part of verbs.hpp:
// <stop_token> costs compile time.
#ifndef RDMAXX_VERBS_STOP_HPP
#define RDMAXX_VERBS_STOP_HPP

#include <rdmaxx/detail/stop.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#if RDMAXX_HAS_STOP_TOKEN

namespace rdmaxx::inline v0 {

/// The next event, empty if stop was requested. An event that is there is preferred. Blocks; costs an eventfd. Errors
/// as comp_channel::get_cq_event, and EMFILE.
[[nodiscard]] inline cq_event get_cq_event(comp_channel& channel, const std::stop_token& token) {
    cq_event event;
    detail::check(
        detail::stop_access::none(detail::stop_access::get(channel, event, token, detail::deadline::never())));
    return event;
}
[[nodiscard]] inline cq_event get_cq_event(comp_channel& channel, const std::stop_token& token,
                                           std::error_code& ec) noexcept {
    cq_event event;
    detail::assign(
        ec, detail::stop_access::none(detail::stop_access::get(channel, event, token, detail::deadline::never())));
    return event;
}

} // namespace rdmaxx::inline v0

#endif

#endif
