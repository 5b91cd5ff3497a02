// Registered memory whose addresses in requests are not the program's pointers: ibv_reg_mr_iova(3),
// ibv_reg_dmabuf_mr(3), ibv_alloc_null_mr(3), ibv_reg_dm_mr(3), ibv_import_mr(3), ibv_reg_mr_ex(3).
#ifndef RDMAXX_VERBS_IOVA_MR_HPP
#define RDMAXX_VERBS_IOVA_MR_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/dm.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/pd.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmaxx::inline v0 {
namespace detail {

struct iova_mr_traits {
    using raw_type = ibv_mr;
    using ref_type = ref<ibv_mr>;             // no mr_ref: that would take pointers for addresses
    struct block : detail::block<ibv_mr, 3> { // pd, what the memory is of, DMA handle
        using detail::block<ibv_mr, 3>::block;
        std::uint64_t iova = 0;
        std::size_t length = 0;
        bool imported = false;
    };
    static status destroy(block& b) noexcept {
#if RDMAXX_HAS_LINUX_VERBS
        if (b.imported) {
            ::ibv_unimport_mr(b.raw);
            return {};
        }
#endif
        return check_number("ibv_dereg_mr", ::ibv_dereg_mr(b.raw));
    }
};

} // namespace detail

/// How a region is registered with everything that a device may take: for iova_mr::reg_mr_ex.
///
///     iova_mr::reg_mr_ex(pd, mr_init_attr(buffer).iova(0).dmah(handle));
class mr_init_attr {
public:
    /// Memory of this process.
    template <detail::registrable Range>
        requires(!std::is_const_v<detail::element_of<Range>>)
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): registrable, which this class is not
    explicit mr_init_attr(Range&& range, rdmaxx::access flags = rdmaxx::access::local_write) noexcept
        : memory_(std::as_writable_bytes(std::span(range))), length_(memory_.size()), access_(flags),
          iova_(reinterpret_cast<std::uintptr_t>(memory_.data())) {}

    /// Memory of a dma-buf.
    mr_init_attr(int fd, std::uint64_t offset, std::size_t length,
                 rdmaxx::access flags = rdmaxx::access::local_write) noexcept
        : length_(length), access_(flags), iova_(offset), fd_(fd), fd_offset_(offset) {}

    /// The address of the first byte in requests; without it the pointer, or the offset.
    mr_init_attr& iova(std::uint64_t value) noexcept {
        iova_ = value;
        return *this;
    }
    /// The memory is a part of this buffer (verbs/buf.hpp): an owner, which is kept, or a buf_ref, which must outlive
    /// the region. Its PD has to be the region's, too (EINVAL). rdma-core 64; EOPNOTSUPP with an older one.
    mr_init_attr& buf(detail::parent<ibv_buf> of) noexcept {
        buf_ = of.native_handle();
        buf_pin_ = of.pin();
        return *this;
    }
    /// Hints for the transfers: a dmah (verbs/dmah.hpp), which is kept, or a dmah_ref, which must outlive the region.
    mr_init_attr& dmah(detail::parent<ibv_dmah> handle) noexcept {
        dmah_ = handle.native_handle();
        dmah_pin_ = handle.pin();
        return *this;
    }

private:
    friend class iova_mr;

    /// The C struct, which older headers lack.
    template <class Attr>
    [[nodiscard]] Attr raw() const noexcept {
        Attr attr{};
        attr.length = length_;
        attr.access = static_cast<int>(detail::bits(access_));
        attr.iova = iova_;
        attr.comp_mask = mask::iova;
        if (memory_.data() != nullptr) {
            attr.addr = memory_.data();
            attr.comp_mask |= mask::addr;
        } else {
            attr.fd = fd_;
            attr.fd_offset = fd_offset_;
            attr.comp_mask |= mask::fd | mask::fd_offset;
        }
        if (dmah_ != nullptr) {
            attr.dmah = dmah_;
            attr.comp_mask |= mask::dmah;
        }
        if (buf_ != nullptr) {
            attr.comp_mask |= mask::buf; // without the field, a bit that an older library refuses
            if constexpr (requires { attr.buf; })
                attr.buf = buf_;
        }
        return attr;
    }
    /// enum ibv_mr_init_attr_mask.
    struct mask {
        static constexpr unsigned iova = 1;
        static constexpr unsigned addr = 2;
        static constexpr unsigned fd = 4;
        static constexpr unsigned fd_offset = 8;
        static constexpr unsigned dmah = 16;
        static constexpr unsigned buf = 32;
    };

    std::span<std::byte> memory_;
    std::size_t length_ = 0;
    rdmaxx::access access_;
    std::uint64_t iova_ = 0;
    int fd_ = -1;
    std::uint64_t fd_offset_ = 0;
    ibv_dmah* dmah_ = nullptr;
    detail::keep dmah_pin_;
    ibv_buf* buf_ = nullptr;
    detail::keep buf_pin_;
};

