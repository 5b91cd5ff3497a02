// Asynchronous events of a context.
#include "test.hpp"

#include <rdmaxx/verbs/async_event.hpp>
#include <rdmaxx/verbs/stop.hpp>

#include <array>

using namespace rdmaxx;
using namespace unit;

namespace {

using clock = std::chrono::steady_clock;

struct holder {
    async_event event;
};

struct with_qp : opened {
    with_qp() : pair(pd, qp_init_attr(cq)) {}
    void push(async_event_type type) { fake::push_async_event(pair.native_handle(), static_cast<int>(type)); }
    rdmaxx::qp pair;
};

} // namespace

TEST_CASE_METHOD(unit::test, "async_event: each type is acked once, and shows the one object that it has", "[async]") {
    with_qp on;
    ibv_srq_init_attr init{};
    init.attr = {8, 1, 0};
    ibv_srq* srq = ::ibv_create_srq(on.pd.native_handle(), &init);
    REQUIRE(srq != nullptr);
    for (const int t : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 99}) {
        CAPTURE(t);
        const auto type = static_cast<async_event_type>(t);
        const bool of_cq = t == IBV_EVENT_CQ_ERR;
        const bool of_srq = t == IBV_EVENT_SRQ_ERR || t == IBV_EVENT_SRQ_LIMIT_REACHED;
        const bool of_qp = (t >= 1 && t <= 7) || t == IBV_EVENT_QP_LAST_WQE_REACHED;
        const bool of_port = (t >= 9 && t <= 13) || t == 17 || t == 18 || t == 20;
        if (of_cq)
            fake::push_async_event(on.cq.native_handle(), t);
        else if (of_srq)
            fake::push_async_event(srq, t);
        else if (of_qp)
            fake::push_async_event(on.pair.native_handle(), t);
        else
            fake::push_async_event(on.device.native_handle(), 1, t);
        CHECK_THROWS_AS(
            [&] {
                const async_event event = get_async_event(on.device);
                CHECK(event.type() == type);
                CHECK(event.cq() == (of_cq ? cq_ref(on.cq) : cq_ref()));
                CHECK(event.qp() == (of_qp ? qp_ref(on.pair) : qp_ref()));
                CHECK(event.srq() == (of_srq ? srq_ref(srq) : srq_ref()));
                CHECK(event.port_num() == (of_port ? 1 : 0));
                CHECK_FALSE(event.wq());
                throw std::runtime_error("the handler failed");
            }(),
            std::runtime_error);
        CHECK(fake::async_events().held() == 0);
        CHECK((std::string(to_string(type)) == "unknown") == (t == 99));
    }
    CHECK(::ibv_destroy_srq(srq) == 0);
}

TEST_CASE_METHOD(unit::test, "async_event: a visitor gets the object in its type", "[async]") {
    with_qp on;
    const srq shared(on.pd);
    const wq queue(on.pd, on.cq);
    struct {
        std::string operator()(cq_ref) const { return "cq"; }
        std::string operator()(qp_ref) const { return "qp"; }
        std::string operator()(srq_ref) const { return "srq"; }
        std::string operator()(wq_ref) const { return "wq"; }
        std::string operator()(port_number port) const { return "port " + std::to_string(port.value); }
        std::string operator()(context_ref context) const { return context ? "device" : "nothing"; }
    } const name;
    fake::push_async_event(on.cq.native_handle(), IBV_EVENT_CQ_ERR);
    on.push(async_event_type::comm_est);
    fake::push_async_event(shared.native_handle(), IBV_EVENT_SRQ_LIMIT_REACHED);
    fake::push_async_event(queue.native_handle(), IBV_EVENT_WQ_FATAL);
    fake::push_async_event(on.device.native_handle(), 1, 20); // device_speed_change
    fake::push_async_event(on.device.native_handle(), 1, IBV_EVENT_DEVICE_FATAL);
    for (const char* expected : {"cq", "qp", "srq", "wq", "port 1", "device"}) {
        const async_event event = get_async_event(on.device);
        CHECK(event.visit(name) == expected);
        CHECK(event.context() == on.device);
        CHECK((event.wq() == queue) == (std::string(expected) == "wq"));
    }
    CHECK(async_event().visit(name) == "nothing");
}

