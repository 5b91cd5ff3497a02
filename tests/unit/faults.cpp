// Set-up that fails half-way: each call and each allocation in turn.
#include "test.hpp"

#include <array>

#include <unistd.h>

using namespace rdmaxx;
using namespace unit;

namespace {

/// All that a server sets up. Whatever was made goes when this throws.
struct everything {
    everything() {
        channel = event_channel();
        id = cm_id(channel);
        id.bind_addr(address("192.0.2.1", 7471));
        id.listen();
        const device_list devices;
        other = context(devices.front());
        device = context(id);
        domain = pd(device);
        events = comp_channel(device);
        queue = cq(device, 16, events);
        region = mr(domain, memory);
        pair = qp(domain, qp_init_attr(queue));
        id.create_qp(domain, qp_init_attr(queue));
        pair.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
        queue.request_notify();
        pair.post_recv(region);
    }

    std::array<std::byte, 64> memory{};
    qp pair;
    mr region;
    cq queue;
    comp_channel events;
    pd domain;
    context device;
    context other;
    cm_id id;
    event_channel channel{nullptr};
};

/// Makers and their ends, as the fake has counted them.
void check_each_made_once_ended_once() {
    struct row {
        const char* made;
        const char* ended;
    };
    for (const row& r :
         {row{"rdma_create_event_channel", "rdma_destroy_event_channel"}, row{"rdma_create_id", "rdma_destroy_id"},
          row{"rdma_get_devices", "rdma_free_devices"}, row{"ibv_get_device_list", "ibv_free_device_list"},
          row{"ibv_create_comp_channel", "ibv_destroy_comp_channel"}, row{"ibv_create_cq", "ibv_destroy_cq"},
          row{"ibv_reg_mr", "ibv_dereg_mr"}, row{"ibv_create_qp", "ibv_destroy_qp"}}) {
        CAPTURE(r.made);
        CHECK(fake::successes(r.made) == fake::calls(r.ended));
    }
    CHECK(fake::leaks() == std::vector<std::string>());
}

/// The first call of the program (not of librdmacm) that failed.
std::string first_failure() {
    for (const fake::call_record& call : fake::log())
        if (call.failed && !call.nested)
            return call.name;
    return "";
}

} // namespace

TEST_CASE_METHOD(unit::test, "set-up: whichever call fails, all that was made ends once, and the error is that call's",
                 "[faults]") {
    const int error = GENERATE(ENOMEM, EINVAL);
    unsigned failures = 0;
    for (unsigned n = 1;; ++n) {
        CAPTURE(n);
        fake::clear_log();
        // Clean-up is made of calls that succeed, and each leaves its own errno.
        fake::set().errno_after_success = EBADF;
        const fake::fail rule = fake::fail("*").at(n).with(error);
        const caught failed([] { const everything made; });
        if (rule.hits() == 0) {
            CHECK(failed.code == 0);
            break;
        }
        ++failures;
        CAPTURE(failed.what);
        CHECK(failed.code == error);
        CHECK(failed.call == first_failure());
        check_each_made_once_ended_once();
        fake::forgive();
    }
    fake::set().errno_after_success = 0;
    CHECK(failures >= 16);
}

TEST_CASE_METHOD(unit::test, "set-up: whichever allocation fails, all that was made ends once, with ENOMEM",
                 "[faults]") {
    unsigned failures = 0;
    for (unsigned n = 1;; ++n) {
        CAPTURE(n);
        fake::clear_log();
        fake::set().errno_after_success = EBADF;
        const failing_allocation fails(n);
        const caught failed([] { const everything made; });
        if (failing_allocation::seen() < n) {
            CHECK(failed.code == 0);
            break;
        }
        ++failures;
        CAPTURE(failed.what);
        CHECK(failed.code == ENOMEM);
        check_each_made_once_ended_once();
    }
    fake::set().errno_after_success = 0;
    CHECK(failures == 10); // channel, id, list, two contexts, PD, channel, CQ, MR, QP
}

