// Ends in every order: events that are held, threads that race, owners that are dropped in any order.
#include "live.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <unordered_map>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace live;
using rdmaxx::cm_event;
using rdmaxx::cm_event_type;

namespace {

long thread_id() {
    return ::syscall(SYS_gettid);
}

/// A client id that has asked for a connection, with a queue pair and no more.
rdmaxx::cm_id asking(rdmaxx::event_channel& channel, const host& local, const rdmaxx::cq& cq) {
    rdmaxx::cm_id id = resolved(channel, local.address());
    id.create_qp(local.domain, rdmaxx::qp_init_attr(cq, 1));
    id.connect();
    return id;
}

} // namespace

// ---------------------------------------------------------------------------------------------------------------
// An event that is held while its id is destroyed.

namespace {

/// Gives up an id whose event is held, and says what the hooks were told. On its own, since what was given up stays
/// until the process ends.
const role gives_up("gives_up", []() {
    hang_recorder recorder(rdmaxx::hang_action::leak, 100ms);
    static std::error_code failed;
    rdmaxx::set_destroy_failure_hook([](const rdmaxx::destroy_failure& failure) noexcept { failed = failure.code; });
    rdmaxx::event_channel channel;
    std::optional<rdmaxx::cm_id> id(channel);
    const void* const raw = id->native_handle();
    id->resolve_addr(ipv4(7), 2s);
    const cm_event held = get(channel, cm_event_type::addr_resolved);

    const stopwatch waited;
    id.reset();
    need(waited.elapsed() >= 100ms && waited.elapsed() < 3s, "it was not given up in time");
    need(recorder.reports().size() == 1, "one report");
    const rdmaxx::hang_report report = recorder.reports()[0];
    need(std::string(report.call) == "rdma_destroy_id", "the call");
    need(report.object == raw, "the id");
    need(report.waited_ms >= 100, "the time");
    need(report.count == 1 && std::string(report.events[0].type) == "addr_resolved", "the event");
    need(report.events[0].thread == thread_id() && report.events[0].this_thread, "the thread");
    const std::string text = report.to_string();
    need(text.find("addr_resolved (got by thread " + std::to_string(thread_id()) + ", this thread") !=
             std::string::npos,
         text);
    need(failed == std::errc::resource_deadlock_would_occur, "the other hook hears of it");
    need(held.type() == cm_event_type::addr_resolved, "the event is as good as before");

    // Reported by close(), for those who ask.
    rdmaxx::cm_id second(channel);
    second.resolve_addr(ipv4(7), 2s);
    const cm_event of_second = get(channel, cm_event_type::addr_resolved);
    std::error_code ec;
    second.close(ec);
    need(ec == std::errc::resource_deadlock_would_occur, "EDEADLK");
    need(!second, "given up");

    // The channel goes on.
    rdmaxx::cm_id third(channel);
    third.resolve_addr(ipv4(7), 2s);
    need(get(channel, cm_event_type::addr_resolved).id() == third, "a new id works");
    std::printf("all as it should be ");
    return 0;
});

} // namespace

TEST_CASE_METHOD(fixture, "an id whose event this thread holds is reported with names, and given up on demand",
                 "[teardown][hang]") {
    process p(gives_up);
    CHECK(p.rest() == "all as it should be [exit status 0]");
}

TEST_CASE_METHOD(fixture, "an id waits for an event that another thread holds, without a report if it is quick",
                 "[teardown][hang][asan][tsan]") {
    hang_recorder recorder(rdmaxx::hang_action::keep_waiting, 20s);
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    id.resolve_addr(ipv4(7), 2s);
    std::atomic<bool> got = false;
    std::atomic<bool> acked = false;
    std::thread holder([&]() {
        cm_event event = get(channel, cm_event_type::addr_resolved);
        got = true;
        std::this_thread::sleep_for(200ms);
        acked = true;
        std::move(event).ack();
    });
    while (!got)
        std::this_thread::yield();
    id = rdmaxx::cm_id();
    CHECK(acked);
    holder.join();
    CHECK(recorder.reports().empty());
}

