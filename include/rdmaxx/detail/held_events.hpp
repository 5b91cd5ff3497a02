// The events that were handed out and not yet acked: which ones an object's destroy would wait for, and how it waits.
//
// The C libraries count too, and their destroys wait without an end and without a word. Here every event that a get
// returned is listed, under a lock, by what it pins. A destroy first makes sure that no event of its object is held,
// can say which ones are, and then makes the C call, which no longer waits.
#ifndef RDMAXX_DETAIL_HELD_EVENTS_HPP
#define RDMAXX_DETAIL_HELD_EVENTS_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/mutex.hpp>
#include <rdmaxx/detail/time.hpp>
#include <rdmaxx/error.hpp>

#include <cstdint>
#include <new>
#include <utility>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rdmaxx::inline v0::detail {

/// The number that ps, top and gdb show.
[[nodiscard]] inline long this_thread_id() noexcept {
#if defined(SYS_gettid)
    static thread_local long id = 0; // a system call once a thread, not once an event
    if (id == 0)
        id = ::syscall(SYS_gettid);
    return id;
#else
    return static_cast<long>(reinterpret_cast<std::intptr_t>(::pthread_self()));
#endif
}

/// One event that was got and not yet acked.
struct event_record {
    event_record* next = nullptr;
    event_record* previous = nullptr;
    node* source = nullptr;       ///< the block of the channel or context that it was got from, which it keeps
    const void* pinned = nullptr; ///< whose destroy waits for the ack
    const void* group = nullptr;  ///< for a multicast event, the context that its join was given
    const char* name = "";        ///< its type, for reports
    long thread = 0;              ///< that got it
    bool grouped = false;         ///< whether it is a multicast event
    bool id_taken = false;        ///< of a connect_request
};

/// Which events a call waits for: all of an object, or those of one multicast group.
struct event_filter {
    const void* pinned = nullptr;
    bool of_group = false;
    const void* group = nullptr;

    [[nodiscard]] bool matches(const event_record& record) const noexcept {
        return record.pinned == pinned && (!of_group || (record.grouped && record.group == group));
    }
};

/// The list, as a member of the block of a channel or context.
class held_events {
public:
    held_events() noexcept = default;
    held_events(const held_events&) = delete;
    held_events& operator=(const held_events&) = delete;
    ~held_events() {
        while (spare_ != nullptr)
            delete std::exchange(spare_, spare_->next);
    }

    mutex lock; // NOLINT(*-non-private-member-variables-in-classes): its users hold it over more than the list

    /// A record for the next event, so that an event once got is never lost to a failed allocation. Null: no memory.
    [[nodiscard]] event_record* reserve() noexcept RDMAXX_REQUIRES(lock) {
        if (spare_ == nullptr)
            spare_ = new (std::nothrow) event_record;
        return spare_;
    }

    /// Enters the record that reserve() returned, and keeps the source.
    event_record& enter(node& source, const void* pinned, const char* name) noexcept RDMAXX_REQUIRES(lock) {
        event_record& record = *std::exchange(spare_, spare_->next);
        record = event_record{};
        record.next = held_;
        record.source = &source;
        record.pinned = pinned;
        record.name = name;
        record.thread = this_thread_id();
        if (held_ != nullptr)
            held_->previous = &record;
        held_ = &record;
        retain(&source);
        return record;
    }

    /// After the ack. The source is still to be released, when the lock is not held.
    void leave(event_record& record) noexcept RDMAXX_REQUIRES(lock) {
        (record.previous != nullptr ? record.previous->next : held_) = record.next;
        if (record.next != nullptr)
            record.next->previous = record.previous;
        record.next = spare_;
        spare_ = &record;
        acked_.notify_all();
    }

    /// Sleeps until no such event is held. Tells the hang hook once; EDEADLK when that gives the object up.
    [[nodiscard]] status wait_for_acks(const event_filter& of, const char* call) noexcept RDMAXX_REQUIRES(lock) {
        if (!holds(of))
            return {};
        const std::int64_t start = monotonic_now();
        deadline report_at = deadline::after_ns(__atomic_load_n(&hang_report_after_ns, __ATOMIC_RELAXED));
        while (holds(of)) {
            acked_.wait_until(lock, report_at);
            if (report_at.left_ns() != 0 || !holds(of))
                continue;
            const hang_report report = report_of(of, call, monotonic_now() - start);
            report_at = deadline::never();
            lock.unlock();
            const hang_action action = report_hang(report);
            lock.lock();
            if (action == hang_action::leak && holds(of))
                return {call, EDEADLK, "given up: its events are still held"};
        }
        return {};
    }

private:
    [[nodiscard]] bool holds(const event_filter& of) const noexcept RDMAXX_REQUIRES(lock) {
        for (const event_record* r = held_; r != nullptr; r = r->next)
            if (of.matches(*r))
                return true;
        return false;
    }

    [[nodiscard]] hang_report report_of(const event_filter& of, const char* call, std::int64_t waited_ns) const noexcept
        RDMAXX_REQUIRES(lock) {
        hang_report report{call, of.pinned, waited_ns / 1'000'000, 0, {}};
        for (const event_record* r = held_; r != nullptr; r = r->next) {
            if (!of.matches(*r))
                continue;
            if (report.count < hang_report::max_events)
                report.events[report.count] = {r->name, r->thread, r->thread == this_thread_id()};
            ++report.count;
        }
        return report;
    }

    condition acked_;
    event_record* held_ RDMAXX_GUARDED_BY(lock) = nullptr;
    event_record* spare_ = nullptr; // guarded as well; the destructor is alone
};

} // namespace rdmaxx::inline v0::detail

#endif
