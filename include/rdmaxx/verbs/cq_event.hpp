// A completion event, got from a comp_channel: ibv_get_cq_event(3), ibv_ack_cq_events(3).
#ifndef RDMAXX_VERBS_CQ_EVENT_HPP
#define RDMAXX_VERBS_CQ_EVENT_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/cq.hpp>

#include <utility>

namespace rdmaxx::inline v0 {

/// Completion events of one CQ, to be given back with ibv_ack_cq_events(3): the destructor does. Move-only.
///
/// It knows its CQ and keeps it: a CQ whose owner is gone ends with the last of its events. Each ack takes a lock
/// inside libibverbs, so events of one CQ can be merged and acked together.
///
/// One event may be used by one thread at a time, and acked by another one than the one that got it.
class [[nodiscard]] RDMAXX_CONSUMABLE(unknown) cq_event {
public:
    cq_event() noexcept RDMAXX_RETURN_TYPESTATE(unknown) {}
    cq_event(cq_event&& other) noexcept
        : raw_(std::exchange(other.raw_, nullptr)), count_(std::exchange(other.count_, 0U)),
          pin_(std::move(other.pin_)) {}
    cq_event& operator=(cq_event&& other) noexcept {
        cq_event taken(std::move(other));
        std::swap(raw_, taken.raw_);
        std::swap(count_, taken.count_);
        std::swap(pin_, taken.pin_);
        return *this;
    }
    cq_event(const cq_event&) = delete;
    cq_event& operator=(const cq_event&) = delete;
    ~cq_event() { do_ack(); }

    /// False for an empty event: none was there, or it was acked, merged or moved from.
    [[nodiscard]] explicit operator bool() const noexcept RDMAXX_TEST_TYPESTATE(unconsumed) { return raw_ != nullptr; }

    /// The CQ to poll; empty for an empty event.
    [[nodiscard]] cq_ref cq() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") { return cq_ref(raw_); }

    /// How many events are in it: one, or more after merging.
    [[nodiscard]] unsigned count() const noexcept { return count_; }

    /// Takes the events of another one of the same CQ, so that one ack gives back all. An event of another CQ stays as
    /// it is, and false is returned.
    bool merge(cq_event& more) noexcept {
        if (this == &more)
            return true;
        if (raw_ == nullptr) {
            *this = std::move(more);
            return true;
        }
        if (more.raw_ != raw_)
            return more.raw_ == nullptr;
        count_ += std::exchange(more.count_, 0U);
        more.raw_ = nullptr;
        more.pin_ = detail::keep();
        return true;
    }

    /// As merge(); events of another CQ are acked at once.
    cq_event& operator+=(cq_event&& more) noexcept {
        cq_event taken(std::move(more));
        merge(taken);
        return *this;
    }

    /// Gives the events back now. C call: ibv_ack_cq_events(3).
    void ack() && noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") RDMAXX_SET_TYPESTATE(consumed) { do_ack(); }

private:
    friend class comp_channel;

    cq_event(ibv_cq* raw, detail::keep pin) noexcept RDMAXX_RETURN_TYPESTATE(unknown)
        : raw_(raw), count_(1), pin_(std::move(pin)) {}

    void do_ack() noexcept {
        if (raw_ == nullptr)
            return;
        const detail::errno_guard guard;
        if (!pin_.get()->foreign_process())
            ::ibv_ack_cq_events(raw_, count_);
        raw_ = nullptr;
        count_ = 0;
        pin_ = detail::keep();
    }

    ibv_cq* raw_ = nullptr;
    unsigned count_ = 0;
    detail::keep pin_; // the CQ; for a CQ that rdmaxx did not make, the channel
};

} // namespace rdmaxx::inline v0

#endif
