// Connections from the first call to the last: order of calls, private data, answers, ends.
#include "live.hpp"

#include <array>
#include <string>
#include <thread>

#include <poll.h>

using namespace live;
using rdmaxx::cm_event;
using rdmaxx::cm_event_type;

namespace {

/// A client that asked `local` for a connection, and the id of its request.
struct asked {
    explicit asked(host& local, const rdmaxx::conn_param& param = {})
        : client(resolved(channel, local.address()), local.domain) {
        client.id.connect(param);
        server = local.request();
    }

    rdmaxx::event_channel channel;
    end client;
    end server;
};

const std::error_code nobody_listens(8, rdmaxx::reject_category());

std::string cause_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const rdmaxx::error& e) {
        CHECK(e.code() == std::errc::invalid_argument);
        CHECK(rdmaxx::diagnose(e) == std::string(e.cause()) + ".");
        return e.cause();
    }
    return "nothing was thrown";
}

/// What arrived, up to the padding, which must be zeroes.
std::string unpadded(std::span<const std::byte> data) {
    std::size_t size = data.size();
    while (size > 0 && data[size - 1] == std::byte{0})
        --size;
    return text(data.first(size));
}

} // namespace

// ---------------------------------------------------------------------------------------------------------------
// The order of calls.

TEST_CASE_METHOD(fixture, "every call before its time is EINVAL, and does no harm", "[ib][connection][asan]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    const rdmaxx::cq cq(local.device, 8);
    std::error_code ec;
    const auto refused = [&]() {
        const bool result = ec == std::errc::invalid_argument;
        ec.clear();
        return result;
    };
    CHECK_FALSE(id.verbs());
    CHECK_FALSE(id.pd());
    CHECK_FALSE(id.qp());
    CHECK_FALSE(id.peer_address());
    id.connect({}, ec);
    CHECK(refused());
    id.accept({}, ec);
    CHECK(refused());
    id.reject({}, ec);
    CHECK(refused());
    id.resolve_route(1s, ec);
    CHECK(refused());
    id.create_qp(rdmaxx::qp_init_attr(cq), ec);
    CHECK(refused());
    id.create_qp(local.domain, rdmaxx::qp_init_attr(cq), ec);
    CHECK(refused());
    id.destroy_qp(ec);
    CHECK(refused());
    id.disconnect(ec);
    CHECK(refused());
    id.listen(0, ec);
    CHECK(refused());
    id.bind_addr(rdmaxx::address(), ec);
    CHECK(refused());
    id.resolve_addr(rdmaxx::address(), 1s, ec);
    CHECK(refused());
    CHECK_FALSE(rdmaxx::context::create(id, ec));
    CHECK(refused());

    // And each is fine in its time.
    id.resolve_addr(local.address(), 2s);
    static_cast<void>(get(channel, cm_event_type::addr_resolved));
    id.connect({}, ec); // before route_resolved: the kernel says so
    CHECK(refused());
    id.resolve_route(2s);
    static_cast<void>(get(channel, cm_event_type::route_resolved));
    id.create_qp(rdmaxx::qp_init_attr(cq));
    id.disconnect(ec);
    CHECK(refused());
    CHECK(id.qp().query().state() == rdmaxx::qp_state::init); // librdmacm would have moved it to the error state
    id.accept({}, ec);
    CHECK(refused());
    id.connect();
    end server = local.request();
    server.id.accept();
    static_cast<void>(get(channel, cm_event_type::established));
    id.connect({}, ec);
    CHECK(refused());
}

