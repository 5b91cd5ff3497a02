// A machine with RDMA modules and without an RDMA device; and one that gets its device while the program runs.
#include "live.hpp"

#include "main.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
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

/// Which ids got device_removal, and how often.
class removals {
public:
    /// Gets events until so many have come; what else comes is of the connections' ends.
    removals(std::initializer_list<rdmaxx::event_channel*> channels, std::size_t count) {
        for (const stopwatch waited; told_.size() < count && waited.elapsed() < soon;)
            for (rdmaxx::event_channel* channel : channels) {
                const rdmaxx::cm_event event = channel->get_cm_event_for(10ms);
                if (event.type() == rdmaxx::cm_event_type::device_removal)
                    told_.push_back(event.id().native_handle());
            }
    }
    [[nodiscard]] bool once(const rdmaxx::cm_id& id) const {
        return std::count(told_.begin(), told_.end(), id.native_handle()) == 1;
    }

private:
    std::vector<const void*> told_;
};

void ready_for_removal() {
    std::printf("ready\n");
    std::fflush(stdout);
}

const role bare_listener("bare_listener", []() {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener(channel);
    int mine = 0;
    listener.set_user_context(&mine);
    listener.bind_addr(ipv4());
    listener.listen();
    ready_for_removal();
    {
        const rdmaxx::cm_event event = get(channel, rdmaxx::cm_event_type::device_removal);
        need(event.id() == listener && !event.listen_id(), "it is the listener's");
        need(event.id().user_context<int>() == &mine, "and so is its context");
        need(!event.code() && event.private_data().empty(), "it carries nothing else");
        need(rdmaxx::classify(std::make_error_code(std::errc::no_such_device)) == rdmaxx::error_class::device, "class");
    }
    listener = rdmaxx::cm_id();

    // What is left says so: the device is on its way out.
    rdmaxx::cm_id again(channel);
    std::error_code ec;
    again.bind_addr(ipv4(), ec);
    need(ec == std::errc::no_such_device, "no new id comes to it: " + ec.message());
    std::printf("all ended ");
    return 0;
});

const role under_load("under_load", []() {
    {
        std::vector<connection> all(3);
        for (connection& c : all)
            for (int i = 0; i < 8; ++i) {
                c.server.qp.post_recv(c.server.mr);
                c.client.qp.post_send(c.client.mr); // of the next one the removal hears
            }
        ready_for_removal();
        for (connection& c : all) {
            // The load goes on until the device does not take it any more, or says that it goes.
            bool ended = false;
            for (const stopwatch waited; !ended && waited.elapsed() < soon;) {
                std::array<rdmaxx::wc, 8> done;
                std::error_code ec;
                for (const rdmaxx::wc& completion : c.client.cq.poll(done))
                    ended = ended || !completion.ok();
                for (const rdmaxx::wc& completion : c.server.cq.poll(done))
                    if (completion.is_recv() && completion.ok())
                        c.server.qp.post_recv(c.server.mr);
                c.client.qp.post_send(rdmaxx::send_wr::send(c.client.mr.sge(0, 64)).signaled(), ec);
                ended = ended || c.channel.try_get_cm_event().type() == rdmaxx::cm_event_type::device_removal;
            }
            need(ended, "each connection sees it");
        }
        std::error_code ec;
        for (connection& c : all) {
            static_cast<void>(rdmaxx::close(c.channel, c.client.id, 100ms, ec)); // bounded, whatever the device's state
            need(!ec, "close: " + ec.message());
        }
    }
    std::printf("all ended ");
    return 0;
});

const role idle("idle", []() {
    {
        connection c;
        c.server.qp.post_recv(c.server.mr);
        ready_for_removal();
        const removals told({&c.channel, &c.local.channel}, 3);
        need(told.once(c.local.listener), "the listener is told");
        need(told.once(c.client.id) && told.once(c.server.id), "both ends are told");
    }
    // The same process goes on with another device: nothing here remembers the one that went.
    need(std::system("ip link add w7 type veth peer name w8 && ip address add 203.0.113.7/24 dev w7 &&"
                     "ip link set w7 up && ip link set w8 up && rdma link add rxe8 type rxe netdev w7") == 0,
         "another device"); // NOLINT(concurrency-mt-unsafe): there is one thread
    {
        connection c(options{.at = rdmaxx::address("203.0.113.7", 0)});
        need(std::string(c.client.id.verbs().device().name()) == "rxe8", "it is that device");
        c.server.qp.post_recv(c.server.mr);
        c.client.qp.post_send(c.client.mr);
        need(c.server.next_ok().is_recv(), "it works");
    }
    std::printf("all ended ");
    return 0;
});

} // namespace

TEST_CASE("a device that is removed tells each id of it, and all of them end") {
    const role* const part = GENERATE(&bare_listener, &under_load, &idle);
    CAPTURE(part->name());
    REQUIRE(shell("rdma link add rxe7 type rxe netdev " + variable("RIG_NETDEV")) == 0);
    process p(*part);
    REQUIRE(p.line() == "ready");
    CHECK(shell("timeout 60 rdma link del rxe7") == 0);
    CHECK(p.rest() == "all ended [exit status 0]");
    CHECK(shell("! test -e /sys/class/infiniband/rxe8 || rdma link del rxe8") == 0);
}

TEST_CASE("a port that goes down, and one that comes up, are asynchronous events of the port") {
    REQUIRE(shell("ip link add w5 type veth peer name w6 && ip link set w5 up && ip link set w6 up && "
                  "rdma link add rxe5 type rxe netdev w5") == 0);
    {
        const rdmaxx::device_list devices;
        rdmaxx::context device(devices.find("rxe5"));
        const auto port_becomes = [&](const char* link, rdmaxx::async_event_type expected, rdmaxx::port_state state) {
            CHECK(shell(std::string("ip link set w5 ") + link) == 0);
            for (const stopwatch waited; waited.elapsed() < soon;) {
                const rdmaxx::async_event event = rdmaxx::get_async_event_for(device, soon);
                if (event.type() != expected) // its GIDs change as well
                    continue;
                CHECK(event.port_num() == 1);
                CHECK(event.context() == device);
                CHECK_FALSE(event.qp());
                CHECK(event.to_string().find("port 1") != std::string::npos);
                CHECK(device.query_port(1).port_state() == state);
                return;
            }
            FAIL("no event came");
        };
        port_becomes("down", rdmaxx::async_event_type::port_err, rdmaxx::port_state::down);
        port_becomes("up", rdmaxx::async_event_type::port_active, rdmaxx::port_state::active);
    }
    CHECK(shell("timeout 60 rdma link del rxe5 && ip link del w5") == 0);
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
