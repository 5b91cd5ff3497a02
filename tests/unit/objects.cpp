// Objects that few devices have, and what is rarely asked of the others: XRC, tag matching, thread and parent domains,
// work queues, flows, counters, datagrams.
#include "test.hpp"

#include <rdmaxx/verbs/counters.hpp>
#include <rdmaxx/verbs/flow.hpp>
#include <rdmaxx/verbs/iova_mr.hpp>
#include <rdmaxx/verbs/td.hpp>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>

using namespace rdmaxx;
using namespace unit;

namespace {

/// The detail of the last C call of that name.
std::string detail_of(std::string_view call) {
    std::string found;
    for (const auto& record : fake::log())
        if (record.name == call)
            found = record.detail;
    return found;
}

} // namespace

// ---------------------------------------------------------------- xrcd, srq

TEST_CASE_METHOD(unit::test, "xrcd: of this process, or of all that open a file", "[objects]") {
    opened with;
    const xrcd own(with.device);
    CHECK(own.context() == with.device);
    CHECK(detail_of("ibv_open_xrcd") == "fd -1, flags " + std::to_string(O_CREAT));
    const xrcd shared(with.device, 7, O_CREAT | O_EXCL);
    CHECK(detail_of("ibv_open_xrcd") == "fd 7, flags " + std::to_string(O_CREAT | O_EXCL));
    fake::fail("ibv_open_xrcd", 1, EOPNOTSUPP);
    const caught none([&] { const xrcd other(with.device); });
    CHECK(none.code == EOPNOTSUPP);
    CHECK(none.call == "ibv_open_xrcd");
    std::error_code ec;
    CHECK_FALSE(xrcd::create(context(), ec));
    CHECK(number(ec) == EINVAL);
}

TEST_CASE_METHOD(unit::test, "srq: of an XRC domain, which it keeps with its CQ", "[objects]") {
    opened with;
    xrcd domain(with.device);
    srq queue(with.pd, srq_init_attr_ex({8, 2}).xrc(domain, with.cq));
    CHECK(detail_of("ibv_create_srq_ex") == "type " + std::to_string(IBV_SRQT_XRC) + ", mask 15, 8 of 2 SGEs, of " +
                                                fake::name_of(domain.native_handle()) + ", on " +
                                                fake::name_of(with.cq.native_handle()));
    CHECK(queue.srq_num() != 0);
    CHECK(queue.query().max_wr == 8);
    const ibv_cq* raw = with.cq.native_handle();
    domain.close();
    with.cq.close();
    CHECK(fake::calls("ibv_close_xrcd") == 0);
    CHECK(fake::alive(raw));
    queue.close();
    CHECK(fake::in_order({"ibv_destroy_srq", "ibv_close_xrcd"}));
    CHECK_FALSE(fake::alive(raw));
    std::error_code ec;
    CHECK_FALSE(srq::create(pd(), srq_init_attr_ex({}), ec));
    CHECK(number(ec) == EINVAL);
    // What libibverbs would follow a null pointer for.
    const xrcd other(with.device);
    const cq completions(with.device, 8);
    CHECK(contains(caught([&] { srq(with.pd, srq_init_attr_ex({}).xrc(xrcd(), completions)); }).cause,
                   "empty XRC domain"));
    CHECK(contains(caught([&] { srq(with.pd, srq_init_attr_ex({}).xrc(other, cq())); }).cause, "empty CQ"));
    CHECK(contains(caught([&] { srq(with.pd, srq_init_attr_ex({}).tag_matching(cq(), 1, 1)); }).cause, "empty CQ"));
}

TEST_CASE_METHOD(unit::test, "srq: with tag matching, and operations on its tagged receives", "[objects]") {
    const opened with;
    std::array<std::byte, 64> memory{};
    const mr region(with.pd, memory);
    const srq queue(with.pd, srq_init_attr_ex({}).tag_matching(with.cq, 10, 4));
    CHECK(detail_of("ibv_create_srq_ex") == "type " + std::to_string(IBV_SRQT_TM) +
                                                ", mask 27, 16 of 1 SGEs, tags 10, ops 4, on " +
                                                fake::name_of(with.cq.native_handle()));
    int mine = 0;
    CHECK(srq(with.pd, srq_init_attr_ex({.srq_context = &mine})).srq_context() == &mine);
    CHECK(srq(with.pd, {.srq_context = &mine}).srq_context() == &mine);
    const sge piece = region.sge();
    ops_wr add = ops_wr::tag_add(piece, 5, 255).recv_wr_id(3).wr_id(1).signaled();
    ops_wr del = ops_wr::tag_del(17).wr_id(2).unexpected_cnt(6);
    add.next = &del;
    queue.post_srq_ops(add);
    CHECK(add.handle() != 0); // the fake's
    queue.post_srq_ops(ops_wr::tag_del(add.handle()));
    CHECK(detail_of("ibv_post_srq_ops") == "0 flags 0 del " + std::to_string(add.handle()));
    queue.post_srq_ops(add);
    CHECK(detail_of("ibv_post_srq_ops") == "1 flags 1 add 5/255 for 3, 1 SGEs; 2 flags 2 del 17 seen 6");
    queue.post_srq_ops(ops_wr::tag_sync(9));
    CHECK(detail_of("ibv_post_srq_ops") == "0 flags 2 sync seen 9");
    std::error_code ec;
    del.opcode = static_cast<ibv_ops_wr_opcode>(3);
    CHECK(queue.post_srq_ops(add, ec) == 1);
    CHECK(number(ec) == EINVAL);
    const caught thrown([&] { queue.post_srq_ops(add); });
    CHECK(thrown.call == "ibv_post_srq_ops");
    fake::fail("ibv_get_srq_num", 1, EOPNOTSUPP);
    CHECK(caught([&] { static_cast<void>(queue.srq_num()); }).code == EOPNOTSUPP);
}

