// struct ibv_buf, memory that the driver allocates for registration: ibv_alloc_buf(3). rdma-core 64.
#ifndef RDMAXX_VERBS_BUF_HPP
#define RDMAXX_VERBS_BUF_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/pd.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace rdmaxx::inline v0 {
namespace detail {

struct buf_traits {
    using raw_type = ibv_buf;
    using ref_type = buf_ref;
    struct block : detail::block<ibv_buf, 1> { // pd
        using detail::block<ibv_buf, 1>::block;
        void* addr = nullptr;
        std::size_t size = 0;
        ibv_pd* pd = nullptr;
    };
    template <class Block>
    static status destroy(Block& b) noexcept {
        if constexpr (has_buf<std::remove_pointer_t<decltype(b.raw)>>) {
            ibv_free_buf(b.raw);
            return {};
        } else {
            return {"ibv_free_buf", ENOSYS};
        }
    }
};

} // namespace detail

/// A buffer that somebody else owns.
class buf_ref : public detail::ref<ibv_buf> {
public:
    using ref::ref;
};

/// Memory that the driver allocates where devices can reach it: in a confidential virtual machine, outside of the
/// encrypted part. It is registered by reg_mr(), in the PD that it is of, and stays until this owner and those regions
/// are gone.
///
/// C calls: ibv_alloc_buf(3), ibv_free_buf(3), ibv_reg_buf_mr(3); what makes one is there with rdma-core 64
/// (RDMAXX_HAS_BUF). Any number of threads may register parts of one.
class buf : public detail::owner<detail::buf_traits> {
public:
    buf() noexcept = default;

    /// @throws error EOPNOTSUPP for a driver without, ENOMEM
    template <class Raw = ibv_buf>
        requires detail::has_buf<Raw> buf(detail::parent<ibv_pd> domain, std::size_t size) {
            detail::check(init<Raw>(domain, size));
        }
    template <class Raw = ibv_buf>
        requires detail::has_buf<Raw>
    [[nodiscard]] static buf create(detail::parent<ibv_pd> domain, std::size_t size, std::error_code& ec) noexcept {
        buf result;
        detail::assign(ec, result.template init<Raw>(domain, size));
        return result;
    }

    /// Takes over a buffer that ibv_alloc_buf made; it will be freed by ibv_free_buf.
    /// @param memory what ibv_alloc_buf returned, and its size
    /// @param domain the PD that it was allocated in
    /// @param ec ENOMEM, and the buffer is still the caller's
    [[nodiscard]] static buf adopt(ibv_buf* raw, std::span<std::byte> memory, detail::parent<ibv_pd> domain,
                                   std::error_code& ec) noexcept {
        buf result;
        const detail::status made = result.take_over("ibv_alloc_buf", raw, domain.pin());
        detail::assign(ec, made);
        if (!made.failed())
            result.enter(memory.data(), memory.size(), domain);
        return result;
    }

