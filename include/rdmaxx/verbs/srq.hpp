// struct ibv_srq, a shared receive queue: ibv_create_srq(3), ibv_create_srq_ex(3), ibv_post_srq_recv(3).
#ifndef RDMAXX_VERBS_SRQ_HPP
#define RDMAXX_VERBS_SRQ_HPP

#include <rdmaxx/detail/async_blocks.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/post.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/cq.hpp>
#include <rdmaxx/verbs/pd.hpp>
#include <rdmaxx/verbs/xrcd.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace rdmaxx::inline v0 {
namespace detail {

struct srq_traits {
    using raw_type = ibv_srq;
    using ref_type = srq_ref;
    using block = detail::block<ibv_srq, 3>; // pd, xrcd, cq
    static void came(block& b) noexcept { detail::came(context_behind(b.parents[0].get()), b.raw); }
    static status destroy(block& b) noexcept {
        return destroy_unheld(context_behind(b.parents[0].get()), b.raw, "ibv_destroy_srq",
                              [&b]() noexcept { return ::ibv_destroy_srq(b.raw); });
    }
};

/// The operations of srq and srq_ref.
template <class Handle>
class srq_ops : public recv_ops<Handle> {
public:
    using recv_ops<Handle>::recv_ops;

    /// The PD that it was made in.
    [[nodiscard]] pd_ref pd() const noexcept { return pd_ref(this->native_handle()->pd); }
    /// What srq_init_attr::srq_context was.
    [[nodiscard]] void* srq_context() const noexcept { return this->native_handle()->srq_context; }

    /// Sizes as granted, and the armed limit. System call. C call: ibv_query_srq(3).
    [[nodiscard]] ibv_srq_attr query() const {
        ibv_srq_attr attr{};
        check(do_query(attr));
        return attr;
    }
    [[nodiscard]] ibv_srq_attr query(std::error_code& ec) const noexcept {
        ibv_srq_attr attr{};
        assign(ec, do_query(attr));
        return attr;
    }

    /// Asks for one asynchronous event (srq_limit_reached) when fewer than `limit` receives are posted; 0 for none.
    /// System call. C call: ibv_modify_srq(3).
    void arm_limit(std::uint32_t limit) const { check(do_modify({0, 0, limit}, IBV_SRQ_LIMIT)); }
    void arm_limit(std::uint32_t limit, std::error_code& ec) const noexcept {
        assign(ec, do_modify({0, 0, limit}, IBV_SRQ_LIMIT));
    }

    /// The number by which XRC senders name it. C call: ibv_get_srq_num(3).
    /// @throws error EOPNOTSUPP for a queue or device without XRC
    [[nodiscard]] std::uint32_t srq_num() const {
        std::uint32_t number = 0;
        check(do_get_num(number));
        return number;
    }
    [[nodiscard]] std::uint32_t srq_num(std::error_code& ec) const noexcept {
        std::uint32_t number = 0;
        assign(ec, do_get_num(number));
        return number;
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// Posts an operation on the list of tagged receives, or a chain of them (ibv_ops_wr::next). Data path.
    /// @throws post_error EOPNOTSUPP for a queue without tag matching, ENOMEM for more than max_ops under way
    /// C call: ibv_post_srq_ops(3).
    void post_srq_ops(ibv_ops_wr& first) const {
        ibv_ops_wr* bad = nullptr;
        if (const int error = try_post_srq_ops(first, bad)) [[unlikely]]
            raise_post("ibv_post_srq_ops", error, first, bad);
    }
    void post_srq_ops(ibv_ops_wr&& first) const {
        post_srq_ops(first);
    }
    std::size_t post_srq_ops(ibv_ops_wr& first, std::error_code& ec) const noexcept {
        ibv_ops_wr* bad = nullptr;
        const int error = try_post_srq_ops(first, bad); // a statement of its own: it sets bad
        return posted(first, error, bad, ec);
    }
    std::size_t post_srq_ops(ibv_ops_wr&& first, std::error_code& ec) const noexcept {
        return post_srq_ops(first, ec);
    }
    /// @param bad on failure, the operation that failed
    /// @return 0 or an errno
    [[nodiscard]] int try_post_srq_ops(ibv_ops_wr& first, ibv_ops_wr*& bad) const noexcept {
        return error_number(::ibv_post_srq_ops(this->native_handle(), &first, &bad));
    }
#endif

    /// Changes the size, where the device can.
    void resize(std::uint32_t max_wr) const {
        check(do_modify({max_wr, 0, 0}, IBV_SRQ_MAX_WR));
    }
    void resize(std::uint32_t max_wr, std::error_code& ec) const noexcept {
        assign(ec, do_modify({max_wr, 0, 0}, IBV_SRQ_MAX_WR));
    }

private:
    [[nodiscard]] status do_query(ibv_srq_attr& attr) const noexcept {
        return check_call("ibv_query_srq", ::ibv_query_srq, this->native_handle(), &attr);
    }
    [[nodiscard]] status do_get_num(std::uint32_t& number) const noexcept {
        return check_call("ibv_get_srq_num", ::ibv_get_srq_num, this->native_handle(), &number);
    }
    [[nodiscard]] status do_modify(ibv_srq_attr attr, int mask) const noexcept {
        return check_call("ibv_modify_srq", ::ibv_modify_srq, this->native_handle(), &attr, mask);
    }
};

} // namespace detail

/// A shared receive queue that somebody else owns: an id's (cm_id::srq), or a C program's.
class srq_ref : public detail::srq_ops<detail::ref<ibv_srq>> {
public:
    using srq_ops::srq_ops;
};

/// How a shared receive queue is made (struct ibv_srq_init_attr).
struct srq_init_attr {
    std::uint32_t max_wr = 16; ///< receives that may be posted at once
    std::uint32_t max_sge = 1; ///< SGEs a receive
    /// C's srq_context, for asynchronous events.
    void* srq_context = nullptr;
};

/// How a shared receive queue of another kind is made (struct ibv_srq_init_attr_ex): for XRC, or for tag matching. It
/// pins what was given as owners, and hands the pins to the queue.
class srq_init_attr_ex {
public:
    /// A basic one, until something makes it another. (No default: srq(pd, {}) is the plain one.)
    explicit srq_init_attr_ex(const srq_init_attr& sizes) noexcept {
        raw_.srq_context = sizes.srq_context;
        raw_.attr.max_wr = sizes.max_wr;
        raw_.attr.max_sge = sizes.max_sge;
        raw_.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
        raw_.srq_type = IBV_SRQT_BASIC;
    }

