// How much of a CQ is spoken for: a count that C leaves to the program. Nothing uses it unless the program does.
#ifndef RDMAXX_VERBS_CQ_ROOM_HPP
#define RDMAXX_VERBS_CQ_ROOM_HPP

#include <rdmaxx/verbs/cq.hpp>

#include <cstdint>

namespace rdmaxx::inline v0 {

/// The completions that a CQ has room for, shared out among the queues that report to it. A queue can have as many
/// outstanding as it is deep; one queue pair too many, and the CQ overruns: completions are lost, and only an
/// asynchronous event tells (async_event_type::cq_err).
///
///     cq_room room(cq);
///     const std::uint32_t most = attr.raw().cap.max_send_wr + attr.raw().cap.max_recv_wr + 2;
///     if (!room.take(most)) ... refuse the connection, or take another CQ
///     rdmaxx::qp qp(pd, attr);
///     ... when the queue pair is gone: room.give(most);
///
/// What the program has outstanding counts, however deep the queues were granted. The two are those of drain(): one a
/// queue.
/// The receives of a shared queue count once for each CQ that they can complete on. One thread at a time.
class cq_room {
public:
    cq_room() noexcept = default;
    /// As much as was granted.
    explicit cq_room(cq_ref of) noexcept : size_(static_cast<std::uint32_t>(of.size())) {}

    /// How many completions there is room for, and for how many of them nobody has asked.
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
    [[nodiscard]] std::uint32_t free() const noexcept { return size_ - taken_; }

    /// Before a queue, or a queue pair, is made that can have `count` requests outstanding.
    /// @return false, and nothing taken, where that could overrun the CQ
    [[nodiscard]] bool take(std::uint32_t count) noexcept {
        if (count > free())
            return false;
        taken_ += count;
        return true;
    }
    /// After it is gone, and its completions with it: in any order, and no more than was taken.
    void give(std::uint32_t count) noexcept { taken_ -= count < taken_ ? count : taken_; }

private:
    std::uint32_t size_ = 0;
    std::uint32_t taken_ = 0;
};

} // namespace rdmaxx::inline v0

#endif
