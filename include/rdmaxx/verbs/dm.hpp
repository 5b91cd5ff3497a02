// struct ibv_dm, memory on the device itself: ibv_alloc_dm(3), ibv_memcpy_to_dm(3), ibv_import_dm(3).
#ifndef RDMAXX_VERBS_DM_HPP
#define RDMAXX_VERBS_DM_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/context.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#if !RDMAXX_HAS_LINUX_VERBS
struct ibv_dm;
#endif

namespace rdmaxx::inline v0 {

#if RDMAXX_HAS_LINUX_VERBS
namespace detail {

struct dm_traits {
    using raw_type = ibv_dm;
    using ref_type = dm_ref;
    struct block : detail::block<ibv_dm, 1> { // context
        using detail::block<ibv_dm, 1>::block;
        bool imported = false;
    };
    static status destroy(block& b) noexcept {
        if (!b.imported)
            return check_number("ibv_free_dm", ::ibv_free_dm(b.raw));
        unimport_dm(b.raw);
        return {};
    }
};

/// The operations of dm and dm_ref.
template <class Handle>
class dm_ops : public Handle {
public:
    using Handle::Handle;

    /// The device that it belongs to.
    [[nodiscard]] context_ref context() const noexcept { return context_ref(this->native_handle()->context); }

    /// Copies into device memory, from `offset` on. The processor does it: for small pieces. Devices want offset and
    /// size in multiples of 4.
    /// @throws error EINVAL for what does not lie inside, or is not aligned
    /// C call: ibv_memcpy_to_dm(3).
    void memcpy_to_dm(std::uint64_t offset, std::span<const std::byte> from) const { check(do_copy_to(offset, from)); }
    void memcpy_to_dm(std::uint64_t offset, std::span<const std::byte> from, std::error_code& ec) const noexcept {
        assign(ec, do_copy_to(offset, from));
    }

    /// Copies out of device memory, from `offset` on. C call: ibv_memcpy_from_dm(3).
    void memcpy_from_dm(std::span<std::byte> to, std::uint64_t offset) const { check(do_copy_from(to, offset)); }
    void memcpy_from_dm(std::span<std::byte> to, std::uint64_t offset, std::error_code& ec) const noexcept {
        assign(ec, do_copy_from(to, offset));
    }

    /// A new descriptor of a dma-buf of this memory, the caller's to close.
    /// @throws error EOPNOTSUPP for a driver without it
    /// C call: ibv_dm_export_dmabuf_fd(3), rdma-core 62.
    template <class Dm = ibv_dm>
        requires has_dm_dmabuf<Dm>
    [[nodiscard]] int export_dmabuf_fd() const {
        int fd = -1;
        check(do_export<Dm>(fd));
        return fd;
    }
    template <class Dm = ibv_dm>
        requires has_dm_dmabuf<Dm>
    [[nodiscard]] int export_dmabuf_fd(std::error_code& ec) const noexcept {
        int fd = -1;
        assign(ec, do_export<Dm>(fd));
        return fd;
    }

    /// What dm::import_dm takes in another process.
    [[nodiscard]] std::uint32_t handle() const noexcept { return this->native_handle()->handle; }

private:
    [[nodiscard]] status do_copy_to(std::uint64_t offset, std::span<const std::byte> from) const noexcept {
        return check_call("ibv_memcpy_to_dm", ::ibv_memcpy_to_dm, this->native_handle(), offset, from.data(),
                          from.size());
    }
    [[nodiscard]] status do_copy_from(std::span<std::byte> to, std::uint64_t offset) const noexcept {
        const auto copy = [&](ibv_dm* from) noexcept {
            return ::ibv_memcpy_from_dm(to.data(), from, offset, to.size());
        };
        return check_call("ibv_memcpy_from_dm", copy, this->native_handle());
    }
    template <class Dm>
    [[nodiscard]] status do_export(int& fd) const noexcept {
        Dm* raw = this->native_handle();
        if (raw == nullptr)
            return {"ibv_dm_export_dmabuf_fd", EINVAL, empty_handle};
        errno = 0;
        fd = ibv_dm_export_dmabuf_fd(raw);
        return fd >= 0 ? status{} : status{"ibv_dm_export_dmabuf_fd", last_errno()};
    }
};

} // namespace detail

/// Device memory that somebody else owns.
class dm_ref : public detail::dm_ops<detail::ref<ibv_dm>> {
public:
    using dm_ops::dm_ops;
};

/// Memory on the device, which requests reach without crossing the bus: iova_mr::reg_dm_mr. It stays until this owner
/// and the regions made from it are gone.
///
/// C calls: ibv_alloc_dm(3), ibv_free_dm(3). Few devices have some (ibv_device_attr_ex::max_dm_size). Any number of
/// threads may use one; copies to the same bytes are theirs to order.
class dm : public detail::dm_ops<detail::owner<detail::dm_traits>> {
public:
    dm() noexcept = default;

    /// System call.
    /// @param device a context, which is kept open, or a context_ref, which must outlive the memory
    /// @param length bytes
    /// @param log_align the address is a multiple of 2 to that power
    /// @throws error EOPNOTSUPP for a device without, ENOMEM, EINVAL
    dm(detail::parent<ibv_context> device, std::size_t length, std::uint32_t log_align = 0) {
        detail::check(init(device, length, log_align));
    }
    [[nodiscard]] static dm create(detail::parent<ibv_context> device, std::size_t length, std::uint32_t log_align,
                                   std::error_code& ec) noexcept {
        dm result;
        detail::assign(ec, result.init(device, length, log_align));
        return result;
    }

    /// Memory of another process, by its handle there; `device` was imported (context::import_device). It is given back
    /// by ibv_unimport_dm; the memory itself stays the other process's.
    /// @throws error EOPNOTSUPP for a driver without it
    /// C call: ibv_import_dm(3).
    [[nodiscard]] static dm import_dm(detail::parent<ibv_context> device, std::uint32_t handle) {
        dm result;
        detail::check(result.import(device, handle));
        return result;
    }
    [[nodiscard]] static dm import_dm(detail::parent<ibv_context> device, std::uint32_t handle,
                                      std::error_code& ec) noexcept {
        dm result;
        detail::assign(ec, result.import(device, handle));
        return result;
    }

    /// Takes over memory that ibv_alloc_dm made; it will be freed by ibv_free_dm.
    /// @param ec ENOMEM, and the memory is still the caller's
    [[nodiscard]] static dm adopt(ibv_dm* raw, detail::parent<ibv_context> pinned, std::error_code& ec) noexcept {
        dm result;
        detail::assign(ec, result.take_over("ibv_alloc_dm", raw, pinned.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device, std::size_t length,
                                      std::uint32_t log_align) noexcept {
        if (!device)
            return {"ibv_alloc_dm", EINVAL, "empty context"};
        ibv_alloc_dm_attr attr{};
        attr.length = length;
        attr.log_align_req = log_align;
        return make(
            "ibv_alloc_dm", [&]() noexcept { return ::ibv_alloc_dm(device.native_handle(), &attr); }, device.pin());
    }

    [[nodiscard]] detail::status import(detail::parent<ibv_context> device, std::uint32_t handle) noexcept {
        if (!device)
            return {"ibv_import_dm", EINVAL, "empty context"};
        const detail::status result = make(
            "ibv_import_dm", [&]() noexcept { return detail::import_dm(device.native_handle(), handle); },
            device.pin());
        if (!result.failed())
            detail::passkey::block(*this)->imported = true;
        return result;
    }
};
#endif

} // namespace rdmaxx::inline v0

#endif