TEST_CASE_METHOD(unit::test, "create: fails with the same errno, and gives an empty owner", "[faults]") {
    const opened with;
    std::array<std::byte, 64> memory{};
    event_channel channel;
    std::error_code ec;
    const auto fails = [&](const char* call, auto create) {
        CAPTURE(call);
        fake::fail(call, 1, ENOSPC);
        const auto made = create();
        CHECK_FALSE(made);
        CHECK(number(ec) == ENOSPC);
        const auto again = create();
        CHECK(again);
        CHECK(!ec);
    };
    const device_list devices;
    fails("rdma_create_event_channel", [&] { return event_channel::create(ec); });
    fails("rdma_create_id", [&] { return cm_id::create(channel, port_space::tcp, ec); });
    fails("ibv_open_device", [&] { return context::create(devices.front(), ec); });
    fails("ibv_get_device_list", [&] { return device_list::create(ec); });
    fails("ibv_alloc_pd", [&] { return pd::create(with.device, ec); });
    fails("ibv_create_comp_channel", [&] { return comp_channel::create(with.device, ec); });
    fails("ibv_create_cq", [&] { return cq::create(with.device, 8, {}, 0, ec); });
    fails("ibv_reg_mr", [&] { return mr::create(with.pd, memory, access::local_write, ec); });
    fails("ibv_create_qp", [&] { return qp::create(with.pd, qp_init_attr(with.cq), ec); });
}

TEST_CASE_METHOD(unit::test, "create: gives an empty owner also where the descriptor cannot be made non-blocking",
                 "[faults]") {
    const opened with;
    const device_list devices;
    const auto fails = [](const char* call, int others, auto create) {
        CAPTURE(call);
        const int free = ::dup(STDERR_FILENO);
        ::close(free);
        const int next = free + others; // the number that the object's descriptor will have
        fake::after(call, [next] { ::close(next); });
        std::error_code ec;
        CHECK_FALSE(create(ec));
        CHECK(number(ec) == EBADF);
        fake::after(call, nullptr);
    };
    fails("rdma_create_event_channel", 0, [](auto& ec) { return event_channel::create(ec); });
    fails("ibv_create_comp_channel", 0, [&](auto& ec) { return comp_channel::create(with.device, ec); });
    fails("ibv_open_device", 1, [&](auto& ec) { return context::create(devices.front(), ec); });
}

TEST_CASE_METHOD(unit::test, "create: an empty parent is EINVAL, without a C call", "[faults]") {
    std::array<std::byte, 64> memory{};
    const event_channel no_channel(nullptr);
    const opened with;
    fake::clear_log();
    const auto refused = [](const char* call, auto make) {
        const caught failed(make);
        CHECK(failed.code == EINVAL);
        CHECK(failed.call == call);
        CHECK(contains(failed.cause, "empty"));
    };
    refused("rdma_create_id", [&] { const cm_id id(no_channel); });
    refused("ibv_alloc_pd", [&] { const pd made{context()}; });
    refused("ibv_create_comp_channel", [&] { const comp_channel made{context()}; });
    refused("ibv_create_cq", [&] { const cq made(context(), 1); });
    refused("ibv_reg_mr", [&] { const mr made(pd(), memory); });
    refused("ibv_create_qp", [&] { const qp made(pd(), qp_init_attr(with.cq)); });
    const caught no_device([&] { const context made{device_ref()}; });
    CHECK(no_device.code == ENODEV);
    CHECK(fake::calls() == 0);
}

TEST_CASE_METHOD(unit::test, "a PD that cannot be allocated once can be the next time", "[faults]") {
    const opened with;
    fake::fail("ibv_alloc_pd", 1, ENOMEM);
    pd shared;
    CHECK(caught([&] { shared = pd(with.device); }).code == ENOMEM);
    CHECK_FALSE(shared);
    shared = pd(with.device);
    CHECK(shared);
    shared.close();
    CHECK(fake::calls("ibv_dealloc_pd") == 1);
}

TEST_CASE_METHOD(unit::test, "event_channel: without a device it fails with ENODEV, and a later try starts afresh",
                 "[faults]") {
    fake::devices({});
    const caught none([] { const event_channel channel; });
    CHECK(none.code == ENODEV);
    CHECK(none.call == "rdma_create_event_channel");
    fake::devices({{.name = "fake0"}});
    const event_channel channel;
    CHECK(channel.fd() >= 0);
}

TEST_CASE_METHOD(unit::test, "a C call that fails without an errno is EIO, and no success", "[faults]") {
    event_channel channel;
    errno = EBADF; // of some earlier call
    fake::fail("rdma_create_id").returning(-1);
    const caught failed([&] { const cm_id id(channel); });
    CHECK(failed.code == EIO);
}