    /// Of an XRC domain: senders name it by srq_num(). Its receives complete on `queue`.
    srq_init_attr_ex& xrc(detail::parent<ibv_xrcd> domain, detail::parent<ibv_cq> queue) noexcept {
        raw_.srq_type = IBV_SRQT_XRC;
        raw_.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
        raw_.xrcd = domain.native_handle();
        xrcd_ = domain.pin();
        return cq(queue);
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// With tag matching: messages go to the tagged receive that they match. Everything completes on `queue`.
    /// @param max_num_tags tagged receives at most
    /// @param max_ops operations on their list that may be under way
    srq_init_attr_ex& tag_matching(detail::parent<ibv_cq> queue, std::uint32_t max_num_tags,
                                   std::uint32_t max_ops) noexcept {
        raw_.srq_type = IBV_SRQT_TM;
        raw_.comp_mask |= IBV_SRQ_INIT_ATTR_TM;
        raw_.tm_cap.max_num_tags = max_num_tags;
        raw_.tm_cap.max_ops = max_ops;
        return cq(queue);
    }
#endif

    /// The C struct.
    [[nodiscard]] const ibv_srq_init_attr_ex& raw() const noexcept {
        return raw_;
    }

private:
    friend class srq;

    srq_init_attr_ex& cq(detail::parent<ibv_cq> queue) noexcept {
        raw_.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
        raw_.cq = queue.native_handle();
        cq_ = queue.pin();
        return *this;
    }

    ibv_srq_init_attr_ex raw_{};
    detail::keep xrcd_;
    detail::keep cq_;
};

#if RDMAXX_HAS_LINUX_VERBS
/// An operation on the tagged receives of a queue: one factory for each. It is a struct ibv_ops_wr, and refers to its
/// SGEs until it is posted.
///
///     const sge piece = mr.sge();
///     ops_wr add = ops_wr::tag_add(piece, 0x17, ~std::uint64_t{0}).recv_wr_id(3).wr_id(1).signaled();
///     srq.post_srq_ops(add);
///     srq.post_srq_ops(ops_wr::tag_del(add.handle()));
struct RDMAXX_POINTER ops_wr : ibv_ops_wr {
    ops_wr() noexcept : ibv_ops_wr{} {}

    /// Adds a receive for messages whose tag is `tag` in the bits of `mask`. The post sets handle(), which tag_del
    /// takes: so keep the request until then.
    [[nodiscard]] static ops_wr tag_add(sge_list sges RDMAXX_LIFETIMEBOUND, std::uint64_t tag,
                                        std::uint64_t mask) noexcept {
        ops_wr request(IBV_WR_TAG_ADD);
        request.tm.add.sg_list = const_cast<sge*>(sges.data()); // C does not write there
        request.tm.add.num_sge = static_cast<int>(sges.size());
        request.tm.add.tag = tag;
        request.tm.add.mask = mask;
        return request;
    }
    /// Takes a receive back that has matched nothing yet; it completes with wc_status::tm_err if one has meanwhile.
    /// @param handle of the tag_add
    [[nodiscard]] static ops_wr tag_del(std::uint32_t handle) noexcept {
        ops_wr request(IBV_WR_TAG_DEL);
        request.tm.handle = handle;
        return request;
    }
    /// Tells the device how many unexpected messages the program has seen.
    [[nodiscard]] static ops_wr tag_sync(std::uint32_t unexpected_cnt) noexcept {
        return ops_wr(IBV_WR_TAG_SYNC).unexpected_cnt(unexpected_cnt);
    }