    /// The memory. Empty for an empty owner.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept RDMAXX_LIFETIMEBOUND {
        const auto* b = detail::passkey::block(*this);
        return b != nullptr ? std::span(static_cast<std::byte*>(b->addr), b->size) : std::span<std::byte>();
    }

    /// Registers the memory, in its PD: the device refuses others. The region keeps it.
    /// @throws error as mr
    /// C call: ibv_reg_buf_mr(3).
    template <class Raw = ibv_buf>
        requires detail::has_buf<Raw>
    [[nodiscard]] mr reg_mr(access flags = access::local_write) const { return reg_mr<Raw>(0, bytes().size(), flags); }
    template <class Raw = ibv_buf>
        requires detail::has_buf<Raw>
    [[nodiscard]] mr reg_mr(access flags, std::error_code& ec) const noexcept {
        return reg_mr<Raw>(0, bytes().size(), flags, ec);
    }

    /// The same of `length` bytes from `offset` on.
    /// @throws error ERANGE if they do not lie inside
    template <class Raw = ibv_buf>
        requires detail::has_buf<Raw>
    [[nodiscard]] mr reg_mr(std::size_t offset, std::size_t length, access flags = access::local_write) const {
        mr result;
        const detail::status status = do_reg<Raw>(offset, length, flags, result);
        detail::check(status, detail::registration{length, status.value});
        return result;
    }
    template <class Raw = ibv_buf>
        requires detail::has_buf<Raw>
    [[nodiscard]] mr reg_mr(std::size_t offset, std::size_t length, access flags, std::error_code& ec) const noexcept {
        mr result;
        detail::assign(ec, do_reg<Raw>(offset, length, flags, result));
        return result;
    }

    /// A new descriptor of a dma-buf of this memory, the caller's to close.
    /// @throws error ENODATA for a buffer in memory of the process, which has none, EOPNOTSUPP
    /// C call: ibv_export_buf_dmabuf_fd(3), rdma-core 65.
    template <class Raw = ibv_buf>
        requires detail::has_buf_dmabuf<Raw>
    [[nodiscard]] int export_dmabuf_fd() const {
        int fd = -1;
        detail::check(do_export<Raw>(fd));
        return fd;
    }
    template <class Raw = ibv_buf>
        requires detail::has_buf_dmabuf<Raw>
    [[nodiscard]] int export_dmabuf_fd(std::error_code& ec) const noexcept {
        int fd = -1;
        detail::assign(ec, do_export<Raw>(fd));
        return fd;
    }

private:
    template <class Raw>
    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, std::size_t size) noexcept {
        if (!domain)
            return {"ibv_alloc_buf", EINVAL, "empty PD"};
        void* addr = nullptr;
        const detail::status result = make(
            "ibv_alloc_buf",
            [&]() noexcept {
                Raw* made = nullptr;
                addr = ibv_alloc_buf(domain.native_handle(), size, &made);
                return addr != nullptr ? made : nullptr;
            },
            domain.pin());
        if (!result.failed())
            enter(addr, size, domain);
        return result;
    }

    void enter(void* addr, std::size_t size, detail::parent<ibv_pd> domain) noexcept {
        auto* b = detail::passkey::block(*this);
        b->addr = addr;
        b->size = size;
        b->pd = domain.native_handle();
    }

    template <class Raw>
    [[nodiscard]] detail::status do_reg(std::size_t offset, std::size_t length, access flags, mr& out) const noexcept {
        Raw* raw = native_handle();
        auto* b = detail::passkey::block(*this);
        if (raw == nullptr || b->pd == nullptr)
            return {"ibv_reg_buf_mr", EINVAL, raw == nullptr ? "empty buffer" : "adopted without its PD"};
        if (detail::lacks_local_write(flags))
            return {"ibv_reg_buf_mr", EINVAL, detail::needs_local_write};
        const std::span<std::byte> memory = bytes();
        if (offset > memory.size() || length > memory.size() - offset)
            return {"ibv_reg_buf_mr", ERANGE, "the piece does not lie inside the buffer"};
        return out.enter(
            "ibv_reg_buf_mr",
            [&]() noexcept {
                return ibv_reg_buf_mr(b->pd, raw, memory.data() + offset, length,
                                      static_cast<int>(detail::bits(flags)));
            },
            b->parents[0], detail::keep(b));
    }

    template <class Raw>
    [[nodiscard]] detail::status do_export(int& fd) const noexcept {
        Raw* raw = native_handle();
        if (raw == nullptr)
            return {"ibv_export_buf_dmabuf_fd", EINVAL, detail::empty_handle};
        errno = 0;
        fd = ibv_export_buf_dmabuf_fd(raw);
        return fd >= 0 ? detail::status{} : detail::status{"ibv_export_buf_dmabuf_fd", detail::last_errno()};
    }
};

} // namespace rdmaxx::inline v0

#endif
