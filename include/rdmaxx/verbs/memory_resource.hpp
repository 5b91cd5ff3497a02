// A std::pmr memory resource of registered memory: containers whose elements the device can reach.
#ifndef RDMAXX_VERBS_MEMORY_RESOURCE_HPP
#define RDMAXX_VERBS_MEMORY_RESOURCE_HPP

#include <rdmaxx/verbs/registered_buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <span>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

namespace rdmaxx::inline v0 {
namespace detail {

/// The memory that the pools take their chunks from: registered buffers of a fixed size, and larger ones for what is
/// larger. A buffer ends with the last chunk in it, but one is kept for what comes next.
class registered_chunks final : public std::pmr::memory_resource {
public:
    registered_chunks(parent<ibv_pd> domain, access flags, std::size_t buffer_size)
        : domain_(domain), pin_(domain.pin()), flags_(flags), buffer_size_(buffer_size) {}

    [[nodiscard]] status piece(std::span<const std::byte> memory, sge& out) const noexcept {
        const auto* found = find(memory.data());
        if (found == nullptr && memory.empty()) { // an empty container has no memory
            out = {};
            return {};
        }
        if (found == nullptr)
            return {"ibv_sge", ERANGE, "not memory of this resource (a short string has its characters in itself)"};
        std::error_code ec;
        const auto offset = static_cast<std::size_t>(memory.data() - found->buffer.bytes().data());
        out = found->buffer.sge(offset, memory.size(), ec);
        return ec ? status{"ibv_sge", ec.value(), "longer than the registered memory that it begins in"} : status{};
    }
    [[nodiscard]] status view(std::span<const std::byte> memory, remote_buffer& out) const noexcept {
        sge checked;
        if (const status result = piece(memory, checked); result.failed())
            return result;
        const auto* found = find(memory.data());
        out = {checked.addr, found != nullptr ? found->buffer.rkey() : rdmaxx::rkey{}, checked.length};
        return {};
    }
    [[nodiscard]] std::size_t count() const noexcept { return buffers_.size(); }
    [[nodiscard]] std::error_code last_error() const noexcept { return last_error_; }

private:
    struct entry {
        registered_buffer buffer;
        std::size_t used = 0; ///< bytes, from the front
        std::size_t live = 0; ///< chunks
    };

    [[nodiscard]] const entry* find(const std::byte* at) const noexcept {
        auto next = buffers_.upper_bound(at);
        if (next == buffers_.begin())
            return nullptr;
        const entry& candidate = std::prev(next)->second;
        return at < candidate.buffer.bytes().data() + candidate.buffer.length() ? &candidate : nullptr;
    }

    void* do_allocate(std::size_t size, std::size_t alignment) override {
        if (current_ != nullptr)
            if (void* chunk = carve(*current_, size, alignment))
                return chunk;
        // A new buffer begins with a page, of 4096 bytes at least: larger alignments take room in front.
        constexpr std::size_t page = 4096;
        const std::size_t skipped = alignment > page ? alignment - page : 0;
        const std::size_t needed = size <= SIZE_MAX - skipped ? size + skipped : SIZE_MAX;
        std::error_code ec;
        registered_buffer made = registered_buffer::create(domain_, std::max(needed, buffer_size_), flags_, ec);
        if (!made) {
            last_error_ = ec;
            return std::pmr::null_memory_resource()->allocate(size, alignment); // throws std::bad_alloc
        }
        const std::byte* at = made.bytes().data();
        entry& added = buffers_.try_emplace(at).first->second;
        added.buffer = std::move(made);
        // What it replaces has live chunks: an empty one would have had the room.
        if (needed < buffer_size_)
            current_ = &added;
        return carve(added, size, alignment);
    }

    [[nodiscard]] static void* carve(entry& from, std::size_t size, std::size_t alignment) noexcept {
        const auto start = reinterpret_cast<std::uintptr_t>(from.buffer.addr());
        const std::size_t skipped = (alignment - (start + from.used) % alignment) % alignment;
        if (skipped > from.buffer.length() - from.used || size > from.buffer.length() - from.used - skipped)
            return nullptr;
        void* chunk = from.buffer.bytes().data() + from.used + skipped;
        from.used += skipped + size;
        ++from.live;
        return chunk;
    }

    void do_deallocate(void* chunk, std::size_t, std::size_t) override {
        auto at = std::prev(buffers_.upper_bound(static_cast<std::byte*>(chunk)));
        if (--at->second.live > 0)
            return;
        if (&at->second == current_)
            current_->used = 0;
        else
            buffers_.erase(at);
    }

    [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
        return this == &other;
    }

    parent<ibv_pd> domain_;
    keep pin_;
    access flags_;
    std::size_t buffer_size_;
    std::map<const std::byte*, entry> buffers_; // by their first byte
    entry* current_ = nullptr;
    std::error_code last_error_;
};

/// Which process it was made in, for code that asks often: a page that a forked child finds empty, where the kernel has
/// such (Linux 4.14), so that no system call is made.
class process_mark {
public:
    process_mark() noexcept {
#if defined(MADV_WIPEONFORK)
        void* page = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return;
        if (::madvise(page, size, MADV_WIPEONFORK) == 0) {
            mark_ = static_cast<char*>(page);
            *mark_ = 1;
        } else {
            ::munmap(page, size);
        }
#endif
    }
    process_mark(const process_mark&) = delete;
    process_mark& operator=(const process_mark&) = delete;
    ~process_mark() {
        if (mark_ != nullptr)
            ::munmap(mark_, size);
    }

