// struct ibv_qp, a queue pair: ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3), ibv_post_send(3), ibv_post_recv(3).
#ifndef RDMAXX_VERBS_QP_HPP
#define RDMAXX_VERBS_QP_HPP

#include <rdmaxx/detail/async_blocks.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/post.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/cq.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/pd.hpp>
#include <rdmaxx/verbs/port.hpp>
#include <rdmaxx/verbs/srq.hpp>
#include <rdmaxx/verbs/wc.hpp>
#include <rdmaxx/verbs/wr.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rdmaxx::inline v0 {

/// enum ibv_qp_type.
enum class qp_type : int {
    none = 0,
    rc = IBV_QPT_RC, ///< reliable connected
    uc = IBV_QPT_UC, ///< unreliable connected
    ud = IBV_QPT_UD, ///< unreliable datagram
    raw_packet = IBV_QPT_RAW_PACKET,
    xrc_send = IBV_QPT_XRC_SEND,
    xrc_recv = IBV_QPT_XRC_RECV,
};

[[nodiscard]] constexpr const char* to_string(qp_type type) noexcept {
    switch (type) {
    case qp_type::none: return "none";
    case qp_type::rc: return "rc";
    case qp_type::uc: return "uc";
    case qp_type::ud: return "ud";
    case qp_type::raw_packet: return "raw_packet";
    case qp_type::xrc_send: return "xrc_send";
    case qp_type::xrc_recv: return "xrc_recv";
    }
    return "unknown";
}

/// enum ibv_qp_state.
enum class qp_state : int {
    reset = IBV_QPS_RESET,
    init = IBV_QPS_INIT, ///< receives may be posted
    rtr = IBV_QPS_RTR,   ///< ready to receive
    rts = IBV_QPS_RTS,   ///< ready to send
    sqd = IBV_QPS_SQD,
    sqe = IBV_QPS_SQE,
    err = IBV_QPS_ERR, ///< what is posted completes with wr_flush_err
    unknown = IBV_QPS_UNKNOWN,
};

[[nodiscard]] constexpr const char* to_string(qp_state state) noexcept {
    switch (state) {
    case qp_state::reset: return "reset";
    case qp_state::init: return "init";
    case qp_state::rtr: return "rtr";
    case qp_state::rts: return "rts";
    case qp_state::sqd: return "sqd";
    case qp_state::sqe: return "sqe";
    case qp_state::err: return "err";
    case qp_state::unknown: return "unknown";
    }
    return "unknown";
}

/// How a queue pair is made (struct ibv_qp_init_attr). It pins the CQs that were given as owners, and hands the pins to
/// the queue pair. May be used for any number of queue pairs: what a call grants is not written back into it.
class qp_init_attr {
public:
    /// One CQ for both queues, `depth` requests each, one SGE a request, RC.
    explicit qp_init_attr(detail::parent<ibv_cq> both, std::uint32_t depth = 16) noexcept
        : qp_init_attr(both, both, depth) {}

    /// A CQ for each queue.
    qp_init_attr(detail::parent<ibv_cq> send, detail::parent<ibv_cq> recv, std::uint32_t depth = 16) noexcept
        : send_cq_(send.pin()), recv_cq_(recv.pin()) {
        raw_.send_cq = send.native_handle();
        raw_.recv_cq = recv.native_handle();
        raw_.qp_type = IBV_QPT_RC;
        raw_.cap.max_send_wr = raw_.cap.max_recv_wr = depth;
        raw_.cap.max_send_sge = raw_.cap.max_recv_sge = 1;
    }

