// The end of an id: it waits for its events, says why when that takes long, and swallows what comes meanwhile.
#include "test.hpp"

#include <array>
#include <type_traits>

#include <rdma/rdma_cma.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;
using clock = std::chrono::steady_clock;

long thread_number() {
    return ::syscall(SYS_gettid);
}

/// Events of the id, held by the calling thread.
std::vector<cm_event> hold(bound_id& on, std::initializer_list<type> types) {
    std::vector<cm_event> events;
    for (const type t : types) {
        push(on.id, t);
        events.push_back(on.channel.get_cm_event());
    }
    return events;
}

} // namespace

// ---------------------------------------------------------------- waiting

TEST_CASE_METHOD(unit::test, "cm_id: its end waits for an event that another thread holds", "[destroy]") {
    bound_id on;
    push(on.id, type::established);
    gate held;
    worker holder([&] {
        const cm_event event = on.channel.get_cm_event();
        held.open();
        std::this_thread::sleep_for(50ms);
    });
    held.wait();
    on.id.close();
    CHECK(fake::in_order({"rdma_ack_cm_event", "rdma_destroy_id"}));
    CHECK(take_hang_reports().empty()); // five seconds were not over
}

TEST_CASE_METHOD(unit::test, "cm_id: its end does not wait for the events of other ids", "[destroy]") {
    bound_id on;
    cm_id other(on.channel);
    const auto events = hold(on, {type::established, type::disconnected});
    const auto start = clock::now();
    other.close();
    CHECK(elapsed(start) < 4s);
}

TEST_CASE_METHOD(unit::test, "cm_id: a destructor and a move assignment wait as close() does", "[destroy]") {
    const bool assigns = GENERATE(false, true);
    bound_id on;
    auto events = hold(on, {type::established});
    hang_report_after(1ms);
    on_hang([&] {
        events.clear();
        return hang_action::keep_waiting;
    });
    if (assigns)
        on.id = cm_id(on.channel);
    else
        cm_id(std::move(on.id));
    CHECK(take_hang_reports().size() == 1);
    CHECK(fake::cm_events().held() == 0);
}

// ---------------------------------------------------------------- the report

TEST_CASE_METHOD(unit::test, "hang report: told once, with what is held by which thread", "[destroy][hang]") {
    bound_id on;
    const void* raw = on.id.native_handle();
    auto mine = hold(on, {type::established});
    cm_event theirs;
    long their_number = 0;
    push(on.id, type::disconnected);
    worker([&] {
        theirs = on.channel.get_cm_event();
        their_number = thread_number();
    }).join();
    hang_report_after(20ms);
    gate reported;
    on_hang([&] {
        reported.open();
        return hang_action::keep_waiting;
    });
    worker destroyer([&, taken = std::move(on.id)]() mutable { taken.close(); });
    reported.wait();
    std::this_thread::sleep_for(60ms); // long enough for another one
    mine.clear();
    std::move(theirs).ack();
    destroyer.join();

    const auto reports = take_hang_reports();
    REQUIRE(reports.size() == 1);
    const hang_report& report = reports[0];
    CHECK(std::string(report.call) == "rdma_destroy_id");
    CHECK(report.object == raw);
    CHECK(report.waited_ms >= 20);
    CHECK(report.waited_ms < 10'000);
    REQUIRE(report.count == 2);
    std::string types;
    for (unsigned i = 0; i < report.count; ++i) {
        const held_event& event = report.events[i];
        types += std::string(event.type) + " ";
        CHECK_FALSE(event.this_thread); // the destroyer got neither
        CHECK(event.thread == (std::string(event.type) == "established" ? thread_number() : their_number));
    }
    CHECK((types == "established disconnected " || types == "disconnected established "));
    CHECK(contains(report.to_string(), "rdma_destroy_id"));
    CHECK(contains(report.to_string(), "established (got by thread " + std::to_string(thread_number()) + ")"));
}

TEST_CASE_METHOD(unit::test, "hang report: says when the waiting thread itself holds the event", "[destroy][hang]") {
    bound_id on;
    auto events = hold(on, {type::disconnected});
    hang_report_after(1ms);
    on_hang([&] {
        events.clear();
        return hang_action::keep_waiting;
    });
    on.id.close();
    const auto reports = take_hang_reports();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].events[0].this_thread);
    CHECK(reports[0].events[0].thread == thread_number());
    CHECK(contains(reports[0].to_string(), "this thread: an event must end before its id"));
}

