// Soft-RoCE's provider gets the end of an extended poll wrong: an ibv_next_poll that finds nothing gives the lock back
// and counts on, and so does the ibv_end_poll that has to follow. The queue's index then runs past what the device has
// written (rdma-core's pull requests 1512 and 1617). Its ibv_start_poll and ibv_end_poll are right, in all versions: so
// for its queues a next is made an end and a start. Queues of other devices are left alone, and cost nothing.
#ifndef RDMAXX_DETAIL_RXE_POLL_HPP
#define RDMAXX_DETAIL_RXE_POLL_HPP

#include <rdmaxx/detail/verbs_api.hpp>

#include <cerrno>
#include <cstdint>

namespace rdmaxx::inline v0::detail {

#if !RDMAXX_HAS_LINUX_VERBS // FreeBSD has no Soft-RoCE
struct rxe_poll {
    static void mend(ibv_cq_ex*) noexcept {}
};
#else
class rxe_poll {
public:
    /// Right for every provider, were it used there: only slower.
    static void mend(ibv_cq_ex* cq) noexcept {
        ibv_device_attr attr{};
        if (cq->end_poll == end_poll || ::ibv_query_device(cq->context, &attr) != 0 || !is_rxe(attr))
            return;
        // The same one for each of its queues: where it is another, the queue is another provider's.
        void (*known)(ibv_cq_ex*) = nullptr;
        if (!__atomic_compare_exchange_n(&providers_end_poll_, &known, cq->end_poll, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE) &&
            known != cq->end_poll)
            return;
        cq->next_poll = next_poll;
        cq->end_poll = end_poll;
    }

private:
    /// The device's name is whatever its administrator chose. Before Linux 5.7 rxe had no numbers; hardware has some.
    [[nodiscard]] static bool is_rxe(const ibv_device_attr& attr) noexcept {
        constexpr std::uint32_t rxe_vendor = 0xffffff;
        return attr.vendor_id == rxe_vendor || (attr.vendor_id | attr.vendor_part_id | attr.hw_ver) == 0;
    }
    static void (*providers_end() noexcept)(ibv_cq_ex*) {
        return __atomic_load_n(&providers_end_poll_, __ATOMIC_ACQUIRE);
    }
    static int next_poll(ibv_cq_ex* cq) {
        ibv_cq_ex** place = place_of(nullptr);
        if (place == nullptr)
            return ENOENT; // this poll goes on until it is ended; what more is there comes with the next one
        providers_end()(cq);
        ibv_poll_cq_attr attr{};
        const int result = cq->start_poll(cq, &attr);
        if (result != 0)
            *place = cq;
        return result;
    }
    static void end_poll(ibv_cq_ex* cq) {
        if (ibv_cq_ex** place = place_of(cq))
            *place = nullptr;
        else
            providers_end()(cq);
    }
    [[nodiscard]] static ibv_cq_ex** place_of(const ibv_cq_ex* cq) noexcept {
        for (ibv_cq_ex*& place : ended_)
            if (place == cq)
                return &place;
        return nullptr;
    }

    // NOLINTBEGIN(*-avoid-non-const-global-variables)
    inline static void (*providers_end_poll_)(ibv_cq_ex*) = nullptr;
    // The queues whose poll this thread's next_poll has ended, until their end_poll comes: several where polls nest.
    inline static thread_local ibv_cq_ex* ended_[8] = {};
    // NOLINTEND(*-avoid-non-const-global-variables)
};
#endif

} // namespace rdmaxx::inline v0::detail

#endif
