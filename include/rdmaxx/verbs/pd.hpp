// struct ibv_pd, a protection domain: ibv_alloc_pd(3), ibv_import_pd(3).
#ifndef RDMAXX_VERBS_PD_HPP
#define RDMAXX_VERBS_PD_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/context.hpp>

#include <cstdint>

namespace rdmaxx::inline v0 {
namespace detail {

struct pd_traits {
    using raw_type = ibv_pd;
    using ref_type = pd_ref;
    struct block : detail::block<ibv_pd, 3> { // context; a parent domain: its PD and its thread domain
        using detail::block<ibv_pd, 3>::block;
        bool imported = false;
    };
    static status destroy(block& b) noexcept {
#if RDMAXX_HAS_LINUX_VERBS
        if (b.imported) {
            ::ibv_unimport_pd(b.raw);
            return {};
        }
#endif
        return check_number("ibv_dealloc_pd", ::ibv_dealloc_pd(b.raw));
    }
};

/// The context that a PD keeps open, if it does.
[[nodiscard]] inline keep context_pin(const keep& domain) noexcept {
    return domain.get() != nullptr ? static_cast<pd_traits::block*>(domain.get())->parents[0] : keep();
}

/// The operations of pd and pd_ref.
template <class Handle>
class pd_ops : public Handle {
public:
    using Handle::Handle;

    /// The device that it belongs to.
    [[nodiscard]] context_ref context() const noexcept { return context_ref(this->native_handle()->context); }

    /// What pd::import_pd takes in another process.
    [[nodiscard]] std::uint32_t handle() const noexcept { return this->native_handle()->handle; }
};

} // namespace detail

/// A protection domain that is somebody else's. An id brings one (cm_id::pd): it belongs to librdmacm, which keeps one
/// for each device as long as any id of that device lives.
class pd_ref : public detail::pd_ops<detail::ref<ibv_pd>> {
public:
    using pd_ops::pd_ops;
};

/// A protection domain: memory regions and queue pairs of one domain can be used together. It stays allocated until
/// this owner and the last object made from it are gone.
///
/// C calls: ibv_alloc_pd(3), ibv_dealloc_pd(3). Any number of threads may use one PD.
class pd : public detail::pd_ops<detail::owner<detail::pd_traits>> {
public:
    pd() noexcept = default;

    /// @param device a context, which is kept open, or a context_ref, which must outlive the PD
    explicit pd(detail::parent<ibv_context> device) { detail::check(init(device)); }
    [[nodiscard]] static pd create(detail::parent<ibv_context> device, std::error_code& ec) noexcept {
        pd result;
        detail::assign(ec, result.init(device));
        return result;
    }

    /// Takes over a PD that ibv_alloc_pd made; it will be deallocated by ibv_dealloc_pd.
    /// @param pinned what to keep open as long as the PD
    /// @param ec ENOMEM, and the PD is still the caller's
    [[nodiscard]] static pd adopt(ibv_pd* raw, detail::parent<ibv_context> pinned, std::error_code& ec) noexcept {
        pd result;
        detail::assign(ec, result.take_over("ibv_alloc_pd", raw, pinned.pin()));
        return result;
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// A domain of another process, by its handle there; `device` was imported (context::import_device). It is given
    /// back by ibv_unimport_pd; the domain itself stays, and must stay, the other process's.
    /// @throws error EOPNOTSUPP for a driver without it
    /// C call: ibv_import_pd(3).
    [[nodiscard]] static pd import_pd(detail::parent<ibv_context> device, std::uint32_t handle) {
        pd result;
        detail::check(result.import(device, handle));
        return result;
    }
    [[nodiscard]] static pd import_pd(detail::parent<ibv_context> device, std::uint32_t handle,
                                      std::error_code& ec) noexcept {
        pd result;
        detail::assign(ec, result.import(device, handle));
        return result;
    }
#endif

private:
#if RDMAXX_HAS_LINUX_VERBS
    [[nodiscard]] detail::status import(detail::parent<ibv_context> device, std::uint32_t handle) noexcept {
        if (!device)
            return {"ibv_import_pd", EINVAL, "empty context"};
        const detail::status result = make(
            "ibv_import_pd", [&]() noexcept { return ::ibv_import_pd(device.native_handle(), handle); }, device.pin());
        if (!result.failed())
            detail::passkey::block(*this)->imported = true;
        return result;
    }
#endif

    [[nodiscard]] detail::status init(detail::parent<ibv_context> device) noexcept {
        if (!device)
            return {"ibv_alloc_pd", EINVAL, "empty context"};
        return make(
            "ibv_alloc_pd", [&]() noexcept { return ::ibv_alloc_pd(device.native_handle()); }, device.pin());
    }
};

} // namespace rdmaxx::inline v0

#endif
