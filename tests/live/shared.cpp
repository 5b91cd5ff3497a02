// Shared receive queues, asynchronous events, and migration between channels.
#include "live.hpp"

#include <rdmaxx/verbs/stop.hpp>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

using namespace live;
using rdmaxx::cm_event_type;
using rdmaxx::send_wr;

// ---------------------------------------------------------------------------------------------------------------
// Shared receive queues.

namespace {

/// Two accepted connections whose receives come from one queue.
struct shared_receives {
    host local;
    rdmaxx::srq queue{local.domain, {.max_wr = 8}};
    rdmaxx::cq cq{local.device, 32};
    rdmaxx::event_channel channel;
    std::vector<end> clients;
    std::vector<rdmaxx::cm_id> servers;

    shared_receives() {
        for (int i = 0; i < 2; ++i) {
            clients.emplace_back(resolved(channel, local.address()), local.domain);
            clients.back().id.connect();
            servers.push_back(get(local.channel, cm_event_type::connect_request).take_id());
            servers.back().create_qp(local.domain, rdmaxx::qp_init_attr(cq, 4).srq(queue));
            servers.back().accept();
            static_cast<void>(get(channel, cm_event_type::established));
            static_cast<void>(get(local.channel, cm_event_type::established));
        }
    }
    rdmaxx::wc next() {
        std::array<rdmaxx::wc, 1> one;
        for (const stopwatch waited; waited.elapsed() < soon;)
            if (!cq.poll(one).empty())
                return one[0];
        throw std::runtime_error("no completion came");
    }
};

} // namespace

TEST_CASE_METHOD(fixture, "two connections take their receives from one queue", "[ib][srq][asan]") {
    shared_receives s;
    CHECK(s.queue.query().max_wr >= 8);
    CHECK(s.servers[0].qp().srq() == s.queue);
    s.queue.post_recv(rdmaxx::recv_wr().wr_id(1));
    s.queue.post_recv(rdmaxx::recv_wr().wr_id(2));
    s.clients[1].qp.post_send(send_wr::send_with_imm(std::span<const rdmaxx::sge>(), 11).signaled());
    CHECK(s.clients[1].next().ok());
    s.clients[0].qp.post_send(send_wr::send_with_imm(std::span<const rdmaxx::sge>(), 10).signaled());
    CHECK(s.clients[0].next().ok());
    for (const std::size_t from : {1U, 0U}) {
        const rdmaxx::wc received = s.next();
        CHECK(received.imm_data() == 10 + from);
        CHECK(received.qp_num() == s.servers[from].qp().qp_num());
    }
}

TEST_CASE_METHOD(fixture, "a shared queue that is full is ENOMEM with the index, and outlives its owner",
                 "[ib][srq][asan]") {
    shared_receives s;
    std::vector<rdmaxx::recv_wr> chain(s.queue.query().max_wr + 4);
    std::error_code ec;
    const std::size_t posted = s.queue.post_recv(chain, ec);
    CHECK(ec == std::errc::not_enough_memory);
    CHECK(posted >= 8);
    CHECK(posted < chain.size());
    s.queue = rdmaxx::srq(); // the queue pairs keep it
    s.clients[0].qp.post_send(send_wr::send_with_imm(std::span<const rdmaxx::sge>(), 10));
    CHECK(s.next().imm_data() == 10U);
}

