// expect, expect_and_ack and resolve: a channel of one flow.
#include "test.hpp"

#include <rdma/rdma_cma.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;
using clock = std::chrono::steady_clock;

/// What expect throws, or nothing.
template <class Callable>
std::optional<unexpected_event> unexpected(Callable callable) {
    try {
        callable();
    } catch (const unexpected_event& e) {
        return e;
    }
    return std::nullopt;
}

} // namespace

TEST_CASE_METHOD(unit::test, "expect: gives the event of that id and type", "[expect]") {
    bound_id on;
    push(on.id, type::established);
    {
        const cm_event event = on.channel.expect(on.id, type::established);
        CHECK(event.type() == type::established);
        CHECK(event.id() == on.id);
        CHECK(fake::cm_events().held() == 1);
    }
    push(on.id, type::established);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK(on.channel.expect(on.id, type::established, ec).type() == type::established);
    CHECK(!ec);
    push(on.id, type::established);
    CHECK(on.channel.expect(on.id, type::established, clock::now() + 5s));
    push(on.id, type::established);
    CHECK(on.channel.expect(on.id, type::established, clock::now() + 5s, ec));
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "expect: names a connect_request by its listener", "[expect]") {
    bound_listener on;
    on.push_request();
    cm_event event = on.channel.expect(on.id, type::connect_request);
    CHECK(event.take_id());
}

TEST_CASE_METHOD(unit::test, "expect: another event is acked and thrown, with its copy and its code", "[expect]") {
    bound_id on;
    fake::push_event(
        {.type = RDMA_CM_EVENT_REJECTED, .id = on.id.native_handle(), .status = 28, .private_data = fake::bytes("no")});
    const auto thrown = unexpected([&] { static_cast<void>(on.channel.expect(on.id, type::established)); });
    REQUIRE(thrown);
    CHECK(thrown->event().type() == type::rejected);
    CHECK(thrown->event().status() == 28);
    CHECK(thrown->event().id() == on.id.native_handle());
    CHECK(thrown->event().private_data().size() == 148);
    CHECK(thrown->code() == std::error_code(28, reject_category()));
    CHECK(thrown->code() == std::errc::connection_refused);
    CHECK(std::string(thrown->call()) == "rdma_get_cm_event");
    CHECK(contains(thrown->what(), "expected established, got rejected"));
    CHECK(contains(thrown->what(), "rejected by the peer's program"));
    CHECK(fake::cm_events().acked == 1);
}

TEST_CASE_METHOD(unit::test, "expect: another event that is no failure is EPROTO", "[expect]") {
    bound_id on;
    push(on.id, type::disconnected);
    const auto thrown = unexpected([&] { static_cast<void>(on.channel.expect(on.id, type::established)); });
    REQUIRE(thrown);
    CHECK(number(thrown->code()) == EPROTO);
    CHECK(thrown->event().type() == type::disconnected);
}

TEST_CASE_METHOD(unit::test, "expect: the event of another id is unexpected", "[expect]") {
    bound_id on;
    const cm_id other(on.channel);
    push(other, type::established);
    const auto thrown = unexpected([&] { static_cast<void>(on.channel.expect(on.id, type::established)); });
    REQUIRE(thrown);
    CHECK(thrown->event().id() == other.native_handle());
    CHECK(number(thrown->code()) == EPROTO);
    CHECK(contains(thrown->what(), "expected established, got established of another id"));
    CHECK(contains(diagnose(*thrown), "one flow"));
}

TEST_CASE_METHOD(unit::test, "expect: the new id of an unexpected connect_request is destroyed and the peer told",
                 "[expect]") {
    requesting from;
    fake::clear_log();
    const auto thrown = unexpected([&] { static_cast<void>(from.channel.expect(from.client, type::established)); });
    REQUIRE(thrown);
    CHECK(thrown->event().type() == type::connect_request);
    CHECK(thrown->event().listen_id() == from.listener.native_handle());
    CHECK(fake::in_order({"rdma_destroy_id", "rdma_ack_cm_event"}));
    CHECK(from.channel.get_cm_event().type() == type::rejected);
}

