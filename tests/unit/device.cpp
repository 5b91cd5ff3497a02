// Devices, their list, and contexts.
#include "test.hpp"

#include <algorithm>

#include <fcntl.h>
#include <unistd.h>

using namespace rdmaxx;
using namespace unit;

namespace {

bool is_open(int fd) {
    return ::fcntl(fd, F_GETFD) != -1;
}

} // namespace

TEST_CASE_METHOD(unit::test, "device_list: no device is an empty list, and no error", "[device]") {
    fake::devices({});
    const device_list devices;
    CHECK(devices.empty());
    CHECK(devices.size() == 0);
    CHECK(devices.begin() == devices.end());
    CHECK_FALSE(devices.find("fake0"));
    std::error_code ec = std::make_error_code(std::errc::io_error);
    const device_list other = device_list::create(ec);
    CHECK(!ec);
    CHECK(other.empty());
    CHECK(other); // a list, though empty
}

TEST_CASE_METHOD(unit::test, "device_list: its elements have numbers", "[device]") {
    fake::devices({{.name = "fake0"}, {.name = "fake1"}});
    const device_list devices;
    REQUIRE(devices.size() == 2);
    CHECK(std::string(devices[0].name()) == "fake0");
    CHECK(std::string(devices[1].name()) == "fake1");
    CHECK(devices[0] == devices.front());
}

TEST_CASE_METHOD(unit::test, "device_list: a failure is an error with its errno", "[device]") {
    fake::fail("ibv_get_device_list", 1, ENOSYS);
    const caught failed([] { const device_list devices; });
    CHECK(failed.code == ENOSYS);
    CHECK(failed.call == "ibv_get_device_list");
    fake::fail("ibv_get_device_list", 1, EPERM);
    std::error_code ec;
    const device_list none = device_list::create(ec);
    CHECK(number(ec) == EPERM);
    CHECK_FALSE(none);
    CHECK(none.empty());
    CHECK(none.begin() == none.end());
    CHECK(fake::calls("ibv_free_device_list") == 0);
}

TEST_CASE_METHOD(unit::test, "device_list: is freed once, and a context keeps its device", "[device]") {
    std::optional<context> open;
    {
        device_list devices;
        const device_list moved(std::move(devices));
        open.emplace(moved.front());
    }
    CHECK(fake::calls("ibv_free_device_list") == 1);
    CHECK(std::string(open->device().name()) == "fake0");
    open.reset();
    CHECK(fake::in_order({"ibv_open_device", "ibv_free_device_list", "ibv_close_device"}));
}

TEST_CASE_METHOD(unit::test, "device_list: names, GUIDs and kinds of its devices", "[device]") {
    fake::devices({{.name = "fake0"}, {.name = "iw0", .transport = IBV_TRANSPORT_IWARP, .node = IBV_NODE_RNIC}});
    const device_list devices;
    REQUIRE(devices.size() == 2);
    std::vector<std::string> names;
    for (const device_ref device : devices)
        names.emplace_back(device.name());
    CHECK(names == std::vector<std::string>{"fake0", "iw0"});
    CHECK(devices.front() == *devices.begin());
    const device_ref iwarp = devices.find("iw0");
    CHECK(devices.find(std::string("iw0")) == iwarp);
    CHECK(devices.find(std::string_view("iw0 and more").substr(0, 3)) == iwarp);
    REQUIRE(iwarp);
    CHECK(iwarp.is_iwarp());
    CHECK(iwarp.transport_type() == transport_type::iwarp);
    CHECK(iwarp.node_type() == node_type::rnic);
    CHECK_FALSE(devices.front().is_iwarp());
    CHECK(std::string(to_string(devices.front().transport_type())) == "ib");
    CHECK(std::string(to_string(static_cast<transport_type>(99))) == "unknown");
    CHECK(iwarp.dev_name() == iwarp.native_handle()->dev_name);
    CHECK(iwarp.dev_path() == iwarp.native_handle()->dev_path);
    CHECK(iwarp.ibdev_path() == iwarp.native_handle()->ibdev_path);
    CHECK(devices.front().guid() == 0x505400fffe000001);
    CHECK(iwarp.guid() == 0x505400fffe000002);
    CHECK_FALSE(devices.find("fake"));
    CHECK_FALSE(devices.find(""));
}

