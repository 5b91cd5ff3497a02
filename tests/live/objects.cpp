// What devices say of themselves, objects that few devices have, and what is rarely asked of the others.
#include "live.hpp"

#include <rdmaxx/verbs/counters.hpp>
#include <rdmaxx/verbs/flow.hpp>
#include <rdmaxx/verbs/td.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace live;
using rdmaxx::access;
using rdmaxx::address;
using rdmaxx::qp_attr;
using rdmaxx::qp_state;
using rdmaxx::send_wr;

namespace {

constexpr std::uint8_t port = 1;
constexpr std::uint32_t qkey = 0x1234;

template <class Call>
int refusal(Call call) {
    try {
        call();
        return 0;
    } catch (const rdmaxx::error& e) {
        return e.code().value();
    }
}

/// The device, and a datagram queue pair that nobody else knows.
struct datagrams {
    rdmaxx::device_list devices;
    rdmaxx::context device{devices.find(variable("RIG_DEVICE").c_str())};
    rdmaxx::pd domain{device};
    rdmaxx::registered_buffer buffer{domain, 4096};
    rdmaxx::cq cq{device, 16};
    rdmaxx::qp qp{domain, rdmaxx::qp_init_attr(cq, 4).type(rdmaxx::qp_type::ud)};

    datagrams() {
        qp.modify(qp_attr(qp_state::init).pkey_index(0).port_num(port).qkey(qkey));
        qp.modify(qp_attr(qp_state::rtr));
        qp.modify(qp_attr(qp_state::rts).sq_psn(1));
    }
    /// The path to an address, from the row of the GID table that is this end's.
    [[nodiscard]] rdmaxx::ah to(const rdmaxx::gid& destination) const {
        const auto here = device.find_gid(ipv4(), rdmaxx::gid_type::roce_v2);
        REQUIRE(here);
        return rdmaxx::ah(domain, rdmaxx::ah_attr_to(*here, destination));
    }
    [[nodiscard]] rdmaxx::wc next() const {
        std::array<rdmaxx::wc, 1> one;
        for (const stopwatch waited; waited.elapsed() < soon;)
            if (!cq.poll(one).empty())
                return one[0];
        FAIL("no completion came");
        return {};
    }
};

/// RoCE's packets are the IP stack's before they are the device's: it has to be in the group as well.
class ip_membership {
public:
    explicit ip_membership(const char* group) : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        ip_mreq request{};
        REQUIRE(::inet_pton(AF_INET, group, &request.imr_multiaddr) == 1);
        REQUIRE(::inet_pton(AF_INET, variable("RIG_ADDR4").c_str(), &request.imr_interface) == 1);
        REQUIRE(::setsockopt(socket_, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) == 0);
    }
    ip_membership(const ip_membership&) = delete;
    ip_membership& operator=(const ip_membership&) = delete;
    ~ip_membership() { ::close(socket_); }

private:
    int socket_;
};

} // namespace

