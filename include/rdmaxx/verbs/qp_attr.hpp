// How a queue pair is made and changed: struct ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_attr.
#ifndef RDMAXX_VERBS_QP_ATTR_HPP
#define RDMAXX_VERBS_QP_ATTR_HPP

#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/fwd.hpp>
#include <rdmaxx/verbs/device_attr.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/port.hpp>

#include <cstdint>
#include <span>

namespace rdmaxx::inline v0 {

/// enum ibv_qp_type.
enum class qp_type : int {
    none = 0,
    rc = IBV_QPT_RC, ///< reliable connected
    uc = IBV_QPT_UC, ///< unreliable connected
    ud = IBV_QPT_UD, ///< unreliable datagram
    raw_packet = IBV_QPT_RAW_PACKET,
    xrc_send = IBV_QPT_XRC_SEND,
    xrc_recv = IBV_QPT_XRC_RECV, ///< the receiving end of extended reliable connections: for shared receive queues
    driver = 0xff,               ///< a provider's own
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
    case qp_type::driver: return "driver";
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

/// Where automatic migration to the alternate path is at (enum ibv_mig_state).
enum class mig_state : int {
    migrated = IBV_MIG_MIGRATED,
    rearm = IBV_MIG_REARM,
    armed = IBV_MIG_ARMED,
};

[[nodiscard]] constexpr const char* to_string(mig_state state) noexcept {
    switch (state) {
    case mig_state::migrated: return "migrated";
    case mig_state::rearm: return "rearm";
    case mig_state::armed: return "armed";
    }
    return "unknown";
}

/// Whether a set of queue pair types has one: ibv_rss_caps::supported_qpts and its kin of query_device_ex().
/// C call: ibv_is_qpt_supported(3).
[[nodiscard]] constexpr bool is_qpt_supported(std::uint32_t caps, qp_type type) noexcept {
    const int bit = static_cast<int>(type);
    return bit >= 0 && bit < 32 && (caps >> bit & 1) != 0; // driver is 255
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
    /// A shared receive queue in place of the queue pair's own: an srq, which is kept, or an srq_ref, which must
    /// outlive the queue pair.
    qp_init_attr& srq(detail::parent<ibv_srq> value) noexcept {
        srq_ = value.pin();
        empty_srq_ = !value;
        return set(raw_.srq, value.native_handle());
    }
    /// C's qp_context, for asynchronous events.
    qp_init_attr& qp_context(void* value) noexcept { return set(raw_.qp_context, value); }

    /// The C struct.
    [[nodiscard]] const ibv_qp_init_attr& raw() const noexcept { return raw_; }

private:
    friend class qp;
    friend class detail::qp_owner;
    friend class qp_init_attr_ex;
    friend class sync_id;
    template <class>
    friend class detail::id_owner;

    /// Null, or what libibverbs would look into without a check, and a shared receive queue that was wanted.
    /// @param hashed its receives go to a table of work queues
    [[nodiscard]] const char* lacking(bool hashed = false) const noexcept {
        const bool sends = raw_.qp_type != IBV_QPT_XRC_RECV && !(hashed && raw_.cap.max_send_wr == 0);
        const bool receives = raw_.qp_type != IBV_QPT_XRC_RECV && raw_.qp_type != IBV_QPT_XRC_SEND && !hashed;
        if ((sends && raw_.send_cq == nullptr) || (receives && raw_.recv_cq == nullptr))
            return "empty CQ";
        return empty_srq_ ? "empty SRQ" : nullptr;
    }

    template <class Field, class Value>
    qp_init_attr& set(Field& field, Value value) noexcept {
        field = value;
        return *this;
    }

    ibv_qp_init_attr raw_{};
    detail::keep send_cq_;
    detail::keep recv_cq_;
    detail::keep srq_;
    bool empty_srq_ = false;
};

/// enum ibv_qp_create_flags.
enum class qp_create_flags : std::uint32_t {
    none = 0,
    block_self_mcast_lb = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, ///< its own multicast sends do not come back to it
    scatter_fcs = IBV_QP_CREATE_SCATTER_FCS,
    cvlan_stripping = IBV_QP_CREATE_CVLAN_STRIPPING,
#if RDMAXX_HAS_LINUX_VERBS
    source_qpn = IBV_QP_CREATE_SOURCE_QPN,
    pci_write_end_padding = IBV_QP_CREATE_PCI_WRITE_END_PADDING,
#endif
};

namespace detail {
template <>
inline constexpr bool is_flags<qp_create_flags> = true;
}

#if RDMAXX_HAS_LINUX_VERBS
/// The operations that a qp_ex is made for (enum ibv_qp_create_send_ops_flags).
enum class send_ops : std::uint64_t {
    none = 0,
    rdma_write = IBV_QP_EX_WITH_RDMA_WRITE,
    rdma_write_with_imm = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    send = IBV_QP_EX_WITH_SEND,
    send_with_imm = IBV_QP_EX_WITH_SEND_WITH_IMM,
    rdma_read = IBV_QP_EX_WITH_RDMA_READ,
    atomic_cmp_and_swp = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
    atomic_fetch_and_add = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    local_inv = IBV_QP_EX_WITH_LOCAL_INV,
    bind_mw = IBV_QP_EX_WITH_BIND_MW,
    send_with_inv = IBV_QP_EX_WITH_SEND_WITH_INV,
    tso = IBV_QP_EX_WITH_TSO,
    flush = 1 << 11,        // rdma-core 45
    atomic_write = 1 << 12, // rdma-core 44
};

namespace detail {
template <>
inline constexpr bool is_flags<send_ops> = true;
}
#endif

/// How packets are spread over the work queues of a table: by a hash over some of their fields. It is a struct
/// ibv_rx_hash_conf, and refers to its key, which must stay until the queue pair is made.
struct rx_hash_conf : ibv_rx_hash_conf {
    /// @param key 40 bytes, as every device wants them: of no meaning, but the same key and packet give the same queue
    explicit rx_hash_conf(rx_hash_fields fields, std::span<const std::uint8_t, 40> key RDMAXX_LIFETIMEBOUND,
                          rdmaxx::rx_hash_function function = rdmaxx::rx_hash_function::toeplitz) noexcept
        : ibv_rx_hash_conf{} {
        ibv_rx_hash_conf::rx_hash_function = detail::bits(function);
        rx_hash_key_len = static_cast<std::uint8_t>(key.size());
        rx_hash_key = const_cast<std::uint8_t*>(key.data()); // C does not write there
        rx_hash_fields_mask = detail::bits(fields);
    }
};

/// How a queue pair is made, with what few of them need (struct ibv_qp_init_attr_ex). It pins what was given as an
/// owner, and hands the pins to the queue pair. May be used for any number of queue pairs.
///
///     const qp raw(pd, qp_init_attr_ex(qp_init_attr(cq).type(qp_type::raw_packet))
///                          .create_flags(qp_create_flags::scatter_fcs));
class qp_init_attr_ex {
public:
    /// What all queue pairs need.
    explicit qp_init_attr_ex(const qp_init_attr& attr) noexcept : basic_(attr) {
        const ibv_qp_init_attr& from = attr.raw();
        raw_.qp_context = from.qp_context;
        raw_.send_cq = from.send_cq;
        raw_.recv_cq = from.recv_cq;
        raw_.srq = from.srq;
        raw_.cap = from.cap;
        raw_.qp_type = from.qp_type;
        raw_.sq_sig_all = from.sq_sig_all;
    }