TEST_CASE_METHOD(unit::test, "expect: the device's removal ends each wait", "[expect]") {
    bound_id on;
    fake::remove_device("fake0");
    const auto thrown = unexpected([&] {
        const bool ack = GENERATE(false, true);
        if (ack)
            on.channel.expect_and_ack(on.id, type::established);
        else
            static_cast<void>(on.channel.expect(on.id, type::established, clock::now() + 5s));
    });
    REQUIRE(thrown);
    CHECK(thrown->event().type() == type::device_removal);
}

TEST_CASE_METHOD(unit::test, "expect: the error_code form gives the other event, and its code", "[expect]") {
    bound_id on;
    std::error_code ec;
    {
        push(on.id, type::rejected, 8);
        const cm_event event = on.channel.expect(on.id, type::established, ec);
        CHECK(event.type() == type::rejected);
        CHECK(ec == std::error_code(8, reject_category()));
        CHECK(fake::cm_events().held() == 1);
    }
    {
        push(on.id, type::disconnected);
        const cm_event event = on.channel.expect(on.id, type::established, clock::now() + 5s, ec);
        CHECK(event.type() == type::disconnected);
        CHECK(number(ec) == EPROTO);
    }
    CHECK(fake::cm_events().held() == 0);
}

TEST_CASE_METHOD(unit::test, "expect: nothing before the deadline is ETIMEDOUT", "[expect]") {
    bound_id on;
    const auto start = clock::now();
    const caught late([&] { static_cast<void>(on.channel.expect(on.id, type::established, clock::now() + 20ms)); });
    CHECK(late.code == ETIMEDOUT);
    CHECK(late.call == "rdma_get_cm_event");
    CHECK(elapsed(start) >= 19ms);
    std::error_code ec;
    CHECK_FALSE(on.channel.expect(on.id, type::established, clock::now() - 1s, ec));
    CHECK(number(ec) == ETIMEDOUT);
    CHECK(caught([&] { on.channel.expect_and_ack(on.id, type::established, clock::now()); }).code == ETIMEDOUT);
    on.channel.expect_and_ack(on.id, type::established, clock::now(), ec);
    CHECK(number(ec) == ETIMEDOUT);
}

TEST_CASE_METHOD(unit::test, "expect: a get that fails is reported as such", "[expect]") {
    bound_id on;
    fake::fail("rdma_get_cm_event", 1, ENODEV);
    const caught failed([&] { static_cast<void>(on.channel.expect(on.id, type::established)); });
    CHECK(failed.code == ENODEV);
    CHECK(failed.call == "rdma_get_cm_event");
    fake::fail("rdma_get_cm_event", 1, ENODEV);
    std::error_code ec;
    CHECK_FALSE(on.channel.expect(on.id, type::established, ec));
    CHECK(number(ec) == ENODEV);
}

TEST_CASE_METHOD(unit::test, "expect: unwinding past the id does not wait for the unexpected event", "[expect]") {
    event_channel channel;
    const auto start = clock::now();
    const auto thrown = unexpected([&] {
        cm_id id(channel);
        id.bind_addr(address("192.0.2.1", 0));
        push(id, type::unreachable, -ETIMEDOUT);
        channel.expect_and_ack(id, type::established);
    });
    REQUIRE(thrown);
    CHECK(number(thrown->code()) == ETIMEDOUT);
    CHECK(elapsed(start) < 4s);
    CHECK(fake::successes("rdma_destroy_id") == 1);
}

TEST_CASE_METHOD(unit::test, "expect_and_ack: acks at once, in both forms", "[expect]") {
    bound_id on;
    push(on.id, type::established);
    on.channel.expect_and_ack(on.id, type::established);
    CHECK(fake::cm_events().acked == 1);
    push(on.id, type::established);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    on.channel.expect_and_ack(on.id, type::established, ec);
    CHECK(!ec);
    push(on.id, type::rejected, 28);
    on.channel.expect_and_ack(on.id, type::established, ec);
    CHECK(ec == std::error_code(28, reject_category()));
    push(on.id, type::established);
    on.channel.expect_and_ack(on.id, type::established, clock::now() + 5s, ec);
    CHECK(!ec);
    CHECK(fake::cm_events().acked == 4);
}

