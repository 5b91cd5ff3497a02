// Synchronous ids: librdmacm owns their event, and takes any event for the answer.
#include "test.hpp"

#include <rdmaxx/cm/sync_id.hpp>

#include <atomic>

#include <rdma/rdma_cma.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;

void push_to(const sync_id& id, type t, int status = 0) {
    fake::push_event({.type = static_cast<int>(t), .id = id.native_handle(), .status = status});
}

/// What queue pairs of ids are made from: of the device as librdmacm has it open.
struct queues {
    queues() {
        const bound_id bound;
        device = context(bound.id);
        domain = pd(device);
        completions = cq(device, 64);
    }

    context device;
    pd domain;
    cq completions;
};

/// A listener, and requests that the test pushes.
struct sync_listener {
    sync_listener() {
        id.bind_addr(connection::address());
        id.listen();
    }
    void push_request() const {
        fake::push_event({.type = RDMA_CM_EVENT_CONNECT_REQUEST, .listen_id = id.native_handle()});
    }

    sync_id id;
};

} // namespace

TEST_CASE_METHOD(unit::test, "sync_id: a call returns when its answer is there, and not before", "[sync]") {
    sync_id id;
    std::atomic<bool> returned = false;
    worker resolving([&] {
        id.resolve_addr(connection::address(), 1s);
        returned = true;
    });
    REQUIRE(fake::wait_for_call("rdma_resolve_addr"));
    std::this_thread::sleep_for(20ms);
    CHECK_FALSE(returned);
    push_to(id, type::addr_resolved);
    resolving.join();
    CHECK(returned);
    CHECK(id.last_event().type() == type::addr_resolved);
}

TEST_CASE_METHOD(unit::test, "sync_id: another event than the answer is EPROTO, though its status is 0", "[sync]") {
    sync_id id;
    id.bind_addr(connection::address());
    for (const type other : {type::route_resolved, type::disconnected, type::established, type::device_removal,
                             type::addr_change, type::timewait_exit}) {
        CAPTURE(to_string(other));
        push_to(id, other);
        const caught failed([&] { id.resolve_addr(connection::address(), 1s); });
        CHECK(failed.code == EPROTO);
        CHECK(failed.call == "rdma_resolve_addr");
        CHECK(contains(failed.what, "another event came"));
        CHECK(id.last_event().type() == other);
    }
    // And the next call goes on from there.
    push_to(id, type::addr_resolved);
    std::error_code ec;
    id.resolve_addr(connection::address(), 1s, ec);
    CHECK(!ec);
    push_to(id, type::disconnected);
    id.resolve_route(1s, ec);
    CHECK(number(ec) == EPROTO);
    push_to(id, type::disconnected); // where established was expected
    id.connect({.qp_num = 17}, ec);
    CHECK(number(ec) == EPROTO);
    CHECK(id.last_event().type() == type::disconnected);
}

TEST_CASE_METHOD(unit::test, "sync_id: an event that fails is the call's error, with its own reason", "[sync]") {
    sync_id id;
    id.bind_addr(connection::address());
    std::error_code ec;
    push_to(id, type::addr_error, -ETIMEDOUT);
    id.resolve_addr(connection::address(), 1s, ec);
    CHECK(number(ec) == ETIMEDOUT);
    push_to(id, type::rejected, 28);
    id.connect({.qp_num = 17}, ec);
    CHECK(ec == std::error_code(28, reject_category()));
    push_to(id, type::unreachable, -EHOSTUNREACH);
    id.connect({.qp_num = 17}, ec);
    CHECK(number(ec) == EHOSTUNREACH);
}

TEST_CASE_METHOD(unit::test, "sync_id: listener and child end in any order, and the child's event is acked once",
                 "[sync]") {
    sync_listener listener;
    listener.push_request();
    sync_id child = listener.id.get_request();
    CHECK(child.last_event().type() == type::connect_request);
    if (GENERATE(false, true)) {
        child = sync_id(nullptr);
        CHECK(fake::calls("rdma_destroy_id") == 1);
    }
    listener.id = sync_id(nullptr);
    child = sync_id(nullptr);
    CHECK(fake::successes("rdma_destroy_id") == 2);
    CHECK(fake::cm_events().got == 1);
    CHECK(fake::cm_events().acked == 1);
}

TEST_CASE_METHOD(unit::test, "sync_id: a child that was answered or has moved keeps its listener no longer", "[sync]") {
    sync_listener listener;
    listener.push_request();
    sync_id child = listener.id.get_request();
    const rdma_cm_id* const raw = listener.id.native_handle();
    SECTION("accepted") {
        push_to(child, type::established);
        child.accept({.qp_num = 7});
        listener.id = sync_id(nullptr);
        CHECK_FALSE(fake::alive(raw));
    }
    SECTION("migrated") {
        const event_channel channel;
        const cm_id asynchronous = std::move(child).migrate(channel);
        listener.id = sync_id(nullptr);
        CHECK_FALSE(fake::alive(raw));
        CHECK(asynchronous);
    }
    SECTION("rejected: the event is held on, and the listener with it") {
        child.reject();
        listener.id = sync_id(nullptr);
        CHECK(fake::alive(raw));
        child = sync_id(nullptr);
        CHECK_FALSE(fake::alive(raw));
    }
}

