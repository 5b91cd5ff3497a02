// repoll: as epoll, for rsockets. Compiled where librdmacm has it (rdma-core 65).
#include "rsockets.hpp"

#include <array>
#include <string>
#include <thread>

#include <unistd.h>

using namespace live;

static_assert(RDMAXX_HAS_REPOLL);

TEST_CASE_METHOD(waiting_fixture, "repoll finds the rsockets that are ready among those that were added",
                 "[ib][rsocket][65]") {
    rdmaxx::rsocket listener = listening();
    rdmaxx::repoll ready;
    const auto wanted = [](const rdmaxx::rsocket& socket) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = socket.native_handle();
        return event;
    };
    ready.ctl(EPOLL_CTL_ADD, listener.native_handle(), wanted(listener));
    std::error_code ec;
    ready.ctl(EPOLL_CTL_ADD, listener.native_handle(), wanted(listener), ec);
    CHECK(ec == std::errc::file_exists);
    std::array<epoll_event, 4> room{};
    const stopwatch waited;
    CHECK(ready.wait(std::span(room), 20ms).empty());
    CHECK(waited.elapsed() >= 20ms);

    rdmaxx::rsocket client(AF_INET);
    std::thread connecting([&]() { client.connect(listener.local_address(), ec); });
    const std::span<epoll_event> first = ready.wait(std::span(room), soon);
    REQUIRE(first.size() == 1);
    CHECK(first[0].data.fd == listener.native_handle());
    rdmaxx::rsocket server = listener.accept();
    connecting.join();
    REQUIRE(!ec);

    ready.ctl(EPOLL_CTL_ADD, server.native_handle(), wanted(server));
    CHECK(client.send(bytes("hello")) == 5);
    const std::span<epoll_event> second = ready.wait(std::span(room), soon);
    REQUIRE(second.size() == 1);
    CHECK(second[0].data.fd == server.native_handle());
    std::string text(5, '?');
    CHECK(server.recv(std::as_writable_bytes(std::span(text))) == 5);
    CHECK(text == "hello");

    ready.ctl(EPOLL_CTL_DEL, server.native_handle());
    ready.ctl(EPOLL_CTL_DEL, server.native_handle(), {}, ec);
    CHECK(ec == std::errc::no_such_file_or_directory);
    CHECK(client.send(bytes("unseen")) == 6);
    CHECK(ready.wait(std::span(room), 20ms).empty());

    rdmaxx::repoll moved = std::move(ready);
    CHECK_FALSE(ready); // NOLINT(bugprone-use-after-move)
    moved.close();      // the listener is still in it: C would refuse
    CHECK(moved.native_handle() == -1);
    moved.ctl(EPOLL_CTL_ADD, listener.native_handle(), wanted(listener), ec);
    CHECK(ec == std::errc::bad_file_descriptor);
}