// ---------------------------------------------------------------- resolve

TEST_CASE_METHOD(unit::test, "resolve: does address and route in one", "[resolve]") {
    fake::auto_connect();
    event_channel channel;
    cm_id id(channel);
    SECTION("throwing") {
        resolve(channel, id, address("192.0.2.1", 7471), 1500ms);
    }
    SECTION("with a code") {
        std::error_code ec = std::make_error_code(std::errc::io_error);
        resolve(channel, id, address("192.0.2.1", 7471), 1500ms, ec);
        CHECK(!ec);
    }
    CHECK(fake::in_order({"rdma_resolve_addr", "rdma_get_cm_event", "rdma_ack_cm_event", "rdma_resolve_route",
                          "rdma_get_cm_event", "rdma_ack_cm_event"}));
    CHECK(contains(fake::log_text(), "1500 ms"));
    CHECK(id.verbs());
    CHECK(id.peer_address() == address("192.0.2.1", 7471));
}

TEST_CASE_METHOD(unit::test, "resolve: an address that nobody answers at is ETIMEDOUT", "[resolve]") {
    fake::auto_connect();
    fake::unreachable("192.0.2.9");
    event_channel channel;
    const cm_id id(channel);
    const auto thrown = unexpected([&] { resolve(channel, id, address("192.0.2.9", 1), 10ms); });
    REQUIRE(thrown);
    CHECK(thrown->event().type() == type::addr_error);
    CHECK(number(thrown->code()) == ETIMEDOUT);
    const cm_id other(channel);
    std::error_code ec;
    resolve(channel, other, address("192.0.2.9", 1), 10ms, ec);
    CHECK(number(ec) == ETIMEDOUT);
    CHECK(fake::calls("rdma_resolve_route") == 0);
}

TEST_CASE_METHOD(unit::test, "resolve_addr: an interface that no device belongs to is ENODEV", "[resolve]") {
    fake::auto_connect();
    fake::devices({{.name = "fake0", .addresses = {"10.0.0.1"}}});
    event_channel channel;
    const cm_id id(channel);
    id.resolve_addr(address("127.0.0.1", 0), address("127.0.0.1", 7471), 10ms);
    const auto thrown = unexpected([&] { channel.expect_and_ack(id, type::addr_resolved); });
    REQUIRE(thrown);
    CHECK(thrown->event().type() == type::addr_error);
    CHECK(thrown->event().status() == -ENODEV);
    CHECK(number(thrown->code()) == ENODEV);
}

TEST_CASE_METHOD(unit::test, "resolve: a route error is thrown with its code", "[resolve]") {
    bound_id on;
    // No automatic answers: they are queued before.
    push(on.id, type::addr_resolved);
    fake::push_event({.type = RDMA_CM_EVENT_ROUTE_ERROR, .id = on.id.native_handle(), .status = -1, .error = ENODEV});
    const auto thrown = unexpected([&] { resolve(on.channel, on.id, address("192.0.2.9", 1), 10ms); });
    REQUIRE(thrown);
    CHECK(thrown->event().type() == type::route_error);
    CHECK(number(thrown->code()) == ENODEV);
}

TEST_CASE_METHOD(unit::test, "resolve: a step that fails at once names its call, and ends it", "[resolve]") {
    fake::auto_connect();
    const std::string step = GENERATE("rdma_resolve_addr", "rdma_resolve_route");
    event_channel channel;
    const cm_id id(channel);
    const cm_id other(channel);
    const address peer("192.0.2.9", 7471);
    fake::fail(step, 1, ENETUNREACH);
    const caught failed([&] { resolve(channel, id, peer, 1s); });
    CHECK(failed.code == ENETUNREACH);
    CHECK(failed.call == step);
    if (step == "rdma_resolve_addr")
        CHECK(contains(failed.what, "rdma_resolve_addr 192.0.2.9:7471: "));
    fake::fail(step, 1, ENETUNREACH);
    std::error_code ec;
    resolve(channel, other, peer, 1s, ec);
    CHECK(number(ec) == ENETUNREACH);
    CHECK(fake::cm_events().held() == 0);
}
