// Destroying what asynchronous events are about: ibv_destroy_qp, ibv_destroy_cq and ibv_destroy_srq wait, without a
// word, for the acks of events that were got for their object.
#ifndef RDMAXX_DETAIL_ASYNC_BLOCKS_HPP
#define RDMAXX_DETAIL_ASYNC_BLOCKS_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/pd.hpp>

namespace rdmaxx::inline v0::detail {

/// The context that a PD's owner was made from, if it was made from an owner: only that one counts events.
[[nodiscard]] inline context_traits::block* context_behind(node* pd) noexcept {
    if (pd == nullptr)
        return nullptr;
    return static_cast<context_traits::block*>(static_cast<pd_traits::block*>(pd)->parents[0].get());
}

/// An object was made: that of a mark with its address is gone, though the thread that ended it may not have come to
/// take the mark away. Left there, the mark would swallow the new object's events.
inline void came(context_traits::block* context, const void* raw) noexcept {
    if (context == nullptr)
        return;
    const mutex_guard guard(context->events.lock);
    for (going_object* at = context->going; at != nullptr; at = at->next)
        if (at->raw == raw)
            at->raw = nullptr;
}

/// Makes the C call when no event of the object is held. From the mark on, gets ack its events themselves.
/// The lock is not held over the call: it may still wait for events that C code got. Once C has freed the object its
/// address is another one's: see came().
template <class CDestroy>
[[nodiscard]] status destroy_unheld(context_traits::block* context, const void* raw, const char* call,
                                    CDestroy c_destroy) noexcept {
    if (context == nullptr)
        return check_number(call, c_destroy());
    going_object mark{raw, nullptr};
    {
        const mutex_guard guard(context->events.lock);
        mark.next = context->going;
        context->going = &mark;
    }
    status result;
    {
        const mutex_guard guard(context->events.lock);
        result = context->events.wait_for_acks({raw}, call);
    }
    if (!result.failed())
        result = check_number(call, c_destroy());
    const mutex_guard guard(context->events.lock);
    for (going_object** at = &context->going; *at != nullptr; at = &(*at)->next)
        if (*at == &mark) {
            *at = mark.next;
            break;
        }
    return result;
}

} // namespace rdmaxx::inline v0::detail

#endif
