// What ids can do: the parts that cm_id, cm_id_ref and sync_id share.
#ifndef RDMAXX_DETAIL_ID_OPS_HPP
#define RDMAXX_DETAIL_ID_OPS_HPP

#include <rdmaxx/address.hpp>
#include <rdmaxx/cm/conn_param.hpp>
#include <rdmaxx/detail/cm_blocks.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/pd.hpp>
#include <rdmaxx/verbs/qp.hpp>
#include <rdmaxx/verbs/srq.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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

inline constexpr const char* unbound =
    "the id is not bound to a device yet (addr_resolved, or bind_addr to an address of it: not to all addresses)";

/// What every id can do, whoever owns it and whichever way its events arrive.
template <class Handle>
class id_info : public Handle {
public:
    using Handle::Handle;

    // ---- What it is. No system call. The id must not be empty, but for the addresses.

    /// The device, empty until the id is bound to one (bind_addr to an address of it, or addr_resolved).
    [[nodiscard]] context_ref verbs() const noexcept { return context_ref(this->native_handle()->verbs); }
    /// librdmacm's own PD of that device, or the one that create_qp was given; empty until the id is bound to a device.
    /// It goes with the last id of the device: for memory that outlives single connections make one of your own, from
    /// context(id).
    [[nodiscard]] pd_ref pd() const noexcept { return pd_ref(this->native_handle()->pd); }
    /// The id's queue pair, empty where there is none.
    [[nodiscard]] qp_ref qp() const noexcept { return qp_ref(qp_of(this->native_handle())); }
    /// The id's own shared receive queue, empty where there is none.
    [[nodiscard]] srq_ref srq() const noexcept { return srq_ref(this->native_handle()->srq); }
    /// The device's port, from 1; 0 until the id is bound to a device.
    [[nodiscard]] std::uint8_t port_num() const noexcept { return this->native_handle()->port_num; }
    [[nodiscard]] port_space ps() const noexcept { return static_cast<port_space>(this->native_handle()->ps); }

    /// This side's address and port, bound by the program or chosen by the kernel. Empty for an empty id. C call:
    /// rdma_get_local_addr(3).
    [[nodiscard]] address local_address() const noexcept {
        return *this ? address(::rdma_get_local_addr(this->native_handle())) : address();
    }
    /// The peer's address and port. Empty for an empty id. C call: rdma_get_peer_addr(3).
    [[nodiscard]] address peer_address() const noexcept {
        return *this ? address(::rdma_get_peer_addr(this->native_handle())) : address();
    }

    /// id->context, the program's own pointer. The id of a connect_request starts with its listener's.
    template <class T>
    [[nodiscard]] T* user_context() const noexcept {
        return static_cast<T*>(this->native_handle()->context);
    }
    void set_user_context(void* value) const noexcept { this->native_handle()->context = value; }

    // ---- Control path: system calls that wait for no event.

    /// Binds to an address of this machine; port 0 lets the kernel choose one when needed (see local_address).
    /// @throws error EADDRINUSE, EADDRNOTAVAIL, ENODEV where the address belongs to no RDMA device
    /// C call: rdma_bind_addr(3).
    void bind_addr(const address& local) const { check(do_bind_addr(local), local); }
    void bind_addr(const address& local, std::error_code& ec) const noexcept { assign(ec, do_bind_addr(local)); }

    /// Takes requests: each is a connect_request. An id that is not bound gets a port of the kernel's choice.
    /// @param backlog how many may wait unfetched, from 1; the kernel drops those above
    /// @throws error EADDRINUSE; EINVAL for a backlog below 1
    /// C call: rdma_listen(3).
    void listen(int backlog = 128) const { check(do_listen(backlog)); }
    void listen(int backlog, std::error_code& ec) const noexcept { assign(ec, do_listen(backlog)); }

    // ---- Options, before the address is resolved or bound, unless they say otherwise. C call:
    // rdma_set_option(3).

    /// Type of service: the DSCP and ECN byte of RoCE's packets, or what InfiniBand's service level is made from.
    void set_tos(std::uint8_t value) const { check(do_set_id_option(RDMA_OPTION_ID_TOS, &value, sizeof value)); }
    void set_tos(std::uint8_t value, std::error_code& ec) const noexcept {
        assign(ec, do_set_id_option(RDMA_OPTION_ID_TOS, &value, sizeof value));
    }

