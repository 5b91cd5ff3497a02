// struct rdma_cm_id: rdma_create_id(3), rdma_resolve_addr(3), rdma_connect(3), rdma_listen(3), rdma_accept(3)
// ...
#ifndef RDMAXX_CM_CM_ID_HPP
#define RDMAXX_CM_CM_ID_HPP

#include <rdmaxx/address.hpp>
#include <rdmaxx/cm/conn_param.hpp>
#include <rdmaxx/detail/cm_blocks.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/pd.hpp>
#include <rdmaxx/verbs/qp.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rdmaxx::inline v0 {

/// enum rdma_port_space.
enum class port_space : int {
    ipoib = RDMA_PS_IPOIB,
    tcp = RDMA_PS_TCP, ///< reliable connections
    udp = RDMA_PS_UDP, ///< datagrams and multicast
    ib = RDMA_PS_IB,
};

[[nodiscard]] constexpr const char* to_string(port_space space) noexcept {
    switch (space) {
    case port_space::ipoib: return "ipoib";
    case port_space::tcp: return "tcp";
    case port_space::udp: return "udp";
    case port_space::ib: return "ib";
    }
    return "unknown";
}

namespace detail {

/// The operations of cm_id and cm_id_ref.
template <class Handle>
class cm_id_ops : public Handle {
public:
    using Handle::Handle;

    // ---- What it is. No system call. The id must not be empty.

    /// The device, empty until the id is bound to one (bind_addr to an address of it, or addr_resolved).
    [[nodiscard]] context_ref verbs() const noexcept { return context_ref(this->native_handle()->verbs); }
    /// librdmacm's own PD of that device, or the one that create_qp was given; empty until the id is bound to
    /// a device. It goes with the last id of the device: for memory that outlives single connections make one
    /// of your own, from context(id).
    [[nodiscard]] pd_ref pd() const noexcept { return pd_ref(this->native_handle()->pd); }
    /// The id's queue pair, empty where there is none.
    [[nodiscard]] qp_ref qp() const noexcept { return qp_ref(qp_of(this->native_handle())); }
    /// The device's port, from 1; 0 until the id is bound to a device.
    [[nodiscard]] std::uint8_t port_num() const noexcept { return this->native_handle()->port_num; }
    [[nodiscard]] port_space ps() const noexcept {
        return static_cast<port_space>(this->native_handle()->ps);
    }

    /// This side's address and port, bound by the program or chosen by the kernel. C call:
    /// rdma_get_local_addr(3).
    [[nodiscard]] address local_address() const noexcept {
        return address(::rdma_get_local_addr(this->native_handle()));
    }
    /// The peer's address and port. C call: rdma_get_peer_addr(3).
    [[nodiscard]] address peer_address() const noexcept {
        return address(::rdma_get_peer_addr(this->native_handle()));
    }

    /// id->context, the program's own pointer. The id of a connect_request starts with its listener's.
    template <class T>
    [[nodiscard]] T* user_context() const noexcept {
        return static_cast<T*>(this->native_handle()->context);
    }
    void set_user_context(void* value) const noexcept { this->native_handle()->context = value; }

    // ---- Control path. System calls; none of them blocks: the answer is an event.

    /// Binds to an address of this machine; port 0 lets the kernel choose one when needed (see
    /// local_address).
    /// @throws error EADDRINUSE, EADDRNOTAVAIL, ENODEV where the address belongs to no RDMA device
    /// C call: rdma_bind_addr(3).
    void bind_addr(const address& local) const { check(do_bind_addr(local), local); }
    void bind_addr(const address& local, std::error_code& ec) const noexcept {
        assign(ec, do_bind_addr(local));
    }

    /// Finds the device and the address that lead to `peer`: addr_resolved or addr_error.
    /// @param timeout any std::chrono::duration, in steps of a millisecond
    /// @throws error ENETUNREACH without a route, ENODEV, EINVAL in a state that does not allow it
    /// C call: rdma_resolve_addr(3).
    template <duration Duration>
    void resolve_addr(const address& peer, Duration timeout) const {
        check(do_resolve_addr(nullptr, peer, milliseconds(timeout)), peer);
    }
    template <duration Duration>
    void resolve_addr(const address& peer, Duration timeout, std::error_code& ec) const noexcept {
        assign(ec, do_resolve_addr(nullptr, peer, milliseconds(timeout)));
    }

