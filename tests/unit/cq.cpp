// Completion queues and their events.
#include "test.hpp"

#include <rdmaxx/verbs/stop.hpp>

#include <array>
#include <atomic>
#include <memory>

#include <pthread.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using clock = std::chrono::steady_clock;

/// A CQ with a channel.
struct told : opened {
    told() : events(device), queue(device, 64, events) {}

    /// A completion that raises an event.
    void complete(std::uint64_t wr_id = 1) { complete(queue, wr_id); }
    static void complete(const rdmaxx::cq& on, std::uint64_t wr_id = 1) {
        on.request_notify();
        fake::push_success(on.native_handle(), wr_id, IBV_WC_SEND, 17);
    }

    comp_channel events;
    rdmaxx::cq queue;
};

struct holder {
    cq_event event;
};

/// How many events each ack gave back.
std::vector<std::string> acks() {
    std::vector<std::string> counts;
    for (const fake::call_record& call : fake::log())
        if (call.name == "ibv_ack_cq_events")
            counts.push_back(call.detail);
    return counts;
}

} // namespace

// ---------------------------------------------------------------- events

TEST_CASE_METHOD(unit::test, "cq_event: knows its CQ: of two interleaved on one channel each acks its own",
                 "[cq_event]") {
    told on;
    cq other(on.device, 64, on.events);
    std::vector<cq_event> events;
    for (int i = 0; i < 10; ++i) {
        told::complete(on.queue);
        told::complete(other);
        events.push_back(on.events.get_cq_event());
        events.push_back(on.events.get_cq_event());
    }
    for (std::size_t i = 0; i < events.size(); ++i)
        CHECK(events[i].cq() == (i % 2 == 0 ? cq_ref(on.queue) : cq_ref(other)));
    CHECK(fake::cq_events(on.queue.native_handle()).held() == 10);
    CHECK(fake::cq_events(other.native_handle()).held() == 10);
    events.clear();
    CHECK(fake::cq_events(on.queue.native_handle()).held() == 0);
    CHECK(fake::cq_events(other.native_handle()).held() == 0);
    on.queue.close();
    other.close();
}

TEST_CASE_METHOD(unit::test, "cq_event: moves and early acks keep it at one ack", "[cq_event]") {
    told on;
    on.complete();
    holder a{on.events.get_cq_event()};
    holder b{std::move(a.event)};
    CHECK_FALSE(a.event);
    CHECK_FALSE(a.event.cq());
    CHECK(a.event.count() == 0);
    cq_event& same = b.event;
    b.event = std::move(same);
    CHECK(b.event.count() == 1);
    CHECK(acks().empty());
    std::move(b.event).ack();
    CHECK_FALSE(b.event);
    std::move(b.event).ack();
    b = holder();
    CHECK(acks() == std::vector<std::string>{"1"});

    on.complete();
    holder c{on.events.get_cq_event()};
    on.complete();
    c.event = on.events.get_cq_event(); // acks the first
    CHECK(acks().size() == 2);
}

TEST_CASE_METHOD(unit::test, "cq_event: merged events are given back by one ack", "[cq_event]") {
    told on;
    cq_event all;
    for (int i = 0; i < 5; ++i) {
        on.complete();
        all += on.events.get_cq_event();
    }
    CHECK(all.count() == 5);
    CHECK(all.cq() == on.queue);
    CHECK(acks().empty());
    all = cq_event();
    CHECK(acks() == std::vector<std::string>{"5"});
}

TEST_CASE_METHOD(unit::test, "cq_event: merge refuses an event of another CQ, += acks it", "[cq_event]") {
    told on;
    const cq other(on.device, 8, on.events);
    on.complete();
    holder mine{on.events.get_cq_event()};
    told::complete(other);
    holder theirs{on.events.get_cq_event()};
    CHECK_FALSE(mine.event.merge(theirs.event));
    CHECK(mine.event.count() == 1);
    CHECK(theirs.event.count() == 1);
    CHECK(theirs.event.cq() == other);
    mine.event += std::move(theirs.event);
    CHECK(mine.event.count() == 1);
    CHECK_FALSE(theirs.event);
    CHECK(acks() == std::vector<std::string>{"1"});
    CHECK(fake::cq_events(other.native_handle()).held() == 0);
    CHECK(fake::cq_events(on.queue.native_handle()).held() == 1);
}