TEST_CASE_METHOD(unit::test, "hang report: counts more events than it names", "[destroy][hang]") {
    bound_id on;
    std::vector<cm_event> events;
    for (int i = 0; i < 20; ++i) {
        push(on.id, type::user);
        events.push_back(on.channel.get_cm_event());
    }
    hang_report_after(1ms);
    on_hang([&] {
        events.clear();
        return hang_action::keep_waiting;
    });
    on.id.close();
    const auto reports = take_hang_reports();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].count == 20);
    for (const held_event& event : reports[0].events)
        CHECK(std::string(event.type) == "user");
    CHECK(contains(reports[0].to_string(), "20 event(s)"));
}

TEST_CASE_METHOD(unit::test, "hang report: of a listener, names its connect_requests", "[destroy][hang]") {
    bound_listener on;
    on.push_request();
    on.push_request();
    std::vector<cm_event> events;
    events.push_back(on.channel.get_cm_event());
    events.push_back(on.channel.get_cm_event());
    const cm_id taken = events[0].take_id(); // the event still counts for the listener
    hang_report_after(1ms);
    on_hang([&] {
        events.clear();
        return hang_action::keep_waiting;
    });
    on.id.close();
    const auto reports = take_hang_reports();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].count == 2);
    CHECK(std::string(reports[0].events[0].type) == "connect_request");
}

TEST_CASE_METHOD(unit::test, "hang report: acked just before, none is told", "[destroy][hang]") {
    bound_id on;
    hang_report_after(10s);
    for (int i = 0; i < 20; ++i) {
        cm_id id(on.channel);
        push(id, type::user);
        gate held;
        worker holder([&] {
            cm_event event = on.channel.get_cm_event();
            held.open();
            std::move(event).ack();
        });
        held.wait();
        id.close();
    }
    CHECK(take_hang_reports().empty());
}

TEST_CASE_METHOD(unit::test, "hang report: any duration sets when it comes", "[destroy][hang]") {
    bound_id on;
    auto events = hold(on, {type::established});
    on_hang([&] {
        events.clear();
        return hang_action::keep_waiting;
    });
    hang_report_after(std::chrono::duration<double>(0.05));
    const auto start = clock::now();
    on.id.close();
    CHECK(elapsed(start) >= 49ms);
    CHECK(take_hang_reports().size() == 1);
}

// ---------------------------------------------------------------- giving up

TEST_CASE_METHOD(unit::test, "hang report: answered with leak, close() fails with EDEADLK and the id stays allocated",
                 "[destroy][hang]") {
    bound_id on;
    cm_id other(on.channel);
    rdma_cm_id* raw = on.id.native_handle();
    leaked_on_purpose(detail::passkey::block(on.id));
    auto events = hold(on, {type::established});
    hang_report_after(1ms);
    on_hang([] { return hang_action::leak; });
    SECTION("close") {
        const caught given_up([&] { on.id.close(); });
        CHECK(given_up.code == EDEADLK);
        CHECK(given_up.call == "rdma_destroy_id");
        CHECK(given_up.cause == "given up: its events are still held");
        CHECK(take_destroy_reports().empty());
    }
    SECTION("destructor: the hook is told") {
        { const cm_id gone = std::move(on.id); }
        CHECK(take_destroy_reports() == std::vector<destroy_report>{{"rdma_destroy_id", EDEADLK, raw}});
    }
    CHECK_FALSE(on.id);
    CHECK(take_hang_reports().size() == 1);
    CHECK(fake::alive(raw));
    CHECK(fake::calls("rdma_destroy_id") == 0);

    // The rest of the program goes on.
    push(other, type::established);
    on.channel.expect_and_ack(other, type::established);
    other.close();
    // The event that was held can still be acked, and what comes for the lost id is swallowed.
    events.clear();
    CHECK(fake::cm_events().held() == 0);
    fake::push_event({.type = RDMA_CM_EVENT_DISCONNECTED, .id = raw});
    CHECK_FALSE(on.channel.try_get_cm_event());
    CHECK(fake::cm_events().held() == 0);

    // Given up is for good: the channel stays with the id.
    on.channel.close();
    CHECK(fake::calls("rdma_destroy_event_channel") == 0);
    fake::abandon();
}

