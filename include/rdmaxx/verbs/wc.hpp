// struct ibv_wc, a work completion: ibv_poll_cq(3).
#ifndef RDMAXX_VERBS_WC_HPP
#define RDMAXX_VERBS_WC_HPP

#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/error.hpp>
#include <rdmaxx/verbs/keys.hpp>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include <arpa/inet.h>

namespace rdmaxx::inline v0 {

/// enum ibv_wc_status.
enum class wc_status : int {
    success = IBV_WC_SUCCESS,
    loc_len_err = IBV_WC_LOC_LEN_ERR,     ///< a receive buffer too short for its message
    loc_qp_op_err = IBV_WC_LOC_QP_OP_ERR, ///< the queue pair could not carry the request out
    loc_eec_op_err = IBV_WC_LOC_EEC_OP_ERR,
    loc_prot_err = IBV_WC_LOC_PROT_ERR, ///< an SGE outside its memory region, or without local_write
    wr_flush_err = IBV_WC_WR_FLUSH_ERR, ///< the queue pair went to the error state first
    mw_bind_err = IBV_WC_MW_BIND_ERR,
    bad_resp_err = IBV_WC_BAD_RESP_ERR,
    loc_access_err = IBV_WC_LOC_ACCESS_ERR,
    rem_inv_req_err = IBV_WC_REM_INV_REQ_ERR, ///< the peer found the request invalid: its buffer was too short, ...
    rem_access_err = IBV_WC_REM_ACCESS_ERR,   ///< the rkey does not allow it, or the range is outside
    rem_op_err = IBV_WC_REM_OP_ERR,
    retry_exc_err = IBV_WC_RETRY_EXC_ERR,         ///< the peer did not answer: it, or the path to it, is gone
    rnr_retry_exc_err = IBV_WC_RNR_RETRY_EXC_ERR, ///< the peer had no receive posted
    loc_rdd_viol_err = IBV_WC_LOC_RDD_VIOL_ERR,
    rem_inv_rd_req_err = IBV_WC_REM_INV_RD_REQ_ERR,
    rem_abort_err = IBV_WC_REM_ABORT_ERR,
    inv_eecn_err = IBV_WC_INV_EECN_ERR,
    inv_eec_state_err = IBV_WC_INV_EEC_STATE_ERR,
    fatal_err = IBV_WC_FATAL_ERR,
    resp_timeout_err = IBV_WC_RESP_TIMEOUT_ERR,
    general_err = IBV_WC_GENERAL_ERR,
    tm_err = 22, ///< of an operation on tagged receives, whose list is no longer in step
    tm_rndv_incomplete = 23,
};

/// The enumerator's name; `unknown` for a value that this version does not know.
[[nodiscard]] constexpr const char* to_string(wc_status status) noexcept {
    switch (status) {
    case wc_status::success: return "success";
    case wc_status::loc_len_err: return "loc_len_err";
    case wc_status::loc_qp_op_err: return "loc_qp_op_err";
    case wc_status::loc_eec_op_err: return "loc_eec_op_err";
    case wc_status::loc_prot_err: return "loc_prot_err";
    case wc_status::wr_flush_err: return "wr_flush_err";
    case wc_status::mw_bind_err: return "mw_bind_err";
    case wc_status::bad_resp_err: return "bad_resp_err";
    case wc_status::loc_access_err: return "loc_access_err";
    case wc_status::rem_inv_req_err: return "rem_inv_req_err";
    case wc_status::rem_access_err: return "rem_access_err";
    case wc_status::rem_op_err: return "rem_op_err";
    case wc_status::retry_exc_err: return "retry_exc_err";
    case wc_status::rnr_retry_exc_err: return "rnr_retry_exc_err";
    case wc_status::loc_rdd_viol_err: return "loc_rdd_viol_err";
    case wc_status::rem_inv_rd_req_err: return "rem_inv_rd_req_err";
    case wc_status::rem_abort_err: return "rem_abort_err";
    case wc_status::inv_eecn_err: return "inv_eecn_err";
    case wc_status::inv_eec_state_err: return "inv_eec_state_err";
    case wc_status::fatal_err: return "fatal_err";
    case wc_status::resp_timeout_err: return "resp_timeout_err";
    case wc_status::general_err: return "general_err";
    case wc_status::tm_err: return "tm_err";
    case wc_status::tm_rndv_incomplete: return "tm_rndv_incomplete";
    }
    return "unknown";
}

/// enum ibv_wc_opcode.
enum class wc_opcode : int {
    send = IBV_WC_SEND,
    rdma_write = IBV_WC_RDMA_WRITE,
    rdma_read = IBV_WC_RDMA_READ,
    comp_swap = IBV_WC_COMP_SWAP,
    fetch_add = IBV_WC_FETCH_ADD,
    bind_mw = IBV_WC_BIND_MW,
    local_inv = IBV_WC_LOCAL_INV,
    tso = IBV_WC_TSO,
    flush = 8,        // rdma-core 45
    atomic_write = 9, // rdma-core 44
    recv = IBV_WC_RECV,
    recv_rdma_with_imm = IBV_WC_RECV_RDMA_WITH_IMM,
    tm_add = 130, ///< a tagged receive was added
    tm_del = 131,
    tm_sync = 132,
    tm_recv = 133,   ///< a message that matched a tag
    tm_no_tag = 134, ///< a message without one
    driver1 = 135,   ///< a provider's own, as the next ones
    driver2 = 136,
    driver3 = 137,
};

[[nodiscard]] constexpr const char* to_string(wc_opcode opcode) noexcept {
    switch (opcode) {
    case wc_opcode::send: return "send";
    case wc_opcode::rdma_write: return "rdma_write";
    case wc_opcode::rdma_read: return "rdma_read";
    case wc_opcode::comp_swap: return "comp_swap";
    case wc_opcode::fetch_add: return "fetch_add";
    case wc_opcode::bind_mw: return "bind_mw";
    case wc_opcode::local_inv: return "local_inv";
    case wc_opcode::tso: return "tso";
    case wc_opcode::flush: return "flush";
    case wc_opcode::atomic_write: return "atomic_write";
    case wc_opcode::recv: return "recv";
    case wc_opcode::recv_rdma_with_imm: return "recv_rdma_with_imm";
    case wc_opcode::tm_add: return "tm_add";
    case wc_opcode::tm_del: return "tm_del";
    case wc_opcode::tm_sync: return "tm_sync";
    case wc_opcode::tm_recv: return "tm_recv";
    case wc_opcode::tm_no_tag: return "tm_no_tag";
    case wc_opcode::driver1: return "driver1";
    case wc_opcode::driver2: return "driver2";
    case wc_opcode::driver3: return "driver3";
    }
    return "unknown";
}

/// enum ibv_wc_flags.
enum class wc_flags : unsigned {
    none = 0,
    grh = IBV_WC_GRH,           ///< a UD receive starts with 40 bytes of routing header
    with_imm = IBV_WC_WITH_IMM, ///< immediate data came with it
    ip_csum_ok = IBV_WC_IP_CSUM_OK,
    with_inv = IBV_WC_WITH_INV, ///< a remote invalidate came with it
    tm_sync_req = 1 << 4,       ///< tagged receives: the device waits for a tag_sync
    tm_match = 1 << 5,          ///< a tag matched
    tm_data_valid = 1 << 6,     ///< the data has arrived
};

namespace detail {
template <>
inline constexpr bool is_flags<wc_flags> = true;

/// A field of C's enum type as a number: a provider, or a newer library, may know values that the enum does not.
template <class Field>
[[nodiscard]] int number_of(const Field& field) noexcept {
    int number = 0;
    static_assert(sizeof number == sizeof field);
    std::memcpy(&number, &field, sizeof number);
    return number;
}

[[nodiscard]] constexpr bool is_recv(int opcode) noexcept {
    // The operations on tagged receives lie among the receives.
    return opcode == IBV_WC_RECV || opcode == IBV_WC_RECV_RDMA_WITH_IMM ||
           opcode == static_cast<int>(wc_opcode::tm_recv) || opcode == static_cast<int>(wc_opcode::tm_no_tag);
}
/// Sends and writes have no defined length.
[[nodiscard]] constexpr bool has_byte_len(int opcode) noexcept {
    return is_recv(opcode) || opcode == IBV_WC_RDMA_READ || opcode == IBV_WC_COMP_SWAP || opcode == IBV_WC_FETCH_ADD;
}
} // namespace detail

/// What became of one work request. A plain value with the layout of struct ibv_wc.
///
/// A completion that failed has a wr_id, a status, a queue pair number and a vendor error, and nothing else:
/// the C struct's other fields hold whatever was there. So the accessors of those are empty then.
struct wc : private ibv_wc {
    /// As in C: `wc done;` has no values yet, `wc done{};` has zeroes.
    wc() noexcept = default;
    /// A copy of the C struct.
    explicit wc(const ibv_wc& raw) noexcept : ibv_wc(raw) {}

