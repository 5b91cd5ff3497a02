// struct ibv_async_event: ibv_get_async_event(3), ibv_ack_async_event(3). One get, one ack.
#ifndef RDMAXX_VERBS_ASYNC_EVENT_HPP
#define RDMAXX_VERBS_ASYNC_EVENT_HPP

#include <rdmaxx/detail/async_blocks.hpp>
#include <rdmaxx/detail/held_events.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/detail/wait.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/cq.hpp>
#include <rdmaxx/verbs/qp.hpp>
#include <rdmaxx/verbs/srq.hpp>
#include <rdmaxx/verbs/wq.hpp>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace rdmaxx::inline v0 {

/// enum ibv_event_type. The values are those of the C enum, by number where older headers lack the name.
enum class async_event_type : int {
    none = -1,                 ///< no event: acked, moved from, or never there
    cq_err = IBV_EVENT_CQ_ERR, ///< the CQ overran
    qp_fatal = IBV_EVENT_QP_FATAL,
    qp_req_err = IBV_EVENT_QP_REQ_ERR,
    qp_access_err = IBV_EVENT_QP_ACCESS_ERR,
    comm_est = IBV_EVENT_COMM_EST, ///< see cm_id::notify
    sq_drained = IBV_EVENT_SQ_DRAINED,
    path_mig = IBV_EVENT_PATH_MIG,
    path_mig_err = IBV_EVENT_PATH_MIG_ERR,
    device_fatal = IBV_EVENT_DEVICE_FATAL,
    port_active = IBV_EVENT_PORT_ACTIVE,
    port_err = IBV_EVENT_PORT_ERR,
    lid_change = IBV_EVENT_LID_CHANGE,
    pkey_change = IBV_EVENT_PKEY_CHANGE,
    sm_change = IBV_EVENT_SM_CHANGE,
    srq_err = IBV_EVENT_SRQ_ERR,
    srq_limit_reached = IBV_EVENT_SRQ_LIMIT_REACHED,     ///< see srq::arm_limit
    qp_last_wqe_reached = IBV_EVENT_QP_LAST_WQE_REACHED, ///< not every provider raises it
    client_reregister = IBV_EVENT_CLIENT_REREGISTER,
    gid_change = IBV_EVENT_GID_CHANGE,
    wq_fatal = IBV_EVENT_WQ_FATAL,
    device_speed_change = 20, ///< of one port or more: query_port_speed of each. rdma-core 62
};

/// The enumerator's name; `unknown` for a value that this version does not know.
[[nodiscard]] constexpr const char* to_string(async_event_type type) noexcept {
    switch (type) {
    case async_event_type::none: return "none";
    case async_event_type::cq_err: return "cq_err";
    case async_event_type::qp_fatal: return "qp_fatal";
    case async_event_type::qp_req_err: return "qp_req_err";
    case async_event_type::qp_access_err: return "qp_access_err";
    case async_event_type::comm_est: return "comm_est";
    case async_event_type::sq_drained: return "sq_drained";
    case async_event_type::path_mig: return "path_mig";
    case async_event_type::path_mig_err: return "path_mig_err";
    case async_event_type::device_fatal: return "device_fatal";
    case async_event_type::port_active: return "port_active";
    case async_event_type::port_err: return "port_err";
    case async_event_type::lid_change: return "lid_change";
    case async_event_type::pkey_change: return "pkey_change";
    case async_event_type::sm_change: return "sm_change";
    case async_event_type::srq_err: return "srq_err";
    case async_event_type::srq_limit_reached: return "srq_limit_reached";
    case async_event_type::qp_last_wqe_reached: return "qp_last_wqe_reached";
    case async_event_type::client_reregister: return "client_reregister";
    case async_event_type::gid_change: return "gid_change";
    case async_event_type::wq_fatal: return "wq_fatal";
    case async_event_type::device_speed_change: return "device_speed_change";
    }
    return "unknown";
}

