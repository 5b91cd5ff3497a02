// A connect_request and the id that it brings: who owns it, and when.
#include "test.hpp"

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;

std::size_t ids_destroyed() {
    return fake::successes("rdma_destroy_id");
}

} // namespace

TEST_CASE_METHOD(unit::test, "connect_request: request() looks at the new id, id() is empty until take_id()",
                 "[request]") {
    requesting from;
    cm_event event = from.channel.get_cm_event();
    REQUIRE(event.type() == type::connect_request);
    CHECK(event.listen_id() == from.listener);
    CHECK_FALSE(event.id());
    const cm_id_ref look = event.request();
    REQUIRE(look);
    CHECK(look.verbs() == from.client.verbs());
    CHECK(look.peer_address() == from.client.local_address());

    const cm_id taken = event.take_id();
    CHECK(taken.native_handle() == look.native_handle());
    CHECK(event.id() == taken);
    CHECK_FALSE(event.request());
    CHECK(event.listen_id() == from.listener);
}

TEST_CASE_METHOD(unit::test, "connect_request: take_id a second time fails with EINVAL", "[request]") {
    bound_listener on;
    on.push_request();
    cm_event event = on.channel.get_cm_event();
    const cm_id taken = event.take_id();
    const std::size_t before = fake::calls();
    const caught again([&] { static_cast<void>(event.take_id()); });
    CHECK(again.code == EINVAL);
    CHECK(again.cause == "the new id was taken already");
    std::error_code ec;
    CHECK_FALSE(event.take_id(ec));
    CHECK(number(ec) == EINVAL);
    CHECK(fake::calls() == before);
    CHECK(taken);
}

TEST_CASE_METHOD(unit::test, "connect_request: take_id of another event fails with EINVAL", "[request]") {
    bound_id on;
    push(on.id, type::established);
    cm_event event = on.channel.get_cm_event();
    const caught wrong([&] { static_cast<void>(event.take_id()); });
    CHECK(wrong.code == EINVAL);
    CHECK(wrong.cause == "only a connect_request brings a new id");
    CHECK(event.id() == on.id);
    CHECK_FALSE(event.request());
    CHECK_FALSE(event.listen_id());
}

TEST_CASE_METHOD(unit::test,
                 "connect_request: dropped untaken, the new id is destroyed before the ack and the peer told",
                 "[request]") {
    requesting from;
    fake::clear_log();
    { const cm_event event = from.channel.get_cm_event(); }
    CHECK(fake::in_order({"rdma_get_cm_event", "rdma_destroy_id", "rdma_ack_cm_event"}));
    CHECK(ids_destroyed() == 1);
    CHECK(fake::calls("rdma_ack_cm_event") == 1);
    const cm_event answer = from.channel.get_cm_event();
    CHECK(answer.type() == type::rejected);
    CHECK(answer.status() == 28);
}

TEST_CASE_METHOD(unit::test, "connect_request: a hundred of them dropped leave nothing behind", "[request]") {
    bound_listener on;
    for (int i = 0; i < 100; ++i)
        on.push_request();
    std::vector<cm_event> events;
    while (cm_event event = on.channel.try_get_cm_event())
        if (events.size() % 2 == 0) // some at once, some later
            events.push_back(std::move(event));
    events.clear();
    CHECK(ids_destroyed() == 100);
    CHECK(fake::cm_events().acked == 100);
}

TEST_CASE_METHOD(unit::test, "connect_request: a taken id outlives its event, and the event outlives it", "[request]") {
    bound_listener on;
    on.push_request();
    std::optional<cm_event> event(on.channel.get_cm_event());
    std::optional<cm_id> taken(event->take_id());
    SECTION("event first") {
        event.reset();
        CHECK(ids_destroyed() == 0);
        taken.reset();
    }
    SECTION("id first: the event counts for the listener, so nothing waits") {
        const auto start = std::chrono::steady_clock::now();
        taken.reset();
        CHECK(elapsed(start) < 4s);
        CHECK(ids_destroyed() == 1);
        CHECK(event->listen_id() == on.id);
        event.reset();
    }
    CHECK(ids_destroyed() == 1);
}

