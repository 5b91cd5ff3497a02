// struct rdma_cm_id: rdma_create_id(3), rdma_resolve_addr(3), rdma_connect(3), rdma_listen(3), rdma_accept(3)
// ...
#ifndef RDMAXX_CM_CM_ID_HPP
#define RDMAXX_CM_CM_ID_HPP

#include <rdmaxx/address.hpp>
#include <rdmaxx/cm/addrinfo_hints.hpp>
#include <rdmaxx/cm/conn_param.hpp>
#include <rdmaxx/cm/multicast.hpp>
#include <rdmaxx/detail/cm_blocks.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/id_ops.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/pd.hpp>
#include <rdmaxx/verbs/qp.hpp>
#include <rdmaxx/verbs/srq.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rdmaxx::inline v0 {

namespace detail {

/// What an id does whose answers are events: cm_id and cm_id_ref. None of these calls blocks.
template <class Base>
class cm_id_ops : public Base {
public:
    using Base::Base;

    /// Finds the device and the address that lead to `peer`: addr_resolved or addr_error.
    /// @param timeout any std::chrono::duration, in steps of a millisecond
    /// @throws error ENETUNREACH without a route, ENODEV, EINVAL in a state that does not allow it
    /// C call: rdma_resolve_addr(3).
    template <duration Duration>
    void resolve_addr(const address& peer, Duration timeout) const {
        check(this->do_resolve_addr(nullptr, peer, milliseconds(timeout)), peer);
    }
    template <duration Duration>
    void resolve_addr(const address& peer, Duration timeout, std::error_code& ec) const noexcept {
        assign(ec, this->do_resolve_addr(nullptr, peer, milliseconds(timeout)));
    }

    /// The same, from an address of this machine.
    template <duration Duration>
    void resolve_addr(const address& local, const address& peer, Duration timeout) const {
        check(this->do_resolve_addr(&local, peer, milliseconds(timeout)), peer);
    }
    template <duration Duration>
    void resolve_addr(const address& local, const address& peer, Duration timeout, std::error_code& ec) const noexcept {
        assign(ec, this->do_resolve_addr(&local, peer, milliseconds(timeout)));
    }

    /// Finds the path to the resolved address: route_resolved or route_error.
    /// @throws error EINVAL before addr_resolved
    /// C call: rdma_resolve_route(3).
    template <duration Duration>
    void resolve_route(Duration timeout) const {
        check(this->do_resolve_route(milliseconds(timeout)));
    }
    template <duration Duration>
    void resolve_route(Duration timeout, std::error_code& ec) const noexcept {
        assign(ec, this->do_resolve_route(milliseconds(timeout)));
    }

#if RDMAXX_HAS_RESOLVE_ADDRINFO
    /// Looks a name up in the background, by the fabric's path service or the name service (addrinfo_flags::sa, dns):
    /// addrinfo_resolved, upon which addrinfo::query has the addresses, or addrinfo_error.
    /// @throws error EBUSY until addrinfo::query has fetched an earlier answer; EINVAL from a kernel that is too old
    /// C call: rdma_resolve_addrinfo(3). (RDMAXX_HAS_RESOLVE_ADDRINFO)
    void resolve_addrinfo(const char* node, const char* service, const addrinfo_hints& hints = {}) const {
        check(this->do_resolve_addrinfo(node, service, hints));
    }
    void resolve_addrinfo(const char* node, const char* service, const addrinfo_hints& hints,
                          std::error_code& ec) const noexcept {
        assign(ec, this->do_resolve_addrinfo(node, service, hints));
    }
#endif

#if RDMAXX_HAS_RESOLVE_ADDRINFO
private:
    /// librdmacm leaves -1 or an EAI code in errno when it fails itself.
    [[nodiscard]] status do_resolve_addrinfo(const char* node, const char* service,
                                             const addrinfo_hints& hints) const noexcept {
        const rdma_addrinfo c_hints = to_c(hints);
        errno = 0;
        const status result = check_errno_call("rdma_resolve_addrinfo", ::rdma_resolve_addrinfo, this->native_handle(),
                                               node, service, &c_hints);
        if (!*this || (result.value >= 0 && result.value != EINVAL))
            return result;
        return {result.call, EINVAL, "a hint that is not allowed, or the kernel is too old to know the call"};
    }
#endif
};

} // namespace detail

/// An id that somebody else owns: what an event names, or a C program's.
class cm_id_ref : public detail::cm_id_ops<detail::id_info<detail::ref<rdma_cm_id>>> {
public:
    using cm_id_ops::cm_id_ops;

