// What an id may be asked for and when. Where the C call would crash or do harm it is not made.
#include "test.hpp"

#include <array>

#include <rdma/rdma_cma.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;

std::vector<std::byte> bytes(std::size_t count) {
    return std::vector<std::byte>(count, std::byte{7});
}

/// Refused with EINVAL and this cause, in both forms, and no C call.
template <class Throws, class Codes>
void check_refused(const char* call, const std::string& cause, Throws throws, Codes codes) {
    CAPTURE(call);
    const std::size_t before = fake::calls();
    const caught refused(throws);
    CHECK(refused.code == EINVAL);
    CHECK(refused.call == call);
    CHECK(contains(refused.cause, cause));
    CHECK(contains(refused.what, cause));
    std::error_code ec;
    codes(ec);
    CHECK(number(ec) == EINVAL);
    CHECK(fake::calls() == before);
}

constexpr const char* unbound = "the id is not bound to a device yet";

/// The parameters as they came to the kernel, seen at the passive side: there resources and depth are swapped.
rdma_conn_param seen_by_peer(const conn_param& param) {
    requesting from(port_space::tcp, param);
    const cm_event event = from.channel.expect(from.listener, type::connect_request);
    return event.conn_param();
}

} // namespace

// ---------------------------------------------------------------- before a device is known

TEST_CASE_METHOD(unit::test, "cm_id: what needs a device fails with EINVAL before the id has one, without a C call",
                 "[states]") {
    const opened with;
    event_channel channel;
    cm_id id(channel);
    const qp_init_attr attr(with.cq);
    check_refused(
        "rdma_resolve_route", unbound, [&] { id.resolve_route(1s); },
        [&](std::error_code& ec) { id.resolve_route(1s, ec); });
    check_refused(
        "rdma_create_qp", unbound, [&] { id.create_qp(attr); },
        [&](std::error_code& ec) { CHECK_FALSE(id.create_qp(attr, ec)); });
    check_refused(
        "rdma_create_qp", unbound, [&] { id.create_qp(with.pd, attr); },
        [&](std::error_code& ec) { CHECK_FALSE(id.create_qp(with.pd, attr, ec)); });
    check_refused(
        "rdma_connect", unbound, [&] { id.connect(); }, [&](std::error_code& ec) { id.connect({}, ec); });
    const cm_id_ref ref = id;
    check_refused(
        "rdma_resolve_route", unbound, [&] { ref.resolve_route(1s); },
        [&](std::error_code& ec) { ref.resolve_route(1s, ec); });
    CHECK_FALSE(id.verbs());
    CHECK_FALSE(id.pd());
    CHECK_FALSE(id.qp());
    CHECK(id.port_num() == 0);
}

TEST_CASE_METHOD(unit::test, "cm_id: an adopted one is checked for a device as well", "[states]") {
    event_channel channel;
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(channel.native_handle(), &raw, nullptr, RDMA_PS_TCP) == 0);
    std::error_code ec;
    cm_id id = cm_id::adopt(raw, channel, ec);
    check_refused(
        "rdma_accept", unbound, [&] { id.accept(); }, [&](std::error_code& e) { id.accept({}, e); });
    check_refused(
        "rdma_reject", unbound, [&] { id.reject(); }, [&](std::error_code& e) { id.reject({}, e); });
    check_refused(
        "rdma_connect", unbound, [&] { id.connect(); }, [&](std::error_code& e) { id.connect({}, e); });
}

TEST_CASE_METHOD(unit::test, "context: of an id without a device fails with EINVAL", "[states]") {
    event_channel channel;
    const cm_id id(channel);
    const std::size_t before = fake::calls();
    const caught refused([&] { const context device(id); });
    CHECK(refused.code == EINVAL);
    CHECK(refused.call == "rdma_get_devices");
    CHECK(contains(refused.cause, unbound));
    std::error_code ec;
    CHECK_FALSE(context::create(id, ec));
    CHECK(number(ec) == EINVAL);
    CHECK(fake::calls() == before);
}

TEST_CASE_METHOD(unit::test, "cm_id: an empty address fails with EINVAL, without a C call", "[states]") {
    event_channel channel;
    const cm_id id(channel);
    check_refused(
        "rdma_bind_addr", "empty address", [&] { id.bind_addr(address()); },
        [&](std::error_code& ec) { id.bind_addr(address(), ec); });
    check_refused(
        "rdma_resolve_addr", "empty address", [&] { id.resolve_addr(address(), 1s); },
        [&](std::error_code& ec) { id.resolve_addr(address(), 1s, ec); });
    fake::fail("rdma_resolve_addr", 1, EINVAL);
    const address local = address::parse("192.0.2.1");
    const address peer = address::parse("[fe80::1]:7471");
    CHECK(contains(caught([&] { id.resolve_addr(local, peer, 1s); }).cause, "two families"));
    fake::fail("rdma_resolve_addr", 1, EINVAL);
    CHECK(caught([&] { id.resolve_addr(peer, 1s); }).cause.empty()); // bound to nothing yet
    fake::fail("rdma_resolve_addr", 1, EINVAL);
    CHECK(caught([&] { id.resolve_addr(local, local, 1s); }).cause.empty());
    check_refused(
        "rdma_listen", "a backlog below 1", [&] { id.listen(0); }, [&](std::error_code& ec) { id.listen(-1, ec); });
}

