// How much room a queue has: a count that C leaves to the program. Nothing uses it unless the program does.
#ifndef RDMAXX_VERBS_QUEUE_SLOTS_HPP
#define RDMAXX_VERBS_QUEUE_SLOTS_HPP

#include <rdmaxx/error.hpp>

#include <cstdint>
#include <new>
#include <utility>

namespace rdmaxx::inline v0 {

/// The free slots of a send queue (or of any queue that is emptied in order). An unsignaled request keeps its slot
/// until a later, signaled one of the same queue was polled: that is why a queue fills up though everything was sent.
///
///     queue_slots slots(qp.cap().max_send_wr);
///     if (slots.take(1, signaled)) qp.post_send(request);   // else poll first
///     ... for each completion of the queue that was ok: slots.give();
///
/// A post that failed gives its slots back with untake(). After a completion that failed the queue is at its end and
/// the count means nothing: reset() it with the queue pair. (The room of a CQ: cq_room.)
///
/// One thread at a time, like the queue's counters it stands for. Allocates when it is made, and never again.
class queue_slots {
public:
    queue_slots() noexcept = default;
    /// @param size what was granted: qp.cap().max_send_wr
    /// @throws error ENOMEM
    explicit queue_slots(std::uint32_t size) { detail::check(init(size)); }
    [[nodiscard]] static queue_slots create(std::uint32_t size, std::error_code& ec) noexcept {
        queue_slots result;
        detail::assign(ec, result.init(size));
        return result;
    }
    /// Takes the other's count, and leaves it one of no queue.
    queue_slots(queue_slots&& other) noexcept { swap(other); }
    queue_slots& operator=(queue_slots&& other) noexcept {
        queue_slots taken(std::move(other));
        swap(taken);
        return *this;
    }
    queue_slots(const queue_slots&) = delete;
    queue_slots& operator=(const queue_slots&) = delete;
    ~queue_slots() { delete[] groups_; }

    /// How many there are, and how many of them are free.
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
    [[nodiscard]] std::uint32_t free() const noexcept { return size_ - used_; }

    /// Before posting `count` requests, the last of which is signaled or not and the others are not.
    /// @return false, and nothing taken, where they have no room
    [[nodiscard]] bool take(std::uint32_t count = 1, bool signaled = true) noexcept {
        if (count > free())
            return false;
        used_ += count;
        open_ += count;
        if (signaled && count > 0) {
            groups_[(first_ + pending_) % size_] = std::exchange(open_, 0U);
            ++pending_;
        }
        return true;
    }

    /// The last take() was for requests that were then not posted.
    void untake(std::uint32_t count = 1, bool signaled = true) noexcept {
        if (signaled && count > 0 && pending_ > 0) {
            --pending_;
            open_ += groups_[(first_ + pending_) % size_];
        }
        open_ -= count;
        used_ -= count;
    }

    /// A signaled request has completed: its slot is free, with those of the unsignaled ones before it.
    /// @return how many; 0 where no signaled one was under way
    std::uint32_t give() noexcept {
        if (pending_ == 0)
            return 0;
        const std::uint32_t count = groups_[first_];
        first_ = (first_ + 1) % size_;
        --pending_;
        used_ -= count;
        return count;
    }

    /// Unsignaled requests since the last signaled one: when these fill the queue it is stuck. Signal one before.
    [[nodiscard]] std::uint32_t unsignaled() const noexcept { return open_; }

    /// All free: for a queue pair that was reset, or made anew.
    void reset() noexcept { used_ = open_ = first_ = pending_ = 0; }

private:
    [[nodiscard]] detail::status init(std::uint32_t size) noexcept {
        groups_ = new (std::nothrow) std::uint32_t[size == 0 ? 1 : size];
        if (groups_ == nullptr)
            return {"queue_slots", ENOMEM};
        size_ = size;
        return {};
    }
    void swap(queue_slots& other) noexcept {
        std::swap(groups_, other.groups_);
        std::swap(size_, other.size_);
        std::swap(used_, other.used_);
        std::swap(open_, other.open_);
        std::swap(first_, other.first_);
        std::swap(pending_, other.pending_);
    }

    std::uint32_t* groups_ = nullptr; // a ring: how many slots each signaled request that is under way will free
    std::uint32_t size_ = 0;
    std::uint32_t used_ = 0;
    std::uint32_t open_ = 0; // unsignaled, and no signaled one after them yet
    std::uint32_t first_ = 0;
    std::uint32_t pending_ = 0;
};

} // namespace rdmaxx::inline v0

#endif