namespace detail {

/// What it means for the program; empty where the name says all.
[[nodiscard]] constexpr const char* meaning_of(async_event_type type) noexcept {
    switch (type) {
    case async_event_type::cq_err:
        return "it overran, and completions are lost: it needs room for all that can be outstanding on it";
    case async_event_type::qp_fatal: return "the device failed it, and moved it to the error state";
    case async_event_type::qp_req_err: return "the peer sent what no request is";
    case async_event_type::qp_access_err: return "the peer accessed memory that it may not";
    case async_event_type::comm_est: return "a message came before the last one of the handshake";
    case async_event_type::sq_drained: return "the sends that were begun have completed";
    case async_event_type::path_mig: return "it moved to its alternate path";
    case async_event_type::path_mig_err: return "it could not move to its alternate path";
    case async_event_type::device_fatal: return "the device failed: everything made from it is to be closed";
    case async_event_type::srq_err: return "it failed, and takes no receives any more";
    case async_event_type::srq_limit_reached: return "fewer receives are posted than its limit says";
    case async_event_type::qp_last_wqe_reached: return "it takes no more receives of its shared queue";
    case async_event_type::wq_fatal: return "the device failed it, and moved it to the error state";
    default: return "";
    }
}

} // namespace detail

/// The port that an event is about, from 1.
struct port_number {
    std::uint32_t value; ///< for context_ops::query_port
};

namespace detail {

/// Which member of the C struct's union an event has.
enum class async_subject { device, port, cq, qp, srq, wq };

[[nodiscard]] constexpr async_subject subject_of(async_event_type type) noexcept {
    switch (type) {
    case async_event_type::cq_err: return async_subject::cq;
    case async_event_type::qp_fatal:
    case async_event_type::qp_req_err:
    case async_event_type::qp_access_err:
    case async_event_type::comm_est:
    case async_event_type::sq_drained:
    case async_event_type::path_mig:
    case async_event_type::path_mig_err:
    case async_event_type::qp_last_wqe_reached: return async_subject::qp;
    case async_event_type::srq_err:
    case async_event_type::srq_limit_reached: return async_subject::srq;
    case async_event_type::wq_fatal: return async_subject::wq;
    case async_event_type::port_active:
    case async_event_type::port_err:
    case async_event_type::lid_change:
    case async_event_type::pkey_change:
    case async_event_type::sm_change:
    case async_event_type::client_reregister:
    case async_event_type::gid_change: return async_subject::port;
    default: return async_subject::device;
    }
}

/// Read as a number: that of a newer library is none of the C enum's values here, and must not be loaded as one.
[[nodiscard]] inline async_event_type type_of(const ibv_async_event& event) noexcept {
    int number = 0;
    static_assert(sizeof number == sizeof event.event_type);
    std::memcpy(&number, &event.event_type, sizeof number);
    return static_cast<async_event_type>(number);
}

/// A visitor that says which object it is. What has no number is told apart by native_handle() of its owner.
struct object_text {
    std::string& text;

    void operator()(cq_ref queue) const {
        text.append(" of a CQ of ").append(std::to_string(queue.size()));
        append(queue.native_handle());
    }
    void operator()(qp_ref pair) const { text.append(" of queue pair ").append(std::to_string(pair.qp_num())); }
    void operator()(srq_ref queue) const {
        text.append(" of a shared receive queue");
        append(queue.native_handle());
    }
    void operator()(wq_ref queue) const {
        text.append(" of work queue ").append(std::to_string(queue.native_handle()->wq_num));
    }
    void operator()(port_number port) const { text.append(" of port ").append(std::to_string(port.value)); }
    void operator()(context_ref) const {}

private:
    void append(const void* address) const {
        char digits[32];
        std::snprintf(digits, sizeof digits, " (%p)", address);
        text.append(digits);
    }
};

/// The address whose destroy waits for the ack; null for events of ports and of the device.
[[nodiscard]] inline const void* pinned_by(const ibv_async_event& event) noexcept {
    switch (subject_of(type_of(event))) {
    case async_subject::cq: return event.element.cq;
    case async_subject::qp: return event.element.qp;
    case async_subject::srq: return event.element.srq;
    case async_subject::wq: return event.element.wq;
    default: return nullptr;
    }
}

} // namespace detail

