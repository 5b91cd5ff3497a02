// rsockets: sockets over RDMA, rsocket(7).
#ifndef RDMAXX_CM_RSOCKET_HPP
#define RDMAXX_CM_RSOCKET_HPP

#include <rdmaxx/address.hpp>
#include <rdmaxx/detail/cm_api.hpp>
#include <rdmaxx/detail/time.hpp>
#include <rdmaxx/error.hpp>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <new>
#include <span>
#include <utility>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

namespace rdmaxx::inline v0 {

template <class Event>
class basic_repoll;

/// A socket over RDMA: the part of librdmacm that ports sockets code. Stream or datagram, with the calls of socket(7);
/// its number is not a file descriptor, and can be used with these calls only.
///
/// Moved-from and closed sockets are empty: their calls are the error EBADF. Blocking unless set_nonblocking(): then
/// what would block is the error EAGAIN. A signal may end a call with EINTR, as on sockets. Distinct sockets may be
/// used concurrently; one socket may be sent on by one thread while another one receives.
///
/// In a child process after fork the destructor forgets the socket. C calls: rsocket(7), rclose.
///
/// After `using namespace rdmaxx` it has to be written `rdmaxx::rsocket`: there is the C function as well.
class rsocket {
public:
    /// Empty.
    rsocket() noexcept = default;

    /// @param domain AF_INET or AF_INET6
    /// @param type SOCK_STREAM or SOCK_DGRAM; librdmacm sends datagrams on InfiniBand only, and not on RoCE
    /// @throws error ENODEV where there is no RDMA device, EMFILE, ENOTSUP
    explicit rsocket(int domain, int type = SOCK_STREAM, int protocol = 0) {
        detail::check(init(domain, type, protocol));
    }
    [[nodiscard]] static rsocket create(int domain, int type, int protocol, std::error_code& ec) noexcept {
        rsocket result;
        detail::assign(ec, result.init(domain, type, protocol));
        return result;
    }
    /// Takes over a socket that C code made.
    [[nodiscard]] static rsocket adopt(int socket) noexcept {
        rsocket result;
        result.socket_ = socket;
        return result;
    }

    rsocket(rsocket&& other) noexcept : socket_(std::exchange(other.socket_, -1)), maker_(other.maker_) {}
    /// Takes the new socket first, then closes the old one. Self-move changes nothing.
    rsocket& operator=(rsocket&& other) noexcept {
        rsocket taken(std::move(other));
        std::swap(socket_, taken.socket_);
        std::swap(maker_, taken.maker_);
        return *this;
    }
    rsocket(const rsocket&) = delete;
    rsocket& operator=(const rsocket&) = delete;
    /// Closes; a failure goes to the destroy-failure hook. errno is kept. May block until what was sent is delivered.
    ~rsocket() {
        const detail::errno_guard guard;
        if (const detail::status result = do_close(); result.failed())
            detail::report_destroy_failure(result, nullptr);
    }

    /// False when empty.
    [[nodiscard]] explicit operator bool() const noexcept { return socket_ >= 0; }
    /// The number for C calls; -1 when empty.
    [[nodiscard]] int native_handle() const noexcept { return socket_; }
    /// Hands the number to the caller, who has to close it.
    [[nodiscard]] int release() && noexcept { return std::exchange(socket_, -1); }

    /// Closes now, and reports what the destructor could only hand to the hook. Empty: no effect. C call: rclose.
    void close() { detail::check(do_close()); }
    void close(std::error_code& ec) noexcept { detail::assign(ec, do_close()); }

    /// Binds to an address of this machine. C call: rbind.
    void bind(const address& local) { detail::check(do_bind(local), local); }
    void bind(const address& local, std::error_code& ec) noexcept { detail::assign(ec, do_bind(local)); }

    /// Takes connections. C call: rlisten.
    void listen(int backlog = 128) { detail::check(checked("rlisten", invoke(::rlisten, backlog))); }
    void listen(int backlog, std::error_code& ec) noexcept {
        detail::assign(ec, checked("rlisten", invoke(::rlisten, backlog)));
    }

    /// The next connection. Blocks until there is one.
    [[nodiscard]] rsocket accept() {
        rsocket result;
        detail::check(do_accept(result));
        return result;
    }
    [[nodiscard]] rsocket accept(std::error_code& ec) noexcept {
        rsocket result;
        detail::assign(ec, do_accept(result));
        return result;
    }

