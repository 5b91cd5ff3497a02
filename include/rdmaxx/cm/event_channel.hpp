// struct rdma_event_channel: rdma_create_event_channel(3), rdma_get_cm_event(3).
#ifndef RDMAXX_CM_EVENT_CHANNEL_HPP
#define RDMAXX_CM_EVENT_CHANNEL_HPP

#include <rdmaxx/cm/cm_event.hpp>
#include <rdmaxx/cm/cm_id.hpp>
#include <rdmaxx/detail/cm_blocks.hpp>
#include <rdmaxx/detail/wait.hpp>

#include <utility>

namespace rdmaxx::inline v0 {

/// Another event than the one that was waited for. It has been acked; this is its copy.
///
/// code() is the event's (cm_event::code), or EPROTO where the event itself is no failure.
class RDMAXX_EXPORT unexpected_event : public error {
public:
    /// The exception for `event`, where `expected` was waited for.
    unexpected_event(const cm_event_snapshot& event, cm_event_type expected)
        : error(code_for(event), "rdma_get_cm_event", "", text(event, expected)), event_(event) {}

    /// What came.
    [[nodiscard]] const cm_event_snapshot& event() const noexcept { return event_; }

    /// The event's code, or EPROTO where it is no failure.
    [[nodiscard]] static std::error_code code_for(const cm_event_snapshot& event) noexcept {
        return event.code() ? event.code() : std::error_code(EPROTO, std::system_category());
    }

private:
    static std::string text(const cm_event_snapshot& event, cm_event_type expected) {
        return std::string("expected ") + to_string(expected) + ", got " + to_string(event.type()) +
               (event.type() == expected ? " of another id" : "");
    }

    cm_event_snapshot event_;
};

namespace detail {

[[nodiscard]] inline bool wait_disconnected(event_channel& channel, cm_id_ref id, deadline until) noexcept;

#if defined(__cpp_exceptions)
[[noreturn]] RDMAXX_COLD inline void raise_unexpected(const cm_event_snapshot& event, cm_event_type expected) {
    throw unexpected_event(event, expected);
}
#else
[[noreturn]] void raise_unexpected(const cm_event_snapshot& event, cm_event_type expected)
    __attribute__((error("without exceptions use the form that takes a std::error_code&")));
#endif

} // namespace detail

/// A channel that somebody else owns. Its events are got by C; to get them here, adopt it.
class event_channel_ref : public detail::ref<rdma_event_channel> {
public:
    using ref::ref;

    /// Readable when an event is there; -1 when empty.
    [[nodiscard]] int fd() const noexcept { return *this ? native_handle()->fd : -1; }
};

/// Where the events of its ids arrive. It stays open until this owner, its ids and its events are gone; a channel whose
/// owner went first has nobody to read it, and its descriptor stays open: take it out of an event loop before.
///
/// Always non-blocking underneath; the blocking gets sleep in poll(2). A signal does not end a get. To stop a thread
/// that gets: a deadline, a stop token (cm/stop.hpp), or fd() in an event loop.
///
/// Any number of threads may get from one channel; each event goes to one of them. The active side's last message of
/// the handshake is sent inside its get: a single thread that plays both sides must get the client's established first.
///
/// C calls: rdma_create_event_channel(3), rdma_destroy_event_channel(3), rdma_get_cm_event(3).
class event_channel : public detail::owner<detail::event_channel_traits> {
public:
    /// @throws error ENODEV where there is no RDMA device, ENOENT or EACCES for /dev/infiniband/rdma_cm, EMFILE; see
    ///         diagnose(). A later try starts afresh.
    event_channel() { detail::check(init()); }
    [[nodiscard]] static event_channel create(std::error_code& ec) noexcept {
        event_channel channel(nullptr);
        detail::assign(ec, channel.init());
        return channel;
    }
    /// An empty one, to be assigned to.
    explicit event_channel(std::nullptr_t) noexcept {}

    /// Takes over a channel that C code made, and sets O_NONBLOCK; release() puts it back. It will be destroyed by
    /// rdma_destroy_event_channel.
    /// @param ec ENOMEM or fcntl's error, and the channel is still the caller's
    [[nodiscard]] static event_channel adopt(rdma_event_channel* raw, std::error_code& ec) noexcept {
        event_channel channel(nullptr);
        detail::assign(ec, channel.take(raw));
        return channel;
    }

    /// Readable when an event is there, for event loops: then get with try_get_cm_event() until that is empty. (A
    /// readable descriptor does not promise an event: librdmacm keeps some to itself.) -1 when empty.
    [[nodiscard]] int fd() const noexcept { return *this ? native_handle()->fd : -1; }

    /// The next event. Blocks until there is one. System calls.
    /// @throws error ENODEV, EACCES after a change of credentials, ENOMEM (no event is lost)
    [[nodiscard]] cm_event get_cm_event() {
        cm_event event;
        detail::check(get(event, detail::deadline::never()));
        return event;
    }
    [[nodiscard]] cm_event get_cm_event(std::error_code& ec) noexcept {
        cm_event event;
        detail::assign(ec, get(event, detail::deadline::never()));
        return event;
    }

