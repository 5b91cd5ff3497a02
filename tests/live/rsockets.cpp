// rsockets: streams and datagrams with the calls of sockets, on real verbs.
#include "rsockets.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

#include <unistd.h>

using namespace live;

namespace {

std::span<std::byte> writable(std::string& text) {
    return std::as_writable_bytes(std::span(text));
}

/// Runs `body` in another thread meanwhile. Both sides of a socket block.
class meanwhile {
public:
    explicit meanwhile(std::function<void()> body)
        : thread_([this, body = std::move(body)]() {
              try {
                  body();
              } catch (const std::exception& e) {
                  failure_ = e.what();
              }
          }) {}
    ~meanwhile() { CHECK(failure() == ""); }
    meanwhile(const meanwhile&) = delete;
    meanwhile& operator=(const meanwhile&) = delete;

    /// Waits for its end.
    [[nodiscard]] std::string failure() {
        if (thread_.joinable())
            thread_.join();
        return failure_;
    }

private:
    std::string failure_;
    std::thread thread_;
};

/// Both ends of a stream.
struct stream {
    explicit stream(const std::function<void(rdmaxx::rsocket&)>& prepare = {}) {
        rdmaxx::rsocket listener(AF_INET);
        if (prepare) {
            prepare(listener);
            prepare(client);
        }
        listener.bind(ipv4());
        listener.listen();
        at = listener.local_address();
        meanwhile accepting([&]() { server = listener.accept(); });
        client.connect(at);
        REQUIRE(accepting.failure() == "");
    }

    rdmaxx::address at;
    rdmaxx::rsocket client{AF_INET};
    rdmaxx::rsocket server;
};

/// All of it, in as many receives as it takes.
std::string receive(rdmaxx::rsocket& socket, std::size_t size) {
    std::string text(size, '?');
    for (std::size_t have = 0; have < size;) {
        const std::size_t more = socket.recv(writable(text).subspan(have));
        if (more == 0)
            return text.substr(0, have);
        have += more;
    }
    return text;
}

} // namespace

TEST_CASE_METHOD(fixture, "a stream of rsockets carries bytes both ways, by every call", "[ib][rsocket][asan]") {
    stream s;
    CHECK(s.client.send(bytes("sent ")) == 5);
    CHECK(s.client.write(bytes("written ")) == 8);
    std::string one = "gathered";
    std::string two = " pieces ";
    std::array pieces = {iovec{one.data(), one.size()}, iovec{two.data(), two.size()}};
    CHECK(s.client.writev(pieces) == 16);
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    CHECK(s.client.sendmsg(message) == 16);
    CHECK(receive(s.server, 45) == "sent written gathered pieces gathered pieces ");

    CHECK(s.server.send(bytes("abcdefghijklmnop")) == 16);
    REQUIRE(readable(s.client, soon));
    std::string text(4, '?');
    CHECK(s.client.recv(writable(text), MSG_PEEK) == 4);
    CHECK(text == "abcd");
    CHECK(s.client.read(writable(text)) == 4);
    CHECK(text == "abcd");
    one.resize(2);
    pieces[0] = {one.data(), one.size()};
    CHECK(s.client.readv(pieces) == 2); // the first piece only
    CHECK(one == "ef");
    CHECK(s.client.recvmsg(message) == 2);
    CHECK(one == "gh");
    rdmaxx::address from;
    CHECK(s.client.recvfrom(writable(text), from) == 4);
    CHECK(text == "ijkl");
    CHECK(receive(s.client, 4) == "mnop");
}