    [[nodiscard]] bool foreign() const noexcept {
        return mark_ != nullptr ? *mark_ == 0 : maker_ != ::getpid();
    }

private:
    static constexpr std::size_t size = 4096; // a page or less, of which a whole page is made

    pid_t maker_ = ::getpid();
    char* mark_ = nullptr;
};

} // namespace detail

/// A memory resource whose memory is registered: what std::pmr containers allocate from it can be sent, received and
/// written to by peers, without a registration of its own.
///
///     rdmaxx::registered_resource registered(pd);
///     std::pmr::vector<char> message(100, &registered);
///     qp.post_send(registered.sge(message));
///
/// It must outlive the containers; a container that grows, or a copy of it, has other memory than before. A short
/// std::pmr::string has its characters in itself and not here: take a std::pmr::vector<char>, or reserve() more. It
/// registers
/// buffers of `buffer_size` bytes, gives pieces of them out through std::pmr::unsynchronized_pool_resource, and ends a
/// buffer when nothing of it is used any more.
///
/// One thread at a time may use it, its containers' allocations and sge() included. In a forked child, which may not
/// have the memory (fork_init), containers of trivial elements and the resource end without effect, and nothing is to
/// be had from it.
class registered_resource final : public std::pmr::memory_resource {
public:
    /// How much is registered at once, unless said otherwise: 1 MiB.
    static constexpr std::size_t default_buffer_size = std::size_t{1} << 20;

    /// Registers nothing yet.
    /// @param domain a pd, which is kept allocated, or a pd_ref, which must outlive the resource
    /// @param buffer_size bytes that are registered at a time; what is larger gets a buffer of its own
    explicit registered_resource(detail::parent<ibv_pd> domain, access flags = access::local_write,
                                 std::size_t buffer_size = default_buffer_size)
        : chunks_(domain, flags, buffer_size) {}
    registered_resource(const registered_resource&) = delete;
    registered_resource& operator=(const registered_resource&) = delete;
    ~registered_resource() override {
        if (!made_.foreign()) // the pool's books are kept in the memory
            delete pool_;
    }

    /// The SGE of a range of objects in this resource's memory: a whole container, a part of it, one object. Of an
    /// empty range, which may have no memory, an SGE of no bytes.
    /// @throws error ERANGE for memory that is not of this resource: a string of few characters, for one
    template <detail::registrable Range>
    [[nodiscard]] rdmaxx::sge sge(Range&& range) const {
        rdmaxx::sge result;
        detail::check(chunks_.piece(std::as_bytes(std::span(range)), result));
        return result;
    }
    template <detail::registrable Range>
    [[nodiscard]] rdmaxx::sge sge(Range&& range, std::error_code& ec) const noexcept {
        rdmaxx::sge result;
        detail::assign(ec, chunks_.piece(std::as_bytes(std::span(range)), result));
        return result;
    }

    /// What a peer needs to reach such a range, for access that the resource was made with.
    /// @throws error ERANGE for memory that is not of this resource
    template <detail::registrable Range>
    [[nodiscard]] remote_buffer remote(Range&& range) const {
        remote_buffer result;
        detail::check(chunks_.view(std::as_bytes(std::span(range)), result));
        return result;
    }
    template <detail::registrable Range>
    [[nodiscard]] remote_buffer remote(Range&& range, std::error_code& ec) const noexcept {
        remote_buffer result;
        detail::assign(ec, chunks_.view(std::as_bytes(std::span(range)), result));
        return result;
    }

    /// Registered buffers now.
    [[nodiscard]] std::size_t buffer_count() const noexcept { return chunks_.count(); }

    /// Why the last std::bad_alloc of this resource was thrown: the error of mmap(2) or ibv_reg_mr(3).
    [[nodiscard]] std::error_code last_error() const noexcept { return chunks_.last_error(); }

private:
    void* do_allocate(std::size_t size, std::size_t alignment) override {
        if (made_.foreign())
            return std::pmr::null_memory_resource()->allocate(size, alignment); // throws std::bad_alloc
        if (pool_ == nullptr)
            pool_ = new std::pmr::unsynchronized_pool_resource(&chunks_); // takes memory at once
        return pool_->allocate(size, alignment);
    }
    void do_deallocate(void* at, std::size_t size, std::size_t alignment) override {
        if (!made_.foreign())
            pool_->deallocate(at, size, alignment);
    }
    [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
        return this == &other;
    }

    detail::process_mark made_;
    detail::registered_chunks chunks_;
    std::pmr::unsynchronized_pool_resource* pool_ = nullptr;
};

} // namespace rdmaxx::inline v0

#endif