    /// RC unless set.
    qp_init_attr& type(qp_type value) noexcept { return set(raw_.qp_type, static_cast<ibv_qp_type>(value)); }
    /// Requests that may be outstanding, and pieces of memory in each: what is asked for. See qp::cap().
    qp_init_attr& max_send_wr(std::uint32_t value) noexcept { return set(raw_.cap.max_send_wr, value); }
    qp_init_attr& max_recv_wr(std::uint32_t value) noexcept { return set(raw_.cap.max_recv_wr, value); }
    qp_init_attr& max_send_sge(std::uint32_t value) noexcept { return set(raw_.cap.max_send_sge, value); }
    qp_init_attr& max_recv_sge(std::uint32_t value) noexcept { return set(raw_.cap.max_recv_sge, value); }
    /// Bytes that send_wr::inlined() may carry. No device tells its limit: EINVAL says that it is too much.
    qp_init_attr& max_inline_data(std::uint32_t value) noexcept { return set(raw_.cap.max_inline_data, value); }
    /// Every send request gets a completion, as if each were signaled().
    qp_init_attr& sq_sig_all(bool value = true) noexcept { return set(raw_.sq_sig_all, value ? 1 : 0); }
    /// A shared receive queue in place of the queue pair's own: an srq, which is kept, or an srq_ref, which must outlive
    /// the queue pair.
    qp_init_attr& srq(detail::parent<ibv_srq> value) noexcept {
        srq_ = value.pin();
        return set(raw_.srq, value.native_handle());
    }
    /// C's qp_context, for asynchronous events.
    qp_init_attr& qp_context(void* value) noexcept { return set(raw_.qp_context, value); }

    /// The C struct.
    [[nodiscard]] const ibv_qp_init_attr& raw() const noexcept { return raw_; }

private:
    friend class qp;
    friend class sync_id;
    template <class>
    friend class detail::id_owner;

    template <class Field, class Value>
    qp_init_attr& set(Field& field, Value value) noexcept {
        field = value;
        return *this;
    }

    ibv_qp_init_attr raw_{};
    detail::keep send_cq_;
    detail::keep recv_cq_;
    detail::keep srq_;
};

/// What to change of a queue pair (struct ibv_qp_attr): each setter also sets its bit in the mask.
///
///     qp.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::remote_write));
class qp_attr {
public:
    qp_attr() noexcept = default;
    /// @param mask enum ibv_qp_attr_mask bits of what is set in `raw`
    qp_attr(const ibv_qp_attr& raw, int mask) noexcept : raw_(raw), mask_(mask) {}
    /// A transition to `next`, with what the setters add.
    explicit qp_attr(qp_state next) noexcept { state(next); }

    /// The state to go to.
    qp_attr& state(qp_state value) noexcept {
        return set(raw_.qp_state, static_cast<ibv_qp_state>(value), IBV_QP_STATE);
    }
    /// What the peer may do.
    qp_attr& access_flags(access value) noexcept {
        return set(raw_.qp_access_flags, static_cast<decltype(raw_.qp_access_flags)>(detail::bits(value)),
                   IBV_QP_ACCESS_FLAGS);
    }
    /// Index in the port's table of partition keys: 0 on RoCE.
    qp_attr& pkey_index(std::uint16_t value) noexcept { return set(raw_.pkey_index, value, IBV_QP_PKEY_INDEX); }
    /// From 1.
    qp_attr& port_num(std::uint8_t value) noexcept { return set(raw_.port_num, value, IBV_QP_PORT); }
    /// Of a UD queue pair: what senders must know.
    qp_attr& qkey(std::uint32_t value) noexcept { return set(raw_.qkey, value, IBV_QP_QKEY); }
    /// The path to the peer: GID, index of this side's, port, hop limit.
    qp_attr& ah_attr(const ibv_ah_attr& value) noexcept { return set(raw_.ah_attr, value, IBV_QP_AV); }
    /// The largest packet; at most what both ports and all between take.
    qp_attr& path_mtu(mtu value) noexcept { return set(raw_.path_mtu, static_cast<ibv_mtu>(value), IBV_QP_PATH_MTU); }
    /// The peer's queue pair, 24 bits.
    qp_attr& dest_qp_num(std::uint32_t value) noexcept { return set(raw_.dest_qp_num, value, IBV_QP_DEST_QPN); }
    /// 24 bits.
    qp_attr& rq_psn(std::uint32_t value) noexcept { return set(raw_.rq_psn, value, IBV_QP_RQ_PSN); }
    /// 24 bits.
    qp_attr& sq_psn(std::uint32_t value) noexcept { return set(raw_.sq_psn, value, IBV_QP_SQ_PSN); }
    /// RDMA reads and atomics that this side may have under way.
    qp_attr& max_rd_atomic(std::uint8_t value) noexcept {
        return set(raw_.max_rd_atomic, value, IBV_QP_MAX_QP_RD_ATOMIC);
    }
    /// RDMA reads and atomics of the peer that this side serves at once.
    qp_attr& max_dest_rd_atomic(std::uint8_t value) noexcept {
        return set(raw_.max_dest_rd_atomic, value, IBV_QP_MAX_DEST_RD_ATOMIC);
    }
    /// 0 to 31, a code of the InfiniBand specification: 12 is 0.64 ms.
    qp_attr& min_rnr_timer(std::uint8_t value) noexcept { return set(raw_.min_rnr_timer, value, IBV_QP_MIN_RNR_TIMER); }
    /// 0 to 31: 4.096 us * 2^value for an answer; 0 is for ever.
    qp_attr& timeout(std::uint8_t value) noexcept { return set(raw_.timeout, value, IBV_QP_TIMEOUT); }
    /// 0 to 7.
    qp_attr& retry_cnt(std::uint8_t value) noexcept { return set(raw_.retry_cnt, value, IBV_QP_RETRY_CNT); }
    /// 0 to 7; 7 is for ever.
    qp_attr& rnr_retry(std::uint8_t value) noexcept { return set(raw_.rnr_retry, value, IBV_QP_RNR_RETRY); }

