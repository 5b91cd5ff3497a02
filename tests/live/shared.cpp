// Shared receive queues, asynchronous events, migration between channels, and synchronous ids.
#include "live.hpp"

#include <rdmaxx/cm/sync_id.hpp>

#include <array>
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

// ---------------------------------------------------------------------------------------------------------------
// Synchronous ids.

TEST_CASE_METHOD(fixture, "synchronous ids connect, talk and disconnect, each call with its answer", "[sync][asan]") {
    rdmaxx::sync_id listener;
    listener.bind_addr(ipv4());
    listener.listen();
    const rdmaxx::context device(listener);
    const rdmaxx::cq cq(device, 16);
    std::string failure;
    std::thread client([&]() {
        try {
            rdmaxx::sync_id id;
            id.resolve_addr(listener.local_address(), 2s);
            id.resolve_route(2s);
            id.create_qp(rdmaxx::qp_init_attr(cq, 2));
            id.connect({.private_data = bytes("hello")});
            need(id.last_event().type() == cm_event_type::established, "established");
            id.disconnect();
            id.disconnect();
        } catch (const std::exception& e) {
            failure = e.what();
        }
    });
    rdmaxx::sync_id child = listener.get_request();
    const rdmaxx::cm_event_snapshot request = child.last_event();
    CHECK(text(request.private_data().first(5)) == "hello");
    child.create_qp(rdmaxx::qp_init_attr(cq, 2));
    child.accept();
    child.disconnect();
    client.join();
    CHECK(failure == "");
}

TEST_CASE_METHOD(fixture, "a synchronous call fails with its event's reason: rejected 8, timed out", "[ib][sync]") {
    rdmaxx::sync_id id;
    id.resolve_addr(ipv4(1), 2s);
    id.resolve_route(2s);
    const rdmaxx::cq cq(id.verbs(), 4);
    id.create_qp(rdmaxx::qp_init_attr(cq, 1));
    std::error_code ec;
    id.connect({}, ec);
    CHECK(ec == std::error_code(8, rdmaxx::reject_category()));
    CHECK(id.last_event().type() == cm_event_type::rejected);

    rdmaxx::sync_id nobody;
    const stopwatch waited;
    nobody.resolve_addr(address_of_nobody(), 100ms, ec); // and not two seconds
    CHECK(ec == std::errc::timed_out);
    CHECK(waited.elapsed() < soon);
}

TEST_CASE_METHOD(fixture, "a listener may end before the child that it has just returned", "[sync][hang]") {
    host local;
    rdmaxx::sync_id listener;
    listener.bind_addr(ipv4());
    listener.listen();
    rdmaxx::event_channel channel;
    end client(resolved(channel, listener.local_address()), local.domain);
    client.id.connect();
    rdmaxx::sync_id child = listener.get_request();
    listener = rdmaxx::sync_id(nullptr); // its request's event is held, by the child: C would wait for ever
    const rdmaxx::cq cq(local.device, 4);
    child.create_qp(local.domain, rdmaxx::qp_init_attr(cq, 1));
    std::thread accepting([&]() { child.accept(); });
    CHECK(next(channel).type() == cm_event_type::established);
    accepting.join();
}

TEST_CASE_METHOD(fixture, "a synchronous id that is connected has no established event left for a channel",
                 "[sync][migrate]") {
    host local;
    std::thread server([&]() {
        end accepted = local.request();
        accepted.id.accept();
        static_cast<void>(get(local.channel, cm_event_type::established));
        static_cast<void>(get(local.channel, cm_event_type::disconnected));
        accepted.id.disconnect();
    });
    rdmaxx::sync_id id;
    id.resolve_addr(local.address(), 2s);
    id.resolve_route(2s);
    const rdmaxx::cq cq(id.verbs(), 4);
    id.create_qp(rdmaxx::qp_init_attr(cq, 1));
    id.connect();
    rdmaxx::event_channel channel;
    rdmaxx::cm_id asynchronous = std::move(id).migrate(channel);
    CHECK_FALSE(channel.get_cm_event_for(50ms));
    asynchronous.disconnect();
    CHECK(next(channel).type() == cm_event_type::disconnected);
    server.join();
}

TEST_CASE_METHOD(fixture, "a listener with queue pair attributes that no device has rejects, and leaves nothing",
                 "[sync]") {
    host local;
    const rdmaxx::cq cq(local.device, 4);
    const std::string port = std::to_string(local.address().port() + 1);
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
    hints.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* found = nullptr;
    REQUIRE(::rdma_getaddrinfo(variable("RIG_ADDR4").c_str(), port.c_str(), &hints, &found) == 0);
    {
        rdmaxx::sync_id listener = rdmaxx::sync_id::create_ep(rdmaxx::addrinfo_entry(found), local.domain,
                                                              rdmaxx::qp_init_attr(cq, 1).max_inline_data(1 << 20));
        listener.listen();
        for (int i = 0; i < 3; ++i) {
            rdmaxx::event_channel channel;
            end client(resolved(channel, listener.local_address()), local.domain);
            client.id.connect();
            std::error_code ec;
            CHECK_FALSE(listener.get_request(ec));
            CHECK(ec == std::errc::invalid_argument);
            CHECK(next(channel).type() == cm_event_type::rejected);
        }
    }
    ::rdma_freeaddrinfo(found);
}