TEST_CASE_METHOD(fixture, "a request is answered once: reject then accept, accept twice are EINVAL", "[connection]") {
    host local;
    asked a(local);
    std::error_code ec;
    SECTION("rejected") {
        a.server.id.reject();
        CHECK(cause_of([&]() { a.server.id.accept(); }).find("rejected already") != std::string::npos);
        CHECK(cause_of([&]() { a.server.id.reject(); }).find("rejected already") != std::string::npos);
        CHECK(next(a.channel).code() == rejected_by_program());
    }
    SECTION("accepted") {
        a.server.id.accept();
        CHECK(cause_of([&]() { a.server.id.accept(); }).find("accepted already") != std::string::npos);
        CHECK(cause_of([&]() { a.server.id.reject(); }).find("accepted already") != std::string::npos);
        CHECK(next(a.channel).type() == cm_event_type::established);
        CHECK(next(local.channel).type() == cm_event_type::established);
        a.server.id.accept({}, ec); // still
        CHECK(ec == std::errc::invalid_argument);
        a.client.id.accept({}, ec);
        CHECK(ec == std::errc::invalid_argument);
    }
    SECTION("accepted without a queue pair, and then with one") {
        const rdmaxx::cq cq(local.device, 8);
        a.server.id.destroy_qp();
        CHECK(cause_of([&]() { a.server.id.accept(); }).find("no queue pair") != std::string::npos);
        a.server.id.create_qp(local.domain, rdmaxx::qp_init_attr(cq));
        a.server.id.accept();
        CHECK(next(a.channel).type() == cm_event_type::established);
    }
}

TEST_CASE_METHOD(fixture, "an id whose connection failed cannot connect again, a new one can", "[connection]") {
    host local;
    asked a(local);
    a.server.id.reject();
    CHECK(next(a.channel).code() == rejected_by_program());
    std::error_code ec;
    a.client.id.connect({}, ec);
    CHECK(ec == std::errc::invalid_argument);
    asked again(local);
    again.server.id.accept();
    CHECK(next(again.channel).type() == cm_event_type::established);
}

TEST_CASE_METHOD(fixture, "both ends agree on both addresses, with a port of the kernel's choice", "[connection]") {
    const connection c(options{.at = GENERATE(ipv4(), ipv6())});
    CHECK(c.local.address().port() != 0);
    CHECK(c.server.id.local_address() == c.local.address());
    CHECK(c.client.id.peer_address() == c.local.address());
    CHECK(c.client.id.local_address() == c.server.id.peer_address());
    CHECK(c.client.id.local_address().port() != 0);
    CHECK(c.client.id.port_num() == 1);
    CHECK(c.client.id.verbs() == c.local.device);
    CHECK(rdmaxx::address::parse(c.client.id.local_address().to_string()) == c.client.id.local_address());
}

// ---------------------------------------------------------------------------------------------------------------
// Private data.

TEST_CASE_METHOD(fixture, "a request carries up to 56 bytes, of which the peer sees 56; more is EINVAL",
                 "[ib][connection][private_data]") {
    host local;
    rdmaxx::event_channel channel;
    end client(resolved(channel, local.address()), local.domain);
    const std::string data(GENERATE(0U, 1U, 56U), 'c');
    const std::string too_much(57, 'c');
    CHECK(cause_of([&]() { client.id.connect({.private_data = bytes(too_much)}); }).find("more than 56 bytes") !=
          std::string::npos);
    client.id.connect({.private_data = bytes(data)}); // the id is as good as before
    const cm_event request = get(local.channel, cm_event_type::connect_request);
    CHECK(request.private_data().size() == 56);
    CHECK(unpadded(request.private_data()) == data);
}

TEST_CASE_METHOD(fixture, "an accept carries up to 196 bytes, of which the peer sees 196; more is EINVAL",
                 "[ib][connection][private_data]") {
    host local;
    asked a(local);
    const std::string data(GENERATE(0U, 1U, 196U), 'a');
    const std::string too_much(197, 'a');
    CHECK(cause_of([&]() { a.server.id.accept({.private_data = bytes(too_much)}); }).find("more than 196 bytes") !=
          std::string::npos);
    a.server.id.accept({.private_data = bytes(data)}); // librdmacm would have rejected the peer
    {
        const cm_event established = get(a.channel, cm_event_type::established);
        CHECK(established.private_data().size() == 196);
        CHECK(unpadded(established.private_data()) == data);
    }
    {
        // This side's own carries nothing.
        const cm_event established = get(local.channel, cm_event_type::established);
        CHECK(unpadded(established.private_data()).empty());
    }
    a.client.id.disconnect();
    const cm_event disconnected = get(local.channel, cm_event_type::disconnected);
    CHECK(unpadded(disconnected.private_data()).empty());
}

