// Getting events: every way to wait, several threads, signals, and events that C code got.
#include "live.hpp"

#include <rdmaxx/cm/stop.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>

using namespace live;
using rdmaxx::cm_event;
using rdmaxx::cm_event_type;

TEST_CASE_METHOD(fixture, "get_cm_event blocks until an event comes", "[events][asan]") {
    host local;
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    std::thread later([&]() {
        std::this_thread::sleep_for(50ms);
        id.resolve_addr(local.address(), 2s);
    });
    const stopwatch waited;
    const cm_event event = channel.get_cm_event();
    CHECK(waited.elapsed() >= 40ms);
    CHECK(event.type() == cm_event_type::addr_resolved);
    CHECK(event.id() == id);
    CHECK_FALSE(event.listen_id());
    CHECK_FALSE(event.code());
    CHECK(event.private_data().empty());
    later.join();
}

TEST_CASE_METHOD(fixture, "a get without an event is empty: at once, at a time-out, at a deadline", "[events]") {
    rdmaxx::event_channel channel;
    CHECK_FALSE(channel.try_get_cm_event());
    CHECK_FALSE(channel.get_cm_event_for(0s));
    CHECK_FALSE(channel.get_cm_event_for(-1s));
    const stopwatch waited;
    CHECK_FALSE(channel.get_cm_event_for(30ms));
    CHECK(waited.elapsed() >= 30ms);
    CHECK_FALSE(channel.get_cm_event_until(std::chrono::steady_clock::now() + 30ms));
    CHECK_FALSE(channel.get_cm_event_until(std::chrono::system_clock::now() + 30ms));
    CHECK(waited.elapsed() >= 85ms);
    CHECK_FALSE(channel.get_cm_event_until(std::chrono::steady_clock::now() - 1h));
    CHECK(waited.elapsed() < soon);

    const rdmaxx::cm_id id(channel);
    id.resolve_addr(ipv4(7), 2s);
    CHECK(channel.get_cm_event_for(std::chrono::hours::max()).type() == cm_event_type::addr_resolved);
    id.resolve_route(2s);
    CHECK(channel.get_cm_event_until(std::chrono::steady_clock::time_point::max()).type() ==
          cm_event_type::route_resolved);
}

