// struct ibv_srq, a shared receive queue: ibv_create_srq(3), ibv_post_srq_recv(3).
#ifndef RDMAXX_VERBS_SRQ_HPP
#define RDMAXX_VERBS_SRQ_HPP

#include <rdmaxx/detail/async_blocks.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/post.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/pd.hpp>

#include <cstdint>

namespace rdmaxx::inline v0 {
namespace detail {

struct srq_traits {
    using raw_type = ibv_srq;
    using ref_type = srq_ref;
    using block = detail::block<ibv_srq, 1>; // pd
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

    [[nodiscard]] pd_ref pd() const noexcept { return pd_ref(this->native_handle()->pd); }

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

    /// Changes the size, where the device can.
    void resize(std::uint32_t max_wr) const { check(do_modify({max_wr, 0, 0}, IBV_SRQ_MAX_WR)); }
    void resize(std::uint32_t max_wr, std::error_code& ec) const noexcept {
        assign(ec, do_modify({max_wr, 0, 0}, IBV_SRQ_MAX_WR));
    }

private:
    [[nodiscard]] status do_query(ibv_srq_attr& attr) const noexcept {
        return check_number("ibv_query_srq", ::ibv_query_srq(this->native_handle(), &attr));
    }
    [[nodiscard]] status do_modify(ibv_srq_attr attr, int mask) const noexcept {
        return check_number("ibv_modify_srq", ::ibv_modify_srq(this->native_handle(), &attr, mask));
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
    void* srq_context = nullptr;
};

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

    /// Takes over a queue that ibv_create_srq made; it will be destroyed by ibv_destroy_srq. Not for the queue of a
    /// cm_id.
    /// @param ec ENOMEM, and the queue is still the caller's
    [[nodiscard]] static srq adopt(ibv_srq* raw, detail::parent<ibv_pd> domain, std::error_code& ec) noexcept {
        srq result;
        detail::assign(ec, result.make(
                               "ibv_create_srq", [raw]() noexcept { return raw; }, domain.pin()));
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
};

} // namespace rdmaxx::inline v0

#endif
