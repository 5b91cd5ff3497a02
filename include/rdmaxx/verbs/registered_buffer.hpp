// Memory that is registered as long as it lives, on pages of its own.
#ifndef RDMAXX_VERBS_REGISTERED_BUFFER_HPP
#define RDMAXX_VERBS_REGISTERED_BUFFER_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/pd.hpp>

#include <cstddef>

#include <sys/mman.h>
#include <unistd.h>

namespace rdmaxx::inline v0 {
namespace detail {

struct registered_buffer_traits {
    using raw_type = ibv_mr;
    using ref_type = mr_ref;
    struct block : detail::block<ibv_mr, 1> { // pd
        using detail::block<ibv_mr, 1>::block;
        void* pages = nullptr;
        std::size_t mapped = 0;
    };
    /// After release() the caller has the region, and its memory with it.
    static void detach(block& b) noexcept { b.pages = nullptr; }
    static status destroy(block& b) noexcept {
        const status result = check_number("ibv_dereg_mr", ::ibv_dereg_mr(b.raw));
        if (!result.failed() || already_gone(result.value))
            ::munmap(b.pages, b.mapped);
        return result;
    }
};

} // namespace detail

/// A memory region that owns its memory: zeroed pages that nothing else lies on, mapped and registered here,
/// deregistered and unmapped when it ends. It is an mr in every use.
///
/// Safe in programs that fork: a kernel that copies registered pages copies whole ones, and fork_init() keeps whole
/// ones from the child; neither touches anything else. A child that drops its copy of the object unmaps nothing.
///
///     rdmaxx::registered_buffer buffer(pd, 1 << 20, access::local_write | access::remote_write);
///     qp.post_recv(buffer);
///
/// What was posted with it must have completed before it ends. Any number of threads may use one.
class registered_buffer : public detail::mr_ops<detail::owner<detail::registered_buffer_traits>> {
public:
    registered_buffer() noexcept = default;

    /// System calls, and time in proportion to the size.
    /// @param domain a pd, which is kept allocated, or a pd_ref, which must outlive the buffer
    /// @param size bytes, from 1; bytes() has exactly so many, and whole pages are mapped
    /// @throws error as mr; ENOMEM of mmap
    registered_buffer(detail::parent<ibv_pd> domain, std::size_t size, access flags = access::local_write) {
        const detail::status result = init(domain, size, flags);
        detail::check(result, detail::registration{size, result.value});
    }
    [[nodiscard]] static registered_buffer create(detail::parent<ibv_pd> domain, std::size_t size, access flags,
                                                  std::error_code& ec) noexcept {
        registered_buffer result;
        detail::assign(ec, result.init(domain, size, flags));
        return result;
    }

    /// Changes the domain or the access of the registration, as mr::rereg_mr; the memory is its own. System call.
    /// @throws error EINVAL for mr_change::translation, and as mr::rereg_mr
    /// C call: ibv_rereg_mr(3).
    void rereg_mr(const mr_change& change) { detail::check(do_rereg(change)); }
    void rereg_mr(const mr_change& change, std::error_code& ec) noexcept { detail::assign(ec, do_rereg(change)); }

private:
    [[nodiscard]] detail::status do_rereg(const mr_change& change) const noexcept {
        return detail::mr_rereg::in_place(*this, change, "a buffer's memory is its own");
    }

    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, std::size_t size, access flags) noexcept {
        if (!domain)
            return {"ibv_reg_mr", EINVAL, "empty PD"};
        if (size == 0)
            return {"mmap", EINVAL, "an empty buffer"};
        if (detail::lacks_local_write(flags))
            return {"ibv_reg_mr", EINVAL, detail::needs_local_write};
        const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        const std::size_t mapped = (size + page - 1) / page * page;
        if (mapped < size)
            return {"mmap", ENOMEM};
        void* pages = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) // NOLINT(*-int-to-ptr, *-cstyle-cast): C's macro
            return {"mmap", errno};
        const detail::status result = make(
            "ibv_reg_mr", [&]() noexcept { return detail::c_reg_mr(domain.native_handle(), pages, size, flags); },
            domain.pin());
        if (result.failed()) {
            ::munmap(pages, mapped);
            return result;
        }
        detail::passkey::block(*this)->pages = pages;
        detail::passkey::block(*this)->mapped = mapped;
        return {};
    }
};

} // namespace rdmaxx::inline v0

#endif
