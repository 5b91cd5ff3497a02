// struct ibv_comp_channel, where completion events arrive: ibv_create_comp_channel(3), ibv_get_cq_event(3).
#ifndef RDMAXX_VERBS_COMP_CHANNEL_HPP
#define RDMAXX_VERBS_COMP_CHANNEL_HPP

#include <rdmaxx/detail/comp_channel_block.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/detail/wait.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/cq.hpp>
#include <rdmaxx/verbs/cq_event.hpp>
#include <rdmaxx/verbs/wc.hpp>

#include <span>
#include <utility>

namespace rdmaxx::inline v0 {

/// A completion channel that somebody else owns.
class comp_channel_ref : public detail::ref<ibv_comp_channel> {
public:
    using ref::ref;

    /// Readable when an event is there, for event loops.
    [[nodiscard]] int fd() const noexcept { return *this ? native_handle()->fd : -1; }
};

/// A completion channel: the CQs made on it report there that completions came, once for each request_notify.
/// It stays until this owner, its CQs and its events are gone.
///
/// Always non-blocking underneath; the blocking gets sleep in poll(2). A signal does not end a get.
/// C calls: ibv_create_comp_channel(3), ibv_get_cq_event(3), ibv_ack_cq_events(3). Any number of threads may get from
/// one channel: each event goes to one of them.
class comp_channel : public detail::owner<detail::comp_channel_traits> {
public:
    comp_channel() noexcept = default;

    /// @param device a context, which is kept open, or a context_ref, which must outlive the channel
    explicit comp_channel(detail::parent<ibv_context> device) { detail::check(init(device)); }
    [[nodiscard]] static comp_channel create(detail::parent<ibv_context> device, std::error_code& ec) noexcept {
        comp_channel result;
        detail::assign(ec, result.init(device));
        return result;
    }

    /// Takes over a channel that ibv_create_comp_channel made, and sets O_NONBLOCK; release() puts it back.
    /// @param ec ENOMEM or fcntl's error, and the channel is still the caller's
    [[nodiscard]] static comp_channel adopt(ibv_comp_channel* raw, detail::parent<ibv_context> pinned,
                                            std::error_code& ec) noexcept {
        comp_channel result;
        detail::assign(ec, result.take(raw, pinned));
        return result;
    }

    /// Readable when an event is there, for event loops. Get until try_get_cq_event() is empty.
    [[nodiscard]] int fd() const noexcept { return *this ? native_handle()->fd : -1; }

    /// The next event. Blocks until there is one. System calls.
    [[nodiscard]] cq_event get_cq_event() {
        cq_event event;
        detail::check(get(event, detail::deadline::never()));
        return event;
    }
    [[nodiscard]] cq_event get_cq_event(std::error_code& ec) noexcept {
        cq_event event;
        detail::assign(ec, get(event, detail::deadline::never()));
        return event;
    }

    /// The next event, empty if there is none now.
    [[nodiscard]] cq_event try_get_cq_event() {
        cq_event event;
        detail::check(none(try_get(event), EAGAIN));
        return event;
    }
    [[nodiscard]] cq_event try_get_cq_event(std::error_code& ec) noexcept {
        cq_event event;
        detail::assign(ec, none(try_get(event), EAGAIN));
        return event;
    }

    /// The next event, empty if none came within the time.
    /// @param timeout any std::chrono::duration; hours::max() is for ever
    template <detail::duration Duration>
    [[nodiscard]] cq_event get_cq_event_for(Duration timeout) {
        cq_event event;
        detail::check(none(get(event, detail::deadline::after(timeout)), ETIMEDOUT));
        return event;
    }
    template <detail::duration Duration>
    [[nodiscard]] cq_event get_cq_event_for(Duration timeout, std::error_code& ec) noexcept {
        cq_event event;
        detail::assign(ec, none(get(event, detail::deadline::after(timeout)), ETIMEDOUT));
        return event;
    }

    /// The next event, empty if none came before the deadline.
    /// @param deadline a std::chrono::time_point of any clock
    template <detail::time_point TimePoint>
    [[nodiscard]] cq_event get_cq_event_until(TimePoint deadline) {
        cq_event event;
        detail::check(none(get(event, detail::deadline::at(deadline)), ETIMEDOUT));
        return event;
    }
    template <detail::time_point TimePoint>
    [[nodiscard]] cq_event get_cq_event_until(TimePoint deadline, std::error_code& ec) noexcept {
        cq_event event;
        detail::assign(ec, none(get(event, detail::deadline::at(deadline)), ETIMEDOUT));
        return event;
    }