TEST_CASE_METHOD(unit::test, "async_event: a work queue waits for the acks of its events", "[async]") {
    with_qp on;
    wq queue(on.pd, on.cq);
    fake::push_async_event(queue.native_handle(), IBV_EVENT_WQ_FATAL);
    std::optional<async_event> event(get_async_event(on.device));
    hang_report_after(20ms);
    on_hang([&] {
        event.reset();
        return hang_action::keep_waiting;
    });
    queue.close();
    const auto reports = take_hang_reports();
    REQUIRE(reports.size() == 1);
    CHECK(std::string(reports[0].call) == "ibv_destroy_wq");
    CHECK(std::string(reports[0].events[0].type) == "wq_fatal");
}

TEST_CASE_METHOD(unit::test, "async_event: moves and early acks keep it at one ack", "[async]") {
    with_qp on;
    on.push(async_event_type::comm_est);
    holder a{get_async_event(on.device)};
    holder b{std::move(a.event)};
    CHECK_FALSE(a.event);
    CHECK(a.event.type() == async_event_type::none);
    CHECK_FALSE(a.event.qp());
    async_event& same = b.event;
    b.event = std::move(same);
    CHECK(b.event.qp() == on.pair);
    std::move(b.event).ack();
    CHECK_FALSE(b.event);
    std::move(b.event).ack();
    CHECK(fake::calls("ibv_ack_async_event") == 1);
}

TEST_CASE_METHOD(unit::test, "async_event: every get", "[async]") {
    with_qp on;
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK_FALSE(try_get_async_event(on.device));
    CHECK_FALSE(try_get_async_event(on.device, ec));
    CHECK(!ec);
    const auto start = clock::now();
    CHECK_FALSE(get_async_event_for(on.device, 20ms));
    CHECK(elapsed(start) >= 20ms);
    CHECK_FALSE(get_async_event_for(on.device, -1s, ec));
    CHECK_FALSE(get_async_event_until(on.device, clock::now() - 1s));
    CHECK_FALSE(get_async_event_until(on.device, clock::now(), ec));
    CHECK(!ec);
    const auto gives = [&](auto get) {
        on.push(async_event_type::comm_est);
        fake::fail("ibv_get_async_event", 1, EINTR);
        const async_event event = get();
        CHECK(event.type() == async_event_type::comm_est);
    };
    gives([&] { return get_async_event(on.device); });
    gives([&] { return get_async_event(on.device, ec); });
    gives([&] { return try_get_async_event(on.device); });
    gives([&] { return try_get_async_event(on.device, ec); });
    gives([&] { return get_async_event_for(on.device, 5s); });
    gives([&] { return get_async_event_for(on.device, 5s, ec); });
    gives([&] { return get_async_event_until(on.device, clock::now() + 5s); });
    gives([&] { return get_async_event_until(on.device, clock::now() + 5s, ec); });
    CHECK(!ec);
    fake::fail("ibv_get_async_event", 1, ENODEV);
    const caught failed([&] { static_cast<void>(get_async_event(on.device)); });
    CHECK(failed.code == ENODEV);
    CHECK(failed.call == "ibv_get_async_event");
}

TEST_CASE_METHOD(unit::test, "async_event: no get loses an event to ENOMEM", "[async]") {
    with_qp on;
    on.push(async_event_type::qp_fatal);
    {
        const failing_allocation fails(1);
        CHECK(caught([&] { static_cast<void>(try_get_async_event(on.device)); }).code == ENOMEM);
    }
    CHECK(try_get_async_event(on.device).type() == async_event_type::qp_fatal);
}