    /// Blocks until connected (EINPROGRESS on a non-blocking socket: rpoll for POLLOUT).
    void connect(const address& peer) { detail::check(do_connect(peer), peer); }
    void connect(const address& peer, std::error_code& ec) noexcept { detail::assign(ec, do_connect(peer)); }

    /// @param how SHUT_RD, SHUT_WR, SHUT_RDWR
    void shutdown(int how) { detail::check(checked("rshutdown", invoke(::rshutdown, how))); }
    void shutdown(int how, std::error_code& ec) noexcept {
        detail::assign(ec, checked("rshutdown", invoke(::rshutdown, how)));
    }

    // ---- Data. Each returns the number of bytes, which may be fewer than asked for; 0 from a receive is the end.

    /// Sends; blocks while there is no room. C call: rsend.
    std::size_t send(std::span<const std::byte> data, int flags = 0) {
        return sized("rsend", invoke(::rsend, data.data(), data.size(), flags));
    }
    std::size_t send(std::span<const std::byte> data, int flags, std::error_code& ec) noexcept {
        return sized("rsend", invoke(::rsend, data.data(), data.size(), flags), ec);
    }
    /// Receives; blocks until there is something. C call: rrecv.
    [[nodiscard]] std::size_t recv(std::span<std::byte> into, int flags = 0) {
        return sized("rrecv", invoke(::rrecv, into.data(), into.size(), flags));
    }
    [[nodiscard]] std::size_t recv(std::span<std::byte> into, int flags, std::error_code& ec) noexcept {
        return sized("rrecv", invoke(::rrecv, into.data(), into.size(), flags), ec);
    }

    /// Sends a datagram. C call: rsendto.
    std::size_t sendto(std::span<const std::byte> data, const address& peer, int flags = 0) {
        return sized("rsendto", c_sendto(data, peer, flags));
    }
    std::size_t sendto(std::span<const std::byte> data, const address& peer, int flags, std::error_code& ec) noexcept {
        return sized("rsendto", c_sendto(data, peer, flags), ec);
    }
    /// @param from filled with the sender
    [[nodiscard]] std::size_t recvfrom(std::span<std::byte> into, address& from, int flags = 0) {
        return sized("rrecvfrom", c_recvfrom(into, from, flags));
    }
    [[nodiscard]] std::size_t recvfrom(std::span<std::byte> into, address& from, int flags,
                                       std::error_code& ec) noexcept {
        return sized("rrecvfrom", c_recvfrom(into, from, flags), ec);
    }

    /// Sends from several places, as sendmsg(2). C call: rsendmsg.
    std::size_t sendmsg(const msghdr& message, int flags = 0) {
        return sized("rsendmsg", invoke(::rsendmsg, &message, flags));
    }
    std::size_t sendmsg(const msghdr& message, int flags, std::error_code& ec) noexcept {
        return sized("rsendmsg", invoke(::rsendmsg, &message, flags), ec);
    }
    /// Receives, as recvmsg(2), but into the first place only: librdmacm fills no other. C call: rrecvmsg.
    [[nodiscard]] std::size_t recvmsg(msghdr& message, int flags = 0) {
        return sized("rrecvmsg", invoke(::rrecvmsg, &message, flags));
    }
    [[nodiscard]] std::size_t recvmsg(msghdr& message, int flags, std::error_code& ec) noexcept {
        return sized("rrecvmsg", invoke(::rrecvmsg, &message, flags), ec);
    }

    /// send() without flags. C call: rwrite.
    std::size_t write(std::span<const std::byte> data) {
        return sized("rwrite", invoke(::rwrite, data.data(), data.size()));
    }
    std::size_t write(std::span<const std::byte> data, std::error_code& ec) noexcept {
        return sized("rwrite", invoke(::rwrite, data.data(), data.size()), ec);
    }
    /// recv() without flags. C call: rread.
    [[nodiscard]] std::size_t read(std::span<std::byte> into) {
        return sized("rread", invoke(::rread, into.data(), into.size()));
    }
    [[nodiscard]] std::size_t read(std::span<std::byte> into, std::error_code& ec) noexcept {
        return sized("rread", invoke(::rread, into.data(), into.size()), ec);
    }