// ---------------------------------------------------------------- queue pairs of ids

TEST_CASE_METHOD(unit::test, "create_qp: a second one fails with EINVAL, without a C call", "[states]") {
    connection c;
    const qp_init_attr attr(c.cq);
    const qp_ref first = c.client.qp();
    check_refused(
        "rdma_create_qp", "the id has a queue pair already", [&] { c.client.create_qp(attr); },
        [&](std::error_code& ec) { CHECK_FALSE(c.client.create_qp(attr, ec)); });
    CHECK(c.client.qp() == first);
}

TEST_CASE_METHOD(unit::test, "create_qp: a PD of another device fails with EINVAL", "[states]") {
    fake::devices({{.name = "fake0", .addresses = {"192.0.2.1"}}, {.name = "fake1", .addresses = {"192.0.2.2"}}});
    bound_id on;
    const device_list devices;
    const context other(devices.find("fake1"));
    const pd domain(other);
    const context own(on.id);
    const cq queue(own, 8);
    check_refused(
        "rdma_create_qp", "the PD belongs to another device", [&] { on.id.create_qp(domain, qp_init_attr(queue)); },
        [&](std::error_code& ec) { CHECK_FALSE(on.id.create_qp(domain, qp_init_attr(queue), ec)); });
    const caught failed([&] { on.id.create_qp(domain, qp_init_attr(queue)); });
    CHECK(contains(diagnose(*failed.error), "another device"));
}

TEST_CASE_METHOD(unit::test, "create_qp: without a CQ fails with EINVAL, without a C call", "[states]") {
    bound_id on;
    const qp_init_attr attr{cq_ref()};
    check_refused(
        "rdma_create_qp", "empty CQ", [&] { on.id.create_qp(attr); },
        [&](std::error_code& ec) { CHECK_FALSE(on.id.create_qp(attr, ec)); });
}

TEST_CASE_METHOD(unit::test, "destroy_qp: without one fails with EINVAL, without a C call", "[states]") {
    bound_id on;
    check_refused(
        "ibv_destroy_qp", "the id has no queue pair", [&] { on.id.destroy_qp(); },
        [&](std::error_code& ec) { on.id.destroy_qp(ec); });
    connection c;
    c.client.destroy_qp();
    CHECK_FALSE(c.client.qp());
    CHECK(caught([&] { c.client.destroy_qp(); }).code == EINVAL);
    CHECK(fake::calls("ibv_destroy_qp") == 1);
}

TEST_CASE_METHOD(unit::test, "destroy_qp: one that fails keeps the queue pair", "[states]") {
    connection c;
    const qp_ref qp = c.client.qp();
    fake::fail("ibv_destroy_qp", 1, EBUSY);
    std::error_code ec;
    c.client.destroy_qp(ec);
    CHECK(number(ec) == EBUSY);
    CHECK(c.client.qp() == qp);
    c.client.destroy_qp(ec);
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "create_qp: what is granted is not written back into the attributes", "[states]") {
    bound_id a;
    bound_id b;
    const context device(a.id);
    const cq first(device, 8);
    const cq second(device, 8);
    qp_init_attr attr(first, 5);
    attr.max_inline_data(33);
    const ibv_qp_init_attr before = attr.raw();
    const qp_ref qp = a.id.create_qp(attr);
    CHECK(qp.cap().max_send_wr == 8); // more than asked for
    CHECK(qp.cap().max_inline_data == 48);
    b.id.create_qp(attr);
    CHECK(attr.raw().cap.max_send_wr == before.cap.max_send_wr);
    CHECK(attr.raw().cap.max_inline_data == before.cap.max_inline_data);
    CHECK(attr.raw().send_cq == first.native_handle());
    CHECK(attr.raw().recv_cq == first.native_handle());
    // And other attributes give other queues.
    b.id.destroy_qp();
    CHECK(b.id.create_qp(qp_init_attr(second)).send_cq() == second);
    CHECK(a.id.qp().send_cq() == first);
}