TEST_CASE_METHOD(unit::test, "cq_event: merge with an empty one, from an empty one, and with itself", "[cq_event]") {
    told on;
    on.complete();
    holder mine{on.events.get_cq_event()};
    holder none;
    CHECK(mine.event.merge(none.event));
    CHECK(mine.event.count() == 1);
    CHECK(none.event.merge(mine.event));
    CHECK(none.event.count() == 1);
    CHECK_FALSE(mine.event);
    CHECK(none.event.merge(none.event));
    CHECK(none.event.count() == 1);
    cq_event& same = none.event;
    none.event += std::move(same);
    CHECK(none.event.count() == 1);
    CHECK(acks().empty());
}

TEST_CASE_METHOD(unit::test, "cq_event: of 21 in batches of 16, 16 and 5 are acked, and the CQ ends", "[cq_event]") {
    {
        told on;
        cq_event batch;
        for (int i = 0; i < 21; ++i) {
            on.complete();
            batch += on.events.get_cq_event();
            if (batch.count() == 16)
                batch = cq_event();
        }
        CHECK(acks() == std::vector<std::string>{"16"});
    }
    CHECK(acks() == std::vector<std::string>{"16", "5"});
    CHECK(fake::in_order({"ibv_ack_cq_events", "ibv_ack_cq_events", "ibv_destroy_cq"}));
}

TEST_CASE_METHOD(unit::test, "cq_event: keeps its CQ, whose owner may go first", "[cq_event]") {
    told on;
    on.complete(7);
    holder held{on.events.get_cq_event()};
    const bool channel_too = GENERATE(false, true);
    on.queue = cq();
    if (channel_too)
        on.events = comp_channel();
    CHECK(fake::calls("ibv_destroy_cq") == 0);
    std::array<wc, 4> done;
    CHECK(held.event.cq().poll(done).size() == 1);
    held = holder();
    CHECK(fake::in_order({"ibv_ack_cq_events", "ibv_destroy_cq"}));
    CHECK(fake::calls("ibv_destroy_comp_channel") == (channel_too ? 1 : 0));
}

TEST_CASE_METHOD(unit::test, "cq_event: held ones unwind with the CQ, whatever the order", "[cq_event]") {
    const opened with;
    const bool events_outlive_cq = GENERATE(false, true);
    std::vector<cq_event> outer;
    CHECK_THROWS_AS(
        [&] {
            comp_channel channel(with.device);
            cq queue(with.device, 8, channel);
            std::vector<cq_event> inner;
            for (int i = 0; i < 3; ++i) {
                told::complete(queue);
                (events_outlive_cq ? outer : inner).push_back(channel.get_cq_event());
            }
            throw std::runtime_error("the handler failed");
        }(),
        std::runtime_error);
    CHECK(fake::calls("ibv_destroy_cq") == (events_outlive_cq ? 0 : 1));
    outer.clear();
    CHECK(fake::successes("ibv_destroy_cq") == 1);
    CHECK(fake::cq_events().held() == 0);
}

TEST_CASE_METHOD(unit::test, "cq_event: of a CQ that C code made on the same channel", "[cq_event]") {
    told on;
    int context = 0; // which is no object of the library
    ibv_cq* raw = ::ibv_create_cq(on.device.native_handle(), 8, &context, on.events.native_handle(), 0);
    REQUIRE(raw != nullptr);
    ::ibv_req_notify_cq(raw, 0);
    fake::push_success(raw, 1, IBV_WC_SEND, 1);
    {
        const cq_event event = on.events.get_cq_event();
        CHECK(event.cq().native_handle() == raw);
        on.events = comp_channel(); // kept by the event
        CHECK(fake::calls("ibv_destroy_comp_channel") == 0);
    }
    CHECK(fake::cq_events(raw).held() == 0);
    CHECK(::ibv_destroy_cq(raw) == 0);
}