    /// Sends from several places. C call: rwritev.
    std::size_t writev(std::span<const iovec> data) {
        return sized("rwritev", invoke(::rwritev, data.data(), static_cast<int>(data.size())));
    }
    std::size_t writev(std::span<const iovec> data, std::error_code& ec) noexcept {
        return sized("rwritev", invoke(::rwritev, data.data(), static_cast<int>(data.size())), ec);
    }
    /// Receives into the first place only: librdmacm fills no other. C call: rreadv.
    [[nodiscard]] std::size_t readv(std::span<const iovec> into) {
        return sized("rreadv", invoke(::rreadv, into.data(), static_cast<int>(into.size())));
    }
    [[nodiscard]] std::size_t readv(std::span<const iovec> into, std::error_code& ec) noexcept {
        return sized("rreadv", invoke(::rreadv, into.data(), static_cast<int>(into.size())), ec);
    }

    // ---- Memory that the peer may write into.

    /// Lets the peer write into `memory`, which must stay until iounmap(), by iowrite() at an offset.
    /// @param prot PROT_WRITE
    /// @param offset the one to use, or -1 for one of the library's choice
    /// @return the offset that the peer uses
    /// @throws error ENOTSUP unless iomap_size() was raised before connecting
    [[nodiscard]] off_t iomap(std::span<std::byte> memory, int prot = PROT_WRITE, int flags = 0, off_t offset = -1) {
        const off_t result = invoke(::riomap, memory.data(), memory.size(), prot, flags, offset);
        detail::check(checked("riomap", result < 0 ? -1 : 0));
        return result;
    }
    [[nodiscard]] off_t iomap(std::span<std::byte> memory, int prot, int flags, off_t offset,
                              std::error_code& ec) noexcept {
        const off_t result = invoke(::riomap, memory.data(), memory.size(), prot, flags, offset);
        detail::assign(ec, checked("riomap", result < 0 ? -1 : 0));
        return result;
    }
    /// The peer may no longer write into it. C call: riounmap.
    void iounmap(std::span<std::byte> memory) {
        detail::check(checked("riounmap", invoke(::riounmap, memory.data(), memory.size())));
    }
    void iounmap(std::span<std::byte> memory, std::error_code& ec) noexcept {
        detail::assign(ec, checked("riounmap", invoke(::riounmap, memory.data(), memory.size())));
    }
    /// Writes into memory that the peer has mapped at `offset`.
    std::size_t iowrite(std::span<const std::byte> data, off_t offset, int flags = 0) {
        return sized("riowrite", static_cast<ssize_t>(invoke(::riowrite, data.data(), data.size(), offset, flags)));
    }
    std::size_t iowrite(std::span<const std::byte> data, off_t offset, int flags, std::error_code& ec) noexcept {
        return sized("riowrite", static_cast<ssize_t>(invoke(::riowrite, data.data(), data.size(), offset, flags)), ec);
    }

    // ---- Names and options.

    /// This side's address and port. C call: rgetsockname.
    [[nodiscard]] address local_address() const { return named("rgetsockname", ::rgetsockname); }
    [[nodiscard]] address local_address(std::error_code& ec) const noexcept {
        return named("rgetsockname", ::rgetsockname, ec);
    }
    /// The peer's address and port. C call: rgetpeername.
    [[nodiscard]] address peer_address() const { return named("rgetpeername", ::rgetpeername); }
    [[nodiscard]] address peer_address(std::error_code& ec) const noexcept {
        return named("rgetpeername", ::rgetpeername, ec);
    }

    /// SOL_SOCKET, IPPROTO_TCP, IPPROTO_IPV6 or SOL_RDMA (RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE,
    /// RDMA_ROUTE), for an option whose value is an int or a struct.
    template <class Value>
    void setsockopt(int level, int name, const Value& value) {
        detail::check(
            checked("rsetsockopt", invoke(::rsetsockopt, level, name, &value, static_cast<socklen_t>(sizeof value))));
    }
    template <class Value>
    void setsockopt(int level, int name, const Value& value, std::error_code& ec) noexcept {
        detail::assign(ec, checked("rsetsockopt",
                                   invoke(::rsetsockopt, level, name, &value, static_cast<socklen_t>(sizeof value))));
    }
    template <class Value = int>
    [[nodiscard]] Value getsockopt(int level, int name) const {
        Value value{};
        socklen_t size = sizeof value;
        detail::check(checked("rgetsockopt", invoke(::rgetsockopt, level, name, &value, &size)));
        return value;
    }
    template <class Value = int>
    [[nodiscard]] Value getsockopt(int level, int name, std::error_code& ec) const noexcept {
        Value value{};
        socklen_t size = sizeof value;
        detail::assign(ec, checked("rgetsockopt", invoke(::rgetsockopt, level, name, &value, &size)));
        return value;
    }

