// Completion channels: waiting for completions in every way, and who owns the events.
#include "live.hpp"

#include <rdmaxx/verbs/stop.hpp>

#include <array>
#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>

using namespace live;
using rdmaxx::send_wr;

namespace {

/// Has the client send `count` empty messages to receives that are posted for them.
void send_empty(connection& c, int count = 1) {
    for (int i = 0; i < count; ++i)
        c.server.qp.post_recv(c.server.mr);
    for (int i = 0; i < count; ++i)
        c.client.qp.post_send(send_wr::send(std::span<const rdmaxx::sge>()));
}

/// Two CQs on one completion channel, one for each queue of a queue pair.
struct two_cqs {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id = resolved(channel, local.address());
    rdmaxx::comp_channel completions{local.device};
    rdmaxx::cq sends{local.device, 64, completions};
    rdmaxx::cq receives{local.device, 64, completions};
    std::vector<std::byte> memory = std::vector<std::byte>(64);
    rdmaxx::mr mr{local.domain, memory, rdmaxx::access::local_write};
    end peer;

    two_cqs() {
        id.create_qp(local.domain, rdmaxx::qp_init_attr(sends, receives, 32));
        id.connect();
        peer = local.request(options{.depth = 32});
        peer.id.accept();
        static_cast<void>(get(channel, rdmaxx::cm_event_type::established));
        static_cast<void>(get(local.channel, rdmaxx::cm_event_type::established));
    }

    /// One completion on each CQ, and one event for each.
    void ping_pong() {
        sends.request_notify();
        receives.request_notify();
        peer.qp.post_recv(peer.mr);
        id.qp().post_recv(mr);
        id.qp().post_send(send_wr::send(std::span<const rdmaxx::sge>()).signaled());
        CHECK(peer.next().ok());
        peer.qp.post_send(send_wr::send(std::span<const rdmaxx::sge>()));
        std::array<rdmaxx::wc, 4> done;
        for (const rdmaxx::cq* cq : {&sends, &receives})
            for (const stopwatch waited; cq->poll(done).empty() && waited.elapsed() < soon;)
                ;
    }
};

} // namespace

TEST_CASE_METHOD(fixture, "get_cq_event blocks until a completion comes", "[completions][asan]") {
    connection c;
    c.server.cq.request_notify();
    std::thread sender([&]() {
        std::this_thread::sleep_for(50ms);
        send_empty(c);
    });
    const stopwatch waited;
    const rdmaxx::cq_event event = c.server.completions.get_cq_event();
    CHECK(waited.elapsed() >= 40ms);
    CHECK(event.cq() == c.server.cq);
    CHECK(event.count() == 1);
    sender.join();
}

TEST_CASE_METHOD(fixture, "a get without a completion event is empty: at once, at a time-out, at a deadline",
                 "[completions]") {
    connection c;
    c.server.cq.request_notify();
    CHECK_FALSE(c.server.completions.try_get_cq_event());
    CHECK_FALSE(c.server.completions.get_cq_event_for(0s));
    CHECK_FALSE(c.server.completions.get_cq_event_for(-1h));
    const stopwatch waited;
    CHECK_FALSE(c.server.completions.get_cq_event_for(30ms));
    CHECK(waited.elapsed() >= 30ms);
    CHECK_FALSE(c.server.completions.get_cq_event_until(std::chrono::steady_clock::now() + 30ms));
    CHECK(waited.elapsed() >= 60ms);
    CHECK_FALSE(c.server.completions.get_cq_event_until(std::chrono::system_clock::now() - 1s));
    CHECK(waited.elapsed() < soon);

    send_empty(c);
    CHECK(c.server.completions.get_cq_event_for(std::chrono::hours::max()));
}