    /// Lets several ids bind to one address and port, each of which says so; one listens when it is alone there.
    void set_reuseaddr(bool value) const { check(do_set_flag(RDMA_OPTION_ID_REUSEADDR, value)); }
    void set_reuseaddr(bool value, std::error_code& ec) const noexcept {
        assign(ec, do_set_flag(RDMA_OPTION_ID_REUSEADDR, value));
    }

    /// Takes an IPv6 wildcard for IPv6 only, so that another id can have the port for IPv4.
    void set_afonly(bool value) const { check(do_set_flag(RDMA_OPTION_ID_AFONLY, value)); }
    void set_afonly(bool value, std::error_code& ec) const noexcept {
        assign(ec, do_set_flag(RDMA_OPTION_ID_AFONLY, value));
    }

    /// How long the queue pair waits for an acknowledgement: 4.096 us * 2^value.
    /// @param value 0 to 31; 0 is for ever
    /// @throws error EINVAL for a larger one; ENOSYS from a kernel without it
    void set_ack_timeout(std::uint8_t value) const { check(do_set_ack_timeout(value)); }
    void set_ack_timeout(std::uint8_t value, std::error_code& ec) const noexcept {
        assign(ec, do_set_ack_timeout(value));
    }

    /// InfiniBand path records of the program's own, in place of resolve_route: route_resolved follows.
    /// @param paths not empty
    void set_ib_path(std::span<const ibv_path_data> paths) const { check(do_set_ib_path(paths)); }
    void set_ib_path(std::span<const ibv_path_data> paths, std::error_code& ec) const noexcept {
        assign(ec, do_set_ib_path(paths));
    }

    /// Tells librdmacm of what an asynchronous event says about the queue pair of this id:
    /// IBV_EVENT_COMM_EST, when the peer's first message comes before its last one of the handshake. C call:
    /// rdma_notify(3).
    void notify(ibv_event_type event = IBV_EVENT_COMM_EST) const { check(do_notify(event)); }
    void notify(ibv_event_type event, std::error_code& ec) const noexcept { assign(ec, do_notify(event)); }

#if RDMAXX_HAS_ESTABLISH
    // ---- For a queue pair that is not the id's own (RDMAXX_HAS_ESTABLISH).

    /// What moves such a queue pair to `next` (init, rtr, rts): qp.modify(id.init_qp_attr(qp_state::rtr)).
    /// C call: rdma_init_qp_attr(3).
    [[nodiscard]] qp_attr init_qp_attr(qp_state next) const {
        qp_attr result;
        check(do_init_qp_attr(next, result));
        return result;
    }
    [[nodiscard]] qp_attr init_qp_attr(qp_state next, std::error_code& ec) const noexcept {
        qp_attr result;
        assign(ec, do_init_qp_attr(next, result));
        return result;
    }

    /// Ends the handshake on the connecting side, after connect_response, when the queue pair is ready to send.
    /// @throws error EINVAL where the id has a queue pair of its own
    /// C call: rdma_establish(3).
    void establish() const {
        check(check_errno_call("rdma_establish", ::rdma_establish, this->native_handle()));
    }
    void establish(std::error_code& ec) const noexcept {
        assign(ec, check_errno_call("rdma_establish", ::rdma_establish, this->native_handle()));
    }

    /// What the peer offered of enhanced connection establishment. Only for an id without a queue pair of its own: for
    /// one that has, librdmacm does this. C call: rdma_get_remote_ece(3).
    [[nodiscard]] ibv_ece get_remote_ece() const {
        ibv_ece ece{};
        check(check_errno_call("rdma_get_remote_ece", ::rdma_get_remote_ece, this->native_handle(), &ece));
        return ece;
    }
    [[nodiscard]] ibv_ece get_remote_ece(std::error_code& ec) const noexcept {
        ibv_ece ece{};
        assign(ec, check_errno_call("rdma_get_remote_ece", ::rdma_get_remote_ece, this->native_handle(), &ece));
        return ece;
    }