    /// How many iomap()s the peer may have; before connecting. 0 unless set.
    void iomap_size(int count) { setsockopt(SOL_RDMA, RDMA_IOMAPSIZE, count); }
    void iomap_size(int count, std::error_code& ec) noexcept { setsockopt(SOL_RDMA, RDMA_IOMAPSIZE, count, ec); }

    /// Sets or clears O_NONBLOCK, and leaves the other flags. C call: rfcntl.
    void set_nonblocking(bool value = true) { detail::check(do_set_nonblocking(value)); }
    void set_nonblocking(bool value, std::error_code& ec) noexcept { detail::assign(ec, do_set_nonblocking(value)); }

private:
    template <class Event>
    friend class basic_repoll;

    [[nodiscard]] bool foreign_process() const noexcept { return maker_ != ::getpid(); }

    /// librdmacm follows any number: an empty socket is what it would be to the system's calls.
    template <class Result, class... Parameters, class... Arguments>
    [[nodiscard]] Result invoke(Result (*c_call)(int, Parameters...), Arguments... arguments) const noexcept {
        if (socket_ >= 0)
            return c_call(socket_, arguments...);
        errno = EBADF;
        return static_cast<Result>(-1);
    }
    [[nodiscard]] int fcntl(int command, int flags = 0) const noexcept {
        return invoke(
            +[](int socket, int c, int f) noexcept { return ::rfcntl(socket, c, f); }, command, flags);
    }
    /// -1 with errno; some calls of rdma-core 65 return the number itself.
    [[nodiscard]] static detail::status checked(const char* call, int result) noexcept {
        return result > 0 ? detail::status{call, result} : detail::check_errno(call, result);
    }
    [[nodiscard]] static std::size_t sized(const char* call, ssize_t result) {
        if (result < 0)
            detail::raise({call, detail::last_errno()});
        return static_cast<std::size_t>(result);
    }
    [[nodiscard]] static std::size_t sized(const char* call, ssize_t result, std::error_code& ec) noexcept {
        detail::assign(ec, {call, result < 0 ? detail::last_errno() : 0});
        return result < 0 ? 0 : static_cast<std::size_t>(result);
    }

    template <class CCall>
    [[nodiscard]] detail::status c_name(const char* call, CCall c_call, address& out) const noexcept {
        sockaddr_storage storage{};
        socklen_t size = sizeof storage;
        const detail::status result = checked(call, invoke(c_call, reinterpret_cast<sockaddr*>(&storage), &size));
        if (!result.failed())
            out = address(reinterpret_cast<const sockaddr*>(&storage));
        return result;
    }
    template <class CCall>
    [[nodiscard]] address named(const char* call, CCall c_call) const {
        address result;
        detail::check(c_name(call, c_call, result));
        return result;
    }
    template <class CCall>
    [[nodiscard]] address named(const char* call, CCall c_call, std::error_code& ec) const noexcept {
        address result;
        detail::assign(ec, c_name(call, c_call, result));
        return result;
    }