/// An event of a device, a port or a queue, to be given back with ibv_ack_async_event(3): the destructor does.
/// Move-only.
///
/// The object that it is about cannot be destroyed before the ack: copy what is needed, ack, and take locks afterwards.
/// A destroy that waits for it is reported to the hang hook, if the object was made from owners.
///
/// One event may be used by one thread at a time, and acked by another one than the one that got it.
class [[nodiscard]] RDMAXX_CONSUMABLE(unknown) async_event {
public:
    /// Empty.
    async_event() noexcept RDMAXX_RETURN_TYPESTATE(unknown) {}
    async_event(async_event&& other) noexcept : raw_(other.raw_), record_(std::exchange(other.record_, nullptr)) {}
    /// Takes the new event first, then acks the old one. Self-move changes nothing.
    async_event& operator=(async_event&& other) noexcept {
        async_event taken(std::move(other));
        std::swap(raw_, taken.raw_);
        std::swap(record_, taken.record_);
        return *this;
    }
    async_event(const async_event&) = delete;
    async_event& operator=(const async_event&) = delete;
    ~async_event() { end(); }

    /// False for an empty event.
    [[nodiscard]] explicit operator bool() const noexcept RDMAXX_TEST_TYPESTATE(unconsumed) {
        return record_ != nullptr;
    }

    /// Gives the event back now: std::move(event).ack(). Empty: no effect.
    void ack() && noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") RDMAXX_SET_TYPESTATE(consumed) { end(); }

    /// What happened; none for an empty event. A value that this version does not know is passed through.
    [[nodiscard]] async_event_type type() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return record_ != nullptr ? detail::type_of(raw_) : async_event_type::none;
    }

    // ---- The one that the type has; the others are empty, and port_num() is 0.

    /// What cq_err is about.
    [[nodiscard]] cq_ref cq() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return is(detail::async_subject::cq) ? cq_ref(raw_.element.cq) : cq_ref();
    }
    /// What qp_fatal, comm_est, sq_drained and their like are about.
    [[nodiscard]] qp_ref qp() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return is(detail::async_subject::qp) ? qp_ref(raw_.element.qp) : qp_ref();
    }
    /// What srq_err and srq_limit_reached are about.
    [[nodiscard]] srq_ref srq() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return is(detail::async_subject::srq) ? srq_ref(raw_.element.srq) : srq_ref();
    }
    /// What wq_fatal is about.
    [[nodiscard]] wq_ref wq() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return is(detail::async_subject::wq) ? wq_ref(raw_.element.wq) : wq_ref();
    }
    /// From 1.
    [[nodiscard]] std::uint32_t port_num() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return is(detail::async_subject::port) ? static_cast<std::uint32_t>(raw_.element.port_num) : 0;
    }

    /// The context that it was got from.
    [[nodiscard]] context_ref context() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return record_ != nullptr ? context_ref(static_cast<detail::context_traits::block*>(record_->source)->raw)
                                  : context_ref();
    }

    /// The object concerned, whichever it is: calls `visitor` with a cq_ref, qp_ref, srq_ref, wq_ref, port_number or,
    /// for events of the device, context_ref, and returns what it returns.
    ///
    ///     event.visit([](auto object) {
    ///         if constexpr (std::is_same_v<decltype(object), qp_ref>)
    ///             ...
    ///     });
    template <class Visitor>
    decltype(auto) visit(Visitor&& visitor) const RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        switch (detail::subject_of(type())) {
        case detail::async_subject::cq: return visitor(cq());
        case detail::async_subject::qp: return visitor(qp());
        case detail::async_subject::srq: return visitor(srq());
        case detail::async_subject::wq: return visitor(wq());
        case detail::async_subject::port: return visitor(port_number{port_num()});
        default: return visitor(context());
        }
    }

    /// For people: the device, what happened to which object, and what it means. `rxe0: qp_access_err of queue pair 17:
    /// the peer accessed memory that it may not`. Reads the object, like everything here before the ack.
    [[nodiscard]] std::string to_string() const RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        const async_event_type what = type();
        if (what == async_event_type::none)
            return rdmaxx::to_string(what);
        std::string text = context().device().name();
        text.append(": ").append(rdmaxx::to_string(what));
        if (std::strcmp(rdmaxx::to_string(what), "unknown") == 0)
            text.append(" ").append(std::to_string(static_cast<int>(what)));
        visit(detail::object_text{text});
        if (const char* meaning = detail::meaning_of(what); *meaning != '\0')
            text.append(": ").append(meaning);
        return text;
    }

