// The gets of event_channel: blocking, trying, timed, stopped; several threads; signals.
#include "test.hpp"

#include <rdmaxx/cm/stop.hpp>

#include <array>
#include <atomic>
#include <csignal>

#include <poll.h>
#include <pthread.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;
using clock = std::chrono::steady_clock;

bool readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 0) == 1;
}

/// One of the gets by its name, in one of its two forms.
struct get_form {
    const char* name;
    std::function<cm_event(event_channel&)> throwing;
    std::function<cm_event(event_channel&, std::error_code&)> coded;
};

std::vector<get_form> all_forms() {
    std::vector<get_form> forms = {
        {"get_cm_event", [](event_channel& c) { return c.get_cm_event(); },
         [](event_channel& c, std::error_code& ec) {
             return c.get_cm_event(ec);
         }},
        {"try_get_cm_event", [](event_channel& c) { return c.try_get_cm_event(); },
         [](event_channel& c, std::error_code& ec) {
             return c.try_get_cm_event(ec);
         }},
        {"get_cm_event_for", [](event_channel& c) { return c.get_cm_event_for(10s); },
         [](event_channel& c, std::error_code& ec) {
             return c.get_cm_event_for(10s, ec);
         }},
        {"get_cm_event_until", [](event_channel& c) { return c.get_cm_event_until(clock::now() + 10s); },
         [](event_channel& c, std::error_code& ec) {
             return c.get_cm_event_until(clock::now() + 10s, ec);
         }},
    };
#if RDMAXX_HAS_STOP_TOKEN
    forms.push_back({"get_cm_event(stop_token)", [](event_channel& c) { return get_cm_event(c, std::stop_token()); },
                     [](event_channel& c, std::error_code& ec) {
                         return get_cm_event(c, std::stop_token(), ec);
                     }});
#endif
    return forms;
}

} // namespace

TEST_CASE_METHOD(unit::test, "event_channel: every get gives the event that is there", "[get]") {
    bound_id on;
    for (const get_form& form : all_forms()) {
        CAPTURE(form.name);
        push(on.id, type::established);
        CHECK(form.throwing(on.channel).type() == type::established);
        push(on.id, type::disconnected);
        std::error_code ec = std::make_error_code(std::errc::io_error);
        CHECK(form.coded(on.channel, ec).type() == type::disconnected);
        CHECK(!ec);
    }
}

TEST_CASE_METHOD(unit::test, "event_channel: every get reports a failure with the call's name and errno", "[get]") {
    bound_id on;
    for (const get_form& form : all_forms()) {
        CAPTURE(form.name);
        fake::fail("rdma_get_cm_event", 1, ENODEV);
        const caught failed([&] { static_cast<void>(form.throwing(on.channel)); });
        CHECK(failed.code == ENODEV);
        CHECK(failed.call == "rdma_get_cm_event");
        CHECK(contains(failed.what, "rdma_get_cm_event: "));
        fake::fail("rdma_get_cm_event", 1, EACCES);
        std::error_code ec;
        CHECK_FALSE(form.coded(on.channel, ec));
        CHECK(number(ec) == EACCES);
    }
}

TEST_CASE_METHOD(unit::test, "event_channel: every get goes on after EINTR", "[get]") {
    bound_id on;
    for (const get_form& form : all_forms()) {
        if (std::string(form.name) == "try_get_cm_event")
            continue;
        CAPTURE(form.name);
        fake::fail("rdma_get_cm_event").with(EINTR).times(3);
        push(on.id, type::established);
        CHECK(form.throwing(on.channel).type() == type::established);
        fake::forgive();
    }
}

TEST_CASE_METHOD(unit::test, "event_channel: EINTR of a try is no error either", "[get]") {
    bound_id on;
    push(on.id, type::established);
    fake::fail("rdma_get_cm_event", 1, EINTR);
    cm_event event = on.channel.try_get_cm_event();
    if (!event)
        event = on.channel.try_get_cm_event();
    CHECK(event.type() == type::established);
}

