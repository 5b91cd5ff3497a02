// What librdmacm's objects have beside their C pointers: the channel's list of held events, the id's pins and state,
// the groups that it joined; and how an id gets, acks, migrates and ends without a wait that cannot be told.
#ifndef RDMAXX_DETAIL_CM_BLOCKS_HPP
#define RDMAXX_DETAIL_CM_BLOCKS_HPP

#include <rdmaxx/cm/event_type.hpp>
#include <rdmaxx/detail/async_blocks.hpp>
#include <rdmaxx/detail/cm_api.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/held_events.hpp>
#include <rdmaxx/detail/mutex.hpp>
#include <rdmaxx/detail/wait.hpp>
#include <rdmaxx/fwd.hpp>

#include <cstdint>
#include <new>

#include <sys/socket.h>
#include <unistd.h>

namespace rdmaxx::inline v0::detail {

struct channel_block;
struct id_block;
struct membership_block;

struct channel_block : block<rdma_event_channel, 0> {
    using block::block;

    held_events events;
    id_block* going RDMAXX_GUARDED_BY(events.lock) = nullptr; ///< being destroyed: gets ack their events themselves
    int flags_before = O_NONBLOCK;
};

struct event_channel_traits {
    using raw_type = rdma_event_channel;
    using ref_type = event_channel_ref;
    using block = channel_block;
    static status destroy(block& b) noexcept {
        ::rdma_destroy_event_channel(b.raw);
        return {};
    }
    static void detach(block& b) noexcept { restore_blocking(b.raw->fd, b.flags_before); }
};

/// How far an id has come, as far as the wrapper has to know it.
enum class id_phase : unsigned char {
    made,     ///< by cm_id's constructor
    request,  ///< came with a connect_request and waits for an answer
    accepted, ///< accept succeeded
    spent,    ///< rejected, or an accept failed, on which librdmacm rejected the peer
    unknown,  ///< adopted
};

struct id_block : block<rdma_cm_id, 6> {
    using block::block;

    static constexpr unsigned channel_pin = 0;
    static constexpr unsigned send_cq_pin = 1; // of the id's queue pair
    static constexpr unsigned recv_cq_pin = 2;
    static constexpr unsigned pd_pin = 3;
    static constexpr unsigned srq_pin = 4;
    static constexpr unsigned srq_pd_pin = 5; // of the id's own shared receive queue

    id_block* next_going = nullptr;
    membership_block* groups = nullptr; ///< joined and not left; guarded by the channel's lock
    ibv_pd* pd_before = nullptr;        ///< id->pd before create_qp replaced it
    id_phase phase = id_phase::made;
    bool connecting = false; ///< connect or accept succeeded
    bool disconnected = false;
    bool endpoint = false; ///< made by rdma_create_ep, whose twin is rdma_destroy_ep