#if RDMAXX_HAS_STOP_TOKEN
TEST_CASE_METHOD(fixture, "a stop token ends a get of events, and a thread joins at once", "[events][stop][tsan]") {
    rdmaxx::event_channel channel;
    std::atomic<bool> empty = false;
    std::jthread waiter([&](const std::stop_token& token) { empty = !rdmaxx::get_cm_event(channel, token); });
    std::this_thread::sleep_for(20ms);
    const stopwatch clock;
    waiter.request_stop();
    waiter.join();
    CHECK(clock.elapsed() < 1s); // a millisecond, on a machine of its own
    CHECK(empty);

    // Stopped from the start: an event that is there is preferred.
    const rdmaxx::cm_id id(channel);
    id.resolve_addr(ipv4(7), 2s);
    pollfd ready = {channel.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 20'000) == 1);
    std::stop_source stopped;
    stopped.request_stop();
    CHECK(rdmaxx::get_cm_event(channel, stopped.get_token()).type() == cm_event_type::addr_resolved);
    CHECK_FALSE(rdmaxx::get_cm_event(channel, stopped.get_token()));
}
#endif

TEST_CASE_METHOD(fixture, "one thread plays both sides in a poll loop over the descriptors", "[events]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    id.resolve_addr(local.address(), 2s);
    end client;
    end server;
    int established = 0;
    pollfd ready[] = {{channel.fd(), POLLIN, 0}, {local.channel.fd(), POLLIN, 0}};
    while (established < 2 && ::poll(ready, 2, 20'000) > 0) {
        while (const cm_event event = channel.try_get_cm_event()) {
            if (event.type() == cm_event_type::addr_resolved) {
                id.resolve_route(2s);
            } else if (event.type() == cm_event_type::route_resolved) {
                client = end(std::move(id), local.domain);
                client.id.connect();
            } else {
                CHECK(event.type() == cm_event_type::established);
                ++established;
            }
        }
        while (cm_event event = local.channel.try_get_cm_event()) {
            if (event.type() == cm_event_type::connect_request) {
                server = end(event.take_id(), local.domain);
                server.id.accept();
            } else {
                CHECK(event.type() == cm_event_type::established);
                ++established;
            }
        }
    }
    CHECK(established == 2);
}

TEST_CASE_METHOD(fixture, "signals do not end a get, nor a connection that is being set up", "[ib][events][signals]") {
    struct sigaction ignore {};
    struct sigaction before {};
    static std::atomic<int> received = 0;
    ignore.sa_handler = [](int) {
        ++received;
    };
    REQUIRE(::sigaction(SIGUSR1, &ignore, &before) == 0); // without SA_RESTART
    std::atomic<bool> done = false;
    std::string failure;
    std::thread connecting([&]() {
        try {
            rdmaxx::event_channel idle;
            for (const stopwatch clock; clock.elapsed() < 600ms;) {
                connection c;
                need(!idle.get_cm_event_for(20ms), "an event came from nowhere");
                c.server.qp.post_recv(c.server.mr);
                std::array<rdmaxx::wc, 1> none;
                need(c.server.completions.wait_for(c.server.cq, none, 20ms).empty(), "a completion came from nowhere");
                c.client.qp.post_send(c.client.mr);
                need(c.server.next_ok().is_recv(), "nothing was received");
            }
        } catch (const std::exception& e) {
            failure = e.what();
        }
        done = true;
    });
    const pthread_t thread = connecting.native_handle();
    while (!done) {
        ::pthread_kill(thread, SIGUSR1);
        std::this_thread::sleep_for(10ms);
    }
    connecting.join();
    ::sigaction(SIGUSR1, &before, nullptr);
    CHECK(failure == "");
    CHECK(received > 5);
}

TEST_CASE_METHOD(fixture, "several threads get from one channel, and each event comes once", "[events][tsan]") {
    rdmaxx::event_channel channel;
    constexpr int ids = 60;
    std::mutex lock;
    std::map<void*, int> seen;
    std::atomic<int> count = 0;
    std::vector<std::thread> getters;
    for (int i = 0; i < 4; ++i)
        getters.emplace_back([&]() {
            for (const stopwatch clock; count < ids && clock.elapsed() < soon;) {
                const cm_event event = channel.get_cm_event_for(10ms);
                if (event.type() != cm_event_type::addr_resolved)
                    continue;
                const std::lock_guard guard(lock);
                ++seen[event.id().native_handle()];
                ++count;
            }
        });
    std::vector<rdmaxx::cm_id> made;
    for (int i = 0; i < ids; ++i) {
        made.emplace_back(channel);
        made.back().resolve_addr(ipv4(7), 2s);
    }
    for (std::thread& getter : getters)
        getter.join();
    CHECK(seen.size() == ids);
    CHECK(count == ids);
    CHECK_FALSE(channel.try_get_cm_event());
}

TEST_CASE_METHOD(fixture, "expect throws another event as a copy, with its code and name", "[events][asan]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    id.resolve_addr(address_of_nobody(), 100ms);
    SECTION("by exception") {
        try {
            channel.expect_and_ack(id, cm_event_type::addr_resolved);
            FAIL("nothing was thrown");
        } catch (const rdmaxx::unexpected_event& e) {
            CHECK(e.event().type() == cm_event_type::addr_error);
            CHECK(e.event().id() == id.native_handle());
            CHECK(e.code() == std::errc::timed_out);
            CHECK(std::string(e.what()).find("expected addr_resolved, got addr_error") != std::string::npos);
            CHECK(rdmaxx::diagnose(e).find("did not answer in time") != std::string::npos);
        }
    }
    SECTION("by error code, with the event") {
        std::error_code ec;
        const cm_event event = channel.expect(id, cm_event_type::addr_resolved, ec);
        CHECK(ec == std::errc::timed_out);
        CHECK(event.type() == cm_event_type::addr_error);
        CHECK(event.status() == -ETIMEDOUT);
    }
    SECTION("unwinding past the id while it is thrown") {
        const auto throwing = [&]() {
            const rdmaxx::cm_id inner(channel);
            inner.bind_addr(ipv4());
            channel.expect_and_ack(inner, cm_event_type::addr_resolved); // it is the other id's
        };
        CHECK_THROWS_AS(throwing(), rdmaxx::unexpected_event);
    }
}

TEST_CASE_METHOD(fixture, "expect at its deadline is ETIMEDOUT, and another id's event is EPROTO", "[events]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    const rdmaxx::cm_id other(channel);
    const auto until = [](auto time) {
        return std::chrono::steady_clock::now() + time;
    };
    std::error_code ec;
    CHECK_FALSE(channel.expect(id, cm_event_type::addr_resolved, until(20ms), ec));
    CHECK(ec == std::errc::timed_out);
    CHECK_THROWS_AS(channel.expect_and_ack(id, cm_event_type::addr_resolved, until(20ms)), rdmaxx::error);

    id.resolve_addr(ipv4(7), 2s);
    channel.expect_and_ack(other, cm_event_type::addr_resolved, until(20s), ec);
    CHECK(ec == std::error_code(EPROTO, std::system_category()));
    other.resolve_addr(ipv4(7), 2s);
    channel.expect_and_ack(other, cm_event_type::addr_resolved, until(20s), ec);
    CHECK_FALSE(ec);
}

TEST_CASE_METHOD(fixture, "take_id gives a request's id once: twice, and of another event, is EINVAL",
                 "[events][asan]") {
    host local;
    rdmaxx::event_channel channel;
    end client(resolved(channel, local.address()), local.domain);
    client.id.connect();
    cm_event request = get(local.channel, cm_event_type::connect_request);
    CHECK_FALSE(request.id()); // it is the event's until it is taken
    CHECK(request.listen_id() == local.listener);
    CHECK(request.request().peer_address() == client.id.local_address());
    std::error_code ec;
    {
        const rdmaxx::cm_id taken = request.take_id(ec);
        CHECK_FALSE(ec);
        CHECK(request.id() == taken);
        CHECK_FALSE(request.request());
        CHECK_FALSE(request.take_id(ec));
        CHECK(ec == std::errc::invalid_argument);
    }
    // The new id is gone, unanswered, and its event is still here.
    CHECK(next(channel).code() == rejected_by_program());
    std::move(request).ack();

    client.id = rdmaxx::cm_id(channel);
    client.id.resolve_addr(local.address(), 2s);
    cm_event resolved_event = get(channel, cm_event_type::addr_resolved);
    CHECK_FALSE(resolved_event.take_id(ec));
    CHECK(ec == std::errc::invalid_argument);
    CHECK_FALSE(cm_event().take_id(ec));
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(fixture, "events show what they carry, and EINVAL for what they do not", "[ib][events]") {
    host local;
    rdmaxx::event_channel channel;
    end client(resolved(channel, local.address()), local.domain);
    std::error_code ec;
    {
        client.id.connect({.private_data = bytes("hello"), .responder_resources = 3, .initiator_depth = 2});
        cm_event request = get(local.channel, cm_event_type::connect_request);
        CHECK(request.conn_param().qp_num == client.qp.qp_num());
        CHECK(request.conn_param().initiator_depth == 3); // each side sees the other's turned round
        CHECK(request.conn_param().responder_resources == 2);
        CHECK(text(request.private_data().first(5)) == "hello");
        CHECK(request.ud_param(ec) == nullptr);
        CHECK(ec == std::errc::invalid_argument);
        const rdmaxx::cm_event_snapshot copy = request.snapshot();
        std::move(request).ack();
        CHECK(copy.type() == cm_event_type::connect_request);
        CHECK(copy.listen_id() == local.listener.native_handle());
        CHECK(text(copy.private_data().first(5)) == "hello");
    }
    const cm_event rejected = get(channel, cm_event_type::rejected);
    CHECK(rejected.conn_param(ec) == nullptr);
    CHECK(ec == std::errc::invalid_argument);
    CHECK(rejected.code() == std::errc::connection_refused);
    CHECK(rejected.code().category() == rdmaxx::reject_category());
}

// ---------------------------------------------------------------------------------------------------------------
// Beside C code.

TEST_CASE_METHOD(fixture, "an adopted channel is non-blocking, a released one what it was before", "[events][adopt]") {
    const bool nonblocking = GENERATE(false, true);
    rdma_event_channel* raw = ::rdma_create_event_channel();
    REQUIRE(raw != nullptr);
    const auto flags = [&]() {
        return ::fcntl(raw->fd, F_GETFL);
    };
    ::fcntl(raw->fd, F_SETFL, flags() | O_APPEND | (nonblocking ? O_NONBLOCK : 0));
    const int before = flags();
    const int descriptor_flags = ::fcntl(raw->fd, F_GETFD);
    std::error_code ec;
    rdmaxx::event_channel adopted = rdmaxx::event_channel::adopt(raw, ec);
    REQUIRE_FALSE(ec);
    CHECK(flags() == (before | O_NONBLOCK));
    CHECK(::fcntl(raw->fd, F_GETFD) == descriptor_flags);
    CHECK_FALSE(adopted.try_get_cm_event());
    CHECK(std::move(adopted).release() == raw);
    CHECK(flags() == before);
    ::rdma_destroy_event_channel(raw);
}

TEST_CASE_METHOD(fixture, "C code's own ids share a channel: its events name them, and its context stays",
                 "[events][adopt][asan]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id ours(channel);
    int mine = 0;
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(channel.native_handle(), &raw, &mine, RDMA_PS_TCP) == 0);
    rdmaxx::address there = ipv4(7);
    REQUIRE(::rdma_resolve_addr(raw, nullptr, const_cast<sockaddr*>(there.data()), 2000) == 0);
    cm_event event = get(channel, cm_event_type::addr_resolved);
    CHECK(event.id() == rdmaxx::cm_id_ref(raw));
    CHECK(event.id().user_context<int>() == &mine);
    CHECK(event.id() != ours);

    SECTION("and it waits for the ack when it destroys one, as with events of its own") {
        std::atomic<bool> destroyed = false;
        std::thread destroyer([&]() { destroyed = ::rdma_destroy_id(raw) == 0; });
        std::this_thread::sleep_for(50ms);
        CHECK_FALSE(destroyed);
        std::move(event).ack();
        destroyer.join();
        CHECK(destroyed);
    }
    SECTION("an adopted one is counted, with the events that were got before") {
        hang_recorder recorder(rdmaxx::hang_action::keep_waiting);
        recorder.on_report([&]() { event = cm_event(); });
        std::error_code ec;
        rdmaxx::cm_id adopted = rdmaxx::cm_id::adopt(raw, channel, ec);
        REQUIRE_FALSE(ec);
        CHECK(adopted.user_context<int>() == &mine);
        adopted = rdmaxx::cm_id();
        REQUIRE(recorder.reports().size() == 1);
        CHECK(recorder.reports()[0].object == raw);
        CHECK(recorder.reports()[0].count == 1);
        CHECK(std::string(recorder.reports()[0].events[0].type) == "addr_resolved");
    }
    SECTION("a released one is C code's again") {
        std::error_code ec;
        rdmaxx::cm_id adopted = rdmaxx::cm_id::adopt(raw, channel, ec);
        CHECK(std::move(adopted).release() == raw);
        std::move(event).ack();
        CHECK(::rdma_destroy_id(raw) == 0);
    }
    SECTION("one of another channel is not adopted: EINVAL") {
        const rdmaxx::event_channel other;
        std::error_code ec;
        CHECK_FALSE(rdmaxx::cm_id::adopt(raw, other, ec));
        CHECK(ec == std::errc::invalid_argument);
        std::move(event).ack();
        CHECK(::rdma_destroy_id(raw) == 0);
    }
}

TEST_CASE_METHOD(fixture, "events go to and come from C code", "[events][adopt]") {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    id.resolve_addr(ipv4(7), 2s);

    rdma_cm_event* raw = get(channel, cm_event_type::addr_resolved).release();
    CHECK(raw->event == RDMA_CM_EVENT_ADDR_RESOLVED);
    std::error_code ec;
    {
        // Given back, it is counted again: the id waits for it.
        cm_event adopted = cm_event::adopt(raw, channel, ec);
        REQUIRE_FALSE(ec);
        CHECK(adopted.id() == id);
        hang_recorder recorder(rdmaxx::hang_action::keep_waiting, 30ms);
        recorder.on_report([&]() { adopted = cm_event(); });
        id = rdmaxx::cm_id();
        CHECK(recorder.reports().size() == 1);
    }
    CHECK_FALSE(cm_event::adopt(nullptr, channel, ec));
    CHECK(ec == std::errc::invalid_argument);

    // A request that C code got: the new id goes with it.
    host local;
    end client(resolved(channel, local.address()), local.domain);
    client.id.connect();
    pollfd ready = {local.channel.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 20'000) == 1);
    REQUIRE(::rdma_get_cm_event(local.channel.native_handle(), &raw) == 0);
    {
        const cm_event request = cm_event::adopt(raw, local.channel, ec);
        CHECK(request.request());
    }
    CHECK(next(channel).type() == cm_event_type::rejected);
}

TEST_CASE_METHOD(fixture, "a new id starts with its listener's context, and has its own from then on", "[events]") {
    connection c;
    CHECK(c.server.id.user_context<int>() == nullptr);
    int listeners = 1;
    int connections = 2;
    c.local.listener.set_user_context(&listeners);
    rdmaxx::event_channel channel;
    end client(resolved(channel, c.local.address()), c.local.domain);
    client.id.connect();
    cm_event request = get(c.local.channel, cm_event_type::connect_request);
    const rdmaxx::cm_id id = request.take_id();
    CHECK(id.user_context<int>() == &listeners);
    id.set_user_context(&connections);
    CHECK(c.local.listener.user_context<int>() == &listeners);
}