    /// What to offer, before connect or accept. C call: rdma_set_local_ece(3).
    void set_local_ece(const ibv_ece& ece) const {
        check(do_set_local_ece(ece));
    }
    void set_local_ece(const ibv_ece& ece, std::error_code& ec) const noexcept {
        assign(ec, do_set_local_ece(ece));
    }
#endif

#if RDMAXX_HAS_RESOLVE_ADDRINFO
    /// Puts an event of type user into the id's own channel, with a status and a number of the program's:
    /// wakes a thread that gets from it. C call: rdma_write_cm_event(3).
    void write_cm_event(int status = 0, std::uint64_t arg = 0) const {
        check(do_write_cm_event(status, arg));
    }
    void write_cm_event(int status, std::uint64_t arg, std::error_code& ec) const noexcept {
        assign(ec, do_write_cm_event(status, arg));
    }
#endif

protected:
    [[nodiscard]] status do_disconnect() const noexcept {
        return check_errno_call("rdma_disconnect", ::rdma_disconnect, this->native_handle());
    }

    /// librdmacm follows id->verbs without a look in what needs a device.
    [[nodiscard]] status need_device(const char* call) const noexcept {
        if (!*this)
            return {call, EINVAL, empty_handle};
        if (this->native_handle()->verbs != nullptr)
            return {};
        return {call, EINVAL, unbound};
    }

    [[nodiscard]] status do_resolve_addr(const address* local, const address& peer, int timeout_ms) const noexcept {
        if (!peer)
            return {"rdma_resolve_addr", EINVAL, "empty address"};
        auto* from = local != nullptr && *local ? const_cast<sockaddr*>(local->data()) : nullptr;
        auto* to = const_cast<sockaddr*>(peer.data());
        status result =
            check_errno_call("rdma_resolve_addr", ::rdma_resolve_addr, this->native_handle(), from, to, timeout_ms);
        if (result.value != EINVAL || !*this) // it is under way: the address is the thread's that gets the answer
            return result;
        const address own = from != nullptr ? *local : local_address();
        if (own && own.family() != peer.family())
            result.cause = "this side's address and the peer's are of two families";
        return result;
    }

    [[nodiscard]] status do_resolve_route(int timeout_ms) const noexcept {
        if (const status result = need_device("rdma_resolve_route"); result.failed())
            return result;
        return check_errno("rdma_resolve_route", ::rdma_resolve_route(this->native_handle(), timeout_ms));
    }

private:
    [[nodiscard]] status do_set_option(int level, int name, const void* value, std::size_t size) const noexcept {
        auto* c = const_cast<void*>(value); // C does not write
        return check_errno_call("rdma_set_option", ::rdma_set_option, this->native_handle(), level, name, c, size);
    }
    [[nodiscard]] status do_set_id_option(int name, const void* value, std::size_t size) const noexcept {
        return do_set_option(RDMA_OPTION_ID, name, value, size);
    }
    [[nodiscard]] status do_set_flag(int name, bool flag) const noexcept {
        const int value = flag ? 1 : 0;
        return do_set_id_option(name, &value, sizeof value);
    }
    [[nodiscard]] status do_set_ack_timeout(std::uint8_t value) const noexcept {
        constexpr int ack_timeout = 3; // RDMA_OPTION_ID_ACK_TIMEOUT, which FreeBSD's header lacks
        if (value > 31)
            return {"rdma_set_option", EINVAL, "an ACK timeout above 31"};
        return do_set_id_option(ack_timeout, &value, sizeof value);
    }
    [[nodiscard]] status do_set_ib_path(std::span<const ibv_path_data> paths) const noexcept {
        if (paths.empty())
            return {"rdma_set_option", EINVAL, "no path record"};
        return do_set_option(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, paths.data(), paths.size_bytes());
    }
    [[nodiscard]] status do_notify(ibv_event_type event) const noexcept {
        return check_errno_call("rdma_notify", ::rdma_notify, this->native_handle(), event);
    }
#if RDMAXX_HAS_ESTABLISH
    [[nodiscard]] status do_init_qp_attr(qp_state next, qp_attr& out) const noexcept {
        ibv_qp_attr attr{};
        int mask = 0;
        attr.qp_state = static_cast<ibv_qp_state>(next);
        const status result =
            check_errno_call("rdma_init_qp_attr", ::rdma_init_qp_attr, this->native_handle(), &attr, &mask);
        if (!result.failed())
            out = qp_attr(attr, mask);
        return result;
    }
    [[nodiscard]] status do_set_local_ece(const ibv_ece& ece) const noexcept {
        ibv_ece copy = ece; // C takes it as non-const
        return check_errno_call("rdma_set_local_ece", ::rdma_set_local_ece, this->native_handle(), &copy);
    }
#endif
#if RDMAXX_HAS_RESOLVE_ADDRINFO
    [[nodiscard]] status do_write_cm_event(int event_status, std::uint64_t arg) const noexcept {
        status result = check_errno_call("rdma_write_cm_event", ::rdma_write_cm_event, this->native_handle(),
                                         RDMA_CM_EVENT_USER, event_status, arg);
        if (result.value == EINVAL && *this)
            result.cause = "the kernel is too old to know it";
        return result;
    }
#endif

