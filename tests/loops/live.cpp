// The Asio adapters on real verbs.
#include "../live/live.hpp"
#include "net.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace live;
using namespace loops;
using loops::net::awaitable;
using rdmaxx::cm_event_type;

namespace {

/// Runs until there is nothing more to do, which must be soon.
bool run(net::io_context& loop) {
    loop.restart();
    loop.run_for(soon);
    return loop.stopped();
}

bool run_until(net::io_context& loop, const bool& done) {
    loop.restart();
    for (const stopwatch waited; !done && waited.elapsed() < soon;)
        loop.run_one_for(100ms);
    return done;
}

/// What a coroutine ended with: empty if it returned.
struct ending {
    bool ended = false;
    std::string what;
    std::error_code code;
};

/// (Not a template: co_spawn is what takes long to compile.)
void start(net::io_context& loop, ending& end, std::function<awaitable<void>()> body) {
    end = {};
    net::co_spawn(loop, std::move(body), [&end](const std::exception_ptr& error) {
        end.ended = true;
        try {
            if (error)
                std::rethrow_exception(error);
        } catch (const rdmaxx::error& e) {
            end.what = e.what();
            end.code = e.code();
        } catch (const system_error& e) {
            end.what = e.code() == aborted ? "aborted" : e.what();
        } catch (const std::exception& e) {
            end.what = e.what();
        }
    });
}

awaitable<void> echo(rx::connection with) try {
    std::array<std::byte, 4096> buffer{};
    while (const std::size_t size = co_await with.receive(buffer))
        co_await with.send(std::span(buffer).first(size));
} catch (const rdmaxx::error& e) {
    if (e.code().value() != ENOTCONN) // the peer may go while it is answered
        throw;
}

awaitable<void> serve(rx::acceptor& acceptor, unsigned clients) {
    for (unsigned i = 0; i < clients; ++i)
        net::co_spawn(acceptor.get_executor(), echo(co_await acceptor.accept()), net::detached);
}

awaitable<std::string> ask(rx::connection& with, std::string_view question) {
    std::array<std::byte, 4096> buffer{};
    co_await with.send(bytes(question));
    const std::size_t size = co_await with.receive(buffer);
    co_return text(std::span(buffer).first(size));
}

} // namespace

TEST_CASE_METHOD(fixture, "an echo, over IPv4 and IPv6", "[loops]") {
    for (const rdmaxx::address& at : {ipv4(), ipv6()}) {
        net::io_context loop;
        rx::acceptor acceptor(loop, at);
        ending server;
        ending client;
        std::string last;
        start(loop, server, [&] { return serve(acceptor, 1); });
        start(loop, client, [&]() -> awaitable<void> {
            rx::connection to = co_await rx::connection::connect(acceptor.local_address());
            for (int i = 0; i < 10; ++i)
                last = co_await ask(to, "message " + std::to_string(i));
        });
        CHECK(run(loop));
        CHECK((server.ended && server.what == ""));
        CHECK((client.ended && client.what == ""));
        CHECK(last == "message 9");
    }
}

TEST_CASE_METHOD(fixture, "forty clients at once, in one thread", "[loops]") {
    net::io_context loop;
    rx::acceptor acceptor(loop, ipv4());
    constexpr unsigned count = 40;
    ending server;
    std::array<ending, count> clients;
    unsigned answers = 0;
    start(loop, server, [&] { return serve(acceptor, count); });
    for (unsigned i = 0; i < count; ++i)
        start(loop, clients[i], [&, i]() -> awaitable<void> {
            rx::connection to = co_await rx::connection::connect(acceptor.local_address());
            for (int n = 0; n < 3; ++n)
                answers += co_await ask(to, std::to_string(i)) == std::to_string(i) ? 1U : 0U;
        });
    CHECK(run(loop));
    for (const ending& client : clients)
        CHECK((client.ended && client.what == ""));
    CHECK((server.ended && server.what == ""));
    CHECK(answers == 3 * count);
}

TEST_CASE_METHOD(fixture, "connecting to nobody", "[loops]") {
    net::io_context loop;
    ending end;
    start(loop, end, []() -> awaitable<void> { co_await rx::connection::connect(ipv4(9)); });
    CHECK(run(loop));
    CHECK(end.what.find("expected established, got rejected") != std::string::npos);
    CHECK(end.code.category() == rdmaxx::reject_category());
    start(loop, end, []() -> awaitable<void> { co_await rx::connection::connect(address_of_nobody()); });
    CHECK(run(loop));
    CHECK(end.what.find("expected addr_resolved, got addr_error") != std::string::npos);
}