TEST_CASE_METHOD(fixture, "a shared queue is resized with its receives in it", "[ib][srq]") {
    shared_receives s;
    const std::uint32_t before = s.queue.query().max_wr;
    s.queue.post_recv(rdmaxx::recv_wr().wr_id(1));
    s.queue.post_recv(rdmaxx::recv_wr().wr_id(2));
    s.queue.resize(4 * before);
    const std::uint32_t after = s.queue.query().max_wr;
    CHECK(after >= 4 * before);
    for (std::uint64_t id = 3; id <= after; ++id)
        s.queue.post_recv(rdmaxx::recv_wr().wr_id(id));
    for (std::uint64_t id = 1; id <= 3; ++id) {
        s.clients[0].qp.post_send(send_wr::send_with_imm(std::span<const rdmaxx::sge>(), 1).signaled());
        CHECK(s.clients[0].next().ok());
        CHECK(s.next().wr_id() == id);
    }
    std::error_code ec;
    s.queue.resize(1U << 30, ec);
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(fixture, "a queue pair of a shared queue is drained of its sends", "[ib][srq]") {
    shared_receives s;
    s.queue.post_recv(rdmaxx::recv_wr().wr_id(1));
    s.servers[0].qp().post_send(send_wr::send_with_imm(std::span<const rdmaxx::sge>(), 1).wr_id(7)); // no receive there
    std::vector<std::uint64_t> flushed;
    s.servers[0].qp().drain(soon, [&](const rdmaxx::wc& done) { flushed.push_back(done.wr_id()); });
    CHECK(flushed == std::vector<std::uint64_t>{7}); // the receive is the others' as well, and stays
    s.clients[1].qp.post_send(send_wr::send_with_imm(std::span<const rdmaxx::sge>(), 12));
    CHECK(s.next().wr_id() == 1);
}

TEST_CASE_METHOD(fixture, "an id's own shared queue serves its queue pair, and ends after that", "[ib][srq][asan]") {
    host local;
    rdmaxx::event_channel channel;
    end client(resolved(channel, local.address()), local.domain);
    client.id.connect();
    const rdmaxx::cq cq(local.device, 16);
    rdmaxx::cm_id server = get(local.channel, cm_event_type::connect_request).take_id();
    const bool extended = GENERATE(false, true);
    if (extended) {
        ibv_srq_init_attr_ex attr{};
        attr.attr.max_wr = 8;
        attr.attr.max_sge = 1;
        attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        attr.srq_type = IBV_SRQT_BASIC;
        attr.pd = local.domain.native_handle();
        server.create_srq_ex(attr);
    } else {
        server.create_srq(local.domain, {.max_wr = 8});
    }
    std::error_code ec;
    CHECK_FALSE(server.create_srq(local.domain, {}, ec));
    CHECK(ec == std::errc::invalid_argument);
    server.create_qp(local.domain, rdmaxx::qp_init_attr(cq, 4));
    CHECK(server.qp().srq() == server.srq());
    server.srq().post_recv(rdmaxx::recv_wr().wr_id(3));
    server.accept();
    static_cast<void>(get(channel, cm_event_type::established));
    client.qp.post_send(send_wr::send(std::span<const rdmaxx::sge>()));
    std::array<rdmaxx::wc, 1> received;
    for (const stopwatch waited; waited.elapsed() < soon && cq.poll(received).empty();)
        ;
    CHECK(received[0].wr_id() == 3);

    server.destroy_srq(ec);
    CHECK(ec == std::errc::device_or_resource_busy);
    CHECK(server.srq());
    server.destroy_qp();
    if (GENERATE(false, true))
        server.destroy_srq(); // else with the id
}

TEST_CASE_METHOD(fixture, "a queue pair of extended attributes is the id's like any other", "[ib][connection][asan]") {
    host local;
    rdmaxx::event_channel channel;
    const rdmaxx::cq cq(local.device, 16);
    rdmaxx::cm_id client = resolved(channel, local.address());
    const rdmaxx::pd_ref librarys = client.pd();
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq.native_handle();
    attr.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = local.domain.native_handle();
    CHECK(client.create_qp_ex(attr).pd() == local.domain);
    std::error_code ec;
    CHECK_FALSE(client.create_qp_ex(attr, ec));
    CHECK(ec == std::errc::invalid_argument);
    client.connect();
    end server = local.request();
    server.qp.post_recv(server.mr);
    server.id.accept();
    static_cast<void>(get(channel, cm_event_type::established));
    client.qp().post_send(send_wr::send(std::span<const rdmaxx::sge>()));
    CHECK(server.next_ok().byte_len() == 0U);
    client.destroy_qp();
    CHECK(client.pd() == librarys);
}

// ---------------------------------------------------------------------------------------------------------------
// Asynchronous events.

TEST_CASE_METHOD(fixture, "a limit above what is posted raises nothing until a receive is taken", "[ib][async][asan]") {
    const rdmaxx::device_list devices;
    rdmaxx::context device(devices.front());
    const rdmaxx::pd domain(device);
    const rdmaxx::srq queue(domain, {.max_wr = 8});
    CHECK_FALSE(rdmaxx::try_get_async_event(device));
    queue.post_recv(rdmaxx::recv_wr());
    queue.arm_limit(5);
    CHECK_FALSE(rdmaxx::get_async_event_for(device, 50ms));
    CHECK(queue.query().srq_limit == 5);
}

TEST_CASE_METHOD(fixture, "a limit that is reached arrives at the context of the queue", "[ib][async][asan]") {
    host local;
    rdmaxx::srq queue(local.domain, {.max_wr = 8});
    rdmaxx::cq cq(local.device, 32);
    rdmaxx::event_channel channel;
    end client(resolved(channel, local.address()), local.domain);
    client.id.connect();
    rdmaxx::cm_id server = get(local.channel, cm_event_type::connect_request).take_id();
    server.create_qp(local.domain, rdmaxx::qp_init_attr(cq, 4).srq(queue));
    server.accept();
    static_cast<void>(get(channel, cm_event_type::established));
    for (int i = 0; i < 3; ++i)
        queue.post_recv(rdmaxx::recv_wr());
    queue.arm_limit(3);
    client.qp.post_send(send_wr::send(std::span<const rdmaxx::sge>()).signaled());
    CHECK(client.next().ok());

    rdmaxx::async_event low = rdmaxx::get_async_event_for(local.device, soon);
    CHECK(low.type() == rdmaxx::async_event_type::srq_limit_reached);
    CHECK(low.srq() == queue);
    CHECK_FALSE(low.qp());
    CHECK(queue.query().srq_limit == 0); // once

    server = rdmaxx::cm_id();
    hang_recorder recorder(rdmaxx::hang_action::keep_waiting, 50ms);
    recorder.on_report([&]() { low = rdmaxx::async_event(); });
    queue = rdmaxx::srq();
    REQUIRE(recorder.reports().size() == 1);
    CHECK(std::string(recorder.reports()[0].events[0].type) == "srq_limit_reached");
}

namespace {

/// A connection whose client has a small CQ for its sends, and a deep send queue.
struct overrunning {
    static constexpr std::uint32_t depth = 64;

    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id = resolved(channel, local.address());
    rdmaxx::cq sends{local.device, 4};
    rdmaxx::cq receives{local.device, 8};
    end peer;

    overrunning() {
        id.create_qp(local.domain, rdmaxx::qp_init_attr(sends, receives).max_send_wr(depth).max_recv_wr(4));
        id.connect();
        peer = local.request();
        peer.id.accept();
        static_cast<void>(get(channel, cm_event_type::established));
        static_cast<void>(get(local.channel, cm_event_type::established));
    }
    /// More completions than the CQ holds, which nobody polls.
    void overrun() const {
        for (std::uint32_t i = 0; i < depth; ++i)
            id.qp().post_send(send_wr::rdma_write(std::span<const rdmaxx::sge>(), peer.mr.remote()).signaled());
    }
};

} // namespace

TEST_CASE_METHOD(fixture, "a CQ that overruns loses completions, of which an event tells, and a count says no before",
                 "[ib][async][asan]") {
    overrunning o;
    rdmaxx::cq_room room(o.sends);
    CHECK(room.size() < overrunning::depth);
    CHECK_FALSE(room.take(o.id.qp().cap().max_send_wr));

    o.overrun();
    {
        const rdmaxx::async_event event = rdmaxx::get_async_event_for(o.local.device, soon);
        CHECK(event.type() == rdmaxx::async_event_type::cq_err);
        CHECK(event.cq() == o.sends);
        CHECK(event.context() == o.local.device);
    }
    std::this_thread::sleep_for(100ms);
    std::string last; // rxe has an event for each completion that it lost
    rdmaxx::log_async_events(o.local.device, [&](const std::string& line) { last = line; });
    if (!last.empty())
        CHECK(last.find(": cq_err of a CQ of " + std::to_string(o.sends.size())) != std::string::npos);
    std::size_t completed = 0;
    std::array<rdmaxx::wc, overrunning::depth> done;
    for (std::span<rdmaxx::wc> some = o.sends.poll(done); !some.empty(); some = o.sends.poll(done))
        completed += some.size();
    CHECK(completed >= room.size());
    CHECK(completed < overrunning::depth);
    o.id.qp().drain(soon); // there is room again
}

#if RDMAXX_HAS_STOP_TOKEN
TEST_CASE_METHOD(fixture, "a log takes a lock that is held while its event's object is destroyed, and neither waits",
                 "[ib][async]") {
    std::optional<overrunning> o(std::in_place);
    rdmaxx::context device = std::move(o->local.device); // kept by what was made from it
    std::mutex lock;
    std::atomic<bool> told = false;
    std::vector<std::string> lines;
    std::jthread log([&](const std::stop_token& stop) {
        rdmaxx::log_async_events(device, stop, [&](const std::string& line) {
            told = true;
            const std::lock_guard guard(lock);
            lines.push_back(line);
        });
    });
    {
        const std::lock_guard guard(lock);
        o->overrun();
        for (const stopwatch waited; !told && waited.elapsed() < soon;)
            std::this_thread::sleep_for(1ms);
        const hang_recorder recorder(rdmaxx::hang_action::keep_waiting);
        o.reset(); // its CQ, and all else, while the log waits for the lock
        CHECK(recorder.reports().empty());
    }
    log.request_stop();
    log.join();
    REQUIRE_FALSE(lines.empty());
    CHECK(lines[0].find("overran") != std::string::npos);
}
#endif

// ---------------------------------------------------------------------------------------------------------------
// Migration.

TEST_CASE_METHOD(fixture, "a new id moves to a channel of its own, while its request's event is held",
                 "[migrate][asan]") {
    host local;
    rdmaxx::event_channel channel;
    end client(resolved(channel, local.address()), local.domain);
    client.id.connect();
    rdmaxx::cm_event request = get(local.channel, cm_event_type::connect_request);
    end server(request.take_id(), local.domain);
    rdmaxx::event_channel own;
    server.id.migrate(own);
    std::move(request).ack();
    server.id.accept();
    CHECK(next(channel).type() == cm_event_type::established);
    CHECK(next(own).type() == cm_event_type::established);
    local.listener = rdmaxx::cm_id();
    local.channel = rdmaxx::event_channel(nullptr);
    client.id.disconnect();
    const rdmaxx::cm_event disconnected = get(own, cm_event_type::disconnected);
    CHECK(disconnected.id() == server.id);
}

TEST_CASE_METHOD(fixture, "an id whose event is held moves after the ack, and takes unfetched events along",
                 "[migrate]") {
    rdmaxx::event_channel from;
    rdmaxx::event_channel to;
    rdmaxx::cm_id id(from);
    id.resolve_addr(ipv4(7), 2s);
    rdmaxx::cm_event held = get(from, cm_event_type::addr_resolved);
    hang_recorder recorder(rdmaxx::hang_action::keep_waiting, 50ms);
    recorder.on_report([&]() { held = rdmaxx::cm_event(); });
    id.resolve_route(2s);
    std::this_thread::sleep_for(50ms); // its event is there, and nobody fetches it
    id.migrate(to);
    CHECK(recorder.reports().size() == 1);
    CHECK(std::string(recorder.reports()[0].call) == "rdma_migrate_id");
    CHECK(next(to).type() == cm_event_type::route_resolved);
    CHECK_FALSE(from.try_get_cm_event());
}

#if RDMAXX_HAS_STOP_TOKEN
TEST_CASE_METHOD(fixture, "a stop token ends a get of asynchronous events", "[async][stop]") {
    const rdmaxx::device_list devices;
    rdmaxx::context device(devices.front());
    std::atomic<bool> empty = false;
    std::jthread waiter([&](const std::stop_token& token) { empty = !rdmaxx::get_async_event(device, token); });
    std::this_thread::sleep_for(20ms);
    waiter.request_stop();
    waiter.join();
    CHECK(empty);
}
#endif
