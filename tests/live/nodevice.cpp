// A machine with RDMA modules and without an RDMA device; and one that gets its device while the program runs.
#include "live.hpp"

#include "main.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace live;

int rdmaxx_test::before_tests() {
    role::play_if_asked();
    std::error_code ec;
    const rdmaxx::device_list devices = rdmaxx::device_list::create(ec);
    if (!devices.empty() || variable("RIG_ADDR4").empty() || !in_vm()) {
        std::fprintf(stderr, "skipped: needs a machine of its own without a device: tests/rig/rig --device none\n");
        return 77;
    }
    return 0;
}

namespace {

int shell(const std::string& command) {
    return std::system(command.c_str()); // NOLINT(concurrency-mt-unsafe): one at a time
}

void check_no_device(const std::error_code& ec) {
    CHECK(ec == std::errc::no_such_device);
}

} // namespace

// First: a process that has once opened a device keeps it from going, since librdmacm has it open to the end. rxe's
// removal waits for that.
namespace {

const role is_told("is_told", []() {
    {
        connection c;
        c.server.qp.post_recv(c.server.mr);
        std::printf("ready\n");
        std::fflush(stdout);
        std::vector<const void*> told;
        for (const stopwatch waited; told.size() < 3 && waited.elapsed() < soon;)
            for (rdmaxx::event_channel* channel : {&c.channel, &c.local.channel}) {
                const rdmaxx::cm_event event = channel->get_cm_event_for(10ms);
                if (event.type() == rdmaxx::cm_event_type::device_removal)
                    told.push_back(event.id().native_handle());
            }
        const auto once = [&](const rdmaxx::cm_id& id) {
            return std::count(told.begin(), told.end(), id.native_handle()) == 1;
        };
        need(once(c.local.listener), "the listener is told");
        need(once(c.client.id) && once(c.server.id), "both ends are told");
    }
    std::printf("all ended ");
    return 0;
});

} // namespace

TEST_CASE("a device that is removed tells each id of it, and all of them end") {
    REQUIRE(shell("rdma link add rxe7 type rxe netdev " + variable("RIG_NETDEV")) == 0);
    process p(is_told);
    REQUIRE(p.line() == "ready");
    CHECK(shell("timeout 60 rdma link del rxe7") == 0);
    CHECK(p.rest() == "all ended [exit status 0]");
}

TEST_CASE("without a device every entry point says so, and a device that comes later is found") {
    std::error_code ec;

    // The list is empty, and that is no error.
    const rdmaxx::device_list none;
    CHECK(none.empty());
    CHECK(none.begin() == none.end());
    CHECK_FALSE(none.find("rxe0"));

    // ENODEV is what librdmacm says of a machine without devices.
    CHECK_FALSE(rdmaxx::event_channel::create(ec));
    check_no_device(ec);
    try {
        const rdmaxx::event_channel channel;
        FAIL("nothing was thrown");
    } catch (const rdmaxx::error& e) {
        check_no_device(e.code());
        CHECK(std::string(e.call()) == "rdma_create_event_channel");
        const std::string causes = rdmaxx::diagnose(e);
        CAPTURE(causes);
        CHECK(causes.find("This machine has no RDMA device") != std::string::npos);
        CHECK(causes.find("rdma link add") != std::string::npos);
    }
    CHECK_FALSE(rdmaxx::context::create(none.find("rxe0"), ec));
    check_no_device(ec);

    // What needs something else first: an empty one is EINVAL, and never followed.
    CHECK_FALSE(rdmaxx::cm_id::create(rdmaxx::event_channel(nullptr), rdmaxx::port_space::tcp, ec));
    CHECK(ec == std::errc::invalid_argument);
    CHECK_FALSE(rdmaxx::context::create(rdmaxx::cm_id(), ec));
    CHECK(ec == std::errc::invalid_argument);
    CHECK_FALSE(rdmaxx::pd::create(rdmaxx::context_ref(), ec));
    CHECK(ec == std::errc::invalid_argument);
    CHECK_FALSE(rdmaxx::comp_channel::create(rdmaxx::context_ref(), ec));
    CHECK(ec == std::errc::invalid_argument);
    CHECK_FALSE(rdmaxx::cq::create(rdmaxx::context_ref(), 1, {}, 0, ec));
    CHECK(ec == std::errc::invalid_argument);

    // A device comes: this process, which was told ENODEV, finds it. librdmacm keeps no failure.
    REQUIRE(shell("rdma link add rxe7 type rxe netdev " + variable("RIG_NETDEV")) == 0);
    {
        connection c;
        c.server.qp.post_recv(c.server.mr);
        c.client.qp.post_send(c.client.mr);
        CHECK(c.server.next_ok().is_recv());
        const rdmaxx::device_list one;
        CHECK(one.size() == 1);
        CHECK(std::string(one.front().name()) == "rxe7");
    }
    CHECK(none.empty()); // a list says what was there when it was made
}
