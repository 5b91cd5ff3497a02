// Datagram ids: messages without a connection, and multicast groups.
#include "live.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <string>

#include <infiniband/verbs.h>

using namespace live;
using rdmaxx::cm_event;
using rdmaxx::cm_event_type;
using rdmaxx::send_wr;

namespace {

constexpr std::size_t header = sizeof(ibv_grh); // a datagram's payload starts behind it

/// A datagram id with a queue pair.
struct datagram_end {
    datagram_end(rdmaxx::cm_id bound, const rdmaxx::pd& domain)
        : id(std::move(bound)), completions(domain.context()), cq(domain.context(), 16, completions),
          mr(domain, memory) {
        id.create_qp(domain, rdmaxx::qp_init_attr(cq, 4).type(rdmaxx::qp_type::ud));
    }
    [[nodiscard]] rdmaxx::wc next() {
        std::array<rdmaxx::wc, 1> one;
        REQUIRE(completions.wait_for(cq, one, soon).size() == 1);
        return one[0];
    }

    std::array<std::byte, 256> memory{};
    rdmaxx::cm_id id;
    rdmaxx::comp_channel completions;
    rdmaxx::cq cq;
    rdmaxx::mr mr;
};

rdmaxx::cm_id resolved_datagram(rdmaxx::event_channel& channel, const rdmaxx::address& peer) {
    rdmaxx::cm_id id(channel, rdmaxx::port_space::udp);
    rdmaxx::resolve(channel, id, peer, 2s);
    return id;
}

/// A datagram listener, and a device and a PD for both sides.
struct datagram_host {
    host device; // for its context and PD
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener{channel, rdmaxx::port_space::udp};

    datagram_host() {
        listener.bind_addr(ipv4());
        listener.listen();
    }
};

} // namespace

TEST_CASE_METHOD(fixture, "a datagram finds its way by what established says, and back by what it brought",
                 "[ib][datagram][asan]") {
    datagram_host local;
    rdmaxx::event_channel channel;
    datagram_end client(resolved_datagram(channel, local.listener.local_address()), local.device.domain);
    client.id.connect({.private_data = bytes("who are you?")});

    cm_event request = get(local.channel, cm_event_type::connect_request);
    CHECK(request.private_data().size() == 180);
    CHECK(text(request.private_data().first(12)) == "who are you?");
    std::error_code ec;
    CHECK(request.conn_param(ec) == nullptr);
    CHECK(ec == std::errc::invalid_argument);
    datagram_end server(request.take_id(), local.device.domain);
    std::move(request).ack();
    server.id.qp().post_recv(server.mr);
    server.id.accept({.private_data = bytes("the server"), .qp_num = server.id.qp().qp_num()});

    const cm_event established = get(channel, cm_event_type::established);
    CHECK(established.private_data().size() == 136);
    CHECK(text(established.private_data().first(10)) == "the server");
    const rdma_ud_param& peer = established.ud_param();
    CHECK(peer.qp_num == server.id.qp().qp_num());
    const rdmaxx::ah to_server(local.device.domain, peer.ah_attr);

    std::memcpy(client.memory.data(), "datagram", 8);
    client.id.qp().post_recv(client.mr);
    client.id.qp().post_send(send_wr::send(client.mr.sge(0, 8)).to(to_server, peer.qp_num, peer.qkey).signaled());
    const rdmaxx::wc received = server.next();
    REQUIRE(received.is_recv());
    CHECK(received.byte_len() == header + 8);
    CHECK(received.src_qp() == client.id.qp().qp_num());
    CHECK(rdmaxx::has(received.flags(), rdmaxx::wc_flags::grh));
    CHECK(text(std::span(server.memory).subspan(header, 8)) == "datagram");
    CHECK(client.next().opcode() == rdmaxx::wc_opcode::send);

    // The library reads the routing header as C does.
    const rdmaxx::datagram seen(received, server.memory);
    CHECK(seen.sgid() == rdmaxx::gid(ipv4()));
    CHECK(seen.dgid() == rdmaxx::gid(ipv4()));
    const auto own = local.device.domain.context().find_gid(ipv4(), rdmaxx::gid_type::roce_v2);
    REQUIRE(own);
    const ibv_ah_attr by_c = rdmaxx::init_ah_from_datagram(local.device.domain.context(), seen, 1);
    const ibv_ah_attr by_row = rdmaxx::init_ah_from_datagram(seen, *own);
    CHECK(rdmaxx::gid(by_row.grh.dgid) == rdmaxx::gid(by_c.grh.dgid));
    CHECK(by_row.grh.sgid_index == by_c.grh.sgid_index);
    CHECK(by_row.grh.traffic_class == by_c.grh.traffic_class);
    CHECK(by_row.grh.flow_label == by_c.grh.flow_label);
    CHECK(by_row.is_global == by_c.is_global);
    CHECK(by_row.port_num == by_c.port_num);
    CHECK(by_row.dlid == by_c.dlid);
    CHECK(by_row.sl == by_c.sl);
    CHECK(by_row.src_path_bits == by_c.src_path_bits);

    const rdmaxx::ah back = rdmaxx::ah::from_wc(local.device.domain, received, server.memory.data(), 1);
    std::memcpy(server.memory.data() + 100, "an answer", 9);
    server.id.qp().post_send(send_wr::send(server.mr.sge(100, 9)).to(back, *received.src_qp(), peer.qkey));
    CHECK(client.next().byte_len() == header + 9);
    CHECK(text(std::span(client.memory).subspan(header, 9)) == "an answer");

    // What waits for datagrams comes back, and its memory may go.
    for (datagram_end* end : {&client, &server}) {
        end->id.qp().post_recv(end->mr, 7);
        unsigned flushed = 0;
        end->id.qp().drain(soon, [&](const rdmaxx::wc& done) {
            CHECK(done.wr_id() == 7);
            CHECK(done.status() == rdmaxx::wc_status::wr_flush_err);
            ++flushed;
        });
        CHECK(flushed == 1);
    }
}