// ---------------------------------------------------------------- what comes meanwhile

TEST_CASE_METHOD(unit::test, "cm_id: while it goes, gets swallow its events and give those of others", "[destroy]") {
    bound_id on;
    cm_id other(on.channel);
    rdma_cm_id* going = on.id.native_handle();
    auto held = hold(on, {type::established});
    hang_report_after(1ms);
    gate waiting;
    on_hang([&] {
        waiting.open();
        return hang_action::keep_waiting;
    });
    worker destroyer([&, taken = std::move(on.id)]() mutable { taken.close(); });
    waiting.wait();
    for (int i = 0; i < 3; ++i)
        fake::push_event({.type = RDMA_CM_EVENT_DISCONNECTED, .id = going});
    push(other, type::established);
    const cm_event event = on.channel.get_cm_event();
    CHECK(event.id() == other);
    CHECK_FALSE(on.channel.try_get_cm_event());
    CHECK(fake::cm_events(going).got == 4);
    CHECK(fake::cm_events(going).acked == 3);
    held.clear();
    destroyer.join();
    CHECK(take_hang_reports().size() == 1);
}

TEST_CASE_METHOD(unit::test, "cm_id: while a listener goes, gets refuse its requests", "[destroy]") {
    bound_listener on;
    rdma_cm_id* going = on.id.native_handle();
    on.push_request();
    std::optional<cm_event> held(on.channel.get_cm_event());
    hang_report_after(1ms);
    gate waiting;
    on_hang([&] {
        waiting.open();
        return hang_action::keep_waiting;
    });
    worker destroyer([&, taken = std::move(on.id)]() mutable { taken.close(); });
    waiting.wait();
    fake::clear_log();
    fake::push_event({.type = RDMA_CM_EVENT_CONNECT_REQUEST, .listen_id = going});
    CHECK_FALSE(on.channel.try_get_cm_event());
    CHECK(fake::in_order({"rdma_get_cm_event", "rdma_destroy_id", "rdma_ack_cm_event"}));
    held.reset();
    destroyer.join();
    CHECK(take_hang_reports().size() == 1);
}

TEST_CASE_METHOD(unit::test, "cm_id: a new one at the address of one that is gone gets its events", "[destroy]") {
    fake::set().reuse_addresses = true;
    event_channel channel;
    std::optional<cm_id> id(std::in_place, channel);
    const void* first = id->native_handle();
    id.reset();
    id.emplace(channel);
    REQUIRE(id->native_handle() == first);
    push(*id, type::established);
    CHECK(channel.try_get_cm_event().type() == type::established);
}

TEST_CASE_METHOD(unit::test, "cm_id: a failed end leaves no mark: its events come again", "[destroy]") {
    bound_id on;
    const std::string call = GENERATE("rdma_destroy_id", "ibv_destroy_qp");
    const opened with;
    const context device(on.id);
    const cq queue(device, 8);
    if (call == "ibv_destroy_qp")
        on.id.create_qp(qp_init_attr(queue));
    fake::fail(call, 1, EBUSY);
    std::error_code ec;
    on.id.close(ec);
    CHECK(number(ec) == EBUSY);
    push(on.id, type::disconnected);
    CHECK(on.channel.try_get_cm_event().type() == type::disconnected);
}

// ---------------------------------------------------------------- order and failures

TEST_CASE_METHOD(unit::test, "cm_id: its queue pair ends first, then the id", "[destroy]") {
    connection c;
    fake::clear_log();
    c.client.close();
    CHECK(fake::in_order({"ibv_destroy_qp", "rdma_destroy_id"}));
    CHECK(fake::calls("rdma_destroy_qp") == 0); // it hides what fails
    CHECK(fake::calls("ibv_destroy_qp") == 1);
}