    /// The C struct.
    [[nodiscard]] const ibv_qp_attr& raw() const noexcept { return raw_; }
    /// enum ibv_qp_attr_mask bits of what was set.
    [[nodiscard]] int mask() const noexcept { return mask_; }

private:
    template <class Field, class Value>
    qp_attr& set(Field& field, const Value& value, int bit) noexcept {
        field = value;
        mask_ |= bit;
        return *this;
    }

    ibv_qp_attr raw_{};
    int mask_ = 0;
};

/// What ibv_query_qp tells.
struct qp_info {
    /// The attributes, and what the queue pair was made with.
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};

    /// The state that it was in.
    [[nodiscard]] qp_state state() const noexcept { return static_cast<qp_state>(attr.qp_state); }
    /// What was granted: at least what was asked for.
    [[nodiscard]] const ibv_qp_cap& cap() const noexcept { return init.cap; }
};

namespace detail {

struct qp_traits {
    using raw_type = ibv_qp;
    using ref_type = qp_ref;
    using block = detail::block<ibv_qp, 4>; // pd, send CQ, recv CQ, SRQ
    static status destroy(block& b) noexcept {
        return destroy_unheld(context_behind(b.parents[0].get()), b.raw, "ibv_destroy_qp",
                              [&b]() noexcept { return ::ibv_destroy_qp(b.raw); });
    }
};

/// The operations of qp and qp_ref.
template <class Handle>
class qp_ops : public recv_ops<Handle> {
public:
    using recv_ops<Handle>::recv_ops;

    /// Its number, 24 bits: what a peer needs to know, and what a wc names it by.
    [[nodiscard]] std::uint32_t qp_num() const noexcept { return this->native_handle()->qp_num; }
    /// What it was made as, and with. No system call.
    [[nodiscard]] qp_type type() const noexcept { return static_cast<qp_type>(this->native_handle()->qp_type); }
    [[nodiscard]] cq_ref send_cq() const noexcept { return cq_ref(this->native_handle()->send_cq); }
    [[nodiscard]] cq_ref recv_cq() const noexcept { return cq_ref(this->native_handle()->recv_cq); }
    /// Empty where the queue pair has a receive queue of its own.
    [[nodiscard]] srq_ref srq() const noexcept { return srq_ref(this->native_handle()->srq); }
    [[nodiscard]] pd_ref pd() const noexcept { return pd_ref(this->native_handle()->pd); }
    [[nodiscard]] context_ref context() const noexcept { return context_ref(this->native_handle()->context); }

    // ---- Data path: no system call of ours, no allocation, no lock. The request and what it refers to may
    // go when the call returns (the memory that its SGEs name may not, unless it is inlined). A full queue is ENOMEM,
    // and no broken one: poll and post again. Other errors: EINVAL for too many SGEs, too much inline data, or a state
    // in which the queue takes no requests.

    /// Posts a request, or a chain of them (ibv_send_wr::next). C call: ibv_post_send(3).
    /// @throws post_error with the index of the request that failed; those before it were posted
    void post_send(ibv_send_wr& first) const {
        ibv_send_wr* bad = nullptr;
        if (const int error = try_post_send(first, bad)) [[unlikely]]
            raise_post("ibv_post_send", error, index_in_chain(first, bad));
    }
    void post_send(ibv_send_wr&& first) const { post_send(first); }

