// Synchronous ids: rdma_create_id(3) without a channel, rdma_create_ep(3), rdma_get_request(3).
#ifndef RDMAXX_CM_SYNC_ID_HPP
#define RDMAXX_CM_SYNC_ID_HPP

#include <rdmaxx/cm/addrinfo.hpp>
#include <rdmaxx/cm/cm_event.hpp>
#include <rdmaxx/cm/cm_id.hpp>
#include <rdmaxx/cm/conn_param.hpp>
#include <rdmaxx/detail/cm_blocks.hpp>
#include <rdmaxx/detail/id_ops.hpp>

#include <utility>

namespace rdmaxx::inline v0 {

/// An id whose calls block until their answer is there. It has no event channel to get from: librdmacm owns one, and
/// the id's event, for it. A type of its own, since waiting for an event of such an id would never end.
///
/// librdmacm takes any event for the answer as long as its status is 0. Here the event must be the one that the call is
/// for: another one is the error EPROTO, and last_event() tells which.
///
/// A child that get_request() returned keeps its listener until it is accepted, migrated or gone: they may end in any
/// order. One sync_id may be used by one thread at a time; no call can be interrupted. To stop, wait with a deadline,
/// or serve many in one thread, use cm_id, or migrate().
///
/// C calls: rdma_create_id(3), rdma_create_ep(3), rdma_destroy_id(3), rdma_destroy_ep(3).
class sync_id : public detail::id_owner<detail::sync_id_traits> {
public:
    /// @throws error ENODEV where there is no RDMA device, ENOMEM, EMFILE
    explicit sync_id(port_space ps = port_space::tcp) { detail::check(init(ps)); }
    [[nodiscard]] static sync_id create(port_space ps, std::error_code& ec) noexcept {
        sync_id result(nullptr);
        detail::assign(ec, result.init(ps));
        return result;
    }
    /// An empty one, to be assigned to.
    explicit sync_id(std::nullptr_t) noexcept {}

    /// An endpoint for an entry of an addrinfo: bound if the entry is passive, else with address and route resolved (at
    /// most two seconds each). Blocks. C call: rdma_create_ep(3).
    /// @throws error as bind_addr, resolve_addr and resolve_route
    [[nodiscard]] static sync_id create_ep(addrinfo_entry entry) {
        sync_id result(nullptr);
        detail::check(result.init(entry, {}, nullptr));
        return result;
    }
    [[nodiscard]] static sync_id create_ep(addrinfo_entry entry, std::error_code& ec) noexcept {
        sync_id result(nullptr);
        detail::assign(ec, result.init(entry, {}, nullptr));
        return result;
    }
    /// The same with a queue pair; for a listener, each child gets one like it. The CQs that were given as owners are
    /// kept by the endpoint and its children.
    /// @param domain a pd or pd_ref; empty for librdmacm's own
    [[nodiscard]] static sync_id create_ep(addrinfo_entry entry, detail::parent<ibv_pd> domain,
                                           const qp_init_attr& attr) {
        sync_id result(nullptr);
        detail::check(result.init(entry, domain, &attr));
        return result;
    }
    [[nodiscard]] static sync_id create_ep(addrinfo_entry entry, detail::parent<ibv_pd> domain,
                                           const qp_init_attr& attr, std::error_code& ec) noexcept {
        sync_id result(nullptr);
        detail::assign(ec, result.init(entry, domain, &attr));
        return result;
    }

    /// Makes an id synchronous. Waits until its events are acked. If it fails the id is unchanged.
    /// C call: rdma_migrate_id(3).
    explicit sync_id(cm_id&& id) { detail::check(init(id)); }
    [[nodiscard]] static sync_id create(cm_id&& id, std::error_code& ec) noexcept {
        sync_id result(nullptr);
        detail::assign(ec, result.init(id));
        return result;
    }