TEST_CASE_METHOD(unit::test, "sync_id: a child whose queue pair cannot be made is destroyed, and the listener goes on",
                 "[sync]") {
    const queues with;
    const rdmaxx::addrinfo here("192.0.2.1", "7471", {.flags = addrinfo_flags::passive | addrinfo_flags::numeric_host});
    sync_id listener = sync_id::create_ep(here.front(), with.domain, qp_init_attr(with.completions, 4));
    listener.listen();
    const auto push_request = [&] {
        fake::push_event({.type = RDMA_CM_EVENT_CONNECT_REQUEST, .listen_id = listener.native_handle()});
    };
    fake::clear_log();
    for (int i = 0; i < 3; ++i) {
        push_request();
        fake::fail("rdma_create_qp").with(ENOMEM);
        std::error_code ec;
        CHECK_FALSE(listener.get_request(ec));
        CHECK(number(ec) == ENOMEM);
    }
    CHECK(fake::calls("rdma_destroy_id") == 3);
    push_request();
    const sync_id child = listener.get_request();
    CHECK(child.qp());
}

TEST_CASE_METHOD(unit::test, "sync_id: an endpoint and its children keep their queues, and end by their twins",
                 "[sync]") {
    std::optional<queues> with(std::in_place);
    const rdmaxx::addrinfo here("192.0.2.1", "7471", {.flags = addrinfo_flags::passive | addrinfo_flags::numeric_host});
    sync_id listener = sync_id::create_ep(here.front(), with->domain, qp_init_attr(with->completions, 4));
    listener.listen();
    const ibv_pd* const domain = with->domain.native_handle();
    with.reset();
    fake::push_event({.type = RDMA_CM_EVENT_CONNECT_REQUEST, .listen_id = listener.native_handle()});
    sync_id child = listener.get_request();
    CHECK(child.qp());
    listener = sync_id(nullptr);
    CHECK(fake::calls("ibv_destroy_cq") == 0); // the child's queue pair uses it
    child = sync_id(nullptr);
    CHECK(fake::calls("rdma_destroy_ep") == 1); // of the listener
    CHECK(fake::in_order({"rdma_destroy_id", "rdma_destroy_ep"}));
    CHECK(fake::successes("ibv_destroy_cq") == 1);
    CHECK_FALSE(fake::alive(domain));
}

TEST_CASE_METHOD(unit::test, "sync_id: what an id is and keeps goes along to a channel and back", "[sync][migrate]") {
    fake::auto_connect();
    event_channel channel;
    cm_id listener(channel);
    listener.bind_addr(connection::address());
    listener.listen();
    sync_id id;
    id.resolve_addr(connection::address(), 1s);
    id.resolve_route(1s);
    {
        const context device(id);
        const cq queue(device, 8);
        id.create_qp(qp_init_attr(queue, 2));
    }
    cm_id asynchronous = std::move(id).migrate(channel);
    CHECK_FALSE(id); // NOLINT(bugprone-use-after-move)
    CHECK(asynchronous.qp());
    asynchronous.connect();
    cm_id server = channel.expect(listener, type::connect_request).take_id();
    CHECK(fake::calls("ibv_destroy_cq") == 0);

    fake::fail("rdma_migrate_id").with(ENOMEM);
    std::error_code ec;
    CHECK_FALSE(sync_id::create(std::move(asynchronous), ec));
    CHECK(number(ec) == ENOMEM);
    REQUIRE(asynchronous); // NOLINT(bugprone-use-after-move): unchanged
    sync_id again(std::move(asynchronous));
    CHECK(again.qp());
    again = sync_id(nullptr);
    CHECK(fake::successes("ibv_destroy_cq") == 1);
}

#if RDMAXX_HAS_RESOLVE_ADDRINFO
TEST_CASE_METHOD(unit::test, "newer calls: an older kernel's EINVAL is explained", "[sync]") {
    const bound_id on;
    fake::fail("rdma_write_cm_event").with(EINVAL);
    const caught write([&] { on.id.write_cm_event(); });
    CHECK(write.code == EINVAL);
    CHECK(contains(write.cause, "the kernel is too old"));
    CHECK(contains(diagnose(*write.error), "the kernel is too old"));
    fake::fail("rdma_resolve_addrinfo").with(EINVAL);
    const caught resolve([&] { on.id.resolve_addrinfo("192.0.2.1", "7471"); });
    CHECK(resolve.code == EINVAL);
    CHECK(contains(resolve.cause, "the kernel is too old"));
}
#endif