    /// Completions of a CQ of this channel: polls, and where there is none asks for an event, polls again, and only
    /// then sleeps; so no wake-up is lost. Blocks until there is at least one.
    ///
    /// Events of other CQs that arrive meanwhile are acked: each CQ's waiter polls before it sleeps. One thread at a
    /// time may wait on one channel.
    /// @param completions not empty
    /// @return the filled part, at least one
    [[nodiscard]] std::span<wc> wait(cq_ref cq, std::span<wc> completions) {
        detail::check(do_wait(cq, completions, detail::deadline::never()));
        return completions;
    }
    [[nodiscard]] std::span<wc> wait(cq_ref cq, std::span<wc> completions, std::error_code& ec) noexcept {
        detail::assign(ec, do_wait(cq, completions, detail::deadline::never()));
        return completions;
    }

    /// As wait(); empty if none came within the time.
    template <detail::duration Duration>
    [[nodiscard]] std::span<wc> wait_for(cq_ref cq, std::span<wc> completions, Duration timeout) {
        detail::check(none(do_wait(cq, completions, detail::deadline::after(timeout)), ETIMEDOUT));
        return completions;
    }
    template <detail::duration Duration>
    [[nodiscard]] std::span<wc> wait_for(cq_ref cq, std::span<wc> completions, Duration timeout,
                                         std::error_code& ec) noexcept {
        detail::assign(ec, none(do_wait(cq, completions, detail::deadline::after(timeout)), ETIMEDOUT));
        return completions;
    }

    /// As wait(); empty if none came before the deadline.
    template <detail::time_point TimePoint>
    [[nodiscard]] std::span<wc> wait_until(cq_ref cq, std::span<wc> completions, TimePoint deadline) {
        detail::check(none(do_wait(cq, completions, detail::deadline::at(deadline)), ETIMEDOUT));
        return completions;
    }
    template <detail::time_point TimePoint>
    [[nodiscard]] std::span<wc> wait_until(cq_ref cq, std::span<wc> completions, TimePoint deadline,
                                           std::error_code& ec) noexcept {
        detail::assign(ec, none(do_wait(cq, completions, detail::deadline::at(deadline)), ETIMEDOUT));
        return completions;
    }

private:
    friend detail::stop_access;

    [[nodiscard]] detail::status init(detail::parent<ibv_context> device) noexcept {
        if (!device)
            return {"ibv_create_comp_channel", EINVAL, "empty context"};
        const detail::status made = make(
            "ibv_create_comp_channel", [&]() noexcept { return ::ibv_create_comp_channel(device.native_handle()); },
            device.pin());
        if (made.failed())
            return made;
        const detail::status result = unblock();
        if (result.failed())
            *this = comp_channel();
        return result;
    }

    [[nodiscard]] detail::status take(ibv_comp_channel* raw, detail::parent<ibv_context> pinned) noexcept {
        const detail::status made = take_over("ibv_create_comp_channel", raw, pinned.pin());
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

    [[nodiscard]] detail::status try_get(cq_event& out) noexcept {
        auto* b = detail::passkey::block(*this);
        if (b == nullptr)
            return {"ibv_get_cq_event", EINVAL, detail::empty_handle};
        ibv_cq* raw = nullptr;
        void* context = nullptr;
        int result = 0;
        do {
            errno = 0;
            result = ::ibv_get_cq_event(native_handle(), &raw, &context);
        } while (result != 0 && errno == EINTR);
        if (result != 0)
            return {"ibv_get_cq_event", detail::last_errno()};
        const detail::mutex_guard guard(b->lock);
        detail::node* known = b->cqs.find(raw);
        // An end that has begun waits for this event's ack: the CQ stays valid until then, and needs no pin.
        out = cq_event(raw, detail::keep(known, b));
        return {};
    }

    [[nodiscard]] detail::status get(cq_event& out, detail::deadline until, int stop_fd = -1) noexcept {
        return detail::retry_until(fd(), until, stop_fd, "ibv_get_cq_event", [&]() noexcept { return try_get(out); });
    }

    [[nodiscard]] detail::status do_wait(cq_ref cq, std::span<wc>& completions, detail::deadline until,
                                         int stop_fd = -1) noexcept {
        const std::span<wc> room = std::exchange(completions, {});
        if (room.empty())
            return {"ibv_poll_cq", EINVAL, "no room for a completion"};
        if (!cq || cq.native_handle()->channel != native_handle())
            return {"ibv_get_cq_event", EINVAL, "the CQ's events do not arrive on this channel"};
        std::error_code ec;
        for (;;) {
            completions = cq.poll(room, ec);
            if (ec || !completions.empty())
                return {"ibv_poll_cq", ec.value()};
            cq.request_notify(false, ec);
            if (ec)
                return {"ibv_req_notify_cq", ec.value()};
            completions = cq.poll(room, ec);
            if (ec || !completions.empty())
                return {"ibv_poll_cq", ec.value()};
            cq_event event;
            const detail::status got = get(event, until, stop_fd);
            if (got.failed())
                return got;
        }
    }
};

} // namespace rdmaxx::inline v0

#endif