TEST_CASE_METHOD(fixture, "clients that vanish before and during the handshake", "[loops]") {
    net::io_context loop;
    rx::acceptor acceptor(loop, ipv4());
    const std::string when = GENERATE("before accept", "after accept");
    CAPTURE(when);
    rdmaxx::event_channel channel;
    rdmaxx::cm_id vanishing = resolved(channel, acceptor.local_address());
    const rdmaxx::cq cq(vanishing.verbs(), 4);
    vanishing.create_qp(rdmaxx::qp_init_attr(cq, 2));
    vanishing.connect();
    ending server;
    ending client;
    std::string answer;
    if (when == "before accept") {
        std::this_thread::sleep_for(100ms); // its request is there
        vanishing = rdmaxx::cm_id();
        start(loop, server, [&] { return serve(acceptor, 1); });
    } else {
        start(loop, server, [&] { return serve(acceptor, 1); });
        loop.run_for(300ms); // its request is accepted, and it does not go on
        CHECK_FALSE(server.ended);
        vanishing = rdmaxx::cm_id();
    }
    start(loop, client, [&]() -> awaitable<void> {
        rx::connection to = co_await rx::connection::connect(acceptor.local_address());
        answer = co_await ask(to, "still there");
    });
    CHECK(run_until(loop, client.ended));
    CHECK(client.what == "");
    CHECK(answer == "still there");
    CHECK(run_until(loop, server.ended));
    CHECK(server.what == "");
}

namespace {

const role killed("killed in a connection", [] {
    net::io_context loop;
    ending end;
    start(loop, end, []() -> awaitable<void> {
        rx::connection to =
            co_await rx::connection::connect(ipv4(static_cast<std::uint16_t>(std::stoi(variable("LIVE_PORT")))));
        co_await to.send(bytes("hello"));
        std::printf("sent\n");
        std::fflush(stdout);
        std::array<std::byte, 10> in{};
        static_cast<void>(co_await to.receive(in));
    });
    loop.run();
    std::printf("%s\n", end.what.c_str());
    return 0;
});

} // namespace

TEST_CASE_METHOD(fixture, "the peer is killed", "[loops]") {
    net::io_context loop;
    rx::acceptor acceptor(loop, ipv4());
    ::setenv("LIVE_PORT", std::to_string(acceptor.local_address().port()).c_str(), 1); // NOLINT(concurrency-mt-unsafe)
    process peer(killed);
    ending end;
    bool first = false;
    std::size_t last = 9;
    start(loop, end, [&]() -> awaitable<void> {
        rx::connection from = co_await acceptor.accept();
        std::array<std::byte, 10> in{};
        first = co_await from.receive(in) == 5;
        last = co_await from.receive(in);
    });
    CHECK(run_until(loop, first));
    CHECK(peer.line() == "sent");
    peer.kill();
    CHECK(run_until(loop, end.ended));
    CHECK(end.what == "");
    CHECK(last == 0);
}

TEST_CASE_METHOD(fixture, "messages that do not fit, and the end", "[loops]") {
    net::io_context loop;
    rx::acceptor acceptor(loop, ipv4(), {.message_size = 64});
    ending server;
    ending client;
    std::error_code too_long_here;
    start(loop, server, [&]() -> awaitable<void> {
        rx::connection from = co_await acceptor.accept();
        std::array<std::byte, 100> in{};
        while (co_await from.receive(in) != 0)
            ;
    });
    const bool both_know = GENERATE(true, false);
    start(loop, client, [&]() -> awaitable<void> {
        rx::connection to =
            co_await rx::connection::connect(acceptor.local_address(), {.message_size = both_know ? 64U : 100U});
        const std::array<std::byte, 65> out{};
        co_await to.send(std::span(out).first(64));
        try {
            co_await to.send(out);
        } catch (const rdmaxx::error& e) {
            too_long_here = e.code();
        }
    });
    CHECK(run(loop));
    CHECK(client.what == "");
    CHECK(too_long_here.value() == (both_know ? EMSGSIZE : ENOTCONN));
    if (both_know)
        CHECK(server.what == "");
    else {
        CAPTURE(server.what);
        // rxe says something else about its own queue pair.
        CHECK((server.code.value() == EMSGSIZE || server.what.find("loc_qp_op_err") != std::string::npos));
    }
}

TEST_CASE_METHOD(fixture, "a connection is closed while another coroutine receives from it", "[loops]") {
    net::io_context loop;
    rx::acceptor acceptor(loop, ipv4());
    ending server;
    ending client;
    ending receiver;
    rx::connection to;
    std::size_t received = 9;
    start(loop, server, [&] { return serve(acceptor, 1); });
    start(loop, client, [&]() -> awaitable<void> { to = co_await rx::connection::connect(acceptor.local_address()); });
    CHECK(run_until(loop, client.ended));
    start(loop, receiver, [&]() -> awaitable<void> {
        std::array<std::byte, 10> in{};
        received = co_await to.receive(in);
    });
    loop.poll();
    CHECK_FALSE(receiver.ended);
    to.close();
    CHECK(run(loop));
    CHECK((receiver.ended && receiver.what == ""));
    CHECK(received == 0);
}