TEST_CASE_METHOD(fixture, "the device tells its GIDs, P_Keys, ports and limits", "[objects][ib]") {
    const datagrams d;
    CHECK(d.device.device().node_type() == rdmaxx::node_type::ca);
    CHECK(d.device.device().index() >= 0);
    CHECK(d.device.device().guid() != 0);
    CHECK(d.device.num_comp_vectors() >= 1);
    const rdmaxx::port_attr attr = d.device.query_port(port);
    CHECK(attr.port_state() == rdmaxx::port_state::active);
    CHECK(attr.is_ethernet());
    CHECK(to_bytes(attr.mtu()) >= 1024);
    CHECK(attr.speed_mbps() > 0);
    const rdmaxx::gid_table table = d.device.query_gid_table();
    for (const address& own : {ipv4(), ipv6()}) {
        const auto row = table.find(rdmaxx::gid(own), rdmaxx::gid_type::roce_v2);
        REQUIRE(row);
        CHECK(row->port_num() == port);
        CHECK(row->ndev_ifindex() != 0);
        CHECK(d.device.query_gid(port, row->index()).gid() == rdmaxx::gid(own));
    }
    CHECK_FALSE(d.device.find_gid(address_of_nobody(), rdmaxx::gid_type::roce_v2));
    CHECK(refusal([&] { static_cast<void>(d.device.query_gid(port, 1023)); }) == ENODATA);
    CHECK(refusal([&] { static_cast<void>(d.device.query_gid(port, 99'999)); }) == EINVAL);
    CHECK(d.device.query_pkey(port, 0) == 0xffff);
    CHECK(d.device.find_pkey(port, 0xffff) == std::uint16_t{0});
    CHECK_FALSE(d.device.find_pkey(port, 0x8001));
    CHECK(refusal([&] { static_cast<void>(d.device.query_pkey(port, 1)); }) == ENOENT);
    const rdmaxx::device_attr_ex can = d.device.query_device_ex();
    CHECK(can.orig_attr().node_guid() == d.device.device().guid());
    CHECK(can.orig_attr().atomic_cap() == rdmaxx::atomic_cap::hca);
    using rdmaxx::device_cap_flags;
    CHECK(has(can.device_cap_flags(), device_cap_flags::mem_window));
    CHECK(has(can.device_cap_flags(), device_cap_flags::srq_resize));
    CHECK_FALSE(has(can.device_cap_flags(), device_cap_flags::xrc | device_cap_flags::managed_flow_steering));
    CHECK(can.phys_port_cnt() == 1);
    CHECK(can.rx_hash_functions() == rdmaxx::rx_hash_function::none);
    CHECK_FALSE(is_qpt_supported(can.rss_caps.supported_qpts, rdmaxx::qp_type::raw_packet));
    CHECK(d.device.device().transport_type() == rdmaxx::transport_type::ib);
    CHECK(std::string(d.device.device().ibdev_path()) == "/sys/class/infiniband/" + variable("RIG_DEVICE"));
    CHECK(std::string(d.device.device().dev_name()).rfind("uverbs", 0) == 0);
    CHECK(d.device.device().dev_path() == "/sys/class/infiniband_verbs/" + std::string(d.device.device().dev_name()));
    CHECK(attr.link_layer() == rdmaxx::link_layer::ethernet);
    CHECK(has(attr.port_cap_flags(), rdmaxx::port_cap_flags::cm_sup));
    CHECK(attr.grh_required());
    CHECK(d.device.query_device_ex().orig_attr().max_mr == d.device.query_device().max_mr);
    CHECK(refusal([&] { static_cast<void>(d.device.query_rt_values()); }) == EOPNOTSUPP);
    CHECK(rdmaxx::is_fork_initialized() != rdmaxx::fork_status::disabled);
    std::error_code ec;
    rdmaxx::fork_init(ec);
    CHECK((!ec || ec == std::errc::invalid_argument)); // older ones: memory is registered already
    CHECK(std::string(to_string(d.device.device().node_type())) == "ca");
    CHECK(std::string(to_string(attr.port_state())) == "active");
}

TEST_CASE_METHOD(fixture, "rates, names and flow labels are converted as libibverbs does it", "[objects]") {
    using rdmaxx::rate;
    for (const auto& [code, mbps, mult] :
         {std::tuple{rate::gbps_2_5, 2'500, 1}, {rate::gbps_10, 10'000, 4}, {rate::gbps_40, 40'000, 16}}) {
        CHECK(rate_to_mbps(code) == mbps);
        CHECK(rdmaxx::mbps_to_rate(mbps) == code);
        CHECK(rate_to_mult(code) == mult);
        CHECK(rdmaxx::mult_to_rate(mult) == code);
    }
    CHECK(rate_to_mbps(rate::gbps_100) == 103'125);
    CHECK(rate_to_mult(rate::gbps_100) == -1);
    CHECK(rdmaxx::mbps_to_rate(1) == rate::max);
    for (int i = 0; i <= 24; ++i) { // every one that libibverbs knows has a name here
        const auto code = static_cast<rate>(i);
        CHECK((rate_to_mbps(code) > 0) == (i != 0 && i != 1));
        CHECK((std::string(to_string(code)) == "unknown") == (i == 1));
    }
    CHECK(rdmaxx::flow_label_to_udp_sport(0) == IB_ROCE_UDP_ENCAP_VALID_PORT_MIN);
    CHECK(rdmaxx::flow_label_to_udp_sport(0x12345) > IB_ROCE_UDP_ENCAP_VALID_PORT_MIN);
    // libibverbs' names are sentences, and here they are the enumerators'; what it knows is known here.
    const auto knows = []<class Ours, class Theirs>(const char* (*theirs)(Theirs), Ours ours) {
        const auto text_of = [&](int value) {
            return std::string(theirs(static_cast<Theirs>(value)));
        };
        if (text_of(static_cast<int>(ours)) != text_of(1000))
            CHECK(std::string(to_string(ours)) != "unknown");
    };
    for (int i = 0; i <= 30; ++i) {
        knows(&::ibv_wc_status_str, static_cast<rdmaxx::wc_status>(i));
        knows(&::ibv_event_type_str, static_cast<rdmaxx::async_event_type>(i));
        knows(&::ibv_node_type_str, static_cast<rdmaxx::node_type>(i));
        knows(&::ibv_port_state_str, static_cast<rdmaxx::port_state>(i));
    }
}

TEST_CASE_METHOD(fixture, "a datagram by hand: to an address of the table, and back to where it came from",
                 "[objects][ib]") {
    const datagrams here;
    const datagrams there;
    there.qp.post_recv(there.buffer);
    here.qp.post_recv(here.buffer.sge(2048, 1024));
    std::memcpy(here.buffer.bytes().data(), "ping", 4);
    const rdmaxx::ah to_there = here.to(rdmaxx::gid(ipv4()));
    const rdmaxx::sge ping = here.buffer.sge(0, 4);
    here.qp.post_send(send_wr::send(ping).to(to_there, there.qp.qp_num(), qkey).signaled());
    CHECK(here.next().ok());
    const rdmaxx::datagram got(there.next(), there.buffer.bytes());
    CHECK(text(got.payload()) == "ping");
    CHECK(got.has_grh());
    CHECK(got.src_qp() == here.qp.qp_num());
    const ibv_ah_attr path = init_ah_from_datagram(there.device, got, port);
    CHECK(rdmaxx::gid(path.grh.dgid) == rdmaxx::gid(ipv4()));
    const rdmaxx::eth_l2 hop = resolve_eth_l2_from_gid(there.device, path);
    CHECK(std::any_of(std::begin(hop.mac), std::end(hop.mac), [](std::uint8_t b) { return b != 0; }));
    CHECK(hop.vlan == 0xffff);
    const rdmaxx::ah back = rdmaxx::ah::from_datagram(there.domain, got, port);
    const rdmaxx::sge pong = there.buffer.sge(rdmaxx::datagram::grh_size, got.payload().size());
    there.qp.post_send(send_wr::send(pong).to(back, got.src_qp(), qkey).signaled());
    CHECK(there.next().ok());
    const rdmaxx::datagram answer(here.next(), here.buffer.bytes().subspan(2048));
    CHECK(text(answer.payload()) == "ping");
}

TEST_CASE_METHOD(fixture, "a group that is attached by hand is received from until it is detached", "[objects][ib]") {
    datagrams member;
    const datagrams sender;
    const rdmaxx::gid group(address("239.1.2.4", 0));
    const ip_membership joined("239.1.2.4");
    member.qp.attach_mcast(group);
    member.qp.post_recv(member.buffer);
    std::memcpy(sender.buffer.bytes().data(), "to all", 6);
    const rdmaxx::ah to_group = sender.to(group);
    const rdmaxx::sge piece = sender.buffer.sge(0, 6);
    constexpr std::uint32_t multicast_qp = 0xffffff;
    sender.qp.post_send(send_wr::send(piece).to(to_group, multicast_qp, qkey).signaled());
    CHECK(sender.next().ok());
    CHECK(text(rdmaxx::datagram(member.next(), member.buffer.bytes()).payload()) == "to all");
    CHECK(refusal([&] { member.qp.close(); }) == EBUSY);
    member.qp.detach_mcast(group);
    member.qp.post_recv(member.buffer);
    sender.qp.post_send(send_wr::send(piece).to(to_group, multicast_qp, qkey).signaled());
    CHECK(sender.next().ok());
    std::this_thread::sleep_for(50ms);
    std::array<rdmaxx::wc, 1> none;
    CHECK(member.cq.poll(none).empty());
    CHECK(refusal([&] { member.qp.detach_mcast(group); }) == EINVAL);
    CHECK(refusal([&] { member.qp.attach_mcast(rdmaxx::gid(address("fe80::1", 0))); }) != 0); // nobody's group
    member.qp.close();
}

TEST_CASE_METHOD(fixture, "a CQ is resized with its completions in it", "[objects][ib]") {
    const datagrams here;
    const datagrams there;
    for (std::uint64_t i = 0; i < 4; ++i)
        there.qp.post_recv(there.buffer.sge(0, 100), i);
    const rdmaxx::ah to_there = here.to(rdmaxx::gid(ipv4()));
    const rdmaxx::sge piece = here.buffer.sge(0, 4);
    for (int i = 0; i < 4; ++i)
        here.qp.post_send(send_wr::send(piece).to(to_there, there.qp.qp_num(), qkey).signaled());
    for (int i = 0; i < 4; ++i)
        CHECK(here.next().ok());
    CHECK(refusal([&] { there.cq.resize(3); }) == EINVAL); // fewer than are there
    there.cq.resize(200);
    CHECK(there.cq.size() >= 200);
    for (std::uint64_t i = 0; i < 4; ++i)
        CHECK(there.next().wr_id() == i);
    CHECK(refusal([&] { there.cq.resize(1 << 30); }) == EINVAL);
    CHECK(refusal([&] { there.cq.moderate(4, 100); }) == EOPNOTSUPP);
}

TEST_CASE_METHOD(fixture,
                 "XRC, tag matching, thread domains, RSS, flows and counters are EOPNOTSUPP on a software device",
                 "[objects][ib]") {
    const datagrams d;
    CHECK(refusal([&] { rdmaxx::xrcd(d.device); }) == EOPNOTSUPP);
    CHECK(refusal([&] { rdmaxx::srq(d.domain, rdmaxx::srq_init_attr_ex({}).tag_matching(d.cq, 4, 4)); }) == EOPNOTSUPP);
    const rdmaxx::srq basic(d.domain, rdmaxx::srq_init_attr_ex({.max_wr = 4}));
    CHECK(basic.query().max_wr >= 4);
    CHECK(refusal([&] { static_cast<void>(basic.srq_num()); }) == EOPNOTSUPP);
    CHECK(refusal([&] { basic.post_srq_ops(rdmaxx::ops_wr::tag_sync(0)); }) == EOPNOTSUPP);
    CHECK(refusal([&] { rdmaxx::td(d.device); }) == EOPNOTSUPP);
    CHECK(refusal([&] { rdmaxx::parent_domain(rdmaxx::parent_domain_attr(d.domain)); }) == EOPNOTSUPP);
    CHECK(refusal([&] { rdmaxx::wq(d.domain, d.cq); }) == EOPNOTSUPP);
    const std::array<rdmaxx::wq_ref, 1> none;
    CHECK(refusal([&] { rdmaxx::rwq_ind_table(d.device, std::span<const rdmaxx::wq_ref>(none)); }) == EOPNOTSUPP);
    CHECK(refusal([&] { rdmaxx::flow(d.qp, rdmaxx::flow_attr(port).add(rdmaxx::flow_eth())); }) == EOPNOTSUPP);
    CHECK(refusal([&] { rdmaxx::flow_action(d.device, {}); }) == EOPNOTSUPP);
    CHECK(refusal([&] { rdmaxx::counters(d.device); }) == EOPNOTSUPP);
}