TEST_CASE_METHOD(unit::test, "create_qp: failing, it leaves PD and pins as they were", "[states]") {
    bound_id on;
    const pd_ref own = on.id.pd();
    std::optional<context> device(std::in_place, on.id);
    {
        const pd domain(*device);
        const cq queue(*device, 8);
        fake::fail("ibv_create_qp", 1, ENOMEM);
        const caught failed([&] { on.id.create_qp(domain, qp_init_attr(queue)); });
        CHECK(failed.code == ENOMEM);
        CHECK(failed.call == "rdma_create_qp");
    }
    CHECK(fake::calls("ibv_dealloc_pd") == 1);
    CHECK(fake::calls("ibv_destroy_cq") == 1);
    CHECK(on.id.pd() == own);
    CHECK_FALSE(on.id.qp());
}

TEST_CASE_METHOD(unit::test, "create_qp: more than the device has fails with EINVAL", "[states]") {
    bound_id on;
    const context device(on.id);
    const cq queue(device, 8);
    qp_init_attr attr(queue);
    const int what = GENERATE(0, 1, 2);
    if (what == 0)
        attr.max_inline_data(1 << 20);
    else if (what == 1)
        attr.max_send_sge(1000);
    else
        attr.max_recv_wr(1U << 30U);
    const caught failed([&] { on.id.create_qp(attr); });
    CHECK(failed.code == EINVAL);
    CHECK(failed.call == "rdma_create_qp");
    CHECK(contains(diagnose(*failed.error), "max_qp_wr"));
    CHECK(fake::successes("rdma_create_qp") == 0);
}

TEST_CASE_METHOD(unit::test, "create_qp: a type that is not the port space's is named", "[states]") {
    bound_id on;
    const context device(on.id);
    const cq queue(device, 8);
    fake::fail("rdma_create_qp", 1, EINVAL);
    const caught failed([&] { on.id.create_qp(qp_init_attr(queue).type(qp_type::ud)); });
    CHECK(failed.code == EINVAL);
    CHECK(contains(failed.cause, "port space"));
}

// ---------------------------------------------------------------- connect

TEST_CASE_METHOD(unit::test, "connect: before the route is known is the C call's EINVAL", "[states]") {
    fake::auto_connect();
    event_channel channel;
    cm_id id(channel);
    id.resolve_addr(connection::address(), 1s);
    channel.expect_and_ack(id, type::addr_resolved);
    const context device(id);
    const cq queue(device, 8);
    id.create_qp(qp_init_attr(queue));
    const caught failed([&] { id.connect(); });
    CHECK(failed.code == EINVAL);
    CHECK(failed.call == "rdma_connect");
    CHECK(failed.cause.empty());
    CHECK(contains(failed.what, "rdma_connect 192.0.2.1:7471: "));
    CHECK(fake::calls("rdma_connect") == 1);
}

TEST_CASE_METHOD(unit::test, "connect: without a queue pair is EINVAL, without a C call, but for datagrams",
                 "[states]") {
    fake::auto_connect();
    event_channel channel;
    cm_id id(channel);
    resolve(channel, id, connection::address(), 1s);
    check_refused(
        "rdma_connect", "no queue pair", [&] { id.connect(); }, [&](std::error_code& ec) { id.connect({}, ec); });
    id.connect({.qp_num = 17}); // of one that is not the id's
    CHECK(fake::calls("rdma_connect") == 1);
    cm_id datagrams(channel, port_space::udp);
    datagrams.resolve_addr(connection::address(), 1s);
    while (const cm_event event = channel.get_cm_event()) // the answer to the other id is among them
        if (event.id() == datagrams && event.type() == type::addr_resolved)
            break;
    datagrams.resolve_route(1s);
    channel.expect_and_ack(datagrams, type::route_resolved);
    datagrams.connect();
    CHECK(fake::calls("rdma_connect") == 2);
}

TEST_CASE_METHOD(unit::test, "connect: again is the C call's EINVAL, and says that it is", "[states]") {
    connection c;
    fake::fail("rdma_connect", 1, EINVAL);
    const caught failed([&] { c.client.connect(); });
    CHECK(failed.code == EINVAL);
    CHECK(contains(failed.cause, "called already"));
    fake::fail("rdma_connect", 1, ENOMEM);
    CHECK(caught([&] { c.client.connect(); }).cause.empty());
}

TEST_CASE_METHOD(unit::test, "connect: nobody listens on the port", "[states]") {
    fake::auto_connect();
    event_channel channel;
    cm_id id(channel);
    resolve(channel, id, address("192.0.2.1", 999), 1s);
    const context device(id);
    const cq queue(device, 8);
    id.create_qp(qp_init_attr(queue));
    id.connect();
    std::error_code ec;
    channel.expect_and_ack(id, type::established, ec);
    CHECK(ec == std::error_code(8, reject_category()));
    CHECK(contains(ec.message(), "nobody listens"));
}