    /// Takes over an id that rdma_create_id made without a channel; it will be destroyed by rdma_destroy_id.
    /// @param ec ENOMEM, and the id is still the caller's
    [[nodiscard]] static sync_id adopt(rdma_cm_id* raw, std::error_code& ec) noexcept {
        sync_id result(nullptr);
        detail::assign(ec, result.take(raw, detail::id_phase::unknown));
        return result;
    }

    /// Finds the device and the address that lead to `peer`. Blocks at most about the timeout.
    /// @param timeout any std::chrono::duration, in steps of a millisecond
    /// @throws error ETIMEDOUT, ENETUNREACH, ENODEV
    /// C call: rdma_resolve_addr(3).
    template <detail::duration Duration>
    void resolve_addr(const address& peer, Duration timeout) {
        detail::check(do_resolve(nullptr, peer, detail::milliseconds(timeout)), peer);
    }
    template <detail::duration Duration>
    void resolve_addr(const address& peer, Duration timeout, std::error_code& ec) noexcept {
        detail::assign(ec, do_resolve(nullptr, peer, detail::milliseconds(timeout)));
    }
    template <detail::duration Duration>
    void resolve_addr(const address& local, const address& peer, Duration timeout) {
        detail::check(do_resolve(&local, peer, detail::milliseconds(timeout)), peer);
    }
    template <detail::duration Duration>
    void resolve_addr(const address& local, const address& peer, Duration timeout, std::error_code& ec) noexcept {
        detail::assign(ec, do_resolve(&local, peer, detail::milliseconds(timeout)));
    }

    /// Finds the path to the resolved address. Blocks at most about the timeout. C call: rdma_resolve_route(3).
    template <detail::duration Duration>
    void resolve_route(Duration timeout) {
        detail::check(do_route(detail::milliseconds(timeout)), subject());
    }
    template <detail::duration Duration>
    void resolve_route(Duration timeout, std::error_code& ec) noexcept {
        detail::assign(ec, do_route(detail::milliseconds(timeout)));
    }

    /// Connects, and blocks until the peer has answered.
    /// @throws error a reject_category() code when it said no; ETIMEDOUT; EINVAL as cm_id::connect
    /// C call: rdma_connect(3).
    void connect(const conn_param& param = {}) { detail::check(do_sync_connect(param), subject()); }
    void connect(const conn_param& param, std::error_code& ec) noexcept { detail::assign(ec, do_sync_connect(param)); }

    /// The next connection request of a listener, as an id to accept or reject. Blocks until there is one.
    /// @throws error EINVAL for an id that is no listener; with create_ep's attributes, as create_qp: then that peer
    ///         has been told no, and the listener goes on
    /// C call: rdma_get_request(3).
    [[nodiscard]] sync_id get_request() {
        sync_id child(nullptr);
        detail::check(do_get_request(child));
        return child;
    }
    [[nodiscard]] sync_id get_request(std::error_code& ec) noexcept {
        sync_id child(nullptr);
        detail::assign(ec, do_get_request(child));
        return child;
    }

    /// Answers a request with yes, and blocks until the connection is established. C call: rdma_accept(3).
    /// @throws error as cm_id::accept
    void accept(const conn_param& param = {}) { detail::check(do_sync_accept(param), subject()); }
    void accept(const conn_param& param, std::error_code& ec) noexcept { detail::assign(ec, do_sync_accept(param)); }

    /// Ends the connection, and blocks until the peer has ended it as well. Once: again has no effect (in C the second
    /// call would wait for the event of another one, and a third for ever).
    /// C call: rdma_disconnect(3).
    void disconnect() { detail::check(do_sync_disconnect(), subject()); }
    void disconnect(std::error_code& ec) noexcept { detail::assign(ec, do_sync_disconnect()); }

    /// The event that ended the last blocking call, with its private data; empty before the first one.
    [[nodiscard]] cm_event_snapshot last_event() const noexcept {
        return *this && native_handle()->event != nullptr ? cm_event_snapshot(*native_handle()->event)
                                                          : cm_event_snapshot();
    }