private:
    friend struct detail::async_access;

    [[nodiscard]] bool is(detail::async_subject subject) const noexcept {
        return record_ != nullptr && detail::subject_of(detail::type_of(raw_)) == subject;
    }

    void end() noexcept {
        detail::event_record* record = std::exchange(record_, nullptr);
        if (record == nullptr)
            return;
        const detail::errno_guard keep_errno;
        auto& context = *static_cast<detail::context_traits::block*>(record->source);
        if (!context.foreign_process()) {
            const detail::mutex_guard guard(context.events.lock);
            ::ibv_ack_async_event(&raw_);
            context.events.leave(*record);
        }
        detail::release(&context);
    }

    ibv_async_event raw_{};
    detail::event_record* record_ = nullptr;
};

namespace detail {

struct async_access {
    /// One try; EAGAIN when there is no event.
    [[nodiscard]] static status try_get(context& from, async_event& out) noexcept {
        if (!from)
            return {"ibv_get_async_event", EINVAL, empty_handle};
        auto& b = *passkey::block(from);
        async_event event;
        {
            const mutex_guard guard(b.events.lock);
            if (const status result = locked_get(b, event); result.failed())
                return result;
        }
        out = std::move(event);
        return {};
    }

    [[nodiscard]] static status get(context& from, async_event& out, deadline until, int stop_fd = -1) noexcept {
        return retry_until(from.async_fd(), until, stop_fd, "ibv_get_async_event",
                           [&]() noexcept { return try_get(from, out); });
    }

    [[nodiscard]] static status none(const status& result) noexcept {
        return result.value == EAGAIN || result.value == ETIMEDOUT || result.value == ECANCELED ? status{} : result;
    }

private:
    [[nodiscard]] static status locked_get(context_traits::block& b, async_event& event) noexcept
        RDMAXX_REQUIRES(b.events.lock) {
        for (;;) {
            if (b.events.reserve() == nullptr)
                return {"ibv_get_async_event", ENOMEM};
            // A context that librdmacm keeps may have a blocking descriptor.
            if (b.borrowed.let_go != nullptr && wait_readable(b.raw->async_fd, deadline::after_ns(0)) != wake::readable)
                return {"ibv_get_async_event", EAGAIN};
            errno = 0;
            if (::ibv_get_async_event(b.raw, &event.raw_) != 0) {
                if (errno == EINTR)
                    continue;
                return {"ibv_get_async_event", last_errno()};
            }
            const void* pinned = pinned_by(event.raw_);
            if (is_going(b, pinned)) {
                ::ibv_ack_async_event(&event.raw_);
                continue;
            }
            event.record_ = &b.events.enter(b, pinned, to_string(type_of(event.raw_)));
            return {};
        }
    }

    [[nodiscard]] static bool is_going(const context_traits::block& b, const void* raw) noexcept
        RDMAXX_REQUIRES(b.events.lock) {
        for (const going_object* at = b.going; at != nullptr; at = at->next)
            if (raw != nullptr && at->raw == raw)
                return true;
        return false;
    }
};

} // namespace detail

/// The next event of a context. Blocks until there is one; a signal does not end it. System calls. Any number of
/// threads may get from one context; each event goes to one of them. C call: ibv_get_async_event(3).
///
/// Where several contexts are one C context (context(id), made twice), get from the one that the objects were made
/// with: an event that another one gave out is not known to hold up the end of its object, which then waits for the ack
/// inside the C call and is not reported.
[[nodiscard]] inline async_event get_async_event(context& from) {
    async_event event;
    detail::check(detail::async_access::get(from, event, detail::deadline::never()));
    return event;
}
[[nodiscard]] inline async_event get_async_event(context& from, std::error_code& ec) noexcept {
    async_event event;
    detail::assign(ec, detail::async_access::get(from, event, detail::deadline::never()));
    return event;
}

/// The next event, empty if there is none now.
[[nodiscard]] inline async_event try_get_async_event(context& from) {
    async_event event;
    detail::check(detail::async_access::none(detail::async_access::try_get(from, event)));
    return event;
}
[[nodiscard]] inline async_event try_get_async_event(context& from, std::error_code& ec) noexcept {
    async_event event;
    detail::assign(ec, detail::async_access::none(detail::async_access::try_get(from, event)));
    return event;
}

