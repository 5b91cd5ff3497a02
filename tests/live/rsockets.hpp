// What the tests of rsockets share.
#ifndef RDMAXX_TESTS_LIVE_RSOCKETS_HPP
#define RDMAXX_TESTS_LIVE_RSOCKETS_HPP

#include "live.hpp"

#include <rdmaxx/cm/rsocket.hpp>

namespace live {

[[nodiscard]] inline rdmaxx::rsocket listening(int backlog = 8) {
    rdmaxx::rsocket socket(AF_INET);
    socket.bind(ipv4());
    socket.listen(backlog);
    return socket;
}

[[nodiscard]] inline bool readable(const rdmaxx::rsocket& socket, std::chrono::milliseconds time) {
    pollfd one = {socket.native_handle(), POLLIN, 0};
    return rdmaxx::rpoll(std::span(&one, 1), time) == 1 && (one.revents & POLLIN) != 0;
}

/// librdmacm opens a descriptor at the first wait of a process that finds nothing at once, and keeps it.
struct first_wait {
    first_wait() {
        static const bool waited = readable(listening(), 200ms);
        CHECK_FALSE(waited);
    }
};
struct waiting_fixture : first_wait, fixture {};

} // namespace live

#endif