TEST_CASE_METHOD(unit::test, "cq_event: of a CQ that was adopted, and of one that was released", "[cq_event]") {
    told on;
    on.complete();
    holder held{on.events.get_cq_event()};
    ibv_cq* raw = std::move(on.queue).release();
    std::error_code ec;
    on.queue = cq::adopt(raw, on.device, on.events, ec);
    REQUIRE(!ec);
    held = holder();
    told::complete(on.queue);
    held = holder{on.events.get_cq_event()};
    on.queue = cq();
    CHECK(fake::calls("ibv_destroy_cq") == 0); // the event keeps the adopted one
    held = holder();
    CHECK(fake::successes("ibv_destroy_cq") == 1);
}

TEST_CASE_METHOD(unit::test, "cq_event: errno is what it was before an ack", "[cq_event]") {
    fake::set().errno_after_success = EBADF;
    told on;
    on.complete();
    std::optional<cq_event> event(on.events.get_cq_event());
    on.queue = cq();
    errno = 4711;
    event.reset(); // ends the CQ as well
    CHECK(errno == 4711);
    CHECK(fake::calls("ibv_destroy_cq") == 1);
    fake::set().errno_after_success = 0;
}

// ---------------------------------------------------------------- gets

TEST_CASE_METHOD(unit::test, "comp_channel: every get gives the event that is there", "[cq_event]") {
    told on;
    std::error_code ec = std::make_error_code(std::errc::io_error);
    const auto gives = [&](auto get) {
        on.complete();
        const cq_event event = get();
        CHECK(event.cq() == on.queue);
    };
    gives([&] { return on.events.get_cq_event(); });
    gives([&] { return on.events.get_cq_event(ec); });
    CHECK(!ec);
    gives([&] { return on.events.try_get_cq_event(); });
    gives([&] { return on.events.try_get_cq_event(ec); });
    gives([&] { return on.events.get_cq_event_for(5s); });
    gives([&] { return on.events.get_cq_event_for(5s, ec); });
    gives([&] { return on.events.get_cq_event_until(clock::now() + 5s); });
    gives([&] { return on.events.get_cq_event_until(clock::now() + 5s, ec); });
#if RDMAXX_HAS_STOP_TOKEN
    gives([&] { return get_cq_event(on.events, std::stop_token()); });
    gives([&] { return get_cq_event(on.events, std::stop_token(), ec); });
#endif
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "comp_channel: nothing there is empty, and no error", "[cq_event]") {
    told on;
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK_FALSE(on.events.try_get_cq_event());
    CHECK_FALSE(on.events.try_get_cq_event(ec));
    CHECK(!ec);
    const auto start = clock::now();
    CHECK_FALSE(on.events.get_cq_event_for(20ms));
    CHECK(elapsed(start) >= 20ms);
    CHECK_FALSE(on.events.get_cq_event_for(-1s, ec));
    CHECK_FALSE(on.events.get_cq_event_until(clock::now() + 5ms));
    CHECK_FALSE(on.events.get_cq_event_until(clock::now() - 1h, ec));
    CHECK(!ec);
#if RDMAXX_HAS_STOP_TOKEN
    std::stop_source stop;
    stop.request_stop();
    CHECK_FALSE(get_cq_event(on.events, stop.get_token()));
    CHECK_FALSE(get_cq_event(on.events, stop.get_token(), ec));
    CHECK(!ec);
#endif
}

TEST_CASE_METHOD(unit::test, "comp_channel: a blocking get waits for the event, also over EINTR", "[cq_event]") {
    told on;
    fake::fail("ibv_get_cq_event").with(EINTR).times(2);
    worker later([&] {
        std::this_thread::sleep_for(30ms);
        on.complete();
    });
    CHECK(on.events.get_cq_event_for(std::chrono::hours::max()).cq() == on.queue);
}

TEST_CASE_METHOD(unit::test, "comp_channel: a failing get names the call", "[cq_event]") {
    told on;
    fake::fail("ibv_get_cq_event", 1, ENODEV);
    const caught failed([&] { static_cast<void>(on.events.get_cq_event()); });
    CHECK(failed.code == ENODEV);
    CHECK(failed.call == "ibv_get_cq_event");
    fake::fail("ibv_get_cq_event", 1, ENODEV);
    std::error_code ec;
    CHECK_FALSE(on.events.try_get_cq_event(ec));
    CHECK(number(ec) == ENODEV);
}

