// struct ibv_qp, a queue pair: ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3), ibv_post_send(3), ibv_post_recv(3).
#ifndef RDMAXX_VERBS_QP_HPP
#define RDMAXX_VERBS_QP_HPP

#include <rdmaxx/detail/async_blocks.hpp>
#include <rdmaxx/detail/drain.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/post.hpp>
#include <rdmaxx/detail/qp_transitions.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/cq.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/pd.hpp>
#include <rdmaxx/verbs/qp_attr.hpp>
#include <rdmaxx/verbs/srq.hpp>
#include <rdmaxx/verbs/wc.hpp>
#include <rdmaxx/verbs/wr.hpp>
#include <rdmaxx/verbs/xrcd.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rdmaxx::inline v0 {

namespace detail {

struct qp_traits {
    using raw_type = ibv_qp;
    using ref_type = qp_ref;
    using block = detail::block<ibv_qp, 6>; // pd, send CQ, recv CQ, SRQ, XRC domain, table of work queues
    static context_traits::block* context(const block& b) noexcept {
        if (b.parents[0].get() != nullptr || b.parents[4].get() == nullptr)
            return context_behind(b.parents[0].get());
        const auto* domain = static_cast<xrcd_traits::block*>(b.parents[4].get());
        return static_cast<context_traits::block*>(domain->parents[0].get());
    }
    static void came(block& b) noexcept { detail::came(context(b), b.raw); }
    static status destroy(block& b) noexcept {
        return destroy_unheld(context(b), b.raw, "ibv_destroy_qp", [&b]() noexcept { return ::ibv_destroy_qp(b.raw); });
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
    /// What qp_init_attr::qp_context was.
    [[nodiscard]] void* qp_context() const noexcept { return this->native_handle()->qp_context; }

    // ---- Data path: no system call of ours, no allocation, no lock. The request and what it refers to may
    // go when the call returns (the memory that its SGEs name may not, unless it is inlined). A full queue is ENOMEM,
    // and no broken one: poll and post again. Other errors: EINVAL for too many SGEs, too much inline data, or a state
    // in which the queue takes no requests.

    /// Posts a request, or a chain of them (ibv_send_wr::next). C call: ibv_post_send(3).
    /// @throws post_error with the index of the request that failed; those before it were posted
    void post_send(ibv_send_wr& first) const {
        ibv_send_wr* bad = nullptr;
        if (const int error = try_post_send(first, bad)) [[unlikely]]
            raise_post("ibv_post_send", error, first, bad);
    }
    void post_send(ibv_send_wr&& first) const { post_send(first); }

    /// @return the index of the request that failed; 0 when none did
    std::size_t post_send(ibv_send_wr& first, std::error_code& ec) const noexcept {
        ibv_send_wr* bad = nullptr;
        const int error = try_post_send(first, bad); // a statement of its own: it sets bad
        return posted(first, error, bad, ec);
    }
    std::size_t post_send(ibv_send_wr&& first, std::error_code& ec) const noexcept { return post_send(first, ec); }

    /// The form for hot loops: the cost of the C call.
    /// @return 0 or an errno
    [[nodiscard]] int try_post_send(ibv_send_wr& first) const noexcept {
        ibv_send_wr* bad = nullptr;
        return try_post_send(first, bad);
    }
    [[nodiscard]] int try_post_send(ibv_send_wr&& first) const noexcept { return try_post_send(first); }
    /// @param bad on failure, the request that failed
    [[nodiscard]] int try_post_send(ibv_send_wr& first, ibv_send_wr*& bad) const noexcept {
        return error_number(::ibv_post_send(this->native_handle(), &first, &bad));
    }

    /// Posts requests that lie in a row as one chain: sets their `next` fields. None: no effect. They stay linked: one
    /// of them that is posted alone afterwards takes those behind it along, unless its `next` is cleared.
    void post_send(std::span<send_wr> requests) const {
        if (!requests.empty())
            post_send(chain(requests));
    }
    std::size_t post_send(std::span<send_wr> requests, std::error_code& ec) const noexcept {
        if (!requests.empty())
            return post_send(chain(requests), ec);
        clear(ec);
        return 0;
    }
    /// @return 0 or an errno
    [[nodiscard]] int try_post_send(std::span<send_wr> requests) const noexcept {
        return requests.empty() ? 0 : try_post_send(chain(requests));
    }

    /// Sends one piece of memory, signaled. The common case. Not for datagrams, which need an address
    /// (send_wr::to).
    void post_send(const sge& piece, std::uint64_t wr_id = 0) const {
        post_send(send_wr::send(piece).wr_id(wr_id).signaled());
    }
    void post_send(const sge& piece, std::uint64_t wr_id, std::error_code& ec) const noexcept {
        post_send(send_wr::send(piece).wr_id(wr_id).signaled(), ec);
    }
    /// @return 0 or an errno
    [[nodiscard]] int try_post_send(const sge& piece, std::uint64_t wr_id = 0) const noexcept {
        return try_post_send(send_wr::send(piece).wr_id(wr_id).signaled());
    }
    /// Sends a whole memory region, signaled.
    void post_send(mr_ref region, std::uint64_t wr_id = 0) const { post_send(region.sge(), wr_id); }
    void post_send(mr_ref region, std::uint64_t wr_id, std::error_code& ec) const noexcept {
        const sge piece = region.sge(ec);
        if (!ec)
            post_send(piece, wr_id, ec);
    }
    [[nodiscard]] int try_post_send(mr_ref region, std::uint64_t wr_id = 0) const noexcept {
        std::error_code ec;
        const sge piece = region.sge(ec);
        return ec ? ec.value() : try_post_send(piece, wr_id);
    }

    /// Binds a type 1 window to a piece of a memory region, or with mw_bind_info() to nothing; window.rkey() is another
    /// one afterwards. It is a request of the send queue: nothing that is posted later overtakes it. (A type 2 window
    /// is bound by send_wr::bind_mw.)
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
        return error_number(::ibv_bind_mw(this->native_handle(), window.native_handle(), &bind));
    }

