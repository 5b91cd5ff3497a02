// Asynchronous events of a context.
#include "test.hpp"

#include <rdmaxx/verbs/async_event.hpp>
#include <rdmaxx/verbs/stop.hpp>

#include <array>
#include <type_traits>
#include <vector>

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
        const bool of_port = (t >= 9 && t <= 13) || t == 17 || t == 18;
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
    fake::push_async_event(on.device.native_handle(), 1, IBV_EVENT_GID_CHANGE);
    fake::push_async_event(on.device.native_handle(), 0, 20); // device_speed_change: of any of its ports
    fake::push_async_event(on.device.native_handle(), 1, IBV_EVENT_DEVICE_FATAL);
    for (const char* expected : {"cq", "qp", "srq", "wq", "port 1", "device", "device"}) {
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

namespace {

/// Ends an object, and when C has freed it and its owner does not know yet, makes others until one has its address (as
/// malloc likes to give), and gets an event of that one.
template <class Raw, class End, class Make>
async_event_type event_of_next(context& device, const std::string& c_destroy, Raw* address, async_event_type type,
                               End end, Make make) {
    async_event_type seen = async_event_type::none;
    fake::set().reuse_addresses = true;
    fake::after(c_destroy, [&] {
        for (int tries = 0; tries < 100; ++tries) {
            Raw* made = make();
            if (made != address)
                continue;
            fake::push_async_event(made, static_cast<int>(type));
            seen = try_get_async_event(device).type();
            return;
        }
    });
    end();
    fake::after(c_destroy, [] {});
    return seen;
}

} // namespace

TEST_CASE_METHOD(unit::test, "async_event: an object at the address of one that goes gets its own events", "[async]") {
    with_qp on;
    const auto next = [&](auto& old, auto make, const char* c_destroy, async_event_type type) {
        std::vector<std::remove_reference_t<decltype(old)>> made;
        CHECK(event_of_next(
                  on.device, c_destroy, old.native_handle(), type, [&] { old.close(); },
                  [&] { return made.emplace_back(make()).native_handle(); }) == type);
    };
    SECTION("a queue pair") {
        const auto make = [&] {
            return qp(on.pd, qp_init_attr(on.cq));
        };
        next(on.pair, make, "ibv_destroy_qp", async_event_type::qp_fatal);
    }
    SECTION("a CQ") {
        const auto make = [&] {
            return cq(on.device, 8);
        };
        cq old = make();
        next(old, make, "ibv_destroy_cq", async_event_type::cq_err);
    }
    SECTION("a shared receive queue") {
        const auto make = [&] {
            return srq(on.pd);
        };
        srq old = make();
        next(old, make, "ibv_destroy_srq", async_event_type::srq_limit_reached);
    }
    SECTION("a work queue") {
        const auto make = [&] {
            return wq(on.pd, on.cq);
        };
        wq old = make();
        next(old, make, "ibv_destroy_wq", async_event_type::wq_fatal);
    }
}

TEST_CASE_METHOD(unit::test, "async_event: a queue of an id, at the address of one that goes, gets its own events",
                 "[async]") {
    bound_id on;
    context device(on.id);
    const pd domain(device);
    const cq queue(device, 8);
    std::vector<cm_id> others;
    const auto other = [&]() -> cm_id& {
        cm_id& id = others.emplace_back(on.channel);
        id.bind_addr(address("192.0.2.1", 0));
        return id;
    };
    SECTION("a queue pair") {
        const bool extended = GENERATE(false, true);
        const auto make = [&](cm_id& id) {
            return (extended ? id.create_qp_ex(domain, qp_init_attr_ex(qp_init_attr(queue)))
                             : id.create_qp(domain, qp_init_attr(queue)))
                .native_handle();
        };
        ibv_qp* old = make(on.id);
        CHECK(event_of_next(
                  device, "ibv_destroy_qp", old, async_event_type::qp_fatal, [&] { on.id.destroy_qp(); },
                  [&] { return make(other()); }) == async_event_type::qp_fatal);
    }
    SECTION("a shared receive queue") {
        const auto make = [&](cm_id& id) {
            return id.create_srq(domain, srq_init_attr()).native_handle();
        };
        ibv_srq* old = make(on.id);
        CHECK(event_of_next(
                  device, "ibv_destroy_srq", old, async_event_type::srq_limit_reached, [&] { on.id.destroy_srq(); },
                  [&] { return make(other()); }) == async_event_type::srq_limit_reached);
    }
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
TEST_CASE_METHOD(unit::test, "async_event: a stop token ends a get, and an event that is there is preferred",
                 "[async]") {
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

// ---------------------------------------------------------------- for people

TEST_CASE_METHOD(unit::test, "async_event: as text names the device, the object, and what it means", "[async]") {
    with_qp on;
    const srq shared(on.pd);
    const wq queue(on.pd, on.cq);
    const auto text = [&](auto* raw, int type) {
        fake::push_async_event(raw, type);
        return get_async_event(on.device).to_string();
    };
    const auto of_device = [&](int type) {
        fake::push_async_event(on.device.native_handle(), 1, type);
        return get_async_event(on.device).to_string();
    };
    const auto address = [](const void* object) {
        char digits[32];
        std::snprintf(digits, sizeof digits, "(%p)", object);
        return std::string(digits);
    };
    const std::string number = std::to_string(on.pair.qp_num());
    CHECK(text(on.cq.native_handle(), IBV_EVENT_CQ_ERR) ==
          "fake0: cq_err of a CQ of 256 " + address(on.cq.native_handle()) +
              ": it overran, and completions are lost: it needs room for all that can be outstanding on it");
    CHECK(text(on.pair.native_handle(), IBV_EVENT_QP_ACCESS_ERR) ==
          "fake0: qp_access_err of queue pair " + number + ": the peer accessed memory that it may not");
    CHECK(text(shared.native_handle(), IBV_EVENT_SRQ_LIMIT_REACHED) ==
          "fake0: srq_limit_reached of a shared receive queue " + address(shared.native_handle()) +
              ": fewer receives are posted than its limit says");
    CHECK(text(queue.native_handle(), IBV_EVENT_WQ_FATAL) ==
          "fake0: wq_fatal of work queue " + std::to_string(queue.native_handle()->wq_num) +
              ": the device failed it, and moved it to the error state");
    CHECK(of_device(IBV_EVENT_PORT_ERR) == "fake0: port_err of port 1"); // the name says all
    CHECK(of_device(IBV_EVENT_DEVICE_FATAL) ==
          "fake0: device_fatal: the device failed: everything made from it is to be closed");
    CHECK(of_device(99) == "fake0: unknown 99");
    CHECK(async_event().to_string() == "none");
    // Whatever happens to a queue is explained.
    for (int type = IBV_EVENT_CQ_ERR; type <= IBV_EVENT_PATH_MIG_ERR; ++type) {
        CAPTURE(type);
        if (type != IBV_EVENT_CQ_ERR)
            CHECK(contains(text(on.pair.native_handle(), type), "of queue pair " + number + ": "));
    }
    CHECK(contains(text(on.pair.native_handle(), IBV_EVENT_QP_LAST_WQE_REACHED), number + ": it takes no more"));
    CHECK(contains(text(shared.native_handle(), IBV_EVENT_SRQ_ERR), "): it failed"));
}

TEST_CASE_METHOD(unit::test, "log_async_events: a line for each event that is there, and each is acked", "[async]") {
    with_qp on;
    std::vector<std::string> lines;
    const auto keep = [&](const std::string& line) {
        lines.push_back(line);
    };
    CHECK(log_async_events(on.device, keep) == 0); // and does not block
    fake::push_async_event(on.cq.native_handle(), IBV_EVENT_CQ_ERR);
    on.push(async_event_type::qp_fatal);
    fake::fail("ibv_get_async_event", 1, EINTR);
    CHECK(log_async_events(on.device, keep) == 2);
    REQUIRE(lines.size() == 2);
    CHECK(contains(lines[0], "cq_err"));
    CHECK(contains(lines[0], "overran"));
    CHECK(contains(lines[1], "qp_fatal"));
    CHECK(fake::async_events().acked == 2);

    std::error_code ec = std::make_error_code(std::errc::io_error);
    on.push(async_event_type::comm_est);
    CHECK(log_async_events(on.device, keep, ec) == 1);
    CHECK(!ec);
    CHECK(fake::async_events().held() == 0);

    fake::fail("ibv_get_async_event", 2, ENODEV);
    on.push(async_event_type::comm_est);
    CHECK(log_async_events(on.device, keep, ec) == 1);
    CHECK(number(ec) == ENODEV);
    fake::fail("ibv_get_async_event", 1, EIO);
    CHECK(caught([&] { log_async_events(on.device, keep); }).call == "ibv_get_async_event");
}

TEST_CASE_METHOD(unit::test, "log_async_events: on stderr, where no other place is given", "[async]") {
    with_qp on;
    std::error_code ec;
    on.push(async_event_type::sq_drained);
    const std::string number = std::to_string(on.pair.qp_num());
    const std::string line =
        "rdmaxx: fake0: sq_drained of queue pair " + number + ": the sends that were begun have completed\n";
    CHECK(captured_stderr([&] { CHECK(log_async_events(on.device) == 1); }) == line);
    CHECK(captured_stderr([&] { CHECK(log_async_events(on.device, ec) == 0); }).empty());
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "log_async_events: its sink may end what the event was about, and may throw", "[async]") {
    with_qp on;
    on.push(async_event_type::qp_fatal);
    log_async_events(on.device, [&](const std::string&) { on.pair.close(); }); // would wait for the ack
    CHECK(fake::calls("ibv_destroy_qp") == 1);
    fake::push_async_event(on.cq.native_handle(), IBV_EVENT_CQ_ERR);
    fake::push_async_event(on.device.native_handle(), 1, IBV_EVENT_PORT_ERR);
    CHECK_THROWS_AS(log_async_events(on.device, [](const std::string&) { throw std::runtime_error("disk full"); }),
                    std::runtime_error);
    CHECK(fake::async_events().held() == 0);
    CHECK(log_async_events(on.device, [](const std::string&) {}) == 1); // the other one is still there
}

TEST_CASE_METHOD(unit::test, "a CQ that overran: an event says so, and a poll that fails as well", "[async][cq]") {
    opened with;
    const cq small(with.device, 2);
    for (int i = 0; i <= small.size(); ++i)
        fake::push_success(small.native_handle(), 1, IBV_WC_SEND, 17);
    {
        const async_event event = try_get_async_event(with.device);
        CHECK(event.type() == async_event_type::cq_err);
        CHECK(event.cq() == small);
        CHECK(contains(event.to_string(), "overran"));
    }
    fake::fail("ibv_poll_cq").returning(-1);
    std::array<wc, 4> room;
    const caught broken([&] { static_cast<void>(small.poll(room)); });
    CHECK(broken.code == EIO);
    CHECK(contains(broken.what, "overrun"));
}

#if RDMAXX_HAS_STOP_TOKEN

TEST_CASE_METHOD(unit::test, "log_async_events: in a thread, until it is stopped", "[async]") {
    with_qp on;
    std::vector<std::string> lines;
    std::size_t count = 0;
    gate logged;
    {
        const std::jthread logger([&](const std::stop_token& token) {
            count = log_async_events(on.device, token, [&](const std::string& line) {
                lines.push_back(line);
                logged.open();
            });
        });
        fake::wait_for_call("ibv_get_async_event", 2); // tried twice: it sleeps
        on.push(async_event_type::qp_fatal);
        logged.wait();
        on.pair.close(); // nothing is held
    }
    CHECK(count == 1);
    REQUIRE(lines.size() == 1);
    CHECK(contains(lines[0], "qp_fatal"));

    // What is there when it is told to stop is logged first.
    fake::push_async_event(on.cq.native_handle(), IBV_EVENT_CQ_ERR);
    fake::push_async_event(on.device.native_handle(), 1, IBV_EVENT_PORT_ERR);
    std::stop_source stop;
    stop.request_stop();
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK(log_async_events(
              on.device, stop.get_token(), [](const std::string&) {}, ec) == 2);
    CHECK(!ec);
    CHECK(captured_stderr([&] {
              CHECK(log_async_events(on.device, stop.get_token()) == 0);
              CHECK(log_async_events(on.device, stop.get_token(), ec) == 0);
          }).empty());
    fake::fail("ibv_get_async_event", 1, EIO);
    CHECK(caught([&] { log_async_events(on.device, stop.get_token(), [](const std::string&) {}); }).code == EIO);
}

#endif