TEST_CASE_METHOD(unit::test, "context: opens a device, and asks it", "[device]") {
    const opened with;
    const ibv_device_attr attr = with.device.query_device();
    CHECK(attr.max_qp_wr == fake::limits().max_qp_wr);
    CHECK(with.device.query_port(1).state == IBV_PORT_ACTIVE);
    CHECK(caught([&] { static_cast<void>(with.device.query_port(2)); }).code == EINVAL);
    std::error_code ec;
    CHECK(with.device.query_device(ec).phys_port_cnt == 1);
    CHECK(!ec);
    CHECK(caught([&] { static_cast<void>(with.device.query_port(257)); }).code == EINVAL); // not port 1
    static_cast<void>(with.device.query_port(0, ec));
    CHECK(number(ec) == EINVAL);
    CHECK(with.device.async_fd() >= 0);
    const context_ref ref = with.device;
    CHECK(ref.query_port(1).max_mtu == IBV_MTU_4096);
}

TEST_CASE_METHOD(unit::test, "context: a device that cannot be opened is the C call's errno", "[device]") {
    const device_list devices;
    fake::fail("ibv_open_device", 1, EACCES);
    const caught failed([&] { const context device(devices.front()); });
    CHECK(failed.code == EACCES);
    CHECK(failed.call == "ibv_open_device");
    fake::remove_device("fake0");
    CHECK(caught([&] { const context device(devices.front()); }).code == ENODEV);
}

TEST_CASE_METHOD(unit::test, "context: of an id keeps the list that keeps the device open", "[device]") {
    std::optional<context> device;
    ibv_context* raw = nullptr;
    {
        const bound_id on;
        device.emplace(on.id);
        CHECK(*device == on.id.verbs());
        raw = device->native_handle();
    }
    CHECK(fake::calls("rdma_get_devices") == 1);
    CHECK(fake::calls("rdma_free_devices") == 0);
    {
        const pd domain(*device); // though no id is left
        device.reset();
        CHECK(fake::calls("rdma_free_devices") == 0);
        CHECK(domain.context().native_handle() == raw);
        CHECK(domain.context().query_device().max_pd > 0);
    }
    CHECK(fake::in_order({"ibv_dealloc_pd", "rdma_free_devices"}));
    CHECK(fake::calls("rdma_free_devices") == 1);
    CHECK(fake::calls("ibv_close_device") == 0); // librdmacm's own
}

TEST_CASE_METHOD(unit::test, "context: of an id, of several devices, is that of the id", "[device]") {
    fake::devices({{.name = "fake0", .addresses = {"192.0.2.7"}}, {.name = "fake1", .addresses = {"192.0.2.1"}}});
    const bound_id on;
    const context device(on.id);
    CHECK(std::string(device.device().name()) == "fake1");
    const cm_id_ref ref = on.id;
    const context again(ref);
    CHECK(again.native_handle() == device.native_handle());
}

TEST_CASE_METHOD(unit::test, "context: of an id whose device is gone is ENODEV, and leaves nothing", "[device]") {
    fake::devices({{.name = "fake0", .addresses = {"192.0.2.1"}}, {.name = "fake1", .addresses = {"192.0.2.2"}}});
    bound_id on;
    fake::remove_device("fake0");
    const caught gone([&] { const context device(on.id); });
    CHECK(gone.code == ENODEV);
    CHECK(contains(gone.cause, "device is gone"));
    CHECK(fake::calls("rdma_get_devices") == fake::calls("rdma_free_devices"));
    fake::fail("rdma_get_devices", 1, ENOMEM);
    std::error_code ec;
    CHECK_FALSE(context::create(on.id, ec));
    CHECK(number(ec) == ENOMEM);
}

TEST_CASE_METHOD(unit::test, "context: of an id with ENOMEM frees the list", "[device]") {
    const bound_id on;
    const failing_allocation fails(1);
    std::error_code ec;
    CHECK_FALSE(context::create(on.id, ec));
    CHECK(number(ec) == ENOMEM);
    CHECK(fake::calls("rdma_get_devices") == fake::calls("rdma_free_devices"));
}

// ---------------------------------------------------------------- GIDs, P_Keys, ports