    [[nodiscard]] channel_block& channel() noexcept { return *static_cast<channel_block*>(parents[channel_pin].get()); }
};

// ---------------------------------------------------------------------------------------------------------------
// Getting and acking.

/// What an id keeps and where it stands, to another block of the same id: between synchronous and not.
inline void carry_over(const id_block& from, id_block& to) noexcept {
    for (const unsigned pin :
         {id_block::send_cq_pin, id_block::recv_cq_pin, id_block::pd_pin, id_block::srq_pin, id_block::srq_pd_pin})
        to.parents[pin] = from.parents[pin];
    to.pd_before = from.pd_before;
    to.phase = from.phase;
    to.connecting = from.connecting;
    to.disconnected = from.disconnected;
    to.endpoint = from.endpoint;
}

[[nodiscard]] inline bool is_going(const channel_block& channel, const rdma_cm_id* id) noexcept
    RDMAXX_REQUIRES(channel.events.lock) {
    for (const id_block* b = channel.going; b != nullptr; b = b->next_going)
        if (b->raw == id)
            return true;
    return false;
}

/// The new id of a request that nobody took. The kernel rejects the peer.
inline void destroy_request(rdma_cm_id* id) noexcept {
    const status result = check_errno("rdma_destroy_id", ::rdma_destroy_id(id));
    if (result.failed() && !already_gone(result.value))
        report_destroy_failure(result, id);
}

/// Acks an event that no user will see, since its id is being destroyed.
inline void swallow(rdma_cm_event* event) noexcept {
    if (type_of(*event) == cm_event_type::connect_request)
        destroy_request(event->id);
    ::rdma_ack_cm_event(event);
}

/// The listener for a request, whose new id is free of it; else the id.
[[nodiscard]] inline const rdma_cm_id* pinned_by(const rdma_cm_event& event) noexcept {
    return type_of(event) == cm_event_type::connect_request ? event.listen_id : event.id;
}

[[nodiscard]] inline event_record& enter(channel_block& channel, const rdma_cm_event& event) noexcept
    RDMAXX_REQUIRES(channel.events.lock) {
    const cm_event_type type = type_of(event);
    event_record& record = channel.events.enter(channel, pinned_by(event), to_string(type));
    record.grouped = type == cm_event_type::multicast_join || type == cm_event_type::multicast_error;
    record.group = record.grouped ? event.param.ud.private_data : nullptr;
    return record;
}

/// One try. EAGAIN when there is no event. The lock is held over the C call, since that changes id->qp inside the
/// library, which destroy_qp must not do at the same time.
[[nodiscard]] inline status get_event(channel_block& channel, rdma_cm_event*& event, event_record*& record) noexcept {
    const mutex_guard guard(channel.events.lock);
    for (;;) {
        if (channel.events.reserve() == nullptr)
            return {"rdma_get_cm_event", ENOMEM};
        rdma_cm_event* got = nullptr;
        errno = 0;
        if (::rdma_get_cm_event(channel.raw, &got) != 0) {
            if (errno == EINTR)
                continue;
            return {"rdma_get_cm_event", last_errno()};
        }
        // -1 is what librdmacm reports when its own part of the work failed: the reason is only in errno, now.
        if (got->status == -1 && errno != 0)
            got->status = -errno;
        if (is_going(channel, pinned_by(*got))) {
            swallow(got);
            continue;
        }
        record = &enter(channel, *got);
        event = got;
        return {};
    }
}

/// Counts an event that C code got.
[[nodiscard]] inline status adopt_event(channel_block& channel, const rdma_cm_event& event,
                                        event_record*& record) noexcept {
    const mutex_guard guard(channel.events.lock);
    if (channel.events.reserve() == nullptr)
        return {"rdma_get_cm_event", ENOMEM};
    record = &enter(channel, event);
    return {};
}

/// Takes an event off the list; `ack` says whether the C library gets it back here.
inline void end_event(rdma_cm_event* event, event_record* record, bool ack) noexcept {
    const errno_guard keep_errno;
    auto& channel = *static_cast<channel_block*>(record->source);
    // After fork the lock may be held by a thread that does not exist here, and the event is the parent's.
    if (!channel.foreign_process()) {
        if (ack && type_of(*event) == cm_event_type::connect_request && !record->id_taken)
            destroy_request(event->id);
        const mutex_guard guard(channel.events.lock);
        if (ack)
            ::rdma_ack_cm_event(event);
        channel.events.leave(*record);
    }
    release(&channel);
}

// ---------------------------------------------------------------------------------------------------------------
// Destroying.

inline void mark_going(id_block& b) noexcept {
    channel_block& channel = b.channel();
    const mutex_guard guard(channel.events.lock);
    b.next_going = channel.going;
    channel.going = &b;
}

inline void unmark_going(channel_block& channel, const id_block& b) noexcept RDMAXX_REQUIRES(channel.events.lock) {
    for (id_block** at = &channel.going; *at != nullptr; at = &(*at)->next_going)
        if (*at == &b) {
            *at = b.next_going;
            return;
        }
}

/// The CQs and channels that rdma_create_qp makes where it is given none: only ids that C code set up have them.
inline void destroy_library_cqs(rdma_cm_id* id) noexcept {
    if (id->recv_cq != nullptr)
        ::ibv_destroy_cq(id->recv_cq);
    if (id->send_cq != nullptr && id->send_cq != id->recv_cq)
        ::ibv_destroy_cq(id->send_cq);
    if (id->recv_cq_channel != nullptr)
        ::ibv_destroy_comp_channel(id->recv_cq_channel);
    if (id->send_cq_channel != nullptr && id->send_cq_channel != id->recv_cq_channel)
        ::ibv_destroy_comp_channel(id->send_cq_channel);
    id->send_cq = id->recv_cq = nullptr;
    id->send_cq_channel = id->recv_cq_channel = nullptr;
}

/// The id's queue pair, for any thread: a get and a destroy may be at work elsewhere.
[[nodiscard]] inline ibv_qp* qp_of(const rdma_cm_id* id) noexcept {
    return __atomic_load_n(&id->qp, __ATOMIC_ACQUIRE);
}

/// A synchronous id has no channel of ours, and no other thread that could be in a get for it.
[[nodiscard]] inline ibv_qp* exchange_qp(id_block& b, ibv_qp* value) noexcept {
    if (b.parents[id_block::channel_pin].get() == nullptr)
        return std::exchange(b.raw->qp, value);
    const mutex_guard guard(b.channel().events.lock);
    return __atomic_exchange_n(&b.raw->qp, value, __ATOMIC_ACQ_REL);
}

/// After the id's queue pair and what it pins are there. Gets of other threads read id->qp under the channel's lock:
/// passing through it makes what C wrote visible to them.
inline void publish_qp(id_block& b) noexcept {
    came(context_behind(b.parents[id_block::pd_pin].get()), qp_of(b.raw));
    if (b.parents[id_block::channel_pin].get() != nullptr)
        const mutex_guard pass(b.channel().events.lock);
}

/// Destroys the id's queue pair, if it has one, and lets go of what that pinned. The lock is not held meanwhile:
/// ibv_destroy_qp may wait for the acks of asynchronous events.
[[nodiscard]] inline status destroy_qp_of(id_block& b) noexcept {
    ibv_qp* qp = exchange_qp(b, nullptr);
    if (qp == nullptr)
        return {};
    const status result = destroy_unheld(context_behind(b.parents[id_block::pd_pin].get()), qp, "ibv_destroy_qp",
                                         [qp]() noexcept { return ::ibv_destroy_qp(qp); });
    if (result.failed() && !already_gone(result.value)) {
        static_cast<void>(exchange_qp(b, qp));
        return result;
    }
    destroy_library_cqs(b.raw);
    if (b.pd_before != nullptr)
        b.raw->pd = std::exchange(b.pd_before, nullptr);
    b.parents[id_block::send_cq_pin] = keep();
    b.parents[id_block::recv_cq_pin] = keep();
    b.parents[id_block::pd_pin] = keep();
    b.parents[id_block::srq_pin] = keep();
    return {};
}

/// The id's shared receive queue, if it has one.
[[nodiscard]] inline status destroy_srq_of(id_block& b) noexcept {
    if (b.raw->srq == nullptr)
        return {};
    const status result = destroy_unheld(context_behind(b.parents[id_block::srq_pd_pin].get()), b.raw->srq,
                                         "ibv_destroy_srq", [&b]() noexcept { return ::ibv_destroy_srq(b.raw->srq); });
    if (result.failed() && !already_gone(result.value))
        return result;
    b.raw->srq = nullptr;
    b.parents[id_block::srq_pd_pin] = keep();
    return {};
}

// ---------------------------------------------------------------------------------------------------------------
// Multicast groups.

/// librdmacm finds a group by comparing the bytes of its address: those that were joined with are kept.
struct membership_block : block<const sockaddr, 1> { // channel
    using block::block;