TEST_CASE_METHOD(unit::test, "connect: defaults are retry 7, rnr_retry 7 and the device's depths", "[states]") {
    const rdma_conn_param seen = seen_by_peer({});
    CHECK(seen.retry_count == 7);
    CHECK(seen.rnr_retry_count == 7);
    CHECK(seen.flow_control == 1);
    CHECK(seen.responder_resources == fake::limits().max_rd_atom);
    CHECK(seen.initiator_depth == fake::limits().max_rd_atom);
    const rdma_conn_param c = detail::to_c(conn_param{});
    CHECK(c.responder_resources == RDMA_MAX_RESP_RES);
    CHECK(c.initiator_depth == RDMA_MAX_INIT_DEPTH);
    CHECK(c.private_data_len == 0);
}

TEST_CASE_METHOD(unit::test, "connect: passes each parameter on", "[states]") {
    const rdma_conn_param seen = seen_by_peer({.responder_resources = 1,
                                               .initiator_depth = 2,
                                               .flow_control = false,
                                               .retry_count = 3,
                                               .rnr_retry_count = 4});
    CHECK(seen.initiator_depth == 1);
    CHECK(seen.responder_resources == 2);
    CHECK(seen.flow_control == 0);
    CHECK(seen.retry_count == 3);
    CHECK(seen.rnr_retry_count == 4);
    const rdma_conn_param c = detail::to_c(conn_param{.srq = true, .qp_num = 99});
    CHECK(c.srq == 1);
    CHECK(c.qp_num == 99);
}

TEST_CASE_METHOD(unit::test, "connect: depths that the device does not have are EINVAL", "[states]") {
    connection c; // for its device
    cm_id id(c.channel);
    resolve(c.channel, id, connection::address(), 1s);
    id.create_qp(qp_init_attr(c.cq));
    CHECK(caught([&] { id.connect({.responder_resources = 200}); }).code == EINVAL);
    CHECK(caught([&] { id.connect({.initiator_depth = 200}); }).code == EINVAL);
    CHECK(caught([&] { id.disconnect(); }).cause == "neither connect nor accept was called");
}

// ---------------------------------------------------------------- accept and reject

TEST_CASE_METHOD(unit::test, "accept, reject: of an id of one's own fail with EINVAL, without a C call", "[states]") {
    connection c;
    constexpr const char* cause = "the id did not come with a connect_request";
    check_refused(
        "rdma_accept", cause, [&] { c.client.accept(); }, [&](std::error_code& ec) { c.client.accept({}, ec); });
    check_refused(
        "rdma_reject", cause, [&] { c.client.reject(); }, [&](std::error_code& ec) { c.client.reject({}, ec); });
    check_refused(
        "rdma_accept", cause, [&] { c.listener.accept(); }, [&](std::error_code& ec) { c.listener.accept({}, ec); });
}

TEST_CASE_METHOD(unit::test, "accept: without a queue pair fails with EINVAL, without a C call, and can be tried again",
                 "[states]") {
    requesting from;
    cm_event request = from.channel.expect(from.listener, type::connect_request);
    cm_id id = request.take_id();
    check_refused(
        "rdma_accept", "create_qp comes before accept", [&] { id.accept(); },
        [&](std::error_code& ec) { id.accept({}, ec); });
    id.create_qp(from.pd, from.attr);
    id.accept();
    from.channel.expect_and_ack(from.client, type::established);
    from.channel.expect_and_ack(id, type::established);
}

TEST_CASE_METHOD(unit::test, "accept: with the number of another queue pair needs none of the id's", "[states]") {
    requesting from;
    cm_event request = from.channel.expect(from.listener, type::connect_request);
    cm_id id = request.take_id();
    id.accept({.qp_num = 4711});
    CHECK(fake::calls("rdma_accept") == 1);
}

TEST_CASE_METHOD(unit::test, "accept, reject: an answer is given once, a second one is EINVAL without a C call",
                 "[states]") {
    const std::string first = GENERATE("accept", "reject");
    requesting from;
    cm_event request = from.channel.expect(from.listener, type::connect_request);
    cm_id id = request.take_id();
    id.create_qp(from.pd, from.attr);
    if (first == "accept")
        id.accept();
    else
        id.reject();
    const char* cause = first == "accept" ? "accepted already" : "rejected already";
    check_refused(
        "rdma_accept", cause, [&] { id.accept(); }, [&](std::error_code& ec) { id.accept({}, ec); });
    check_refused(
        "rdma_reject", cause, [&] { id.reject(); }, [&](std::error_code& ec) { id.reject({}, ec); });
    CHECK(fake::calls("rdma_accept") + fake::calls("rdma_reject") == 1);
    if (first == "reject") {
        const cm_event answer = from.channel.get_cm_event();
        CHECK(answer.type() == type::rejected);
        CHECK(answer.status() == 28);
    }
}