TEST_CASE_METHOD(fixture, "a reject carries up to 148 bytes, of which the peer sees 148; more is EINVAL",
                 "[ib][connection][private_data]") {
    host local;
    asked a(local);
    const std::string data(GENERATE(0U, 1U, 148U), 'r');
    const std::string too_much(149, 'r');
    CHECK(cause_of([&]() { a.server.id.reject(bytes(too_much)); }).find("more than 148 bytes") != std::string::npos);
    SECTION("rejected") {
        a.server.id.reject(bytes(data));
        const cm_event rejected = get(a.channel, cm_event_type::rejected);
        CHECK(rejected.code() == rejected_by_program());
        CHECK(rejected.private_data().size() == 148);
        CHECK(unpadded(rejected.private_data()) == data);
    }
    SECTION("or accepted after all") {
        a.server.id.accept();
        CHECK(next(a.channel).type() == cm_event_type::established);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Refusals.

TEST_CASE_METHOD(fixture, "nobody listens: rejected, reason 8, which equals connection_refused",
                 "[ib][connection][asan]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::address nobody;
    {
        const rdmaxx::cm_id taken(channel);
        taken.bind_addr(ipv4());
        nobody = taken.local_address();
    }
    end client(resolved(channel, nobody), local.domain);
    client.id.connect();
    const rdmaxx::cm_event_snapshot refused = next(channel);
    CHECK(refused.type() == cm_event_type::rejected);
    CHECK(refused.status() == 8);
    CHECK(refused.code() == nobody_listens);
    CHECK(refused.code() == std::errc::connection_refused);
    CHECK(refused.code() != std::errc::timed_out);
    CHECK(refused.code().message().find("nobody listens") != std::string::npos);
    CHECK(rdmaxx::diagnose(refused.code(), "rdma_get_cm_event").find("said no") != std::string::npos);
    CHECK(client.qp.query().state() == rdmaxx::qp_state::err); // the get moved it there
}

TEST_CASE_METHOD(fixture, "a request dropped untaken, or taken and dropped unanswered, is rejected with reason 28",
                 "[connection]") {
    host local;
    rdmaxx::event_channel channel;
    end client(resolved(channel, local.address()), local.domain);
    client.id.connect();
    {
        cm_event request = get(local.channel, cm_event_type::connect_request);
        if (GENERATE(true, false)) {
            const rdmaxx::cm_id taken = request.take_id();
            std::move(request).ack();
        }
    }
    const rdmaxx::cm_event_snapshot refused = next(channel);
    CHECK(refused.type() == cm_event_type::rejected);
    CHECK(refused.code() == rejected_by_program());
}

TEST_CASE_METHOD(fixture, "requests beyond the backlog are dropped, not rejected, and come again", "[ib][connection]") {
    host local(ipv4(), 2);
    rdmaxx::event_channel channel;
    std::vector<end> clients;
    for (int i = 0; i < 6; ++i) {
        clients.emplace_back(resolved(channel, local.address()), local.domain);
        clients.back().id.connect();
    }
    std::this_thread::sleep_for(100ms);
    int delivered = 0;
    while (local.channel.get_cm_event_for(50ms))
        ++delivered;
    CHECK(delivered == 2);
    for (int i = 0; i < delivered; ++i)
        CHECK(next(channel).code() == rejected_by_program());
    // The kernel leaves the others without an answer, so that theirs asks again: after about six seconds.
    CHECK_FALSE(channel.get_cm_event_for(50ms));
    CHECK(next(local.channel).type() == cm_event_type::connect_request);
}

// ---------------------------------------------------------------------------------------------------------------
// Ends.

TEST_CASE_METHOD(fixture, "disconnect twice is fine, and this side's event comes when both did", "[ib][connection]") {
    connection c;
    c.client.id.disconnect();
    c.client.id.disconnect();
    CHECK(next(c.local.channel).type() == cm_event_type::disconnected);
    CHECK_FALSE(c.channel.get_cm_event_for(50ms));
    c.server.id.disconnect();
    c.server.id.disconnect();
    CHECK(next(c.channel).type() == cm_event_type::disconnected);
    c.client.id.disconnect();
    CHECK_FALSE(c.local.channel.get_cm_event_for(20ms)); // one for each side
}

TEST_CASE_METHOD(fixture, "both sides may disconnect at once", "[connection]") {
    connection c;
    c.client.id.disconnect();
    c.server.id.disconnect();
    CHECK(next(c.channel).type() == cm_event_type::disconnected);
    CHECK(next(c.local.channel).type() == cm_event_type::disconnected);
}

TEST_CASE_METHOD(fixture, "disconnecting a listener, or before connect, is EINVAL", "[connection]") {
    host local;
    std::error_code ec;
    local.listener.disconnect(ec);
    CHECK(ec == std::errc::invalid_argument);
    asked a(local);
    a.server.id.disconnect(ec);
    CHECK(ec == std::errc::invalid_argument);
    a.server.id.accept(); // did no harm
    CHECK(next(a.channel).type() == cm_event_type::established);
}

TEST_CASE_METHOD(fixture, "disconnect before the peer has answered undoes the connection", "[ib][connection]") {
    host local;
    asked a(local);
    a.client.id.disconnect(); // the kernel has nothing to end yet, but the queue pair is in the error state
    CHECK(a.client.qp.query().state() == rdmaxx::qp_state::err);
    a.server.id.accept();
    CHECK(next(a.channel).to_string() == "connect_error: Invalid argument");
    CHECK_FALSE(local.channel.get_cm_event_for(50ms)); // it hears of it when the client's id ends
    a.client = end();
    CHECK(next(local.channel).to_string() == "rejected: rejected by the peer's program");
}

TEST_CASE_METHOD(fixture, "a client that goes at any time leaves the server with an event that says so",
                 "[ib][connection][asan]") {
    host local;
    for (int round = 0; round < 20; ++round) {
        rdmaxx::event_channel channel;
        end client(resolved(channel, local.address()), local.domain);
        client.id.connect();
        end server = local.request();
        std::error_code ec;
        switch (round % 4) {
        case 0: // before the answer
            client = end();
            server.id.accept({}, ec);
            break;
        case 1: // between the answer and the client's last message
            server.id.accept();
            client = end();
            break;
        case 2: // right after
            server.id.accept();
            static_cast<void>(get(channel, cm_event_type::established));
            client = end();
            break;
        case 3: // with its event channel, which tells the kernel only
            server.id.accept();
            static_cast<void>(get(channel, cm_event_type::established));
            client.id = rdmaxx::cm_id();
            channel = rdmaxx::event_channel(nullptr);
            break;
        default: break;
        }
        if (ec)
            continue; // the kernel knew: it is the accept that failed
        bool ended = false;
        while (!ended) {
            const cm_event event = local.channel.get_cm_event_for(soon);
            CAPTURE(round, to_string(event.type()));
            REQUIRE((event.type() == cm_event_type::established || event.type() == cm_event_type::disconnected ||
                     event.type() == cm_event_type::rejected || event.type() == cm_event_type::unreachable ||
                     event.type() == cm_event_type::connect_error));
            ended = event.type() != cm_event_type::established;
        }
        server.id.disconnect(ec); // in whatever state: no harm
    }
}

TEST_CASE_METHOD(fixture, "notify of a message that came before the handshake's last is established",
                 "[ib][connection]") {
    host local;
    asked a(local);
    a.server.id.accept();
    a.server.id.notify(); // as IBV_EVENT_COMM_EST says so; the client has not seen the answer yet
    CHECK(next(local.channel).type() == cm_event_type::established);
    CHECK(next(a.channel).type() == cm_event_type::established);
    std::error_code ec;
    a.server.id.notify(IBV_EVENT_PORT_ACTIVE, ec);
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(fixture, "close ends a connection in its time, whether the peer answers or not",
                 "[ib][connection][asan]") {
    connection c;
    std::error_code ec;
    const stopwatch waited;
    SECTION("it does not") {
        CHECK_FALSE(rdmaxx::close(c.channel, c.client.id, 100ms));
        CHECK(waited.elapsed() >= 100ms);
    }
    SECTION("it does") {
        std::thread answering([&]() {
            static_cast<void>(get(c.local.channel, cm_event_type::disconnected));
            c.server.id.disconnect();
        });
        CHECK(rdmaxx::close(c.channel, c.client.id, soon));
        answering.join();
    }
    SECTION("it was the first, and its event waits unfetched") {
        c.server.id.disconnect();
        pollfd ready = {c.channel.fd(), POLLIN, 0};
        REQUIRE(::poll(&ready, 1, 20'000) == 1);
        CHECK(rdmaxx::close(c.channel, c.client.id, soon));
    }
    SECTION("it was the first, and its event is through") {
        c.server.id.disconnect();
        static_cast<void>(get(c.channel, cm_event_type::disconnected));
        c.client.id.disconnect(); // is all that is needed
        c.client.id.close();
    }
    SECTION("it is gone") {
        c.server = end();
        CHECK(rdmaxx::close(c.channel, c.client.id, soon));
    }
    SECTION("there was no connection") {
        rdmaxx::cm_id id = resolved(c.channel, c.local.address());
        CHECK(rdmaxx::close(c.channel, id, soon));
        CHECK_FALSE(id);
        CHECK(rdmaxx::close(c.channel, id, soon)); // nor an id
        c.client.id = rdmaxx::cm_id();
    }
    CHECK(waited.elapsed() < soon);
    CHECK_FALSE(c.client.id);
}

TEST_CASE_METHOD(fixture, "timewait_exit comes when both have disconnected, after the packets' lifetime",
                 "[ib][connection]") {
    connection c;
    c.client.id.disconnect();
    CHECK(next(c.local.channel).type() == cm_event_type::disconnected);
    c.server.id.disconnect();
    CHECK(next(c.channel).type() == cm_event_type::disconnected);
    CHECK(next(c.channel).type() == cm_event_type::timewait_exit);
    CHECK(next(c.local.channel).type() == cm_event_type::timewait_exit);
    c.client.id.disconnect(); // no harm
}

TEST_CASE_METHOD(fixture, "a client that comes before its server tries again, with a new id each time",
                 "[ib][connection]") {
    const host device; // its context and PD, for all tries
    rdmaxx::event_channel channel;
    rdmaxx::address there;
    {
        const rdmaxx::cm_id taken(channel);
        taken.bind_addr(ipv4());
        there = taken.local_address();
    }
    rdmaxx::event_channel listening;
    rdmaxx::cm_id listener;
    end client;
    end server;
    for (int tries = 1; !server.id; ++tries) {
        REQUIRE(tries <= 4);
        client = end(resolved(channel, there), device.domain);
        client.id.connect();
        if (tries < 4) {
            const rdmaxx::cm_event_snapshot refused = next(channel);
            CHECK(refused.code() == nobody_listens);
            CHECK(rdmaxx::classify(refused.code()) == rdmaxx::error_class::transient);
        } else {
            server = end(get(listening, cm_event_type::connect_request).take_id(), device.domain);
            server.id.accept();
        }
        if (tries == 3) {
            listener = rdmaxx::cm_id(listening);
            listener.bind_addr(there);
            listener.listen();
        }
    }
    CHECK(next(channel).type() == cm_event_type::established);
}

// ---------------------------------------------------------------------------------------------------------------
// What outlives what.

TEST_CASE_METHOD(fixture, "a connection outlives the listener and the channel that it came from",
                 "[connection][asan]") {
    connection c;
    c.local.listener = rdmaxx::cm_id();
    c.local.channel = rdmaxx::event_channel(nullptr);
    for (int i = 0; i < 100; ++i) {
        c.server.qp.post_recv(c.server.mr);
        c.client.put(std::to_string(i));
        c.client.qp.post_send(c.client.mr.sge(0, 4));
        CHECK(c.server.next_ok().is_recv());
        CHECK(c.client.next_ok().ok());
    }
    c.server.id.disconnect();
    CHECK(next(c.channel).type() == cm_event_type::disconnected);
}

TEST_CASE_METHOD(fixture, "the context of an id keeps PD and memory usable when the last id is gone",
                 "[connection][asan]") {
    rdmaxx::context device;
    {
        rdmaxx::event_channel channel;
        const rdmaxx::cm_id id(channel);
        id.bind_addr(ipv4());
        device = rdmaxx::context(id);
        CHECK(device == id.verbs());
    }
    const rdmaxx::pd domain(device);
    std::vector<std::byte> memory(4096);
    const rdmaxx::mr mr(domain, memory, full_access);
    CHECK(device.query_device().max_mr > 0);

    // New ids of the same device have the same context: what was made before them works with them.
    host local;
    CHECK(local.listener.verbs() == device);
    rdmaxx::event_channel channel;
    end client(resolved(channel, local.address()), domain);
    client.id.connect();
    end server(get(local.channel, cm_event_type::connect_request).take_id(), domain);
    server.qp.post_recv(mr);
    server.id.accept();
    static_cast<void>(get(channel, cm_event_type::established));
    client.put("kept");
    client.qp.post_send(client.mr.sge(0, 4));
    CHECK(server.next_ok().byte_len() == 4U);
    CHECK(text(std::span(memory).first(4)) == "kept");
}

TEST_CASE_METHOD(fixture, "an id's own PD serves its queue pair and its memory", "[connection]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id = resolved(channel, local.address());
    const rdmaxx::cq cq(id.verbs(), 4);
    std::array<std::byte, 64> memory{};
    const rdmaxx::mr mr(id.pd(), memory);
    const rdmaxx::qp_ref qp = id.create_qp(rdmaxx::qp_init_attr(cq, 2));
    CHECK(qp.pd() == id.pd());
    CHECK(mr.pd() == id.pd());
    id.connect();
    end server = local.request();
    server.qp.post_recv(server.mr);
    server.id.accept();
    static_cast<void>(get(channel, cm_event_type::established));
    qp.post_send(mr);
    CHECK(server.next_ok().byte_len() == 64U);
}

TEST_CASE_METHOD(fixture, "create_qp on a PD of one's own gives the id's PD back with destroy_qp", "[connection]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id = resolved(channel, local.address());
    const rdmaxx::pd_ref librarys = id.pd();
    const rdmaxx::cq cq(local.device, 4);
    id.create_qp(local.domain, rdmaxx::qp_init_attr(cq));
    CHECK(id.pd() == local.domain);
    id.destroy_qp();
    CHECK(id.pd() == librarys);
    CHECK_FALSE(id.qp());
    id.create_qp(rdmaxx::qp_init_attr(cq));
    CHECK(id.qp().pd() == librarys);
}

TEST_CASE_METHOD(fixture, "127.0.0.1 leads to a device and no further: ENODEV for the route", "[ib][connection]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id listener(channel);
    listener.bind_addr(rdmaxx::address("127.0.0.1", 0)); // an address that no device has is none of its own
    CHECK_FALSE(listener.verbs());
    listener.listen();

    // The kernel takes whichever device is active, and finds no interface for the address when it comes to the route.
    const rdmaxx::cm_id id(channel);
    id.resolve_addr(listener.local_address(), 500ms);
    CHECK(next(channel).to_string() == "addr_resolved");
    CHECK(id.verbs());
    std::error_code ec;
    id.resolve_route(500ms, ec);
    CHECK(ec == std::errc::no_such_device);
}

TEST_CASE_METHOD(fixture, "a neighbour that changes makes an established id unreachable, and does not end it",
                 "[ib][connection]") {
    if (!in_vm()) {
        WARN("skipped: changes the machine's neighbours");
        return;
    }
    connection c;
    // Since Linux 6.0 any id whose neighbour changes is told so, whatever its state.
    const std::string neighbour = variable("RIG_ADDR4") + " dev " + variable("RIG_NETDEV");
    const auto run = [](const std::string& command) {
        return std::system(command.c_str());
    }; // NOLINT(concurrency-mt-unsafe)
    REQUIRE(run("ip neigh replace " + neighbour + " lladdr 02:00:00:00:00:99") == 0);
    const rdmaxx::cm_event_snapshot event = next(c.channel);
    CHECK(event.to_string() == "unreachable: " + std::make_error_code(std::errc::timed_out).message());
    REQUIRE(run("ip neigh del " + neighbour) == 0);
    c.server.qp.post_recv(c.server.mr);
    c.client.qp.post_send(c.client.mr);
    CHECK(c.server.next_ok().is_recv());
    c.client.id.disconnect();
    CHECK(next(c.local.channel).type() == cm_event_type::disconnected);
}