    /// The program's number of the request.
    [[nodiscard]] std::uint64_t wr_id() const noexcept { return ibv_wc::wr_id; }
    [[nodiscard]] wc_status status() const noexcept {
        return static_cast<wc_status>(detail::number_of(ibv_wc::status));
    }
    [[nodiscard]] bool ok() const noexcept { return status() == wc_status::success; }
    [[nodiscard]] std::uint32_t qp_num() const noexcept { return ibv_wc::qp_num; }
    [[nodiscard]] std::uint32_t vendor_err() const noexcept { return ibv_wc::vendor_err; }

    /// Why it failed, in wc_category(); false when ok().
    [[nodiscard]] std::error_code code() const noexcept { return {static_cast<int>(status()), wc_category()}; }

    /// For programs to which a request that failed is an exception.
    /// @throws error with code() unless ok(); `ibv_poll_cq request 5 of queue pair 17: the peer had no receive posted`
    void check() const {
        detail::check({"ibv_poll_cq", static_cast<int>(status()), "", &wc_category()}, request{*this});
    }

    /// What the request was; empty for a completion that failed.
    [[nodiscard]] std::optional<wc_opcode> opcode() const noexcept {
        if (!ok())
            return std::nullopt;
        return static_cast<wc_opcode>(detail::number_of(ibv_wc::opcode));
    }