TEST_CASE_METHOD(unit::test, "accept: a failed one spends the id", "[states]") {
    requesting from;
    cm_event request = from.channel.expect(from.listener, type::connect_request);
    cm_id id = request.take_id();
    id.create_qp(from.pd, from.attr);
    fake::fail("rdma_accept", 1, EINVAL);
    const caught failed([&] { id.accept(); });
    CHECK(failed.code == EINVAL);
    CHECK(failed.cause.empty());
    check_refused(
        "rdma_accept", "an accept of it failed", [&] { id.accept(); }, [&](std::error_code& ec) { id.accept({}, ec); });
    check_refused(
        "rdma_reject", "an accept of it failed", [&] { id.reject(); }, [&](std::error_code& ec) { id.reject({}, ec); });
    check_refused(
        "rdma_disconnect", "neither connect nor accept", [&] { id.disconnect(); },
        [&](std::error_code& ec) { id.disconnect(ec); });
    CHECK(from.channel.get_cm_event().type() == type::rejected);
}

TEST_CASE_METHOD(unit::test, "reject: the peer gets the private data", "[states]") {
    requesting from;
    {
        cm_event request = from.channel.expect(from.listener, type::connect_request);
        cm_id id = request.take_id();
        const auto data = fake::bytes("sorry");
        id.reject(data);
    }
    const cm_event answer = from.channel.get_cm_event();
    CHECK(answer.type() == type::rejected);
    CHECK(answer.private_data().size() == 148);
    CHECK(answer.private_data()[0] == std::byte{'s'});
}

TEST_CASE_METHOD(unit::test, "reject: a failed one can be tried again", "[states]") {
    requesting from;
    cm_event request = from.channel.expect(from.listener, type::connect_request);
    cm_id id = request.take_id();
    fake::fail("rdma_reject", 1, ENOMEM);
    CHECK(caught([&] { id.reject(); }).code == ENOMEM);
    id.reject();
    CHECK(fake::calls("rdma_reject") == 2);
}

TEST_CASE_METHOD(unit::test, "accept: an adopted id may be accepted", "[states]") {
    requesting from;
    cm_event request = from.channel.expect(from.listener, type::connect_request);
    rdma_cm_id* raw = std::move(*std::make_unique<cm_id>(request.take_id())).release();
    std::error_code ec;
    cm_id id = cm_id::adopt(raw, from.channel, ec);
    REQUIRE(!ec);
    id.create_qp(from.pd, from.attr);
    id.accept();
    from.channel.expect_and_ack(from.client, type::established);
    from.channel.expect_and_ack(id, type::established);
    id.disconnect();
}

// ---------------------------------------------------------------- disconnect

TEST_CASE_METHOD(unit::test, "disconnect: before connect or accept fails with EINVAL, without a C call", "[states]") {
    constexpr const char* cause = "neither connect nor accept was called";
    requesting from;
    cm_event request = from.channel.expect(from.listener, type::connect_request);
    cm_id id = request.take_id();
    id.create_qp(from.pd, from.attr);
    check_refused(
        "rdma_disconnect", cause, [&] { id.disconnect(); }, [&](std::error_code& ec) { id.disconnect(ec); });
    check_refused(
        "rdma_disconnect", cause, [&] { from.listener.disconnect(); },
        [&](std::error_code& ec) { from.listener.disconnect(ec); });
    CHECK(id.qp().query().state() == qp_state::init); // not moved to the error state
}

TEST_CASE_METHOD(unit::test, "disconnect: after a success, later calls succeed without C", "[states]") {
    connection c;
    c.client.disconnect();
    c.client.disconnect();
    std::error_code ec = std::make_error_code(std::errc::io_error);
    c.client.disconnect(ec);
    CHECK(!ec);
    CHECK(fake::calls("rdma_disconnect") == 1);
    c.channel.expect_and_ack(c.server, type::disconnected);
    c.server.disconnect();
    c.channel.expect_and_ack(c.client, type::disconnected);
    CHECK(fake::calls("rdma_disconnect") == 2);
}

TEST_CASE_METHOD(unit::test, "disconnect: other errors pass, and the next one tries again", "[states]") {
    connection c;
    fake::fail("rdma_disconnect", 1, ENOTCONN);
    const caught failed([&] { c.client.disconnect(); });
    CHECK(failed.code == ENOTCONN);
    CHECK(failed.call == "rdma_disconnect");
    CHECK(contains(failed.what, "192.0.2.1:7471"));
    c.client.disconnect();
    CHECK(fake::calls("rdma_disconnect") == 2);
}

TEST_CASE_METHOD(unit::test, "disconnect: of a ref always makes the C call", "[states]") {
    connection c;
    const cm_id_ref ref = c.client;
    ref.disconnect();
    std::error_code ec;
    ref.disconnect(ec);
    CHECK(!ec);
    CHECK(fake::calls("rdma_disconnect") == 2);
}