TEST_CASE_METHOD(fixture, "accept is cancelled, and goes on later", "[loops]") {
    net::io_context loop;
    rx::acceptor acceptor(loop, ipv4());
    ending first;
    ending second;
    ending client;
    start(loop, first, [&] { return serve(acceptor, 1); });
    loop.poll();
    acceptor.cancel();
    CHECK(run_until(loop, first.ended));
    CHECK(first.what == "aborted");
    start(loop, client, [&]() -> awaitable<void> { co_await rx::connection::connect(acceptor.local_address()); });
    loop.run_for(200ms);
    CHECK_FALSE(client.ended);
    start(loop, second, [&] { return serve(acceptor, 1); });
    CHECK(run(loop));
    CHECK(client.what == "");
    CHECK(second.what == "");
}

// Each id has one event to come. Gets are cancelled at random meanwhile, and none of the events is lost.
TEST_CASE_METHOD(fixture, "gets are cancelled at random while events arrive", "[loops]") {
    constexpr unsigned count = 300;
    host local;
    net::io_context loop;
    std::optional<rx::event_channel> events(std::in_place, loop);
    std::vector<rdmaxx::cm_id> ids;
    std::array<net::cancellation_signal, 2> signals;
    std::minstd_rand random(1);
    unsigned delivered = 0;
    unsigned cancelled = 0;
    unsigned begun = 0;
    bool stopping = false;
    std::function<void(net::cancellation_signal&)> get = [&](net::cancellation_signal& signal) {
        ++begun;
        events->async_get_cm_event(
            net::bind_cancellation_slot(signal.slot(), [&, in = &signal](error_code ec, const rdmaxx::cm_event& event) {
                ++(ec ? cancelled : delivered);
                CHECK((ec == aborted || event.type() == cm_event_type::addr_resolved));
                if (!stopping)
                    get(*in);
            }));
    };
    for (auto& signal : signals)
        get(signal);
    for (const stopwatch waited; delivered < count && waited.elapsed() < soon;) {
        if (ids.size() < count) {
            ids.emplace_back(events->next_layer());
            ids.back().resolve_addr(local.address(), 2s);
        }
        loop.restart();
        if (random() % 2 == 0)
            loop.poll_one();
        else
            loop.run_one_for(1ms);
        switch (random() % 4) {
        case 0: events->cancel(); break;
        case 1: events.emplace(loop, events->release()); break;
        default: signals[random() % 2].emit(net::cancellation_type::total);
        }
    }
    stopping = true;
    events->cancel();
    CHECK(run(loop));
    std::printf("%u gets begun, %u cancelled; %u events, %u delivered\n", begun, cancelled, count, delivered);
    CHECK(delivered == count);
    CHECK(cancelled > 10);
    CHECK(begun == delivered + cancelled);
    CHECK_FALSE(events->next_layer().try_get_cm_event());
    ids.clear();
}

// Last: the interface loses its IPv6 address.
TEST_CASE_METHOD(fixture, "asynchronous events of a device", "[loops]") {
    if (!in_vm())
        return; // it is not this test's machine
    net::io_context loop;
    const rdmaxx::device_list devices;
    rx::context device(loop, rdmaxx::context(devices.front()));
    std::vector<rdmaxx::async_event_type> types;
    error_code last;
    bool port_is_back = false;
    net::co_spawn(
        loop,
        [&]() -> awaitable<void> {
            try {
                while (true) {
                    const rdmaxx::async_event event = co_await device.async_get_async_event(net::use_awaitable);
                    types.push_back(event.type());
                    port_is_back = port_is_back ||
                                   (event.type() == rdmaxx::async_event_type::port_active && event.port_num() == 1);
                }
            } catch (const system_error& e) {
                last = e.code();
            }
        },
        net::detached);
    loop.poll();
    const std::string link = "ip link set dev " + variable("RIG_NETDEV");
    REQUIRE(std::system((link + " down && " + link + " up").c_str()) == 0); // NOLINT(concurrency-mt-unsafe)
    CHECK(run_until(loop, port_is_back));
    device.cancel();
    CHECK(run(loop));
    CHECK(last == aborted);
    CHECK(std::find(types.begin(), types.end(), rdmaxx::async_event_type::port_err) != types.end());
}
