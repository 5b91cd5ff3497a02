// Work requests: struct ibv_send_wr and ibv_recv_wr, ibv_post_send(3), ibv_post_recv(3).
#ifndef RDMAXX_VERBS_WR_HPP
#define RDMAXX_VERBS_WR_HPP

#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/ah.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/mw.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <arpa/inet.h>

namespace rdmaxx::inline v0 {

/// enum ibv_wr_opcode.
enum class wr_opcode : int {
    rdma_write = IBV_WR_RDMA_WRITE,
    rdma_write_with_imm = IBV_WR_RDMA_WRITE_WITH_IMM,
    send = IBV_WR_SEND,
    send_with_imm = IBV_WR_SEND_WITH_IMM,
    rdma_read = IBV_WR_RDMA_READ,
    atomic_cmp_and_swp = IBV_WR_ATOMIC_CMP_AND_SWP,
    atomic_fetch_and_add = IBV_WR_ATOMIC_FETCH_AND_ADD,
    local_inv = IBV_WR_LOCAL_INV,
    bind_mw = IBV_WR_BIND_MW,
    send_with_inv = IBV_WR_SEND_WITH_INV,
    tso = IBV_WR_TSO,
    driver1 = 11,      // a provider's own
    flush = 14,        // rdma-core 45
    atomic_write = 15, // rdma-core 44
};

[[nodiscard]] constexpr const char* to_string(wr_opcode opcode) noexcept {
    switch (opcode) {
    case wr_opcode::rdma_write: return "rdma_write";
    case wr_opcode::rdma_write_with_imm: return "rdma_write_with_imm";
    case wr_opcode::send: return "send";
    case wr_opcode::send_with_imm: return "send_with_imm";
    case wr_opcode::rdma_read: return "rdma_read";
    case wr_opcode::atomic_cmp_and_swp: return "atomic_cmp_and_swp";
    case wr_opcode::atomic_fetch_and_add: return "atomic_fetch_and_add";
    case wr_opcode::local_inv: return "local_inv";
    case wr_opcode::bind_mw: return "bind_mw";
    case wr_opcode::send_with_inv: return "send_with_inv";
    case wr_opcode::tso: return "tso";
    case wr_opcode::driver1: return "driver1";
    case wr_opcode::flush: return "flush";
    case wr_opcode::atomic_write: return "atomic_write";
    }
    return "unknown";
}

/// A post that failed: which request of the chain, counted from 0. Those before it were posted.
class RDMAXX_EXPORT post_error : public error {
public:
    /// The exception for the request at `index`.
    post_error(std::error_code code, const char* call, std::size_t index)
        : error(code, call, "", index == 0 ? std::string() : "request " + std::to_string(index)), index_(index) {}

    /// Which request of the chain, from 0.
    [[nodiscard]] std::size_t index() const noexcept { return index_; }

private:
    std::size_t index_;
};

namespace detail {

/// Not cut to what is left of a length that 16 bits cannot say, but more than any device takes: EINVAL.
[[nodiscard]] inline std::uint16_t tso_header_size(std::span<const std::byte> header) noexcept {
    constexpr std::size_t most = std::numeric_limits<std::uint16_t>::max();
    return static_cast<std::uint16_t>(header.size() < most ? header.size() : most);
}

/// A row of SGEs, and one that only refers to them.
template <class Range>
concept sge_range = std::convertible_to<Range, std::span<const sge>>;
template <class Range>
concept sge_view = sge_range<Range> && std::ranges::enable_borrowed_range<std::remove_cvref_t<Range>>;

} // namespace detail

/// The pieces of memory of a request, to which it refers: an sge, or an array, vector, span ... of them, or none, `{}`.
class RDMAXX_POINTER sge_list {
public:
    /// None: a message without bytes.
    sge_list() noexcept = default;
    // NOLINTBEGIN(*-explicit-*, *-forwarding-reference-overload): a parameter type
    /// One.
    sge_list(const sge& one RDMAXX_LIFETIMEBOUND) noexcept : sges_(&one, 1) {}
    /// A row, of a container, an array ...
    template <detail::sge_range Range>
    sge_list(Range&& range RDMAXX_LIFETIMEBOUND) noexcept : sges_(std::forward<Range>(range)) {}
    /// ... or of a view, such as a span, which itself may go.
    template <detail::sge_view View>
    sge_list(View&& view) noexcept : sges_(std::forward<View>(view)) {}
    // NOLINTEND(*-explicit-*, *-forwarding-reference-overload)
    /// `count` of them.
    sge_list(const sge* first RDMAXX_LIFETIMEBOUND, std::size_t count) noexcept : sges_(first, count) {}