TEST_CASE_METHOD(unit::test, "disconnect: of an unbound adopted id or ref is the C call's EINVAL", "[states]") {
    event_channel channel;
    rdma_cm_id* raw = nullptr;
    REQUIRE(::rdma_create_id(channel.native_handle(), &raw, nullptr, RDMA_PS_TCP) == 0);
    std::error_code ec;
    cm_id id = cm_id::adopt(raw, channel, ec);
    CHECK(caught([&] { id.disconnect(); }).code == EINVAL);
    CHECK(caught([&] { cm_id_ref(raw).disconnect(); }).code == EINVAL);
}

// ---------------------------------------------------------------- private data

TEST_CASE_METHOD(unit::test, "private data: over the limit is EINVAL that names it, without a C call", "[states]") {
    struct row {
        const char* what;
        port_space space;
        bool iwarp;
        std::size_t connect;
        std::size_t accept;
        std::size_t reject;
    };
    const row row = GENERATE(values<struct row>({
        {"connection", port_space::tcp, false, 56, 196, 148},
        {"datagram", port_space::udp, false, 180, 136, 136},
        {"iWARP", port_space::tcp, true, 255, 255, 255},
    }));
    CAPTURE(row.what);
    if (row.iwarp) {
        fake::devices({{.name = "iw0", .transport = IBV_TRANSPORT_IWARP, .node = IBV_NODE_RNIC}});
        fake::set().exact_private_data = true;
    }
    const std::string operation = GENERATE("connect", "accept", "reject");
    const std::size_t limit = operation == "connect" ? row.connect : operation == "accept" ? row.accept : row.reject;
    const std::string named = "more than " + std::to_string(limit) + " bytes of private data";
    const auto too_much = bytes(limit + 1);
    const auto most = bytes(limit);
    const std::string call = "rdma_" + operation;

    // The connect of the set-up carries the most.
    requesting from(row.space, operation == "connect" ? conn_param{.private_data = most} : conn_param{});
    cm_event request = from.channel.expect(from.listener, type::connect_request);
    if (operation == "connect") {
        CHECK(request.private_data().size() == limit);
        cm_id other(from.channel, row.space);
        std::move(request).ack();
        from.channel.expect_and_ack(from.client, row.space == port_space::udp ? type::unreachable : type::rejected);
        resolve(from.channel, other, connection::address(), 1s);
        check_refused(
            "rdma_connect", named, [&] { other.connect({.private_data = too_much}); },
            [&](std::error_code& ec) { other.connect({.private_data = too_much}, ec); });
        return;
    }
    cm_id id = request.take_id();
    id.create_qp(from.pd, from.attr);
    if (operation == "accept") {
        check_refused(
            "rdma_accept", named, [&] { id.accept({.private_data = too_much}); },
            [&](std::error_code& ec) { id.accept({.private_data = too_much}, ec); });
        id.accept({.private_data = most}); // the id is not spent by that
        const cm_event answer = from.channel.expect(from.client, type::established);
        CHECK(answer.private_data().size() == limit);
    } else {
        check_refused(
            "rdma_reject", named, [&] { id.reject(too_much); }, [&](std::error_code& ec) { id.reject(too_much, ec); });
        id.reject(most);
        const cm_event answer = from.channel.get_cm_event();
        CHECK(answer.private_data().size() == limit);
    }
}

TEST_CASE_METHOD(unit::test, "private data: a length that would wrap a byte is over the limit", "[states]") {
    fake::devices({{.name = "iw0", .transport = IBV_TRANSPORT_IWARP, .node = IBV_NODE_RNIC}});
    requesting from;
    cm_event request = from.channel.expect(from.listener, type::connect_request);
    cm_id id = request.take_id();
    for (const std::size_t size : {std::size_t{256}, std::size_t{257}, std::size_t{512}, std::size_t{65536 + 4}}) {
        const auto data = bytes(size);
        const caught refused([&] { id.reject(data); });
        CHECK(refused.code == EINVAL);
        CHECK(contains(refused.cause, "more than 255 bytes"));
    }
    CHECK(fake::calls("rdma_reject") == 0);
}

#if RDMAXX_HAS_AF_IB
TEST_CASE_METHOD(unit::test, "private data: an AF_IB connect carries 92 bytes, a datagram's 216", "[states]") {
    const bool datagram = GENERATE(false, true);
    const std::size_t limit = datagram ? 216 : 92;
    fake::auto_connect();
    event_channel channel;
    cm_id id(channel, datagram ? port_space::udp : port_space::tcp);
    resolve(channel, id, address::parse("ib[fe80::1]:0x1061d2f"), 1s);
    const auto too_much = bytes(limit + 1);
    check_refused(
        "rdma_connect", "more than " + std::to_string(limit) + " bytes of private data",
        [&] { id.connect({.private_data = too_much}); },
        [&](std::error_code& ec) { id.connect({.private_data = too_much}, ec); });
    const auto most = bytes(limit);
    std::error_code ec;
    id.connect({.private_data = most, .qp_num = 17}, ec);
    CHECK(fake::calls("rdma_connect") == 1); // what the peer says is another matter
}
#endif