    /// What names the receive of a tag_add that was posted.
    [[nodiscard]] std::uint32_t handle() const noexcept { return tm.handle; }

    /// The program's number for the operation.
    ops_wr& wr_id(std::uint64_t id) noexcept RDMAXX_LIFETIMEBOUND {
        ibv_ops_wr::wr_id = id;
        return *this;
    }
    /// The program's number for the message that a tag_add receives.
    ops_wr& recv_wr_id(std::uint64_t id) noexcept RDMAXX_LIFETIMEBOUND {
        tm.add.recv_wr_id = id;
        return *this;
    }
    ops_wr& signaled() noexcept RDMAXX_LIFETIMEBOUND {
        flags |= IBV_OPS_SIGNALED;
        return *this;
    }
    /// With any operation, what tag_sync tells.
    ops_wr& unexpected_cnt(std::uint32_t count) noexcept RDMAXX_LIFETIMEBOUND {
        flags |= IBV_OPS_TM_SYNC;
        tm.unexpected_cnt = count;
        return *this;
    }

private:
    explicit ops_wr(ibv_ops_wr_opcode operation) noexcept : ibv_ops_wr{} { opcode = operation; }
};
static_assert(sizeof(ops_wr) == sizeof(ibv_ops_wr) && std::is_standard_layout_v<ops_wr>);
#endif

/// A shared receive queue: receives for any number of queue pairs. It stays until this owner and the queue pairs that
/// use it are gone.
///
/// C calls: ibv_create_srq(3), ibv_destroy_srq(3). Any number of threads may post to one queue.
class srq : public detail::srq_ops<detail::owner<detail::srq_traits>> {
public:
    srq() noexcept = default;

    /// System call.
    /// @param domain a pd, which is kept, or a pd_ref, which must outlive the queue
    /// @throws error EINVAL for more than the device has, ENOMEM
    explicit srq(detail::parent<ibv_pd> domain, const srq_init_attr& attr = {}) { detail::check(init(domain, attr)); }
    [[nodiscard]] static srq create(detail::parent<ibv_pd> domain, const srq_init_attr& attr,
                                    std::error_code& ec) noexcept {
        srq result;
        detail::assign(ec, result.init(domain, attr));
        return result;
    }

    /// For XRC or tag matching.
    /// @throws error EOPNOTSUPP for a device without it, EINVAL, ENOMEM
    /// C call: ibv_create_srq_ex(3).
    srq(detail::parent<ibv_pd> domain, const srq_init_attr_ex& attr) { detail::check(init(domain, attr)); }
    [[nodiscard]] static srq create(detail::parent<ibv_pd> domain, const srq_init_attr_ex& attr,
                                    std::error_code& ec) noexcept {
        srq result;
        detail::assign(ec, result.init(domain, attr));
        return result;
    }

    /// Takes over a queue that ibv_create_srq made; it will be destroyed by ibv_destroy_srq. Not for the queue of a
    /// cm_id.
    /// @param ec ENOMEM, and the queue is still the caller's
    [[nodiscard]] static srq adopt(ibv_srq* raw, detail::parent<ibv_pd> domain, std::error_code& ec) noexcept {
        srq result;
        detail::assign(ec, result.take_over("ibv_create_srq", raw, domain.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, const srq_init_attr& attr) noexcept {
        if (!domain)
            return {"ibv_create_srq", EINVAL, "empty PD"};
        ibv_srq_init_attr c{};
        c.srq_context = attr.srq_context;
        c.attr.max_wr = attr.max_wr;
        c.attr.max_sge = attr.max_sge;
        return make(
            "ibv_create_srq", [&]() noexcept { return ::ibv_create_srq(domain.native_handle(), &c); }, domain.pin());
    }

    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, const srq_init_attr_ex& attr) noexcept {
        if (!domain)
            return {"ibv_create_srq_ex", EINVAL, "empty PD"};
        if ((attr.raw_.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) != 0 && attr.raw_.xrcd == nullptr)
            return {"ibv_create_srq_ex", EINVAL, "empty XRC domain"};
        if ((attr.raw_.comp_mask & IBV_SRQ_INIT_ATTR_CQ) != 0 && attr.raw_.cq == nullptr)
            return {"ibv_create_srq_ex", EINVAL, "empty CQ"};
        ibv_srq_init_attr_ex copy = attr.raw_; // C writes what it granted into it
        copy.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        copy.pd = domain.native_handle();
        return make(
            "ibv_create_srq_ex", [&]() noexcept { return ::ibv_create_srq_ex(copy.pd->context, &copy); }, domain.pin(),
            attr.xrcd_, attr.cq_);
    }
};

} // namespace rdmaxx::inline v0

#endif
