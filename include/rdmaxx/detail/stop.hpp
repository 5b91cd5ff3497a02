// How a stop token ends a wait in poll(2): a descriptor that its callback makes readable.
#ifndef RDMAXX_DETAIL_STOP_HPP
#define RDMAXX_DETAIL_STOP_HPP

#include <rdmaxx/detail/wait.hpp>
#include <rdmaxx/fwd.hpp>

#include <version>

#if defined(__cpp_lib_jthread)
#    define RDMAXX_HAS_STOP_TOKEN 1
#else
#    define RDMAXX_HAS_STOP_TOKEN 0
#endif

#if RDMAXX_HAS_STOP_TOKEN

#    include <stop_token>

#    include <sys/eventfd.h>
#    include <unistd.h>

namespace rdmaxx::inline v0::detail {

class stop_descriptor {
public:
    stop_descriptor() noexcept : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
    stop_descriptor(const stop_descriptor&) = delete;
    stop_descriptor& operator=(const stop_descriptor&) = delete;
    ~stop_descriptor() {
        if (fd_ >= 0)
            ::close(fd_);
    }

    [[nodiscard]] int fd() const noexcept { return fd_; }
    void raise() const noexcept { static_cast<void>(::eventfd_write(fd_, 1)); }

private:
    int fd_;
};

/// The gets that take a stop token, once for every kind of channel.
struct stop_access {
    /// ECANCELED when stop was requested, ETIMEDOUT when the deadline passed first.
    template <class Channel, class Event>
    [[nodiscard]] static status get(Channel& channel, Event& out, const std::stop_token& token,
                                    deadline until) noexcept {
        status result = channel.try_get(out);
        if (result.value != EAGAIN)
            return result;
        const stop_descriptor descriptor;
        if (descriptor.fd() < 0)
            return {"eventfd", last_errno()};
        const std::stop_callback wake(token, [&descriptor]() noexcept { descriptor.raise(); });
        return channel.get(out, until, descriptor.fd());
    }

    /// Stopped and timed out are no errors: the event is empty.
    [[nodiscard]] static status none(const status& result) noexcept {
        return result.value == ECANCELED || result.value == ETIMEDOUT ? status{} : result;
    }
};

} // namespace rdmaxx::inline v0::detail

#endif

#endif