TEST_CASE_METHOD(fixture, "a datagram service that nobody offers is unreachable 1, one that says no unreachable 2",
                 "[ib][datagram]") {
    datagram_host local;
    rdmaxx::event_channel channel;
    const bool offered = GENERATE(false, true);
    datagram_end client(resolved_datagram(channel, offered ? local.listener.local_address() : ipv4(1)),
                        local.device.domain);
    client.id.connect();
    if (offered)
        get(local.channel, cm_event_type::connect_request).take_id().reject(bytes("no"));
    const rdmaxx::cm_event_snapshot answer = next(channel);
    CHECK(answer.type() == cm_event_type::unreachable);
    CHECK(answer.code() == std::error_code(offered ? 2 : 1, rdmaxx::sidr_category()));
    CHECK(answer.code() == std::errc::connection_refused);
}

TEST_CASE_METHOD(fixture, "private data above a datagram's limits is EINVAL", "[ib][datagram]") {
    datagram_host local;
    rdmaxx::event_channel channel;
    datagram_end client(resolved_datagram(channel, local.listener.local_address()), local.device.domain);
    const std::string much(181, 'x');
    std::error_code ec;
    client.id.connect({.private_data = bytes(much)}, ec);
    CHECK(ec == std::errc::invalid_argument);
    client.id.connect({.private_data = bytes(much).first(180)});
    datagram_end server(get(local.channel, cm_event_type::connect_request).take_id(), local.device.domain);
    server.id.accept({.private_data = bytes(much).first(137), .qp_num = server.id.qp().qp_num()}, ec);
    CHECK(ec == std::errc::invalid_argument);
    server.id.accept({.private_data = bytes(much).first(136), .qp_num = server.id.qp().qp_num()});
    CHECK(next(channel).type() == cm_event_type::established);
}