TEST_CASE_METHOD(unit::test, "gid: is what RoCE has for an address", "[device]") {
    CHECK_FALSE(gid());
    const gid v4(address::parse("192.0.2.1:7471"));
    CHECK(v4);
    CHECK(v4.to_string() == "::ffff:192.0.2.1");
    CHECK(v4.interface_id() == 0x0000ffffc0000201);
    const gid v6(address::parse("[fe80::5054:ff:fe00:1%lo]:7471"));
    CHECK(v6.to_string() == "fe80::5054:ff:fe00:1");
    CHECK(v6.subnet_prefix() == 0xfe80000000000000);
    CHECK(v6.interface_id() == 0x505400fffe000001);
    CHECK(v6 == gid(v6.raw()));
    CHECK(v6 != v4);
    CHECK(std::hash<gid>()(v6) == std::hash<gid>()(gid(v6.raw())));
    CHECK(std::hash<gid>()(v6) != std::hash<gid>()(v4));
    CHECK(gid(address()) == gid());
#if RDMAXX_HAS_AF_IB
    CHECK(gid(address::parse("ib[fe80::5054:ff:fe00:1]")) == v6);
#endif
}

TEST_CASE_METHOD(unit::test, "context: finds the row of an address and a type, and no default one", "[device]") {
    fake::devices({{.name = "fake0", .addresses = {"192.0.2.1", "2001:db8::1"}, .ports = 2}});
    const opened with;
    const gid_table table = with.device.query_gid_table();
    CHECK(table.size() == 12); // link-local and two addresses, v1 and v2, on each port
    for (const gid_entry& row : table)
        CHECK(row.gid());
    const auto here = with.device.find_gid(address::parse("192.0.2.1:7471"), gid_type::roce_v2);
    REQUIRE(here);
    CHECK(here->index() == 3);
    CHECK(here->port_num() == 1);
    CHECK(here->type() == gid_type::roce_v2);
    CHECK(here->ndev_ifindex() == 2);
    CHECK(with.device.query_gid(1, 3).gid() == here->gid());
    const auto there = with.device.find_gid(address::parse("192.0.2.1"), gid_type::roce_v1, 2);
    REQUIRE(there);
    CHECK(there->index() == 2);
    CHECK(there->port_num() == 2);
    const ibv_ah_attr path = ah_attr_to(*there, here->gid(), 1);
    CHECK(path.is_global == 1);
    CHECK(path.port_num == 2);
    CHECK(path.grh.sgid_index == 2);
    CHECK(path.grh.hop_limit == 1);
    CHECK(gid(path.grh.dgid) == here->gid());
    CHECK(ah_attr_to(*there, here->gid()).grh.hop_limit == 64);
    // What tells a port and what takes one agree, under -Wconversion.
    CHECK(with.device.query_port(there->port_num()).state == IBV_PORT_ACTIVE);
    CHECK(with.device.query_pkey(there->port_num(), 0) == 0xffff);
    CHECK(qp_attr(qp_state::init).port_num(there->port_num()).raw().port_num == 2);
    CHECK(qp_attr(qp_state::init).port_num(258).raw().port_num == 0); // no port, and not port 2
    gid_entry far;
    far.raw().gid_index = 256;
    CHECK(caught([&] { static_cast<void>(ah_attr_to(far, here->gid())); }).code == ERANGE); // not row 0
    CHECK_FALSE(with.device.find_gid(address::parse("192.0.2.2"), gid_type::roce_v2));
    CHECK_FALSE(with.device.find_gid(address::parse("192.0.2.1"), gid_type::ib));
    CHECK_FALSE(with.device.find_gid(address::parse("192.0.2.1"), gid_type::roce_v2, 3));
    CHECK(std::string(to_string(here->type())) == "roce_v2");
}

TEST_CASE_METHOD(unit::test, "context: a GID table that cannot be read is an error, and leaves nothing", "[device]") {
    const opened with;
    const char* call = GENERATE("ibv_query_device", "ibv_query_port", "ibv_query_gid_table");
    fake::fail(call, 1, EIO);
    const caught failed([&] { static_cast<void>(with.device.query_gid_table()); });
    CHECK(failed.code == EIO);
    CHECK(failed.call == call);
    fake::fail(call, 1, EIO);
    std::error_code ec;
    CHECK_FALSE(with.device.find_gid(address::parse("192.0.2.1"), gid_type::roce_v2, 0, ec));
    CHECK(number(ec) == EIO);
    CHECK(caught([&] { static_cast<void>(with.device.query_gid(1, 99)); }).code == EINVAL);
    static_cast<void>(with.device.query_gid(1, 0, ec));
    CHECK(!ec);
    const failing_allocation none(1);
    static_cast<void>(with.device.query_gid_table(ec));
    CHECK(number(ec) == ENOMEM);
}