    /// The next event, empty if there is none now.
    [[nodiscard]] cm_event try_get_cm_event() {
        cm_event event;
        detail::check(none(try_get(event), EAGAIN));
        return event;
    }
    [[nodiscard]] cm_event try_get_cm_event(std::error_code& ec) noexcept {
        cm_event event;
        detail::assign(ec, none(try_get(event), EAGAIN));
        return event;
    }

    /// The next event, empty if none came within the time.
    /// @param timeout any std::chrono::duration; hours::max() is for ever
    template <detail::duration Duration>
    [[nodiscard]] cm_event get_cm_event_for(Duration timeout) {
        cm_event event;
        detail::check(none(get(event, detail::deadline::after(timeout)), ETIMEDOUT));
        return event;
    }
    template <detail::duration Duration>
    [[nodiscard]] cm_event get_cm_event_for(Duration timeout, std::error_code& ec) noexcept {
        cm_event event;
        detail::assign(ec, none(get(event, detail::deadline::after(timeout)), ETIMEDOUT));
        return event;
    }

    /// The next event, empty if none came before the deadline.
    /// @param deadline a std::chrono::time_point of any clock
    template <detail::time_point TimePoint>
    [[nodiscard]] cm_event get_cm_event_until(TimePoint deadline) {
        cm_event event;
        detail::check(none(get(event, detail::deadline::at(deadline)), ETIMEDOUT));
        return event;
    }
    template <detail::time_point TimePoint>
    [[nodiscard]] cm_event get_cm_event_until(TimePoint deadline, std::error_code& ec) noexcept {
        cm_event event;
        detail::assign(ec, none(get(event, detail::deadline::at(deadline)), ETIMEDOUT));
        return event;
    }

    /// For a channel of one flow: the next event, which must be `type`, of `id` (the listener, for a connect_request).
    /// Anything else is acked, a request's new id destroyed, and thrown. Blocks.
    /// @throws unexpected_event with a copy of what came instead; error as get_cm_event
    [[nodiscard]] cm_event expect(cm_id_ref id, cm_event_type type) {
        return expect_until(id, type, detail::deadline::never());
    }
    /// @param deadline a std::chrono::time_point of any clock
    /// @throws error ETIMEDOUT when nothing came before it
    template <detail::time_point TimePoint>
    [[nodiscard]] cm_event expect(cm_id_ref id, cm_event_type type, TimePoint deadline) {
        return expect_until(id, type, detail::deadline::at(deadline));
    }
    /// @return the event that came, expected or not; empty if none did
    /// @param ec for another event its own code, or EPROTO where it is no failure
    [[nodiscard]] cm_event expect(cm_id_ref id, cm_event_type type, std::error_code& ec) noexcept {
        return expect_until(id, type, detail::deadline::never(), ec);
    }
    template <detail::time_point TimePoint>
    [[nodiscard]] cm_event expect(cm_id_ref id, cm_event_type type, TimePoint deadline, std::error_code& ec) noexcept {
        return expect_until(id, type, detail::deadline::at(deadline), ec);
    }

    /// The same for an event of which only the arrival counts.
    void expect_and_ack(cm_id_ref id, cm_event_type type) { static_cast<void>(expect(id, type)); }
    template <detail::time_point TimePoint>
    void expect_and_ack(cm_id_ref id, cm_event_type type, TimePoint deadline) {
        static_cast<void>(expect(id, type, deadline));
    }
    void expect_and_ack(cm_id_ref id, cm_event_type type, std::error_code& ec) noexcept {
        static_cast<void>(expect(id, type, ec));
    }
    template <detail::time_point TimePoint>
    void expect_and_ack(cm_id_ref id, cm_event_type type, TimePoint deadline, std::error_code& ec) noexcept {
        static_cast<void>(expect(id, type, deadline, ec));
    }

private:
    friend detail::stop_access;
    friend bool detail::wait_disconnected(event_channel& channel, cm_id_ref id, detail::deadline until) noexcept;

    [[nodiscard]] cm_event get_until(detail::deadline until, std::error_code& ec) noexcept {
        cm_event event;
        detail::assign(ec, none(get(event, until), ETIMEDOUT));
        return event;
    }

    [[nodiscard]] detail::status init() noexcept {
        const detail::status made = make("rdma_create_event_channel", ::rdma_create_event_channel);
        if (made.failed())
            return made;
        const detail::status result = unblock();
        if (result.failed())
            *this = event_channel(nullptr);
        return result;
    }

    [[nodiscard]] detail::status take(rdma_event_channel* raw) noexcept {
        const detail::status made = take_over("rdma_create_event_channel", raw);
        if (made.failed())
            return made;
        const detail::status result = unblock();
        if (result.failed())
            static_cast<void>(std::move(*this).release());
        return result;
    }

    [[nodiscard]] detail::status unblock() noexcept {
        return detail::set_nonblocking(fd(), detail::passkey::block(*this)->flags_before);
    }