TEST_CASE_METHOD(fixture, "rsockets know both addresses, and a stream is ended by shutdown and by its end",
                 "[ib][rsocket][asan]") {
    stream s;
    CHECK(s.client.peer_address() == s.at);
    CHECK(s.server.local_address() == s.at);
    CHECK(s.client.local_address() == s.server.peer_address());
    CHECK(s.client.local_address().port() != 0);

    CHECK(s.client.send(bytes("the last")) == 8);
    s.client.shutdown(SHUT_WR);
    CHECK(receive(s.server, 100) == "the last"); // up to the end
    CHECK(s.server.send(bytes("answer")) == 6);  // the other direction is open
    CHECK(receive(s.client, 6) == "answer");
    std::error_code ec;
    CHECK(s.server.sendto(bytes("to"), s.at, 0, ec) == 0);
    CHECK(ec == std::errc::already_connected);
    {
        const meanwhile closing([&]() { s.server.close(); });
        CHECK(receive(s.client, 1).empty());
    }
    CHECK_FALSE(s.server);
}

TEST_CASE_METHOD(fixture, "a stream carries more than its buffers hold, while both sides send", "[ib][rsocket]") {
    stream s;
    std::string data(1 << 20, '\0');
    std::iota(data.begin(), data.end(), '\0');
    const auto send_all = [&](rdmaxx::rsocket& socket) {
        for (std::span<const std::byte> rest = bytes(data); !rest.empty();)
            rest = rest.subspan(socket.send(rest));
    };
    meanwhile echo([&]() {
        need(receive(s.server, data.size()) == data, "the server received something else");
        send_all(s.server);
    });
    send_all(s.client);
    CHECK((receive(s.client, data.size()) == data)); // not printed
    CHECK(echo.failure() == "");
}

namespace {

/// librdmacm makes the address handles of datagrams without a global route, which RoCE does not have. On its own, since
/// it leaves a descriptor behind when that fails.
const role sends_datagrams("sends_datagrams", []() {
    rdmaxx::rsocket server(AF_INET, SOCK_DGRAM);
    server.bind(ipv4());
    need(server.local_address().port() != 0, "bound");
    rdmaxx::rsocket client(AF_INET, SOCK_DGRAM);
    std::error_code ec;
    need(client.sendto(bytes("who is there?"), server.local_address(), 0, ec) == 0 && ec, "RoCE has no datagrams");
    server.set_nonblocking();
    std::string text(64, '?');
    rdmaxx::address from;
    need(server.recvfrom(writable(text), from, 0, ec) == 0, "nothing came");
    need(ec == std::errc::resource_unavailable_try_again, ec.message());
    std::printf("all as it should be ");
    return 0;
});

} // namespace

TEST_CASE_METHOD(fixture, "datagrams of rsockets are an error on RoCE", "[ib][rsocket]") {
    process p(sends_datagrams);
    CHECK(p.rest() == "all as it should be [exit status 0]");
}

namespace {

/// A pipe, for descriptors of the system beside rsockets.
struct pipe_ends {
    pipe_ends() { REQUIRE(::pipe(ends) == 0); }
    ~pipe_ends() {
        ::close(ends[0]);
        ::close(ends[1]);
    }
    pipe_ends(const pipe_ends&) = delete;
    pipe_ends& operator=(const pipe_ends&) = delete;

    int ends[2];
};

} // namespace

TEST_CASE_METHOD(waiting_fixture, "rpoll finds the rsocket that is ready, beside a descriptor, and keeps to its time",
                 "[ib][rsocket][asan]") {
    stream s;
    const pipe_ends other;
    std::array<pollfd, 2> wanted = {pollfd{s.server.native_handle(), POLLIN, 0}, pollfd{other.ends[0], POLLIN, 0}};
    const stopwatch waited;
    for (int i = 1; i <= 3; ++i) { // after one that ended by its time, C's would spin
        CHECK(rdmaxx::rpoll(wanted, 20ms) == 0);
        CHECK(waited.elapsed() >= i * 20ms);
    }
    CHECK(rdmaxx::rpoll(wanted, 0s) == 0);
    meanwhile sending([&]() {
        std::this_thread::sleep_for(20ms);
        s.client.send(bytes("x"));
    });
    CHECK(rdmaxx::rpoll(wanted, soon) == 1);
    CHECK(wanted[0].revents == POLLIN);
    CHECK(wanted[1].revents == 0);
    CHECK(receive(s.server, 1) == "x");
    REQUIRE(::write(other.ends[1], "y", 1) == 1);
    CHECK(rdmaxx::rpoll(wanted, std::chrono::hours::max()) == 1);
    CHECK(wanted[0].revents == 0);
    CHECK(wanted[1].revents == POLLIN);
}