    [[nodiscard]] detail::status init(int domain, int type, int protocol) noexcept {
        errno = 0;
        socket_ = ::rsocket(domain, type, protocol);
        return {"rsocket", socket_ < 0 ? detail::last_errno() : 0};
    }
    [[nodiscard]] detail::status do_close() noexcept {
        const int socket = std::exchange(socket_, -1);
        if (socket < 0 || foreign_process())
            return {};
        return checked("rclose", ::rclose(socket));
    }
    [[nodiscard]] detail::status do_bind(const address& local) noexcept {
        return checked("rbind", invoke(::rbind, local.data(), static_cast<socklen_t>(local.size())));
    }
    [[nodiscard]] detail::status do_connect(const address& peer) noexcept {
        return checked("rconnect", invoke(::rconnect, peer.data(), static_cast<socklen_t>(peer.size())));
    }
    [[nodiscard]] detail::status do_accept(rsocket& out) const noexcept {
        const int accepted = invoke(::raccept, nullptr, nullptr);
        if (accepted < 0)
            return {"raccept", detail::last_errno()};
        out = adopt(accepted);
        return {};
    }
    [[nodiscard]] ssize_t c_sendto(std::span<const std::byte> data, const address& peer, int flags) noexcept {
        return invoke(::rsendto, data.data(), data.size(), flags, peer.data(), static_cast<socklen_t>(peer.size()));
    }
    [[nodiscard]] ssize_t c_recvfrom(std::span<std::byte> into, address& from, int flags) noexcept {
        sockaddr_storage storage{};
        socklen_t size = sizeof storage;
        const ssize_t result =
            invoke(::rrecvfrom, into.data(), into.size(), flags, reinterpret_cast<sockaddr*>(&storage), &size);
        if (result >= 0)
            from = address(reinterpret_cast<const sockaddr*>(&storage));
        return result;
    }
    [[nodiscard]] detail::status do_set_nonblocking(bool value) noexcept {
        const int flags = fcntl(F_GETFL);
        if (flags < 0)
            return {"rfcntl", detail::last_errno()};
        return checked("rfcntl", fcntl(F_SETFL, value ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
    }

    int socket_ = -1;
    pid_t maker_ = ::getpid();
};

namespace detail {

/// A descriptor that is readable when the time has passed. Before version 65 librdmacm's own time-out leaves a count
/// behind, on which every later wait of the process spins for ever: so time is one more thing to wait for.
class timer {
public:
    explicit timer(std::int64_t ns) noexcept : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
        itimerspec time{};
        time.it_value.tv_sec = static_cast<std::time_t>(ns / 1'000'000'000);
        time.it_value.tv_nsec = static_cast<long>(ns % 1'000'000'000);
        if (fd_ >= 0)
            ::timerfd_settime(fd_, 0, &time, nullptr);
    }
    timer(const timer&) = delete;
    timer& operator=(const timer&) = delete;
    ~timer() {
        const errno_guard guard;
        if (fd_ >= 0)
            ::close(fd_);
    }

    [[nodiscard]] int fd() const noexcept { return fd_; }

private:
    int fd_;
};

/// As ::rpoll, for so many nanoseconds.
[[nodiscard]] inline int rpoll_for(std::span<pollfd> sockets, std::int64_t ns) noexcept {
    const auto size = static_cast<nfds_t>(sockets.size());
    const int ready = ::rpoll(sockets.data(), size, ns == forever ? -1 : 0);
    if (ready != 0 || ns == 0 || ns == forever)
        return ready;
    const timer time(ns);
    auto* all = new (std::nothrow) pollfd[sockets.size() + 1];
    if (all == nullptr)
        errno = ENOMEM;
    int result = -1;
    if (time.fd() >= 0 && all != nullptr) {
        for (std::size_t i = 0; i < sockets.size(); ++i)
            all[i] = sockets[i];
        pollfd& end = all[sockets.size()];
        end = {time.fd(), POLLIN, 0};
        result = ::rpoll(all, size + 1, -1);
        for (std::size_t i = 0; i < sockets.size(); ++i)
            sockets[i].revents = all[i].revents;
        if (result > 0 && end.revents != 0)
            --result;
    }
    const errno_guard guard;
    delete[] all;
    return result;
}

/// As ::rselect.
[[nodiscard]] inline int rselect_for(int nfds, fd_set* readable, fd_set* writable, fd_set* exceptional,
                                     timeval* timeout) noexcept {
    if (timeout == nullptr || (timeout->tv_sec == 0 && timeout->tv_usec == 0))
        return ::rselect(nfds, readable, writable, exceptional, timeout);
    const timer time(std::int64_t{timeout->tv_sec} * 1'000'000'000 + std::int64_t{timeout->tv_usec} * 1000);
    if (time.fd() < 0)
        return -1;
    if (time.fd() >= FD_SETSIZE) {
        errno = EINVAL;
        return -1;
    }
    fd_set with_time;
    FD_ZERO(&with_time);
    if (readable != nullptr)
        with_time = *readable;
    FD_SET(time.fd(), &with_time);
    int result = ::rselect(nfds > time.fd() ? nfds : time.fd() + 1, &with_time, writable, exceptional, nullptr);
    if (result < 0)
        return result;
    if (FD_ISSET(time.fd(), &with_time))
        --result;
    FD_CLR(time.fd(), &with_time);
    if (readable != nullptr)
        *readable = with_time;
    return result;
}

} // namespace detail

/// Waits until one of the sockets is ready: struct pollfd with native_handle()s, and descriptors of the system, may be
/// mixed. C call: rpoll.
/// @param timeout any std::chrono::duration; hours::max() is for ever
/// @return how many are ready, 0 when the time passed
/// @throws error EINTR; ENOMEM, EMFILE for what keeps the time
template <detail::duration Duration>
[[nodiscard]] std::size_t rpoll(std::span<pollfd> sockets, Duration timeout, std::error_code& ec) noexcept {
    const int result = detail::rpoll_for(sockets, detail::nanoseconds(timeout));
    detail::assign(ec, {"rpoll", result < 0 ? detail::last_errno() : 0});
    return result < 0 ? 0 : static_cast<std::size_t>(result);
}
template <detail::duration Duration>
[[nodiscard]] std::size_t rpoll(std::span<pollfd> sockets, Duration timeout) {
    std::error_code ec;
    const std::size_t result = rpoll(sockets, timeout, ec);
    detail::check({"rpoll", ec.value()});
    return result;
}

/// C call: rselect. `timeout` null is for ever. Numbers from FD_SETSIZE on do not fit: prefer rpoll.
[[nodiscard]] inline std::size_t rselect(int nfds, fd_set* readable, fd_set* writable, fd_set* exceptional,
                                         timeval* timeout, std::error_code& ec) noexcept {
    const int result = detail::rselect_for(nfds, readable, writable, exceptional, timeout);
    detail::assign(ec, {"rselect", result < 0 ? detail::last_errno() : 0});
    return result < 0 ? 0 : static_cast<std::size_t>(result);
}
[[nodiscard]] inline std::size_t rselect(int nfds, fd_set* readable, fd_set* writable, fd_set* exceptional,
                                         timeval* timeout) {
    std::error_code ec;
    const std::size_t result = rselect(nfds, readable, writable, exceptional, timeout, ec);
    detail::check({"rselect", ec.value()});
    return result;
}

namespace detail {

/// A call whose declaration is looked up where this is used: the header has no macro to ask for.
template <class Event>
concept has_repoll = requires(Event* event) {
    repoll_wait(0, event, 0, 0);
};

/// As rdma-core 65 declares it: with its int alone it cannot be looked up so.
extern "C" int repoll_create(int flags);

} // namespace detail

/// True where librdmacm has repoll_create and its kin (rdma-core 65): a constant expression, not for the preprocessor.
#define RDMAXX_HAS_REPOLL (::rdmaxx::detail::has_repoll<::epoll_event>)

/// As epoll(7), for rsockets and descriptors of the system: named repoll. Level-triggered unless a registration says
/// EPOLLET; librdmacm runs a thread for each. Where librdmacm has it: RDMAXX_HAS_REPOLL.
///
/// Several threads may wait() at once, while one calls ctl(). Remove a socket before it ends; those that are left are
/// removed by the end of this, since librdmacm keeps one open that still has any. In a child process after fork the
/// destructor forgets it.
template <class Event>
class basic_repoll {
    static_assert(detail::has_repoll<Event>, "librdmacm has no repoll_create: see RDMAXX_HAS_REPOLL");

public:
    /// @throws error EMFILE, ENOMEM
    basic_repoll() { detail::check(init()); }
    [[nodiscard]] static basic_repoll create(std::error_code& ec) noexcept {
        basic_repoll result(nullptr);
        detail::assign(ec, result.init());
        return result;
    }
    /// An empty one, to be assigned to.
    explicit basic_repoll(std::nullptr_t) noexcept {}

    basic_repoll(basic_repoll&& other) noexcept
        : handle_(std::move(other.handle_)), added_(std::exchange(other.added_, nullptr)),
          count_(std::exchange(other.count_, 0)) {}
    /// Takes the new one first, then closes the old one. Self-move changes nothing.
    basic_repoll& operator=(basic_repoll&& other) noexcept {
        basic_repoll taken(std::move(other));
        std::swap(handle_, taken.handle_);
        std::swap(added_, taken.added_);
        std::swap(count_, taken.count_);
        return *this;
    }
    basic_repoll(const basic_repoll&) = delete;
    basic_repoll& operator=(const basic_repoll&) = delete;
    /// Closes; a failure goes to the destroy-failure hook. errno is kept.
    ~basic_repoll() {
        const detail::errno_guard guard;
        empty();
    }

    /// False for an empty one.
    [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    /// The number for C calls; -1 when empty.
    [[nodiscard]] int native_handle() const noexcept { return handle_.native_handle(); }
    /// C call: rclose.
    void close() {
        empty();
        handle_.close();
    }
    void close(std::error_code& ec) noexcept {
        empty();
        handle_.close(ec);
    }

    /// @param operation EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    /// @param socket native_handle() of an rsocket, or a descriptor of the system
    /// @throws error EEXIST, ENOENT, EBADF
    /// C call: repoll_ctl.
    void ctl(int operation, int socket, Event event = {}) { detail::check(do_ctl(operation, socket, event)); }
    void ctl(int operation, int socket, Event event, std::error_code& ec) noexcept {
        detail::assign(ec, do_ctl(operation, socket, event));
    }

    /// Waits until one is ready. Blocks.
    /// @param room for what is ready, at least one
    /// @param timeout any std::chrono::duration, in steps of a millisecond; hours::max() is for ever
    /// @return the filled part of `room`; empty when the time passed
    /// @throws error EINTR, EINVAL
    /// C call: repoll_wait.
    template <detail::duration Duration>
    [[nodiscard]] std::span<Event> wait(std::span<Event> room, Duration timeout) {
        std::span<Event> filled;
        detail::check(do_wait(room, detail::nanoseconds(timeout), filled));
        return filled;
    }
    template <detail::duration Duration>
    [[nodiscard]] std::span<Event> wait(std::span<Event> room, Duration timeout, std::error_code& ec) noexcept {
        std::span<Event> filled;
        detail::assign(ec, do_wait(room, detail::nanoseconds(timeout), filled));
        return filled;
    }

private:
    [[nodiscard]] detail::status init() noexcept {
        errno = 0;
        const int made = detail::repoll_create(0);
        if (made < 0)
            return {"repoll_create", detail::last_errno()};
        handle_ = rsocket::adopt(made);
        return {};
    }
    [[nodiscard]] detail::status do_ctl(int operation, int socket, Event& event) noexcept {
        if (!handle_)
            return {"repoll_ctl", EBADF};
        if (operation == EPOLL_CTL_ADD && !has_room())
            return {"repoll_ctl", ENOMEM};
        const detail::status result =
            rsocket::checked("repoll_ctl", repoll_ctl(native_handle(), operation, socket, &event));
        if (result.failed())
            return result;
        if (operation == EPOLL_CTL_ADD)
            added_[count_++] = socket;
        if (operation == EPOLL_CTL_DEL)
            for (std::size_t i = 0; i < count_; ++i)
                if (added_[i] == socket) {
                    added_[i] = added_[--count_];
                    break;
                }
        return {};
    }
    /// For one more: the array doubles where its size is a power of two.
    [[nodiscard]] bool has_room() noexcept {
        if ((count_ & (count_ - 1)) != 0)
            return true;
        auto* larger = new (std::nothrow) int[count_ == 0 ? 1 : 2 * count_];
        if (larger == nullptr)
            return false;
        for (std::size_t i = 0; i < count_; ++i)
            larger[i] = added_[i];
        delete[] std::exchange(added_, larger);
        return true;
    }
    void empty() noexcept {
        if (!handle_.foreign_process())
            for (std::size_t i = 0; i < count_; ++i) {
                Event none{};
                static_cast<void>(repoll_ctl(native_handle(), EPOLL_CTL_DEL, added_[i], &none));
            }
        count_ = 0;
        delete[] std::exchange(added_, nullptr);
    }
    [[nodiscard]] detail::status do_wait(std::span<Event> room, std::int64_t ns, std::span<Event>& filled) noexcept {
        const std::int64_t ms = ns / 1'000'000 + (ns % 1'000'000 != 0 ? 1 : 0);
        constexpr int most = std::numeric_limits<int>::max();
        const int timeout = ns == detail::forever ? -1 : ms < most ? static_cast<int>(ms) : most;
        if (!handle_)
            return {"repoll_wait", EBADF};
        const int ready = repoll_wait(native_handle(), room.data(), static_cast<int>(room.size()), timeout);
        if (ready < 0)
            return {"repoll_wait", ready < -1 ? -ready : detail::last_errno()};
        filled = room.first(static_cast<std::size_t>(ready));
        return {};
    }

    rsocket handle_;
    int* added_ = nullptr; ///< what was added and not removed
    std::size_t count_ = 0;
};

using repoll = basic_repoll<::epoll_event>;

} // namespace rdmaxx::inline v0

#endif