    /// @return the index of the request that failed; 0 when none did
    std::size_t post_send(ibv_send_wr& first, std::error_code& ec) const noexcept {
        ibv_send_wr* bad = nullptr;
        const int error = try_post_send(first, bad); // a statement of its own: it sets bad
        return posted(first, error, bad, "ibv_post_send", ec);
    }
    std::size_t post_send(ibv_send_wr&& first, std::error_code& ec) const noexcept { return post_send(first, ec); }

    /// The form for hot loops: the cost of the C call.
    /// @return 0 or an errno
    [[nodiscard]] int try_post_send(ibv_send_wr& first) const noexcept {
        ibv_send_wr* bad = nullptr;
        return try_post_send(first, bad);
    }
    /// @param bad on failure, the request that failed
    [[nodiscard]] int try_post_send(ibv_send_wr& first, ibv_send_wr*& bad) const noexcept {
        const int result = ::ibv_post_send(this->native_handle(), &first, &bad);
        if (result == 0) [[likely]]
            return 0;
        return error_number(result);
    }

    /// Posts requests that lie in a row as one chain: sets their `next` fields. None: no effect.
    void post_send(std::span<send_wr> requests) const {
        if (!requests.empty())
            post_send(chain(requests));
    }
    std::size_t post_send(std::span<send_wr> requests, std::error_code& ec) const noexcept {
        if (!requests.empty())
            return post_send(chain(requests), ec);
        assign(ec, {});
        return 0;
    }

    /// Sends one piece of memory, signaled. The common case.
    void post_send(const sge& piece, std::uint64_t wr_id = 0) const {
        send_wr request = send_wr::send(piece).wr_id(wr_id).signaled();
        post_send(request);
    }
    /// Sends a whole memory region, signaled.
    void post_send(mr_ref region, std::uint64_t wr_id = 0) const { post_send(region.sge(), wr_id); }

    /// Binds a type 1 window to a piece of a memory region, or with mw_bind_info() to nothing; window.rkey() is another
    /// one afterwards. It is a request of the send queue: nothing that is posted later overtakes it. (A type 2 window is
    /// bound by send_wr::bind_mw.)
    /// @param signaled it gets a completion (wc_opcode::bind_mw)
    /// @throws error EINVAL for a region without access::mw_bind, EOPNOTSUPP, ENOMEM for a full queue
    /// C call: ibv_bind_mw(3).
    void bind_mw(mw_ref window, const mw_bind_info& to, std::uint64_t wr_id = 0, bool signaled = true) const {
        check({"ibv_bind_mw", try_bind_mw(window, to, wr_id, signaled)});
    }
    void bind_mw(mw_ref window, const mw_bind_info& to, std::uint64_t wr_id, bool signaled,
                 std::error_code& ec) const noexcept {
        assign(ec, {"ibv_bind_mw", try_bind_mw(window, to, wr_id, signaled)});
    }
    /// @return 0 or an errno
    [[nodiscard]] int try_bind_mw(mw_ref window, const mw_bind_info& to, std::uint64_t wr_id = 0,
                                  bool signaled = true) const noexcept {
        if (!window)
            return EINVAL;
        ibv_mw_bind bind{};
        bind.wr_id = wr_id;
        bind.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
        bind.bind_info = to.raw();
        const int result = ::ibv_bind_mw(this->native_handle(), window.native_handle(), &bind);
        if (result == 0) [[likely]]
            return 0;
        return error_number(result);
    }

    // ---- Control path: system calls.

    /// Changes attributes, the state among them. C call: ibv_modify_qp(3).
    /// @throws error EINVAL for a transition, or a set of attributes, that does not exist
    void modify(const qp_attr& attr) const { check(do_modify(attr.raw(), attr.mask())); }
    void modify(const qp_attr& attr, std::error_code& ec) const noexcept {
        assign(ec, do_modify(attr.raw(), attr.mask()));
    }
    /// @param mask enum ibv_qp_attr_mask bits
    void modify(const ibv_qp_attr& attr, int mask) const { check(do_modify(attr, mask)); }
    void modify(const ibv_qp_attr& attr, int mask, std::error_code& ec) const noexcept {
        assign(ec, do_modify(attr, mask));
    }