    [[nodiscard]] static detail::status none(const detail::status& result, int nothing) noexcept {
        return result.value == nothing ? detail::status{} : result;
    }

    [[nodiscard]] detail::status try_get(cm_event& out) noexcept {
        auto* b = detail::passkey::block(*this);
        if (b == nullptr)
            return {"rdma_get_cm_event", EINVAL, detail::empty_handle};
        cm_event event;
        const detail::status result = detail::get_event(*b, event.raw_, event.record_);
        if (!result.failed())
            out = std::move(event);
        return result;
    }

    [[nodiscard]] detail::status get(cm_event& out, detail::deadline until, int stop_fd = -1) noexcept {
        return detail::retry_until(fd(), until, stop_fd, "rdma_get_cm_event", [&]() noexcept { return try_get(out); });
    }

    [[nodiscard]] static bool is(const cm_event& event, cm_id_ref id, cm_event_type type) noexcept {
        return event.type() == type && (type == cm_event_type::connect_request ? event.listen_id() : event.id()) == id;
    }

    [[nodiscard]] cm_event expect_until(cm_id_ref id, cm_event_type type, detail::deadline until) {
        cm_event event;
        detail::check(get(event, until));
        if (!is(event, id, type)) {
            // The exception must not own the event: it would unwind past the id, whose destructor would then wait for
            // an ack that only comes when the exception is gone.
            const cm_event_snapshot copy = event.snapshot();
            event = cm_event();
            detail::raise_unexpected(copy, type);
        }
        return event;
    }

    [[nodiscard]] cm_event expect_until(cm_id_ref id, cm_event_type type, detail::deadline until,
                                        std::error_code& ec) noexcept {
        cm_event event;
        detail::assign(ec, get(event, until));
        if (!ec && !is(event, id, type))
            ec = event.code() ? event.code() : std::error_code(EPROTO, std::system_category());
        return event;
    }
};

namespace detail {

/// False when the deadline passed first. What ends a connection in any way counts.
[[nodiscard]] inline bool wait_disconnected(event_channel& channel, cm_id_ref id, deadline until) noexcept {
    for (;;) {
        std::error_code ec;
        const cm_event event = channel.get_until(until, ec);
        if (ec || !event)
            return false;
        if (event.id() != id)
            continue;
        switch (event.type()) {
        case cm_event_type::disconnected:
        case cm_event_type::timewait_exit:
        case cm_event_type::device_removal:
        case cm_event_type::unreachable:
        case cm_event_type::connect_error:
        case cm_event_type::rejected: return true;
        default: break;
        }
    }
}

} // namespace detail

/// Address and route in one: resolve_addr, addr_resolved, resolve_route, route_resolved. For a channel of one flow.
/// Blocks, at most about twice the timeout.
/// @param timeout any std::chrono::duration, for each of the two steps
/// @throws unexpected_event (addr_error, route_error, ...), error as cm_id::resolve_addr
template <detail::duration Duration>
void resolve(event_channel& channel, const cm_id& id, const address& peer, Duration timeout) {
    id.resolve_addr(peer, timeout);
    channel.expect_and_ack(id, cm_event_type::addr_resolved);
    id.resolve_route(timeout);
    channel.expect_and_ack(id, cm_event_type::route_resolved);
}
template <detail::duration Duration>
void resolve(event_channel& channel, const cm_id& id, const address& peer, Duration timeout,
             std::error_code& ec) noexcept {
    id.resolve_addr(peer, timeout, ec);
    if (!ec)
        channel.expect_and_ack(id, cm_event_type::addr_resolved, ec);
    if (!ec)
        id.resolve_route(timeout, ec);
    if (!ec)
        channel.expect_and_ack(id, cm_event_type::route_resolved, ec);
}

/// Ends a connection within a time: disconnects, waits for the peer to have done so as well, at most so long, and
/// destroys the id in either case. For a channel of one flow: other events that come meanwhile are acked.
/// For the side that ends first: on a disconnected event that was got before, id.disconnect() and the id's end are all
/// (what would still come is timewait_exit, seconds later).
/// @param timeout any std::chrono::duration
/// @return whether the peer answered in time; an id that is not connected counts as answered
/// @param ec of the id's end; the connection's own trouble (a path that is dead) is not an error here
template <detail::duration Duration>
bool close(event_channel& channel, cm_id& id, Duration timeout, std::error_code& ec) noexcept {
    const detail::deadline until = detail::deadline::after(timeout);
    bool answered = true;
    if (id) {
        id.disconnect(ec);
        answered = ec || detail::wait_disconnected(channel, id, until);
    }
    id.close(ec);
    return answered;
}
/// @throws error of the id's end
template <detail::duration Duration>
bool close(event_channel& channel, cm_id& id, Duration timeout) {
    std::error_code ec;
    const bool answered = close(channel, id, timeout, ec);
    detail::check({"rdma_destroy_id", ec.value()});
    return answered;
}

} // namespace rdmaxx::inline v0

#endif
