// What other threads may do meanwhile: gets against ends, makers against getters. Most telling under TSan.
#include "test.hpp"

#include <atomic>
#include <memory>
#include <random>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;
using clock = std::chrono::steady_clock;

} // namespace

// A get moves the queue pair inside the library (on the answer to a connect), without a lock shared with the end of
// the queue pair. The fake makes that wide: it has read id->qp, and sleeps.
TEST_CASE_METHOD(unit::test, "races: a get that moves the queue pair, and its end in another thread", "[races]") {
    const std::string end = GENERATE("destroy_qp", "close", "destructor", "move assignment");
    CAPTURE(end);
    requesting from;
    cm_id server;
    {
        cm_event request = from.channel.expect(from.listener, type::connect_request);
        server = request.take_id();
        server.create_qp(from.pd, from.attr);
        server.accept(); // its answer waits in the channel
    }
    gate inside;
    fake::before_id_changes([&inside, client = from.client.native_handle()](rdma_cm_id* id) {
        if (id != client)
            return;
        inside.open();
        std::this_thread::sleep_for(30ms);
    });
    worker getter([&] {
        while (cm_event event = from.channel.get_cm_event_for(200ms))
            std::move(event).ack();
    });
    inside.wait();
    if (end == "destroy_qp")
        from.client.destroy_qp();
    else if (end == "close")
        from.client.close();
    else if (end == "destructor")
        static_cast<void>(cm_id(std::move(from.client)));
    else
        from.client = cm_id(from.channel);
    getter.join();
    CHECK_FALSE((from.client && from.client.qp()));
    fake::before_id_changes(nullptr);
}

TEST_CASE_METHOD(unit::test, "races: qp() of an id while another thread ends the queue pair", "[races]") {
    requesting from;
    std::atomic<bool> stop = false;
    unsigned seen = 0;
    // The id of an event, as the getter's thread has it.
    worker reader([&, id = cm_id_ref(from.client)] {
        while (!stop)
            seen += id.qp() ? 1U : 0U;
    });
    for (int i = 0; i < 50; ++i) {
        from.client.destroy_qp();
        from.client.create_qp(from.pd, from.attr);
    }
    stop = true;
    reader.join();
    CHECK(from.client.qp());
}

namespace {

/// What a maker and the getters know of one id.
struct slot {
    std::mutex mutex;
    std::condition_variable changed;
    const void* id = nullptr;
    unsigned resolved = 0;
    bool strange = false; // an event of another id
};

struct tally {
    std::atomic<unsigned> made = 0;
    std::atomic<unsigned> waited_for = 0;
    std::atomic<unsigned> lost = 0;
    std::atomic<unsigned> strange = 0;
    std::atomic<unsigned> got = 0;
};

void make_ids(event_channel& channel, const address& peer, clock::time_point until, unsigned seed, tally& counts) {
    std::minstd_rand random(seed);
    slot own;
    while (clock::now() < until) {
        cm_id id(channel);
        ++counts.made;
        {
            const std::lock_guard lock(own.mutex);
            own.id = id.native_handle();
            own.resolved = 0;
        }
        id.set_user_context(&own);
        id.resolve_addr(peer, 1s);
        if (random() % 2 == 0)
            continue; // ends with its event on the way
        ++counts.waited_for;
        std::unique_lock lock(own.mutex);
        if (!own.changed.wait_for(lock, 10s, [&] { return own.resolved != 0; }))
            ++counts.lost;
        if (own.resolved > 1 || std::exchange(own.strange, false))
            ++counts.strange;
    }
}

void get_events(event_channel& channel, const std::atomic<bool>& stop, tally& counts) {
    while (!stop) {
        const cm_event event = channel.get_cm_event_for(10ms);
        if (!event)
            continue;
        ++counts.got;
        // The id cannot end before the event.
        auto& owner = *event.id().user_context<slot>();
        const std::lock_guard lock(owner.mutex);
        ++owner.resolved;
        owner.strange = owner.strange || owner.id != event.id().native_handle();
        owner.changed.notify_all();
    }
}

} // namespace

TEST_CASE_METHOD(unit::test, "races: no event is lost or misled between makers and getters of ids", "[races]") {
    fake::auto_connect();
    fake::set().reuse_addresses = true; // as malloc does: the address of one id is that of the next
    event_channel channel;
    tally counts;
    std::atomic<bool> stop = false;
    {
        std::vector<worker> getters;
        for (int i = 0; i < 2; ++i)
            getters.emplace_back([&] { get_events(channel, stop, counts); });
        {
            std::vector<worker> makers;
            for (unsigned i = 0; i < 3; ++i)
                makers.emplace_back(
                    [&, i] { make_ids(channel, connection::address(), clock::now() + 1s, i + 1, counts); });
        }
        stop = true;
    }
    CAPTURE(counts.made.load(), counts.waited_for.load(), counts.got.load());
    CHECK(counts.lost == 0);
    CHECK(counts.strange == 0);
    CHECK(counts.waited_for > 0);
    CHECK(counts.got >= counts.waited_for);
    CHECK(fake::cm_events().held() == 0);
}