    /// Receives what is sent to a multicast group, too: a UD queue pair. Only that: the fabric must know of the member
    /// as well, on RoCE by the IP stack (IP_ADD_MEMBERSHIP). A group that an id joins (cm_id::join_multicast) needs
    /// neither. It must be detached before the queue pair is destroyed (EBUSY).
    /// @param lid the group's on InfiniBand, 0 on RoCE
    /// @throws error EINVAL for a GID that is no group's
    /// C call: ibv_attach_mcast(3).
    void attach_mcast(const gid& group, std::uint16_t lid = 0) const { check(do_attach(group, lid)); }
    void attach_mcast(const gid& group, std::uint16_t lid, std::error_code& ec) const noexcept {
        assign(ec, do_attach(group, lid));
    }
    /// C call: ibv_detach_mcast(3).
    void detach_mcast(const gid& group, std::uint16_t lid = 0) const { check(do_detach(group, lid)); }
    void detach_mcast(const gid& group, std::uint16_t lid, std::error_code& ec) const noexcept {
        assign(ec, do_detach(group, lid));
    }

    /// All attributes, and what was granted at creation. C call: ibv_query_qp(3).
    [[nodiscard]] qp_info query() const {
        qp_info info;
        check(do_query(info));
        return info;
    }
    [[nodiscard]] qp_info query(std::error_code& ec) const noexcept {
        qp_info info;
        assign(ec, do_query(info));
        return info;
    }

    /// The granted capabilities: queue depths, SGEs, inline data; at least what was asked for.
    [[nodiscard]] ibv_qp_cap cap() const { return query().cap(); }
    [[nodiscard]] ibv_qp_cap cap(std::error_code& ec) const noexcept { return query(ec).cap(); }

    /// Moves the queue pair to the error state and polls its CQs until everything that was posted has completed: then
    /// its buffers may go. Each completion is handed to `on_completion`, also those of other queue pairs that share the
    /// CQs; one thread at a time may poll them. The queue pair must not get new requests meanwhile.
    /// @param timeout any std::chrono::duration
    /// @throws error ETIMEDOUT, or of ibv_modify_qp, ibv_post_send, ibv_poll_cq
    template <class Handler, duration Duration>
    void drain(Duration timeout, Handler&& on_completion) const {
        check(do_drain(deadline::after(timeout), on_completion));
    }
    template <class Handler, duration Duration>
    void drain(Duration timeout, Handler&& on_completion, std::error_code& ec) const {
        assign(ec, do_drain(deadline::after(timeout), on_completion));
    }

private:
    [[nodiscard]] status do_modify(const ibv_qp_attr& attr, int mask) const noexcept {
        ibv_qp_attr copy = attr; // C takes it as non-const, and does not write
        return check_number("ibv_modify_qp", ::ibv_modify_qp(this->native_handle(), &copy, mask));
    }

    [[nodiscard]] status do_attach(const gid& group, std::uint16_t lid) const noexcept {
        return check_number("ibv_attach_mcast", ::ibv_attach_mcast(this->native_handle(), &group.raw(), lid));
    }
    [[nodiscard]] status do_detach(const gid& group, std::uint16_t lid) const noexcept {
        return check_number("ibv_detach_mcast", ::ibv_detach_mcast(this->native_handle(), &group.raw(), lid));
    }

    [[nodiscard]] status do_query(qp_info& info) const noexcept {
        constexpr int everything = (IBV_QP_DEST_QPN << 1) - 1;
        return check_number("ibv_query_qp", ::ibv_query_qp(this->native_handle(), &info.attr, everything, &info.init));
    }