/// A memory region that requests address from iova() on, and not by pointers: so it has no bytes(), and pieces are
/// named by their offset.
///
/// Everything else is as for mr: it ends exactly when its owner ends, its memory must outlive it, and any number of
/// threads may use one.
class iova_mr : public detail::owner<detail::iova_mr_traits> {
public:
    iova_mr() noexcept = default;

    /// The address of the first byte in requests, here and at peers.
    [[nodiscard]] std::uint64_t iova() const noexcept { return detail::passkey::block(*this)->iova; }
    /// Bytes.
    [[nodiscard]] std::size_t length() const noexcept { return detail::passkey::block(*this)->length; }
    [[nodiscard]] rdmaxx::lkey lkey() const noexcept { return rdmaxx::lkey{native_handle()->lkey}; }
    [[nodiscard]] rdmaxx::rkey rkey() const noexcept { return rdmaxx::rkey{native_handle()->rkey}; }
    [[nodiscard]] pd_ref pd() const noexcept { return pd_ref(native_handle()->pd); }

    /// `length` bytes from `offset` on.
    /// @throws error ERANGE if they do not lie inside the region, or are more than an SGE can say (4 GiB - 1)
    [[nodiscard]] rdmaxx::sge sge(std::size_t offset, std::size_t length) const {
        rdmaxx::sge result;
        detail::check(do_sge(offset, length, result));
        return result;
    }
    [[nodiscard]] rdmaxx::sge sge(std::size_t offset, std::size_t length, std::error_code& ec) const noexcept {
        rdmaxx::sge result;
        detail::assign(ec, do_sge(offset, length, result));
        return result;
    }
    [[nodiscard]] rdmaxx::sge sge() const { return sge(0, length()); }
    [[nodiscard]] rdmaxx::sge sge(std::error_code& ec) const noexcept { return sge(0, length(), ec); }

    /// What a peer needs to reach the whole region.
    /// @throws error ERANGE if it is longer than 4 GiB - 1
    [[nodiscard]] remote_buffer remote() const {
        remote_buffer result;
        detail::check(detail::peer_view_of(iova(), length(), rkey(), result));
        return result;
    }
    [[nodiscard]] remote_buffer remote(std::error_code& ec) const noexcept {
        remote_buffer result;
        detail::assign(ec, detail::peer_view_of(iova(), length(), rkey(), result));
        return result;
    }

    /// Changes the domain or the access of a region that reg_mr_iova made, as mr::rereg_mr; its memory and its iova
    /// stay. System call.
    /// @throws error EINVAL for any other region, and for mr_change::translation, after which the C call would take
    ///         pointers for addresses; and as mr::rereg_mr
    /// C call: ibv_rereg_mr(3).
    void rereg_mr(const mr_change& change) { detail::check(do_rereg(change)); }
    void rereg_mr(const mr_change& change, std::error_code& ec) noexcept { detail::assign(ec, do_rereg(change)); }