TEST_CASE_METHOD(unit::test, "event_channel: no get loses an event to ENOMEM", "[get]") {
    for (const get_form& form : all_forms()) {
        CAPTURE(form.name);
        bound_id on; // a new one: its first get needs the memory
        push(on.id, type::established);
        {
            const failing_allocation fails(1);
            const caught failed([&] { static_cast<void>(form.throwing(on.channel)); });
            CHECK(failed.code == ENOMEM);
        }
        {
            const failing_allocation fails(1);
            std::error_code ec;
            CHECK_FALSE(form.coded(on.channel, ec));
            CHECK(number(ec) == ENOMEM);
        }
        CHECK(fake::queued(on.channel.native_handle()) == 1);
        CHECK(form.throwing(on.channel).type() == type::established);
    }
}

TEST_CASE_METHOD(unit::test, "event_channel: after the first events a get allocates nothing", "[get]") {
    bound_id on;
    for (int round = 0; round < 10; ++round) {
        push(on.id, type::established);
        const failing_allocation counts(0);
        CHECK(on.channel.get_cm_event());
        CHECK(failing_allocation::seen() == (round == 0 ? 1U : 0U));
    }
}

TEST_CASE_METHOD(unit::test, "event_channel: nothing there is no error of a try", "[get]") {
    bound_id on;
    CHECK_FALSE(on.channel.try_get_cm_event());
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK_FALSE(on.channel.try_get_cm_event(ec));
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "event_channel: a wake-up without an event does not end a get", "[get]") {
    bound_id on;
    // librdmacm keeps this one to itself: the descriptor was readable, and there is nothing.
    fake::push_event({.type = RDMA_CM_EVENT_ESTABLISHED, .id = on.id.native_handle(), .swallowed = true});
    CHECK(readable(on.channel.fd()));
    CHECK_FALSE(on.channel.try_get_cm_event());
    fake::push_event({.type = RDMA_CM_EVENT_ESTABLISHED, .id = on.id.native_handle(), .swallowed = true});
    worker later([&] {
        std::this_thread::sleep_for(30ms);
        push(on.id, type::disconnected);
    });
    CHECK(on.channel.get_cm_event().type() == type::disconnected);
}

TEST_CASE_METHOD(unit::test, "event_channel: the descriptor is readable as long as events are there", "[get]") {
    bound_id on;
    CHECK_FALSE(readable(on.channel.fd()));
    push(on.id, type::established);
    fake::push_event({.type = 99, .id = on.id.native_handle()}); // of a kind that the program ignores
    CHECK(readable(on.channel.fd()));
    while (const cm_event event = on.channel.try_get_cm_event())
        continue;
    CHECK_FALSE(readable(on.channel.fd()));
    CHECK(fake::queued(on.channel.native_handle()) == 0);
    CHECK(fake::cm_events().held() == 0);
}

// ---------------------------------------------------------------- time

TEST_CASE_METHOD(unit::test, "event_channel: no time, or negative time, is a try", "[get]") {
    bound_id on;
    const auto start = clock::now();
    CHECK_FALSE(on.channel.get_cm_event_for(0s));
    CHECK_FALSE(on.channel.get_cm_event_for(-5s));
    CHECK_FALSE(on.channel.get_cm_event_for(std::chrono::hours::min()));
    CHECK_FALSE(on.channel.get_cm_event_for(std::chrono::duration<double>(-1.5)));
    CHECK_FALSE(on.channel.get_cm_event_until(clock::now() - 1h));
    CHECK_FALSE(on.channel.get_cm_event_until(std::chrono::system_clock::time_point()));
    CHECK_FALSE(on.channel.get_cm_event_until(clock::time_point::min()));
    CHECK_FALSE(on.channel.get_cm_event_until(std::chrono::system_clock::time_point::min()));
    CHECK_FALSE(on.channel.get_cm_event_until(std::chrono::sys_days::min()));
    CHECK(elapsed(start) < 4s);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK_FALSE(on.channel.get_cm_event_for(0s, ec));
    CHECK(!ec);
    CHECK_FALSE(on.channel.get_cm_event_until(clock::now(), ec));
    CHECK(!ec);
    push(on.id, type::established);
    CHECK(on.channel.get_cm_event_for(-1s)); // an event that is there is given all the same
}