    /// The same, from an address of this machine.
    template <duration Duration>
    void resolve_addr(const address& local, const address& peer, Duration timeout) const {
        check(do_resolve_addr(&local, peer, milliseconds(timeout)), peer);
    }
    template <duration Duration>
    void resolve_addr(const address& local, const address& peer, Duration timeout,
                      std::error_code& ec) const noexcept {
        assign(ec, do_resolve_addr(&local, peer, milliseconds(timeout)));
    }

    /// Finds the path to the resolved address: route_resolved or route_error.
    /// @throws error EINVAL before addr_resolved
    /// C call: rdma_resolve_route(3).
    template <duration Duration>
    void resolve_route(Duration timeout) const {
        check(do_resolve_route(milliseconds(timeout)));
    }
    template <duration Duration>
    void resolve_route(Duration timeout, std::error_code& ec) const noexcept {
        assign(ec, do_resolve_route(milliseconds(timeout)));
    }

    /// Takes requests: each is a connect_request. An id that is not bound gets a port of the kernel's choice.
    /// @param backlog how many may wait unfetched, from 1; the kernel drops those above
    /// @throws error EADDRINUSE; EINVAL for a backlog below 1
    /// C call: rdma_listen(3).
    void listen(int backlog = 128) const { check(do_listen(backlog)); }
    void listen(int backlog, std::error_code& ec) const noexcept { assign(ec, do_listen(backlog)); }

protected:
    [[nodiscard]] status do_disconnect() const noexcept {
        return check_errno("rdma_disconnect", ::rdma_disconnect(this->native_handle()));
    }

    /// librdmacm follows id->verbs without a look in what needs a device.
    [[nodiscard]] status need_device(const char* call) const noexcept {
        if (this->native_handle()->verbs != nullptr)
            return {};
        return {call, EINVAL,
                "the id is not bound to a device yet (addr_resolved, or bind_addr to its address)"};
    }

private:
    [[nodiscard]] status do_bind_addr(const address& local) const noexcept {
        if (!local)
            return {"rdma_bind_addr", EINVAL, "empty address"};
        // C takes it as non-const, and does not write.
        auto* addr = const_cast<sockaddr*>(local.data());
        return check_errno("rdma_bind_addr", ::rdma_bind_addr(this->native_handle(), addr));
    }

    [[nodiscard]] status do_resolve_addr(const address* local, const address& peer,
                                         int timeout_ms) const noexcept {
        if (!peer)
            return {"rdma_resolve_addr", EINVAL, "empty address"};
        auto* from = local != nullptr && *local ? const_cast<sockaddr*>(local->data()) : nullptr;
        auto* to = const_cast<sockaddr*>(peer.data());
        return check_errno("rdma_resolve_addr",
                           ::rdma_resolve_addr(this->native_handle(), from, to, timeout_ms));
    }

    [[nodiscard]] status do_resolve_route(int timeout_ms) const noexcept {
        if (const status result = need_device("rdma_resolve_route"); result.failed())
            return result;
        return check_errno("rdma_resolve_route", ::rdma_resolve_route(this->native_handle(), timeout_ms));
    }

    [[nodiscard]] status do_listen(int backlog) const noexcept {
        if (backlog < 1)
            return {"rdma_listen", EINVAL, "a backlog below 1"};
        return check_errno("rdma_listen", ::rdma_listen(this->native_handle(), backlog));
    }
};

} // namespace detail

/// An id that somebody else owns: what an event names, or a C program's.
class cm_id_ref : public detail::cm_id_ops<detail::ref<rdma_cm_id>> {
public:
    using cm_id_ops::cm_id_ops;

