// Devices, their list, and contexts.
#include "test.hpp"

#include <algorithm>

using namespace rdmaxx;
using namespace unit;

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
    REQUIRE(iwarp);
    CHECK(iwarp.is_iwarp());
    CHECK_FALSE(devices.front().is_iwarp());
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