    // ---- Control path: system calls.

    /// Changes attributes, the state among them. C call: ibv_modify_qp(3).
    /// @throws error EINVAL for a transition, or a set of attributes, that does not exist; what() then names the
    ///         attributes that are missing and those that the transition does not take. EINVAL, ENODATA, ENODEV for a
    ///         value that is wrong (a port, a GID index, ...)
    void modify(const qp_attr& attr) const { modify(attr.raw(), attr.mask()); }
    void modify(const qp_attr& attr, std::error_code& ec) const noexcept {
        assign(ec, do_modify(attr.raw(), attr.mask()));
    }
    /// @param mask enum ibv_qp_attr_mask bits
    void modify(const ibv_qp_attr& attr, int mask) const {
        if (const status result = do_modify(attr, mask); result.failed()) [[unlikely]]
            raise(result, result.value == EINVAL ? explain_modify(attr, mask) : std::string());
    }
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

    /// For an EINVAL of modify(attr, ec): the queue pair's type and state, and what that transition lacks or does not
    /// take: `rc, init to rtr: missing path_mtu; not taken qkey`. System call.
    [[nodiscard]] std::string explain_modify(const qp_attr& attr) const {
        return explain_modify(attr.raw(), attr.mask());
    }

    /// Attributes, and what was granted at creation. C call: ibv_query_qp(3).
    /// @param mask enum ibv_qp_attr_mask bits of what is wanted, all without: others may be filled in as well
    /// @throws error EOPNOTSUPP for attributes that the device does not tell (EFA's tells few)
    [[nodiscard]] qp_info query(int mask = all_attributes) const {
        qp_info info;
        check(do_query(info, mask));
        return info;
    }
    [[nodiscard]] qp_info query(int mask, std::error_code& ec) const noexcept {
        qp_info info;
        assign(ec, do_query(info, mask));
        return info;
    }

    /// All attributes.
    [[nodiscard]] qp_info query(std::error_code& ec) const noexcept { return query(all_attributes, ec); }

    /// The granted capabilities: queue depths, SGEs, inline data; at least what was asked for.
    [[nodiscard]] ibv_qp_cap cap() const { return query(IBV_QP_CAP).cap(); }
    [[nodiscard]] ibv_qp_cap cap(std::error_code& ec) const noexcept { return query(IBV_QP_CAP, ec).cap(); }

#if RDMAXX_HAS_LINUX_VERBS
    /// Limits how fast it sends, in the state rts. Not every device can.
    /// @throws error EOPNOTSUPP, EINVAL
    /// C call: ibv_modify_qp_rate_limit(3).
    void modify_rate_limit(const qp_rate_limit& limit) const {
        check(do_rate_limit(limit));
    }
    void modify_rate_limit(const qp_rate_limit& limit, std::error_code& ec) const noexcept {
        assign(ec, do_rate_limit(limit));
    }