    /// See cm_id::disconnect; this one always makes the C call.
    void disconnect() const { detail::check(do_disconnect()); }
    void disconnect(std::error_code& ec) const noexcept { detail::assign(ec, do_disconnect()); }
};

/// One end of a connection, or a listener. It ends exactly when its owner ends: its queue pair first, then,
/// when every event of it has been acked, the id. It keeps its event channel.
///
/// An event must end before its id. Declare an event after the id; do not make it a member above one: the
/// id's destructor would wait for an event that only ends after it. A wait longer than hang_report_after() is
/// reported to the hang hook (error.hpp) with the events' names and threads.
///
/// Distinct ids may be used concurrently, also on one channel, and while another thread gets from the
/// channel. One id may be used by one thread at a time. What an event changes of an id (verbs, pd, addresses)
/// is there when the thread that got the event has seen it.
///
/// C calls: rdma_create_id(3), rdma_destroy_id(3).
class cm_id : public detail::cm_id_ops<detail::owner<detail::cm_id_traits>> {
public:
    cm_id() noexcept = default;

    /// @param channel an event_channel, where the id's events arrive; it is kept open
    /// @throws error ENODEV where there is no RDMA device, ENOMEM, EMFILE
    explicit cm_id(const detail::owner<detail::event_channel_traits>& channel,
                   port_space ps = port_space::tcp) {
        detail::check(init(channel, ps));
    }
    [[nodiscard]] static cm_id create(const detail::owner<detail::event_channel_traits>& channel,
                                      port_space ps, std::error_code& ec) noexcept {
        cm_id result;
        detail::assign(ec, result.init(channel, ps));
        return result;
    }

    /// Takes over an id that C code made on this channel; it will be destroyed by rdma_destroy_id. If it has
    /// a queue pair that goes too, with the CQs that rdma_create_qp made for it.
    /// @param ec ENOMEM, and the id is still the caller's; EINVAL for an id of another channel
    [[nodiscard]] static cm_id adopt(rdma_cm_id* raw,
                                     const detail::owner<detail::event_channel_traits>& channel,
                                     std::error_code& ec) noexcept {
        cm_id result;
        if (raw == nullptr || raw->channel != channel.native_handle())
            detail::assign(ec, {"rdma_create_id", EINVAL, "the id is not of this channel"});
        else
            detail::assign(ec, result.take(raw, detail::passkey::block(channel), detail::id_phase::unknown));
        return result;
    }

    /// Makes the id's queue pair, on `domain` or on librdmacm's own PD (see pd()). Before connect and accept;
    /// post receives before those, too: the peer may send at once. The id keeps the CQs and the PD that are
    /// given as owners, until destroy_qp() or its end.
    /// @return the queue pair; its granted capabilities are cap()
    /// @throws error EINVAL before the id is bound to a device, with a PD of another device, where there is a
    /// queue
    ///         pair already, or for more than the device has; ENOMEM
    /// C call: rdma_create_qp(3).
    qp_ref create_qp(const qp_init_attr& attr) {
        detail::check(do_create_qp({}, attr));
        return qp();
    }
    qp_ref create_qp(const qp_init_attr& attr, std::error_code& ec) noexcept {
        detail::assign(ec, do_create_qp({}, attr));
        return ec ? qp_ref() : qp();
    }
    qp_ref create_qp(detail::parent<ibv_pd> domain, const qp_init_attr& attr) {
        detail::check(do_create_qp(domain, attr));
        return qp();
    }
    qp_ref create_qp(detail::parent<ibv_pd> domain, const qp_init_attr& attr, std::error_code& ec) noexcept {
        detail::assign(ec, do_create_qp(domain, attr));
        return ec ? qp_ref() : qp();
    }

    /// Ends the queue pair. Safe while another thread gets from the channel.
    /// @throws error EINVAL where there is none; EBUSY while a multicast group is attached
    /// C call: ibv_destroy_qp(3), which tells what rdma_destroy_qp(3) hides.
    void destroy_qp() { detail::check(do_destroy_qp()); }
    void destroy_qp(std::error_code& ec) noexcept { detail::assign(ec, do_destroy_qp()); }