TEST_CASE_METHOD(unit::test, "context: P_Keys in host byte order", "[device]") {
    const opened with;
    CHECK(with.device.query_pkey(1, 0) == 0xffff);
    CHECK(with.device.find_pkey(1, 0xffff) == std::uint16_t{0});
    CHECK_FALSE(with.device.find_pkey(1, 0x8001));
    const caught beyond([&] { static_cast<void>(with.device.query_pkey(1, 1)); });
    CHECK(beyond.code == EINVAL);
    CHECK(beyond.call == "ibv_query_pkey");
    std::error_code ec;
    CHECK(caught([&] { static_cast<void>(with.device.query_pkey(257, 0)); }).code == EINVAL);
    static_cast<void>(with.device.query_pkey(2, 0, ec));
    CHECK(number(ec) == EINVAL);
}

TEST_CASE_METHOD(unit::test, "context: what ports and devices say in types", "[device]") {
    const opened with;
    const port_attr port = with.device.query_port(1);
    CHECK(port.port_state() == port_state::active);
    CHECK(port.mtu() == mtu::bytes_1024);
    CHECK(port.is_ethernet());
    CHECK(port.speed_mbps() == 2500);
    CHECK(with.device.query_device_ex().orig_attr().max_qp_wr == fake::limits().max_qp_wr);
    CHECK(with.device.device().node_type() == node_type::ca);
    CHECK(with.device.device().index() == 0);
    CHECK(with.device.num_comp_vectors() == 4);
    CHECK(with.device.cmd_fd() == with.device.native_handle()->cmd_fd);
    std::error_code ec;
    CHECK(with.device.query_rt_values().tv_nsec == 1);
    CHECK(with.device.query_rt_values(ec).tv_nsec == 2);
    CHECK(!ec);
    CHECK(fake::log().back().detail == "mask 1");
    fake::fail("ibv_query_rt_values_ex", 1, EOPNOTSUPP);
    CHECK(caught([&] { static_cast<void>(with.device.query_rt_values()); }).code == EOPNOTSUPP);
    fake::fail("ibv_query_device_ex", 1, EIO);
    CHECK(caught([&] { static_cast<void>(with.device.query_device_ex()); }).call == "ibv_query_device_ex");
}

