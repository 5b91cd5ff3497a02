// struct ibv_wq, a receive queue without a queue pair, and struct ibv_rwq_ind_table, a table of them that a queue pair
// spreads packets over (RSS): ibv_create_wq(3), ibv_create_rwq_ind_table(3).
#ifndef RDMAXX_VERBS_WQ_HPP
#define RDMAXX_VERBS_WQ_HPP

#include <rdmaxx/detail/async_blocks.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/post.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/cq.hpp>
#include <rdmaxx/verbs/pd.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rdmaxx::inline v0 {

/// enum ibv_wq_state.
enum class wq_state : int {
    reset = IBV_WQS_RESET,
    rdy = IBV_WQS_RDY, ///< receives arrive
    err = IBV_WQS_ERR,
    unknown = IBV_WQS_UNKNOWN,
};

[[nodiscard]] constexpr const char* to_string(wq_state state) noexcept {
    switch (state) {
    case wq_state::reset: return "reset";
    case wq_state::rdy: return "rdy";
    case wq_state::err: return "err";
    case wq_state::unknown: return "unknown";
    }
    return "unknown";
}

/// enum ibv_wq_flags. The values are those of the C enum, by number where older headers lack the name.
enum class wq_flags : std::uint32_t {
    none = 0,
    cvlan_stripping = 1 << 0,
    scatter_fcs = 1 << 1,
    delay_drop = 1 << 2,
    pci_write_end_padding = 1 << 3,
};

namespace detail {

template <>
inline constexpr bool is_flags<wq_flags> = true;

struct wq_traits {
    using raw_type = ibv_wq;
    using ref_type = wq_ref;
    using block = detail::block<ibv_wq, 2>; // pd, cq
    static void came(block& b) noexcept { detail::came(context_behind(b.parents[0].get()), b.raw); }
    static status destroy(block& b) noexcept {
        return destroy_unheld(context_behind(b.parents[0].get()), b.raw, "ibv_destroy_wq",
                              [&b]() noexcept { return ::ibv_destroy_wq(b.raw); });
    }
};

/// The operations of wq and wq_ref.
template <class Handle>
class wq_ops : public recv_ops<Handle> {
public:
    using recv_ops<Handle>::recv_ops;

    /// The device's number of it.
    [[nodiscard]] std::uint32_t wq_num() const noexcept { return this->native_handle()->wq_num; }
    /// What it was made from, as the next one.
    [[nodiscard]] pd_ref pd() const noexcept { return pd_ref(this->native_handle()->pd); }
    /// Where its receives complete.
    [[nodiscard]] cq_ref cq() const noexcept { return cq_ref(this->native_handle()->cq); }
    /// What wq_init_attr::wq_context was.
    [[nodiscard]] void* wq_context() const noexcept { return this->native_handle()->wq_context; }
    /// As the last modify() left it; a failure of the device shows in asynchronous events.
    [[nodiscard]] wq_state state() const noexcept { return static_cast<wq_state>(this->native_handle()->state); }

    /// Moves the queue to another state. System call. C call: ibv_modify_wq(3).
    void modify(wq_state next) const { check(do_modify(next)); }
    void modify(wq_state next, std::error_code& ec) const noexcept { assign(ec, do_modify(next)); }
    /// @param current the state that the queue is believed to be in
    void modify(wq_state next, wq_state current) const { check(do_modify(next, IBV_WQ_ATTR_CURR_STATE, current)); }
    void modify(wq_state next, wq_state current, std::error_code& ec) const noexcept {
        assign(ec, do_modify(next, IBV_WQ_ATTR_CURR_STATE, current));
    }