// ---------------------------------------------------------------- td, parent_domain

TEST_CASE_METHOD(unit::test, "parent_domain: is a PD, and keeps its PD and its thread domain", "[objects]") {
    opened with;
    td one_thread(with.device);
    parent_domain domain(parent_domain_attr(with.pd).td(one_thread));
    CHECK(detail_of("ibv_alloc_parent_domain") == "mask 0, of " + fake::name_of(with.pd.native_handle()) + " with " +
                                                      fake::name_of(one_thread.native_handle()));
    CHECK(domain.context() == with.device);
    qp pair(domain, qp_init_attr(with.cq));
    CHECK(pair.pd() == pd_ref(domain));
    const ibv_pd* base = with.pd.native_handle();
    domain.close();
    with.pd.close();
    one_thread.close();
    CHECK(fake::alive(base));
    CHECK(fake::calls("ibv_dealloc_td") == 0);
    // Its events are counted in the context, as for every PD.
    fake::push_async_event(pair.native_handle(), IBV_EVENT_COMM_EST);
    std::optional<async_event> event(get_async_event(with.device));
    hang_report_after(20ms);
    on_hang([&] {
        event.reset();
        return hang_action::keep_waiting;
    });
    pair.close();
    CHECK(take_hang_reports().size() == 1);
    CHECK(fake::calls("ibv_dealloc_pd") == 2);
    CHECK(fake::in_order({"ibv_destroy_qp", "ibv_dealloc_pd", "ibv_dealloc_td"}));
    CHECK_FALSE(fake::alive(base));
}

TEST_CASE_METHOD(unit::test, "parent_domain: its queues lie in the program's memory", "[objects]") {
    struct allocator {
        void* allocate(std::size_t size, std::size_t alignment, std::uint64_t type) noexcept {
            CHECK(size == 4096);
            CHECK(alignment == 64);
            CHECK(type == 7);
            ++live;
            return std::aligned_alloc(alignment, size);
        }
        void deallocate(void* memory, std::uint64_t type) noexcept {
            CHECK(type == 7);
            --live;
            std::free(memory);
        }
        int live = 0;
    };
    const opened with;
    allocator own;
    {
        const parent_domain domain(parent_domain_attr(with.pd).allocator(own));
        CHECK(detail_of("ibv_alloc_parent_domain") == "mask 3, of " + fake::name_of(with.pd.native_handle()));
        const srq queue(domain);
        CHECK(own.live == 1);
    }
    CHECK(own.live == 0);
}

TEST_CASE_METHOD(unit::test, "td and parent_domain: what fails is the C call's errno, and leaves nothing",
                 "[objects]") {
    const opened with;
    fake::fail("ibv_alloc_td", 1, EOPNOTSUPP);
    const caught no_td([&] { const td one_thread(with.device); });
    CHECK(no_td.code == EOPNOTSUPP);
    CHECK(no_td.call == "ibv_alloc_td");
    fake::fail("ibv_alloc_parent_domain", 1, EOPNOTSUPP);
    CHECK(caught([&] { const parent_domain domain{parent_domain_attr(with.pd)}; }).call == "ibv_alloc_parent_domain");
    std::error_code ec;
    CHECK_FALSE(parent_domain::create(parent_domain_attr(with.pd).td(td()), ec));
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(parent_domain::create(parent_domain_attr(pd()), ec));
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(td::create(context(), ec));
    CHECK(number(ec) == EINVAL);
}

// ---------------------------------------------------------------- wq, rwq_ind_table

TEST_CASE_METHOD(unit::test, "wq: takes receives, and keeps its PD and CQ", "[objects]") {
    opened with;
    std::array<std::byte, 64> memory{};
    const mr region(with.pd, memory);
    wq queue(with.pd, with.cq, {.max_wr = 4, .max_sge = 2, .flags = wq_flags::scatter_fcs | wq_flags::delay_drop});
    CHECK(detail_of("ibv_create_wq") == "flags 6, 4 of 2 SGEs");
    CHECK(queue.state() == wq_state::reset);
    CHECK(queue.cq() == with.cq);
    CHECK(queue.pd() == with.pd);
    CHECK(queue.wq_num() == queue.native_handle()->wq_num);
    queue.modify(wq_state::rdy, wq_state::reset);
    CHECK(queue.state() == wq_state::rdy);
    CHECK(caught([&] { queue.modify(wq_state::err, wq_state::reset); }).code == EINVAL); // it is not
    CHECK(queue.state() == wq_state::rdy);
    queue.modify(wq_state::rdy);
    CHECK(queue.wq_context() == nullptr);
    int mine = 0;
    CHECK(wq(with.pd, with.cq, {.wq_context = &mine}).wq_context() == &mine);
    CHECK(detail_of("ibv_create_wq") == "flags 0, 16 of 1 SGEs");
    queue.modify_flags(wq_flags::none, wq_flags::cvlan_stripping);
    CHECK(detail_of("ibv_modify_wq") == "flags 0 of 1");
    queue.post_recv(region, 5);
    for (int i = 0; i < 3; ++i)
        queue.post_recv(region);
    const caught full([&] { queue.post_recv(region); });
    CHECK(full.code == ENOMEM);
    CHECK(full.call == "ibv_post_wq_recv");
    const ibv_cq* raw = with.cq.native_handle();
    with.cq.close();
    CHECK(fake::alive(raw));
    queue.close();
    CHECK_FALSE(fake::alive(raw));
    std::error_code ec;
    CHECK_FALSE(wq::create(with.pd, cq_ref(), {}, ec));
    CHECK(number(ec) == EINVAL);
    CHECK(std::string(to_string(wq_state::err)) == "err");
}

