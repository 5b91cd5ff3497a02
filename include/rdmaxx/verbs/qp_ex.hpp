// struct ibv_qp_ex, a queue pair with the extended work-request API: ibv_create_qp_ex(3), ibv_wr_post(3).
#ifndef RDMAXX_VERBS_QP_EX_HPP
#define RDMAXX_VERBS_QP_EX_HPP

#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/ah.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/mw.hpp>
#include <rdmaxx/verbs/qp.hpp>
#include <rdmaxx/verbs/wr.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <arpa/inet.h>

// rdma-core 24; FreeBSD has none of it.
#define RDMAXX_HAS_QP_EX RDMAXX_HAS_LINUX_VERBS

#if RDMAXX_HAS_QP_EX
namespace rdmaxx::inline v0 {

/// How far a flush goes (enum ibv_placement_type).
enum class flush_placement : std::uint8_t {
    global = 1,     ///< every party at the peer sees what was written
    persistent = 2, ///< it is in the peer's persistent memory
};

/// What a flush is about (enum ibv_selectivity_level).
enum class flush_selectivity : std::uint8_t {
    range = 0, ///< the bytes that it names
    mr = 1,    ///< the whole memory region
};

[[nodiscard]] constexpr const char* to_string(flush_selectivity selectivity) noexcept {
    switch (selectivity) {
    case flush_selectivity::range: return "range";
    case flush_selectivity::mr: return "mr";
    }
    return "unknown";
}

namespace detail {
template <>
inline constexpr bool is_flags<flush_placement> = true;

// At namespace scope: a member of the same name would hide the C function.
template <class Qp>
concept has_wr_atomic_write = requires(Qp* qp) {
    ibv_wr_atomic_write(qp, 0U, 0U, qp);
};
template <class Qp>
concept has_wr_flush = requires(Qp* qp) {
    ibv_wr_flush(qp, 0U, 0U, 0U, 0, 0);
};
template <has_wr_atomic_write Qp>
void c_wr_atomic_write(Qp* qp, const remote_buffer& to, const void* eight_bytes) noexcept {
    ibv_wr_atomic_write(qp, value(to.rkey), to.address, eight_bytes);
}
template <has_wr_flush Qp>
void c_wr_flush(Qp* qp, const remote_buffer& what, flush_placement placement, flush_selectivity selectivity) noexcept {
    ibv_wr_flush(qp, value(what.rkey), what.address, what.length, static_cast<std::uint8_t>(placement),
                 static_cast<std::uint8_t>(selectivity));
}

/// What libibverbs' calls take of a transport: anything that it does not carry is refused at compile time.
[[nodiscard]] constexpr send_ops ops_of(qp_type type) noexcept {
    constexpr send_ops messages = send_ops::send | send_ops::send_with_imm;
    constexpr send_ops writes = send_ops::rdma_write | send_ops::rdma_write_with_imm;
    constexpr send_ops windows = send_ops::send_with_inv | send_ops::local_inv | send_ops::bind_mw;
    switch (type) {
    case qp_type::rc:
    case qp_type::xrc_send:
        return messages | writes | windows | send_ops::rdma_read | send_ops::atomic_cmp_and_swp |
               send_ops::atomic_fetch_and_add | send_ops::flush | send_ops::atomic_write;
    case qp_type::uc: return messages | writes | windows;
    case qp_type::ud: return messages | send_ops::tso;
    case qp_type::raw_packet: return send_ops::send | send_ops::tso;
    case qp_type::driver: return ~send_ops::none;
    default: return send_ops::none;
    }
}

/// ibv_qp_ex begins with its ibv_qp: libibverbs gives out the same address for both.
[[nodiscard]] inline ibv_qp_ex* extended(ibv_qp* qp) noexcept {
    return reinterpret_cast<ibv_qp_ex*>(qp);
}

struct no_address {
    void set(ibv_qp_ex*) const noexcept {}
};
struct ud_address {
    ibv_ah* ah;
    std::uint32_t remote_qpn;
    std::uint32_t remote_qkey;
    void set(ibv_qp_ex* qp) const noexcept { ::ibv_wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey); }
};
struct xrc_address {
    std::uint32_t remote_srqn;
    void set(ibv_qp_ex* qp) const noexcept { ::ibv_wr_set_xrc_srqn(qp, remote_srqn); }
};

template <qp_type Type>
struct address_of_type {
    using type = no_address;
};
template <>
struct address_of_type<qp_type::ud> {
    using type = ud_address;
};
template <>
struct address_of_type<qp_type::xrc_send> {
    using type = xrc_address;
};

} // namespace detail