    /// Asks the peer for a connection: established, rejected, unreachable or connect_error.
    /// An id whose connection failed cannot be used again: make a new one.
    /// @throws error EINVAL before route_resolved, for too much private data (the limit is named), or for
    /// depths that
    ///         the device does not have
    /// C call: rdma_connect(3).
    void connect(const conn_param& param = {}) { detail::check(do_connect(param), subject()); }
    void connect(const conn_param& param, std::error_code& ec) noexcept {
        detail::assign(ec, do_connect(param));
    }

    /// Answers a connect_request with yes; established follows. If it fails the peer has been told no, and
    /// the id is good for nothing but its end.
    /// @throws error EINVAL for an id that did not come with a request or was answered, without a queue pair,
    /// or for
    ///         too much private data (the limit is named)
    /// C call: rdma_accept(3).
    void accept(const conn_param& param = {}) { detail::check(do_accept(param), subject()); }
    void accept(const conn_param& param, std::error_code& ec) noexcept {
        detail::assign(ec, do_accept(param));
    }

    /// Answers a connect_request with no: the peer gets rejected, reason 28, with the private data. (So it
    /// does, without data, when the id is destroyed without an answer.)
    /// @throws error EINVAL for an id that did not come with a request or was answered, or for too much
    /// private data C call: rdma_reject(3).
    void reject(std::span<const std::byte> private_data = {}) {
        detail::check(do_reject(private_data), subject());
    }
    void reject(std::span<const std::byte> private_data, std::error_code& ec) noexcept {
        detail::assign(ec, do_reject(private_data));
    }

    /// Ends the connection: the queue pair goes to the error state, the peer gets disconnected, and this side
    /// does when the peer has disconnected as well. Answer a disconnected event with it. Again after a
    /// success: no effect.
    /// @throws error EINVAL before connect or accept, or where the kernel has ended the connection already
    /// C call: rdma_disconnect(3).
    void disconnect() { detail::check(do_disconnect_once(), subject()); }
    void disconnect(std::error_code& ec) noexcept { detail::assign(ec, do_disconnect_once()); }

private:
    friend class cm_event;

    [[nodiscard]] detail::id_block& block() noexcept { return *detail::passkey::block(*this); }