TEST_CASE_METHOD(unit::test, "event_channel: a timed get waits for its time, not less", "[get]") {
    bound_id on;
    const auto lasts = [&](auto get) {
        const auto start = clock::now();
        CHECK_FALSE(get());
        return std::chrono::duration<double, std::milli>(clock::now() - start).count();
    };
    CHECK(lasts([&] { return on.channel.get_cm_event_for(20ms); }) >= 20);
    CHECK(lasts([&] { return on.channel.get_cm_event_for(std::chrono::duration<float>(0.02F)); }) >= 19.9);
    CHECK(lasts([&] { return on.channel.get_cm_event_for(20500us); }) >= 20.5);
    CHECK(lasts([&] { return on.channel.get_cm_event_for(1ns); }) < 1000);
    CHECK(lasts([&] { return on.channel.get_cm_event_until(clock::now() + 20ms); }) >= 19.9);
    CHECK(lasts([&] { return on.channel.get_cm_event_until(std::chrono::system_clock::now() + 20ms); }) >= 19);
}

TEST_CASE_METHOD(unit::test, "event_channel: the longest durations wait, and do not overflow", "[get]") {
    bound_id on;
    const auto forever = GENERATE(0, 1, 2, 3, 4, 5, 6, 7, 8);
    worker later([&] {
        std::this_thread::sleep_for(30ms);
        push(on.id, type::established);
    });
    cm_event event;
    if (forever == 0)
        event = on.channel.get_cm_event_for(std::chrono::hours::max());
    else if (forever == 1)
        event = on.channel.get_cm_event_for(std::chrono::nanoseconds::max());
    else if (forever == 2)
        event = on.channel.get_cm_event_for(std::chrono::duration<double>(1e300));
    else if (forever == 3)
        event = on.channel.get_cm_event_until(clock::time_point::max());
    else if (forever == 4) // coarser than its clock, which cannot say them
        event = on.channel.get_cm_event_until(std::chrono::sys_seconds::max());
    else if (forever == 5)
        event = on.channel.get_cm_event_until(std::chrono::sys_days::max());
    else if (forever == 6)
        event = on.channel.get_cm_event_until(std::chrono::sys_days(std::chrono::year(2500) / 1 / 1));
    else if (forever == 7)
        event = on.channel.get_cm_event_until(std::chrono::sys_days(std::chrono::year(2300) / 1 / 1));
    else
        event = on.channel.get_cm_event_until(std::chrono::time_point<clock, std::chrono::hours>::max());
    CHECK(event.type() == type::established);
}

namespace {

/// A clock of a program's own, which has nothing to do with <chrono>.
struct ticks {
    using period = std::ratio<1, 100>;
    long value;
    [[nodiscard]] long count() const { return value; }
};
struct own_clock {
    struct time_point {
        using clock = own_clock;
        long at;
        friend ticks operator-(time_point a, time_point b) { return {a.at - b.at}; }
    };
    static time_point now() {
        const auto since = clock::now().time_since_epoch();
        return {std::chrono::duration_cast<std::chrono::duration<long, std::centi>>(since).count()};
    }
};

} // namespace

TEST_CASE_METHOD(unit::test, "event_channel: durations and clocks need not be std::chrono's", "[get]") {
    bound_id on;
    const auto start = clock::now();
    CHECK_FALSE(on.channel.get_cm_event_for(ticks{3}));
    CHECK(elapsed(start) >= 30ms);
    CHECK_FALSE(on.channel.get_cm_event_until(own_clock::time_point{own_clock::now().at + 3}));
    CHECK(elapsed(start) >= 50ms);
}

// ---------------------------------------------------------------- threads and signals