    /// Switches flags on and off. C call: ibv_modify_wq(3).
    /// @param mask which of them the call is about
    void modify_flags(wq_flags flags, wq_flags mask) const { check(do_modify(flags, mask)); }
    void modify_flags(wq_flags flags, wq_flags mask, std::error_code& ec) const noexcept {
        assign(ec, do_modify(flags, mask));
    }

private:
    [[nodiscard]] status do_modify(wq_state next, std::uint32_t more = 0,
                                   wq_state current = wq_state::unknown) const noexcept {
        ibv_wq_attr attr{};
        attr.attr_mask = IBV_WQ_ATTR_STATE | more;
        attr.wq_state = static_cast<ibv_wq_state>(next);
        attr.curr_wq_state = static_cast<ibv_wq_state>(current);
        return check_call("ibv_modify_wq", ::ibv_modify_wq, this->native_handle(), &attr);
    }
    [[nodiscard]] status do_modify(wq_flags flags, wq_flags mask) const noexcept {
#if RDMAXX_HAS_LINUX_VERBS
        ibv_wq_attr attr{};
        attr.attr_mask = IBV_WQ_ATTR_FLAGS;
        attr.flags = bits(flags);
        attr.flags_mask = bits(mask);
        return check_call("ibv_modify_wq", ::ibv_modify_wq, this->native_handle(), &attr);
#else
        static_cast<void>(flags);
        static_cast<void>(mask);
        return {"ibv_modify_wq", ENOSYS, "this libibverbs has no flags of work queues"};
#endif
    }
};

} // namespace detail

/// A work queue that somebody else owns.
class wq_ref : public detail::wq_ops<detail::ref<ibv_wq>> {
public:
    using wq_ops::wq_ops;
};

/// How a work queue is made (struct ibv_wq_init_attr).
struct wq_init_attr {
    std::uint32_t max_wr = 16;       ///< receives that may be posted at once
    std::uint32_t max_sge = 1;       ///< SGEs a receive
    wq_flags flags = wq_flags::none; ///< where the device can
    void* wq_context = nullptr;      ///< C's, for asynchronous events
};

/// A receive queue for indirection tables. It stays until this owner and the tables that have it are gone.
///
/// C calls: ibv_create_wq(3), ibv_destroy_wq(3). Any number of threads may post to one queue.
class wq : public detail::wq_ops<detail::owner<detail::wq_traits>> {
public:
    wq() noexcept = default;

    /// In the reset state: modify(wq_state::rdy) starts it. System call.
    /// @param domain a pd, which is kept, or a pd_ref, which must outlive the queue; `queue` likewise
    /// @throws error EOPNOTSUPP for a device without work queues, EINVAL, ENOMEM
    wq(detail::parent<ibv_pd> domain, detail::parent<ibv_cq> queue, const wq_init_attr& attr = {}) {
        detail::check(init(domain, queue, attr));
    }
    [[nodiscard]] static wq create(detail::parent<ibv_pd> domain, detail::parent<ibv_cq> queue,
                                   const wq_init_attr& attr, std::error_code& ec) noexcept {
        wq result;
        detail::assign(ec, result.init(domain, queue, attr));
        return result;
    }