    /// What errors of a connection are about.
    struct peer_of {
        const cm_id& id;
        [[nodiscard]] std::string to_string() const {
            return id ? id.peer_address().to_string() : std::string();
        }
    };
    [[nodiscard]] peer_of subject() const noexcept { return {*this}; }

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
        const detail::status result = make(
            "rdma_create_id", [raw]() noexcept { return raw; }, detail::keep(channel));
        if (!result.failed()) {
            block().phase = phase;
            block().connecting = phase == detail::id_phase::unknown;
        }
        return result;
    }

    [[nodiscard]] detail::status do_create_qp(detail::parent<ibv_pd> domain,
                                              const qp_init_attr& attr) noexcept {
        rdma_cm_id* raw = native_handle();
        if (const detail::status result = need_device("rdma_create_qp"); result.failed())
            return result;
        if (qp())
            return {"rdma_create_qp", EINVAL, "the id has a queue pair already"};
        if (attr.raw().send_cq == nullptr || attr.raw().recv_cq == nullptr)
            return {"rdma_create_qp", EINVAL, "empty CQ"};
        if (domain && domain.native_handle()->context != raw->verbs)
            return {"rdma_create_qp", EINVAL, "the PD belongs to another device than the id"};
        ibv_qp_init_attr copy = attr.raw(); // C writes what it granted into it
        ibv_pd* pd_before = raw->pd;
        detail::status result =
            detail::check_errno("rdma_create_qp", ::rdma_create_qp(raw, domain.native_handle(), &copy));
        if (result.failed()) {
            if (result.value == EINVAL && attr.raw().qp_type != raw->qp_type)
                result.cause = "the queue pair's type is not the id's port space's (tcp: rc, udp: ud)";
            return result;
        }
        detail::id_block& b = block();
        b.parents[detail::id_block::send_cq_pin] = attr.send_cq_;
        b.parents[detail::id_block::recv_cq_pin] = attr.recv_cq_;
        b.parents[detail::id_block::pd_pin] = domain.pin();
        b.pd_before = domain ? pd_before : nullptr;
        // Gets of other threads read id->qp under this lock: passing through it makes what C wrote visible to
        // them.
        const detail::mutex_guard publish(b.channel().lock);
        return {};
    }

    [[nodiscard]] detail::status do_destroy_qp() noexcept {
        if (!qp())
            return {"ibv_destroy_qp", EINVAL, "the id has no queue pair"};
        return detail::destroy_qp_of(block());
    }

    [[nodiscard]] detail::status do_connect(const conn_param& param) noexcept {
        if (const detail::status result = need_device("rdma_connect"); result.failed())
            return result;
        if (const detail::status result = detail::check_private_data(
                "rdma_connect", native_handle(), detail::cm_message::connect, param.private_data.size());
            result.failed())
            return result;
        rdma_conn_param c = detail::to_c(param);
        const detail::status result =
            detail::check_errno("rdma_connect", ::rdma_connect(native_handle(), &c));
        if (!result.failed())
            block().connecting = true;
        return result;
    }

    /// Both answers need a request that waits for one.
    [[nodiscard]] detail::status need_request(const char* call) noexcept {
        switch (block().phase) {
        case detail::id_phase::request:
        case detail::id_phase::unknown: return need_device(call);
        case detail::id_phase::made: return {call, EINVAL, "the id did not come with a connect_request"};
        case detail::id_phase::accepted: return {call, EINVAL, "the request was accepted already"};
        case detail::id_phase::spent: break;
        }
        return {call, EINVAL, "the request was rejected already, or an accept of it failed"};
    }

    [[nodiscard]] detail::status do_accept(const conn_param& param) noexcept {
        if (const detail::status result = need_request("rdma_accept"); result.failed())
            return result;
        if (!qp() && param.qp_num == 0)
            return {"rdma_accept", EINVAL, "no queue pair: create_qp comes before accept"};
        if (const detail::status result = detail::check_private_data(
                "rdma_accept", native_handle(), detail::cm_message::accept, param.private_data.size());
            result.failed())
            return result;
        rdma_conn_param c = detail::to_c(param);
        const detail::status result = detail::check_errno("rdma_accept", ::rdma_accept(native_handle(), &c));
        // librdmacm has rejected the peer when its accept fails.
        block().phase = result.failed() ? detail::id_phase::spent : detail::id_phase::accepted;
        block().connecting = !result.failed();
        return result;
    }

    [[nodiscard]] detail::status do_reject(std::span<const std::byte> data) noexcept {
        if (const detail::status result = need_request("rdma_reject"); result.failed())
            return result;
        if (const detail::status result = detail::check_private_data("rdma_reject", native_handle(),
                                                                     detail::cm_message::reject, data.size());
            result.failed())
            return result;
        const detail::status result =
            detail::check_errno("rdma_reject", ::rdma_reject(native_handle(), data.data(),
                                                             static_cast<std::uint8_t>(data.size())));
        if (!result.failed())
            block().phase = detail::id_phase::spent;
        return result;
    }

    [[nodiscard]] detail::status do_disconnect_once() noexcept {
        detail::id_block& b = block();
        if (b.disconnected)
            return {};
        // librdmacm would move the queue pair to the error state, and then say EINVAL.
        if (!b.connecting)
            return {"rdma_disconnect", EINVAL, "neither connect nor accept was called"};
        const detail::status result = do_disconnect();
        b.disconnected = !result.failed();
        return result;
    }
};

namespace detail {

/// The device of an id, found in the list that keeps every device of librdmacm open.
[[nodiscard]] inline borrowed_context keep_context(const rdma_cm_id* id) noexcept {
    borrowed_context found;
    if (id == nullptr || id->verbs == nullptr) {
        found.result = {"rdma_get_devices", EINVAL, "the id is not bound to a device yet"};
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