/// Bytes that are copied while the request is made: the memory may be reused at once and need not be registered. At
/// most the queue pair's granted max_inline_data. (struct ibv_data_buf, with its layout.)
struct inline_data : ibv_data_buf {
    explicit inline_data(std::span<const std::byte> from) noexcept : inline_data(from.data(), from.size()) {}
    inline_data(const void* at, std::size_t size) noexcept
        : ibv_data_buf{const_cast<void*>(at), size} {} // C does not write there
};
static_assert(sizeof(inline_data) == sizeof(ibv_data_buf) && std::is_standard_layout_v<inline_data>);

/// The same from several places, one after the other.
struct inline_data_list {
    explicit inline_data_list(std::span<const inline_data> from RDMAXX_LIFETIMEBOUND) noexcept : pieces(from) {}

    std::span<const inline_data> pieces;
};

namespace detail {

inline void set_data(ibv_qp_ex* qp, const sge& one) noexcept {
    ::ibv_wr_set_sge(qp, one.ibv_sge::lkey, one.addr, one.length);
}
inline void set_data(ibv_qp_ex* qp, std::span<const sge> sges) noexcept {
    ::ibv_wr_set_sge_list(qp, sges.size(), sges.data());
}
inline void set_data(ibv_qp_ex* qp, const inline_data& data) noexcept {
    ::ibv_wr_set_inline_data(qp, data.addr, data.length);
}
inline void set_data(ibv_qp_ex* qp, const inline_data_list& data) noexcept {
    ::ibv_wr_set_inline_data_list(qp, data.pieces.size(), data.pieces.data());
}

template <class Data>
concept inlined = std::same_as<Data, inline_data> || std::same_as<Data, inline_data_list>;

/// What a request sends or fetches: an sge, or several.
template <class Data>
concept registered_data = !inlined<Data> && requires(ibv_qp_ex * qp, const Data& data) {
    set_data(qp, data);
};
/// Or bytes that are copied, which only sends and writes can.
template <class Data>
concept message_data = inlined<Data> || registered_data<Data>;

} // namespace detail

template <send_ops Ops, qp_type Type>
class wr_batch;
namespace detail {
template <send_ops Ops, qp_type Type, class Base>
class qp_ex_ops;
}

/// The next request of a batch: first where it goes, its number and flags, then its operation with all that belongs
/// to it, which appends it. One statement, and not to be kept.
template <send_ops Ops, qp_type Type, class Address = detail::no_address>
class [[nodiscard]] batched_wr {
    static constexpr bool addressed = std::same_as<Address, typename detail::address_of_type<Type>::type>;

    [[nodiscard]] static constexpr bool has_op(send_ops op) noexcept { return has(Ops, op) && addressed; }
    /// What goes nowhere has no address.
    [[nodiscard]] static constexpr bool has_own_op(send_ops op) noexcept {
        return has(Ops, op) && std::same_as<Address, detail::no_address>;
    }

public:
    /// It gets a completion when it succeeds. (When it fails it gets one in any case.)
    batched_wr& signaled() noexcept { return flag(IBV_SEND_SIGNALED); }
    /// It starts only after the RDMA reads and atomics before it have completed.
    batched_wr& fenced() noexcept { return flag(IBV_SEND_FENCE); }
    /// The peer's receive raises an event even where only solicited ones were asked for.
    batched_wr& solicited() noexcept { return flag(IBV_SEND_SOLICITED); }
    /// The device fills in the checksums of IP, TCP and UDP.
    batched_wr& ip_csum() noexcept requires(Type == qp_type::ud || Type == qp_type::raw_packet) {
        return flag(IBV_SEND_IP_CSUM);
    }

