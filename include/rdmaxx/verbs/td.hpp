// struct ibv_td, a thread domain: ibv_alloc_td(3). And PDs of one: ibv_alloc_parent_domain(3).
#ifndef RDMAXX_VERBS_TD_HPP
#define RDMAXX_VERBS_TD_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/pd.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace rdmaxx::inline v0 {

#if RDMAXX_HAS_LINUX_VERBS
namespace detail {

struct td_traits {
    using raw_type = ibv_td;
    using ref_type = td_ref;
    using block = detail::block<ibv_td, 1>; // context
    static status destroy(block& b) noexcept { return check_number("ibv_dealloc_td", ::ibv_dealloc_td(b.raw)); }
};

} // namespace detail

/// A thread domain that somebody else owns.
class td_ref : public detail::ref<ibv_td> {
public:
    using ref::ref;
};

/// A thread domain: a promise that what is made in it is used by one thread at a time, so that the driver needs no
/// locks. It stays until this owner and the parent domains made from it are gone.
///
/// C calls: ibv_alloc_td(3), ibv_dealloc_td(3).
class td : public detail::owner<detail::td_traits> {
public:
    td() noexcept = default;

    /// @param device a context, which is kept open, or a context_ref, which must outlive the domain
    /// @throws error EOPNOTSUPP for a driver without thread domains (Soft-RoCE's), ENOMEM
    explicit td(detail::parent<ibv_context> device) { detail::check(init(device)); }
    [[nodiscard]] static td create(detail::parent<ibv_context> device, std::error_code& ec) noexcept {
        td result;
        detail::assign(ec, result.init(device));
        return result;
    }

    /// Takes over a domain that ibv_alloc_td made; it will be deallocated by ibv_dealloc_td.
    /// @param ec ENOMEM, and the domain is still the caller's
    [[nodiscard]] static td adopt(ibv_td* raw, detail::parent<ibv_context> pinned, std::error_code& ec) noexcept {
        td result;
        detail::assign(ec, result.take_over("ibv_alloc_td", raw, pinned.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device) noexcept {
        if (!device)
            return {"ibv_alloc_td", EINVAL, "empty context"};
        ibv_td_init_attr attr{};
        return make(
            "ibv_alloc_td", [&]() noexcept { return ::ibv_alloc_td(device.native_handle(), &attr); }, device.pin());
    }
};

/// Where a driver puts its queues: what parent_domain_attr::allocator takes. Both are called inside of other C calls
/// and must not use the library. allocate() gives null for no memory, or IBV_ALLOCATOR_USE_DEFAULT to leave it to the
/// driver.
/// @note `resource_type` is the driver's (mlx5dv_alloc_dm(3), for one)
template <class Allocator>
concept domain_allocator = requires(Allocator& allocator, std::size_t size, std::size_t alignment,
                                    std::uint64_t resource_type, void* memory) {
    { allocator.allocate(size, alignment, resource_type) }
    noexcept->std::same_as<void*>;
    { allocator.deallocate(memory, resource_type) }
    noexcept;
};

/// How a parent domain is made (struct ibv_parent_domain_init_attr): of a PD, with a thread domain, an allocator or
/// both.
class parent_domain_attr {
public:
    /// @param domain a pd, which is kept, or a pd_ref, which must outlive the parent domain
    explicit parent_domain_attr(detail::parent<ibv_pd> domain) noexcept : domain_(domain), domain_pin_(domain.pin()) {
        raw_.pd = domain.native_handle();
    }

    /// A td, which is kept, or a td_ref, which must outlive the parent domain.
    parent_domain_attr& td(detail::parent<ibv_td> value) noexcept {
        raw_.td = value.native_handle();
        td_pin_ = value.pin();
        empty_td_ = !value;
        return *this;
    }

    /// @param value must outlive what is made from the parent domain
    template <domain_allocator Allocator>
    parent_domain_attr& allocator(Allocator& value) noexcept {
        raw_.comp_mask |= IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        raw_.pd_context = &value;
        raw_.alloc = [](ibv_pd*, void* context, std::size_t size, std::size_t alignment,
                        std::uint64_t resource_type) noexcept {
            return static_cast<Allocator*>(context)->allocate(size, alignment, resource_type);
        };
        raw_.free = [](ibv_pd*, void* context, void* memory, std::uint64_t resource_type) noexcept {
            static_cast<Allocator*>(context)->deallocate(memory, resource_type);
        };
        return *this;
    }

#    if defined(IBV_DEVICE_CC_DMA_BOUNCE)
    /// In a confidential virtual machine: its queues may lie in memory that the host can read. rdma-core 64.
    parent_domain_attr& allow_cc_unprotected_alloc() noexcept {
        raw_.comp_mask |= IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
        return *this;
    }
#    endif

    /// The C struct.
    [[nodiscard]] const ibv_parent_domain_init_attr& raw() const noexcept { return raw_; }

private:
    friend class parent_domain;

    ibv_parent_domain_init_attr raw_{};
    detail::parent<ibv_pd> domain_;
    detail::keep domain_pin_;
    detail::keep td_pin_;
    bool empty_td_ = false;
};

/// A PD in whose place it can be used everywhere, and whose queues are of one thread, or in memory of the program's.
///
///     const td one_thread(context);
///     const parent_domain domain(parent_domain_attr(pd).td(one_thread));
///     const qp queue(domain, attr); // no locks inside
///
/// C calls: ibv_alloc_parent_domain(3), ibv_dealloc_pd(3).
class parent_domain : public pd {
public:
    parent_domain() noexcept = default;

    /// @throws error EOPNOTSUPP for a driver without parent domains (Soft-RoCE's), EINVAL, ENOMEM
    explicit parent_domain(const parent_domain_attr& attr) { detail::check(init(attr)); }
    [[nodiscard]] static parent_domain create(const parent_domain_attr& attr, std::error_code& ec) noexcept {
        parent_domain result;
        detail::assign(ec, result.init(attr));
        return result;
    }

private:
    [[nodiscard]] detail::status init(const parent_domain_attr& attr) noexcept {
        if (!attr.domain_)
            return {"ibv_alloc_parent_domain", EINVAL, "empty PD"};
        if (attr.empty_td_)
            return {"ibv_alloc_parent_domain", EINVAL, "empty thread domain"};
        ibv_parent_domain_init_attr copy = attr.raw_; // C takes it as non-const
        return make(
            "ibv_alloc_parent_domain",
            [&]() noexcept { return ::ibv_alloc_parent_domain(attr.raw_.pd->context, &copy); },
            detail::context_pin(attr.domain_pin_), attr.domain_pin_, attr.td_pin_);
    }
};
#endif

} // namespace rdmaxx::inline v0

#endif
