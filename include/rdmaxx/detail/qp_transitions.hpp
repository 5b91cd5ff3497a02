// The states of a queue pair: which attributes each transition needs and takes (ibv_modify_qp(3) has a part of this
// table; the kernel enforces all of it), and the text that says what a refused one lacks.
#ifndef RDMAXX_DETAIL_QP_TRANSITIONS_HPP
#define RDMAXX_DETAIL_QP_TRANSITIONS_HPP

#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/qp_attr.hpp>

#include <string>

namespace rdmaxx::inline v0::detail {

/// For the queue pair types whose bit is set. To reset every state may go, and to err every one but reset, without
/// other attributes. It is the kernel's table of all types, seen from user space: see UC in sqd.
struct qp_transition {
    ibv_qp_state from;
    ibv_qp_state to;
    unsigned types;
    int needed;
    int taken;
};

[[nodiscard]] constexpr unsigned type_bit(qp_type type) noexcept {
    const int value = static_cast<int>(type);
    return value >= 0 && value < 32 ? 1U << static_cast<unsigned>(value) : 0U;
}

inline constexpr unsigned t_rc = type_bit(qp_type::rc);
inline constexpr unsigned t_uc = type_bit(qp_type::uc);
inline constexpr unsigned t_ud = type_bit(qp_type::ud);
inline constexpr unsigned t_raw = type_bit(qp_type::raw_packet);
inline constexpr unsigned t_xs = type_bit(qp_type::xrc_send);
inline constexpr unsigned t_xr = type_bit(qp_type::xrc_recv);
inline constexpr unsigned t_connected = t_rc | t_uc | t_xs | t_xr;

inline constexpr int a_address = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
inline constexpr int a_path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
inline constexpr int a_responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
inline constexpr int a_requester = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
inline constexpr int a_running = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
inline constexpr int a_rerouted = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
inline constexpr int a_moved = IBV_QP_AV | a_rerouted | IBV_QP_PATH_MIG_STATE;
inline constexpr int a_datagram = IBV_QP_CUR_STATE | IBV_QP_QKEY;
inline constexpr int a_rate = 1 << 25; // IBV_QP_RATE_LIMIT

inline constexpr qp_transition qp_transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, t_connected, a_address | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_RESET, IBV_QPS_INIT, t_ud, a_address | IBV_QP_QKEY, 0},
    {IBV_QPS_RESET, IBV_QPS_INIT, t_raw, IBV_QP_PORT, 0},

    {IBV_QPS_INIT, IBV_QPS_INIT, t_connected, 0, a_address | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_INIT, t_ud, 0, a_address | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_INIT, t_raw, 0, 0},

    {IBV_QPS_INIT, IBV_QPS_RTR, t_rc | t_xr, a_path | a_responder, a_rerouted},
    {IBV_QPS_INIT, IBV_QPS_RTR, t_uc | t_xs, a_path, a_rerouted},
    {IBV_QPS_INIT, IBV_QPS_RTR, t_ud, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, t_raw, 0, 0},

    {IBV_QPS_RTR, IBV_QPS_RTS, t_rc, a_requester | IBV_QP_SQ_PSN, a_running | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTR, IBV_QPS_RTS, t_xs, a_requester | IBV_QP_SQ_PSN, a_running},
    {IBV_QPS_RTR, IBV_QPS_RTS, t_xr, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, a_running | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTR, IBV_QPS_RTS, t_uc, IBV_QP_SQ_PSN, a_running},
    {IBV_QPS_RTR, IBV_QPS_RTS, t_ud, IBV_QP_SQ_PSN, a_datagram},
    {IBV_QPS_RTR, IBV_QPS_RTS, t_raw, 0, a_rate},

    {IBV_QPS_RTS, IBV_QPS_RTS, t_rc | t_xr, 0, a_running | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, t_uc | t_xs, 0, a_running},
    {IBV_QPS_RTS, IBV_QPS_RTS, t_ud, 0, a_datagram},
    {IBV_QPS_RTS, IBV_QPS_RTS, t_raw, 0, a_rate},
    {IBV_QPS_RTS, IBV_QPS_SQD, t_connected | t_ud, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_RTS, IBV_QPS_SQD, t_raw, 0, 0},

    {IBV_QPS_SQD, IBV_QPS_RTS, t_rc | t_xr, 0, a_running | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_RTS, t_uc | t_xs, 0, a_running},
    {IBV_QPS_SQD, IBV_QPS_RTS, t_ud, 0, a_datagram},
    {IBV_QPS_SQD, IBV_QPS_RTS, t_raw, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_SQD, t_rc, 0, a_moved | IBV_QP_PORT | a_requester | a_responder},
    {IBV_QPS_SQD, IBV_QPS_SQD, t_xs, 0, a_moved | IBV_QP_PORT | a_requester},
    {IBV_QPS_SQD, IBV_QPS_SQD, t_xr, 0, a_moved | IBV_QP_PORT | IBV_QP_TIMEOUT | a_responder},
    // The kernel's table has ah_attr as well, but adds port_num to it in calls from user space, which it has not.
    {IBV_QPS_SQD, IBV_QPS_SQD, t_uc, 0, a_rerouted | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_SQD, IBV_QPS_SQD, t_ud, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_SQD, IBV_QPS_SQD, t_raw, 0, 0},

    {IBV_QPS_SQE, IBV_QPS_RTS, t_uc, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_SQE, IBV_QPS_RTS, t_ud, 0, a_datagram},
    {IBV_QPS_SQE, IBV_QPS_RTS, t_rc | t_xs | t_xr | t_raw, 0, 0},
};

