// struct ibv_cq, a completion queue: ibv_create_cq(3), ibv_poll_cq(3), ibv_req_notify_cq(3), ibv_resize_cq(3).
#ifndef RDMAXX_VERBS_CQ_HPP
#define RDMAXX_VERBS_CQ_HPP

#include <rdmaxx/detail/async_blocks.hpp>
#include <rdmaxx/detail/comp_channel_block.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/wc.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace rdmaxx::inline v0 {
namespace detail {

struct cq_traits {
    using raw_type = ibv_cq;
    using ref_type = cq_ref;
    struct block : detail::block<ibv_cq, 3> { // context, comp_channel, parent domain
        using detail::block<ibv_cq, 3>::block;
        cq_table::entry entry;
    };
    static comp_channel_traits::block* channel(block& b) noexcept {
        return static_cast<comp_channel_traits::block*>(b.parents[1].get());
    }
    static context_traits::block* context(block& b) noexcept {
        return static_cast<context_traits::block*>(b.parents[0].get());
    }
    static void came(block& b) noexcept {
        detail::came(context(b), b.raw);
        attach(b);
    }
    static status destroy(block& b) noexcept {
        detach(b);
        const status result =
            destroy_unheld(context(b), b.raw, "ibv_destroy_cq", [&b]() noexcept { return ::ibv_destroy_cq(b.raw); });
        if (result.failed())
            attach(b);
        return result;
    }
    static void detach(block& b) noexcept {
        if (comp_channel_traits::block* c = channel(b)) {
            const mutex_guard guard(c->lock);
            c->cqs.erase(b.entry);
        }
    }
    static void attach(block& b) noexcept {
        if (comp_channel_traits::block* c = channel(b)) {
            const mutex_guard guard(c->lock);
            b.entry.raw = b.raw;
            b.entry.owner = &b;
            c->cqs.insert(b.entry);
        }
    }
};

/// What a failing poll means: providers return -1 without errno, a code of their own (-2, mlx5's, mlx4's and hns's
/// CQ_POLL_ERR, whose number is ENOENT's), or a negative errno.
[[nodiscard]] inline int poll_error(int result) noexcept {
    return result < -2 ? -result : EIO;
}

/// The operations of cq and cq_ref.
template <class Handle>
class cq_ops : public Handle {
public:
    using Handle::Handle;

    /// How many completions it can hold: what was granted, at least what was asked for.
    [[nodiscard]] int size() const noexcept { return this->native_handle()->cqe; }

    /// Takes completions that are there. Data path: no system call, no lock of ours, never blocks.
    /// @return the filled part of `completions`; empty if there is none now
    /// @throws error if the CQ is broken (an overrun, for one: it was too small)
    [[nodiscard]] std::span<wc> poll(std::span<wc> completions) const {
        return completions.first(poll_or_throw(completions.size(), raw(completions)));
    }
    [[nodiscard]] std::span<wc> poll(std::span<wc> completions, std::error_code& ec) const noexcept {
        return completions.first(poll_or_error(completions.size(), raw(completions), ec));
    }
    [[nodiscard]] std::span<ibv_wc> poll(std::span<ibv_wc> completions) const {
        return completions.first(poll_or_throw(completions.size(), completions.data()));
    }
    [[nodiscard]] std::span<ibv_wc> poll(std::span<ibv_wc> completions, std::error_code& ec) const noexcept {
        return completions.first(poll_or_error(completions.size(), completions.data(), ec));
    }

    /// The C call, with the C call's result: how many, or negative.
    [[nodiscard]] int try_poll(std::span<wc> completions) const noexcept {
        return ::ibv_poll_cq(this->native_handle(), clipped(completions.size()), raw(completions));
    }

    /// Asks for an event on the completion channel when the next completion comes. A completion that is there already
    /// raises none: poll after this call and before sleeping (comp_channel::wait does).
    /// Data path. C call: ibv_req_notify_cq(3).
    /// @param solicited_only only for receives whose sender asked for it, and for failures
    void request_notify(bool solicited_only = false) const {
        if (const int error = try_request_notify(solicited_only)) [[unlikely]]
            raise_number("ibv_req_notify_cq", error);
    }
    void request_notify(bool solicited_only, std::error_code& ec) const noexcept {
        assign(ec, {"ibv_req_notify_cq", try_request_notify(solicited_only)});
    }
    /// @return 0 or an errno
    [[nodiscard]] int try_request_notify(bool solicited_only = false) const noexcept {
        return error_number(::ibv_req_notify_cq(this->native_handle(), solicited_only ? 1 : 0));
    }

    /// The device that it belongs to.
    [[nodiscard]] context_ref context() const noexcept { return context_ref(this->native_handle()->context); }

    /// The program's own pointer, which in C a get of its events gives; null until it is set. Not for two threads at
    /// once.
    [[nodiscard]] void* cq_context() const noexcept { return this->native_handle()->cq_context; }
    void set_cq_context(void* value) const noexcept { this->native_handle()->cq_context = value; }