TEST_CASE_METHOD(unit::test, "comp_channel: several getters get each event once", "[cq_event]") {
    told on;
    constexpr unsigned count = 200;
    std::atomic<unsigned> got = 0;
    {
        std::vector<worker> getters;
        for (int i = 0; i < 3; ++i)
            getters.emplace_back([&] {
                while (got < count)
                    got += on.events.get_cq_event_for(10ms).count();
            });
        for (unsigned i = 0; i < count; ++i)
            fake::push_cq_event(on.queue.native_handle());
    }
    CHECK(got == count);
    CHECK(fake::cq_events().acked == count);
}

// ---------------------------------------------------------------- waiting for completions

TEST_CASE_METHOD(unit::test, "comp_channel::wait: gives what is there without a sleep", "[cq]") {
    told on;
    fake::push_success(on.queue.native_handle(), 7, IBV_WC_SEND, 17);
    std::array<wc, 4> room;
    const auto done = on.events.wait(on.queue, room);
    REQUIRE(done.size() == 1);
    CHECK(done[0].wr_id() == 7);
    CHECK(fake::calls("ibv_get_cq_event") == 0);
    CHECK(fake::calls("ibv_req_notify_cq") == 0);
}

TEST_CASE_METHOD(unit::test, "comp_channel::wait: a completion between poll and arm is not slept over", "[cq]") {
    told on;
    fake::before("ibv_req_notify_cq", [&] { fake::push_success(on.queue.native_handle(), 8, IBV_WC_SEND, 17); });
    std::array<wc, 4> room;
    const auto done = on.events.wait(on.queue, room);
    REQUIRE(done.size() == 1);
    CHECK(done[0].wr_id() == 8);
    CHECK(fake::calls("ibv_get_cq_event") == 0);
}

TEST_CASE_METHOD(unit::test, "comp_channel::wait: arms, polls again, then sleeps", "[cq]") {
    told on;
    worker later([&] {
        fake::wait_for_call("ibv_get_cq_event");
        fake::push_success(on.queue.native_handle(), 9, IBV_WC_SEND, 17);
    });
    std::array<wc, 4> room;
    std::error_code ec = std::make_error_code(std::errc::io_error);
    const auto done = on.events.wait(on.queue, room, ec);
    CHECK(!ec);
    REQUIRE(done.size() == 1);
    CHECK(done[0].wr_id() == 9);
    CHECK(fake::in_order({"ibv_req_notify_cq", "ibv_get_cq_event", "ibv_poll_cq"}));
    CHECK(fake::cq_events().held() == 0); // and its events were acked
}

TEST_CASE_METHOD(unit::test, "comp_channel::wait: goes on after events of other CQs, and acks them", "[cq]") {
    told on;
    cq other(on.device, 8, on.events);
    told::complete(other);
    worker later([&] {
        fake::wait_for_call("ibv_ack_cq_events");
        fake::push_success(on.queue.native_handle(), 9, IBV_WC_SEND, 17);
    });
    std::array<wc, 4> room;
    CHECK(on.events.wait(on.queue, room).size() == 1);
    CHECK(fake::cq_events(other.native_handle()).held() == 0);
}

TEST_CASE_METHOD(unit::test, "comp_channel::wait_for, wait_until: empty on time-out, and no error", "[cq]") {
    told on;
    std::array<wc, 4> room;
    const auto start = clock::now();
    CHECK(on.events.wait_for(on.queue, room, 20ms).empty());
    CHECK(elapsed(start) >= 20ms);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK(on.events.wait_for(on.queue, room, 0s, ec).empty());
    CHECK(!ec);
    CHECK(on.events.wait_until(on.queue, room, clock::now() - 1s).empty());
    CHECK(on.events.wait_until(on.queue, room, clock::now(), ec).empty());
    CHECK(!ec);
    fake::push_success(on.queue.native_handle(), 7, IBV_WC_SEND, 17);
    CHECK(on.events.wait_for(on.queue, room, -1s).size() == 1);
    fake::push_success(on.queue.native_handle(), 7, IBV_WC_SEND, 17);
    CHECK(on.events.wait_until(on.queue, room, clock::now() - 1s, ec).size() == 1);
}