    /// Enhanced connection establishment by hand: vendor and options that this side offers, before it is connected, or
    /// that were agreed on. (A cm_id exchanges them by itself.) C calls: ibv_query_ece(3), ibv_set_ece(3).
    /// @throws error EOPNOTSUPP where the device has none
    [[nodiscard]] ibv_ece query_ece() const {
        ibv_ece ece{};
        check(check_call("ibv_query_ece", ::ibv_query_ece, this->native_handle(), &ece));
        return ece;
    }
    [[nodiscard]] ibv_ece query_ece(std::error_code& ec) const noexcept {
        ibv_ece ece{};
        assign(ec, check_call("ibv_query_ece", ::ibv_query_ece, this->native_handle(), &ece));
        return ece;
    }
    void set_ece(ibv_ece ece) const {
        check(check_call("ibv_set_ece", ::ibv_set_ece, this->native_handle(), &ece));
    }
    void set_ece(ibv_ece ece, std::error_code& ec) const noexcept {
        assign(ec, check_call("ibv_set_ece", ::ibv_set_ece, this->native_handle(), &ece));
    }
#endif

    /// Whether a message's bytes arrive in memory in the order of their addresses, so that a program may poll its last
    /// byte. C call: ibv_query_qp_data_in_order(3).
    /// @param operation send (what is received), rdma_write or rdma_read
    template <class Qp = ibv_qp>
        requires has_query_data_in_order<Qp>
    [[nodiscard]] data_in_order query_data_in_order(wr_opcode operation) const noexcept {
        return do_query_data_in_order<Qp>(operation, data_in_order_caps_flag<>);
    }
    /// What of that is the device's part, whatever this machine's processors make of it: for memory that something else
    /// reads, a GPU for one. (Flag IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY.) rdma-core 62.
    template <class Qp = ibv_qp>
        requires has_data_in_order_of_device<Qp>
    [[nodiscard]] data_in_order query_data_in_order_of_device(wr_opcode operation) const noexcept {
        constexpr std::uint32_t device_only = 2;
        return do_query_data_in_order<Qp>(operation, data_in_order_caps_flag<> | device_only);
    }

    /// Moves the queue pair to the error state and polls its CQs until everything that was posted has completed: then
    /// its buffers may go. Each completion is handed to `on_completion`, also those of other queue pairs that share the
    /// CQs; one thread at a time may poll them. The queue pair must not get new requests meanwhile. Receives of a
    /// shared receive queue are not its own: those that it took complete, the others stay.
    ///
    /// It posts a request of its own to each queue, whose completion is not handed on: the CQs need room for one more a
    /// queue (see cq_room). If it fails, one of those may complete later: is_drain_marker() tells. A handler that
    /// throws loses its completion, and no other.
    /// @param timeout any std::chrono::duration
    /// @throws error ETIMEDOUT, or of ibv_modify_qp, ibv_post_send, ibv_poll_cq; EOPNOTSUPP where the device takes no
    ///         requests in the error state, or of its own kind of them (qp_type::driver), so that it cannot tell when
    ///         all have completed: what came until nothing more did was handed on, and the end of the queue pair ends
    ///         the rest
    template <class Handler, duration Duration>
    void drain(Duration timeout, Handler&& on_completion) const {
        check(do_drain(deadline::after(timeout), on_completion));
    }
    template <class Handler, duration Duration>
    void drain(Duration timeout, Handler&& on_completion, std::error_code& ec) const {
        assign(ec, do_drain(deadline::after(timeout), on_completion));
    }

    /// As drain().
    /// @param until a std::chrono::time_point of any clock
    template <class Handler, time_point TimePoint>
    void drain_until(TimePoint until, Handler&& on_completion) const {
        check(do_drain(deadline::at(until), on_completion));
    }
    template <class Handler, time_point TimePoint>
    void drain_until(TimePoint until, Handler&& on_completion, std::error_code& ec) const {
        assign(ec, do_drain(deadline::at(until), on_completion));
    }

    /// As drain(), for completions that nobody needs any more.
    template <duration Duration>
    void drain(Duration timeout) const {
        drain(timeout, [](const wc&) noexcept {});
    }
    template <duration Duration>
    void drain(Duration timeout, std::error_code& ec) const noexcept {
        assign(ec, do_drain(deadline::after(timeout), [](const wc&) noexcept {}));
    }

private:
    [[nodiscard]] status do_modify(const ibv_qp_attr& attr, int mask) const noexcept {
        ibv_qp_attr copy = attr; // C takes it as non-const, and does not write
        return check_call("ibv_modify_qp", ::ibv_modify_qp, this->native_handle(), &copy, mask);
    }