#if RDMAXX_HAS_STOP_TOKEN
TEST_CASE_METHOD(fixture, "a stop token ends a get of completion events", "[completions][stop][tsan]") {
    connection c;
    c.server.cq.request_notify();
    std::atomic<bool> empty = false;
    std::jthread waiter(
        [&](const std::stop_token& token) { empty = !rdmaxx::get_cq_event(c.server.completions, token); });
    std::this_thread::sleep_for(20ms);
    const stopwatch clock;
    waiter.request_stop();
    waiter.join();
    CHECK(clock.elapsed() < 1s); // a millisecond, on a machine of its own
    CHECK(empty);

    // Stopped from the start: an event that is there is preferred.
    send_empty(c);
    pollfd readable{c.server.completions.fd(), POLLIN, 0};
    REQUIRE(::poll(&readable, 1, 20'000) == 1);
    std::stop_source stopped;
    stopped.request_stop();
    CHECK(rdmaxx::get_cq_event(c.server.completions, stopped.get_token()));
    CHECK_FALSE(rdmaxx::get_cq_event(c.server.completions, stopped.get_token()));
}
#endif

TEST_CASE_METHOD(fixture, "a poll loop over fd() sees every completion", "[completions]") {
    connection c(options{.depth = 64});
    c.server.cq.request_notify();
    std::size_t seen = 0;
    std::thread sender([&]() { send_empty(c, 50); });
    pollfd ready = {c.server.completions.fd(), POLLIN, 0};
    while (seen < 50 && ::poll(&ready, 1, 20'000) == 1) {
        rdmaxx::cq_event all;
        while (rdmaxx::cq_event event = c.server.completions.try_get_cq_event())
            all += std::move(event);
        c.server.cq.request_notify();
        std::array<rdmaxx::wc, 8> done;
        for (auto some = c.server.cq.poll(done); !some.empty(); some = c.server.cq.poll(done))
            seen += some.size();
    }
    sender.join();
    CHECK(seen == 50);
}

TEST_CASE_METHOD(fixture, "wait loses no wake-up in thousands of messages", "[completions][tsan]") {
    connection c(options{.depth = 4});
    constexpr int rounds = 1000;
    // Ping-pong: each side sleeps whenever the other one is at work, so that arming and completing race.
    std::thread echo([&]() {
        for (int i = 0; i < rounds; ++i) {
            if (!c.server.next().is_recv())
                return;
            c.server.qp.post_recv(c.server.mr);
            c.server.qp.post_send(send_wr::send(std::span<const rdmaxx::sge>()));
        }
    });
    c.server.qp.post_recv(c.server.mr);
    int echoed = 0;
    for (; echoed < rounds; ++echoed) {
        c.client.qp.post_recv(c.client.mr);
        c.client.qp.post_send(send_wr::send(std::span<const rdmaxx::sge>()));
        if (!c.client.next().is_recv())
            break;
    }
    echo.join();
    CHECK(echoed == rounds);
}

TEST_CASE_METHOD(fixture, "wait_for and wait_until are empty at their time, wait without room is EINVAL",
                 "[completions]") {
    connection c;
    std::array<rdmaxx::wc, 2> done;
    const stopwatch waited;
    CHECK(c.server.completions.wait_for(c.server.cq, done, 30ms).empty());
    CHECK(c.server.completions.wait_until(c.server.cq, done, std::chrono::steady_clock::now() + 30ms).empty());
    CHECK(waited.elapsed() >= 60ms);
    std::error_code ec;
    CHECK(c.server.completions.wait(c.server.cq, std::span<rdmaxx::wc>(), ec).empty());
    CHECK(ec == std::errc::invalid_argument);

    send_empty(c, 2);
    CHECK(c.server.completions.wait(c.server.cq, done, ec).size() >= 1);
    CHECK_FALSE(ec);
}

TEST_CASE_METHOD(fixture, "a completion between poll and arm raises no event, and does not make wait sleep",
                 "[completions]") {
    connection c;
    std::array<rdmaxx::wc, 1> done;
    CHECK(c.server.cq.poll(done).empty());
    send_empty(c);
    std::this_thread::sleep_for(50ms); // it is there before anything is armed
    c.server.cq.request_notify();
    CHECK_FALSE(c.server.completions.get_cq_event_for(50ms)); // who slept now would sleep for ever
    const stopwatch waited;
    CHECK(c.server.completions.wait_for(c.server.cq, done, soon).size() == 1);
    CHECK(waited.elapsed() < soon);
}

TEST_CASE_METHOD(fixture, "events of two CQs on one channel are acked to their own, merged or not",
                 "[completions][asan]") {
    two_cqs t;
    rdmaxx::cq_event of_sends;
    rdmaxx::cq_event of_receives;
    for (int i = 0; i < 10; ++i) {
        t.ping_pong();
        for (int n = 0; n < 2; ++n) {
            rdmaxx::cq_event event = t.completions.get_cq_event_for(soon);
            REQUIRE((event.cq() == t.sends || event.cq() == t.receives));
            (event.cq() == t.sends ? of_sends : of_receives) += std::move(event);
        }
    }
    CHECK(of_sends.count() == 10);
    CHECK(of_receives.count() == 10);
    CHECK_FALSE(of_sends.merge(of_receives)); // of different CQs
    CHECK(of_receives.count() == 10);
    std::move(of_sends).ack();
    CHECK_FALSE(of_sends); // NOLINT(bugprone-use-after-move): acked is empty
    // Destroying a CQ waits until as many are acked as were got: that both end is the proof.
}

TEST_CASE_METHOD(fixture, "a CQ whose owner went first ends with the last of its events", "[completions][asan]") {
    const auto cqs = []() {
        const std::string all = resources();
        return std::stoi(all.substr(all.find(" cq ") + 4));
    };
    const int before = cqs(); // a RoCE device has one of its own
    two_cqs t;
    t.ping_pong();
    std::optional<rdmaxx::cq_event> first = t.completions.get_cq_event_for(soon);
    std::optional<rdmaxx::cq_event> second = t.completions.get_cq_event_for(soon);
    t.id = rdmaxx::cm_id(); // and its queue pair, which uses both
    t.sends = rdmaxx::cq();
    t.receives = rdmaxx::cq();
    t.completions = rdmaxx::comp_channel();
    if (in_vm())
        CHECK(cqs() == before + 3); // the peer's, and these two
    first.reset();
    second.reset();
    if (in_vm())
        CHECK(cqs() == before + 1);
}

TEST_CASE_METHOD(fixture, "unwinding past events that were not acked does not hang", "[completions]") {
    const auto throwing = []() {
        connection c;
        std::vector<rdmaxx::cq_event> held;
        for (int i = 0; i < 3; ++i) {
            c.server.cq.request_notify();
            send_empty(c);
            held.push_back(c.server.completions.get_cq_event_for(soon));
            std::array<rdmaxx::wc, 1> done;
            static_cast<void>(c.server.cq.poll(done));
        }
        throw std::logic_error("something else");
    };
    CHECK_THROWS_AS(throwing(), std::logic_error);
}

TEST_CASE_METHOD(fixture, "an adopted completion channel is non-blocking, a released one what it was before",
                 "[completions][adopt]") {
    host local;
    const auto flags = [](const ibv_comp_channel* raw) {
        return ::fcntl(raw->fd, F_GETFL);
    };
    const bool nonblocking = GENERATE(false, true);
    ibv_comp_channel* raw = ::ibv_create_comp_channel(local.device.native_handle());
    REQUIRE(raw != nullptr);
    ::fcntl(raw->fd, F_SETFL, flags(raw) | O_APPEND | (nonblocking ? O_NONBLOCK : 0));
    const int before = flags(raw);
    std::error_code ec;
    rdmaxx::comp_channel adopted = rdmaxx::comp_channel::adopt(raw, local.device, ec);
    REQUIRE_FALSE(ec);
    CHECK(flags(raw) == (before | O_NONBLOCK));
    CHECK_FALSE(adopted.try_get_cq_event());
    CHECK(std::move(adopted).release() == raw);
    CHECK(flags(raw) == before);
    CHECK(::ibv_destroy_comp_channel(raw) == 0);
}

TEST_CASE_METHOD(fixture, "events of a CQ that C code made on the channel are acked to it",
                 "[ib][completions][adopt]") {
    host local;
    rdmaxx::comp_channel completions(local.device);
    ibv_cq* raw = ::ibv_create_cq(local.device.native_handle(), 16, nullptr, completions.native_handle(), 0);
    REQUIRE(raw != nullptr);
    {
        // A queue pair that is moved to the error state flushes a receive: a completion without a peer.
        const rdmaxx::qp qp(local.domain, rdmaxx::qp_init_attr(rdmaxx::cq_ref(raw)));
        qp.modify(rdmaxx::qp_attr(rdmaxx::qp_state::init).pkey_index(0).port_num(1).access_flags(rdmaxx::access::none));
        rdmaxx::cq_ref(raw).request_notify();
        qp.post_recv(rdmaxx::recv_wr().wr_id(1));
        qp.modify(rdmaxx::qp_attr(rdmaxx::qp_state::err));
        const rdmaxx::cq_event event = completions.get_cq_event_for(soon);
        CHECK(event.cq().native_handle() == raw);
    }
    CHECK(::ibv_destroy_cq(raw) == 0);
}

TEST_CASE_METHOD(fixture, "C objects are adopted one at a time, and released again", "[completions][adopt][asan]") {
    const rdmaxx::device_list devices;
    std::error_code ec;
    rdmaxx::context device = rdmaxx::context::adopt(::ibv_open_device(devices.front().native_handle()), ec);
    REQUIRE_FALSE(ec);
    rdmaxx::pd domain = rdmaxx::pd::adopt(::ibv_alloc_pd(device.native_handle()), device, ec);
    REQUIRE_FALSE(ec);
    std::vector<std::byte> memory(4096);
    rdmaxx::mr region = rdmaxx::mr::adopt(
        (::ibv_reg_mr)(domain.native_handle(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE), domain, ec);
    REQUIRE_FALSE(ec);
    rdmaxx::cq cq = rdmaxx::cq::adopt(::ibv_create_cq(device.native_handle(), 4, nullptr, nullptr, 0), device, {}, ec);
    REQUIRE_FALSE(ec);
    ibv_qp_init_attr attr = rdmaxx::qp_init_attr(cq).raw();
    rdmaxx::qp qp = rdmaxx::qp::adopt(::ibv_create_qp(domain.native_handle(), &attr), domain, cq, cq, ec);
    REQUIRE_FALSE(ec);
    CHECK(region.length() == 4096);

    SECTION("each ends by the call that C would make, parents last") {
        device = rdmaxx::context();
        domain = rdmaxx::pd();
        cq = rdmaxx::cq();
        CHECK(qp.query().state() == rdmaxx::qp_state::reset);
    }
    SECTION("released, they are the caller's") {
        CHECK(::ibv_destroy_qp(std::move(qp).release()) == 0);
        CHECK(::ibv_destroy_cq(std::move(cq).release()) == 0);
        CHECK(::ibv_dereg_mr(std::move(region).release()) == 0);
        CHECK(::ibv_dealloc_pd(std::move(domain).release()) == 0);
        CHECK(::ibv_close_device(std::move(device).release()) == 0);
    }
    SECTION("a parent that C code still uses says EBUSY, and stays") {
        ibv_mr* foreign = (::ibv_reg_mr)(domain.native_handle(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
        region = rdmaxx::mr();
        qp = rdmaxx::qp();
        domain.close(ec);
        CHECK(ec == std::errc::device_or_resource_busy);
        CHECK(domain);
        CHECK(::ibv_dereg_mr(foreign) == 0);
        domain.close();
        CHECK_FALSE(domain);
    }
}