    /// The first of them, and how many.
    [[nodiscard]] const sge* data() const noexcept { return sges_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return sges_.size(); }

private:
    std::span<const sge> sges_;
};

/// A request for a send queue: one factory for each operation, so that a field which the operation lacks cannot be set.
/// It is a struct ibv_send_wr, and refers to its SGEs: they must live until it is posted, and no longer. The memory
/// that they name must stay until the request has completed. send_wr_n owns its SGEs.
///
///     qp.post_send(send_wr::rdma_write(mr.sge(), peer).wr_id(7).signaled());
///
/// A request is unsignaled unless it says otherwise (or its QP was made with sq_sig_all): it then completes without a
/// wc, and its place in the queue is free again only after a later, signaled request of the same queue was polled.
struct RDMAXX_POINTER send_wr : ibv_send_wr {
    send_wr() noexcept : ibv_send_wr{} {}

    /// Into the peer's next posted receive.
    [[nodiscard]] static send_wr send(sge_list sges RDMAXX_LIFETIMEBOUND) noexcept { return {IBV_WR_SEND, sges}; }

    /// Send, with 32 bits (in host byte order here) that the peer's completion carries.
    [[nodiscard]] static send_wr send_with_imm(sge_list sges RDMAXX_LIFETIMEBOUND, std::uint32_t imm) noexcept {
        return send_wr(IBV_WR_SEND_WITH_IMM, sges).with_imm(imm);
    }

    /// Into the peer's memory, without its program. The peer registered it with access::remote_write.
    [[nodiscard]] static send_wr rdma_write(sge_list sges RDMAXX_LIFETIMEBOUND, const remote_buffer& to) noexcept {
        return send_wr(IBV_WR_RDMA_WRITE, sges).with_remote(to);
    }

    /// RDMA write that also takes one of the peer's posted receives, whose completion carries 32 bits.
    [[nodiscard]] static send_wr rdma_write_with_imm(sge_list sges RDMAXX_LIFETIMEBOUND, const remote_buffer& to,
                                                     std::uint32_t imm) noexcept {
        return send_wr(IBV_WR_RDMA_WRITE_WITH_IMM, sges).with_remote(to).with_imm(imm);
    }

    /// From the peer's memory, without its program, into memory registered with access::local_write. The peer
    /// registered its with access::remote_read.
    [[nodiscard]] static send_wr rdma_read(sge_list sges RDMAXX_LIFETIMEBOUND, const remote_buffer& from) noexcept {
        return send_wr(IBV_WR_RDMA_READ, sges).with_remote(from);
    }

    /// Compares 8 bytes at the peer (aligned to 8) with `compare` and, if equal, replaces them by `swap`; what was
    /// there lands in `result`, 8 bytes. Integers are in each host's own byte order.
    [[nodiscard]] static send_wr atomic_cmp_and_swp(const sge& result RDMAXX_LIFETIMEBOUND, const remote_buffer& at,
                                                    std::uint64_t compare, std::uint64_t swap) noexcept {
        return send_wr(IBV_WR_ATOMIC_CMP_AND_SWP, result).with_atomic(at, compare, swap);
    }

    /// Adds to 8 bytes at the peer (aligned to 8); what was there lands in `result`, 8 bytes.
    [[nodiscard]] static send_wr atomic_fetch_and_add(const sge& result RDMAXX_LIFETIMEBOUND, const remote_buffer& at,
                                                      std::uint64_t add) noexcept {
        return send_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, result).with_atomic(at, add, 0);
    }

    /// Send that also invalidates, at the peer, a key of the peer's: a type 2 window's (wc::invalidated_rkey there).
    [[nodiscard]] static send_wr send_with_inv(sge_list sges RDMAXX_LIFETIMEBOUND, rkey of_peer) noexcept {
        send_wr request(IBV_WR_SEND_WITH_INV, sges);
        request.invalidate_rkey = value(of_peer);
        return request;
    }