TEST_CASE_METHOD(unit::test, "comp_channel::wait: failures name their call; no room is EINVAL", "[cq]") {
    told on;
    std::array<wc, 4> room;
    for (const char* call : {"ibv_poll_cq", "ibv_req_notify_cq", "ibv_get_cq_event"}) {
        CAPTURE(call);
        fake::fail(call).as(fake::convention::minus_one).with(EIO);
        const caught failed([&] { static_cast<void>(on.events.wait_for(on.queue, room, 10ms)); });
        CHECK(failed.code == EIO);
        CHECK(failed.call == call);
    }
    const rdmaxx::cq deaf(on.device, 4);
    const comp_channel others(on.device);
    const rdmaxx::cq elsewhere(on.device, 4, others);
    const std::size_t before = fake::calls();
    CHECK(caught([&] { static_cast<void>(on.events.wait(on.queue, std::span<wc>())); }).code == EINVAL);
    // Their events would never come here.
    for (const cq_ref queue : {cq_ref(deaf), cq_ref(elsewhere), cq_ref()}) {
        const caught failed([&] { static_cast<void>(on.events.wait(queue, room)); });
        CHECK(failed.code == EINVAL);
        CHECK(contains(failed.cause, "do not arrive on this channel"));
    }
    CHECK(fake::calls() == before);
}

TEST_CASE_METHOD(unit::test, "cq: a channel that was wanted and is empty is an error", "[cq]") {
    const opened with;
    const caught failed([&] { rdmaxx::cq(with.device, 4, comp_channel()).close(); });
    CHECK(failed.code == EINVAL);
    CHECK(contains(failed.cause, "empty completion channel"));
    std::error_code ec;
    CHECK_FALSE(rdmaxx::cq::create(with.device, 4, comp_channel_ref(), 0, ec));
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(cq_ex<>::create(with.device, 4, comp_channel(), 0, ec));
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(cq_ex<>::create(with.device, cq_init_attr_ex(4).parent_domain(pd()), ec));
    CHECK(number(ec) == EINVAL);
    CHECK(cq_ex<>::create(with.device, 4, {}, 0, ec)); // none was wanted
    CHECK(!ec);
}

// ---------------------------------------------------------------- polling

TEST_CASE_METHOD(unit::test, "cq: poll gives the filled part of its room", "[cq]") {
    const opened with;
    std::array<wc, 4> room;
    CHECK(with.cq.poll(room).empty());
    for (std::uint64_t i = 0; i < 6; ++i)
        fake::push_success(with.cq.native_handle(), i, IBV_WC_SEND, 17);
    const auto first = with.cq.poll(room);
    CHECK(first.data() == room.data());
    REQUIRE(first.size() == 4);
    for (std::size_t i = 0; i < 4; ++i)
        CHECK(first[i].wr_id() == i);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK(with.cq.poll(room, ec).size() == 2);
    CHECK(!ec);
    CHECK(with.cq.poll(std::span<wc>()).empty());
    CHECK(with.cq.try_poll(room) == 0);
}

TEST_CASE_METHOD(unit::test, "cq: poll fills the C structs as well", "[cq]") {
    const opened with;
    std::array<ibv_wc, 4> room{};
    fake::push_success(with.cq.native_handle(), 5, IBV_WC_SEND, 17);
    const auto done = with.cq.poll(room);
    REQUIRE(done.size() == 1);
    CHECK(done[0].wr_id == 5);
    CHECK(done.data() == room.data());
    std::error_code ec;
    CHECK(with.cq.poll(room, ec).empty());
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "cq: completions are copies: the handler of one may end queue pair, memory and CQ",
                 "[cq]") {
    connection c;
    auto memory = std::make_unique<std::array<std::byte, 64>>();
    mr region(c.pd, *memory);
    fake::set().hold_data_path = true;
    c.client.qp().post_send(region, 1);
    c.client.qp().post_send(region, 2);
    c.client.qp().modify(qp_attr(qp_state::err));
    std::array<wc, 4> room;
    std::uint64_t sum = 0;
    for (const wc& failed : c.cq.poll(room)) {
        c.client = cm_id();
        c.server = cm_id();
        region = mr();
        memory.reset();
        c.cq = cq();
        CHECK(failed.status() == wc_status::wr_flush_err);
        sum += failed.wr_id();
    }
    CHECK(sum == 3);
}