TEST_CASE_METHOD(unit::test, "device_attr: what is in bits, or in network byte order, in types", "[device]") {
    const opened with;
    const device_attr attr = with.device.query_device();
    CHECK(attr.node_guid() == with.device.device().guid());
    CHECK(attr.sys_image_guid() == 0x505400fffe000001);
    CHECK(attr.atomic_cap() == atomic_cap::hca);
    CHECK(has(attr.device_cap_flags(), device_cap_flags::mem_window_type_2b));
    CHECK_FALSE(has(attr.device_cap_flags(), device_cap_flags::xrc));
    const device_attr_ex more = with.device.query_device_ex();
    CHECK(more.device_cap_flags() == attr.device_cap_flags());
    CHECK(more.orig_attr().node_guid() == attr.node_guid());
    CHECK(more.phys_port_cnt() == 1);
    CHECK(more.odp() == odp_general_caps::none);

    ibv_device_attr_ex raw{};
    raw.orig_attr.phys_port_cnt = 2;
    raw.orig_attr.device_cap_flags = IBV_DEVICE_XRC;
    raw.device_cap_flags_ex = IBV_DEVICE_RAW_SCATTER_FCS | IBV_DEVICE_PCI_WRITE_END_PADDING | 1ULL << 41;
    raw.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    raw.odp_caps.per_transport_caps = {IBV_ODP_SUPPORT_SEND, IBV_ODP_SUPPORT_RECV, IBV_ODP_SUPPORT_SRQ_RECV};
    raw.xrc_odp_caps = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    raw.rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
    raw.rss_caps.rx_hash_fields_mask = IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_INNER;
    raw.raw_packet_caps = IBV_RAW_PACKET_CAP_SCATTER_FCS | IBV_RAW_PACKET_CAP_DELAY_DROP;
    raw.tm_caps.flags = IBV_TM_CAP_RC;
    raw.pci_atomic_caps = {IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP, IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP,
                           IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP};
    const device_attr_ex all(raw);
    CHECK(all.device_cap_flags() == (device_cap_flags::xrc | device_cap_flags::raw_scatter_fcs |
                                     device_cap_flags::pci_write_end_padding | device_cap_flags::cc_dma_bounce));
    CHECK(all.odp() == (odp_general_caps::support | odp_general_caps::support_implicit));
    CHECK(all.rc_odp() == odp_transport_caps::send);
    CHECK(all.uc_odp() == odp_transport_caps::recv);
    CHECK(all.ud_odp() == odp_transport_caps::srq_recv);
    CHECK(all.xrc_odp() == (odp_transport_caps::write | odp_transport_caps::read | odp_transport_caps::atomic));
    CHECK(all.rx_hash_functions() == rx_hash_function::toeplitz);
    CHECK(all.rx_hash_fields() == (rx_hash_fields::dst_ipv6 | rx_hash_fields::inner));
    CHECK(all.raw_packet_caps() == (raw_packet_caps::scatter_fcs | raw_packet_caps::delay_drop));
    CHECK(all.tm_cap_flags() == tm_cap_flags::rc);
    CHECK(all.pci_fetch_add() == pci_atomic_op_size::bytes_4);
    CHECK(all.pci_swap() == pci_atomic_op_size::bytes_8);
    CHECK(all.pci_compare_swap() == pci_atomic_op_size::bytes_16);
    CHECK(all.phys_port_cnt() == 2);
    raw.phys_port_cnt_ex = 300;
    CHECK(device_attr_ex(raw).phys_port_cnt() == 300);
    CHECK(std::string(to_string(atomic_cap::glob)) == "glob");
    CHECK(std::string(to_string(static_cast<atomic_cap>(99))) == "unknown");
}

TEST_CASE_METHOD(unit::test, "port_attr: capabilities and link layer in types", "[device]") {
    const opened with;
    const port_attr port = with.device.query_port(1);
    CHECK(port.link_layer() == link_layer::ethernet);
    CHECK(port.port_cap_flags() == (port_cap_flags::cm_sup | port_cap_flags::ip_based_gids));
    CHECK(port.port_cap_flags2() == port_cap_flags2::none);
    CHECK(port.grh_required());
    port_attr other;
    other.flags = IBV_QPF_GRH_REQUIRED;
    other.ibv_port_attr::port_cap_flags2 = IBV_PORT_VIRT_SUP | IBV_PORT_LINK_SPEED_HDR_SUP;
    other.ibv_port_attr::link_layer = IBV_LINK_LAYER_INFINIBAND;
    CHECK(other.grh_required());
    CHECK(other.port_cap_flags2() == (port_cap_flags2::virt_sup | port_cap_flags2::link_speed_hdr_sup));
    CHECK_FALSE(other.is_ethernet());
    CHECK(std::string(to_string(other.link_layer())) == "infiniband");
    CHECK(std::string(to_string(static_cast<link_layer>(99))) == "unknown");
}

