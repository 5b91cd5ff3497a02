// What the class comments allow several threads to do at once, done by several threads. It tells something under TSan,
// to which the fake shows only the order that the real libraries promise. A test is named after the class whose comment
// it takes at its word: threads_check.py wants one of each.
#include "../unit/test.hpp"

#include <rdmaxx/verbs/counters.hpp>
#include <rdmaxx/verbs/dm.hpp>
#include <rdmaxx/verbs/flow.hpp>
#include <rdmaxx/verbs/iova_mr.hpp>

#include <array>
#include <atomic>
#include <deque>

using namespace rdmaxx;
using namespace unit;

namespace {

constexpr unsigned rounds = 200;

/// Runs it in so many threads at once.
template <class Body>
void in_threads(unsigned count, Body body) {
    gate start;
    std::vector<worker> threads;
    for (unsigned i = 0; i < count; ++i)
        threads.emplace_back([&, i] {
            start.wait();
            body(i);
        });
    start.open();
}

/// What one thread hands to another.
template <class T>
class hand_over {
public:
    void put(T value) {
        const std::lock_guard lock(mutex_);
        values_.push_back(std::move(value));
    }
    [[nodiscard]] T take() {
        const std::lock_guard lock(mutex_);
        if (values_.empty())
            return T();
        T value = std::move(values_.front());
        values_.pop_front();
        return value;
    }

private:
    std::mutex mutex_;
    std::deque<T> values_;
};

} // namespace

TEST_CASE_METHOD(unit::test, "threads: event_channel and cm_event: several get, a third one acks", "[threads]") {
    bound_id on;
    std::atomic<unsigned> got = 0;
    std::atomic<unsigned> acked = 0;
    hand_over<cm_event> events;
    in_threads(5, [&](unsigned i) {
        if (i < 2) // by all the forms of get
            for (unsigned n = 0; got < 2 * rounds; ++n) {
                cm_event event = n % 3 == 0   ? on.channel.try_get_cm_event()
                                 : n % 3 == 1 ? on.channel.get_cm_event_for(1ms)
                                              : on.channel.get_cm_event_until(std::chrono::steady_clock::now() + 1ms);
                if (event) {
                    ++got;
                    events.put(std::move(event));
                }
            }
        else if (i == 2)
            while (acked < 2 * rounds)
                acked += events.take() ? 1U : 0U;
        else
            for (unsigned n = 0; n < rounds; ++n)
                push(on.id, cm_event_type::user);
    });
    CHECK(fake::cm_events().got == 2 * rounds);
    CHECK(fake::cm_events().held() == 0);
}

TEST_CASE_METHOD(unit::test, "threads: cm_id: each in its own thread, while another one gets", "[threads]") {
    fake::auto_connect();
    constexpr unsigned count = 4;
    event_channel channel;
    struct flow {
        std::atomic<unsigned> resolved = 0;
        std::atomic<unsigned> other = 0;
    };
    std::array<flow, count> flows;
    std::atomic<unsigned> done = 0;
    const auto wait = [](const std::atomic<unsigned>& number, unsigned until) {
        while (number < until)
            std::this_thread::yield();
    };
    in_threads(count + 1, [&](unsigned i) {
        if (i == count) { // the only one that gets
            while (done < count) {
                const cm_event event = channel.get_cm_event_for(1ms);
                if (!event)
                    continue;
                auto& of = *event.id().user_context<flow>();
                ++(event.type() == cm_event_type::addr_resolved ? of.resolved : of.other);
            }
            return;
        }
        for (unsigned n = 0; n < rounds / 10; ++n) {
            flow& mine = flows[i];
            mine.resolved = 0;
            mine.other = 0;
            cm_id id(channel);
            id.set_user_context(&mine);
            id.resolve_addr(connection::address(), 1s);
            wait(mine.resolved, 1);
            // What the event has changed of the id is there.
            const context_ref device = id.verbs();
            const cq queue(device, 4);
            id.create_qp(qp_init_attr(queue, 2));
            id.resolve_route(1s);
            wait(mine.other, 1);
            static_cast<void>(id.local_address());
            static_cast<void>(id.peer_address());
            id.connect(); // rejected: nobody listens
            if (n % 2 == 0)
                wait(mine.other, 2);
        }
        ++done;
    });
    CHECK(fake::cm_events().held() == 0);
}

