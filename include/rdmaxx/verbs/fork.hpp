// Registered memory and fork(2): ibv_fork_init(3), ibv_is_fork_initialized(3).
#ifndef RDMAXX_VERBS_FORK_HPP
#define RDMAXX_VERBS_FORK_HPP

#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/error.hpp>

namespace rdmaxx::inline v0 {

/// From here on registered pages are kept from forked children (madvise MADV_DONTFORK), whole pages at a time: what
/// else lies on them is missing in the child. Needed where is_fork_initialized() says `disabled` and the program forks;
/// before the first memory region. Where it says `unneeded`, Linux 5.12 and later copy registered pages at the fork.
///
/// @throws error EINVAL after the first registration, ENOSYS, ENOMEM
/// C call: ibv_fork_init(3). Environment variables RDMAV_FORK_SAFE and IBV_FORK_SAFE do the same.
inline void fork_init() {
    detail::check(detail::check_number("ibv_fork_init", ::ibv_fork_init()));
}
inline void fork_init(std::error_code& ec) noexcept {
    detail::assign(ec, detail::check_number("ibv_fork_init", ::ibv_fork_init()));
}

#if RDMAXX_HAS_LINUX_VERBS
/// enum ibv_fork_status.
enum class fork_status : int {
    disabled = 0, ///< a child, and the parent's pages after it, may see wrong data: call fork_init
    enabled = 1,  ///< fork_init was called
    unneeded = 2, ///< the kernel copies registered pages when a process forks
};

[[nodiscard]] constexpr const char* to_string(fork_status status) noexcept {
    switch (status) {
    case fork_status::disabled: return "disabled";
    case fork_status::enabled: return "enabled";
    case fork_status::unneeded: return "unneeded";
    }
    return "unknown";
}

/// Whether a program with registered memory may fork. System calls. C call: ibv_is_fork_initialized(3).
[[nodiscard]] inline fork_status is_fork_initialized() noexcept {
    return static_cast<fork_status>(detail::is_fork_initialized());
}
#endif

} // namespace rdmaxx::inline v0

#endif