    /// Invalidates a key of this side: no peer reaches anything by it any more.
    [[nodiscard]] static send_wr local_inv(rkey own) noexcept {
        send_wr request(IBV_WR_LOCAL_INV, {});
        request.invalidate_rkey = value(own);
        return request;
    }

    /// Binds a type 2 window, which then has the key `next`: inc_rkey() of the key that it had.
    [[nodiscard]] static send_wr bind_mw(mw_ref window, rkey next, const mw_bind_info& to) noexcept {
        send_wr request(IBV_WR_BIND_MW, {});
        request.ibv_send_wr::bind_mw.mw = window.native_handle();
        request.ibv_send_wr::bind_mw.rkey = value(next);
        request.ibv_send_wr::bind_mw.bind_info = to.raw();
        return request;
    }

    /// A message that the device cuts into packets of `mss` bytes, each with a copy of the header; for UD and raw
    /// packet queue pairs. The header is copied while posting.
    [[nodiscard]] static send_wr tso(sge_list sges RDMAXX_LIFETIMEBOUND,
                                     std::span<const std::byte> header RDMAXX_LIFETIMEBOUND,
                                     std::uint16_t mss) noexcept {
        send_wr request(IBV_WR_TSO, sges);
        request.ibv_send_wr::tso.hdr = const_cast<std::byte*>(header.data()); // C does not write there
        request.ibv_send_wr::tso.hdr_sz = detail::tso_header_size(header);
        request.ibv_send_wr::tso.mss = mss;
        return request;
    }

    /// Where a datagram goes; for a UD queue pair, in every send. The handle must stay until the request has completed.
    /// @param remote_qpn of a group, as all three: the multicast_join event's ud_param()
    /// @param remote_qkey that of the peer's queue pair: of an established event's ud_param(), or RDMA_UDP_QKEY for ids
    ///        of port_space::udp
    send_wr& to(ah_ref destination, std::uint32_t remote_qpn, std::uint32_t remote_qkey) noexcept RDMAXX_LIFETIMEBOUND {
        wr.ud.ah = destination.native_handle();
        wr.ud.remote_qpn = remote_qpn;
        wr.ud.remote_qkey = remote_qkey;
        return *this;
    }

    /// Which of the peer's shared receive queues it is for; for an XRC queue pair, in every send and write with
    /// immediate data.
    send_wr& to_srq(std::uint32_t remote_srqn) noexcept RDMAXX_LIFETIMEBOUND {
        qp_type.xrc.remote_srqn = remote_srqn;
        return *this;
    }

    /// The program's number for it, which its completion carries.
    send_wr& wr_id(std::uint64_t id) noexcept RDMAXX_LIFETIMEBOUND {
        ibv_send_wr::wr_id = id;
        return *this;
    }
    /// It gets a completion when it succeeds. (When it fails it gets one in any case.)
    send_wr& signaled() noexcept RDMAXX_LIFETIMEBOUND { return with_flag(IBV_SEND_SIGNALED); }
    /// It starts only after the RDMA reads and atomics before it have completed.
    send_wr& fenced() noexcept RDMAXX_LIFETIMEBOUND { return with_flag(IBV_SEND_FENCE); }
    /// The peer's receive raises an event even where only solicited ones were asked for.
    send_wr& solicited() noexcept RDMAXX_LIFETIMEBOUND { return with_flag(IBV_SEND_SOLICITED); }
    /// The device fills in the checksums of IP, TCP and UDP; for UD and raw packet queue pairs.
    send_wr& ip_csum() noexcept RDMAXX_LIFETIMEBOUND { return with_flag(IBV_SEND_IP_CSUM); }
    /// The bytes are copied while posting: the memory may be reused at once and need not be registered. At most the
    /// QP's granted max_inline_data, for sends and writes only.
    send_wr& inlined() noexcept RDMAXX_LIFETIMEBOUND { return with_flag(IBV_SEND_INLINE); }

    /// The SGEs it refers to.
    [[nodiscard]] std::span<const sge> sges() const noexcept {
        return {static_cast<const sge*>(sg_list), static_cast<std::size_t>(num_sge)};
    }

private:
    send_wr(ibv_wr_opcode operation, sge_list sges) noexcept : ibv_send_wr{} {
        opcode = operation;
        send_flags = 0; // as it is: clang's analyzer does not see what a base is initialized with
        sg_list = const_cast<sge*>(sges.data()); // C does not write there
        num_sge = static_cast<int>(sges.size());
    }

