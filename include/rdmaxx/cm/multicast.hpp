// Multicast groups of a datagram id: rdma_join_multicast(3), rdma_leave_multicast(3).
#ifndef RDMAXX_CM_MULTICAST_HPP
#define RDMAXX_CM_MULTICAST_HPP

#include <rdmaxx/address.hpp>
#include <rdmaxx/detail/cm_blocks.hpp>
#include <rdmaxx/detail/handle.hpp>

#include <cstdint>
#include <cstring>

namespace rdmaxx::inline v0 {

/// How a group is joined (enum rdma_cm_mc_join_flags).
enum class mc_join : std::uint32_t {
    full_member = 0,          ///< sends and receives; the id's queue pair is attached
    sendonly_full_member = 1, ///< sends only
};

/// A group that an id joined: made by cm_id::join_multicast, and left exactly when this ends, or when its id does
/// (whichever comes first, in whatever order they are declared).
///
/// Once multicast_join has come, its cm_event::ud_param() has what sends to the group need: address handle attributes,
/// queue pair number and Q_Key. Leaving waits for the acks of the group's events: an event ends before its membership.
///
/// Distinct memberships may be used concurrently, also of one id, and while another thread gets from the channel.
/// C call: rdma_leave_multicast(3), with the very bytes that were joined with.
class multicast_membership : public detail::owner<detail::multicast_traits> {
public:
    multicast_membership() noexcept = default;

    /// The group's address; empty for an empty membership.
    [[nodiscard]] address group() const noexcept { return address(native_handle()); }

private:
    friend class cm_id;

    [[nodiscard]] detail::status join(detail::id_block& id, const address& group, void* context,
                                      mc_join flags) noexcept {
        if (!group)
            return {"rdma_join_multicast", EINVAL, "empty address"};
        auto* b = new (std::nothrow) block_type(detail::end_of_object<detail::multicast_traits>);
        if (b == nullptr)
            return {"rdma_join_multicast", ENOMEM};
        std::memcpy(&b->address, group.data(), group.size());
        b->context = context;
        detail::channel_block& channel = id.channel();
        // With the lock held, since the join's event may come, in another thread, before the call returns.
        const detail::mutex_guard guard(channel.events.lock);
        const detail::status result = c_join(id.raw, reinterpret_cast<sockaddr*>(&b->address), context, flags);
        if (result.failed()) {
            delete b;
            return result;
        }
        b->id = &id;
        b->next = id.groups;
        id.groups = b;
        install(reinterpret_cast<const sockaddr*>(&b->address), b, detail::keep(&channel));
        return {};
    }

    [[nodiscard]] static detail::status c_join(rdma_cm_id* id, sockaddr* group, void* context, mc_join flags) noexcept {
#if RDMAXX_HAS_ESTABLISH
        if (flags != mc_join::full_member) {
            rdma_cm_join_mc_attr_ex attr{};
            attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
            attr.join_flags = static_cast<std::uint32_t>(flags);
            attr.addr = group;
            return detail::check_errno("rdma_join_multicast_ex", ::rdma_join_multicast_ex(id, &attr, context));
        }
#else
        if (flags != mc_join::full_member)
            return {"rdma_join_multicast_ex", ENOSYS, "this librdmacm has no join flags"};
#endif
        return detail::check_errno("rdma_join_multicast", ::rdma_join_multicast(id, group, context));
    }
};

} // namespace rdmaxx::inline v0

#endif
