// Sleeping until a descriptor is readable.
#ifndef RDMAXX_DETAIL_WAIT_HPP
#define RDMAXX_DETAIL_WAIT_HPP

#include <rdmaxx/detail/time.hpp>
#include <rdmaxx/error.hpp>

#include <fcntl.h>
#include <poll.h>

namespace rdmaxx::inline v0::detail {

enum class wake { readable, timed_out, stopped, failed };

/// Waits until `fd` is readable, `until` has passed or `stop_fd` (-1: none) is readable. A signal does not end it.
/// POLLERR and POLLHUP count as readable: the get that follows reports what is wrong. On `failed`, errno says why.
[[nodiscard]] inline wake wait_readable(int fd, deadline until, int stop_fd = -1) noexcept {
    pollfd fds[2] = {{fd, POLLIN, 0}, {stop_fd, POLLIN, 0}};
    for (;;) {
        const std::int64_t left = until.left_ns();
        const std::int64_t ms = left / 1'000'000 + (left % 1'000'000 != 0 ? 1 : 0);
        const int timeout = left == forever ? -1 : ms > 3'600'000 ? 3'600'000 : static_cast<int>(ms);
        const int ready = ::poll(fds, stop_fd < 0 ? 1 : 2, timeout);
        if (ready > 0)
            return fds[1].revents != 0 ? wake::stopped : wake::readable;
        if (ready == 0 && until.left_ns() == 0)
            return wake::timed_out;
        if (ready < 0 && errno != EINTR)
            return wake::failed;
    }
}

/// Runs `attempt` (a non-blocking get, returning its status) until it does not say EAGAIN, sleeping on `fd` between.
/// ETIMEDOUT when the deadline passed, ECANCELED when the stop descriptor became readable.
template <class Attempt>
[[nodiscard]] status retry_until(int fd, deadline until, int stop_fd, const char* call, Attempt attempt) noexcept {
    for (;;) {
        const status result = attempt();
        if (result.value != EAGAIN)
            return result;
        switch (wait_readable(fd, until, stop_fd)) {
        case wake::readable: break;
        case wake::timed_out: return {call, ETIMEDOUT};
        case wake::stopped: return {call, ECANCELED};
        case wake::failed: return {"poll", last_errno()};
        }
    }
}

/// Makes a descriptor non-blocking and tells the flags it had, for whoever puts them back.
[[nodiscard]] inline status set_nonblocking(int fd, int& before) noexcept {
    before = ::fcntl(fd, F_GETFL);
    if (before < 0)
        return {"fcntl", last_errno()};
    if ((before & O_NONBLOCK) == 0 && ::fcntl(fd, F_SETFL, before | O_NONBLOCK) < 0)
        return {"fcntl", last_errno()};
    return {};
}

/// Puts O_NONBLOCK back to what `before` says, and leaves the other flags as they are now.
inline void restore_blocking(int fd, int before) noexcept {
    const int now = ::fcntl(fd, F_GETFL);
    if (now >= 0 && (before & O_NONBLOCK) == 0)
        ::fcntl(fd, F_SETFL, now & ~O_NONBLOCK);
}

} // namespace rdmaxx::inline v0::detail

#endif