    /// Makes room for `cqe` completions at least; size() says what was granted. Completions that are there stay. System
    /// call.
    /// @throws error EINVAL for fewer than are there, or more than the device has; EOPNOTSUPP
    /// C call: ibv_resize_cq(3).
    void resize(int cqe) const { check(do_resize(cqe)); }
    void resize(int cqe, std::error_code& ec) const noexcept { assign(ec, do_resize(cqe)); }

#if RDMAXX_HAS_LINUX_VERBS
    /// One event for several completions: after `count` of them, or `period` microseconds after the first. System call.
    /// @throws error EOPNOTSUPP for a device without (ibv_device_attr_ex::cq_mod_caps)
    /// C call: ibv_modify_cq(3).
    void moderate(std::uint16_t count, std::uint16_t period) const {
        check(do_moderate(count, period));
    }
    void moderate(std::uint16_t count, std::uint16_t period, std::error_code& ec) const noexcept {
        assign(ec, do_moderate(count, period));
    }
#endif

private:
    [[nodiscard]] status do_resize(int cqe) const noexcept {
        return check_call("ibv_resize_cq", ::ibv_resize_cq, this->native_handle(), cqe);
    }
#if RDMAXX_HAS_LINUX_VERBS
    [[nodiscard]] status do_moderate(std::uint16_t count, std::uint16_t period) const noexcept {
        ibv_modify_cq_attr attr{};
        attr.attr_mask = IBV_CQ_ATTR_MODERATE;
        attr.moderate = {count, period};
        return check_call("ibv_modify_cq", ::ibv_modify_cq, this->native_handle(), &attr);
    }
#endif

    [[nodiscard]] static ibv_wc* raw(std::span<wc> completions) noexcept {
        // wc is an ibv_wc and nothing else (asserted in wc.hpp).
        return reinterpret_cast<ibv_wc*>(completions.data());
    }
    [[nodiscard]] static int clipped(std::size_t count) noexcept {
        constexpr std::size_t most = std::numeric_limits<int>::max();
        return static_cast<int>(count < most ? count : most);
    }
    [[nodiscard]] std::size_t poll_or_throw(std::size_t room, ibv_wc* out) const {
        const int count = ::ibv_poll_cq(this->native_handle(), clipped(room), out);
        if (count < 0) [[unlikely]]
            raise_broken(count);
        return static_cast<std::size_t>(count);
    }
    [[nodiscard]] std::size_t poll_or_error(std::size_t room, ibv_wc* out, std::error_code& ec) const noexcept {
        const int count = ::ibv_poll_cq(this->native_handle(), clipped(room), out);
        if (count < 0) [[unlikely]] {
            ec = code_of_broken(count);
            return 0;
        }
        clear(ec);
        return static_cast<std::size_t>(count);
    }
    [[nodiscard]] static status broken(int result) noexcept {
        return {"ibv_poll_cq", poll_error(result), "the CQ is broken (overrun, or a device failure)"};
    }
    [[noreturn]] RDMAXX_COLD static void raise_broken(int result) {
        raise(broken(result));
    }
    [[nodiscard]] RDMAXX_COLD static std::error_code code_of_broken(int result) noexcept {
        return broken(result).code();
    }
};

} // namespace detail

/// A CQ that somebody else owns.
class cq_ref : public detail::cq_ops<detail::ref<ibv_cq>> {
public:
    using cq_ops::cq_ops;
};

/// A completion queue. It stays until this owner, the queue pairs that use it and its events are gone.
///
/// C calls: ibv_create_cq(3), ibv_destroy_cq(3). Any number of threads may poll one CQ; libibverbs locks.
class cq : public detail::cq_ops<detail::owner<detail::cq_traits>> {
public:
    cq() noexcept = default;

    /// System call.
    /// @param device a context, which is kept open, or a context_ref, which must outlive the CQ
    /// @param cqe how many completions at least, from 1: all that can be outstanding at once of every queue on it, and
    ///         one more of each that qp::drain is for (cq_room counts). An overrun loses completions, or breaks the CQ,
    ///         and nothing but an asynchronous event tells (async_event_type::cq_err): who waits for a completion that
    ///         was lost waits in vain.
    /// @param channel where its events arrive; without one the CQ can only be polled. A comp_channel is kept, a
    ///         comp_channel_ref must outlive the CQ.
    /// @param comp_vector from 0 to below the context's num_comp_vectors: which interrupt
    /// @throws error EINVAL for a size or vector that the device does not have, ENOMEM
    cq(detail::parent<ibv_context> device, int cqe, detail::parent<ibv_comp_channel> channel = {},
       int comp_vector = 0) {
        detail::check(init(device, cqe, channel, comp_vector));
    }
    [[nodiscard]] static cq create(detail::parent<ibv_context> device, int cqe,
                                   detail::parent<ibv_comp_channel> channel, int comp_vector,
                                   std::error_code& ec) noexcept {
        cq result;
        detail::assign(ec, result.init(device, cqe, channel, comp_vector));
        return result;
    }

    /// Takes over a CQ that ibv_create_cq made; it will be destroyed by ibv_destroy_cq.
    /// @param ec ENOMEM, and the CQ is still the caller's
    [[nodiscard]] static cq adopt(ibv_cq* raw, detail::parent<ibv_context> device,
                                  detail::parent<ibv_comp_channel> channel, std::error_code& ec) noexcept {
        cq result;
        detail::assign(ec, result.take_over("ibv_create_cq", raw, device.pin(), channel.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device, int cqe,
                                      detail::parent<ibv_comp_channel> channel, int comp_vector) noexcept {
        if (!device)
            return {"ibv_create_cq", EINVAL, "empty context"};
        if (channel.given_empty())
            return {"ibv_create_cq", EINVAL, "empty completion channel"};
        return make(
            "ibv_create_cq",
            [&]() noexcept {
                return ::ibv_create_cq(device.native_handle(), cqe, nullptr, channel.native_handle(), comp_vector);
            },
            device.pin(), channel.pin());
    }
};

} // namespace rdmaxx::inline v0

#endif