    [[nodiscard]] status do_bind_addr(const address& local) const noexcept {
        if (!local)
            return {"rdma_bind_addr", EINVAL, "empty address"};
        // C takes it as non-const, and does not write.
        auto* addr = const_cast<sockaddr*>(local.data());
        return check_errno_call("rdma_bind_addr", ::rdma_bind_addr, this->native_handle(), addr);
    }

    [[nodiscard]] status do_listen(int backlog) const noexcept {
        if (backlog < 1)
            return {"rdma_listen", EINVAL, "a backlog below 1"};
        return check_errno_call("rdma_listen", ::rdma_listen, this->native_handle(), backlog);
    }
};

/// What an owner can do: its id's queues, and the answers to a request.
template <class Traits>
class id_owner : public id_info<owner<Traits>> {
public:
    using id_info<owner<Traits>>::id_info;

    /// Makes the id's queue pair, on `domain` or on librdmacm's own PD (see pd()). Before connect and accept; post
    /// receives before those, too: the peer may send at once. The id keeps the CQs and the PD that are given as owners,
    /// until destroy_qp() or its end.
    /// @return the queue pair; its granted capabilities are cap()
    /// @throws error EINVAL before the id is bound to a device, with a PD of another device, where there is a queue
    ///         pair already, or for more than the device has; ENOMEM
    /// C call: rdma_create_qp(3).
    qp_ref create_qp(const qp_init_attr& attr) {
        check(do_create_qp({}, attr));
        return this->qp();
    }
    qp_ref create_qp(const qp_init_attr& attr, std::error_code& ec) noexcept {
        assign(ec, do_create_qp({}, attr));
        return ec ? qp_ref() : this->qp();
    }
    qp_ref create_qp(parent<ibv_pd> domain, const qp_init_attr& attr) {
        check(do_create_qp(domain, attr));
        return this->qp();
    }
    qp_ref create_qp(parent<ibv_pd> domain, const qp_init_attr& attr, std::error_code& ec) noexcept {
        assign(ec, do_create_qp(domain, attr));
        return ec ? qp_ref() : this->qp();
    }

    /// The same with the extended attributes of libibverbs. What they name is not kept: it must outlive the queue pair.
    /// CQs have to be named.
    /// C call: rdma_create_qp_ex(3).
    qp_ref create_qp_ex(const ibv_qp_init_attr_ex& attr) {
        check(do_create_qp_ex(attr));
        return this->qp();
    }
    qp_ref create_qp_ex(const ibv_qp_init_attr_ex& attr, std::error_code& ec) noexcept {
        assign(ec, do_create_qp_ex(attr));
        return ec ? qp_ref() : this->qp();
    }

    /// The same from rdmaxx's type, which pins what it names. A queue pair for batches has its operations set, and is
    /// `qp_ex_ref<...>(id.create_qp_ex(...))` afterwards.
    /// @param domain as create_qp's; empty: the id's own
    qp_ref create_qp_ex(parent<ibv_pd> domain, const qp_init_attr_ex& attr) {
        check(do_create_qp_ex(domain, attr));
        return this->qp();
    }
    qp_ref create_qp_ex(parent<ibv_pd> domain, const qp_init_attr_ex& attr, std::error_code& ec) noexcept {
        assign(ec, do_create_qp_ex(domain, attr));
        return ec ? qp_ref() : this->qp();
    }