TEST_CASE_METHOD(unit::test, "connect_request: take_id with ENOMEM leaves the id in the event", "[request]") {
    bound_listener on;
    on.push_request();
    cm_event event = on.channel.get_cm_event();
    {
        const failing_allocation fails(1);
        const caught none([&] { static_cast<void>(event.take_id()); });
        CHECK(none.code == ENOMEM);
    }
    {
        const failing_allocation fails(1);
        std::error_code ec;
        CHECK_FALSE(event.take_id(ec));
        CHECK(number(ec) == ENOMEM);
    }
    CHECK(event.request());
    SECTION("where it can be taken later") {
        const cm_id taken = event.take_id();
        CHECK(taken);
    }
    SECTION("and ends with it") {
        event = cm_event();
        CHECK(ids_destroyed() == 1);
    }
}

TEST_CASE_METHOD(unit::test, "connect_request: the new id starts with its listener's user context", "[request]") {
    bound_listener on;
    int mine = 0;
    on.id.set_user_context(&mine);
    on.push_request();
    cm_event event = on.channel.get_cm_event();
    CHECK(event.request().user_context<int>() == &mine);
    cm_id taken = event.take_id();
    CHECK(taken.user_context<int>() == &mine);
    taken.set_user_context(nullptr);
    CHECK(on.id.user_context<int>() == &mine);
}

TEST_CASE_METHOD(unit::test, "connect_request: the taken id keeps the channel when listener and channel are dropped",
                 "[request]") {
    cm_id kept;
    {
        bound_listener on;
        on.push_request();
        cm_event event = on.channel.get_cm_event();
        kept = event.take_id();
    }
    CHECK(fake::calls("rdma_destroy_event_channel") == 0);
    kept = cm_id();
    CHECK(fake::in_order({"rdma_destroy_id", "rdma_destroy_id", "rdma_destroy_event_channel"}));
}

TEST_CASE_METHOD(unit::test, "connect_request: where the handler fails at create_qp, everything ends once",
                 "[request]") {
    const int step = GENERATE(range(0, 4));
    requesting from;
    fake::clear_log();
    const caught failed([&] {
        cm_event event = from.channel.get_cm_event();
        std::optional<failing_allocation> no_memory;
        if (step == 0)
            no_memory.emplace(1);
        if (step == 1)
            fake::fail("ibv_create_qp", 1, ENOMEM);
        if (step == 2)
            fake::fail("ibv_modify_qp", 1, ENOMEM);
        if (step == 3)
            fake::fail("rdma_accept", 1, ENOMEM);
        cm_id id = event.take_id();
        id.create_qp(from.pd, from.attr);
        id.accept();
    });
    CAPTURE(step, failed.what);
    CHECK(failed.code == ENOMEM);
    CHECK(fake::cm_events().got == fake::cm_events().acked);
    CHECK(ids_destroyed() == 1);
    CHECK(fake::successes("ibv_create_qp") == fake::successes("ibv_destroy_qp"));
    const cm_event answer = from.channel.get_cm_event();
    CHECK(answer.type() == type::rejected);
}

TEST_CASE_METHOD(unit::test, "connect_request: where the end of an untaken id fails, the hook is told and the ack done",
                 "[request]") {
    bound_listener on;
    on.push_request();
    std::optional<cm_event> event(on.channel.get_cm_event());
    rdma_cm_id* raw = event->request().native_handle();
    fake::fail("rdma_destroy_id", 1, EINVAL);
    event.reset();
    CHECK(take_destroy_reports() == std::vector<destroy_report>{{"rdma_destroy_id", EINVAL, raw}});
    CHECK(fake::cm_events().acked == 1);
    CHECK(::rdma_destroy_id(raw) == 0);
}

TEST_CASE_METHOD(unit::test, "connect_request: on a listener that goes, waiting requests are refused", "[request]") {
    requesting from;
    fake::clear_log();
    from.listener.close();
    const cm_event answer = from.channel.get_cm_event();
    CHECK(answer.id() == from.client);
    CHECK(answer.type() == type::rejected);
}

// ---------------------------------------------------------------- adopt and release