    /// The receiving end of extended reliable connections: it has neither CQ nor PD of its own, its messages go to the
    /// shared receive queues of the domain.
    /// @param domain an xrcd, which is kept, or a ref, which must outlive the queue pair
    [[nodiscard]] static qp_init_attr_ex xrc_recv(detail::parent<ibv_xrcd> domain) noexcept {
        qp_init_attr_ex result(qp_init_attr({}, {}, 0).type(qp_type::xrc_recv).max_send_sge(0).max_recv_sge(0));
        result.raw_.xrcd = domain.native_handle();
        result.xrcd_ = domain.pin();
        return result.with(IBV_QP_INIT_ATTR_XRCD);
    }

    /// Adds to the flags that were set before.
    qp_init_attr_ex& create_flags(qp_create_flags value) noexcept {
        raw_.create_flags |= detail::bits(value);
        return with(IBV_QP_INIT_ATTR_CREATE_FLAGS);
    }
    /// Bytes of the header that send_wr::tso and batched_wr::tso may have.
    qp_init_attr_ex& max_tso_header(std::uint16_t bytes) noexcept {
        raw_.max_tso_header = bytes;
        return with(IBV_QP_INIT_ATTR_MAX_TSO_HEADER);
    }
    /// Receives go to the work queues of a table, by a hash over the packet: an owner, which is kept, or a ref, which
    /// must outlive the queue pair. It then has no receive queue of its own, so what the attributes say of one is taken
    /// out: C refuses it. Devices may want no send queue either (mlx5): max_send_wr(0).
    qp_init_attr_ex& rx_hash(detail::parent<ibv_rwq_ind_table> table, const ibv_rx_hash_conf& hash) noexcept {
        raw_.recv_cq = nullptr;
        raw_.srq = nullptr;
        raw_.cap.max_recv_wr = raw_.cap.max_recv_sge = 0;
        if (raw_.cap.max_send_wr == 0) {
            raw_.send_cq = nullptr;
            raw_.cap.max_send_sge = 0;
        }
        raw_.rwq_ind_tbl = table.native_handle();
        raw_.rx_hash_conf = hash;
        table_ = table.pin();
        return with(IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH);
    }
#if RDMAXX_HAS_LINUX_VERBS
    /// The operations that a qp_ex_ref will have (cm_id::create_qp_ex). A qp_ex sets its own.
    qp_init_attr_ex& send_ops_flags(send_ops value) noexcept {
        raw_.send_ops_flags = detail::bits(value);
        return with(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    }
    /// The number that peers see as the sender's, where it is not the queue pair's own: for raw Ethernet's UD traffic.
    qp_init_attr_ex& source_qpn(std::uint32_t value) noexcept {
        raw_.source_qpn = value;
        return create_flags(qp_create_flags::source_qpn);
    }
#endif

    /// The C struct.
    [[nodiscard]] const ibv_qp_init_attr_ex& raw() const noexcept {
        return raw_;
    }

private:
    friend class detail::qp_owner;
    template <class>
    friend class detail::id_owner;

    qp_init_attr_ex& with(std::uint32_t mask) noexcept {
        raw_.comp_mask |= mask;
        return *this;
    }

    /// Null, or what libibverbs would look into without a check.
    [[nodiscard]] const char* lacking() const noexcept {
        if ((raw_.comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) != 0 && raw_.rwq_ind_tbl == nullptr)
            return "empty indirection table";
        if ((raw_.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && raw_.xrcd == nullptr)
            return "empty XRC domain";
        return basic_.lacking(raw_.rwq_ind_tbl != nullptr);
    }

    ibv_qp_init_attr_ex raw_{};
    qp_init_attr basic_; // its pins
    detail::keep xrcd_;
    detail::keep table_;
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
    qp_attr& port_num(std::uint32_t value) noexcept { return set(raw_.port_num, detail::c_port(value), IBV_QP_PORT); }
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

    // What few programs need.

    /// The state that the queue pair is believed to be in: EINVAL if it is not.
    qp_attr& cur_state(qp_state value) noexcept {
        return set(raw_.cur_qp_state, static_cast<ibv_qp_state>(value), IBV_QP_CUR_STATE);
    }
    /// With the state sqd: an asynchronous event (sq_drained) when the sends that were begun have completed.
    qp_attr& en_sqd_async_notify(bool value = true) noexcept {
        return set(raw_.en_sqd_async_notify, static_cast<std::uint8_t>(value), IBV_QP_EN_SQD_ASYNC_NOTIFY);
    }
    /// Another path to the peer, for automatic migration. On InfiniBand only: Linux answers EINVAL on RoCE.
    qp_attr& alt_path(const ibv_ah_attr& path, std::uint16_t pkey_index, std::uint32_t port_num,
                      std::uint8_t timeout) noexcept {
        raw_.alt_pkey_index = pkey_index;
        raw_.alt_port_num = detail::c_port(port_num);
        raw_.alt_timeout = timeout;
        return set(raw_.alt_ah_attr, path, IBV_QP_ALT_PATH);
    }
    /// Of automatic migration.
    qp_attr& path_mig_state(mig_state value) noexcept {
        return set(raw_.path_mig_state, static_cast<ibv_mig_state>(value), IBV_QP_PATH_MIG_STATE);
    }
    /// New sizes of the queues, where the device can.
    qp_attr& cap(const ibv_qp_cap& value) noexcept { return set(raw_.cap, value, IBV_QP_CAP); }
#if RDMAXX_HAS_LINUX_VERBS
    /// Of a raw packet queue pair, in kbit/s; 0 is none. See qp::modify_rate_limit for others.
    qp_attr& rate_limit(std::uint32_t value) noexcept {
        return set(raw_.rate_limit, value, IBV_QP_RATE_LIMIT);
    }
#endif

    /// The C struct.
    [[nodiscard]] const ibv_qp_attr& raw() const noexcept {
        return raw_;
    }
    /// enum ibv_qp_attr_mask bits of what was set.
    [[nodiscard]] int mask() const noexcept {
        return mask_;
    }

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

#if RDMAXX_HAS_LINUX_VERBS
/// How fast a queue pair may send (struct ibv_qp_rate_limit_attr).
struct qp_rate_limit {
    std::uint32_t kbps = 0;                 ///< kbit/s; 0 is no limit
    std::uint32_t max_burst_bytes = 0;      ///< 0: the device's choice
    std::uint16_t typical_packet_bytes = 0; ///< 0: the device's choice
};
#endif

/// How the bytes of a message arrive (enum ibv_query_qp_data_in_order_caps).
enum class data_in_order : unsigned {
    none = 0,
    whole_msg = 1,         ///< in the order of their addresses
    aligned_128_bytes = 2, ///< that within each aligned block of 128 bytes; rdma-core 49
};

namespace detail {
template <>
inline constexpr bool is_flags<data_in_order> = true;

// ibv_query_qp_data_in_order: rdma-core 36.
template <class Qp>
concept has_query_data_in_order = requires(Qp* qp, ibv_wr_opcode opcode) {
    ibv_query_qp_data_in_order(qp, opcode, 0U);
};

// Its flag 1, which asks for more than yes or no: rdma-core 46, and nothing older may be given it. Seen by a field that
// came with 49.
template <class PortAttr = ibv_port_attr>
inline constexpr std::uint32_t data_in_order_caps_flag = requires(PortAttr attr) {
    attr.active_speed_ex;
}
? 1 : 0;

// Its flag 2: rdma-core 60. Seen by a function that came with 62.
template <class Qp>
concept has_data_in_order_of_device = has_query_data_in_order<Qp> && requires(Qp* qp, std::uint64_t* speed) {
    ibv_query_port_speed(qp->context, 1U, speed);
};

} // namespace detail

/// What ibv_query_qp tells.
struct qp_info {
    /// The attributes, and what the queue pair was made with.
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};

    /// The state that it was in.
    [[nodiscard]] qp_state state() const noexcept { return static_cast<qp_state>(attr.qp_state); }
    [[nodiscard]] qp_type type() const noexcept { return static_cast<qp_type>(init.qp_type); }
    [[nodiscard]] mtu path_mtu() const noexcept { return static_cast<mtu>(attr.path_mtu); }
    [[nodiscard]] access access_flags() const noexcept { return static_cast<access>(attr.qp_access_flags); }
    [[nodiscard]] mig_state path_mig_state() const noexcept { return static_cast<mig_state>(attr.path_mig_state); }
    /// What was granted: at least what was asked for.
    [[nodiscard]] const ibv_qp_cap& cap() const noexcept { return init.cap; }
};

} // namespace rdmaxx::inline v0

#endif