TEST_CASE_METHOD(unit::test, "event_channel: several getters get each event once", "[get]") {
    constexpr std::size_t count = 400;
    bound_id on;
    std::array<std::atomic<int>, count> seen{};
    std::atomic<std::size_t> total = 0;
    {
        std::vector<worker> getters;
        for (int i = 0; i < 3; ++i)
            getters.emplace_back([&, i] {
                while (total < count) {
                    // Three ways to get at once.
                    cm_event event = i == 0   ? on.channel.get_cm_event_for(20ms)
                                     : i == 1 ? on.channel.try_get_cm_event()
                                              : on.channel.get_cm_event_until(clock::now() + 20ms);
                    if (!event)
                        continue;
                    ++seen[static_cast<std::size_t>(event.status())];
                    ++total;
                }
            });
        for (std::size_t i = 0; i < count; ++i)
            push(on.id, type::user, static_cast<int>(i));
    }
    CHECK(total == count);
    for (const auto& times : seen)
        REQUIRE(times == 1);
    CHECK(fake::cm_events().acked == count);
}

TEST_CASE_METHOD(unit::test, "event_channel: an event may be acked by another thread than its getter", "[get]") {
    bound_id on;
    for (int i = 0; i < 50; ++i)
        push(on.id, type::established);
    std::vector<cm_event> events;
    worker getter([&] {
        while (cm_event event = on.channel.try_get_cm_event())
            events.push_back(std::move(event));
    });
    getter.join();
    worker acker([taken = std::move(events)]() mutable { taken.clear(); });
    acker.join();
    CHECK(fake::cm_events().acked == 50);
}

TEST_CASE_METHOD(unit::test, "event_channel: a signal does not end a get", "[get]") {
    static std::atomic<int> signals;
    signals = 0;
    struct sigaction action {};
    action.sa_handler = [](int) {
        ++signals;
    };
    struct sigaction before {};
    ::sigaction(SIGUSR1, &action, &before); // without SA_RESTART
    bound_id on;
    type got = type::none;
    gate started;
    worker getter([&] {
        started.open();
        got = on.channel.get_cm_event().type();
    });
    started.wait();
    for (int i = 0; i < 10; ++i) {
        std::this_thread::sleep_for(2ms);
        ::pthread_kill(getter.native_handle(), SIGUSR1);
    }
    CHECK(fake::cm_events().got == 0);
    push(on.id, type::established);
    getter.join();
    CHECK(got == type::established);
    CHECK(signals > 0);
    ::sigaction(SIGUSR1, &before, nullptr);
}

// ---------------------------------------------------------------- stop tokens

#if RDMAXX_HAS_STOP_TOKEN

TEST_CASE_METHOD(unit::test, "event_channel: a get is empty, and no error, when its token stops", "[get]") {
    bound_id on;
    std::stop_source stop;
    SECTION("before") {
        stop.request_stop();
        CHECK_FALSE(get_cm_event(on.channel, stop.get_token()));
        std::error_code ec = std::make_error_code(std::errc::io_error);
        CHECK_FALSE(get_cm_event(on.channel, stop.get_token(), ec));
        CHECK(!ec);
    }
    SECTION("while it waits") {
        const auto start = clock::now();
        worker later([&] {
            std::this_thread::sleep_for(30ms);
            stop.request_stop();
        });
        CHECK_FALSE(get_cm_event(on.channel, stop.get_token()));
        CHECK(elapsed(start) >= 25ms);
        CHECK(elapsed(start) < 5s);
    }
    SECTION("an event that is there is preferred") {
        stop.request_stop();
        push(on.id, type::established);
        CHECK(get_cm_event(on.channel, stop.get_token()).type() == type::established);
    }
}

TEST_CASE_METHOD(unit::test, "event_channel: a get with a token waits for the event", "[get]") {
    bound_id on;
    std::stop_source stop;
    worker later([&] {
        std::this_thread::sleep_for(20ms);
        push(on.id, type::established);
    });
    CHECK(get_cm_event(on.channel, stop.get_token()).type() == type::established);
}

TEST_CASE_METHOD(unit::test, "event_channel: a thread that gets with a token can be joined soon", "[get]") {
    bound_id on;
    const auto start = clock::now();
    {
        const std::jthread getter([&](const std::stop_token& token) {
            while (const cm_event event = get_cm_event(on.channel, token))
                continue;
        });
        std::this_thread::sleep_for(10ms);
    }
    CHECK(elapsed(start) < 5s);
}

#endif
