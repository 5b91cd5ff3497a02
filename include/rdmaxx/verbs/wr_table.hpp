// What a wr_id stands for, in place of a pointer that may dangle. Nothing uses it unless the program does.
#ifndef RDMAXX_VERBS_WR_TABLE_HPP
#define RDMAXX_VERBS_WR_TABLE_HPP

#include <rdmaxx/error.hpp>

#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace rdmaxx::inline v0 {

/// The queue that a request was posted to: a completion that failed does not say it.
enum class wr_queue : unsigned { send = 0, recv = 1 };

[[nodiscard]] constexpr const char* to_string(wr_queue queue) noexcept {
    switch (queue) {
    case wr_queue::send: return "send";
    case wr_queue::recv: return "recv";
    }
    return "unknown";
}

/// The queue that a wr_table's number was made for.
[[nodiscard]] constexpr wr_queue queue_of(std::uint64_t wr_id) noexcept {
    return static_cast<wr_queue>(wr_id & 1);
}

/// The requests of a program that are under way, by their wr_id: each with a value of the program's, and the queue that
/// it was posted to. A number is good for one completion; one that was taken or given up finds nothing, though its
/// place has another request by now. So completions that are still in a CQ when their queue pair is destroyed do no
/// harm.
///
///     wr_table<buffer*> under_way(64);
///     const auto id = under_way.enter(wr_queue::recv, buffer);  // empty: 64 are under way
///     qp.post_recv(buffer->mr, *id);
///     ...
///     for (const wc& wc : cq.poll(done))
///         if (auto request = under_way.take(wc.wr_id()))        // empty: of a queue pair that is gone
///             handle(request->value, request->queue, wc.status());
///     ...
///     under_way.erase_if([&](const buffer* b) { return b->connection == closed; }); // with its queue pair
///
/// One thread at a time. Allocates when it is made, and never again: fit for the data path. Every call but erase_if
/// takes the same time whatever the size.
/// @tparam Value movable, without exceptions: an index, a pointer, an owner
template <class Value>
class wr_table {
    static_assert(std::is_nothrow_move_constructible_v<Value>);

public:
    /// What take() finds.
    struct request {
        wr_queue queue; ///< which queue it was posted to
        Value value;    ///< what it was entered with
    };

    wr_table() noexcept = default;
    /// @param size the most that can be under way at once
    /// @throws error ENOMEM
    explicit wr_table(std::uint32_t size) { detail::check(init(size)); }
    [[nodiscard]] static wr_table create(std::uint32_t size, std::error_code& ec) noexcept {
        wr_table result;
        detail::assign(ec, result.init(size));
        return result;
    }
    /// Takes the other's requests, and leaves it without room.
    wr_table(wr_table&& other) noexcept { swap(other); }
    wr_table& operator=(wr_table&& other) noexcept {
        wr_table taken(std::move(other));
        swap(taken);
        return *this;
    }
    wr_table(const wr_table&) = delete;
    wr_table& operator=(const wr_table&) = delete;
    ~wr_table() { delete[] places_; }

    /// How many it has room for, and how many are under way.
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
    [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

    /// A number for a request that is about to be posted; empty where there is no room. Never 0. If the post fails,
    /// take() gives the value back.
    [[nodiscard]] std::optional<std::uint64_t> enter(wr_queue queue, Value value) noexcept {
        if (free_ == none)
            return std::nullopt;
        const std::uint32_t index = free_;
        place& at = places_[index];
        free_ = at.next_free;
        at.queue = queue;
        at.value.emplace(std::move(value));
        ++count_;
        return std::uint64_t{index} << 32 | std::uint64_t{at.generation} << 1 | static_cast<unsigned>(queue);
    }

    /// The request of that number, which is not under way any more; empty where it was not.
    [[nodiscard]] std::optional<request> take(std::uint64_t wr_id) noexcept {
        const std::uint64_t index = wr_id >> 32;
        if (index >= size_)
            return std::nullopt;
        place& at = places_[index];
        if (!at.value || at.generation != (wr_id >> 1 & most_generations) || at.queue != queue_of(wr_id))
            return std::nullopt;
        std::optional<request> found(request{at.queue, std::move(*at.value)});
        leave(static_cast<std::uint32_t>(index));
        return found;
    }

    /// Gives up the requests for whose value `predicate` is true: nobody waits for them any more. Looks at each place.
    /// @return how many
    template <class Predicate>
    std::uint32_t erase_if(Predicate predicate) {
        const std::uint32_t before = count_;
        for (std::uint32_t index = 0; index < size_; ++index)
            if (places_[index].value && predicate(std::as_const(*places_[index].value)))
                leave(index);
        return before - count_;
    }

private:
    static constexpr std::uint32_t none = 0xffffffff;
    static constexpr std::uint32_t most_generations = 0x7fffffff;

    struct place {
        std::optional<Value> value;
        std::uint32_t generation = 1; // of 31 bits; 0 is none's, so that no number is 0
        std::uint32_t next_free = none;
        wr_queue queue = wr_queue::send;
    };

    [[nodiscard]] detail::status init(std::uint32_t size) noexcept {
        if (size == none)
            return {"wr_table", EINVAL, "too many"};
        places_ = new (std::nothrow) place[size == 0 ? 1 : size];
        if (places_ == nullptr)
            return {"wr_table", ENOMEM};
        size_ = size;
        for (std::uint32_t index = size; index > 0; --index)
            places_[index - 1].next_free = std::exchange(free_, index - 1);
        return {};
    }
    void leave(std::uint32_t index) noexcept {
        place& at = places_[index];
        const std::optional<Value> gone(std::exchange(at.value, std::nullopt)); // its destructor may come back here
        at.generation = at.generation == most_generations ? 1 : at.generation + 1;
        at.next_free = std::exchange(free_, index);
        --count_;
    }
    void swap(wr_table& other) noexcept {
        std::swap(places_, other.places_);
        std::swap(size_, other.size_);
        std::swap(count_, other.count_);
        std::swap(free_, other.free_);
    }

    place* places_ = nullptr;
    std::uint32_t size_ = 0;
    std::uint32_t count_ = 0;
    std::uint32_t free_ = none; // the last one that became free is the next one to be used: its memory is warm
};

} // namespace rdmaxx::inline v0

#endif