    /// True for a receive, with or without RDMA write; false for everything else and for one that failed.
    [[nodiscard]] bool is_recv() const noexcept { return ok() && detail::is_recv(detail::number_of(ibv_wc::opcode)); }

    /// Bytes received, read or fetched; empty for a completion that failed, and for sends and writes, where the C
    /// struct has no defined length.
    [[nodiscard]] std::optional<std::uint32_t> byte_len() const noexcept {
        if (!ok() || !detail::has_byte_len(detail::number_of(ibv_wc::opcode)))
            return std::nullopt;
        return ibv_wc::byte_len;
    }

    /// Immediate data in host byte order; empty where none came.
    [[nodiscard]] std::optional<std::uint32_t> imm_data() const noexcept {
        if (!is_recv() || !has(flags(), rdmaxx::wc_flags::with_imm))
            return std::nullopt;
        return ntohl(ibv_wc::imm_data);
    }

    /// The rkey that the peer's send_with_inv made invalid here; empty where it was another operation. (Soft-RoCE sets
    /// another bit, and it is empty there.)
    [[nodiscard]] std::optional<rkey> invalidated_rkey() const noexcept {
        if (!is_recv() || !has(flags(), rdmaxx::wc_flags::with_inv))
            return std::nullopt;
        return rkey{ibv_wc::invalidated_rkey};
    }

    /// Empty set for a completion that failed.
    [[nodiscard]] rdmaxx::wc_flags flags() const noexcept {
        return ok() ? static_cast<rdmaxx::wc_flags>(ibv_wc::wc_flags) : rdmaxx::wc_flags::none;
    }

    /// The queue pair number of a UD receive's sender; empty for a completion that failed.
    [[nodiscard]] std::optional<std::uint32_t> src_qp() const noexcept {
        if (!is_recv())
            return std::nullopt;
        return ibv_wc::src_qp;
    }

    /// InfiniBand's source LID, service level and destination path bits of a UD receive; empty for all but receives.
    [[nodiscard]] std::optional<std::uint16_t> slid() const noexcept { return of_recv(ibv_wc::slid); }
    [[nodiscard]] std::optional<std::uint8_t> sl() const noexcept { return of_recv(ibv_wc::sl); }
    [[nodiscard]] std::optional<std::uint8_t> dlid_path_bits() const noexcept {
        return of_recv(ibv_wc::dlid_path_bits);
    }

    /// The C struct, with every field as the device left it.
    [[nodiscard]] const ibv_wc& raw() const noexcept { return *this; }
    [[nodiscard]] ibv_wc& raw() noexcept { return *this; }

private:
    template <class Field>
    [[nodiscard]] std::optional<Field> of_recv(Field field) const noexcept {
        return is_recv() ? std::optional(field) : std::nullopt;
    }

    /// What an error is about.
    struct request {
        const wc& of;
        [[nodiscard]] std::string to_string() const {
            return "request " + std::to_string(of.wr_id()) + " of queue pair " + std::to_string(of.qp_num());
        }
    };
};
static_assert(sizeof(wc) == sizeof(ibv_wc) && std::is_standard_layout_v<wc> && std::is_trivially_copyable_v<wc>);

} // namespace rdmaxx::inline v0

#endif