TEST_CASE_METHOD(waiting_fixture, "rselect finds the rsocket that is ready, beside a descriptor, and keeps to its time",
                 "[ib][rsocket]") {
    stream s;
    const pipe_ends other;
    fd_set readable_set;
    const auto select = [&](timeval time) {
        FD_ZERO(&readable_set);
        FD_SET(s.server.native_handle(), &readable_set);
        FD_SET(other.ends[0], &readable_set);
        const int top = std::max(s.server.native_handle(), other.ends[0]) + 1;
        return rdmaxx::rselect(top, &readable_set, nullptr, nullptr, &time);
    };
    const stopwatch waited;
    for (int i = 1; i <= 3; ++i) {
        CHECK(select({0, 20'000}) == 0);
        CHECK(waited.elapsed() >= i * 20ms);
        CHECK_FALSE(FD_ISSET(s.server.native_handle(), &readable_set));
    }
    CHECK(select({0, 0}) == 0);
    CHECK(s.client.send(bytes("x")) == 1);
    CHECK(select({20, 0}) == 1);
    CHECK(FD_ISSET(s.server.native_handle(), &readable_set));
    CHECK_FALSE(FD_ISSET(other.ends[0], &readable_set));
    CHECK(receive(s.server, 1) == "x");
    REQUIRE(::write(other.ends[1], "y", 1) == 1);
    CHECK(select({20, 0}) == 1);
    CHECK(FD_ISSET(other.ends[0], &readable_set));
}

TEST_CASE_METHOD(fixture, "a non-blocking rsocket is EAGAIN where it would block, and connects in the background",
                 "[ib][rsocket]") {
    rdmaxx::rsocket listener = listening();
    listener.set_nonblocking();
    std::error_code ec;
    CHECK_FALSE(listener.accept(ec));
    CHECK(ec == std::errc::resource_unavailable_try_again);
    rdmaxx::rsocket client(AF_INET);
    client.set_nonblocking();
    client.connect(listener.local_address(), ec);
    CHECK(ec == std::errc::operation_in_progress);
    rdmaxx::rsocket server;
    pollfd both[] = {{client.native_handle(), POLLOUT, 0}, {listener.native_handle(), POLLIN, 0}};
    for (const stopwatch waited; waited.elapsed() < soon && !(server && (both[0].revents & POLLOUT) != 0);) {
        static_cast<void>(rdmaxx::rpoll(both, 20ms));
        if (!server && (both[1].revents & POLLIN) != 0)
            server = listener.accept(ec);
    }
    REQUIRE(server);
    CHECK(client.getsockopt(SOL_SOCKET, SO_ERROR) == 0);
    std::string text(4, '?');
    CHECK(client.recv(writable(text), 0, ec) == 0);
    CHECK(ec == std::errc::resource_unavailable_try_again);
    CHECK(client.send(bytes("sent")) == 4);
    client.set_nonblocking(false);
    server.set_nonblocking(false); // from version 65 on it starts as its listener is
    CHECK(receive(server, 4) == "sent");
    CHECK(server.send(bytes("back")) == 4);
    CHECK(client.recv(writable(text)) > 0); // waits for it
}

TEST_CASE_METHOD(fixture, "options of rsockets are set and read, and one that is not known is an error",
                 "[ib][rsocket]") {
    rdmaxx::rsocket socket(AF_INET);
    CHECK(socket.getsockopt(SOL_SOCKET, SO_REUSEADDR) == 0);
    socket.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1);
    CHECK(socket.getsockopt(SOL_SOCKET, SO_REUSEADDR) == 1);
    socket.setsockopt(SOL_SOCKET, SO_SNDBUF, 65536);
    CHECK(socket.getsockopt(SOL_SOCKET, SO_SNDBUF) >= 65536); // as with sockets, it may be more
    socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);
    CHECK(socket.getsockopt(IPPROTO_TCP, TCP_NODELAY) == 1);
    socket.setsockopt(SOL_RDMA, RDMA_SQSIZE, 64);
    CHECK(socket.getsockopt(SOL_RDMA, RDMA_SQSIZE) == 64);
    socket.iomap_size(3);
    CHECK(socket.getsockopt(SOL_RDMA, RDMA_IOMAPSIZE) >= 3);
    std::error_code ec;
    socket.setsockopt(SOL_SOCKET, SO_BROADCAST, 1, ec);
    CHECK(ec == std::errc::not_supported);
    static_cast<void>(socket.getsockopt(SOL_RDMA, 1000, ec));
    CHECK(ec);
}

TEST_CASE_METHOD(fixture, "memory that an rsocket maps is written by its peer", "[ib][rsocket]") {
    stream s([](rdmaxx::rsocket& socket) { socket.iomap_size(4); });
    std::vector<std::byte> memory(4096);
    const off_t at = s.server.iomap(memory);
    CHECK(s.server.send(bytes("mapped")) == 6);
    CHECK(receive(s.client, 6) == "mapped");
    CHECK(s.client.iowrite(bytes("into your memory"), at + 100) == 16);
    CHECK(s.client.send(bytes("written")) == 7);
    CHECK(receive(s.server, 7) == "written");
    CHECK(text(std::span(memory).subspan(100, 16)) == "into your memory");
    s.server.iounmap(memory);
    std::error_code ec;
    s.server.iounmap(memory, ec);
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(fixture, "what rsockets cannot do is an error with the call and the address", "[ib][rsocket]") {
    std::error_code ec;
    rdmaxx::rsocket listener = listening();
    rdmaxx::rsocket second(AF_INET);
    try {
        second.bind(listener.local_address());
        FAIL("nothing was thrown");
    } catch (const rdmaxx::error& e) {
        CHECK(e.code() == std::errc::address_in_use);
        CHECK(std::string(e.what()) == "rbind " + listener.local_address().to_string() + ": " + e.code().message());
    }
    second.connect(ipv4(1), ec);
    CHECK(ec == std::errc::connection_refused);
    CHECK_FALSE(rdmaxx::rsocket::create(AF_UNIX, SOCK_STREAM, 0, ec));
    CHECK(ec == std::errc::not_supported);
    CHECK_FALSE(rdmaxx::rsocket::create(AF_INET, SOCK_RAW, 0, ec));
    CHECK(ec == std::errc::not_supported);
}

TEST_CASE_METHOD(fixture, "an empty rsocket is EBADF, a moved one the same connection", "[ib][rsocket][asan]") {
    stream s;
    std::error_code ec;
    rdmaxx::rsocket moved = std::move(s.client);
    CHECK(s.client.native_handle() == -1); // NOLINT(bugprone-use-after-move)
    const auto refused = [&]() {
        const bool result = ec == std::errc::bad_file_descriptor;
        ec.clear();
        return result;
    };
    s.client.send(bytes("x"), 0, ec);
    CHECK(refused());
    s.client.listen(1, ec);
    CHECK(refused());
    s.client.connect(s.at, ec);
    CHECK(refused());
    static_cast<void>(s.client.local_address(ec));
    CHECK(refused());
    s.client.set_nonblocking(true, ec);
    CHECK(refused());
    s.client.close(ec); // already
    CHECK_FALSE(ec);
    CHECK(moved.send(bytes("hello")) == 5);
    CHECK(receive(s.server, 5) == "hello");

    const int number = std::move(moved).release();
    moved = rdmaxx::rsocket::adopt(number);
    CHECK(moved.send(bytes("adopted")) == 7);
    CHECK(receive(s.server, 7) == "adopted");

    // A child that is forked forgets the socket.
    CHECK(in_forked_child([&]() -> std::string {
              moved = rdmaxx::rsocket();
              return "";
          }) == "");
    CHECK(s.server.send(bytes("still here")) == 10);
    CHECK(receive(moved, 10) == "still here");
}
