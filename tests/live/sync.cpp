// Synchronous ids: each call with its answer, listeners and their children, and the way to channels and back.
#include "live.hpp"

#include <rdmaxx/cm/sync_id.hpp>

#include <array>
#include <cerrno>
#include <exception>
#include <string>
#include <thread>

#include <poll.h>

using namespace live;
using rdmaxx::cm_event_type;
using rdmaxx::send_wr;

namespace {

/// The device's address to listen at, on a port of the kernel's choice.
rdmaxx::addrinfo passive() {
    return {variable("RIG_ADDR4").c_str(),
            nullptr,
            {.flags = rdmaxx::addrinfo_flags::passive | rdmaxx::addrinfo_flags::numeric_host}};
}

} // namespace

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
    const rdmaxx::addrinfo here = passive();
    rdmaxx::sync_id listener =
        rdmaxx::sync_id::create_ep(here.front(), local.domain, rdmaxx::qp_init_attr(cq, 1).max_inline_data(1 << 20));
    listener.listen();
    for (int i = 0; i < 10; ++i) {
        rdmaxx::event_channel channel;
        end client(resolved(channel, listener.local_address()), local.domain);
        client.id.connect();
        std::error_code ec;
        CHECK_FALSE(listener.get_request(ec));
        CHECK(ec == std::errc::invalid_argument);
        CHECK(next(channel).type() == cm_event_type::rejected);
    }
}

TEST_CASE_METHOD(fixture, "endpoints are made from address lists, with their queue pairs", "[ib][sync][asan]") {
    host local;
    const rdmaxx::cq cq(local.device, 16);
    const rdmaxx::addrinfo here = passive();
    rdmaxx::sync_id listener = rdmaxx::sync_id::create_ep(here.front(), local.domain, rdmaxx::qp_init_attr(cq, 4));
    listener.listen();
    std::string failure;
    std::thread client([&]() {
        try {
            const std::string port = std::to_string(listener.local_address().port());
            const rdmaxx::addrinfo there(variable("RIG_ADDR4").c_str(), port.c_str(),
                                         {.flags = rdmaxx::addrinfo_flags::numeric_host});
            const rdmaxx::cq completions(local.device, 4);
            rdmaxx::sync_id id =
                rdmaxx::sync_id::create_ep(there.front(), local.domain, rdmaxx::qp_init_attr(completions, 1));
            need(id.peer_address() == listener.local_address(), "the address is resolved");
            id.connect();
            id.qp().post_send(send_wr::send_with_imm(std::span<const rdmaxx::sge>(), 12));
            id.disconnect();
        } catch (const std::exception& e) {
            failure = e.what();
        }
    });
    rdmaxx::sync_id server = listener.get_request();
    listener = rdmaxx::sync_id(nullptr);
    REQUIRE(server.qp());
    server.qp().post_recv(rdmaxx::recv_wr());
    server.accept();
    std::array<rdmaxx::wc, 1> received;
    for (const stopwatch waited; waited.elapsed() < soon && cq.poll(received).empty();)
        ;
    CHECK(received[0].imm_data() == 12U);
    server.disconnect();
    client.join();
    CHECK(failure == "");
}

TEST_CASE_METHOD(fixture, "another event than the answer, with status 0, is EPROTO", "[sync][migrate]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    id.resolve_addr(local.address(), 2s);
    static_cast<void>(get(channel, cm_event_type::addr_resolved));
    id.resolve_route(2s);
    pollfd ready = {channel.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 20'000) == 1);
    const rdmaxx::cq cq(local.device, 4);
    id.create_qp(rdmaxx::qp_init_attr(cq, 1));
    rdmaxx::sync_id synchronous(std::move(id)); // and the event with it, which librdmacm takes for any call's answer
    std::error_code ec;
    synchronous.connect({}, ec);
    CHECK(ec == std::error_code(EPROTO, std::system_category()));
    CHECK(synchronous.last_event().type() == cm_event_type::route_resolved);
}

TEST_CASE_METHOD(fixture, "what get_request returned may end in any way when its listener is gone",
                 "[ib][sync][asan]") {
    host local;
    rdmaxx::event_channel channel;
    end client(resolved(channel, ipv4(7)), local.domain);
    rdmaxx::sync_id listener;
    listener.bind_addr(ipv4());
    listener.listen();
    client = end(resolved(channel, listener.local_address()), local.domain);
    client.id.connect();
    rdmaxx::sync_id child = listener.get_request();
    listener = rdmaxx::sync_id(nullptr);
    const std::error_code rejected(28, rdmaxx::reject_category());
    SECTION("dropped") {
        child = rdmaxx::sync_id(nullptr);
        CHECK(next(channel).code() == rejected);
    }
    SECTION("rejected") {
        child.reject(bytes("no"));
        CHECK(next(channel).code() == rejected);
    }
    SECTION("made asynchronous, and accepted") {
        rdmaxx::cm_id server = std::move(child).migrate(local.channel);
        const rdmaxx::cq cq(local.device, 4);
        server.create_qp(local.domain, rdmaxx::qp_init_attr(cq, 1));
        server.accept();
        CHECK(next(channel).type() == cm_event_type::established);
        CHECK(next(local.channel).type() == cm_event_type::established);
    }
}