    [[nodiscard]] status do_attach(const gid& group, std::uint16_t lid) const noexcept {
        return check_call("ibv_attach_mcast", ::ibv_attach_mcast, this->native_handle(), &group.raw(), lid);
    }
    [[nodiscard]] status do_detach(const gid& group, std::uint16_t lid) const noexcept {
        return check_call("ibv_detach_mcast", ::ibv_detach_mcast, this->native_handle(), &group.raw(), lid);
    }

    [[nodiscard]] RDMAXX_COLD std::string explain_modify(const ibv_qp_attr& attr, int mask) const {
        qp_info now;
        if (do_query(now, IBV_QP_STATE).failed())
            return {};
        return detail::explain_modify(type(), now.state(), attr, mask);
    }

#if RDMAXX_HAS_LINUX_VERBS
    [[nodiscard]] status do_rate_limit(const qp_rate_limit& limit) const noexcept {
        ibv_qp_rate_limit_attr c{};
        c.rate_limit = limit.kbps;
        c.max_burst_sz = limit.max_burst_bytes;
        c.typical_pkt_sz = limit.typical_packet_bytes;
        return check_call("ibv_modify_qp_rate_limit", ::ibv_modify_qp_rate_limit, this->native_handle(), &c);
    }
#endif

    static constexpr int all_attributes = (IBV_QP_DEST_QPN << 1) - 1;

    [[nodiscard]] status do_query(qp_info& info, int mask) const noexcept {
        return check_call("ibv_query_qp", ::ibv_query_qp, this->native_handle(), &info.attr, mask, &info.init);
    }

    template <class Qp>
    [[nodiscard]] data_in_order do_query_data_in_order(wr_opcode operation, std::uint32_t flags) const noexcept {
        Qp* raw = this->native_handle();
        if (raw == nullptr)
            return data_in_order::none;
        const int caps = ibv_query_qp_data_in_order(raw, static_cast<ibv_wr_opcode>(operation), flags);
        return caps < 0 ? data_in_order::none : static_cast<data_in_order>(caps);
    }

    template <class Handler>
    [[nodiscard]] status do_drain(deadline until, Handler&& on_completion) const {
        return drain_of(*this, on_completion).run(until);
    }
};

} // namespace detail

/// Whether a completion is that of a drain() which failed, and no request's of the program.
[[nodiscard]] inline bool is_drain_marker(std::uint64_t wr_id) noexcept {
    return detail::drain_markers::have(wr_id);
}

/// A queue pair that somebody else owns: an id's (cm_id::qp), or a C program's.
class qp_ref : public detail::qp_ops<detail::ref<ibv_qp>> {
public:
    using qp_ops::qp_ops;
};

namespace detail {

/// What owns a queue pair, plain or extended. Neither is the other, so that neither is assigned to the other: a plain
/// one would be posted to by functions that it does not have.
class qp_owner : public qp_ops<owner<qp_traits>> {
protected:
    /// @param c what C gets: `attr`'s, or more
    /// @param accept 0, or the errno for which a queue pair that was made is not taken
    template <class Accept>
    [[nodiscard]] status init(parent<ibv_pd> domain, const qp_init_attr_ex& attr, ibv_qp_init_attr_ex c,
                              Accept accept) noexcept {
        if (domain) {
            c.pd = domain.native_handle();
            c.comp_mask |= IBV_QP_INIT_ATTR_PD;
        } else if (c.xrcd == nullptr) {
            return {"ibv_create_qp_ex", EINVAL, "empty PD"};
        }
        if (const char* empty = attr.lacking())
            return {"ibv_create_qp_ex", EINVAL, empty};
        ibv_context* device = domain ? domain.native_handle()->context : c.xrcd->context;
        return make(
            "ibv_create_qp_ex",
            [&]() noexcept -> ibv_qp* {
                ibv_qp* made = ::ibv_create_qp_ex(device, &c);
                if (made == nullptr)
                    return nullptr;
                const int refused = accept(made);
                if (refused == 0)
                    return made;
                ::ibv_destroy_qp(made);
                errno = refused;
                return nullptr;
            },
            domain.pin(), attr.basic_.send_cq_, attr.basic_.recv_cq_, attr.basic_.srq_, attr.xrcd_, attr.table_);
    }
};

} // namespace detail

/// A queue pair made by ibv_create_qp(3), for programs that connect it by hand. It ends exactly when its owner ends,
/// and keeps its PD and its CQs. (A queue pair of a cm_id is the id's: cm_id::create_qp.)
///
/// Any number of threads may post to one queue pair and modify it; its owner must stay while they do.
class qp : public detail::qp_owner {
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