TEST_CASE_METHOD(unit::test, "rwq_ind_table: keeps all its queues", "[objects]") {
    opened with;
    std::array<wq, 4> queues;
    for (wq& queue : queues)
        queue = wq(with.pd, with.cq);
    rwq_ind_table table(with.device, queues);
    const auto name = [&](std::size_t i) {
        return fake::name_of(queues[i].native_handle());
    };
    CHECK(detail_of("ibv_create_rwq_ind_table") == name(0) + ", " + name(1) + ", " + name(2) + ", " + name(3));
    const std::array<wq_ref, 2> twice = {queues[2], queues[2]};
    {
        const rwq_ind_table of_refs(with.device, twice);
        CHECK(detail_of("ibv_create_rwq_ind_table") == name(2) + ", " + name(2));
    }
    for (wq& queue : queues)
        queue.close();
    CHECK(fake::calls("ibv_destroy_wq") == 0);
    rwq_ind_table moved = std::move(table);
    moved.close();
    CHECK(fake::calls("ibv_destroy_wq") == 4);
    CHECK(fake::in_order({"ibv_destroy_rwq_ind_table", "ibv_destroy_wq"}));
}

TEST_CASE_METHOD(unit::test, "rwq_ind_table: what fails leaves nothing", "[objects]") {
    const opened with;
    std::array<wq, 4> queues;
    for (wq& queue : queues)
        queue = wq(with.pd, with.cq);
    const caught three([&] { const rwq_ind_table table(with.device, std::span<const wq>(queues).first(3)); });
    CHECK(three.code == EINVAL);
    CHECK(contains(three.cause, "power of two"));
    fake::fail("ibv_create_rwq_ind_table", 1, EOPNOTSUPP);
    CHECK(caught([&] { const rwq_ind_table table(with.device, queues); }).code == EOPNOTSUPP);
    for (unsigned nth = 1; nth <= 3; ++nth) {
        const failing_allocation none(nth);
        std::error_code ec;
        CHECK_FALSE(rwq_ind_table::create(with.device, std::span<const wq>(queues), ec));
        CHECK(number(ec) == ENOMEM);
    }
}

// ---------------------------------------------------------------- flow, flow_action, counters