// ---------------------------------------------------------------- addresses, context, order of events

TEST_CASE_METHOD(unit::test, "cm_id: both ends agree on the addresses, in host byte order", "[states]") {
    const bool v6 = GENERATE(false, true);
    fake::auto_connect();
    event_channel channel;
    cm_id listener(channel);
    listener.bind_addr(address(v6 ? "2001:db8::1" : "192.0.2.1", 0));
    const address at = listener.local_address();
    CHECK(at.port() != 0); // the kernel's choice
    listener.listen();
    cm_id client(channel);
    resolve(channel, client, at, 1s);
    CHECK(client.peer_address() == at);
    const context device(client);
    const cq queue(device, 8);
    client.create_qp(qp_init_attr(queue));
    client.connect();
    cm_event request = channel.expect(listener, type::connect_request);
    const cm_id server = request.take_id();
    CHECK(server.peer_address() == client.local_address());
    CHECK(server.local_address() == client.peer_address());
    CHECK(client.local_address().port() != 0);
    CHECK(client.ps() == port_space::tcp);
    CHECK(std::string(to_string(client.ps())) == "tcp");
    CHECK(client.port_num() == 1);
}

TEST_CASE_METHOD(unit::test, "cm_id: timeouts reach C in milliseconds, rounded up, within an int", "[states]") {
    bound_id on;
    const address peer("192.0.2.9", 1);
    const auto told = [&] {
        return fake::log().back().detail;
    };
    on.id.resolve_addr(peer, 1500ms);
    CHECK(contains(told(), " 1500 ms"));
    on.id.resolve_addr(peer, 1us);
    CHECK(contains(told(), " 1 ms"));
    on.id.resolve_addr(peer, -1s);
    CHECK(contains(told(), " 0 ms"));
    on.id.resolve_route(std::chrono::hours::max());
    CHECK(told() == "2147483647 ms");
    on.id.resolve_route(std::chrono::duration<double>(0.0105));
    CHECK(told() == "11 ms");
    on.id.resolve_route(0s);
    CHECK(told() == "0 ms");
}

TEST_CASE_METHOD(unit::test, "cm_id: a port that is taken is EADDRINUSE, a foreign address EADDRNOTAVAIL", "[states]") {
    fake::devices({{.name = "fake0", .addresses = {"192.0.2.1"}}});
    event_channel channel;
    const cm_id first(channel);
    first.bind_addr(address("192.0.2.1", 7471));
    const cm_id second(channel);
    const caught taken([&] { second.bind_addr(address("192.0.2.1", 7471)); });
    CHECK(taken.code == EADDRINUSE);
    CHECK(contains(taken.what, "rdma_bind_addr 192.0.2.1:7471: "));
    std::error_code ec;
    second.bind_addr(address("192.0.2.7", 7471), ec);
    CHECK(number(ec) == EADDRNOTAVAIL);
}

TEST_CASE_METHOD(unit::test, "cm_id: unreachable after established, and a second disconnected, are events like others",
                 "[states]") {
    connection c;
    push(c.client, type::unreachable, -EHOSTUNREACH);
    push(c.client, type::disconnected);
    push(c.client, type::disconnected);
    push(c.client, type::addr_change);
    std::vector<type> seen;
    while (const cm_event event = c.channel.try_get_cm_event())
        seen.push_back(event.type());
    CHECK(seen == std::vector<type>{type::unreachable, type::disconnected, type::disconnected, type::addr_change});
    CHECK(c.client.qp().query().state() == qp_state::rts); // nothing was destroyed behind the program's back
}

TEST_CASE_METHOD(unit::test,
                 "cm_id: events that end a connection come in any order and state, and end nothing by force",
                 "[states]") {
    constexpr std::array all = {type::established,   type::disconnected,   type::unreachable,
                                type::rejected,      type::connect_error,  type::addr_change,
                                type::timewait_exit, type::device_removal, static_cast<type>(1000)};
    const auto status_of = [](type t) {
        switch (t) {
        case type::unreachable: return -ETIMEDOUT;
        case type::connect_error: return -EIO;
        case type::rejected: return 28;
        default: return 0;
        }
    };
    const bool established = GENERATE(false, true);
    for (const type first : all)
        for (const type second : all) {
            CAPTURE(established, to_string(first), to_string(second));
            std::optional<connection> c;
            std::optional<requesting> asked;
            if (established)
                c.emplace();
            else
                asked.emplace();
            event_channel& channel = established ? c->channel : asked->channel;
            cm_id& id = established ? c->client : asked->client;
            while (const cm_event event = channel.try_get_cm_event())
                ; // the request of the one that is not established: refused, and its rejected
            push(id, first, status_of(first));
            push(id, second, status_of(second));
            std::vector<type> seen;
            while (const cm_event event = channel.try_get_cm_event()) {
                CHECK(event.id() == id);
                CHECK(static_cast<bool>(event.code()) == (status_of(event.type()) != 0));
                seen.push_back(event.type());
            }
            CHECK(seen == std::vector<type>{first, second});
            CHECK(id.qp());
            std::error_code ec;
            id.disconnect(ec); // whatever it says
            id.close(ec);
            CHECK(!ec);
            CHECK(fake::cm_events().held() == 0);
        }
}