    /// Takes over a region that one of C's calls made (but ibv_import_mr); it will be deregistered by ibv_dereg_mr.
    /// @param iova the address of its first byte in requests, which the C struct does not tell
    /// @param length its bytes, which the C struct may not tell either
    /// @param pinned what to keep allocated as long as the region
    /// @param ec ENOMEM, and the region is still the caller's
    [[nodiscard]] static iova_mr adopt(ibv_mr* raw, std::uint64_t iova, std::size_t length,
                                       detail::parent<ibv_pd> pinned, std::error_code& ec) noexcept {
        iova_mr result;
        const detail::status made = result.take_over("ibv_reg_mr_iova", raw, pinned.pin());
        detail::assign(ec, made);
        if (!made.failed()) {
            detail::passkey::block(result)->iova = iova;
            detail::passkey::block(result)->length = length;
        }
        return result;
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// A range of objects that requests address from `iova` on.
    /// @param iova at the same place of its page as the range is of its
    /// @throws error as mr
    /// C call: ibv_reg_mr_iova(3).
    template <detail::registrable Range>
        requires(!std::is_const_v<detail::element_of<Range>>)
    [[nodiscard]] static iova_mr reg_mr_iova(detail::parent<ibv_pd> domain, Range&& range, std::uint64_t iova,
                                             access flags = access::local_write) {
        const auto memory = std::as_writable_bytes(std::span(range));
        return made([&](iova_mr& out) noexcept { return out.init(domain, memory, iova, flags); }, memory.size());
    }
    template <detail::registrable Range>
        requires(!std::is_const_v<detail::element_of<Range>>)
    [[nodiscard]] static iova_mr reg_mr_iova(detail::parent<ibv_pd> domain, Range&& range, std::uint64_t iova,
                                             access flags, std::error_code& ec) noexcept {
        iova_mr result;
        detail::assign(ec, result.init(domain, std::as_writable_bytes(std::span(range)), iova, flags));
        return result;
    }

    /// The whole address space of this process, now and later, paged on demand: sge_of(range) names pieces of it.
    /// @throws error EOPNOTSUPP or EINVAL for a device without implicit on-demand paging
    [[nodiscard]] static iova_mr reg_implicit(detail::parent<ibv_pd> domain, access flags = access::local_write) {
        return made([&](iova_mr& out) noexcept { return out.init_implicit(domain, flags); }, SIZE_MAX);
    }
    [[nodiscard]] static iova_mr reg_implicit(detail::parent<ibv_pd> domain, access flags,
                                              std::error_code& ec) noexcept {
        iova_mr result;
        detail::assign(ec, result.init_implicit(domain, flags));
        return result;
    }
    /// For a region of reg_implicit: the SGE of objects of this process.
    template <detail::registrable Range>
    [[nodiscard]] rdmaxx::sge sge_of(Range&& range) const {
        const auto memory = std::as_bytes(std::span(range));
        return sge(reinterpret_cast<std::uintptr_t>(memory.data()) - iova(), memory.size());
    }
    template <detail::registrable Range>
    [[nodiscard]] rdmaxx::sge sge_of(Range&& range, std::error_code& ec) const noexcept {
        const auto memory = std::as_bytes(std::span(range));
        return sge(reinterpret_cast<std::uintptr_t>(memory.data()) - iova(), memory.size(), ec);
    }

    /// Memory of a dma-buf, of a GPU for one.
    /// @param offset where in the dma-buf it begins
    /// @param iova at the same place of its page as `offset`
    /// @param fd may be closed afterwards
    /// @throws error EOPNOTSUPP for a driver without it, EBADF for a descriptor that is none of a dma-buf
    /// C call: ibv_reg_dmabuf_mr(3).
    [[nodiscard]] static iova_mr reg_dmabuf_mr(detail::parent<ibv_pd> domain, std::uint64_t offset, std::size_t length,
                                               std::uint64_t iova, int fd, access flags = access::local_write) {
        return made([&](iova_mr& out) noexcept { return out.init(domain, offset, length, iova, fd, flags); }, length);
    }
    [[nodiscard]] static iova_mr reg_dmabuf_mr(detail::parent<ibv_pd> domain, std::uint64_t offset, std::size_t length,
                                               std::uint64_t iova, int fd, access flags, std::error_code& ec) noexcept {
        iova_mr result;
        detail::assign(ec, result.init(domain, offset, length, iova, fd, flags));
        return result;
    }

    /// A region without memory: what is written to it is dropped, and what is read from it is zero. For SGEs that skip
    /// parts of a message.
    /// @throws error EOPNOTSUPP for a device without it
    /// C call: ibv_alloc_null_mr(3).
    [[nodiscard]] static iova_mr alloc_null_mr(detail::parent<ibv_pd> domain) {
        iova_mr result;
        detail::check(result.init_null(domain));
        return result;
    }
    [[nodiscard]] static iova_mr alloc_null_mr(detail::parent<ibv_pd> domain, std::error_code& ec) noexcept {
        iova_mr result;
        detail::assign(ec, result.init_null(domain));
        return result;
    }

    /// A piece of device memory, addressed from 0 on. (access::zero_based, which it needs, is added.)
    /// @param memory a dm, which is kept, or a dm_ref, which must outlive the region
    /// @throws error EINVAL for a piece that does not lie inside
    /// C call: ibv_reg_dm_mr(3).
    [[nodiscard]] static iova_mr reg_dm_mr(detail::parent<ibv_pd> domain, detail::parent<ibv_dm> memory,
                                           std::uint64_t offset, std::size_t length,
                                           access flags = access::local_write) {
        iova_mr result;
        detail::check(result.init(domain, memory, offset, length, flags));
        return result;
    }
    [[nodiscard]] static iova_mr reg_dm_mr(detail::parent<ibv_pd> domain, detail::parent<ibv_dm> memory,
                                           std::uint64_t offset, std::size_t length, access flags,
                                           std::error_code& ec) noexcept {
        iova_mr result;
        detail::assign(ec, result.init(domain, memory, offset, length, flags));
        return result;
    }

    /// A region of another process, by its handle there; of the PD that was imported with it. It is given back by
    /// ibv_unimport_mr; the region itself stays, and must stay, the other process's.
    /// @param iova what the region's iova() or address is in the process that registered it: the C call does not tell
    /// @throws error EOPNOTSUPP for a driver without it
    /// C call: ibv_import_mr(3).
    [[nodiscard]] static iova_mr import_mr(detail::parent<ibv_pd> domain, std::uint32_t handle, std::uint64_t iova) {
        iova_mr result;
        detail::check(result.import(domain, handle, iova));
        return result;
    }
    [[nodiscard]] static iova_mr import_mr(detail::parent<ibv_pd> domain, std::uint32_t handle, std::uint64_t iova,
                                           std::error_code& ec) noexcept {
        iova_mr result;
        detail::assign(ec, result.import(domain, handle, iova));
        return result;
    }

    /// A region with a DMA handle, or with any mixture of the above.
    /// @throws error EOPNOTSUPP for a driver without it
    /// C call: ibv_reg_mr_ex(3), rdma-core 59.
    template <class Pd = ibv_pd>
        requires detail::has_reg_mr_ex<Pd>
    [[nodiscard]] static iova_mr reg_mr_ex(detail::parent<ibv_pd> domain, const mr_init_attr& attr) {
        return made([&](iova_mr& out) noexcept { return out.template init_ex<ibv_mr_init_attr>(domain, attr); },
                    attr.length_);
    }
    template <class Pd = ibv_pd>
        requires detail::has_reg_mr_ex<Pd>
    [[nodiscard]] static iova_mr reg_mr_ex(detail::parent<ibv_pd> domain, const mr_init_attr& attr,
                                           std::error_code& ec) noexcept {
        iova_mr result;
        detail::assign(ec, result.template init_ex<ibv_mr_init_attr>(domain, attr));
        return result;
    }

    /// What import_mr takes in another process.
    [[nodiscard]] std::uint32_t handle() const noexcept {
        return native_handle()->handle;
    }
#endif

private:
    template <class Init>
    [[nodiscard]] static iova_mr made(Init init, std::size_t size) {
        iova_mr result;
        const detail::status status = init(result);
        detail::check(status, detail::registration{size, status.value});
        return result;
    }

    /// Makes the region by `c_call`, which is asked only when everything it needs is there.
    template <class CCall, class... Pins>
    [[nodiscard]] detail::status init_by(const char* call, detail::parent<ibv_pd> domain, std::uint64_t iova,
                                         access flags, CCall c_call, const Pins&... pins) noexcept {
        if (!domain)
            return {call, EINVAL, "empty PD"};
        if (detail::lacks_local_write(flags))
            return {call, EINVAL, detail::needs_local_write};
        const detail::status result = make(call, c_call, domain.pin(), pins...);
        if (!result.failed()) {
            detail::passkey::block(*this)->iova = iova;
            detail::passkey::block(*this)->length = native_handle()->length;
        }
        return result;
    }

    [[nodiscard]] detail::status do_rereg(const mr_change& change) const noexcept {
        return detail::mr_rereg::in_place(*this, change, "after it the addresses would be pointers");
    }

    [[nodiscard]] detail::status do_sge(std::size_t offset, std::size_t size, rdmaxx::sge& out) const noexcept {
        return detail::piece_of(iova(), length(), lkey(), offset, size, out);
    }

#if RDMAXX_HAS_LINUX_VERBS
    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, std::span<std::byte> memory, std::uint64_t iova,
                                      access flags) noexcept {
        return init_by("ibv_reg_mr_iova", domain, iova, flags, [&]() noexcept {
            return ::ibv_reg_mr_iova(domain.native_handle(), memory.data(), memory.size(), iova, detail::bits(flags));
        });
    }

