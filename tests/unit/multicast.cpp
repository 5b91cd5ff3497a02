// Memberships of multicast groups, and ids that move to another channel.
#include "test.hpp"

#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;

/// A datagram id with a queue pair; joins are answered.
struct datagram : bound_id {
    explicit datagram(bool with_qp = true) : bound_id(port_space::udp), device(id), cq(device, 64) {
        if (with_qp)
            id.create_qp(qp_init_attr(cq).type(qp_type::ud));
        fake::auto_connect();
    }

    context device;
    rdmaxx::cq cq;
};

const address group_a("239.1.2.3", 0);
const address group_b("239.1.2.4", 0);

} // namespace

// ---------------------------------------------------------------- multicast

TEST_CASE_METHOD(unit::test, "multicast: a membership is joined once and left once", "[multicast]") {
    datagram on;
    {
        multicast_membership first = on.id.join_multicast(group_a);
        CHECK(first.group() == group_a);
        on.channel.expect_and_ack(on.id, type::multicast_join);
        multicast_membership second(std::move(first));
        CHECK_FALSE(first); // NOLINT(bugprone-use-after-move)
        CHECK_FALSE(first.group());
        multicast_membership& same = second;
        second = std::move(same);
        CHECK(fake::calls("rdma_leave_multicast") == 0);
    }
    CHECK(fake::successes("rdma_join_multicast") == 1);
    CHECK(fake::successes("rdma_leave_multicast") == 1);
    CHECK(fake::calls("ibv_detach_mcast") == 1);
}

TEST_CASE_METHOD(unit::test, "multicast: the join's event has the parameters, and the program's context",
                 "[multicast]") {
    datagram on;
    int context = 0;
    const multicast_membership membership = on.id.join_multicast(group_a, &context);
    const cm_event event = on.channel.expect(on.id, type::multicast_join);
    CHECK(event.ud_param().qp_num == 0xffffff);
    CHECK(event.multicast_context<int>() == &context);
    CHECK(event.private_data().empty());
}

TEST_CASE_METHOD(unit::test, "multicast: leaving waits for the group's event, and says so", "[multicast]") {
    datagram on;
    std::optional<multicast_membership> membership(on.id.join_multicast(group_a));
    std::optional<cm_event> event(on.channel.expect(on.id, type::multicast_join));
    hang_report_after(1ms);
    on_hang([&] {
        event.reset();
        return hang_action::keep_waiting;
    });
    membership.reset();
    const auto reports = take_hang_reports();
    REQUIRE(reports.size() == 1);
    CHECK(std::string(reports[0].call) == "rdma_leave_multicast");
    CHECK(std::string(reports[0].events[0].type) == "multicast_join");
    CHECK(reports[0].events[0].this_thread);
}

TEST_CASE_METHOD(unit::test, "multicast: leaving one group does not wait for another's events", "[multicast]") {
    datagram on;
    int a = 0;
    int b = 0;
    std::optional<multicast_membership> first(on.id.join_multicast(group_a, &a));
    const multicast_membership second = on.id.join_multicast(group_b, &b);
    on.channel.expect_and_ack(on.id, type::multicast_join);
    const cm_event of_second = on.channel.expect(on.id, type::multicast_join);
    CHECK(of_second.multicast_context<int>() == &b);
    const auto start = std::chrono::steady_clock::now();
    first.reset();
    CHECK(elapsed(start) < 4s);
}

TEST_CASE_METHOD(unit::test, "multicast: an id that ends leaves its groups first; the membership may end later",
                 "[multicast]") {
    const bool membership_first = GENERATE(false, true);
    datagram on;
    multicast_membership a = on.id.join_multicast(group_a);
    multicast_membership b = on.id.join_multicast(group_b);
    on.channel.expect_and_ack(on.id, type::multicast_join);
    on.channel.expect_and_ack(on.id, type::multicast_join);
    fake::clear_log();
    if (membership_first)
        a = multicast_membership();
    on.id.close();
    CHECK(fake::in_order({"rdma_leave_multicast", "rdma_leave_multicast", "ibv_destroy_qp", "rdma_destroy_id"}));
    a = multicast_membership();
    b.close();
    CHECK(fake::calls("rdma_leave_multicast") == 2);
}

