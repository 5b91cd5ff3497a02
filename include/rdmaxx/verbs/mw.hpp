// struct ibv_mw, a memory window: ibv_alloc_mw(3), ibv_bind_mw(3).
#ifndef RDMAXX_VERBS_MW_HPP
#define RDMAXX_VERBS_MW_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/fwd.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/pd.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace rdmaxx::inline v0 {

/// enum ibv_mw_type.
enum class mw_type : int {
    type_1 = IBV_MW_TYPE_1, ///< bound by qp.bind_mw(); any queue pair of the PD may then use it
    type_2 = IBV_MW_TYPE_2, ///< bound by send_wr::bind_mw(); of one queue pair, and peers may invalidate it
};

[[nodiscard]] constexpr const char* to_string(mw_type type) noexcept {
    switch (type) {
    case mw_type::type_1: return "type_1";
    case mw_type::type_2: return "type_2";
    }
    return "unknown";
}

/// The rkey that the next bind of a type 2 window may have: the same window, another 8 low bits.
/// C call: ibv_inc_rkey(3).
[[nodiscard]] inline rkey inc_rkey(rkey key) noexcept {
    return rkey{::ibv_inc_rkey(value(key))};
}

/// What a window shall show: a piece of a memory region, and what peers may do to it. Made from a region with
/// access::mw_bind, which must stay until the window is bound elsewhere, invalidated or gone.
struct mw_bind_info {
    /// Nothing: unbinds a type 1 window.
    mw_bind_info() noexcept = default;

    /// `length` bytes from `offset` on.
    /// @param flags remote_read, remote_write, remote_atomic; a region with local_write is needed for the last two.
    ///        With zero_based peers address it from 0 on.
    /// @throws error ERANGE if they do not lie inside the region
    mw_bind_info(mr_ref region, std::size_t offset, std::size_t length, access flags) {
        detail::check(init(region, offset, length, flags));
    }
    [[nodiscard]] static mw_bind_info create(mr_ref region, std::size_t offset, std::size_t length, access flags,
                                             std::error_code& ec) noexcept {
        mw_bind_info result;
        detail::assign(ec, result.init(region, offset, length, flags));
        return result;
    }

    /// Of an iova_mr (verbs/iova_mr.hpp), whose addresses it has.
    template <class Region>
        requires std::same_as<Region, iova_mr> mw_bind_info(const Region& region, std::size_t offset,
                                                            std::size_t length, access flags) {
            detail::check(init(region, offset, length, flags));
        }
    template <class Region>
        requires std::same_as<Region, iova_mr>
    [[nodiscard]] static mw_bind_info create(const Region& region, std::size_t offset, std::size_t length, access flags,
                                             std::error_code& ec) noexcept {
        mw_bind_info result;
        detail::assign(ec, result.init(region, offset, length, flags));
        return result;
    }

    /// The C struct.
    [[nodiscard]] const ibv_mw_bind_info& raw() const noexcept { return raw_; }

    /// What a peer needs once the window is bound to this, with the key that it then has.
    /// @throws error ERANGE if it is longer than 4 GiB - 1
    [[nodiscard]] remote_buffer remote(rkey key) const {
        remote_buffer result;
        detail::check(do_remote(key, result));
        return result;
    }
    [[nodiscard]] remote_buffer remote(rkey key, std::error_code& ec) const noexcept {
        remote_buffer result;
        detail::assign(ec, do_remote(key, result));
        return result;
    }

private:
    [[nodiscard]] static std::uint64_t start_of(mr_ref region) noexcept {
        return reinterpret_cast<std::uintptr_t>(region.addr());
    }
    [[nodiscard]] static std::uint64_t start_of(const auto& region) noexcept { return region.iova(); }