TEST_CASE_METHOD(unit::test, "cm_id: where the queue pair's end fails, close() keeps id and queue pair", "[destroy]") {
    connection c;
    const qp_ref qp = c.client.qp();
    rdma_cm_id* raw = c.client.native_handle();
    fake::fail("ibv_destroy_qp", 1, EBUSY);
    const caught busy([&] { c.client.close(); });
    CHECK(busy.code == EBUSY);
    CHECK(busy.call == "ibv_destroy_qp");
    CHECK(c.client.native_handle() == raw);
    CHECK(c.client.qp() == qp);
    CHECK(fake::calls("rdma_destroy_id") == 0);
    CHECK(qp.query().state() == qp_state::rts); // it still works
    // The CQ that it uses stays too, whoever drops it.
    c.cq = cq();
    CHECK(fake::calls("ibv_destroy_cq") == 0);
    c.client.close();
    CHECK_FALSE(c.client);
    CHECK(fake::successes("ibv_destroy_qp") == 1);
}

TEST_CASE_METHOD(unit::test, "cm_id: where the queue pair's end fails, a destructor tells the hook and leaks both",
                 "[destroy]") {
    std::optional<connection> c(std::in_place);
    rdma_cm_id* raw = c->client.native_handle();
    leaked_on_purpose(detail::passkey::block(c->client));
    fake::fail("ibv_destroy_qp", 1, EBUSY);
    { const cm_id gone = std::move(c->client); }
    CHECK(take_destroy_reports() == std::vector<destroy_report>{{"ibv_destroy_qp", EBUSY, raw}});
    CHECK(fake::alive(raw));
    // What they need stays with them: channel, PD and CQ.
    c.reset();
    CHECK(fake::calls("rdma_destroy_event_channel") == 0);
    CHECK(fake::calls("ibv_destroy_cq") == 0);
    CHECK(fake::successes("ibv_destroy_qp") == 1); // the server's
    fake::abandon();
}

TEST_CASE_METHOD(unit::test, "cm_id: where rdma_destroy_id fails the owner keeps it, and a second close succeeds",
                 "[destroy]") {
    connection c;
    rdma_cm_id* raw = c.client.native_handle();
    fake::fail("rdma_destroy_id", 1, EINVAL);
    std::error_code ec;
    c.client.close(ec);
    CHECK(number(ec) == EINVAL);
    CHECK(c.client.native_handle() == raw);
    CHECK_FALSE(c.client.qp()); // that one is gone
    c.client.close(ec);
    CHECK(!ec);
    CHECK_FALSE(c.client);
    CHECK(fake::successes("rdma_destroy_id") == 1);
    CHECK(fake::calls("ibv_destroy_qp") == 1);
}

TEST_CASE_METHOD(unit::test, "close: on an empty owner has no effect", "[destroy]") {
    cm_id id;
    event_channel channel(nullptr);
    context device;
    id.close();
    channel.close();
    device.close();
    std::error_code ec = std::make_error_code(std::errc::io_error);
    id.close(ec);
    CHECK(!ec);
    CHECK(fake::calls() == 0);
}

TEST_CASE_METHOD(unit::test, "cm_id: closed again from inside its own end, it ends once", "[destroy]") {
    bound_id on;
    unsigned entered = 0;
    SECTION("inside the C call") {
        fake::before("rdma_destroy_id", [&] {
            ++entered;
            on.id.close();
        });
        on.id.close();
    }
    SECTION("inside the hook of a failed queue pair") {
        const context device(on.id);
        const cq queue(device, 8);
        on.id.create_qp(qp_init_attr(queue));
        rdma_cm_id* raw = on.id.native_handle();
        leaked_on_purpose(detail::passkey::block(on.id));
        fake::fail("ibv_destroy_qp", 1, EBUSY);
        on_destroy_failure([&] {
            ++entered;
            on.id.close();
        });
        on.id = cm_id();
        CHECK(take_destroy_reports().size() == 1);
        CHECK(fake::alive(raw));
        fake::abandon();
    }
    CHECK(entered == 1);
}