/// The next event, empty if none came within the time.
/// @param timeout any std::chrono::duration
template <detail::duration Duration>
[[nodiscard]] async_event get_async_event_for(context& from, Duration timeout) {
    async_event event;
    detail::check(detail::async_access::none(detail::async_access::get(from, event, detail::deadline::after(timeout))));
    return event;
}
template <detail::duration Duration>
[[nodiscard]] async_event get_async_event_for(context& from, Duration timeout, std::error_code& ec) noexcept {
    async_event event;
    detail::assign(
        ec, detail::async_access::none(detail::async_access::get(from, event, detail::deadline::after(timeout))));
    return event;
}

/// The next event, empty if none came before the deadline.
/// @param deadline a std::chrono::time_point of any clock
template <detail::time_point TimePoint>
[[nodiscard]] async_event get_async_event_until(context& from, TimePoint deadline) {
    async_event event;
    detail::check(detail::async_access::none(detail::async_access::get(from, event, detail::deadline::at(deadline))));
    return event;
}
template <detail::time_point TimePoint>
[[nodiscard]] async_event get_async_event_until(context& from, TimePoint deadline, std::error_code& ec) noexcept {
    async_event event;
    detail::assign(ec,
                   detail::async_access::none(detail::async_access::get(from, event, detail::deadline::at(deadline))));
    return event;
}

// ---------------------------------------------------------------------------------------------------------------
// A program that does not act on asynchronous events still wants to know: that a CQ overran, that a queue pair or the
// device failed, is told nowhere else.

namespace detail {

/// What takes the lines of log_async_events.
template <class Sink>
concept line_sink = requires(Sink& sink, const std::string& line) {
    sink(line);
};

inline void print_line(const std::string& line) noexcept {
    std::fprintf(stderr, "rdmaxx: %s\n", line.c_str());
}

/// What a log gets its events by.
struct events_of_now {
    context& from;

    [[nodiscard]] status get(async_event& out) const noexcept {
        return async_access::none(async_access::try_get(from, out));
    }
};

/// Logs what a source gives, until that is nothing, or fails. Each event is acked before its line is handed on: a
/// destroy never waits for what the sink does.
template <class Source, class Sink>
[[nodiscard]] status log_events(const Source& source, Sink& sink, std::size_t& lines) {
    for (lines = 0;; ++lines) {
        std::string line;
        {
            async_event event;
            if (const status result = source.get(event); result.failed() || !event)
                return result;
            line = event.to_string();
        }
        sink(line);
    }
}

} // namespace detail

/// Hands a line for each asynchronous event that is there now, async_event::to_string(), to `sink`, and gives the
/// events back. Never blocks but for what the sink does: for event loops, when context_ops::async_fd() is readable. For
/// a thread of its own there is a form with a stop token (verbs/stop.hpp).
///
///     while (::poll(fds, 2, 1000) >= 0) {
///         if (fds[1].revents != 0) // device.async_fd()
///             log_async_events(device);
///
/// For programs that get the device's events nowhere else: each event goes to one get.
/// @param sink called with a const std::string&; it may destroy what the event was about, and take any lock
/// @return how many
/// @throws error as get_async_event, ENOMEM; and what the sink throws, whose event is given back
template <detail::line_sink Sink>
std::size_t log_async_events(context& from, Sink&& sink) {
    std::size_t lines = 0;
    detail::check(detail::log_events(detail::events_of_now{from}, sink, lines));
    return lines;
}
template <detail::line_sink Sink>
std::size_t log_async_events(context& from, Sink&& sink, std::error_code& ec) {
    std::size_t lines = 0;
    detail::assign(ec, detail::log_events(detail::events_of_now{from}, sink, lines));
    return lines;
}

/// The same, on stderr: `rdmaxx: rxe0: cq_err of a CQ of 15 (0x...): it overran, ...`.
inline std::size_t log_async_events(context& from) {
    return log_async_events(from, detail::print_line);
}
inline std::size_t log_async_events(context& from, std::error_code& ec) {
    return log_async_events(from, detail::print_line, ec);
}

} // namespace rdmaxx::inline v0

#endif