    /// Ends the queue pair. Safe while another thread gets from the channel.
    /// @throws error EINVAL where there is none; EBUSY while a multicast group is attached
    /// C call: ibv_destroy_qp(3), which tells what rdma_destroy_qp(3) hides.
    void destroy_qp() { check(do_destroy_qp()); }
    void destroy_qp(std::error_code& ec) noexcept { assign(ec, do_destroy_qp()); }

    /// Makes the id's own shared receive queue, which the queue pair that is made next uses; it ends with the id. C
    /// call: rdma_create_srq(3).
    srq_ref create_srq(const srq_init_attr& attr = {}) {
        check(do_create_srq({}, attr));
        return this->srq();
    }
    srq_ref create_srq(parent<ibv_pd> domain, const srq_init_attr& attr) {
        check(do_create_srq(domain, attr));
        return this->srq();
    }
    srq_ref create_srq(parent<ibv_pd> domain, const srq_init_attr& attr, std::error_code& ec) noexcept {
        assign(ec, do_create_srq(domain, attr));
        return ec ? srq_ref() : this->srq();
    }

    /// The same with the extended attributes of libibverbs. What they name is not kept: it must outlive the queue.
    /// C call: rdma_create_srq_ex(3).
    srq_ref create_srq_ex(const ibv_srq_init_attr_ex& attr) {
        check(do_create_srq_ex(attr));
        return this->srq();
    }
    srq_ref create_srq_ex(const ibv_srq_init_attr_ex& attr, std::error_code& ec) noexcept {
        assign(ec, do_create_srq_ex(attr));
        return ec ? srq_ref() : this->srq();
    }

    /// Ends it. The queue pair that uses it must be gone.
    /// @throws error EINVAL where there is none; EBUSY
    /// C call: ibv_destroy_srq(3), which tells what rdma_destroy_srq(3) hides.
    void destroy_srq() { check(do_destroy_srq()); }
    void destroy_srq(std::error_code& ec) noexcept { assign(ec, do_destroy_srq()); }

    /// Answers a connect_request with no: the peer gets rejected, reason 28, with the private data. (So it does,
    /// without data, when the id is destroyed without an answer.)
    /// @throws error EINVAL for an id that did not come with a request or was answered, or for too much private data
    /// C call: rdma_reject(3).
    void reject(std::span<const std::byte> private_data = {}) {
        check(do_reject("rdma_reject", ::rdma_reject, private_data), subject());
    }
    void reject(std::span<const std::byte> private_data, std::error_code& ec) noexcept {
        assign(ec, do_reject("rdma_reject", ::rdma_reject, private_data));
    }

#if RDMAXX_HAS_ESTABLISH
    /// As reject(), with the reason that the peer's offer of enhanced connection establishment does not fit.
    /// C call: rdma_reject_ece(3).
    void reject_ece(std::span<const std::byte> private_data = {}) {
        check(do_reject("rdma_reject_ece", ::rdma_reject_ece, private_data), subject());
    }
    void reject_ece(std::span<const std::byte> private_data, std::error_code& ec) noexcept {
        assign(ec, do_reject("rdma_reject_ece", ::rdma_reject_ece, private_data));
    }
#endif

protected:
    [[nodiscard]] id_block& block() noexcept {
        return *passkey::block(*this);
    }

    /// What errors of a connection are about.
    struct peer_of {
        const id_owner& id;
        [[nodiscard]] std::string to_string() const { return id ? id.peer_address().to_string() : std::string(); }
    };
    [[nodiscard]] peer_of subject() const noexcept {
        return {*this};
    }