    /// One marker on each queue: queues keep their order, so when it has completed all before it have.
    template <class Handler>
    [[nodiscard]] status do_drain(deadline until, Handler&& on_completion) const {
        if (const status result = do_modify(qp_attr(qp_state::err).raw(), IBV_QP_STATE); result.failed())
            return result;
        const char send_marker = 0;
        const char recv_marker = 0;
        send_wr send = send_wr::send(std::span<const sge>());
        send.signaled().wr_id(reinterpret_cast<std::uintptr_t>(&send_marker));
        recv_wr recv;
        recv.wr_id(reinterpret_cast<std::uintptr_t>(&recv_marker));
        bool send_posted = false;
        bool recv_posted = this->native_handle()->srq != nullptr;
        bool send_done = type() == qp_type::xrc_recv;
        bool recv_done = recv_posted || type() == qp_type::xrc_send;

        const auto handle = [&](const wc& completion) {
            if (completion.qp_num() == qp_num() && completion.wr_id() == static_cast<const ibv_send_wr&>(send).wr_id)
                send_done = true;
            else if (completion.qp_num() == qp_num() &&
                     completion.wr_id() == static_cast<const ibv_recv_wr&>(recv).wr_id)
                recv_done = true;
            else
                on_completion(completion);
        };
        for (;;) {
            // A full queue takes the marker when completions have been polled.
            if (!send_posted && !send_done) {
                const int error = try_post_send(send);
                send_posted = error == 0;
                if (error != 0 && error != ENOMEM)
                    return {"ibv_post_send", error};
            }
            if (!recv_posted && !recv_done) {
                const int error = this->try_post_recv(recv);
                recv_posted = error == 0;
                if (error != 0 && error != ENOMEM)
                    return {"ibv_post_recv", error};
                // Soft-RoCE does not look at receives that are posted in the error state (this one, and the program's,
                // which may fill the queue) until it is told again.
                if (const status again = do_modify(qp_attr(qp_state::err).raw(), IBV_QP_STATE); again.failed())
                    return again;
            }
            bool found = false;
            const cq_ref queues[] = {send_cq(), recv_cq()};
            for (const cq_ref& queue : queues) {
                if (!queue || (&queue != queues && queue == queues[0]))
                    continue;
                wc completions[16];
                std::error_code ec;
                const std::span<wc> filled = queue.poll(completions, ec);
                if (ec)
                    return {"ibv_poll_cq", ec.value(), "the CQ is broken (overrun, or a device failure)"};
                for (const wc& completion : filled)
                    handle(completion);
                found = found || !filled.empty();
            }
            if (send_done && recv_done)
                return {};
            if (!found) {
                if (until.left_ns() == 0)
                    return {"ibv_poll_cq", ETIMEDOUT, "not everything that was posted has completed"};
                ::usleep(50);
            }
        }
    }
};

} // namespace detail

/// A queue pair that somebody else owns: an id's (cm_id::qp), or a C program's.
class qp_ref : public detail::qp_ops<detail::ref<ibv_qp>> {
public:
    using qp_ops::qp_ops;
};

/// A queue pair made by ibv_create_qp(3), for programs that connect it by hand. It ends exactly when its owner ends,
/// and keeps its PD and its CQs. (A queue pair of a cm_id is the id's: cm_id::create_qp.)
///
/// Any number of threads may post to one queue pair and modify it; its owner must stay while they do.
class qp : public detail::qp_ops<detail::owner<detail::qp_traits>> {
public:
    qp() noexcept = default;

    /// In the reset state. System call.
    /// @param domain a pd, which is kept, or a pd_ref, which must outlive the queue pair
    /// @throws error EINVAL for more than the device has, ENOMEM, EPERM for a raw packet queue pair without privilege
    qp(detail::parent<ibv_pd> domain, const qp_init_attr& attr) { detail::check(init(domain, attr)); }
    [[nodiscard]] static qp create(detail::parent<ibv_pd> domain, const qp_init_attr& attr,
                                   std::error_code& ec) noexcept {
        qp result;
        detail::assign(ec, result.init(domain, attr));
        return result;
    }

    /// Takes over a queue pair that ibv_create_qp made; it will be destroyed by ibv_destroy_qp. Not for the queue pair
    /// of a cm_id.
    /// @param ec ENOMEM, and the queue pair is still the caller's
    [[nodiscard]] static qp adopt(ibv_qp* raw, detail::parent<ibv_pd> domain, detail::parent<ibv_cq> send,
                                  detail::parent<ibv_cq> recv, std::error_code& ec) noexcept {
        qp result;
        detail::assign(ec,
                       result.make(
                           "ibv_create_qp", [raw]() noexcept { return raw; }, domain.pin(), send.pin(), recv.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, const qp_init_attr& attr) noexcept {
        if (!domain)
            return {"ibv_create_qp", EINVAL, "empty PD"};
        ibv_qp_init_attr copy = attr.raw(); // C writes what it granted into it
        return make(
            "ibv_create_qp", [&]() noexcept { return ::ibv_create_qp(domain.native_handle(), &copy); }, domain.pin(),
            attr.send_cq_, attr.recv_cq_, attr.srq_);
    }
};

} // namespace rdmaxx::inline v0

#endif