    /// Where a datagram goes. The handle must stay until the request has completed.
    [[nodiscard]] batched_wr<Ops, Type, detail::ud_address> to(ah_ref destination, std::uint32_t remote_qpn,
                                                               std::uint32_t remote_qkey) const noexcept
        requires(Type == qp_type::ud) {
        return {qp_, wr_id_, flags_, {destination.native_handle(), remote_qpn, remote_qkey}};
    }
    /// Which of the peer's shared receive queues it is for. (local_inv and bind_mw are for nobody there.)
    [[nodiscard]] batched_wr<Ops, Type, detail::xrc_address> to_srq(std::uint32_t remote_srqn) const noexcept
        requires(Type == qp_type::xrc_send) {
        return {qp_, wr_id_, flags_, {remote_srqn}};
    }

    // The operations, as send_wr has them: see there. `data` is an sge, a span of them, or (of sends and writes) an
    // inline_data or inline_data_list. SGEs may go when the call returns; the memory that they name may not.

    template <detail::message_data Data>
    void send(const Data& data) const noexcept requires(has_op(send_ops::send)) {
        begin_with<Data>();
        ::ibv_wr_send(qp_);
        end(data);
    }
    template <detail::message_data Data>
    void send_with_imm(const Data& data, std::uint32_t imm) const noexcept requires(has_op(send_ops::send_with_imm)) {
        begin_with<Data>();
        ::ibv_wr_send_imm(qp_, htonl(imm));
        end(data);
    }
    template <detail::message_data Data>
    void send_with_inv(const Data& data, rkey remote) const noexcept requires(has_op(send_ops::send_with_inv)) {
        begin_with<Data>();
        ::ibv_wr_send_inv(qp_, value(remote));
        end(data);
    }
    /// The header is copied; it is at most the queue pair's max_tso_header.
    template <detail::registered_data Data>
    void tso(const Data& data, std::span<const std::byte> header, std::uint16_t mss) const noexcept
        requires(has_op(send_ops::tso)) {
        begin();
        ::ibv_wr_send_tso(qp_, const_cast<std::byte*>(header.data()), detail::tso_header_size(header), mss);
        end(data);
    }
    template <detail::message_data Data>
    void rdma_write(const Data& data, const remote_buffer& to) const noexcept requires(has_op(send_ops::rdma_write)) {
        begin_with<Data>();
        ::ibv_wr_rdma_write(qp_, value(to.rkey), to.address);
        end(data);
    }
    template <detail::message_data Data>
    void rdma_write_with_imm(const Data& data, const remote_buffer& to, std::uint32_t imm) const noexcept
        requires(has_op(send_ops::rdma_write_with_imm)) {
        begin_with<Data>();
        ::ibv_wr_rdma_write_imm(qp_, value(to.rkey), to.address, htonl(imm));
        end(data);
    }
    template <detail::registered_data Data>
    void rdma_read(const Data& data, const remote_buffer& from) const noexcept requires(has_op(send_ops::rdma_read)) {
        begin();
        ::ibv_wr_rdma_read(qp_, value(from.rkey), from.address);
        end(data);
    }
    void atomic_cmp_and_swp(const sge& result, const remote_buffer& at, std::uint64_t compare,
                            std::uint64_t swap) const noexcept requires(has_op(send_ops::atomic_cmp_and_swp)) {
        begin();
        ::ibv_wr_atomic_cmp_swp(qp_, value(at.rkey), at.address, compare, swap);
        end(result);
    }
    void atomic_fetch_and_add(const sge& result, const remote_buffer& at, std::uint64_t add) const noexcept
        requires(has_op(send_ops::atomic_fetch_and_add)) {
        begin();
        ::ibv_wr_atomic_fetch_add(qp_, value(at.rkey), at.address, add);
        end(result);
    }
    void local_inv(rkey key) const noexcept requires(has_own_op(send_ops::local_inv)) {
        begin();
        ::ibv_wr_local_inv(qp_, value(key));
    }
    void bind_mw(mw_ref window, rkey next, const mw_bind_info& to) const noexcept
        requires(has_own_op(send_ops::bind_mw)) {
        begin();
        ::ibv_wr_bind_mw(qp_, window.native_handle(), value(next), &to.raw());
    }