    [[nodiscard]] status do_create_qp(parent<ibv_pd> domain, const qp_init_attr& attr) noexcept {
        rdma_cm_id* raw = this->native_handle();
        if (const status result = this->need_device("rdma_create_qp"); result.failed())
            return result;
        if (this->qp())
            return {"rdma_create_qp", EINVAL, "the id has a queue pair already"};
        if (attr.raw().send_cq == nullptr || attr.raw().recv_cq == nullptr)
            return {"rdma_create_qp", EINVAL, "empty CQ"};
        if (attr.empty_srq_)
            return {"rdma_create_qp", EINVAL, "empty SRQ"};
        if (domain && domain.native_handle()->context != raw->verbs)
            return {"rdma_create_qp", EINVAL, "the PD belongs to another device than the id"};
        ibv_qp_init_attr copy = attr.raw(); // C writes what it granted into it
        ibv_pd* pd_before = raw->pd;
        status result = check_errno("rdma_create_qp", ::rdma_create_qp(raw, domain.native_handle(), &copy));
        if (result.failed()) {
            if (result.value == EINVAL && attr.raw().qp_type != raw->qp_type)
                result.cause = "the queue pair's type is not the id's port space's (tcp: rc, udp: ud)";
            return result;
        }
        id_block& b = block();
        b.parents[id_block::send_cq_pin] = attr.send_cq_;
        b.parents[id_block::recv_cq_pin] = attr.recv_cq_;
        b.parents[id_block::pd_pin] = domain.pin();
        b.parents[id_block::srq_pin] = attr.srq_;
        b.pd_before = domain ? pd_before : nullptr;
        publish_qp(b);
        return {};
    }

    [[nodiscard]] status do_create_qp_ex(const ibv_qp_init_attr_ex& attr) noexcept {
        const status result = make_qp_ex(attr);
        if (!result.failed())
            publish_qp(block());
        return result;
    }

    [[nodiscard]] status make_qp_ex(const ibv_qp_init_attr_ex& attr) noexcept {
        if (const status result = this->need_device("rdma_create_qp_ex"); result.failed())
            return result;
        if (this->qp())
            return {"rdma_create_qp_ex", EINVAL, "the id has a queue pair already"};
        if (attr.send_cq == nullptr || attr.recv_cq == nullptr)
            return {"rdma_create_qp_ex", EINVAL, "empty CQ"};
        ibv_qp_init_attr_ex copy = attr; // C writes what it granted into it
        ibv_pd* pd_before = this->native_handle()->pd;
        const status result = check_errno("rdma_create_qp_ex", ::rdma_create_qp_ex(this->native_handle(), &copy));
        if (result.failed())
            return result;
        block().pd_before = this->native_handle()->pd != pd_before ? pd_before : nullptr;
        return {};
    }

    [[nodiscard]] status do_create_qp_ex(parent<ibv_pd> domain, const qp_init_attr_ex& attr) noexcept {
        ibv_qp_init_attr_ex c = attr.raw();
        if (attr.basic_.empty_srq_)
            return {"rdma_create_qp_ex", EINVAL, "empty SRQ"};
        if (domain) {
            c.pd = domain.native_handle();
            c.comp_mask |= IBV_QP_INIT_ATTR_PD;
        }
        if (const status result = make_qp_ex(c); result.failed())
            return result;
        id_block& b = block();
        b.parents[id_block::send_cq_pin] = attr.basic_.send_cq_;
        b.parents[id_block::recv_cq_pin] = attr.basic_.recv_cq_;
        b.parents[id_block::pd_pin] = domain.pin();
        b.parents[id_block::srq_pin] = attr.basic_.srq_;
        publish_qp(b);
        return {};
    }

    [[nodiscard]] status do_create_srq_ex(const ibv_srq_init_attr_ex& attr) noexcept {
        if (const status result = this->need_device("rdma_create_srq_ex"); result.failed())
            return result;
        if (this->native_handle()->srq != nullptr)
            return {"rdma_create_srq_ex", EINVAL, "the id has a shared receive queue already"};
        ibv_srq_init_attr_ex copy = attr; // C completes it
        return check_errno("rdma_create_srq_ex", ::rdma_create_srq_ex(this->native_handle(), &copy));
    }

    [[nodiscard]] status do_destroy_qp() noexcept {
        if (!*this || !this->qp())
            return {"ibv_destroy_qp", EINVAL, !*this ? empty_handle : "the id has no queue pair"};
        return destroy_qp_of(block());
    }