    /// See cm_id::disconnect; this one always makes the C call.
    void disconnect() const { detail::check(do_disconnect()); }
    void disconnect(std::error_code& ec) const noexcept { detail::assign(ec, do_disconnect()); }
};

/// One end of a connection, or a listener. It ends exactly when its owner ends: its queue pair first, then, when every
/// event of it has been acked, the id. It keeps its event channel.
///
/// An event must end before its id. Declare an event after the id; do not make it a member above one: the id's
/// destructor would wait for an event that only ends after it. A wait longer than hang_report_after() is reported to
/// the hang hook (error.hpp) with the events' names and threads.
///
/// Distinct ids may be used concurrently, also on one channel, and while another thread gets from the channel. One id
/// may be used by one thread at a time. What an event changes of an id (verbs, pd, addresses) is there when the thread
/// that got the event has seen it.
///
/// C calls: rdma_create_id(3), rdma_destroy_id(3).
class cm_id : public detail::cm_id_ops<detail::id_owner<detail::cm_id_traits>> {
public:
    cm_id() noexcept = default;

    /// @param channel an event_channel, where the id's events arrive; it is kept open
    /// @throws error ENODEV where there is no RDMA device, ENOMEM, EMFILE
    explicit cm_id(const detail::owner<detail::event_channel_traits>& channel, port_space ps = port_space::tcp) {
        detail::check(init(channel, ps));
    }
    [[nodiscard]] static cm_id create(const detail::owner<detail::event_channel_traits>& channel, port_space ps,
                                      std::error_code& ec) noexcept {
        cm_id result;
        detail::assign(ec, result.init(channel, ps));
        return result;
    }

    /// Takes over an id that C code made on this channel; it will be destroyed by rdma_destroy_id. If it has a queue
    /// pair that goes too, with the CQs that rdma_create_qp made for it.
    /// @param ec ENOMEM, and the id is still the caller's; EINVAL for an id of another channel
    [[nodiscard]] static cm_id adopt(rdma_cm_id* raw, const detail::owner<detail::event_channel_traits>& channel,
                                     std::error_code& ec) noexcept {
        cm_id result;
        if (raw == nullptr || raw->channel != channel.native_handle())
            detail::assign(ec, {"rdma_create_id", EINVAL, "the id is not of this channel"});
        else
            detail::assign(ec, result.take(raw, detail::passkey::block(channel), detail::id_phase::unknown));
        return result;
    }

    /// Asks the peer for a connection: established, rejected, unreachable or connect_error.
    /// An id whose connection failed cannot be used again: make a new one.
    /// @throws error EINVAL before route_resolved, without a queue pair (for datagrams none is needed), for too much
    ///         private data (the limit is named), or for depths that the device does not have
    /// C call: rdma_connect(3).
    void connect(const conn_param& param = {}) { detail::check(do_connect(param), subject()); }
    void connect(const conn_param& param, std::error_code& ec) noexcept { detail::assign(ec, do_connect(param)); }

    /// Answers a connect_request with yes; established follows. If it fails the peer has been told no, and the id is
    /// good for nothing but its end.
    /// @throws error EINVAL for an id that did not come with a request or was answered, without a queue pair, or for
    ///         too much private data (the limit is named)
    /// C call: rdma_accept(3).
    void accept(const conn_param& param = {}) { detail::check(do_accept(param), subject()); }
    void accept(const conn_param& param, std::error_code& ec) noexcept { detail::assign(ec, do_accept(param)); }

    /// Ends the connection: the queue pair goes to the error state, the peer gets disconnected, and this side does when
    /// the peer has disconnected as well. Answer a disconnected event with it. Again after a success: no effect.
    /// @throws error EINVAL before connect or accept, or where the kernel has ended the connection already
    /// C call: rdma_disconnect(3).
    void disconnect() { detail::check(do_disconnect_once(), subject()); }
    void disconnect(std::error_code& ec) noexcept { detail::assign(ec, do_disconnect_once()); }

    /// Moves the id to another channel, which it keeps from here on; events that were not fetched move along.
    /// Waits until the ones that were fetched are acked: an event that this thread holds is reported like one that
    /// keeps the id from ending. Migrate a listener while it is quiet.
    /// @param channel an event_channel
    /// @throws error EDEADLK when the hang hook answered hang_action::leak: the id stays on its channel
    /// C call: rdma_migrate_id(3).
    void migrate(const detail::owner<detail::event_channel_traits>& channel) { detail::check(do_migrate(channel)); }
    void migrate(const detail::owner<detail::event_channel_traits>& channel, std::error_code& ec) noexcept {
        detail::assign(ec, do_migrate(channel));
    }