TEST_CASE_METHOD(unit::test, "port_attr: speed is lanes by lane speed, the extended one first", "[device]") {
    port_attr port;
    CHECK(port.speed_mbps() == 0);
    port.active_width = 2; // four lanes
    for (const auto& [code, mbps] :
         {std::pair{1, 2500}, {2, 5000}, {4, 10000}, {16, 14000}, {32, 25000}, {64, 50000}}) {
        port.active_speed = static_cast<std::uint8_t>(code);
        CHECK(port.speed_mbps() == static_cast<std::uint64_t>(mbps) * 4);
    }
    const auto extended = [](auto other) {
        if constexpr (requires { other.active_speed_ex; }) { // rdma-core 49
            other.active_speed = 64;
            for (const auto& [code, mbps] : {std::pair{0U, 50'000U}, {128U, 100'000U}, {256U, 200'000U}}) {
                other.active_speed_ex = code;
                CHECK(other.speed_mbps() == 4 * mbps);
            }
        }
    };
    extended(port);
    for (const auto& [width, lanes] : {std::pair{1, 1U}, {4, 8U}, {8, 12U}, {16, 2U}, {3, 0U}}) {
        port.active_width = static_cast<std::uint8_t>(width);
        CHECK(port.speed_mbps() == 50000U * lanes);
    }
}

TEST_CASE_METHOD(unit::test, "mtu and rate: conversions", "[device]") {
    CHECK(to_bytes(mtu::bytes_256) == 256);
    CHECK(to_bytes(mtu::bytes_4096) == 4096);
    CHECK(to_bytes(static_cast<mtu>(0)) == 0);
    CHECK(to_bytes(static_cast<mtu>(6)) == 0);
    CHECK(mtu_within(1500 - 76) == mtu::bytes_1024);
    CHECK(mtu_within(4096) == mtu::bytes_4096);
    CHECK(mtu_within(4095) == mtu::bytes_2048);
    CHECK(mtu_within(1) == mtu::bytes_256);
    CHECK(rate_to_mbps(rate::gbps_100) == 103125);
    CHECK(mbps_to_rate(rate_to_mbps(rate::gbps_25)) == rate::gbps_25);
    CHECK(mbps_to_rate(1) == rate::max);
    CHECK(rate_to_mult(rate::gbps_10) == 4);
    CHECK(mult_to_rate(2) == rate::gbps_5);
    CHECK(std::string(to_string(rate::gbps_2_5)) == "2.5 Gb/s");
    CHECK(std::string(to_string(static_cast<rate>(99))) == "unknown");
    CHECK(std::string(to_string(port_state::armed)) == "armed");
    CHECK(std::string(to_string(static_cast<port_state>(99))) == "unknown");
    CHECK(std::string(to_string(node_type::switch_)) == "switch");
    CHECK(std::string(to_string(mtu::bytes_512)) == "bytes_512");
}

TEST_CASE_METHOD(unit::test, "fork: status and init", "[device]") {
    CHECK(is_fork_initialized() == fork_status::unneeded);
    static_assert(static_cast<int>(fork_status::disabled) == IBV_FORK_DISABLED);
    static_assert(static_cast<int>(fork_status::enabled) == IBV_FORK_ENABLED);
    static_assert(static_cast<int>(fork_status::unneeded) == IBV_FORK_UNNEEDED);
    CHECK(std::string(to_string(fork_status::unneeded)) == "unneeded");
    fork_init();
    fake::fail("ibv_fork_init", 1, EINVAL);
    const caught late([] { fork_init(); });
    CHECK(late.code == EINVAL);
    CHECK(late.call == "ibv_fork_init");
    std::error_code ec;
    fork_init(ec);
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "context: one that is imported is another one, of the same device", "[device]") {
    const opened with;
    const int copy = ::dup(with.device.cmd_fd());
    {
        context imported = context::import_device(copy);
        CHECK(fake::log().back().detail == "fd " + std::to_string(copy));
        CHECK(imported.native_handle() != with.device.native_handle());
        CHECK(std::string(imported.device().name()) == "fake0");
        CHECK(imported.cmd_fd() == copy);
        CHECK(is_open(copy));
        const pd made(imported); // as of any other context
        imported.close();
        CHECK(is_open(copy)); // until what was made is gone
    }
    CHECK_FALSE(is_open(copy));
    CHECK(fake::calls("ibv_close_device") == 1);
    CHECK(is_open(with.device.cmd_fd()));
}

TEST_CASE_METHOD(unit::test, "context: a descriptor stays the caller's where the import fails", "[device]") {
    const opened with;
    const caught bad([] { static_cast<void>(context::import_device(-1)); });
    CHECK(bad.code == EINVAL);
    CHECK(bad.call == "ibv_import_device");
    const int copy = ::dup(with.device.cmd_fd());
    std::error_code ec;
    fake::fail("ibv_import_device", 1, EOPNOTSUPP);
    CHECK_FALSE(context::import_device(copy, ec));
    CHECK(number(ec) == EOPNOTSUPP);
    CHECK(is_open(copy));
    CHECK(context::import_device(copy, ec)); // the same one, again
    CHECK(!ec);
    CHECK_FALSE(is_open(copy));
}