TEST_CASE_METHOD(unit::test, "threads: qp and cq: two post, two poll", "[threads]") {
    connection both(1024);
    std::array<std::array<char, 64>, 4> memory{};
    std::vector<mr> regions;
    for (auto& part : memory)
        regions.emplace_back(both.pd, part);
    std::atomic<unsigned> sent = 0;
    std::atomic<unsigned> received = 0;
    std::atomic<unsigned> failed = 0;
    in_threads(6, [&](unsigned i) {
        const qp_ref to = both.client.qp();
        const qp_ref from = both.server.qp();
        switch (i) {
        case 0:
        case 1:
            for (unsigned n = 0; n < rounds; ++n)
                from.post_recv(regions[i], n);
            break;
        case 2:
        case 3:
            for (unsigned n = 0; n < rounds; ++n)
                to.post_send(regions[i], n);
            break;
        default:
            while (sent + received + failed < 4 * rounds) {
                std::array<wc, 8> done;
                for (const wc& one : both.cq.poll(done))
                    ++(!one.ok() ? failed : one.is_recv() ? received : sent);
            }
        }
    });
    CHECK(sent == 2 * rounds);
    CHECK(received == 2 * rounds);
}

TEST_CASE_METHOD(unit::test, "threads: qp: one posts while another one ends the connection", "[threads]") {
    connection both(1024);
    std::array<char, 64> memory{};
    const mr region(both.pd, memory);
    std::atomic<unsigned> posted = 0;
    std::atomic<unsigned> completed = 0;
    in_threads(3, [&](unsigned i) {
        if (i == 0)
            for (unsigned n = 0; n < rounds; ++n) {
                const sge piece = region.sge();
                send_wr request = send_wr::send(piece).signaled();
                posted += both.client.qp().try_post_send(request) == 0 ? 1U : 0U;
            }
        else if (i == 1) {
            std::this_thread::yield();
            both.client.disconnect();
        } else
            while (completed < rounds) {
                std::array<wc, 8> done;
                completed += static_cast<unsigned>(both.cq.poll(done).size());
            }
    });
    CHECK(posted == rounds);
    CHECK(completed == rounds);
}

TEST_CASE_METHOD(unit::test, "threads: comp_channel and cq_event: several get, others ask and poll, a third one acks",
                 "[threads]") {
    const opened with;
    comp_channel events(with.device);
    const cq first(with.device, 1024, events);
    const cq second(with.device, 1024, events);
    std::atomic<unsigned> polled = 0;
    std::atomic<bool> stop = false;
    hand_over<cq_event> held;
    in_threads(6, [&](unsigned i) {
        if (i < 2)
            while (!stop) {
                cq_event event = i == 0 ? events.try_get_cq_event() : events.get_cq_event_for(1ms);
                if (!event)
                    continue;
                event.cq().request_notify();
                std::array<wc, 8> done;
                for (auto some = event.cq().poll(done); !some.empty(); some = event.cq().poll(done))
                    polled += static_cast<unsigned>(some.size());
                held.put(std::move(event));
            }
        else if (i == 2)
            while (!stop) {
                cq_event event = held.take();
                cq_event more = held.take();
                event += std::move(more);
                std::this_thread::yield();
            }
        else if (i < 5)
            for (unsigned n = 0; n < rounds; ++n)
                fake::push_success((n % 2 == 0 ? first : second).native_handle(), n, IBV_WC_SEND, 1);
        else {
            first.request_notify();
            second.request_notify();
            const auto start = std::chrono::steady_clock::now();
            while (polled < 2 * rounds && elapsed(start) < 50s) { // completions that came before the first request
                std::array<wc, 1> done;
                polled += static_cast<unsigned>(first.poll(done).size() + second.poll(done).size());
            }
            stop = true;
        }
    });
    while (held.take())
        ;
    CHECK(polled == 2 * rounds);
    CHECK(fake::cq_events().held() == 0);
}