    [[nodiscard]] detail::status init(const auto& region, std::size_t offset, std::size_t length,
                                      access flags) noexcept {
        if (!region)
            return {"ibv_mw_bind_info", EINVAL, "empty region"};
        if (offset > region.length() || length > region.length() - offset)
            return {"ibv_mw_bind_info", ERANGE, "the window does not lie inside the memory region"};
        raw_.mr = region.native_handle();
        raw_.addr = start_of(region) + offset;
        raw_.length = length;
        raw_.mw_access_flags = static_cast<decltype(raw_.mw_access_flags)>(detail::bits(flags));
        return {};
    }
    [[nodiscard]] detail::status do_remote(rkey key, remote_buffer& out) const noexcept {
        const auto flags = static_cast<access>(raw_.mw_access_flags);
        return detail::peer_view_of(has(flags, access::zero_based) ? 0 : raw_.addr,
                                    static_cast<std::size_t>(raw_.length), key, out);
    }

    ibv_mw_bind_info raw_{};
};

namespace detail {

struct mw_traits {
    using raw_type = ibv_mw;
    using ref_type = mw_ref;
    using block = detail::block<ibv_mw, 1>; // pd
    static status destroy(block& b) noexcept { return check_number("ibv_dealloc_mw", ::ibv_dealloc_mw(b.raw)); }
};

/// The operations of mw and mw_ref.
template <class Handle>
class mw_ops : public Handle {
public:
    using Handle::Handle;

    /// For a type 1 window, of its last bind (qp.bind_mw). For a type 2 window, of its making: its binds say theirs.
    [[nodiscard]] rdmaxx::rkey rkey() const noexcept { return rdmaxx::rkey{this->native_handle()->rkey}; }
    [[nodiscard]] mw_type type() const noexcept { return static_cast<mw_type>(this->native_handle()->type); }
    [[nodiscard]] pd_ref pd() const noexcept { return pd_ref(this->native_handle()->pd); }
};

} // namespace detail

/// A memory window that somebody else owns.
class mw_ref : public detail::mw_ops<detail::ref<ibv_mw>> {
public:
    using mw_ops::mw_ops;
};

/// A memory window: remote access to a piece of a memory region that is granted and taken back by posting, without a
/// registration. It ends exactly when its owner ends; while it is bound, its region cannot (EBUSY).
///
///     const mw window(pd, mw_type::type_2);
///     const rkey key = inc_rkey(window.rkey());
///     const mw_bind_info part(region, 0, 64, access::remote_read);
///     qp.post_send(send_wr::bind_mw(window, key, part).signaled()); // then tell the peer part.remote(key)
///     qp.post_send(send_wr::local_inv(key).signaled());             // and take it back
///
/// C calls: ibv_alloc_mw(3), ibv_dealloc_mw(3). Any number of threads may use one window.
class mw : public detail::mw_ops<detail::owner<detail::mw_traits>> {
public:
    mw() noexcept = default;

    /// System call.
    /// @param domain a pd, which is kept allocated, or a pd_ref, which must outlive the window
    /// @throws error EOPNOTSUPP for a device without windows of that type, ENOMEM
    mw(detail::parent<ibv_pd> domain, mw_type type) { detail::check(init(domain, type)); }
    [[nodiscard]] static mw create(detail::parent<ibv_pd> domain, mw_type type, std::error_code& ec) noexcept {
        mw result;
        detail::assign(ec, result.init(domain, type));
        return result;
    }

    /// Takes over a window that ibv_alloc_mw made; it will be deallocated by ibv_dealloc_mw.
    /// @param ec ENOMEM, and the window is still the caller's
    [[nodiscard]] static mw adopt(ibv_mw* raw, detail::parent<ibv_pd> pinned, std::error_code& ec) noexcept {
        mw result;
        detail::assign(ec, result.take_over("ibv_alloc_mw", raw, pinned.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, mw_type type) noexcept {
        if (!domain)
            return {"ibv_alloc_mw", EINVAL, "empty PD"};
        return make(
            "ibv_alloc_mw",
            [&]() noexcept { return ::ibv_alloc_mw(domain.native_handle(), static_cast<ibv_mw_type>(type)); },
            domain.pin());
    }
};

} // namespace rdmaxx::inline v0

#endif
