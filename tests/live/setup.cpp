// Before a connection: names, options, devices; and what newer versions of librdmacm have for it.
#include "live.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <infiniband/sa.h>
#include <netdb.h>

using namespace live;
using rdmaxx::cm_event_type;

// ---------------------------------------------------------------------------------------------------------------
// Names.

TEST_CASE_METHOD(fixture, "addresses are found for a name and a service, for both sides", "[addrinfo][asan]") {
    const std::string mine = variable("RIG_ADDR4");
    using enum rdmaxx::addrinfo_flags;
    const rdmaxx::addrinfo there(mine.c_str(), "7471", {.flags = numeric_host});
    int found = 0;
    for (const rdmaxx::addrinfo_entry entry : there) {
        CHECK(entry.ps() == rdmaxx::port_space::tcp);
        CHECK(entry.type() == rdmaxx::qp_type::rc);
        if (entry.family() == AF_INET) {
            CHECK(entry.destination() == ipv4(7471));
            ++found;
        }
    }
    CHECK(found == 1);
    const rdmaxx::addrinfo here(
        mine.c_str(), "7471",
        {.flags = numeric_host | passive, .ps = rdmaxx::port_space::udp, .type = rdmaxx::qp_type::ud});
    CHECK(rdmaxx::has(here.front().flags(), passive));
    CHECK(here.front().source() == ipv4(7471));
    CHECK(here.front().ps() == rdmaxx::port_space::udp);
    const rdmaxx::addrinfo six(variable("RIG_ADDR6").c_str(), "7471", {.flags = numeric_host});
    CHECK(six.front().destination() == ipv6(7471));
    const rdmaxx::addrinfo from(mine.c_str(), "7471", {.source = ipv4(4711)});
    CHECK(from.front().source() == ipv4(4711));

    // Good for an id.
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    rdmaxx::resolve(channel, id, there.front().destination(), 2s);
    CHECK(id.peer_address() == ipv4(7471));
}