TEST_CASE_METHOD(unit::test,
                 "threads: context and async_event: several get, a third one acks, and what they are about goes",
                 "[threads]") {
    opened with;
    std::atomic<unsigned> got = 0; // of the port
    std::atomic<bool> queues_done = false;
    std::atomic<bool> stop = false;
    hand_over<async_event> held;
    in_threads(5, [&](unsigned i) {
        if (i < 2)
            while (!stop) {
                async_event event = i == 0 ? try_get_async_event(with.device) : get_async_event_for(with.device, 1ms);
                got += event.port_num() == 1 ? 1U : 0U;
                if (event)
                    held.put(std::move(event));
            }
        else if (i == 2)
            while (!stop) {
                static_cast<void>(held.take());
                std::this_thread::yield();
            }
        else if (i == 3) {
            for (unsigned n = 0; n < rounds; ++n) {
                const cq queue(with.device, 4); // its end waits for the ack, where its event was got
                fake::push_async_event(queue.native_handle(), IBV_EVENT_CQ_ERR);
            }
            queues_done = true;
        } else {
            for (unsigned n = 0; n < rounds; ++n)
                fake::push_async_event(with.device.native_handle(), 1, IBV_EVENT_PORT_ERR);
            while (got < rounds || !queues_done)
                std::this_thread::yield();
            stop = true;
        }
    });
    while (held.take())
        ;
    CHECK(fake::async_events().held() == 0);
}

TEST_CASE_METHOD(unit::test, "threads: context, pd and mr: several make what they need", "[threads]") {
    opened with;
    std::array<char, 256> memory{};
    const mr region(with.pd, memory);
    in_threads(3, [&](unsigned i) {
        for (unsigned n = 0; n < rounds / 4; ++n) {
            std::array<char, 64> own{};
            // By refs: to pin a parent is to use its owner.
            const mr mine(pd_ref(with.pd), own);
            const cq queue(context_ref(with.device), 4);
            const comp_channel events{context_ref(with.device)};
            static_cast<void>(region.sge(i * 8, 8));
            static_cast<void>(with.device.query_port(1));
        }
    });
    CHECK(fake::successes("ibv_reg_mr") == 3 * (rounds / 4) + 1);
}

TEST_CASE_METHOD(unit::test, "threads: event_channel, context, pd: their owner may be pinned by several", "[threads]") {
    opened with;
    event_channel channel;
    in_threads(3, [&](unsigned) {
        for (unsigned n = 0; n < rounds / 4; ++n) {
            const pd domain(with.device);
            const cq queue(with.device, 4);
            const cm_id id(channel);
        }
    });
    CHECK(fake::successes("rdma_create_id") == 3 * (rounds / 4));
}

TEST_CASE_METHOD(unit::test, "threads: srq: two post", "[threads]") {
    opened with;
    std::array<char, 256> memory{};
    const mr region(with.pd, memory);
    const srq queue(with.pd, srq_init_attr{.max_wr = 2 * rounds, .max_sge = 1});
    in_threads(2, [&](unsigned i) {
        for (unsigned n = 0; n < rounds; ++n)
            queue.post_recv(region, i);
    });
    CHECK(fake::posted_recvs(queue.native_handle()).size() == 2 * rounds);
}

TEST_CASE_METHOD(unit::test, "threads: wq: two post", "[threads]") {
    opened with;
    std::array<char, 256> memory{};
    const mr region(with.pd, memory);
    const wq queue(with.pd, with.cq, {.max_wr = 2 * rounds});
    queue.modify(wq_state::rdy);
    in_threads(2, [&](unsigned i) {
        for (unsigned n = 0; n < rounds; ++n)
            queue.post_recv(region, i);
    });
    CHECK(fake::successes("ibv_post_wq_recv") == 2 * rounds);
}

TEST_CASE_METHOD(unit::test, "threads: counters, gid_table, mw, iova_mr, registered_buffer: several look at one",
                 "[threads]") {
    opened with;
    std::array<char, 64> memory{};
    const counters counted(with.device);
    const gid_table table = with.device.query_gid_table();
    const mw window(with.pd, mw_type::type_2);
    const iova_mr region = iova_mr::reg_mr_iova(with.pd, memory, 0x10000);
    const registered_buffer buffer(with.pd, 64);
    std::atomic<unsigned> right = 0;
    in_threads(3, [&](unsigned i) {
        for (unsigned n = 0; n < rounds / 4; ++n) {
            std::array<std::uint64_t, 1> value{};
            counted.read(value);
            right += table.find(table.begin()->gid(), table.begin()->type()) ? 1U : 0U;
            right += window.pd() == with.pd ? 1U : 0U;
            right += region.sge(i, 1).addr == 0x10000 + i ? 1U : 0U;
            right += buffer.sge(i, 1).addr == buffer.sge().addr + i ? 1U : 0U;
        }
    });
    CHECK(right == 3 * (rounds / 4) * 4);
}