    /// Makes the id asynchronous: from here on its events arrive at the channel. What has been answered stays answered:
    /// after connect() no established event follows. If it fails the id is unchanged.
    /// @param channel an event_channel, which the new owner keeps
    /// C call: rdma_migrate_id(3).
    [[nodiscard]] cm_id migrate(const detail::owner<detail::event_channel_traits>& channel) && {
        cm_id result;
        detail::check(do_migrate(channel, result));
        return result;
    }
    [[nodiscard]] cm_id migrate(const detail::owner<detail::event_channel_traits>& channel,
                                std::error_code& ec) && noexcept {
        cm_id result;
        detail::assign(ec, do_migrate(channel, result));
        return result;
    }

private:
    [[nodiscard]] detail::sync_block& sync_block() noexcept { return *detail::passkey::block(*this); }

    [[nodiscard]] detail::status take(rdma_cm_id* raw, detail::id_phase phase) noexcept {
        const detail::status result = take_over("rdma_create_id", raw);
        if (!result.failed()) {
            block().phase = phase;
            block().connecting = phase == detail::id_phase::unknown;
        }
        return result;
    }

    [[nodiscard]] detail::status init(port_space ps) noexcept {
        return make("rdma_create_id", [ps]() noexcept {
            rdma_cm_id* raw = nullptr;
            const int result = ::rdma_create_id(nullptr, &raw, nullptr, static_cast<rdma_port_space>(ps));
            return result == 0 ? raw : nullptr;
        });
    }

    [[nodiscard]] detail::status init(addrinfo_entry entry, detail::parent<ibv_pd> domain,
                                      const qp_init_attr* attr) noexcept {
        if (!entry)
            return {"rdma_create_ep", EINVAL, "empty addrinfo entry"};
        if (attr != nullptr && attr->empty_srq_)
            return {"rdma_create_ep", EINVAL, "empty SRQ"};
        ibv_qp_init_attr copy{};
        if (attr != nullptr)
            copy = attr->raw(); // C writes what it granted into it
        const detail::status result = make("rdma_create_ep", [&]() noexcept {
            rdma_cm_id* raw = nullptr;
            const int created = ::rdma_create_ep(&raw, entry.native_handle(), domain.native_handle(),
                                                 attr != nullptr ? &copy : nullptr);
            return created == 0 ? raw : nullptr;
        });
        if (result.failed())
            return result;
        block().endpoint = true;
        if (attr != nullptr)
            keep_queues(domain, *attr);
        return result;
    }

    [[nodiscard]] detail::status init(cm_id& id) noexcept {
        if (!id)
            return {"rdma_migrate_id", EINVAL, "empty id"};
        detail::id_block& from = id.block();
        detail::status result = make("rdma_create_id", [&]() noexcept { return id.native_handle(); });
        if (result.failed())
            return result;
        result = detail::migrate_to_sync(from);
        if (result.failed()) {
            static_cast<void>(std::move(*this).release());
            return result;
        }
        detail::carry_over(from, block());
        static_cast<void>(std::move(id).release());
        return {};
    }

    [[nodiscard]] detail::status do_migrate(const detail::owner<detail::event_channel_traits>& channel,
                                            cm_id& out) noexcept {
        if (!channel || !*this)
            return {"rdma_migrate_id", EINVAL, "empty id or event channel"};
        detail::status result = out.take(native_handle(), detail::passkey::block(channel), detail::id_phase::made);
        if (result.failed())
            return result;
        result = detail::check_errno("rdma_migrate_id", ::rdma_migrate_id(native_handle(), channel.native_handle()));
        if (result.failed()) {
            static_cast<void>(std::move(out).release());
            return result;
        }
        detail::carry_over(block(), out.block());
        static_cast<void>(std::move(*this).release());
        return {};
    }

    /// C looks at the status alone.
    [[nodiscard]] detail::status finish(const detail::status& called, cm_event_type expected) const noexcept {
        if (!*this)
            return called;
        const rdma_cm_event* event = native_handle()->event;
        if (called.failed()) {
            if (*called.cause == '\0' && event != nullptr && detail::type_of(*event) == cm_event_type::rejected &&
                event->status > 0)
                return {called.call, event->status, "", &reject_category()};
            // rdma-core before 35 leaves a negative errno.
            return {called.call, called.value < 0 ? -called.value : called.value, called.cause, called.category};
        }
        if (event == nullptr || detail::type_of(*event) != expected)
            return {called.call, EPROTO, "another event came than the answer: see last_event()"};
        return {};
    }