TEST_CASE_METHOD(unit::test, "flow: specs and actions lie behind the rule, in network byte order", "[objects]") {
    in_addr here{};
    REQUIRE(inet_pton(AF_INET, "192.0.2.1", &here) == 1);
    flow_attr rule(1, flow_attr_type::normal, 3);
    rule.flags(flow_flags::dont_trap)
        .add(flow_eth().dst_mac({1, 2, 3, 4, 5, 6}).ether_type(0x0800).vlan_tag(0x123))
        .add(flow_ipv4().dst_ip(here, 24).proto(17))
        .add(flow_udp().dst_port(7471).src_port(0x1200, 0xff00))
        .tag(0x42);
    const ibv_flow_attr& raw = rule.raw();
    CHECK(raw.type == IBV_FLOW_ATTR_NORMAL);
    CHECK(raw.priority == 3);
    CHECK(raw.port == 1);
    CHECK(raw.flags == IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
    CHECK(raw.num_of_specs == 4);
    const auto* at = reinterpret_cast<const std::byte*>(&raw + 1);
    const auto next = [&]<class Spec>(Spec& out) {
        std::memcpy(&out, at, sizeof out);
        CHECK(out.size == sizeof out);
        at += sizeof out;
    };
    ibv_flow_spec_eth eth{};
    next(eth);
    CHECK(eth.type == IBV_FLOW_SPEC_ETH);
    CHECK(eth.val.dst_mac[5] == 6);
    CHECK(eth.mask.dst_mac[0] == 0xff);
    CHECK(eth.mask.src_mac[0] == 0);
    CHECK(eth.val.ether_type == htons(0x0800));
    CHECK(eth.mask.ether_type == 0xffff);
    CHECK(eth.val.vlan_tag == htons(0x123));
    CHECK(eth.mask.vlan_tag == htons(0x0fff));
    ibv_flow_spec_ipv4_ext ip{};
    next(ip);
    CHECK(ip.type == IBV_FLOW_SPEC_IPV4_EXT);
    CHECK(ip.val.dst_ip == here.s_addr);
    CHECK(ip.mask.dst_ip == htonl(0xffffff00));
    CHECK(ip.mask.src_ip == 0);
    CHECK(ip.val.proto == 17);
    ibv_flow_spec_tcp_udp udp{};
    next(udp);
    CHECK(udp.type == IBV_FLOW_SPEC_UDP);
    CHECK(udp.val.dst_port == htons(7471));
    CHECK(udp.mask.dst_port == 0xffff);
    CHECK(udp.val.src_port == htons(0x1200));
    CHECK(udp.mask.src_port == htons(0xff00));
    ibv_flow_spec_action_tag tag{};
    next(tag);
    CHECK(tag.type == IBV_FLOW_SPEC_ACTION_TAG);
    CHECK(tag.tag_id == 0x42);
    CHECK(at == reinterpret_cast<const std::byte*>(&raw) + raw.size);
}

TEST_CASE_METHOD(unit::test, "flow: the other specs", "[objects]") {
    in6_addr there{};
    REQUIRE(inet_pton(AF_INET6, "2001:db8::1", &there) == 1);
    const auto v6 = flow_ipv6().src_ip(there, 36).flow_label(5).next_hdr(6).raw();
    CHECK(v6.type == IBV_FLOW_SPEC_IPV6);
    CHECK(v6.mask.src_ip[3] == 0xff);
    CHECK(v6.mask.src_ip[4] == 0xf0);
    CHECK(v6.mask.src_ip[5] == 0);
    CHECK(v6.val.src_ip[15] == 1);
    CHECK(v6.val.flow_label == htonl(5));
    CHECK(v6.mask.flow_label == htonl(0xfffff));
    CHECK(flow_ipv6().dst_ip(there).raw().mask.dst_ip[15] == 0xff);
    CHECK(flow_ipv6().dst_ip(there, 0).raw().mask.dst_ip[0] == 0);
    CHECK(flow_ipv4().src_ip({}, 0).raw().mask.src_ip == 0);
    // A prefix that is too long matches one address, not all.
    CHECK(flow_ipv4().dst_ip({}, 33).raw().mask.dst_ip == 0xffffffff);
    CHECK(flow_ipv4().src_ip({}, 64).raw().mask.src_ip == 0xffffffff);
    CHECK(flow_ipv6().dst_ip(there, 129).raw().mask.dst_ip[0] == 0xff);
    CHECK(flow_ipv4().src_ip({}).raw().mask.src_ip == 0xffffffff);
}

namespace {

/// Each setter sets its field and the field's mask, and nothing else: what is left of the spec without these bytes is
/// zero, but for its head.
template <class Spec, class Field>
void sets_only(const Spec& spec, Field decltype(spec.raw().val)::*field, Field value, Field mask) {
    auto raw = spec.raw();
    CHECK(raw.size == sizeof raw);
    CHECK(raw.val.*field == value);
    CHECK(raw.mask.*field == mask);
    raw.val.*field = 0;
    raw.mask.*field = 0;
    decltype(raw.val) none;
    std::memset(static_cast<void*>(&none), 0, sizeof none);
    CHECK(std::memcmp(&raw.val, &none, sizeof none) == 0);
    CHECK(std::memcmp(&raw.mask, &none, sizeof none) == 0);
}

} // namespace

TEST_CASE_METHOD(unit::test, "flow: each setter of a spec is about one field, all of it unless told", "[objects]") {
    using eth = ibv_flow_eth_filter;
    using v4 = ibv_flow_ipv4_ext_filter;
    using v6 = ibv_flow_ipv6_filter;
    using ports = ibv_flow_tcp_udp_filter;
    using gre = ibv_flow_gre_filter;
    const auto u8 = [](int value) {
        return static_cast<std::uint8_t>(value);
    };
    sets_only(flow_eth().ether_type(0x0800), &eth::ether_type, htons(0x0800), htons(0xffff));
    sets_only(flow_eth().ether_type(0x0800, 0xff00), &eth::ether_type, htons(0x0800), htons(0xff00));
    sets_only(flow_eth().vlan_tag(5), &eth::vlan_tag, htons(5), htons(0x0fff));
    const auto from = flow_eth().src_mac({1, 2, 3, 4, 5, 6}, {0xff, 0xff, 0xff, 0, 0, 0}).raw();
    CHECK(from.val.src_mac[5] == 6);
    CHECK(from.mask.src_mac[2] == 0xff);
    CHECK(from.mask.src_mac[3] == 0);
    CHECK(from.mask.dst_mac[0] == 0);
    sets_only(flow_ipv4().src_ip({htonl(0xc0000200)}, 24), &v4::src_ip, htonl(0xc0000200), htonl(0xffffff00));
    sets_only(flow_ipv4().dst_ip({htonl(0xc0000201)}), &v4::dst_ip, htonl(0xc0000201), htonl(0xffffffff));
    sets_only(flow_ipv4().proto(6), &v4::proto, u8(6), u8(0xff));
    sets_only(flow_ipv4().tos(7, 0xfc), &v4::tos, u8(7), u8(0xfc));
    sets_only(flow_ipv4().ttl(8), &v4::ttl, u8(8), u8(0xff));
    sets_only(flow_ipv4().flags(2, 3), &v4::flags, u8(2), u8(3));
    sets_only(flow_ipv6().flow_label(5), &v6::flow_label, htonl(5), htonl(0xfffff));
    sets_only(flow_ipv6().next_hdr(6), &v6::next_hdr, u8(6), u8(0xff));
    sets_only(flow_ipv6().traffic_class(7), &v6::traffic_class, u8(7), u8(0xff));
    sets_only(flow_ipv6().hop_limit(8, 0xf0), &v6::hop_limit, u8(8), u8(0xf0));
    sets_only(flow_tcp().dst_port(80), &ports::dst_port, htons(80), htons(0xffff));
    sets_only(flow_tcp().src_port(81, 0xf0f0), &ports::src_port, htons(81), htons(0xf0f0));
    sets_only(flow_udp().dst_port(82), &ports::dst_port, htons(82), htons(0xffff));
    sets_only(flow_esp().spi(2), &ibv_flow_esp_filter::spi, htonl(2), htonl(0xffffffff));
    sets_only(flow_esp().seq(3, 0xff), &ibv_flow_esp_filter::seq, htonl(3), htonl(0xff));
    sets_only(flow_vxlan().tunnel_id(9), &ibv_flow_tunnel_filter::tunnel_id, htonl(9), htonl(0xffffff));
    sets_only(flow_gre().c_ks_res0_ver(0x2000), &gre::c_ks_res0_ver, htons(0x2000), htons(0xffff));
    sets_only(flow_gre().protocol(0x6558), &gre::protocol, htons(0x6558), htons(0xffff));
    sets_only(flow_gre().key(1, 0xff), &gre::key, htonl(1), htonl(0xff));
    sets_only(flow_mpls().label(0x1000, 0xfffff000), &ibv_flow_mpls_filter::label, htonl(0x1000), htonl(0xfffff000));
}

TEST_CASE_METHOD(unit::test, "flow: each spec is of its type, inside of a tunnel as well", "[objects]") {
    const auto is = [](auto spec, int type) {
        CHECK(static_cast<int>(spec.raw().type) == type);
        CHECK_FALSE(spec.is_inner());
        if constexpr (requires { spec.inner(); }) {
            const auto& inner = spec.inner();
            CHECK(static_cast<int>(inner.raw().type) == (type | IBV_FLOW_SPEC_INNER));
            CHECK(inner.is_inner());
        }
        return requires {
            spec.inner();
        };
    };
    CHECK(is(flow_eth(), IBV_FLOW_SPEC_ETH));
    CHECK(is(flow_ipv4(), IBV_FLOW_SPEC_IPV4_EXT));
    CHECK(is(flow_ipv6(), IBV_FLOW_SPEC_IPV6));
    CHECK(is(flow_tcp(), IBV_FLOW_SPEC_TCP));
    CHECK(is(flow_udp(), IBV_FLOW_SPEC_UDP));
    CHECK(is(flow_esp(), IBV_FLOW_SPEC_ESP));
    CHECK(is(flow_mpls(), IBV_FLOW_SPEC_MPLS));
    CHECK_FALSE(is(flow_vxlan(), IBV_FLOW_SPEC_VXLAN_TUNNEL)); // these make the tunnel
    CHECK_FALSE(is(flow_gre(), IBV_FLOW_SPEC_GRE));
}

TEST_CASE_METHOD(unit::test, "flow: ends before its queue pair, and keeps its counters and actions", "[objects]") {
    const opened with;
    qp queue(with.pd, qp_init_attr(with.cq).type(qp_type::ud));
    counters counted(with.device);
    flow_action action(with.device, flow_action_esp_attr(flow_action_esp_flags::none));
    flow rule(queue, flow_attr(1).add(flow_eth()).count(counted).action(action));
    CHECK(detail_of("ibv_create_flow") == "port 1, priority 0, flags 0, 20, 1003 by " +
                                              fake::name_of(counted.native_handle()) + ", 1002 by " +
                                              fake::name_of(action.native_handle()));
    counted.close();
    action.close();
    CHECK(fake::calls("ibv_destroy_counters") == 0);
    CHECK(fake::calls("ibv_destroy_flow_action") == 0);
    CHECK(caught([&] { queue.close(); }).code == EBUSY);
    rule.close();
    CHECK(fake::in_order({"ibv_destroy_flow", "ibv_destroy_counters"}));
    CHECK(fake::calls("ibv_destroy_flow_action") == 1);
    queue.close();
}

TEST_CASE_METHOD(unit::test, "flow_action: ESP with its key, its window and its limits", "[objects]") {
    const opened with;
    std::array<std::byte, 32> key{};
    key[15] = std::byte{15};
    key[31] = std::byte{31};
    using enum flow_action_esp_flags;
    const flow_action action(with.device, flow_action_esp_attr(encrypt | transport | full_offload)
                                              .spi(17)
                                              .seq(2)
                                              .tfc_pad(64)
                                              .hard_limit_pkts(1ULL << 40)
                                              .aes_gcm(key, 3, 5)
                                              .replay_bmp(256)
                                              .esn(4));
    CHECK(detail_of("ibv_create_flow_action_esp") == "esn 4, mask 1, spi 17, seq 2, pad 64, flags 7, limit "
                                                     "1099511627776, protocol 0, key of 32 bytes to 31, salt 3, "
                                                     "iv 5, icv 16, replay 1 of 256");
    action.modify(flow_action_esp_attr(esn_new_window).esn(5));
    CHECK(detail_of("ibv_modify_flow_action_esp") == "esn 5, mask 1, spi 0, seq 0, pad 0, flags 8, limit 0");
    const flow_action_ref ref = action;
    std::error_code ec = std::make_error_code(std::errc::io_error);
    ibv_flow_ipv4_filter outside{};
    ibv_flow_action_esp_encap tunnel{};
    tunnel.val_ptr = &outside;
    tunnel.len = sizeof outside;
    tunnel.type = IBV_FLOW_SPEC_IPV4;
    const auto short_key = std::span(key).first(16);
    ref.modify(flow_action_esp_attr(flow_action_esp_flags::none).aes_gcm(short_key, 0, 0, 12).encap(tunnel), ec);
    CHECK(!ec);
    CHECK(detail_of("ibv_modify_flow_action_esp") == "esn 0, mask 0, spi 0, seq 0, pad 0, flags 0, limit 0, protocol "
                                                     "0, key of 16 bytes to 15, salt 0, iv 0, icv 12, "
                                                     "in 48");
    ibv_flow_action_esp_attr raw{}; // C's own
    raw.esn = 9;
    ref.modify(raw);
    CHECK(detail_of("ibv_modify_flow_action_esp") == "esn 9, mask 0");
    const auto odd = flow_action_esp_attr(flow_action_esp_flags::none).aes_gcm(std::span(key).first(17), 0, 0);
    const caught refused([&] { const flow_action none(with.device, odd); });
    CHECK(refused.code == EINVAL);
    CHECK(contains(refused.cause, "16, 24 and 32"));
    action.modify(odd, ec);
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(flow_action::create(with.device, odd, ec));
    CHECK(number(ec) == EINVAL);
    fake::fail("ibv_modify_flow_action_esp", 1, EOPNOTSUPP);
    CHECK(caught([&] { action.modify(flow_action_esp_attr(esn_new_window)); }).code == EOPNOTSUPP);
}

TEST_CASE_METHOD(unit::test, "flow: C's own specs are added as they are", "[objects]") {
    const opened with;
    const qp queue(with.pd, qp_init_attr(with.cq).type(qp_type::ud));
    ibv_flow_spec_ipv4 ip{};
    ip.type = IBV_FLOW_SPEC_IPV4;
    ip.size = sizeof ip;
    const flow rule(queue, flow_attr(1).add(flow_eth()).add(ip).drop());
    CHECK(detail_of("ibv_create_flow") == "port 1, priority 0, flags 0, 20, 30, 1001");
}

TEST_CASE_METHOD(unit::test, "flow: what fails says why", "[objects]") {
    const opened with;
    const qp connected(with.pd, qp_init_attr(with.cq));
    const caught refused([&] { const flow rule(connected, flow_attr(1).drop()); });
    CHECK(refused.code == EINVAL);
    CHECK(refused.call == "ibv_create_flow");
    flow_attr endless(1);
    for (int i = 0; i < 20; ++i)
        endless.add(flow_ipv6());
    CHECK(endless.raw().size <= 512);
    CHECK(caught([&] { const flow rule(connected, endless); }).code == E2BIG);
    std::error_code ec;
    CHECK_FALSE(flow::create(qp_ref(), flow_attr(1), ec));
    CHECK(number(ec) == EINVAL);
    const counters counted(with.device);
    flow_attr crowded(1);
    for (std::size_t i = 0; i <= flow_attr::max_pins; ++i)
        crowded.count(counted);
    CHECK_FALSE(flow::create(connected, crowded, ec));
    CHECK(number(ec) == E2BIG);
    for (const flow_attr& empty : {flow_attr(1).count(counters()), flow_attr(1).action(flow_action())}) {
        const caught failed([&] { const flow rule(connected, empty); });
        CHECK(failed.code == EINVAL);
        CHECK(contains(failed.cause, "empty"));
    }
    fake::fail("ibv_create_flow_action_esp", 1, EOPNOTSUPP);
    CHECK_FALSE(flow_action::create(with.device, {}, ec));
    CHECK(number(ec) == EOPNOTSUPP);
}

TEST_CASE_METHOD(unit::test, "counters: count what they are told, and are read", "[objects]") {
    const opened with;
    const counters counted(with.device);
    counted.attach_point_flow(counter_description::packets, 0);
    counted.attach_point_flow(counter_description::bytes, 1);
    CHECK(detail_of("ibv_attach_counters_point_flow") == "counter 1 at 1");
    std::array<std::uint64_t, 3> values{};
    counted.read(values);
    CHECK(detail_of("ibv_read_counters") == "flags 0");
    CHECK(values == std::array<std::uint64_t, 3>{1, 100, 0});
    std::error_code ec;
    counted.read(values, true, ec);
    CHECK(!ec);
    CHECK(detail_of("ibv_read_counters") == "flags 1");
    CHECK(values[1] == 200);
    fake::fail("ibv_read_counters", 1, EIO);
    CHECK(caught([&] { counted.read(values); }).call == "ibv_read_counters");
    fake::fail("ibv_create_counters", 1, EOPNOTSUPP);
    CHECK(caught([&] { const counters other(with.device); }).code == EOPNOTSUPP);
    CHECK(std::string(to_string(counter_description::bytes)) == "bytes");
}

TEST_CASE_METHOD(unit::test, "objects that C made are taken over, and given up", "[objects]") {
    const opened with;
    std::error_code ec;
    ibv_counters_init_attr init{};
    counters counted = counters::adopt(::ibv_create_counters(with.device.native_handle(), &init), with.device, ec);
    CHECK(counted);
    counted.close();
    CHECK(fake::calls("ibv_destroy_counters") == 1);
    flow_action action(with.device, {});
    ibv_flow_action* raw_action = std::move(action).release();
    CHECK(fake::calls("ibv_destroy_flow_action") == 0);
    flow_action::adopt(raw_action, with.device, ec).close();
    CHECK(fake::calls("ibv_destroy_flow_action") == 1);
    const qp queue(with.pd, qp_init_attr(with.cq).type(qp_type::ud));
    flow rule(queue, flow_attr(1));
    flow::adopt(std::move(rule).release(), ec).close();
    CHECK(fake::calls("ibv_destroy_flow") == 1);
    const wq receives(with.pd, with.cq);
    const std::array<wq_ref, 1> one = {receives};
    rwq_ind_table table(with.device, one);
    rwq_ind_table::adopt(std::move(table).release(), with.device, ec).close();
    CHECK(fake::calls("ibv_destroy_rwq_ind_table") == 1);
    std::array<std::byte, 64> memory{};
    iova_mr region = iova_mr::reg_mr_iova(with.pd, memory, 4096);
    const iova_mr again = iova_mr::adopt(std::move(region).release(), 4096, 64, with.pd, ec);
    CHECK(again.sge(4, 4).addr == 4100);
    CHECK(!ec);
}

// ---------------------------------------------------------------- what else CQs and queue pairs do

TEST_CASE_METHOD(unit::test, "cq: resize and moderation", "[objects]") {
    const opened with;
    int mine = 0;
    CHECK(with.cq.cq_context() == nullptr);
    with.cq.set_cq_context(&mine);
    CHECK(with.cq.cq_context() == &mine);
    const cq_ex<> extended(with.device, cq_init_attr_ex(4).cq_context(&mine));
    CHECK(extended.cq_context() == &mine);
    with.cq.resize(100);
    CHECK(with.cq.size() == 128);
    CHECK(caught([&] { with.cq.resize(1 << 30); }).call == "ibv_resize_cq");
    with.cq.moderate(10, 50);
    CHECK(detail_of("ibv_modify_cq") == "mask 1, count 10, period 50");
    fake::fail("ibv_modify_cq", 1, EOPNOTSUPP);
    std::error_code ec;
    with.cq.moderate(1, 1, ec);
    CHECK(number(ec) == EOPNOTSUPP);
    with.cq.resize(0, ec);
    CHECK(number(ec) == EINVAL);
}

TEST_CASE_METHOD(unit::test, "qp: attached to a group by hand, it must be detached first", "[objects]") {
    const opened with;
    qp queue(with.pd, qp_init_attr(with.cq).type(qp_type::ud));
    const gid group(address::parse("ff0e::1"));
    queue.attach_mcast(group);
    CHECK(caught([&] { queue.close(); }).code == EBUSY);
    queue.detach_mcast(group);
    const caught twice([&] { queue.detach_mcast(group); });
    CHECK(twice.code == EINVAL);
    CHECK(twice.call == "ibv_detach_mcast");
    std::error_code ec;
    queue.attach_mcast(gid(address::parse("fe80::1")), 0, ec); // nobody's group
    CHECK(number(ec) == EINVAL);
    queue.close();
}

// ---------------------------------------------------------------- datagram

namespace {

wc received(std::uint32_t length, unsigned flags = IBV_WC_GRH) {
    ibv_wc raw{};
    raw.status = IBV_WC_SUCCESS;
    raw.opcode = IBV_WC_RECV;
    raw.byte_len = length;
    raw.src_qp = 0x17;
    raw.wc_flags = flags;
    return wc(raw);
}

} // namespace

TEST_CASE_METHOD(unit::test, "datagram: the payload follows 40 bytes", "[objects]") {
    std::array<std::byte, 100> buffer{};
    buffer[0] = std::byte{0x60};
    buffer[40] = std::byte{1};
    static_assert(datagram::room_for(60) == 100);
    const datagram got(received(48), buffer);
    CHECK(got.payload().size() == 8);
    CHECK(got.payload()[0] == std::byte{1});
    CHECK(got.header()[0] == std::byte{0x60});
    CHECK(got.has_grh());
    CHECK(got.src_qp() == 0x17);
    CHECK_FALSE(datagram(received(40, 0), buffer).has_grh());
    CHECK_FALSE(datagram(received(40, 0), buffer).sgid());
    CHECK_FALSE(datagram(received(40, 0), buffer).dgid());
    CHECK(datagram(received(40), buffer).payload().empty());
    std::error_code ec;
    for (const std::uint32_t length : {39U, 0U, 101U}) {
        CHECK(datagram::create(received(length), buffer, ec).payload().empty());
        CHECK(number(ec) == EINVAL);
    }
    CHECK(caught([&] { const datagram none(wc(), buffer); }).code == EINVAL); // a send
}

namespace {

/// What a datagram over IPv4 brings: 20 bytes of anything, and an IPv4 header.
std::array<std::byte, 48> over_ipv4(std::uint8_t before, const char* from, const char* to, std::uint8_t tos) {
    std::array<std::uint8_t, 48> bytes{};
    bytes[0] = before;
    std::uint8_t* ip = bytes.data() + 20;
    ip[0] = 0x45;
    ip[1] = tos;
    ip[8] = 1;
    ip[9] = 17;
    ::inet_pton(AF_INET, from, ip + 12);
    ::inet_pton(AF_INET, to, ip + 16);
    unsigned sum = 0;
    for (unsigned i = 0; i < 20; i += 2)
        sum += static_cast<unsigned>(ip[i]) << 8 | ip[i + 1];
    sum = ~((sum & 0xffff) + (sum >> 16));
    ip[10] = static_cast<std::uint8_t>(sum >> 8 & 0xff);
    ip[11] = static_cast<std::uint8_t>(sum & 0xff);
    return std::bit_cast<std::array<std::byte, 48>>(bytes);
}

std::array<std::byte, 48> over_ipv6(const gid& from, const gid& to) {
    std::array<std::byte, 48> bytes{};
    auto& header = *reinterpret_cast<ibv_grh*>(bytes.data());
    header.version_tclass_flow = htonl(0x60000000U | 0x2aU << 20 | 0x12345U);
    header.sgid = from.raw();
    header.dgid = to.raw();
    return bytes;
}

gid_entry own_row(std::uint32_t index, std::uint32_t port = 1) {
    gid_entry row;
    row.raw().gid_index = index;
    row.raw().port_num = port;
    return row;
}

} // namespace

TEST_CASE_METHOD(unit::test, "datagram: who sent it, and to whom", "[objects]") {
    // The first byte may look like that of IPv6; then the checksum of the IPv4 header decides.
    for (const std::uint8_t before : {std::uint8_t{0}, std::uint8_t{0x60}}) {
        const auto bytes = over_ipv4(before, "192.0.2.9", "239.1.2.3", 0x68);
        const datagram got(received(48), bytes);
        CHECK(got.sgid() == gid(address("192.0.2.9", 0)));
        CHECK(got.dgid() == gid(address("239.1.2.3", 0)));
    }
    const gid from(address("fe80::9", 0));
    const gid to(address("fe80::1", 0));
    auto bytes = over_ipv6(from, to);
    CHECK(datagram(received(48), bytes).sgid() == from);
    CHECK(datagram(received(48), bytes).dgid() == to);
    // A GRH whose source looks like an IPv4 header, but for the checksum.
    bytes[20] = std::byte{0x45};
    CHECK(datagram(received(48), bytes).dgid() == to);
}

TEST_CASE_METHOD(unit::test, "ah: back to the sender of what a group got", "[objects]") {
    const opened with;
    const auto ipv4 = over_ipv4(0, "192.0.2.9", "239.1.2.3", 0x68);
    wc completion = received(48);
    completion.raw().slid = 3;
    completion.raw().sl = 4;
    completion.raw().dlid_path_bits = 5;
    const datagram got(completion, ipv4);
    ibv_ah_attr attr = init_ah_from_datagram(got, own_row(7, 2));
    CHECK(gid(attr.grh.dgid) == gid(address("192.0.2.9", 0)));
    CHECK(attr.is_global == 1);
    CHECK(attr.grh.sgid_index == 7);
    CHECK(attr.grh.traffic_class == 0x68);
    CHECK(attr.grh.flow_label == 0);
    CHECK(attr.port_num == 2);
    CHECK(attr.dlid == 3);
    CHECK(attr.sl == 4);
    CHECK(attr.src_path_bits == 5);
    const gid from(address("fe80::9", 0));
    const auto ipv6 = over_ipv6(from, gid(address("ff0e::1", 0)));
    attr = init_ah_from_datagram(datagram(received(48), ipv6), own_row(0));
    CHECK(gid(attr.grh.dgid) == from);
    CHECK(attr.grh.traffic_class == 0x2a);
    CHECK(attr.grh.flow_label == 0x12345);
    attr = init_ah_from_datagram(datagram(received(48, 0), ipv6), own_row(0)); // InfiniBand, in one subnet
    CHECK(attr.is_global == 0);
    CHECK(attr.port_num == 1);

    const ah back = ah::from_datagram(with.pd, got, own_row(7));
    CHECK(back);
    CHECK(fake::calls("ibv_create_ah") == 1);
    CHECK(fake::calls("ibv_create_ah_from_wc") == 0);
    CHECK(caught([&] { static_cast<void>(ah::from_datagram(with.pd, got, own_row(256))); }).code == ERANGE);
    std::error_code ec;
    CHECK_FALSE(ah::from_datagram(with.pd, got, own_row(256), ec));
    CHECK(number(ec) == ERANGE);
    CHECK(ah::from_datagram(with.pd, got, own_row(7), ec));
    CHECK(!ec);

    // C's own ways fail, and say why.
    for (const auto* bytes : {&ipv4, &ipv6}) {
        const datagram to_group(received(48), *bytes);
        fake::fail("ibv_create_ah_from_wc", 1, EINVAL);
        CHECK(contains(caught([&] { static_cast<void>(ah::from_datagram(with.pd, to_group, 1)); }).cause, "group"));
        fake::fail("ibv_init_ah_from_wc", 1, EINVAL);
        CHECK(contains(caught([&] { static_cast<void>(init_ah_from_datagram(with.device, to_group, 1)); }).cause,
                       "gid_entry"));
    }
    const auto to_one = over_ipv6(from, gid(address("fe80::1", 0)));
    fake::fail("ibv_create_ah_from_wc", 1, EINVAL);
    CHECK(caught([&] {
              static_cast<void>(ah::from_datagram(with.pd, datagram(received(48), to_one), 1));
          }).cause.empty());
}

TEST_CASE_METHOD(unit::test, "ah: back to the sender of a datagram", "[objects]") {
    const opened with;
    std::array<std::byte, 48> buffer{};
    auto& header = *reinterpret_cast<ibv_grh*>(buffer.data());
    const gid sender(address::parse("192.0.2.9"));
    header.sgid = sender.raw();
    header.hop_limit = 7;
    const datagram got(received(48), buffer);
    const ibv_ah_attr attr = init_ah_from_datagram(with.device, got, 1);
    CHECK(attr.is_global == 1);
    CHECK(attr.port_num == 1);
    CHECK(gid(attr.grh.dgid) == sender);
    CHECK(attr.grh.hop_limit == 7);
    const ah back = ah::from_datagram(with.pd, got, 1);
    CHECK(back);
    CHECK(fake::calls("ibv_create_ah_from_wc") == 1);
    // C would look into the header.
    const caught headless([&] { static_cast<void>(ah::from_wc(with.pd, received(48), nullptr, 1)); });
    CHECK(headless.code == EINVAL);
    CHECK(contains(headless.cause, "40 bytes"));
    CHECK(fake::calls("ibv_create_ah_from_wc") == 1);
    CHECK(ah::from_wc(with.pd, received(48, 0), nullptr, 1)); // InfiniBand, in one subnet: it has none
    fake::fail("ibv_init_ah_from_wc", 1, EINVAL);
    const caught failed([&] { static_cast<void>(init_ah_from_datagram(with.device, got, 1)); });
    CHECK(failed.code == EINVAL);
    CHECK(failed.call == "ibv_init_ah_from_wc");
    CHECK(flow_label_to_udp_sport(0x12345) >= 0xc000);
    const caught unresolved([&] { static_cast<void>(resolve_eth_l2_from_gid(with.device, attr)); });
    CHECK(unresolved.code == EOPNOTSUPP); // the fake has no network; C returns a negative errno
    CHECK(unresolved.call == "ibv_resolve_eth_l2_from_gid");
}