TEST_CASE_METHOD(unit::test, "EIO of any destroy means that the object is gone already", "[destroy]") {
    const bool closes = GENERATE(false, true);
    for (const char* call : {"ibv_destroy_qp", "rdma_destroy_id", "ibv_destroy_cq", "ibv_destroy_comp_channel",
                             "ibv_dereg_mr", "ibv_dealloc_pd", "ibv_close_device"})
        fake::fail(call).every().with(EIO);
    const device_list devices;
    context device(devices.front());
    pd domain(device);
    comp_channel events(device);
    cq queue(device, 8, events);
    std::array<std::byte, 64> memory{};
    mr region(domain, memory);
    qp pair(domain, qp_init_attr(queue));
    event_channel channel;
    cm_id id(channel);
    id.bind_addr(address("192.0.2.1", 0));
    const context of_id(id);
    const cq other(of_id, 8);
    id.create_qp(qp_init_attr(other));
    if (closes) {
        id.close();
        pair.close();
        region.close();
        queue.close();
        events.close();
        domain.close();
        device.close();
        CHECK_FALSE(device);
    }
    // And the destructors tell no hook: the fixture looks.
}

TEST_CASE_METHOD(unit::test, "cm_id: ids that C code made on the same channel get their events, and end by C",
                 "[destroy]") {
    bound_id on;
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(on.channel.native_handle(), &raw, nullptr, RDMA_PS_TCP) == 0);
    fake::push_event({.type = RDMA_CM_EVENT_ESTABLISHED, .id = raw});
    {
        const cm_event event = on.channel.get_cm_event();
        CHECK(event.id().native_handle() == raw);
        on.id.close(); // not held up by it
    }
    CHECK(::rdma_destroy_id(raw) == 0);
}

TEST_CASE_METHOD(unit::test, "event_channel: stays open until its last event ends", "[destroy]") {
    std::optional<cm_event> event;
    {
        bound_id on;
        rdma_cm_id* raw = nullptr;
        REQUIRE(::rdma_create_id(on.channel.native_handle(), &raw, nullptr, RDMA_PS_TCP) == 0);
        fake::push_event({.type = RDMA_CM_EVENT_ESTABLISHED, .id = raw});
        event = on.channel.get_cm_event();
        on.channel.close();
        on.id.close();
        CHECK(fake::calls("rdma_destroy_event_channel") == 0);
        fake::after("rdma_ack_cm_event", [raw] { ::rdma_destroy_id(raw); });
    }
    event.reset();
    CHECK(fake::in_order({"rdma_ack_cm_event", "rdma_destroy_event_channel"}));
}

// ---------------------------------------------------------------- errno

TEST_CASE_METHOD(unit::test, "errno is what it was before any end of an owner", "[destroy]") {
    const bool closes = GENERATE(false, true);
    fake::set().errno_after_success = EBADF;
    connection c;
    comp_channel events(c.device);
    std::array<std::byte, 64> memory{};
    mr region(c.pd, memory);
    cq other(c.device, 4, events);
    qp pair(c.pd, qp_init_attr(other));
    device_list devices;
    const auto ends = [&](auto& owner) {
        errno = 4711;
        if (closes)
            owner.close();
        else
            owner = std::remove_reference_t<decltype(owner)>();
        CHECK(errno == 4711);
    };
    ends(pair);
    ends(region);
    ends(other);
    ends(events);
    ends(c.client);
    ends(c.server);
    ends(c.listener);
    ends(c.cq);
    ends(c.pd);
    ends(c.device);
    errno = 4711;
    devices.close();
    c.channel.close();
    CHECK(errno == 4711);
    fake::set().errno_after_success = 0;
}

TEST_CASE_METHOD(unit::test, "errno is what it was before an end that failed", "[destroy]") {
    connection c;
    fake::fail("ibv_destroy_qp", 1, EBUSY);
    errno = 4711;
    std::error_code ec;
    c.client.close(ec);
    CHECK(errno == 4711);
    CHECK(number(ec) == EBUSY);
}