    [[nodiscard]] detail::status do_resolve(const address* local, const address& peer, int timeout_ms) noexcept {
        return finish(do_resolve_addr(local, peer, timeout_ms), cm_event_type::addr_resolved);
    }
    [[nodiscard]] detail::status do_route(int timeout_ms) noexcept {
        return finish(do_resolve_route(timeout_ms), cm_event_type::route_resolved);
    }

    [[nodiscard]] detail::status do_sync_connect(const conn_param& param) noexcept {
        const detail::status called = do_connect(param);
        const bool own_qp = *this && (qp() || native_handle()->qp_type == IBV_QPT_UD);
        return finish(called, own_qp ? cm_event_type::established : cm_event_type::connect_response);
    }

    [[nodiscard]] detail::status do_sync_accept(const conn_param& param) noexcept {
        const detail::status called = do_accept(param);
        if (called.failed())
            return finish(called, cm_event_type::established);
        sync_block().listener = detail::keep(); // the request's event has been acked
        return native_handle()->qp_type == IBV_QPT_UD ? called : finish(called, cm_event_type::established);
    }

    [[nodiscard]] detail::status do_sync_disconnect() noexcept {
        if (*this && block().disconnected)
            return {};
        const detail::status result = do_disconnect_once();
        if (!*this)
            return result;
        const rdma_cm_event* event = native_handle()->event;
        // The peer's disconnected event came earlier, when the id was asynchronous: only this one is left.
        if (!result.failed() && event != nullptr && detail::type_of(*event) == cm_event_type::timewait_exit)
            return {};
        return finish(result, cm_event_type::disconnected);
    }

    [[nodiscard]] detail::status do_get_request(sync_id& child) noexcept {
        rdma_cm_id* raw = nullptr;
        errno = 0;
        const detail::status result =
            detail::check_errno_call("rdma_get_request", ::rdma_get_request, native_handle(), &raw);
        if (!*this)
            return result;
        if (result.failed())
            return failed_request(result);
        const detail::status taken = child.take(raw, detail::id_phase::request);
        if (taken.failed()) {
            detail::destroy_request(raw);
            return taken;
        }
        child.sync_block().listener = detail::keep(detail::passkey::block(*this));
        child.inherit_queues(block());
        return {};
    }

    /// Where the child's queue pair could not be made, nobody but the listener's event knows the child.
    [[nodiscard]] detail::status failed_request(const detail::status& result) noexcept {
        rdma_cm_event* event = native_handle()->event;
        if (event == nullptr || detail::type_of(*event) != cm_event_type::connect_request || event->status != 0)
            return finish(result, cm_event_type::connect_request);
        detail::destroy_request(event->id);
        return result;
    }

    void keep_queues(detail::parent<ibv_pd> domain, const qp_init_attr& attr) noexcept {
        detail::id_block& b = block();
        b.parents[detail::id_block::send_cq_pin] = attr.send_cq_;
        b.parents[detail::id_block::recv_cq_pin] = attr.recv_cq_;
        b.parents[detail::id_block::srq_pin] = attr.srq_;
        b.parents[detail::id_block::pd_pin] = domain.pin();
    }
    void inherit_queues(const detail::id_block& listener) noexcept {
        detail::id_block& b = block();
        for (const unsigned pin : {detail::id_block::send_cq_pin, detail::id_block::recv_cq_pin,
                                   detail::id_block::srq_pin, detail::id_block::pd_pin})
            b.parents[pin] = listener.parents[pin];
    }
};

[[nodiscard]] inline detail::borrowed_context keep_context_of(const sync_id& id) noexcept {
    return detail::keep_context(id.native_handle());
}

} // namespace rdmaxx::inline v0

#endif