    sockaddr_storage address{};
    const void* context = nullptr;
    id_block* id = nullptr; ///< null when the id is gone, or going; guarded by the channel's lock
    membership_block* next = nullptr;

    [[nodiscard]] channel_block& channel() noexcept { return *static_cast<channel_block*>(parents[0].get()); }
};

inline void unlink_group(id_block& id, membership_block& group) noexcept {
    for (membership_block** at = &id.groups; *at != nullptr; at = &(*at)->next)
        if (*at == &group) {
            *at = group.next;
            break;
        }
    group.id = nullptr;
}

/// With no event of the group held, so that the C call does not wait. Where it fails it has forgotten the group, too.
[[nodiscard]] inline status leave(id_block& id, membership_block& group) noexcept {
    unlink_group(id, group);
    return check_errno("rdma_leave_multicast",
                       ::rdma_leave_multicast(id.raw, reinterpret_cast<sockaddr*>(&group.address)));
}

struct multicast_traits {
    using raw_type = const sockaddr;
    using ref_type = ref<const sockaddr>;
    using block = membership_block;

    static status destroy(block& b) noexcept {
        channel_block& channel = b.channel();
        const mutex_guard guard(channel.events.lock);
        if (b.id == nullptr)
            return {}; // the id went first, and left the group
        if (const status result = channel.events.wait_for_acks({b.id->raw, true, b.context}, "rdma_leave_multicast");
            result.failed())
            return result;
        return b.id != nullptr ? leave(*b.id, b) : status{};
    }
};

/// An id that ends leaves its groups first: a queue pair that is attached to one cannot be destroyed.
[[nodiscard]] inline status leave_groups_of(id_block& b) noexcept {
    channel_block& channel = b.channel();
    const mutex_guard guard(channel.events.lock);
    if (b.groups == nullptr)
        return {};
    if (const status result = channel.events.wait_for_acks({b.raw}, "rdma_destroy_id"); result.failed())
        return result;
    while (b.groups != nullptr)
        if (const status result = leave(b, *b.groups); result.failed() && !already_gone(result.value))
            report_destroy_failure(result, b.raw);
    return {};
}

/// What an id owns beside itself.
[[nodiscard]] inline status destroy_queues_of(id_block& b) noexcept {
    if (const status result = destroy_qp_of(b); result.failed())
        return result;
    return destroy_srq_of(b);
}

[[nodiscard]] inline status destroy_raw(const id_block& b) noexcept {
    if (!b.endpoint)
        return check_errno("rdma_destroy_id", ::rdma_destroy_id(b.raw));
    ::rdma_destroy_ep(b.raw);
    return {};
}

/// With no event of the id held, so that the C call does not wait. Memberships go along: their lock is the channel's.
[[nodiscard]] inline status migrate(id_block& b, channel_block& to) noexcept {
    const keep old(&b.channel()); // not closed while its lock is held
    channel_block& from = b.channel();
    if (&from == &to)
        return {};
    const mutex_guard guard(from.events.lock);
    if (const status result = from.events.wait_for_acks({b.raw}, "rdma_migrate_id"); result.failed())
        return result;
    const status result = check_errno("rdma_migrate_id", ::rdma_migrate_id(b.raw, to.raw));
    if (result.failed())
        return result;
    for (membership_block* group = b.groups; group != nullptr; group = group->next)
        group->parents[0] = keep(&to);
    b.parents[id_block::channel_pin] = keep(&to);
    return {};
}

/// The same to a channel of librdmacm's own. The id's memberships cannot go along: nobody would get their events.
[[nodiscard]] inline status migrate_to_sync(id_block& b) noexcept {
    channel_block& from = b.channel();
    const mutex_guard guard(from.events.lock);
    if (b.groups != nullptr)
        return {"rdma_migrate_id", EBUSY, "the id has joined a multicast group"};
    if (const status result = from.events.wait_for_acks({b.raw}, "rdma_migrate_id"); result.failed())
        return result;
    return check_errno("rdma_migrate_id", ::rdma_migrate_id(b.raw, nullptr));
}

/// A synchronous id: librdmacm owns its channel and its event, and acks the latter when the id ends.
struct sync_block : id_block {
    using id_block::id_block;

