// iWARP, where it differs from InfiniBand and RoCE, and siw, where it differs from rxe. What is true of the latter only
// is stated by the tests that are tagged [ib]; all others run on both.
#include "live.hpp"

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

using namespace live;
using rdmaxx::cm_event;
using rdmaxx::cm_event_type;
using rdmaxx::recv_wr;
using rdmaxx::send_wr;

namespace {

/// A client that asked `local` for a connection, and the id of its request.
struct asked {
    explicit asked(host& local, const rdmaxx::conn_param& param = {})
        : client(resolved(channel, local.address()), local.domain) {
        client.id.connect(param);
        event = get(local.channel, cm_event_type::connect_request);
    }

    rdmaxx::event_channel channel;
    end client;
    cm_event event;
};

std::string cause_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const rdmaxx::error& e) {
        CHECK(e.code() == std::errc::invalid_argument);
        return e.cause();
    }
    return "nothing was thrown";
}

} // namespace

TEST_CASE_METHOD(fixture, "the device says that it is iWARP", "[.iwarp]") {
    const rdmaxx::device_list devices;
    CHECK(devices.front().is_iwarp());
}

TEST_CASE_METHOD(fixture, "iWARP: private data of up to 255 bytes arrives with the length that it had", "[.iwarp]") {
    host local;
    const std::string data(GENERATE(0U, 1U, 57U, 251U), 'p'); // siw counts four more, in eight bits
    const std::string too_much(256, 'p');
    CAPTURE(data.size());
    SECTION("of connect and accept") {
        {
            asked a(local, {.private_data = bytes(data)});
            CHECK(text(a.event.private_data()) == data);
            rdmaxx::cm_id id = a.event.take_id();
            end server(std::move(id), local.domain);
            CHECK(cause_of([&]() {
                      server.id.accept({.private_data = bytes(too_much)});
                  }).find("more than 255 bytes") != std::string::npos);
            server.id.accept({.private_data = bytes(data)});
            const cm_event established = get(a.channel, cm_event_type::established);
            CHECK(text(established.private_data()) == data);
        }
    }
    SECTION("of reject") {
        asked a(local);
        rdmaxx::cm_id id = a.event.take_id();
        id.reject(bytes(data));
        const cm_event rejected = get(a.channel, cm_event_type::rejected);
        CHECK(rejected.code() == rejected_by_program());
        CHECK(text(rejected.private_data()) == data);
    }
}

TEST_CASE_METHOD(fixture, "iWARP: a request that is dropped is rejected with ECONNRESET", "[.iwarp]") {
    host local;
    asked a(local);
    a.event = cm_event();
    const rdmaxx::cm_event_snapshot rejected = next(a.channel);
    CHECK(rejected.type() == cm_event_type::rejected);
    CHECK(rejected.status() == -ECONNRESET);
}

TEST_CASE_METHOD(fixture, "iWARP: where nobody listens connect itself is refused", "[.iwarp]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::address nobody;
    {
        const rdmaxx::cm_id taken(channel);
        taken.bind_addr(ipv4());
        nobody = taken.local_address();
    }
    end client(resolved(channel, nobody), local.domain);
    std::error_code ec;
    client.id.connect({}, ec);
    CHECK(ec == std::errc::connection_refused);
    CHECK_FALSE(channel.get_cm_event_for(50ms));
}

TEST_CASE_METHOD(fixture, "iWARP: one side's disconnect ends the connection for both", "[.iwarp]") {
    connection c;
    c.client.id.disconnect();
    CHECK(next(c.local.channel).type() == cm_event_type::disconnected);
    CHECK(next(c.channel).type() == cm_event_type::disconnected);
    c.client.id.disconnect();
    c.server.id.disconnect();
    CHECK_FALSE(c.channel.get_cm_event_for(50ms));
    CHECK_FALSE(c.local.channel.get_cm_event_for(50ms));
}

TEST_CASE_METHOD(fixture, "iWARP: no datagrams", "[.iwarp]") {
    const host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel, rdmaxx::port_space::udp);
    id.resolve_addr(ipv4(), 2s);
    static_cast<void>(get(channel, cm_event_type::addr_resolved));
    const rdmaxx::cq cq(local.device, 8);
    std::error_code ec;
    id.create_qp(local.domain, rdmaxx::qp_init_attr(cq).type(rdmaxx::qp_type::ud), ec);
    CHECK(ec == std::errc::operation_not_supported);
}

TEST_CASE_METHOD(fixture, "iWARP: no atomics, no immediate data", "[.iwarp]") {
    connection c;
    const rdmaxx::sge here = c.client.mr.sge(0, 8);
    const rdmaxx::remote_buffer there = c.server.mr.remote().part(0, 8);
    for (send_wr request :
         {send_wr::atomic_fetch_and_add(here, there, 1), send_wr::atomic_cmp_and_swp(here, there, 0, 1),
          send_wr::send_with_imm(here, 1), send_wr::rdma_write_with_imm(here, there, 1)}) {
        CHECK(c.client.qp.try_post_send(request) == EINVAL);
    }
}

TEST_CASE_METHOD(fixture, "siw: a receive has at least one SGE, and nothing is posted once the connection is over",
                 "[.iwarp]") {
    connection c;
    recv_wr empty;
    CHECK(c.server.qp.try_post_recv(empty) == EINVAL);
    c.client.id.disconnect();
    static_cast<void>(get(c.channel, cm_event_type::disconnected));
    const rdmaxx::sge piece = c.client.mr.sge(0, 8);
    send_wr late = send_wr::send(piece);
    CHECK(c.client.qp.try_post_send(late) == ENOTCONN);
    c.client.qp.drain(soon, [](const rdmaxx::wc&) {}); // nothing to wait for
}

TEST_CASE_METHOD(fixture, "iWARP: the side that accepted sends once the other one has", "[.iwarp]") {
    connection c;
    c.client.qp.post_recv(c.client.mr);
    c.server.qp.post_recv(c.server.mr);
    c.client.qp.post_send(c.client.mr.sge(0, 8));
    CHECK(c.server.next_ok().is_recv());
    CHECK_FALSE(c.client.next_ok().is_recv());
    c.server.qp.post_send(c.server.mr.sge(0, 4));
    CHECK(c.client.next_ok().byte_len() == 4U);
}