TEST_CASE_METHOD(unit::test, "races: requests taken, dropped and refused by several threads", "[races]") {
    bound_listener on;
    constexpr unsigned count = 150;
    std::atomic<unsigned> handled = 0;
    {
        std::vector<worker> getters;
        for (unsigned i = 0; i < 2; ++i)
            getters.emplace_back([&, i] {
                std::vector<cm_id> kept;
                while (handled < count) {
                    cm_event event = on.channel.get_cm_event_for(10ms);
                    if (!event)
                        continue;
                    const unsigned n = handled++;
                    if (n % 3 == i)
                        kept.push_back(event.take_id());
                    else if (n % 3 == 2)
                        event.take_id().reject();
                }
            });
        for (unsigned i = 0; i < count; ++i)
            on.push_request();
    }
    CHECK(fake::successes("rdma_destroy_id") == count);
}

TEST_CASE_METHOD(unit::test, "races: two ids on one channel, acks from a third thread", "[races]") {
    bound_id a;
    const cm_id b(a.channel);
    std::mutex mutex;
    std::vector<cm_event> waiting;
    std::atomic<bool> stop = false;
    std::atomic<unsigned> got = 0;
    constexpr unsigned count = 200;
    {
        worker acker([&] {
            while (!stop || got < 2 * count) {
                std::vector<cm_event> taken;
                {
                    const std::lock_guard lock(mutex);
                    taken.swap(waiting);
                }
                std::this_thread::yield();
            }
        });
        worker getter([&] {
            while (got < 2 * count) {
                cm_event event = a.channel.get_cm_event_for(10ms);
                if (!event)
                    continue;
                const std::lock_guard lock(mutex);
                waiting.push_back(std::move(event));
                ++got;
            }
        });
        worker pusher([&] {
            for (unsigned i = 0; i < count; ++i)
                push(b, type::user);
        });
        for (unsigned i = 0; i < count; ++i)
            push(a.id, type::user);
        pusher.join();
        getter.join();
        stop = true;
    }
    waiting.clear();
    CHECK(fake::cm_events().acked == 2 * count);
}

TEST_CASE_METHOD(unit::test, "races: ids on channels of their own share nothing", "[races]") {
    fake::auto_connect();
    std::vector<worker> threads;
    for (int i = 0; i < 3; ++i)
        threads.emplace_back([] {
            for (int n = 0; n < 30; ++n) {
                event_channel channel;
                cm_id id(channel);
                resolve(channel, id, connection::address(), 1s);
                const cm_id other(channel);
            }
        });
    threads.clear();
    CHECK(fake::successes("rdma_create_id") == 180);
    CHECK(fake::successes("rdma_destroy_id") == 180);
}

TEST_CASE_METHOD(unit::test, "races: children made and dropped in many threads while the parents' owners go",
                 "[races]") {
    for (int round = 0; round < 10; ++round) {
        std::optional<opened> with(std::in_place);
        auto events = std::make_unique<comp_channel>(with->device);
        gate start;
        std::vector<worker> threads;
        for (int i = 0; i < 3; ++i) {
            // Made here: a parent's owner is used by one thread.
            std::vector<pd> domains;
            std::vector<cq> queues;
            for (int n = 0; n < 5; ++n) {
                domains.emplace_back(with->device);
                queues.emplace_back(with->device, 4, *events);
            }
            threads.emplace_back([&start, domains = std::move(domains), queues = std::move(queues)]() mutable {
                start.wait();
                domains.clear();
                queues.clear();
            });
        }
        start.open();
        with.reset();
        events.reset();
        threads.clear();
    }
    CHECK(fake::successes("ibv_open_device") == fake::successes("ibv_close_device"));
}

TEST_CASE_METHOD(unit::test, "races: gets of completion events, and the end of their CQs", "[races]") {
    const opened with;
    comp_channel events(with.device);
    std::atomic<bool> stop = false;
    std::atomic<unsigned> got = 0;
    {
        worker getter([&] {
            while (!stop) {
                const cq_event event = events.get_cq_event_for(5ms);
                got += event.count();
            }
        });
        for (int i = 0; i < 100; ++i) {
            const cq queue(with.device, 4, events);
            queue.request_notify();
            fake::push_success(queue.native_handle(), 1, IBV_WC_SEND, 1);
            if (i % 2 == 0)
                std::this_thread::yield();
        }
        stop = true;
    }
    CHECK(fake::cq_events().got == got);
    CHECK(fake::cq_events().held() == 0);
}