TEST_CASE_METHOD(fixture, "a name or service that is not known is its EAI code, in a category of its own",
                 "[addrinfo]") {
    using enum rdmaxx::addrinfo_flags;
    std::error_code ec;
    CHECK_FALSE(rdmaxx::addrinfo::create("no number", "7471", {.flags = numeric_host}, ec));
    CHECK(ec == std::error_code(EAI_NONAME, rdmaxx::addrinfo_category()));
    CHECK(ec.message() == ::gai_strerror(EAI_NONAME));
    CHECK(rdmaxx::classify(ec) == rdmaxx::error_class::permanent);
    CHECK(rdmaxx::classify({EAI_AGAIN, rdmaxx::addrinfo_category()}) == rdmaxx::error_class::transient);
    try {
        const rdmaxx::addrinfo none(variable("RIG_ADDR4").c_str(), "no-such-service", {.flags = numeric_host});
        FAIL("nothing was thrown");
    } catch (const rdmaxx::error& e) {
        CHECK(e.code() == std::error_code(EAI_SERVICE, rdmaxx::addrinfo_category()));
        CHECK(std::string(e.what()) ==
              "rdma_getaddrinfo " + variable("RIG_ADDR4") + ":no-such-service: " + ::gai_strerror(EAI_SERVICE));
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Options.

TEST_CASE_METHOD(fixture, "options of an id arrive at its queue pair, and one out of range is EINVAL",
                 "[ib][options]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    id.set_tos(0x20);
    std::error_code ec;
    id.set_ack_timeout(32, ec);
    CHECK(ec == std::errc::invalid_argument);
    id.set_ack_timeout(17);
    rdmaxx::resolve(channel, id, local.address(), 2s);
    end client(std::move(id), local.domain);
    client.id.connect();
    end server = local.request();
    server.id.accept();
    static_cast<void>(get(channel, cm_event_type::established));
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    REQUIRE(::ibv_query_qp(client.qp.native_handle(), &attr, IBV_QP_AV | IBV_QP_TIMEOUT, &init) == 0);
    CHECK(attr.timeout == 17);
    CHECK(attr.ah_attr.grh.traffic_class == 0x20);
}

TEST_CASE_METHOD(fixture, "a port is shared by ids that reuse it, or by one for each family", "[options]") {
    rdmaxx::event_channel channel;
    std::error_code ec;
    const rdmaxx::cm_id first(channel);
    rdmaxx::cm_id second(channel);
    SECTION("reuse") {
        first.set_reuseaddr(true);
        second.set_reuseaddr(true);
        first.bind_addr(ipv4());
        second.bind_addr(first.local_address());
        CHECK(second.local_address() == first.local_address());
        const rdmaxx::cm_id other(channel);
        other.bind_addr(first.local_address(), ec);
        CHECK(ec == std::errc::address_in_use);
        first.listen(1, ec); // for itself alone
        CHECK(ec == std::errc::address_in_use);
        second = rdmaxx::cm_id();
        first.listen();
    }
    SECTION("for IPv6 only") {
        const bool only = GENERATE(false, true);
        first.set_afonly(only);
        first.bind_addr(rdmaxx::address("::", 0));
        first.listen();
        second.bind_addr(rdmaxx::address("0.0.0.0", first.local_address().port()), ec);
        CHECK(!ec == only);
    }
}

TEST_CASE_METHOD(fixture, "a path of the program's own is route_resolved, and connects", "[ib][options]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    std::error_code ec;
    ibv_path_data path{};
    path.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
    id.set_ib_path({}, ec);
    CHECK(ec == std::errc::invalid_argument);
    id.set_ib_path(std::span(&path, 1), ec); // before the address is resolved
    CHECK(ec == std::errc::invalid_argument);
    id.resolve_addr(local.address(), 2s);
    static_cast<void>(get(channel, cm_event_type::addr_resolved));
    const ibv_sa_path_rec found = [&]() {
        // As the kernel would have it: from an id that asks.
        const rdmaxx::cm_id asking = resolved(channel, local.address());
        return *asking.native_handle()->route.path_rec;
    }();
    ibv_path_record& record = path.path;
    record.dgid = found.dgid;
    record.sgid = found.sgid;
    record.flowlabel_hoplimit = htonl(static_cast<std::uint32_t>(found.hop_limit));
    record.reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1;
    record.pkey = found.pkey;
    record.mtu = static_cast<std::uint8_t>(2 << 6 | found.mtu);
    record.rate = static_cast<std::uint8_t>(2 << 6 | found.rate);
    record.packetlifetime = static_cast<std::uint8_t>(2 << 6 | found.packet_life_time);
    id.set_ib_path(std::span(&path, 1));
    CHECK(next(channel).type() == cm_event_type::route_resolved);
    end client(std::move(id), local.domain);
    client.id.connect();
    end server = local.request();
    server.id.accept();
    CHECK(next(channel).type() == cm_event_type::established);
}

// ---------------------------------------------------------------------------------------------------------------
// Devices and names.

TEST_CASE_METHOD(fixture, "the devices of librdmacm are those of its ids", "[devices][asan]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    id.bind_addr(ipv4());
    const rdmaxx::devices all;
    CHECK(all.size() >= 1);
    CHECK(std::count(all.begin(), all.end(), id.verbs()) == 1);
    CHECK(id.verbs().query_port(id.port_num()).state == IBV_PORT_ACTIVE);
}

TEST_CASE_METHOD(fixture, "addresses have the ports that C has in network byte order", "[addresses]") {
    const connection c;
    rdma_cm_id* raw = c.client.id.native_handle();
    CHECK(c.client.id.local_address().port() == ntohs(::rdma_get_src_port(raw)));
    CHECK(c.client.id.peer_address().port() == ntohs(::rdma_get_dst_port(raw)));
}

TEST_CASE_METHOD(fixture, "events are called what librdmacm calls them", "[events]") {
    for (int i = 0; i < 16; ++i) {
        std::string name = ::rdma_event_str(static_cast<rdma_cm_event_type>(i));
        REQUIRE(name.rfind("RDMA_CM_EVENT_", 0) == 0);
        name.erase(0, std::strlen("RDMA_CM_EVENT_"));
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        CHECK(to_string(static_cast<cm_event_type>(i)) == name);
    }
    CHECK(std::string(to_string(static_cast<cm_event_type>(1000))) == "unknown");
}

// ---------------------------------------------------------------------------------------------------------------
// rdma-core 60 and later.

#if RDMAXX_HAS_RESOLVE_ADDRINFO
TEST_CASE_METHOD(fixture, "a name is looked up in the background, and its addresses fetched once", "[addrinfo][60]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    std::error_code ec;
    CHECK_FALSE(rdmaxx::addrinfo::query(id, ec));
    CHECK(ec == std::errc::no_such_file_or_directory);
    const rdmaxx::addrinfo_hints hints = {.flags = rdmaxx::addrinfo_flags::dns | rdmaxx::addrinfo_flags::numeric_host};
    id.resolve_addrinfo(variable("RIG_ADDR4").c_str(), "7471", hints);
    CHECK(next(channel).to_string() == "addrinfo_resolved");
    id.resolve_addrinfo(variable("RIG_ADDR4").c_str(), "7471", hints, ec);
    CHECK(ec == std::errc::device_or_resource_busy);
    const rdmaxx::addrinfo found = rdmaxx::addrinfo::query(id);
    CHECK(std::any_of(found.begin(), found.end(),
                      [](rdmaxx::addrinfo_entry entry) { return entry.destination() == ipv4(7471); }));
    CHECK_FALSE(rdmaxx::addrinfo::query(id, ec));
    CHECK(ec == std::errc::no_such_file_or_directory);
}

TEST_CASE_METHOD(fixture, "an event of the program's own wakes a get, with its status and number", "[events][60]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    std::thread waking([&]() {
        std::this_thread::sleep_for(20ms);
        id.write_cm_event(-5, 0x0123456789abcdef);
    });
    const rdmaxx::cm_event event = channel.get_cm_event();
    waking.join();
    CHECK(event.type() == cm_event_type::user);
    CHECK(event.id() == id);
    CHECK(event.status() == -5);
    CHECK(event.arg() == 0x0123456789abcdef);
    CHECK_FALSE(event.code()); // the number is the program's
    CHECK(event.private_data().empty());
}
#endif