TEST_CASE_METHOD(unit::test, "multicast: a queue pair that is attached cannot be destroyed: EBUSY, and it stays",
                 "[multicast]") {
    datagram on;
    multicast_membership membership = on.id.join_multicast(group_a);
    on.channel.expect_and_ack(on.id, type::multicast_join);
    std::error_code ec;
    on.id.destroy_qp(ec);
    CHECK(number(ec) == EBUSY);
    CHECK(on.id.qp());
    membership.close();
    on.id.destroy_qp(ec);
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "multicast: the group is left by the very bytes that it was joined with", "[multicast]") {
    datagram on;
    sockaddr_in raw{};
    raw.sin_family = AF_INET;
    raw.sin_addr.s_addr = htonl(0xef010203);
    std::memset(raw.sin_zero, 0x5a, sizeof raw.sin_zero); // which C compares as well
    std::optional<address> given(address(reinterpret_cast<const sockaddr*>(&raw)));
    multicast_membership membership = on.id.join_multicast(*given);
    given.reset();
    std::memset(&raw, 0, sizeof raw);
    on.channel.expect_and_ack(on.id, type::multicast_join);
    std::error_code ec;
    membership.close(ec);
    CHECK(!ec);
    CHECK(fake::successes("rdma_leave_multicast") == 1);
}

TEST_CASE_METHOD(unit::test, "multicast: a leave that fails is reported, and the group forgotten", "[multicast]") {
    datagram on(false);
    multicast_membership membership = on.id.join_multicast(group_a);
    on.channel.expect_and_ack(on.id, type::multicast_join);
    fake::fail("rdma_leave_multicast", 1, ENOTCONN);
    const caught failed([&] { membership.close(); });
    CHECK(failed.code == ENOTCONN);
    CHECK(failed.call == "rdma_leave_multicast");
    membership.close();
    CHECK(fake::calls("rdma_leave_multicast") == 1);
    on.id.close();
    CHECK(fake::calls("rdma_leave_multicast") == 1);
}

TEST_CASE_METHOD(unit::test, "multicast: a join that cannot be is an error, and no membership", "[multicast]") {
    event_channel channel;
    cm_id unbound(channel, port_space::udp);
    std::size_t before = fake::calls();
    CHECK(caught([&] { static_cast<void>(unbound.join_multicast(group_a)); }).code == EINVAL);
    datagram on;
    before = fake::calls();
    std::error_code ec;
    CHECK_FALSE(on.id.join_multicast(address(), nullptr, mc_join::full_member, ec));
    CHECK(number(ec) == EINVAL);
    {
        const failing_allocation fails(1);
        CHECK_FALSE(on.id.join_multicast(group_a, nullptr, mc_join::full_member, ec));
        CHECK(number(ec) == ENOMEM);
    }
    CHECK(fake::calls() == before);
    fake::fail("rdma_join_multicast", 1, ENODEV);
    const caught failed([&] { static_cast<void>(on.id.join_multicast(group_a)); });
    CHECK(failed.code == ENODEV);
    CHECK(contains(failed.what, "rdma_join_multicast 239.1.2.3: "));
    CHECK(fake::calls("rdma_leave_multicast") == 0);
    fake::fail("rdma_join_multicast", 1, 524); // the kernel's own ENOTSUPP
    CHECK(caught([&] { static_cast<void>(on.id.join_multicast(group_a)); }).code == EOPNOTSUPP);
    bound_id connected;
    fake::fail("rdma_join_multicast", 1, EINVAL);
    CHECK(contains(caught([&] { static_cast<void>(connected.id.join_multicast(group_a)); }).cause, "port space"));
    fake::fail("rdma_join_multicast", 1, EINVAL);
    CHECK(caught([&] { static_cast<void>(on.id.join_multicast(group_a)); }).cause.empty());
}

