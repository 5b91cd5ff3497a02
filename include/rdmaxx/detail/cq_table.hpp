// Which node belongs to a raw CQ. ibv_get_cq_event tells the C pointer and the cq_context, and the latter cannot be
// trusted: CQs made by C code on the same channel have theirs.
#ifndef RDMAXX_DETAIL_CQ_TABLE_HPP
#define RDMAXX_DETAIL_CQ_TABLE_HPP

#include <rdmaxx/detail/handle.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmaxx::inline v0::detail {

/// A hash table whose links lie in the entries, so that entering cannot fail.
class cq_table {
public:
    struct entry {
        const void* raw = nullptr;
        node* owner = nullptr;
        entry* next = nullptr;
    };

    void insert(entry& e) noexcept {
        entry*& head = buckets_[bucket_of(e.raw)];
        e.next = head;
        head = &e;
    }

    void erase(const entry& e) noexcept {
        for (entry** at = &buckets_[bucket_of(e.raw)]; *at != nullptr; at = &(*at)->next)
            if (*at == &e) {
                *at = e.next;
                return;
            }
    }

    [[nodiscard]] node* find(const void* raw) const noexcept {
        for (const entry* e = buckets_[bucket_of(raw)]; e != nullptr; e = e->next)
            if (e->raw == raw)
                return e->owner;
        return nullptr;
    }

private:
    static constexpr std::size_t bucket_count = 64;

    [[nodiscard]] static std::size_t bucket_of(const void* raw) noexcept {
        // malloc aligns to 16 bytes, and CQs of one kind lie at even distances: a multiplicative hash spreads them.
        const auto key = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(raw) >> 4);
        return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15ULL >> 58);
    }

    entry* buckets_[bucket_count] = {};
};

} // namespace rdmaxx::inline v0::detail

#endif