TEST_CASE_METHOD(unit::test, "cq: a negative poll is an error, whatever errno says", "[cq]") {
    const opened with;
    struct row {
        int result;
        int expected;
    };
    const row row = GENERATE(values<struct row>({{-1, EIO}, {-2, EIO}, {-5, EIO}, {-12, ENOMEM}}));
    std::array<wc, 4> room;
    std::array<ibv_wc, 4> c_room{};
    errno = EBADF;
    const auto breaks = [&](auto poll) {
        fake::fail("ibv_poll_cq").returning(row.result);
        return caught(poll);
    };
    const caught broken = breaks([&] { static_cast<void>(with.cq.poll(room)); });
    CHECK(broken.code == row.expected);
    CHECK(broken.call == "ibv_poll_cq");
    CHECK(contains(broken.what, "overrun"));
    CHECK(breaks([&] { static_cast<void>(with.cq.poll(c_room)); }).code == row.expected);
    std::error_code ec;
    breaks([&] { CHECK(with.cq.poll(room, ec).empty()); });
    CHECK(number(ec) == row.expected);
    breaks([&] { CHECK(with.cq.poll(c_room, ec).empty()); });
    CHECK(number(ec) == row.expected);
    breaks([&] { CHECK(with.cq.try_poll(room) == row.result); });
}

TEST_CASE_METHOD(unit::test, "cq: its size is what was granted, at least what was asked for", "[cq]") {
    const opened with;
    const cq queue(with.device, 5);
    CHECK(queue.size() == 8);
    CHECK(queue.context() == with.device);
    const cq_ref ref = queue;
    CHECK(ref.size() == 8);
    CHECK(caught([&] { const cq none(with.device, 0); }).code == EINVAL);
    CHECK(caught([&] { const cq huge(with.device, 1 << 24); }).code == EINVAL);
    CHECK(caught([&] { const cq vector(with.device, 8, {}, 99); }).code == EINVAL);
    const cq last_vector(with.device, 8, {}, 3);
    CHECK(last_vector);
}

TEST_CASE_METHOD(unit::test, "cq: request_notify arms for any, or for solicited completions only", "[cq]") {
    told on;
    const auto completes = [&](bool solicited) {
        ibv_wc wc{};
        fake::push_completion(on.queue.native_handle(), wc, solicited);
        return static_cast<bool>(on.events.try_get_cq_event());
    };
    CHECK_FALSE(completes(true)); // not armed
    on.queue.request_notify();
    CHECK(completes(false));
    CHECK_FALSE(completes(true)); // once
    on.queue.request_notify(true);
    CHECK_FALSE(completes(false));
    CHECK(completes(true));
    on.queue.request_notify(true);
    fake::push_failure(on.queue.native_handle(), 1, IBV_WC_WR_FLUSH_ERR, 17);
    CHECK(on.events.try_get_cq_event()); // failures as well
    std::error_code ec = std::make_error_code(std::errc::io_error);
    on.queue.request_notify(false, ec);
    CHECK(!ec);
    CHECK(on.queue.try_request_notify() == 0);
}

TEST_CASE_METHOD(unit::test, "cq: once its end has begun no event pins it, be it by a destructor or by close()",
                 "[cq]") {
    told on;
    detail::node* node = detail::passkey::block(on.queue);
    const bool closes = GENERATE(false, true);
    std::optional<bool> pinned;
    fake::before("ibv_destroy_cq", [&] {
        if (pinned)
            return; // the other CQ
        pinned = detail::try_retain(node);
        if (*pinned)
            detail::release(node);
    });
    if (closes)
        on.queue.close();
    else
        on.queue = cq();
    CHECK(pinned == false);
}