TEST_CASE_METHOD(unit::test, "threads: flow, flow_action, xrcd, dm: several make what they need of one", "[threads]") {
    opened with;
    const qp queue(with.pd, qp_init_attr(with.cq).type(qp_type::ud));
    const flow_action action(with.device, ibv_flow_action_esp_attr{});
    const xrcd domain(with.device);
    const dm memory(with.device, 3);
    std::atomic<unsigned> right = 0;
    in_threads(3, [&](unsigned i) {
        for (unsigned n = 0; n < rounds / 4; ++n) {
            const flow rule(queue, flow_attr(1).add(flow_eth()).action(action));
            const srq shared(with.pd, srq_init_attr_ex({8, 2}).xrc(domain, with.cq));
            std::array<std::byte, 1> mine{static_cast<std::byte>(n)}; // in a byte of its own
            memory.memcpy_to_dm(i, mine);
            mine[0] = std::byte{};
            memory.memcpy_from_dm(mine, i);
            right += mine[0] == static_cast<std::byte>(n) ? 1U : 0U;
        }
    });
    CHECK(right == 3 * (rounds / 4));
}

TEST_CASE_METHOD(unit::test, "threads: multicast_membership: left by several, while another one gets", "[threads]") {
    fake::auto_connect();
    bound_id on(port_space::udp);
    constexpr unsigned count = 6;
    std::vector<multicast_membership> groups;
    std::array<int, count> contexts{};
    for (unsigned i = 0; i < count; ++i)
        groups.push_back(on.id.join_multicast(address("239.1.1." + std::to_string(i + 1), 0), &contexts[i]));
    std::atomic<unsigned> left = 0;
    in_threads(3, [&](unsigned i) {
        if (i == 2)
            while (left < count)
                static_cast<void>(on.channel.get_cm_event_for(1ms));
        else
            for (unsigned n = i; n < count; n += 2) {
                groups[n] = multicast_membership();
                ++left;
            }
    });
    CHECK(fake::successes("rdma_leave_multicast") == count);
}

TEST_CASE_METHOD(unit::test, "threads: ah: several post with one", "[threads]") {
    fake::auto_connect();
    fake::set().hold_data_path = true;
    bound_id on(port_space::udp);
    const pd domain(on.id.verbs());
    const cq queue(on.id.verbs(), 4 * rounds);
    std::array<char, 64> memory{};
    const mr region(domain, memory);
    const qp_ref qp = on.id.create_qp(domain, qp_init_attr(queue, 2 * rounds).type(qp_type::ud));
    ibv_ah_attr attr{};
    attr.port_num = 1;
    const ah to(domain, attr);
    in_threads(2, [&](unsigned i) {
        for (unsigned n = 0; n < rounds; ++n)
            qp.post_send(send_wr::send(region.sge()).to(to, i, 0x01234567).wr_id(n));
    });
    CHECK(fake::posted_sends(qp.native_handle()).size() == 2 * rounds);
}

TEST_CASE_METHOD(unit::test, "threads: device_list, devices, addrinfo: several read one", "[threads]") {
    const device_list list;
    const devices contexts;
    const rdmaxx::addrinfo found("192.0.2.1", "7471");
    std::atomic<unsigned> seen = 0;
    in_threads(3, [&](unsigned) {
        for (unsigned n = 0; n < rounds / 10; ++n) {
            for (const device_ref each : list)
                seen += std::string_view(each.name()) == "fake0" ? 1U : 0U;
            for (const context_ref each : contexts)
                seen += std::string_view(each.device().name()) == "fake0" ? 1U : 0U;
            for (const addrinfo_entry each : found)
                seen += each.destination().port() == 7471 ? 1U : 0U;
        }
    });
    CHECK(seen >= 3 * 3 * (rounds / 10));
}

TEST_CASE_METHOD(unit::test, "threads: sync_id: each in its own", "[threads]") {
    fake::auto_connect();
    in_threads(3, [&](unsigned) {
        for (unsigned n = 0; n < rounds / 10; ++n) {
            sync_id id;
            id.resolve_addr(connection::address(), 1s);
            id.resolve_route(1s);
        }
    });
    CHECK(fake::successes("rdma_create_id") == 3 * (rounds / 10));
}