    /// Writes 8 bytes at the peer (aligned to 8) in one piece, so that no reader there sees a part of them. The bytes
    /// are copied. It takes one of max_rd_atomic, as a read does. rdma-core 44, and a device with
    /// device_cap_flags::atomic_write. Where only the driver has it (Soft-RoCE before Linux 6.2), the request completes
    /// with loc_qp_op_err.
    template <class Qp = ibv_qp_ex>
        requires(has_op(send_ops::atomic_write) && detail::has_wr_atomic_write<Qp>)
    void atomic_write(std::span<const std::byte, 8> data, const remote_buffer& to) const noexcept {
        begin();
        detail::c_wr_atomic_write<Qp>(qp_, to, data.data());
        address_.set(qp_);
    }
    /// Completes when what earlier writes of this queue pair brought to a range (or memory region) of the peer is where
    /// `placement` says. The peer's region and queue pair have access::flush_global or flush_persistent, all that is
    /// asked for: otherwise it completes with rem_access_err or rem_inv_req_err. Of flush_selectivity::mr only the rkey
    /// counts. rdma-core 45, and a device with device_cap_flags::flush_global or flush_persistent.
    template <class Qp = ibv_qp_ex>
        requires(has_op(send_ops::flush) && detail::has_wr_flush<Qp>)
    void flush(const remote_buffer& what, flush_placement placement,
               flush_selectivity selectivity = flush_selectivity::range) const noexcept {
        begin();
        detail::c_wr_flush<Qp>(qp_, what, placement, selectivity);
        address_.set(qp_);
    }

private:
    friend wr_batch<Ops, Type>;
    template <send_ops, qp_type, class>
    friend class batched_wr;

    batched_wr(ibv_qp_ex* qp, std::uint64_t wr_id, unsigned flags, Address address) noexcept
        : qp_(qp), wr_id_(wr_id), flags_(flags), address_(address) {}

    batched_wr& flag(unsigned value) noexcept {
        flags_ |= value;
        return *this;
    }
    void begin(unsigned more_flags = 0) const noexcept {
        qp_->wr_id = wr_id_;
        qp_->wr_flags = flags_ | more_flags;
    }
    /// The manual asks for no flag with inline data; Soft-RoCE's provider wants it.
    template <class Data>
    void begin_with() const noexcept {
        begin(detail::inlined<Data> ? IBV_SEND_INLINE : 0);
    }
    template <class Data>
    void end(const Data& data) const noexcept {
        address_.set(qp_);
        detail::set_data(qp_, data);
    }

    ibv_qp_ex* qp_;
    std::uint64_t wr_id_;
    unsigned flags_;
    [[no_unique_address]] Address address_;
};

/// Requests that are posted together, written straight into the send queue:
///
///     auto batch = qp.start();                                      // ibv_wr_start
///     batch.wr(1).rdma_write(mr.sge(), peer);
///     batch.wr(2).signaled().send(inline_data(&head, sizeof head));
///     batch.complete();                                             // all of them, or none
///
/// Dropped without complete() it is aborted: nothing was posted. Between start and end the queue pair may be locked:
/// the same thread ends it, and meanwhile neither posts to the queue pair otherwise nor waits for who does. Data path:
/// no system call of ours, no allocation.
template <send_ops Ops, qp_type Type>
class [[nodiscard]] wr_batch {
public:
    wr_batch(const wr_batch&) = delete;
    wr_batch& operator=(const wr_batch&) = delete;
    ~wr_batch() {
        if (qp_ != nullptr)
            ::ibv_wr_abort(qp_);
    }