TEST_CASE_METHOD(unit::test, "cm_event: adopt acks an event that C code got", "[request]") {
    bound_id on;
    push(on.id, type::established);
    rdma_cm_event* raw = nullptr;
    REQUIRE(::rdma_get_cm_event(on.channel.native_handle(), &raw) == 0);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    {
        const cm_event event = cm_event::adopt(raw, on.channel, ec);
        CHECK(!ec);
        CHECK(event.type() == type::established);
        CHECK(event.native_handle() == raw);
        CHECK(event.id() == on.id);
    }
    CHECK(fake::cm_events().acked == 1);
}

TEST_CASE_METHOD(unit::test, "cm_event: an adopted event counts: its id's end waits for it", "[request]") {
    bound_id on;
    push(on.id, type::established);
    rdma_cm_event* raw = nullptr;
    REQUIRE(::rdma_get_cm_event(on.channel.native_handle(), &raw) == 0);
    std::error_code ec;
    std::optional<cm_event> event(cm_event::adopt(raw, on.channel, ec));
    hang_report_after(1ms);
    on_hang([&] {
        event.reset();
        return hang_action::keep_waiting;
    });
    on.id.close();
    const auto reports = take_hang_reports();
    REQUIRE(reports.size() == 1);
    CHECK(std::string(reports[0].events[0].type) == "established");
}

TEST_CASE_METHOD(unit::test, "cm_event: adopt of a connect_request owns the new id", "[request]") {
    bound_listener on;
    on.push_request();
    on.push_request();
    std::error_code ec;
    rdma_cm_event* raw = nullptr;
    REQUIRE(::rdma_get_cm_event(on.channel.native_handle(), &raw) == 0);
    {
        const cm_event event = cm_event::adopt(raw, on.channel, ec);
        CHECK(event.request());
    }
    CHECK(ids_destroyed() == 1);
    REQUIRE(::rdma_get_cm_event(on.channel.native_handle(), &raw) == 0);
    cm_event event = cm_event::adopt(raw, on.channel, ec);
    CHECK(event.take_id());
}

TEST_CASE_METHOD(unit::test, "cm_event: adopt with ENOMEM leaves the event to the caller", "[request]") {
    bound_id on;
    push(on.id, type::established);
    rdma_cm_event* raw = nullptr;
    REQUIRE(::rdma_get_cm_event(on.channel.native_handle(), &raw) == 0);
    std::error_code ec;
    {
        const failing_allocation fails(1);
        CHECK_FALSE(cm_event::adopt(raw, on.channel, ec));
    }
    CHECK(number(ec) == ENOMEM);
    CHECK(fake::cm_events().held() == 1);
    CHECK(::rdma_ack_cm_event(raw) == 0);
}

TEST_CASE_METHOD(unit::test, "cm_event: adopt of nothing, or with an empty channel, fails with EINVAL", "[request]") {
    bound_id on;
    std::error_code ec;
    CHECK_FALSE(cm_event::adopt(nullptr, on.channel, ec));
    CHECK(number(ec) == EINVAL);
    push(on.id, type::established);
    rdma_cm_event* raw = nullptr;
    REQUIRE(::rdma_get_cm_event(on.channel.native_handle(), &raw) == 0);
    CHECK_FALSE(cm_event::adopt(raw, event_channel(nullptr), ec));
    CHECK(number(ec) == EINVAL);
    CHECK(::rdma_ack_cm_event(raw) == 0);
}

TEST_CASE_METHOD(unit::test, "cm_event: release hands out the C event, and a request's new id with it", "[request]") {
    bound_listener on;
    on.push_request();
    cm_event event = on.channel.get_cm_event();
    rdma_cm_event* raw = std::move(event).release();
    REQUIRE(raw != nullptr);
    CHECK(ids_destroyed() == 0);
    CHECK(fake::calls("rdma_ack_cm_event") == 0);
    CHECK(::rdma_destroy_id(raw->id) == 0);
    CHECK(::rdma_ack_cm_event(raw) == 0);
    on.id.close(); // does not wait for it
    CHECK(take_hang_reports().empty());
}