    send_wr& with_flag(unsigned flag) noexcept {
        send_flags |= static_cast<decltype(send_flags)>(flag);
        return *this;
    }
    send_wr& with_imm(std::uint32_t imm) noexcept {
        imm_data = htonl(imm);
        return *this;
    }
    send_wr& with_remote(const remote_buffer& at) noexcept {
        wr.rdma.remote_addr = at.address;
        wr.rdma.rkey = value(at.rkey);
        return *this;
    }
    send_wr& with_atomic(const remote_buffer& at, std::uint64_t compare_add, std::uint64_t swap) noexcept {
        wr.atomic.remote_addr = at.address;
        wr.atomic.rkey = value(at.rkey);
        wr.atomic.compare_add = compare_add;
        wr.atomic.swap = swap;
        return *this;
    }
};
static_assert(sizeof(send_wr) == sizeof(ibv_send_wr) && std::is_standard_layout_v<send_wr>);

/// A request for a receive queue: where the peer's next send lands. It refers to its SGEs until it is posted; the
/// memory that they name, registered with access::local_write, must stay until the request has completed.
struct RDMAXX_POINTER recv_wr : ibv_recv_wr {
    /// Without memory: for RDMA writes with immediate data, whose receive only carries the 32 bits.
    recv_wr() noexcept : ibv_recv_wr{} {}

    /// Into these pieces of memory, in this order.
    explicit recv_wr(sge_list sges RDMAXX_LIFETIMEBOUND) noexcept : ibv_recv_wr{} {
        sg_list = const_cast<sge*>(sges.data()); // C does not write there
        num_sge = static_cast<int>(sges.size());
    }

    /// The program's number for it, which its completion carries.
    recv_wr& wr_id(std::uint64_t id) noexcept RDMAXX_LIFETIMEBOUND {
        ibv_recv_wr::wr_id = id;
        return *this;
    }

    /// The SGEs it refers to.
    [[nodiscard]] std::span<const sge> sges() const noexcept {
        return {static_cast<const sge*>(sg_list), static_cast<std::size_t>(num_sge)};
    }
};
static_assert(sizeof(recv_wr) == sizeof(ibv_recv_wr) && std::is_standard_layout_v<recv_wr>);

namespace detail {

/// A request with room for N SGEs of its own, which follow it when it is copied.
template <class Request, std::size_t N>
class RDMAXX_OWNER owning_wr : public Request {
public:
    /// Copies the request and its SGEs.
    /// @throws error EINVAL if it has more than N
    explicit owning_wr(const Request& from) : Request(from) { check(init(from)); }
    [[nodiscard]] static owning_wr create(const Request& from, std::error_code& ec) noexcept {
        owning_wr result;
        assign(ec, result.init(from));
        return result;
    }
    owning_wr(const owning_wr& other) noexcept : Request(other) { take(other); }
    owning_wr& operator=(const owning_wr& other) noexcept {
        if (this != &other) {
            Request::operator=(other);
            take(other);
        }
        return *this;
    }
    ~owning_wr() = default;

private:
    owning_wr() noexcept = default;

    [[nodiscard]] status init(const Request& from) noexcept {
        if (from.sges().size() > N) {
            this->num_sge = 0;
            return {"ibv_send_wr", EINVAL, "more SGEs than this request has room for"};
        }
        Request::operator=(from);
        for (std::size_t i = 0; i < from.sges().size(); ++i)
            sges_[i] = from.sges()[i];
        this->sg_list = sges_;
        return {};
    }
    /// One that was told other SGEs, as the C struct that it is, goes on to refer to these.
    void take(const owning_wr& other) noexcept {
        for (std::size_t i = 0; i < N; ++i)
            sges_[i] = other.sges_[i];
        if (this->sg_list == other.sges_)
            this->sg_list = sges_;
    }

    sge sges_[N];
};

} // namespace detail

/// A send request that owns up to N SGEs and may be kept and copied: `send_wr_n<1> w(send_wr::send(mr.sge()));`
template <std::size_t N>
using send_wr_n = detail::owning_wr<send_wr, N>;

/// A receive request that owns up to N SGEs and may be kept and copied.
template <std::size_t N>
using recv_wr_n = detail::owning_wr<recv_wr, N>;

} // namespace rdmaxx::inline v0

#endif