    /// The next request, and the program's number for it. Not after complete() or abort().
    [[nodiscard]] batched_wr<Ops, Type> wr(std::uint64_t wr_id = 0) noexcept { return {qp_, wr_id, 0, {}}; }

    /// Posts all. An error is that of the first request that could not be made, or of the whole: none is posted then,
    /// the queue is as it was, and the next batch may start. The batch is over in any case.
    /// @throws error ENOMEM for a full queue (which is no broken one); EINVAL for too many SGEs, too much inline data,
    ///         a state in which the queue takes no requests, or a batch that is over. Providers differ: from Soft-RoCE
    ///         it is ENOSPC for the first three.
    /// C call: ibv_wr_complete(3).
    void complete() {
        if (const int error = try_complete()) [[unlikely]]
            detail::raise_number("ibv_wr_complete", error);
    }
    void complete(std::error_code& ec) noexcept { detail::assign(ec, {"ibv_wr_complete", try_complete()}); }
    /// The form for hot loops.
    /// @return 0 or an errno
    [[nodiscard]] int try_complete() noexcept {
        ibv_qp_ex* qp = std::exchange(qp_, nullptr);
        if (qp == nullptr) [[unlikely]]
            return EINVAL;
        return detail::error_number(::ibv_wr_complete(qp));
    }

    /// Posts nothing. C call: ibv_wr_abort(3).
    void abort() noexcept {
        if (ibv_qp_ex* qp = std::exchange(qp_, nullptr))
            ::ibv_wr_abort(qp);
    }

private:
    template <send_ops, qp_type, class>
    friend class detail::qp_ex_ops;

    explicit wr_batch(ibv_qp_ex* qp) noexcept : qp_(qp) { ::ibv_wr_start(qp); }

    ibv_qp_ex* qp_;
};

namespace detail {

/// The operations of qp_ex and qp_ex_ref.
template <send_ops Ops, qp_type Type, class Base>
class qp_ex_ops : public Base {
    static_assert(Ops == (Ops & ops_of(Type)), "this transport does not carry all of these operations");

public:
    using Base::Base;

    /// Starts a batch of requests. C call: ibv_wr_start(3).
    [[nodiscard]] wr_batch<Ops, Type> start() const noexcept { return wr_batch<Ops, Type>(native_handle_ex()); }

    /// The C object, as the extended calls take it.
    [[nodiscard]] ibv_qp_ex* native_handle_ex() const noexcept { return extended(this->native_handle()); }
};

} // namespace detail

template <send_ops Ops, qp_type Type = qp_type::rc>
class qp_ex;

/// A qp_ex that somebody else owns. It is a qp_ref wherever one is wanted.
template <send_ops Ops, qp_type Type = qp_type::rc>
class qp_ex_ref : public detail::qp_ex_ops<Ops, Type, detail::qp_ops<detail::ref<ibv_qp>>> {
    using base = detail::qp_ex_ops<Ops, Type, detail::qp_ops<detail::ref<ibv_qp>>>;

public:
    qp_ex_ref() noexcept = default;
    /// Nothing is pinned: the C object must outlive every use. It is of this type, and was made by ibv_create_qp_ex (or
    /// rdma_create_qp_ex) for these operations at least.
    explicit qp_ex_ref(ibv_qp_ex* raw) noexcept : base(raw == nullptr ? nullptr : &raw->qp_base) {}
    /// Of one that cm_id::create_qp_ex has made for these operations at least; empty where the provider has none of
    /// them.
    explicit qp_ex_ref(qp_ref made) noexcept : qp_ex_ref(made ? ::ibv_qp_to_qp_ex(made.native_handle()) : nullptr) {}
    /// Of an owner that stays.
    qp_ex_ref(const qp_ex<Ops, Type>& owner) noexcept // NOLINT(*-explicit-*): an owner is a ref and more
        : base(owner.native_handle()) {}
    qp_ex_ref(const qp_ex<Ops, Type>&&) = delete; // NOLINT(*-explicit-*): it would outlive its owner

