// ibv_get_cq_event and ibv_get_async_event with a std::stop_token, where the C++ library has it
// (RDMAXX_HAS_STOP_TOKEN). Not part of verbs.hpp: <stop_token> costs compile time.
#ifndef RDMAXX_VERBS_STOP_HPP
#define RDMAXX_VERBS_STOP_HPP

#include <rdmaxx/detail/stop.hpp>
#include <rdmaxx/verbs/async_event.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <cstddef>

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

namespace detail {

/// A context, as stop_access takes channels.
struct async_channel {
    context& from;

    [[nodiscard]] status try_get(async_event& out) noexcept { return async_access::try_get(from, out); }
    [[nodiscard]] status get(async_event& out, deadline until, int stop_fd) noexcept {
        return async_access::get(from, out, until, stop_fd);
    }
    [[nodiscard]] static status stopped(context& from, async_event& out, const std::stop_token& token) noexcept {
        async_channel channel{from};
        return stop_access::none(stop_access::get(channel, out, token, deadline::never()));
    }
};

} // namespace detail

/// The next asynchronous event, empty if stop was requested. An event that is there is preferred. Blocks; costs an
/// eventfd. Errors as get_async_event(context), and EMFILE.
[[nodiscard]] inline async_event get_async_event(context& from, const std::stop_token& token) {
    async_event event;
    detail::check(detail::async_channel::stopped(from, event, token));
    return event;
}
[[nodiscard]] inline async_event get_async_event(context& from, const std::stop_token& token,
                                                 std::error_code& ec) noexcept {
    async_event event;
    detail::assign(ec, detail::async_channel::stopped(from, event, token));
    return event;
}

namespace detail {

/// What a log in a thread gets its events by.
struct events_until_stop {
    context& from;
    const std::stop_token& token;

    [[nodiscard]] status get(async_event& out) const noexcept { return async_channel::stopped(from, out, token); }
};

} // namespace detail

/// Logs the events of a device until stop is requested, those that are there by then too: the body of a thread of the
/// program's.
///
///     std::jthread log([&](const std::stop_token& stop) { log_async_events(device, stop); });
///
/// Otherwise as log_async_events(context, sink), and EMFILE.
/// @return how many
template <detail::line_sink Sink>
std::size_t log_async_events(context& from, const std::stop_token& token, Sink&& sink) {
    std::size_t lines = 0;
    detail::check(detail::log_events(detail::events_until_stop{from, token}, sink, lines));
    return lines;
}
template <detail::line_sink Sink>
std::size_t log_async_events(context& from, const std::stop_token& token, Sink&& sink, std::error_code& ec) {
    std::size_t lines = 0;
    detail::assign(ec, detail::log_events(detail::events_until_stop{from, token}, sink, lines));
    return lines;
}
/// The same, on stderr.
inline std::size_t log_async_events(context& from, const std::stop_token& token) {
    return log_async_events(from, token, detail::print_line);
}
inline std::size_t log_async_events(context& from, const std::stop_token& token, std::error_code& ec) {
    return log_async_events(from, token, detail::print_line, ec);
}

} // namespace rdmaxx::inline v0

#endif

#endif