TEST_CASE_METHOD(unit::test, "async_event: the end of its object waits for it, and says so", "[async]") {
    const std::string what = GENERATE("ibv_destroy_qp", "ibv_destroy_cq");
    with_qp on;
    if (what == "ibv_destroy_qp")
        on.push(async_event_type::qp_fatal);
    else
        fake::push_async_event(on.cq.native_handle(), IBV_EVENT_CQ_ERR);
    std::optional<async_event> event(get_async_event(on.device));
    hang_report_after(1ms);
    on_hang([&] {
        event.reset();
        return hang_action::keep_waiting;
    });
    on.pair.close();
    on.cq.close();
    const auto reports = take_hang_reports();
    REQUIRE(reports.size() == 1);
    CHECK(std::string(reports[0].call) == what);
    CHECK(reports[0].events[0].this_thread);
}

TEST_CASE_METHOD(unit::test, "async_event: acked before the lock that the destroyer holds is taken, nothing waits",
                 "[async]") {
    with_qp on;
    on.push(async_event_type::qp_fatal);
    std::mutex lock;
    gate got;
    worker handler([&] {
        async_event event = get_async_event(on.device);
        const async_event_type type = event.type(); // what is needed, copied
        std::move(event).ack();
        got.open();
        const std::lock_guard guard(lock);
        CHECK(type == async_event_type::qp_fatal);
    });
    {
        const std::lock_guard guard(lock);
        got.wait();
        on.pair.close();
    }
    handler.join();
}

TEST_CASE_METHOD(unit::test, "async_event: keeps the context that it came from", "[async]") {
    std::optional<async_event> event;
    {
        const device_list devices;
        context device(devices.front());
        fake::push_async_event(device.native_handle(), 1, IBV_EVENT_PORT_ERR);
        event.emplace(get_async_event(device));
    }
    CHECK(fake::calls("ibv_close_device") == 0);
    event.reset();
    CHECK(fake::in_order({"ibv_ack_async_event", "ibv_close_device"}));
}

TEST_CASE_METHOD(unit::test, "async_event: of a context that librdmacm keeps", "[async]") {
    bound_id on;
    context device(on.id);
    CHECK_FALSE(try_get_async_event(device)); // though its descriptor blocks
    const cq queue(device, 8);
    const qp_ref pair = on.id.create_qp(qp_init_attr(queue));
    fake::push_async_event(pair.native_handle(), IBV_EVENT_COMM_EST);
    std::optional<async_event> event(get_async_event(device));
    CHECK(event->qp() == on.id.qp());
    event.reset();
    CHECK_FALSE(get_async_event_for(device, 10ms));
}

#if RDMAXX_HAS_STOP_TOKEN
TEST_CASE_METHOD(unit::test, "async_event: a stop token ends a get, and an event that is there is preferred", "[async]") {
    with_qp on;
    std::error_code ec = std::make_error_code(std::errc::io_error);
    on.push(async_event_type::comm_est);
    CHECK(get_async_event(on.device, std::stop_token()).qp() == on.pair);
    on.push(async_event_type::sq_drained);
    CHECK(get_async_event(on.device, std::stop_token(), ec).type() == async_event_type::sq_drained);
    CHECK(!ec);
    std::stop_source stop;
    std::thread stopping([&] {
        std::this_thread::sleep_for(20ms);
        stop.request_stop();
    });
    CHECK_FALSE(get_async_event(on.device, stop.get_token()));
    stopping.join();
    CHECK_FALSE(get_async_event(on.device, stop.get_token(), ec));
    CHECK(!ec);
    on.push(async_event_type::path_mig);
    CHECK(get_async_event(on.device, stop.get_token()).type() == async_event_type::path_mig);
    fake::fail("ibv_get_async_event", 1, EIO);
    const caught failed([&] { static_cast<void>(get_async_event(on.device, stop.get_token())); });
    CHECK(failed.code == EIO);
    CHECK(failed.call == "ibv_get_async_event");
    CHECK(fake::async_events().held() == 0);
}
#endif