    /// For what queue pairs of either kind do.
    operator qp_ref() const noexcept { return qp_ref(this->native_handle()); } // NOLINT(*-explicit-*): it is one
};

/// A queue pair with the extended work-request API, for the operations that it was made for:
///
///     using rdmaxx::send_ops;
///     const rdmaxx::qp_ex<send_ops::rdma_write | send_ops::send> qp(pd, qp_init_attr(cq, 64));
///
/// What its type or its operations do not allow does not compile. Whatever takes a queue pair takes one, as a qp_ref,
/// and ibv_post_send works as well.
/// C calls: ibv_create_qp_ex(3), ibv_qp_to_qp_ex(3), ibv_destroy_qp(3). Any number of threads may use one, each
/// with its own batch: a start waits for another thread's batch.
template <send_ops Ops, qp_type Type>
class qp_ex : public detail::qp_ex_ops<Ops, Type, detail::qp_owner> {
public:
    /// What it was made for.
    static constexpr send_ops ops = Ops;

    qp_ex() noexcept = default;

    /// In the reset state. System call.
    /// @param attr its type is not looked at: the queue pair is of this class's
    /// @throws error as qp's, and EOPNOTSUPP for operations that the device does not have
    qp_ex(detail::parent<ibv_pd> domain, const qp_init_attr& attr) : qp_ex(domain, qp_init_attr_ex(attr)) {}
    qp_ex(detail::parent<ibv_pd> domain, const qp_init_attr_ex& attr) { detail::check(make_it(domain, attr)); }
    [[nodiscard]] static qp_ex create(detail::parent<ibv_pd> domain, const qp_init_attr& attr,
                                      std::error_code& ec) noexcept {
        return create(domain, qp_init_attr_ex(attr), ec);
    }
    [[nodiscard]] static qp_ex create(detail::parent<ibv_pd> domain, const qp_init_attr_ex& attr,
                                      std::error_code& ec) noexcept {
        qp_ex result;
        detail::assign(ec, result.make_it(domain, attr));
        return result;
    }

    /// Takes over a queue pair of this type that ibv_create_qp_ex made for these operations at least; it will be
    /// destroyed by ibv_destroy_qp. Not for the queue pair of a cm_id.
    /// @param ec ENOMEM, and the queue pair is still the caller's
    [[nodiscard]] static qp_ex adopt(ibv_qp_ex* raw, detail::parent<ibv_pd> domain, detail::parent<ibv_cq> send,
                                     detail::parent<ibv_cq> recv, std::error_code& ec) noexcept {
        qp_ex result;
        ibv_qp* plain = raw != nullptr ? &raw->qp_base : nullptr;
        detail::assign(ec, result.take_over("ibv_create_qp_ex", plain, domain.pin(), send.pin(), recv.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status make_it(detail::parent<ibv_pd> domain, const qp_init_attr_ex& attr) noexcept {
        ibv_qp_init_attr_ex c = attr.raw();
        c.qp_type = static_cast<ibv_qp_type>(Type);
        c.send_ops_flags = detail::bits(Ops);
        c.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        // Providers that do not know the flag, and ignore it, make a queue pair without the functions.
        return this->init(domain, attr, c,
                          [](ibv_qp* made) noexcept { return ::ibv_qp_to_qp_ex(made) != nullptr ? 0 : EOPNOTSUPP; });
    }
};

} // namespace rdmaxx::inline v0
#endif

#endif