TEST_CASE_METHOD(unit::test, "multicast: flags take the newer call", "[multicast]") {
    datagram on;
    const multicast_membership membership = on.id.join_multicast(group_a, nullptr, mc_join::sendonly_full_member);
    on.channel.expect_and_ack(on.id, type::multicast_join);
    CHECK(fake::calls("rdma_join_multicast_ex") == 1);
    CHECK(fake::calls("ibv_attach_mcast") == 0);
}

TEST_CASE_METHOD(unit::test, "multicast: the membership keeps the channel", "[multicast]") {
    datagram on;
    multicast_membership membership = on.id.join_multicast(group_a);
    on.channel.expect_and_ack(on.id, type::multicast_join);
    on.channel = event_channel(nullptr);
    on.id = cm_id();
    CHECK(fake::calls("rdma_destroy_event_channel") == 0);
    membership = multicast_membership();
    CHECK(fake::calls("rdma_destroy_event_channel") == 1);
}

// ---------------------------------------------------------------- migration

TEST_CASE_METHOD(unit::test, "migrate: the id's events come on the other channel, which it keeps from then on",
                 "[migrate]") {
    bound_id on;
    event_channel other;
    push(on.id, type::established); // not fetched: it moves along
    on.id.migrate(other);
    CHECK_FALSE(on.channel.try_get_cm_event());
    other.expect_and_ack(on.id, type::established);
    push(on.id, type::disconnected);
    other.expect_and_ack(on.id, type::disconnected);
    on.channel.close();
    CHECK(fake::calls("rdma_destroy_event_channel") == 1);
    other.close();
    CHECK(fake::calls("rdma_destroy_event_channel") == 1);
    on.id.close();
    CHECK(fake::calls("rdma_destroy_event_channel") == 2);
}

TEST_CASE_METHOD(unit::test, "migrate: waits for the events that are held, and says so", "[migrate]") {
    bound_id on;
    event_channel other;
    push(on.id, type::established);
    std::optional<cm_event> event(on.channel.get_cm_event());
    hang_report_after(1ms);
    SECTION("until they are acked") {
        on_hang([&] {
            event.reset();
            return hang_action::keep_waiting;
        });
        on.id.migrate(other);
        CHECK(fake::in_order({"rdma_ack_cm_event", "rdma_migrate_id"}));
    }
    SECTION("or gives up, and stays where it is") {
        on_hang([] { return hang_action::leak; });
        std::error_code ec;
        on.id.migrate(other, ec);
        CHECK(number(ec) == EDEADLK);
        CHECK(fake::calls("rdma_migrate_id") == 0);
        event.reset();
        push(on.id, type::disconnected);
        on.channel.expect_and_ack(on.id, type::disconnected);
    }
    const auto reports = take_hang_reports();
    REQUIRE(reports.size() == 1);
    CHECK(std::string(reports[0].call) == "rdma_migrate_id");
}

TEST_CASE_METHOD(unit::test, "migrate: failing, it leaves the id on its channel", "[migrate]") {
    bound_id on;
    event_channel other;
    fake::fail("rdma_migrate_id", 1, ENOMEM);
    const caught failed([&] { on.id.migrate(other); });
    CHECK(failed.code == ENOMEM);
    CHECK(failed.call == "rdma_migrate_id");
    other.close();
    CHECK(fake::calls("rdma_destroy_event_channel") == 1);
    push(on.id, type::established);
    on.channel.expect_and_ack(on.id, type::established);
    const std::size_t before = fake::calls();
    CHECK(caught([&] { on.id.migrate(event_channel(nullptr)); }).code == EINVAL);
    on.id.migrate(on.channel); // there already
    CHECK(fake::calls() == before);
}

TEST_CASE_METHOD(unit::test, "migrate: a connection goes on, and its memberships go along", "[migrate]") {
    datagram on;
    multicast_membership membership = on.id.join_multicast(group_a);
    on.channel.expect_and_ack(on.id, type::multicast_join);
    event_channel other;
    on.id.migrate(other);
    on.channel.close();
    CHECK(fake::calls("rdma_destroy_event_channel") == 1);
    membership.close();
    CHECK(fake::successes("rdma_leave_multicast") == 1);
}