    /// Joins a multicast group: multicast_join or multicast_error. For a datagram id that is bound to a device.
    /// @param group an address; its port is not used
    /// @param context the program's own pointer, which the group's events carry (cm_event::multicast_context): a
    ///         different one for each group of an id, so that leaving one does not wait for the events of another
    /// @return the membership, which leaves the group when it ends
    /// @throws error EINVAL, ENODEV; ENOSYS or ENOTSUP for flags that the library or the kernel does not know
    /// C calls: rdma_join_multicast(3), rdma_join_multicast_ex(3).
    [[nodiscard]] multicast_membership join_multicast(const address& group, void* context = nullptr,
                                                      mc_join flags = mc_join::full_member) {
        multicast_membership result;
        detail::check(do_join(group, context, flags, result), group);
        return result;
    }
    [[nodiscard]] multicast_membership join_multicast(const address& group, void* context, mc_join flags,
                                                      std::error_code& ec) noexcept {
        multicast_membership result;
        detail::assign(ec, do_join(group, context, flags, result));
        return result;
    }

private:
    friend class cm_event;
    friend class sync_id;

    [[nodiscard]] detail::status init(const detail::owner<detail::event_channel_traits>& channel,
                                      port_space ps) noexcept {
        if (!channel)
            return {"rdma_create_id", EINVAL, "empty event channel"};
        const auto create = [&]() noexcept {
            rdma_cm_id* raw = nullptr;
            const int result =
                ::rdma_create_id(channel.native_handle(), &raw, nullptr, static_cast<rdma_port_space>(ps));
            return result == 0 ? raw : nullptr;
        };
        return make("rdma_create_id", create, detail::keep(detail::passkey::block(channel)));
    }

    /// An id that exists; on failure it is still the caller's.
    [[nodiscard]] detail::status take(rdma_cm_id* raw, detail::channel_block* channel,
                                      detail::id_phase phase) noexcept {
        const detail::status result = take_over("rdma_create_id", raw, detail::keep(channel));
        if (!result.failed()) {
            block().phase = phase;
            block().connecting = phase == detail::id_phase::unknown;
        }
        return result;
    }

    [[nodiscard]] detail::status do_migrate(const detail::owner<detail::event_channel_traits>& channel) noexcept {
        if (!channel || !*this)
            return {"rdma_migrate_id", EINVAL, !channel ? "empty event channel" : detail::empty_handle};
        return detail::migrate(block(), *detail::passkey::block(channel));
    }

    [[nodiscard]] detail::status do_join(const address& group, void* context, mc_join flags,
                                         multicast_membership& out) noexcept {
        if (const detail::status result = need_device("rdma_join_multicast"); result.failed())
            return result;
        detail::status result = out.join(block(), group, context, flags);
        if (result.value == EINVAL && ps() == port_space::tcp)
            result.cause = "groups are for datagrams: the id's port space is tcp, and not udp";
        return result;
    }
};

namespace detail {

/// The device of an id, found in the list that keeps every device of librdmacm open.
[[nodiscard]] inline borrowed_context keep_context(const rdma_cm_id* id) noexcept {
    borrowed_context found;
    if (id == nullptr || id->verbs == nullptr) {
        found.result = {"rdma_get_devices", EINVAL, unbound};
        return found;
    }
    errno = 0;
    ibv_context** list = ::rdma_get_devices(nullptr);
    found.result = check_pointer("rdma_get_devices", list);
    if (found.result.failed())
        return found;
    for (ibv_context** at = list; *at != nullptr; ++at)
        if (*at == id->verbs)
            found.raw = *at;
    found.keeper = list;
    found.let_go = [](void* keeper) noexcept {
        ::rdma_free_devices(static_cast<ibv_context**>(keeper));
    };
    if (found.raw == nullptr) {
        found.let_go(list);
        found.result = {"rdma_get_devices", ENODEV, "the id's device is gone"};
    }
    return found;
}

} // namespace detail

/// Found by context's constructor: what an id brings, kept open.
[[nodiscard]] inline detail::borrowed_context keep_context_of(const cm_id_ref& id) noexcept {
    return detail::keep_context(id.native_handle());
}
[[nodiscard]] inline detail::borrowed_context keep_context_of(const cm_id& id) noexcept {
    return detail::keep_context(id.native_handle());
}

} // namespace rdmaxx::inline v0

#endif