    [[nodiscard]] detail::status init_implicit(detail::parent<ibv_pd> domain, access flags) noexcept {
        const access on_demand = flags | access::on_demand;
        return init_by("ibv_reg_mr", domain, 0, on_demand, [&]() noexcept {
            return ::ibv_reg_mr(domain.native_handle(), nullptr, SIZE_MAX, detail::bits(on_demand));
        });
    }

    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, std::uint64_t offset, std::size_t length,
                                      std::uint64_t iova, int fd, access flags) noexcept {
        return init_by("ibv_reg_dmabuf_mr", domain, iova, flags, [&]() noexcept {
            return detail::reg_dmabuf_mr(domain.native_handle(), offset, length, iova, fd,
                                         static_cast<int>(detail::bits(flags)));
        });
    }

    [[nodiscard]] detail::status init_null(detail::parent<ibv_pd> domain) noexcept {
        const detail::status result = init_by("ibv_alloc_null_mr", domain, 0, access::local_write,
                                              [&]() noexcept { return ::ibv_alloc_null_mr(domain.native_handle()); });
        if (!result.failed())
            detail::passkey::block(*this)->length = SIZE_MAX; // every address is inside
        return result;
    }

    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, detail::parent<ibv_dm> memory,
                                      std::uint64_t offset, std::size_t length, access flags) noexcept {
        if (!memory)
            return {"ibv_reg_dm_mr", EINVAL, "empty device memory"};
        const detail::status result = init_by(
            "ibv_reg_dm_mr", domain, 0, flags,
            [&]() noexcept {
                return ::ibv_reg_dm_mr(domain.native_handle(), memory.native_handle(), offset, length,
                                       detail::bits(flags | access::zero_based));
            },
            memory.pin());
        if (!result.failed())
            detail::passkey::block(*this)->length = length;
        return result;
    }

    template <class Attr>
    [[nodiscard]] detail::status init_ex(detail::parent<ibv_pd> domain, const mr_init_attr& attr) noexcept {
        Attr raw = attr.template raw<Attr>();
        const detail::status result = init_by(
            "ibv_reg_mr_ex", domain, attr.iova_, attr.access_,
            [&]() noexcept { return ibv_reg_mr_ex(domain.native_handle(), &raw); }, attr.buf_pin_, attr.dmah_pin_);
        if (!result.failed())
            detail::passkey::block(*this)->length = attr.length_;
        return result;
    }

    [[nodiscard]] detail::status import(detail::parent<ibv_pd> domain, std::uint32_t handle,
                                        std::uint64_t iova) noexcept {
        const detail::status result = init_by("ibv_import_mr", domain, iova, access::none, [&]() noexcept {
            return ::ibv_import_mr(domain.native_handle(), handle);
        });
        if (!result.failed())
            detail::passkey::block(*this)->imported = true;
        return result;
    }
#endif
};

} // namespace rdmaxx::inline v0

#endif