    keep listener; ///< of a child until it is accepted or gone: the child's event pins it inside librdmacm
};

struct sync_id_traits {
    using raw_type = rdma_cm_id;
    using ref_type = cm_id_ref;
    using block = sync_block;

    static status destroy(block& b) noexcept {
        const status result = destroy_queues_of(b);
        return result.failed() ? result : destroy_raw(b);
    }
};

struct cm_id_traits {
    using raw_type = rdma_cm_id;
    using ref_type = cm_id_ref;
    using block = id_block;

    /// From the mark on, gets ack events of this id themselves. The C call is made with the lock held:
    /// released, malloc could hand the id's address to a new one, and the mark would swallow that one's events.
    static status destroy(block& b) noexcept {
        channel_block& channel = b.channel();
        mark_going(b);
        status result = leave_groups_of(b);
        if (!result.failed())
            result = destroy_queues_of(b);
        const mutex_guard guard(channel.events.lock);
        if (!result.failed())
            result = channel.events.wait_for_acks({b.raw}, "rdma_destroy_id");
        if (result.value == EDEADLK)
            return result; // given up for good: the mark stays, with the block
        if (!result.failed())
            result = destroy_raw(b);
        unmark_going(channel, b);
        return result;
    }
};

} // namespace rdmaxx::inline v0::detail

#endif