TEST_CASE_METHOD(unit::test,
                 "cm_id: addr_change of an established id is an event, and the connection is as good as before",
                 "[states]") {
    connection c;
    push(c.client, type::addr_change);
    c.channel.expect_and_ack(c.client, type::addr_change);
    c.server.qp().post_recv(recv_wr().wr_id(5));
    c.client.qp().post_send(send_wr::send(std::span<const sge>()));
    std::array<wc, 1> received;
    REQUIRE(c.cq.poll(received).size() == 1);
    CHECK(received[0].wr_id() == 5);
    c.client.disconnect();
    c.channel.expect_and_ack(c.server, type::disconnected);
}

TEST_CASE_METHOD(unit::test, "close: any event that ends a connection is its answer, and others pass by", "[states]") {
    const type answer = GENERATE(type::disconnected, type::timewait_exit, type::device_removal, type::unreachable,
                                 type::connect_error, type::rejected);
    CAPTURE(to_string(answer));
    connection c;
    push(c.client, type::addr_change);
    push(c.server, type::disconnected); // another id's
    push(c.client, answer, answer == type::rejected ? 28 : 0);
    CHECK(close(c.channel, c.client, 30s));
    CHECK_FALSE(c.client);
    CHECK(fake::in_order({"rdma_disconnect", "ibv_destroy_qp", "rdma_destroy_id"}));
}

TEST_CASE_METHOD(unit::test, "close: without an answer the id ends at the deadline, and the failure of its end is told",
                 "[states]") {
    connection c;
    const auto start = std::chrono::steady_clock::now();
    CHECK_FALSE(close(c.channel, c.client, 30ms));
    CHECK(elapsed(start) >= 30ms);
    CHECK_FALSE(c.client);
    fake::fail("rdma_destroy_id").with(EBUSY);
    std::error_code ec;
    CHECK_FALSE(close(c.channel, c.server, 0s, ec));
    CHECK(number(ec) == EBUSY);
    CHECK(c.server); // and is there to be closed again
}

TEST_CASE_METHOD(unit::test, "event_channel: an event of a type that is not known is got and acked like others",
                 "[states]") {
    bound_id on;
    for (const int number : {20, 1000}) {
        fake::push_event({.type = number, .id = on.id.native_handle(), .status = -5});
        {
            const cm_event event = on.channel.try_get_cm_event();
            CHECK(static_cast<int>(event.type()) == number);
            CHECK(std::string(to_string(event.type())) == "unknown");
            CHECK(event.id() == on.id);
            CHECK(event.code() == std::error_code(5, std::system_category()));
            CHECK(event.private_data().empty());
            CHECK(static_cast<int>(event.snapshot().type()) == number);
        }
        CHECK_FALSE(on.channel.try_get_cm_event()); // nothing is left unread
    }
    CHECK(fake::cm_events().acked == 2);
}

TEST_CASE_METHOD(unit::test, "cm_id: the queue pair of an event's id is what is there now", "[states]") {
    connection c;
    push(c.client, type::disconnected);
    const cm_event event = c.channel.get_cm_event();
    CHECK(event.id().qp() == c.client.qp());
    c.client.destroy_qp();
    CHECK_FALSE(event.id().qp());
}

TEST_CASE_METHOD(unit::test, "cm_id: an id without a queue pair gets connect_response", "[states]") {
    fake::auto_connect();
    event_channel channel;
    cm_id listener(channel);
    listener.bind_addr(connection::address());
    listener.listen();
    cm_id client(channel);
    resolve(channel, client, connection::address(), 1s);
    client.connect({.qp_num = 77});
    cm_event request = channel.expect(listener, type::connect_request);
    CHECK(request.conn_param().qp_num == 77);
    cm_id server = request.take_id();
    server.accept({.qp_num = 78});
    const cm_event answer = channel.expect(client, type::connect_response);
    CHECK(answer.conn_param().qp_num == 78);
    CHECK(answer.private_data().size() == 196);
}