TEST_CASE_METHOD(fixture, "the hang hook may ack the event, and the destroy goes on", "[teardown][hang][asan]") {
    hang_recorder recorder(rdmaxx::hang_action::keep_waiting, 50ms);
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    id.resolve_addr(ipv4(7), 2s);
    std::optional<cm_event> held = get(channel, cm_event_type::addr_resolved);
    recorder.on_report([&]() { held.reset(); });
    id = rdmaxx::cm_id();
    CHECK(recorder.reports().size() == 1);
}

TEST_CASE_METHOD(fixture, "a report names each event of the id, and none of another id", "[teardown][hang]") {
    hang_recorder recorder(rdmaxx::hang_action::keep_waiting, 50ms);
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    const rdmaxx::cm_id other(channel);
    other.resolve_addr(ipv4(7), 2s);
    std::vector<cm_event> held;
    held.push_back(get(channel, cm_event_type::addr_resolved));
    id.resolve_addr(ipv4(7), 2s);
    held.push_back(get(channel, cm_event_type::addr_resolved));
    id.resolve_route(2s);
    long getter = 0;
    std::thread([&]() {
        getter = thread_id();
        held.push_back(get(channel, cm_event_type::route_resolved));
    }).join();
    recorder.on_report([&]() { held.clear(); });
    id = rdmaxx::cm_id();
    REQUIRE(recorder.reports().size() == 1);
    const rdmaxx::hang_report report = recorder.reports()[0];
    REQUIRE(report.count == 2);
    CHECK(std::string(report.events[0].type) == "route_resolved"); // the latest first
    CHECK(report.events[0].thread == getter);
    CHECK_FALSE(report.events[0].this_thread);
    CHECK(std::string(report.events[1].type) == "addr_resolved");
    CHECK(report.events[1].this_thread);
}

TEST_CASE_METHOD(fixture, "a listener waits for its requests, not for the ids that they brought",
                 "[teardown][hang][asan]") {
    host local;
    const rdmaxx::cq cq(local.device, 16);
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id client = asking(channel, local, cq);
    cm_event request = get(local.channel, cm_event_type::connect_request);

    SECTION("held by the same thread it is reported") {
        hang_recorder recorder(rdmaxx::hang_action::keep_waiting, 50ms);
        recorder.on_report([&]() { request = cm_event(); });
        const void* const raw = local.listener.native_handle();
        local.listener = rdmaxx::cm_id();
        REQUIRE(recorder.reports().size() == 1);
        CHECK(recorder.reports()[0].object == raw);
        CHECK(std::string(recorder.reports()[0].events[0].type) == "connect_request");
        CHECK(next(channel).code() == rejected_by_program());
    }
    SECTION("taken, the new id outlives both") {
        end server(request.take_id(), local.domain);
        std::thread acker([&]() {
            std::this_thread::sleep_for(50ms);
            std::move(request).ack();
        });
        local.listener = rdmaxx::cm_id();
        acker.join();
        server.id.accept();
        CHECK(next(channel).type() == cm_event_type::established);
        CHECK(next(local.channel).type() == cm_event_type::established);
    }
    SECTION("the new id may end before the event and the listener") {
        { const rdmaxx::cm_id taken = request.take_id(); }
        CHECK(next(channel).code() == rejected_by_program());
    }
}