// ---------------------------------------------------------------------------------------------------------------
// Multicast.

namespace {

const rdmaxx::address group("239.1.2.3", 0);

/// A datagram id that is bound to the device, with a queue pair that groups are attached to.
struct member {
    host device;
    rdmaxx::event_channel channel;
    datagram_end self{bound(channel), device.domain};

    static rdmaxx::cm_id bound(rdmaxx::event_channel& channel) {
        rdmaxx::cm_id id(channel, rdmaxx::port_space::udp);
        id.bind_addr(ipv4());
        return id;
    }
};

} // namespace

TEST_CASE_METHOD(fixture, "what is sent to a group arrives at a member", "[ib][multicast][asan]") {
    member a;
    int mine = 0;
    const rdmaxx::multicast_membership membership = a.self.id.join_multicast(group, &mine);
    CHECK(membership.group() == group);
    std::optional<rdmaxx::ah> to_group;
    std::uint32_t qp_num = 0;
    std::uint32_t qkey = 0;
    {
        const cm_event joined = get(a.channel, cm_event_type::multicast_join);
        CHECK(joined.private_data().empty()); // C has the program's pointer in that place
        CHECK(joined.multicast_context<int>() == &mine);
        to_group.emplace(a.device.domain, joined.ud_param().ah_attr);
        qp_num = joined.ud_param().qp_num;
        qkey = joined.ud_param().qkey;
    }
    a.self.id.qp().post_recv(a.self.mr.sge(0, 100), 1);
    std::memcpy(a.self.memory.data() + 200, "to all", 6);
    a.self.id.qp().post_send(send_wr::send(a.self.mr.sge(200, 6)).to(*to_group, qp_num, qkey).wr_id(2).signaled());
    bool received = false;
    for (int i = 0; i < 2; ++i) {
        const rdmaxx::wc done = a.self.next();
        REQUIRE(done.ok());
        received = received || done.is_recv();
    }
    CHECK(received);
    CHECK(text(std::span(a.self.memory).subspan(header, 6)) == "to all");
}

TEST_CASE_METHOD(fixture, "what a group got is answered from an address of one's own", "[ib][multicast]") {
    member asking;
    const rdmaxx::multicast_membership membership = asking.self.id.join_multicast(group);
    std::optional<rdmaxx::ah> to_group;
    std::uint32_t qkey = 0;
    {
        const cm_event joined = get(asking.channel, cm_event_type::multicast_join);
        to_group.emplace(asking.device.domain, joined.ud_param().ah_attr);
        qkey = joined.ud_param().qkey;
    }
    member answering;
    const rdmaxx::multicast_membership other = answering.self.id.join_multicast(group);
    static_cast<void>(get(answering.channel, cm_event_type::multicast_join));
    answering.self.id.qp().post_recv(answering.self.mr.sge(0, 100));
    std::memcpy(asking.self.memory.data() + 200, "who?", 4);
    asking.self.id.qp().post_send(send_wr::send(asking.self.mr.sge(200, 4)).to(*to_group, 0xffffff, qkey).signaled());
    CHECK(asking.self.next().opcode() == rdmaxx::wc_opcode::send);

    const rdmaxx::datagram question(answering.self.next(), answering.self.memory);
    CHECK(text(question.payload()) == "who?");
    CHECK(question.src_qp() == asking.self.id.qp().qp_num());
    CHECK(question.sgid() == rdmaxx::gid(ipv4()));
    CHECK(question.dgid() == rdmaxx::gid(group));
    try { // C looks for the group among this side's own addresses
        static_cast<void>(rdmaxx::ah::from_datagram(answering.device.domain, question, 1));
        FAIL("no exception");
    } catch (const rdmaxx::error& e) {
        CHECK(std::string(e.call()) == "ibv_create_ah_from_wc");
        CHECK(std::string(e.cause()).find("group") != std::string::npos);
    }
    const auto own = answering.self.id.verbs().find_gid(answering.self.id.local_address(), rdmaxx::gid_type::roce_v2);
    const rdmaxx::ah back = rdmaxx::ah::from_datagram(answering.device.domain, question, own.value());
    asking.self.id.qp().post_recv(asking.self.mr.sge(0, 100));
    std::memcpy(answering.self.memory.data() + 200, "me", 2);
    answering.self.id.qp().post_send(send_wr::send(answering.self.mr.sge(200, 2)).to(back, question.src_qp(), qkey));
    CHECK(asking.self.next().byte_len() == header + 2);
    CHECK(text(std::span(asking.self.memory).subspan(header, 2)) == "me");
}