    [[nodiscard]] status do_connect(const conn_param& param) noexcept {
        if (const status result = this->need_device("rdma_connect"); result.failed())
            return result;
        if (const status result = check_private_data("rdma_connect", this->native_handle(), cm_message::connect,
                                                     param.private_data.size());
            result.failed())
            return result;
        if (!this->qp() && param.qp_num == 0 && this->native_handle()->qp_type != IBV_QPT_UD)
            return {"rdma_connect", EINVAL, "no queue pair: create_qp comes before connect"};
        rdma_conn_param c = to_c(param);
        status result = check_errno("rdma_connect", ::rdma_connect(this->native_handle(), &c));
        if (!result.failed())
            block().connecting = true;
        else if (result.value == EINVAL && block().connecting && block().phase != id_phase::unknown)
            result.cause = "connect or accept was called already: an id is for one connection";
        return result;
    }

    /// Both answers need a request that waits for one.
    [[nodiscard]] status need_request(const char* call) noexcept {
        if (!*this)
            return {call, EINVAL, empty_handle};
        switch (block().phase) {
        case id_phase::request:
        case id_phase::unknown: return this->need_device(call);
        case id_phase::made: return {call, EINVAL, "the id did not come with a connect_request"};
        case id_phase::accepted: return {call, EINVAL, "the request was accepted already"};
        case id_phase::spent: break;
        }
        return {call, EINVAL, "the request was rejected already, or an accept of it failed"};
    }

    [[nodiscard]] status do_accept(const conn_param& param) noexcept {
        if (const status result = need_request("rdma_accept"); result.failed())
            return result;
        if (!this->qp() && param.qp_num == 0)
            return {"rdma_accept", EINVAL, "no queue pair: create_qp comes before accept"};
        if (const status result =
                check_private_data("rdma_accept", this->native_handle(), cm_message::accept, param.private_data.size());
            result.failed())
            return result;
        rdma_conn_param c = to_c(param);
        const status result = check_errno("rdma_accept", ::rdma_accept(this->native_handle(), &c));
        // librdmacm has rejected the peer when its accept fails.
        block().phase = result.failed() ? id_phase::spent : id_phase::accepted;
        block().connecting = !result.failed();
        return result;
    }

    template <class CCall>
    [[nodiscard]] status do_reject(const char* call, CCall c_call, std::span<const std::byte> data) noexcept {
        if (const status result = need_request(call); result.failed())
            return result;
        if (const status result = check_private_data(call, this->native_handle(), cm_message::reject, data.size());
            result.failed())
            return result;
        const status result =
            check_errno(call, c_call(this->native_handle(), data.data(), static_cast<std::uint8_t>(data.size())));
        if (!result.failed())
            block().phase = id_phase::spent;
        return result;
    }

    [[nodiscard]] status do_create_srq(parent<ibv_pd> domain, const srq_init_attr& attr) noexcept {
        rdma_cm_id* raw = this->native_handle();
        if (const status result = this->need_device("rdma_create_srq"); result.failed())
            return result;
        if (raw->srq != nullptr)
            return {"rdma_create_srq", EINVAL, "the id has a shared receive queue already"};
        if (domain && domain.native_handle()->context != raw->verbs)
            return {"rdma_create_srq", EINVAL, "the PD belongs to another device than the id"};
        ibv_srq_init_attr c{};
        c.srq_context = attr.srq_context;
        c.attr.max_wr = attr.max_wr;
        c.attr.max_sge = attr.max_sge;
        ibv_pd* pd = domain ? domain.native_handle() : raw->pd;
        const status result = check_errno("rdma_create_srq", ::rdma_create_srq(raw, pd, &c));
        if (result.failed())
            return result;
        block().parents[id_block::srq_pd_pin] = domain.pin();
        came(context_behind(domain.pin().get()), raw->srq);
        return {};
    }

    [[nodiscard]] status do_destroy_srq() noexcept {
        if (!*this || !this->srq())
            return {"ibv_destroy_srq", EINVAL, !*this ? empty_handle : "the id has no shared receive queue"};
        return destroy_srq_of(block());
    }

    [[nodiscard]] status do_disconnect_once() noexcept {
        if (!*this)
            return {"rdma_disconnect", EINVAL, empty_handle};
        id_block& b = block();
        if (b.disconnected)
            return {};
        // librdmacm would move the queue pair to the error state, and then say EINVAL.
        if (!b.connecting)
            return {"rdma_disconnect", EINVAL, "neither connect nor accept was called"};
        const status result = this->do_disconnect();
        b.disconnected = !result.failed();
        return result;
    }
};

} // namespace detail
} // namespace rdmaxx::inline v0

#endif