    /// Takes over a queue that ibv_create_wq made; it will be destroyed by ibv_destroy_wq.
    /// @param ec ENOMEM, and the queue is still the caller's
    [[nodiscard]] static wq adopt(ibv_wq* raw, detail::parent<ibv_pd> domain, detail::parent<ibv_cq> queue,
                                  std::error_code& ec) noexcept {
        wq result;
        detail::assign(ec, result.take_over("ibv_create_wq", raw, domain.pin(), queue.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, detail::parent<ibv_cq> queue,
                                      const wq_init_attr& attr) noexcept {
        if (!domain || !queue)
            return {"ibv_create_wq", EINVAL, !domain ? "empty PD" : "empty CQ"};
        ibv_wq_init_attr c{};
        c.wq_context = attr.wq_context;
        c.wq_type = IBV_WQT_RQ;
        c.max_wr = attr.max_wr;
        c.max_sge = attr.max_sge;
        c.pd = domain.native_handle();
        c.cq = queue.native_handle();
#if RDMAXX_HAS_LINUX_VERBS
        if (attr.flags != wq_flags::none) {
            c.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
            c.create_flags = detail::bits(attr.flags);
        }
#endif
        return make(
            "ibv_create_wq", [&]() noexcept { return ::ibv_create_wq(c.pd->context, &c); }, domain.pin(), queue.pin());
    }
};

namespace detail {

struct rwq_ind_table_traits {
    using raw_type = ibv_rwq_ind_table;
    using ref_type = rwq_ind_table_ref;
    struct block : detail::block<ibv_rwq_ind_table, 1> { // context
        using detail::block<ibv_rwq_ind_table, 1>::block;
        block(const block&) = delete;
        block& operator=(const block&) = delete;
        ~block() { delete[] queues; }
        keep* queues = nullptr; // as many as the table has
    };
    static status destroy(block& b) noexcept {
        return check_number("ibv_destroy_rwq_ind_table", ::ibv_destroy_rwq_ind_table(b.raw));
    }
};

} // namespace detail

/// An indirection table that somebody else owns.
class rwq_ind_table_ref : public detail::ref<ibv_rwq_ind_table> {
public:
    using ref::ref;
};

/// A table of work queues. A queue pair that is made with it (ibv_qp_init_attr_ex::rwq_ind_tbl, with a hash of packet
/// headers) receives into the queue that the hash names. It stays until this owner and those queue pairs are gone.
///
/// C calls: ibv_create_rwq_ind_table(3), ibv_destroy_rwq_ind_table(3). Any number of threads may make queue pairs with
/// one.
class rwq_ind_table : public detail::owner<detail::rwq_ind_table_traits> {
public:
    rwq_ind_table() noexcept = default;

    /// System call.
    /// @param queues a power of two of them; each is kept, and one may be there several times
    /// @throws error EINVAL, EOPNOTSUPP for a device without, ENOMEM
    rwq_ind_table(detail::parent<ibv_context> device, std::span<const wq> queues) {
        detail::check(init(device, queues));
    }
    [[nodiscard]] static rwq_ind_table create(detail::parent<ibv_context> device, std::span<const wq> queues,
                                              std::error_code& ec) noexcept {
        rwq_ind_table result;
        detail::assign(ec, result.init(device, queues));
        return result;
    }

    /// The same of queues that must outlive the table, in any order and as often as wanted.
    rwq_ind_table(detail::parent<ibv_context> device, std::span<const wq_ref> queues) {
        detail::check(init(device, queues));
    }
    [[nodiscard]] static rwq_ind_table create(detail::parent<ibv_context> device, std::span<const wq_ref> queues,
                                              std::error_code& ec) noexcept {
        rwq_ind_table result;
        detail::assign(ec, result.init(device, queues));
        return result;
    }

    /// Takes over a table that ibv_create_rwq_ind_table made; it will be ended by ibv_destroy_rwq_ind_table. Its queues
    /// must outlive it.
    /// @param ec ENOMEM, and the object is still the caller's
    [[nodiscard]] static rwq_ind_table adopt(ibv_rwq_ind_table* raw, detail::parent<ibv_context> pinned,
                                             std::error_code& ec) noexcept {
        rwq_ind_table result;
        detail::assign(ec, result.take_over("ibv_create_rwq_ind_table", raw, pinned.pin()));
        return result;
    }

private:
    static constexpr const char* call = "ibv_create_rwq_ind_table";

    template <class Queue>
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device, std::span<const Queue> queues) noexcept {
        if (!device)
            return {call, EINVAL, "empty context"};
        if (!std::has_single_bit(queues.size()))
            return {call, EINVAL, "the number of queues is not a power of two"};
        auto* raws = new (std::nothrow) ibv_wq*[queues.size()];
        auto* pins = new (std::nothrow) detail::keep[queues.size()];
        detail::status result = {call, ENOMEM};
        if (raws != nullptr && pins != nullptr) {
            for (std::size_t i = 0; i < queues.size(); ++i) {
                const detail::parent<ibv_wq> queue(queues[i]);
                raws[i] = queue.native_handle();
                pins[i] = queue.pin();
            }
            ibv_rwq_ind_table_init_attr attr{};
            attr.log_ind_tbl_size = static_cast<std::uint32_t>(std::countr_zero(queues.size()));
            attr.ind_tbl = raws;
            result = make(
                call, [&]() noexcept { return ::ibv_create_rwq_ind_table(device.native_handle(), &attr); },
                device.pin());
        }
        if (!result.failed())
            std::swap(detail::passkey::block(*this)->queues, pins);
        delete[] pins;
        delete[] raws;
        return result;
    }
};

} // namespace rdmaxx::inline v0

#endif