/// The setters of qp_attr, by their bits.
[[nodiscard]] RDMAXX_COLD inline std::string attribute_names(int mask) {
    static constexpr const char* names[] = {
        "state",          "cur_state",     "en_sqd_async_notify",
        "access_flags",   "pkey_index",    "port_num",
        "qkey",           "ah_attr",       "path_mtu",
        "timeout",        "retry_cnt",     "rnr_retry",
        "rq_psn",         "max_rd_atomic", "alt_path",
        "min_rnr_timer",  "sq_psn",        "max_dest_rd_atomic",
        "path_mig_state", "cap",           "dest_qp_num",
        "smac",           "alt_smac",      "vid",
        "alt_vid",        "rate_limit",
    };
    std::string text;
    for (unsigned bit = 0; bit < 31; ++bit) {
        if ((mask >> bit & 1) == 0)
            continue;
        if (!text.empty())
            text += ", ";
        text += bit < sizeof names / sizeof *names ? names[bit] : "unknown attribute " + std::to_string(bit);
    }
    return text;
}

/// What the table has against a change; "rc, init to rtr" alone where it has nothing.
[[nodiscard]] RDMAXX_COLD inline std::string explain_modify(qp_type type, qp_state from, const ibv_qp_attr& attr,
                                                            int mask) {
    const qp_state to = (mask & IBV_QP_STATE) != 0 ? static_cast<qp_state>(attr.qp_state) : from;
    std::string text = std::string(to_string(type)) + ", " + to_string(from) + " to " + to_string(to);
    if ((mask & IBV_QP_CUR_STATE) != 0 && static_cast<qp_state>(attr.cur_qp_state) != from)
        return text + ": cur_state is " + to_string(static_cast<qp_state>(attr.cur_qp_state));
    // A state that is the present one need not be named, and cur_state says nothing more: neither is in the table.
    int needed = 0;
    int taken = 0;
    bool found = to == qp_state::reset || (to == qp_state::err && from != qp_state::reset);
    bool type_known = found;
    std::string reachable;
    for (const qp_transition& t : qp_transitions) {
        if ((t.types & type_bit(type)) == 0)
            continue;
        type_known = true;
        if (static_cast<qp_state>(t.from) != from)
            continue;
        reachable.append(to_string(static_cast<qp_state>(t.to))).append(", ");
        if (static_cast<qp_state>(t.to) != to)
            continue;
        found = true;
        needed = t.needed;
        taken = t.taken;
    }
    if (!type_known)
        return text;
    if (!found)
        return text + ": there is no such transition, " + to_string(from) + " goes to " + reachable +
               (from == qp_state::reset ? "reset" : "reset, err");
    const int missing = needed & ~mask;
    const int unneeded = mask & ~(needed | taken | IBV_QP_STATE);
    if (missing != 0)
        text += ": missing " + attribute_names(missing);
    if (unneeded != 0)
        text += std::string(missing != 0 ? "; " : ": ") + "not taken " + attribute_names(unneeded);
    return text;
}

} // namespace rdmaxx::inline v0::detail

#endif