TEST_CASE_METHOD(fixture, "a member that only sends does not hear its group", "[ib][multicast]") {
    member hearing;
    const rdmaxx::multicast_membership full = hearing.self.id.join_multicast(group);
    static_cast<void>(get(hearing.channel, cm_event_type::multicast_join));
    member sending;
    const rdmaxx::multicast_membership membership =
        sending.self.id.join_multicast(group, nullptr, rdmaxx::mc_join::sendonly_full_member);
    std::optional<rdmaxx::ah> to_group;
    std::uint32_t qkey = 0;
    {
        const cm_event joined = get(sending.channel, cm_event_type::multicast_join);
        to_group.emplace(sending.device.domain, joined.ud_param().ah_attr);
        qkey = joined.ud_param().qkey;
    }
    hearing.self.id.qp().post_recv(hearing.self.mr);
    sending.self.id.qp().post_recv(sending.self.mr.sge(0, 100));
    std::memcpy(sending.self.memory.data() + 200, "to the others", 13);
    sending.self.id.qp().post_send(
        send_wr::send(sending.self.mr.sge(200, 13)).to(*to_group, 0xffffff, qkey).signaled());
    CHECK(hearing.self.next().byte_len() == header + 13);
    CHECK(text(std::span(hearing.self.memory).subspan(header, 13)) == "to the others");
    CHECK(sending.self.next().opcode() == rdmaxx::wc_opcode::send);
    std::array<rdmaxx::wc, 1> none;
    CHECK(sending.self.cq.poll(none).empty());
}

TEST_CASE_METHOD(fixture, "leaving a group waits for its events, and a held one is reported", "[ib][multicast][hang]") {
    member a;
    rdmaxx::multicast_membership membership = a.self.id.join_multicast(group);
    cm_event joined = get(a.channel, cm_event_type::multicast_join);
    hang_recorder recorder(rdmaxx::hang_action::keep_waiting, 50ms);
    recorder.on_report([&]() { joined = cm_event(); });
    membership = rdmaxx::multicast_membership();
    REQUIRE(recorder.reports().size() == 1);
    CHECK(std::string(recorder.reports()[0].call) == "rdma_leave_multicast");
    CHECK(std::string(recorder.reports()[0].events[0].type) == "multicast_join");

    // Joined again, left at once; and left by the end of the id, with the membership still there.
    membership = a.self.id.join_multicast(group);
    static_cast<void>(get(a.channel, cm_event_type::multicast_join));
    membership = rdmaxx::multicast_membership();
    membership = a.self.id.join_multicast(group);
    static_cast<void>(get(a.channel, cm_event_type::multicast_join));
    a.self.id = rdmaxx::cm_id();
}

TEST_CASE_METHOD(fixture, "joining before a device is bound, or what is no group, is an error", "[ib][multicast]") {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel, rdmaxx::port_space::udp);
    std::error_code ec;
    CHECK_FALSE(id.join_multicast(group, nullptr, rdmaxx::mc_join::full_member, ec));
    CHECK(ec == std::errc::invalid_argument);
    id.bind_addr(ipv4());
    CHECK_FALSE(id.join_multicast(rdmaxx::address(), nullptr, rdmaxx::mc_join::full_member, ec));
    CHECK(ec == std::errc::invalid_argument);
}