TEST_CASE_METHOD(fixture, "a listener with unfetched requests is destroyed at once, and its clients are rejected",
                 "[teardown][asan]") {
    host local;
    const rdmaxx::cq cq(local.device, 16);
    rdmaxx::event_channel channel;
    std::vector<rdmaxx::cm_id> clients;
    for (int i = 0; i < 5; ++i)
        clients.push_back(asking(channel, local, cq));
    pollfd ready = {local.channel.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 20'000) == 1);
    std::this_thread::sleep_for(50ms);
    local.listener = rdmaxx::cm_id();
    for (int i = 0; i < 5; ++i) {
        // One that came later than these 50 ms found nobody: reason 8.
        const rdmaxx::cm_event_snapshot answer = next(channel);
        CHECK(answer.type() == cm_event_type::rejected);
        CHECK((answer.code() == rejected_by_program() || answer.status() == 8));
    }
}

TEST_CASE_METHOD(fixture, "a handler acts on a snapshot: it acks, and then ends what the event was about",
                 "[teardown][asan]") {
    auto c = std::make_unique<connection>();
    c->client.id.disconnect();
    cm_event event = get(c->local.channel, cm_event_type::disconnected);
    const rdmaxx::cm_event_snapshot what = event.snapshot();
    std::move(event).ack();
    CHECK(what.type() == cm_event_type::disconnected);
    CHECK(what.id() == c->server.id.native_handle());
    c.reset(); // the connection, its peer and the channels that both events came from
}

TEST_CASE_METHOD(fixture, "a handler may drop every owner but the event: its channel stays for the ack",
                 "[teardown][asan]") {
    host local;
    const rdmaxx::cq cq(local.device, 16);
    rdmaxx::event_channel channel;
    rdmaxx::cm_id client = asking(channel, local, cq);
    cm_event request = get(local.channel, cm_event_type::connect_request);
    // The id of the request is free of it; the channel's owner goes, and the event keeps the channel.
    { const rdmaxx::cm_id taken = request.take_id(); }
    local.channel = rdmaxx::event_channel(nullptr);
    CHECK(request.type() == cm_event_type::connect_request);
    std::move(request).ack();
    CHECK(next(channel).code() == rejected_by_program());
}

TEST_CASE_METHOD(fixture, "another thread finds no queue pair where it was destroyed, while it holds an event",
                 "[teardown][tsan]") {
    connection c;
    c.client.id.disconnect();
    std::atomic<bool> held = false;
    std::atomic<bool> destroyed = false;
    std::thread handler([&]() {
        const cm_event event = get(c.local.channel, cm_event_type::disconnected);
        held = true;
        while (!destroyed)
            std::this_thread::yield();
        CHECK_FALSE(event.id().qp());
    });
    while (!held)
        std::this_thread::yield();
    c.server.id.destroy_qp();
    destroyed = true;
    c.server.id = rdmaxx::cm_id(); // waits for the handler's ack
    handler.join();
}

// ---------------------------------------------------------------------------------------------------------------
// Threads.

TEST_CASE_METHOD(fixture, "getters and destroys race on one channel: no event is lost, nothing hangs",
                 "[teardown][race][tsan]") {
    allow(120s);
    rdmaxx::event_channel channel;
    std::mutex lock;
    std::condition_variable arrived;
    std::unordered_map<void*, bool> awaited; // ids whose maker waits for their event
    std::atomic<bool> stop = false;
    std::atomic<int> made = 0;
    std::atomic<int> got = 0;
    std::atomic<int> lost = 0;

    const auto get_events = [&](unsigned seed) {
        std::minstd_rand random(seed);
        while (!stop) {
            const cm_event event = channel.get_cm_event_for(5ms);
            if (!event)
                continue;
            ++got;
            if (random() % 4 == 0) // an event that is held while its id's maker destroys it
                std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
            const std::lock_guard guard(lock);
            const auto found = awaited.find(event.id().native_handle());
            if (found != awaited.end()) {
                found->second = true;
                arrived.notify_all();
            }
        }
    };
    const auto make_ids = [&](unsigned seed) {
        std::minstd_rand random(seed);
        for (const stopwatch clock; clock.elapsed() < 3s; ++made) {
            const rdmaxx::cm_id id(channel);
            void* const raw = id.native_handle();
            const bool waits = random() % 3 == 0;
            if (waits) {
                const std::lock_guard guard(lock);
                awaited[raw] = false;
            }
            id.resolve_addr(ipv4(7), 2s);
            if (waits) {
                std::unique_lock guard(lock);
                if (!arrived.wait_for(guard, soon, [&]() { return awaited[raw]; }))
                    ++lost;
                awaited.erase(raw);
            } else if (random() % 2 == 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
            }
        } // destroyed before, while and after its event is got
    };
    std::vector<std::thread> getters;
    std::vector<std::thread> makers;
    for (unsigned i = 0; i < 2; ++i)
        getters.emplace_back(get_events, 1 + i);
    for (unsigned i = 0; i < 3; ++i)
        makers.emplace_back(make_ids, 11 + i);
    for (std::thread& maker : makers)
        maker.join();
    stop = true;
    for (std::thread& getter : getters)
        getter.join();
    CAPTURE(made.load(), got.load());
    CHECK(lost == 0);
    CHECK(made > 50);
    CHECK(got > 10);
    CHECK_FALSE(channel.try_get_cm_event()); // each id took its events with it
}

TEST_CASE_METHOD(fixture, "threads make and destroy ids on channels of their own", "[teardown][race][tsan]") {
    std::vector<std::thread> threads;
    std::atomic<int> resolved_ids = 0;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&]() {
            rdmaxx::event_channel channel;
            for (int n = 0; n < 50; ++n) {
                const rdmaxx::cm_id id(channel);
                id.resolve_addr(ipv4(7), 2s);
                if (get(channel, cm_event_type::addr_resolved).id() == id)
                    ++resolved_ids;
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(resolved_ids == 200);
}

TEST_CASE_METHOD(fixture, "two threads have an id each on one channel, and a third one acks",
                 "[teardown][race][tsan]") {
    rdmaxx::event_channel channel;
    std::mutex lock;
    std::vector<cm_event> to_ack;
    std::atomic<bool> stop = false;
    std::atomic<int> count = 0;
    const auto acker = [&]() {
        while (!stop) {
            std::vector<cm_event> mine;
            {
                const std::lock_guard guard(lock);
                mine.swap(to_ack);
            }
            count += static_cast<int>(mine.size());
            std::this_thread::sleep_for(1ms);
        }
    };
    const auto user = [&]() {
        for (int i = 0; i < 30; ++i) {
            const rdmaxx::cm_id id(channel);
            id.resolve_addr(ipv4(7), 2s);
            cm_event event = channel.get_cm_event_for(5ms); // of either id, while the other may be destroyed
            const std::lock_guard guard(lock);
            to_ack.push_back(std::move(event));
        }
    };
    std::thread acks(acker);
    std::thread first(user);
    std::thread second(user);
    first.join();
    second.join();
    stop = true;
    acks.join();
    to_ack.clear();
    CHECK(count > 0);
}

// ---------------------------------------------------------------------------------------------------------------
// Many requests, each with another end.

TEST_CASE_METHOD(fixture, "100 requests that are ignored, or rejected with data, leave nothing, and each peer is told",
                 "[ib][teardown][many]") {
    host local;
    const rdmaxx::cq cq(local.device, 256);
    rdmaxx::event_channel channel;
    const bool ignored = GENERATE(true, false);
    std::vector<rdmaxx::cm_id> clients;
    for (int i = 0; i < 100; ++i)
        clients.push_back(asking(channel, local, cq));
    for (int i = 0; i < 100; ++i) {
        cm_event request = get(local.channel, cm_event_type::connect_request);
        if (!ignored)
            request.take_id().reject(bytes("no room"));
    }
    for (int i = 0; i < 100; ++i) {
        const rdmaxx::cm_event_snapshot answer = next(channel);
        REQUIRE(answer.code() == rejected_by_program());
        if (!ignored)
            REQUIRE(text(answer.private_data().first(7)) == "no room");
    }
    // The fixture compares what is there; the server's part must be gone before the clients' is.
    CHECK_FALSE(local.channel.try_get_cm_event());
}

TEST_CASE_METHOD(fixture, "100 connections whose owners are dropped in any order leave nothing, and each peer is told",
                 "[teardown][many][asan]") {
    /// Everything that one connection is made of, each to be dropped on its own.
    struct parts {
        std::vector<std::byte> memory = std::vector<std::byte>(4096);
        rdmaxx::event_channel channel;
        rdmaxx::cm_id listener{channel};
        rdmaxx::context device;
        rdmaxx::pd domain;
        rdmaxx::comp_channel completions;
        rdmaxx::cq sends;
        rdmaxx::cq receives;
        rdmaxx::mr mr;
        rdmaxx::cm_id id;

        void drop(unsigned which) {
            switch (which) {
            case 0: channel = rdmaxx::event_channel(nullptr); break;
            case 1: listener = rdmaxx::cm_id(); break;
            case 2: device = rdmaxx::context(); break;
            case 3: domain = rdmaxx::pd(); break;
            case 4: completions = rdmaxx::comp_channel(); break;
            case 5: sends = rdmaxx::cq(); break;
            case 6: receives = rdmaxx::cq(); break;
            case 7: mr = rdmaxx::mr(); break;
            case 8:
                if (id) // whose end is its queue pair's end
                    id.destroy_qp();
                break;
            default: id = rdmaxx::cm_id(); break;
            }
        }
    };
    host clients_side;
    const rdmaxx::cq cq(clients_side.device, 16);
    std::mt19937 random(1);
    for (int round = 0; round < 100; ++round) {
        parts p;
        p.listener.bind_addr(ipv4());
        p.listener.listen();
        p.device = rdmaxx::context(p.listener);
        p.domain = rdmaxx::pd(p.device);
        p.completions = rdmaxx::comp_channel(p.device);
        p.sends = rdmaxx::cq(p.device, 8, p.completions);
        p.receives = rdmaxx::cq(p.device, 8, p.completions);
        p.mr = rdmaxx::mr(p.domain, p.memory);

        rdmaxx::event_channel channel;
        rdmaxx::cm_id client = resolved(channel, p.listener.local_address());
        client.create_qp(clients_side.domain, rdmaxx::qp_init_attr(cq, 1));
        client.connect();
        p.id = get(p.channel, cm_event_type::connect_request).take_id();
        p.id.create_qp(p.domain, rdmaxx::qp_init_attr(p.sends, p.receives, 4)).post_recv(p.mr);
        p.id.accept();
        static_cast<void>(get(channel, cm_event_type::established));
        if (round % 2 == 0) // in the other half it stays, unfetched
            static_cast<void>(get(p.channel, cm_event_type::established));

        std::array<unsigned, 10> order{};
        std::iota(order.begin(), order.end(), 0U);
        std::shuffle(order.begin(), order.end(), random);
        for (const unsigned which : order) {
            INFO("round " << round << ", dropping part " << which);
            p.drop(which);
            if (which != 9)
                continue;
            // Before the client's last message of the handshake arrives it is a reject that tells the client, whose
            // side was established.
            const cm_event_type told = next(channel).type();
            REQUIRE((told == cm_event_type::disconnected || (round % 2 == 1 && told == cm_event_type::rejected)));
        }
    }
}

TEST_CASE_METHOD(fixture, "parents that are closed before their children detach, and end with them",
                 "[teardown][asan]") {
    host local;
    std::vector<std::byte> memory(4096);
    rdmaxx::mr mr(local.domain, memory);
    const std::string before = resources();
    std::error_code ec;
    local.domain.close(ec);
    CHECK_FALSE(ec);
    CHECK_FALSE(local.domain);
    local.device.close(ec);
    CHECK_FALSE(ec);
    CHECK(resources() == before); // the memory region keeps both
    CHECK(mr.length() == 4096);
    mr.close();
    CHECK(resources() != before);
}

TEST_CASE_METHOD(fixture, "a PD with a child that was made from a ref is EBUSY until that has ended", "[teardown]") {
    host local;
    std::vector<std::byte> memory(4096);
    rdmaxx::mr mr(rdmaxx::pd_ref(local.domain), memory);
    std::string causes;
    try {
        local.domain.close();
    } catch (const rdmaxx::error& e) {
        CHECK(e.code() == std::errc::device_or_resource_busy);
        CHECK(std::string(e.call()) == "ibv_dealloc_pd");
        causes = rdmaxx::diagnose(e);
    }
    CHECK(causes.find("still uses it") != std::string::npos);
    REQUIRE(local.domain);
    mr.close();
    local.domain.close();
}