    /// With the extended attributes. C call: ibv_create_qp_ex(3).
    /// @param domain as above; empty for qp_init_attr_ex::xrc_recv, which has none
    /// @throws error EOPNOTSUPP, EINVAL for what the device does not have
    qp(detail::parent<ibv_pd> domain, const qp_init_attr_ex& attr) {
        detail::check(init(domain, attr, attr.raw(), [](ibv_qp*) noexcept { return 0; }));
    }
    [[nodiscard]] static qp create(detail::parent<ibv_pd> domain, const qp_init_attr_ex& attr,
                                   std::error_code& ec) noexcept {
        qp result;
        detail::assign(ec, result.init(domain, attr, attr.raw(), [](ibv_qp*) noexcept { return 0; }));
        return result;
    }

    /// The receiving end of extended reliable connections that another process made, by its number. It ends when the
    /// last process that has it closes it.
    /// @param domain an xrcd of the same file, which is kept, or a ref, which must outlive the queue pair
    /// C call: ibv_open_qp(3).
    [[nodiscard]] static qp open(detail::parent<ibv_xrcd> domain, std::uint32_t qp_num, void* qp_context = nullptr) {
        qp result;
        detail::check(result.init(domain, qp_num, qp_context));
        return result;
    }
    [[nodiscard]] static qp open(detail::parent<ibv_xrcd> domain, std::uint32_t qp_num, void* qp_context,
                                 std::error_code& ec) noexcept {
        qp result;
        detail::assign(ec, result.init(domain, qp_num, qp_context));
        return result;
    }

    /// The most inline data that a queue pair like this can carry, which no device tells: found by making some, and
    /// ending them again. System calls.
    /// @param attr as for the queue pair itself; its max_inline_data is where the search ends
    [[nodiscard]] static std::uint32_t probe_max_inline_data(detail::parent<ibv_pd> domain, const qp_init_attr& attr) {
        std::error_code ec;
        const std::uint32_t found = probe_max_inline_data(domain, attr, ec);
        if (ec)
            detail::raise({"ibv_create_qp", ec.value()});
        return found;
    }
    [[nodiscard]] static std::uint32_t probe_max_inline_data(detail::parent<ibv_pd> domain, qp_init_attr attr,
                                                             std::error_code& ec) noexcept {
        std::uint32_t good = 0;
        std::uint32_t bad = attr.raw().cap.max_inline_data + 1;
        // The whole first, then nothing (whose failure has another reason), then halves.
        for (std::uint32_t asked = bad - 1;; asked = good + (bad - good) / 2) {
            const qp made = create(domain, attr.max_inline_data(asked), ec);
            if (!ec)
                good = asked;
            else if (asked == 0)
                return 0;
            else
                bad = asked;
            if (bad - good <= 1 && !(good == 0 && ec))
                break;
        }
        ec.clear();
        return good;
    }

    /// Takes over a queue pair that ibv_create_qp made; it will be destroyed by ibv_destroy_qp. Not for the queue pair
    /// of a cm_id.
    /// @param ec ENOMEM, and the queue pair is still the caller's
    [[nodiscard]] static qp adopt(ibv_qp* raw, detail::parent<ibv_pd> domain, detail::parent<ibv_cq> send,
                                  detail::parent<ibv_cq> recv, std::error_code& ec) noexcept {
        qp result;
        detail::assign(ec, result.take_over("ibv_create_qp", raw, domain.pin(), send.pin(), recv.pin()));
        return result;
    }

private:
    using qp_owner::init;

    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, const qp_init_attr& attr) noexcept {
        if (!domain)
            return {"ibv_create_qp", EINVAL, "empty PD"};
        if (const char* empty = attr.lacking())
            return {"ibv_create_qp", EINVAL, empty};
        ibv_qp_init_attr copy = attr.raw(); // C writes what it granted into it
        return make(
            "ibv_create_qp", [&]() noexcept { return ::ibv_create_qp(domain.native_handle(), &copy); }, domain.pin(),
            attr.send_cq_, attr.recv_cq_, attr.srq_);
    }

    [[nodiscard]] detail::status init(detail::parent<ibv_xrcd> domain, std::uint32_t qp_num,
                                      void* qp_context) noexcept {
        if (!domain)
            return {"ibv_open_qp", EINVAL, "empty XRC domain"};
        ibv_qp_open_attr c{};
        c.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE;
        c.qp_num = qp_num;
        c.xrcd = domain.native_handle();
        c.qp_context = qp_context;
        c.qp_type = IBV_QPT_XRC_RECV;
        const detail::keep none;
        return make(
            "ibv_open_qp", [&]() noexcept { return ::ibv_open_qp(domain.native_handle()->context, &c); }, none, none,
            none, none, domain.pin());
    }
};

} // namespace rdmaxx::inline v0

#endif
