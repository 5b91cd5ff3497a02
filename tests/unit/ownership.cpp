// Owners, refs and the parents that children keep.
#include "test.hpp"

#include <rdmaxx/verbs/counters.hpp>
#include <rdmaxx/verbs/dm.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <type_traits>
#include <unordered_set>

#include <fcntl.h>
#include <rdma/rdma_cma.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;

template <class Owner, class Ref>
constexpr bool is_owner_and_ref =
    !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner> &&
    std::is_nothrow_move_constructible_v<Owner> && std::is_nothrow_move_assignable_v<Owner> &&
    std::is_nothrow_default_constructible_v<Ref> && std::is_trivially_copyable_v<Ref> && sizeof(Ref) == sizeof(void*) &&
    std::is_convertible_v<Owner&, Ref> && std::is_convertible_v<const Owner&, Ref> &&
    !std::is_convertible_v<Owner, Ref> && !std::is_convertible_v<Ref, Owner> &&
    !std::is_convertible_v<typename Ref::raw_type*, Ref> && std::is_constructible_v<Ref, typename Ref::raw_type*>;

static_assert(is_owner_and_ref<event_channel, event_channel_ref>);
static_assert(is_owner_and_ref<cm_id, cm_id_ref>);
static_assert(is_owner_and_ref<context, context_ref>);
static_assert(is_owner_and_ref<pd, pd_ref>);
static_assert(is_owner_and_ref<mr, mr_ref>);
static_assert(is_owner_and_ref<comp_channel, comp_channel_ref>);
static_assert(is_owner_and_ref<cq, cq_ref>);
static_assert(is_owner_and_ref<qp, qp_ref>);
static_assert(sizeof(cm_id) == 2 * sizeof(void*) && sizeof(event_channel) == 2 * sizeof(void*));
static_assert(sizeof(qp) == 2 * sizeof(void*) && sizeof(mr) == 2 * sizeof(void*) && sizeof(cq) == 2 * sizeof(void*));
static_assert(sizeof(cm_event) == 2 * sizeof(void*));

} // namespace

// ---------------------------------------------------------------- any order

TEST_CASE_METHOD(unit::test, "owners may go in any order", "[ownership]") {
    // Each object is dropped as a member of a class would be, for every order of the members. The fake says EBUSY to
    // the end of a parent that is in use, and reports a use after the end; the fixture sees both.
    constexpr std::size_t count = 8;
    std::array<std::size_t, count> order{};
    std::iota(order.begin(), order.end(), std::size_t{0});
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr bool slow = true;
#else
    const bool slow = std::getenv("RDMAXX_TEST_SECONDS") != nullptr; // an emulated processor
#endif
    const std::size_t every = slow ? 41 : 1; // a prime: all places come up
    std::size_t number = 0;
    std::size_t wrong = 0;
    std::string first_wrong;
    do {
        if (number++ % every != 0)
            continue;
        event_channel channel;
        cm_id id(channel);
        id.bind_addr(address("192.0.2.1", 0));
        context device(id);
        pd domain(device);
        comp_channel events(device);
        cq queue(device, 16, events);
        std::array<std::byte, 64> memory{};
        mr region(domain, memory);
        qp pair(domain, qp_init_attr(queue));
        id.create_qp(domain, qp_init_attr(queue));
        const std::array<std::function<void()>, count> drops = {
            [&] { channel = event_channel(nullptr); },
            [&] { id = cm_id(); },
            [&] { device = context(); },
            [&] { domain = pd(); },
            [&] { events = comp_channel(); },
            [&] { queue = cq(); },
            [&] { region = mr(); },
            [&] { pair = qp(); },
        };
        for (const std::size_t which : order)
            drops[which]();
        if (!fake::leaks().empty()) {
            ++wrong;
            first_wrong = fake::log_text();
        }
        fake::abandon(); // forget the log and all that was
    } while (wrong == 0 && std::next_permutation(order.begin(), order.end()));
    INFO(first_wrong);
    CHECK(wrong == 0);
    CHECK((wrong != 0 || number == 40320));
}

TEST_CASE_METHOD(unit::test, "members of a class may be declared in any order", "[ownership]") {
    struct front_to_back {
        qp_init_attr attr;
        cm_id id;
        mr region;
        qp pair;
        cq queue;
        comp_channel events;
        pd domain;
        context device;
        event_channel channel;
    };
    connection c;
    std::array<std::byte, 64> memory{};
    comp_channel events(c.device);
    cq queue(c.device, 8, events);
    qp pair(c.pd, qp_init_attr(queue));
    mr region(c.pd, memory);
    front_to_back all{qp_init_attr(queue), std::move(c.client), std::move(region),
                      std::move(pair),     std::move(queue),    std::move(events),
                      std::move(c.pd),     std::move(c.device), std::move(c.channel)};
    CHECK(all.id);
}

// ---------------------------------------------------------------- children keep parents

TEST_CASE_METHOD(unit::test, "a child works when its parents' owners are gone, and takes them along at its end",
                 "[ownership]") {
    connection c;
    std::array<std::byte, 64> memory{};
    mr region(c.pd, memory, access::local_write);
    c.pd = pd();
    c.device = context();
    c.channel = event_channel(nullptr);
    c.listener = cm_id();
    for (const char* end : {"ibv_dealloc_pd", "rdma_free_devices", "rdma_destroy_event_channel"})
        CHECK(fake::calls(end) == 0);
    c.server.qp().post_recv(region);
    c.client.qp().post_send(region.sge(0, 8));
    std::array<wc, 4> done;
    CHECK(c.cq.poll(done).size() == 2);
    SECTION("the region last") {
        c.client = cm_id();
        c.server = cm_id();
        c.cq = cq();
        CHECK(fake::calls("rdma_destroy_event_channel") == 1);
        CHECK(fake::calls("ibv_dealloc_pd") == 0);
        CHECK(fake::calls("rdma_free_devices") == 0);
        fake::clear_log();
        region = mr();
        CHECK(fake::in_order({"ibv_dereg_mr", "ibv_dealloc_pd", "rdma_free_devices"}));
    }
    SECTION("an id last") {
        region = mr();
        c.cq = cq();
        c.client = cm_id();
        CHECK(fake::calls("ibv_destroy_cq") == 0);
        CHECK(fake::calls("ibv_dealloc_pd") == 0);
        fake::clear_log();
        c.server = cm_id();
        CHECK(fake::in_order({"ibv_destroy_qp", "rdma_destroy_id"}));
        CHECK(fake::in_order({"ibv_destroy_qp", "ibv_dealloc_pd", "rdma_free_devices"}));
        CHECK(fake::in_order({"ibv_destroy_qp", "ibv_destroy_cq", "rdma_free_devices"}));
        CHECK(fake::in_order({"rdma_destroy_id", "rdma_destroy_event_channel"}));
    }
}

TEST_CASE_METHOD(unit::test, "a queue pair keeps its CQs through the attributes that made it", "[ownership]") {
    opened with;
    qp pair;
    {
        std::optional<qp_init_attr> attr;
        {
            const cq sends(with.device, 8);
            const cq recvs(with.device, 8);
            attr.emplace(sends, recvs);
        }
        CHECK(fake::calls("ibv_destroy_cq") == 0); // the attributes keep them
        pair = qp(with.pd, *attr);
    }
    CHECK(fake::calls("ibv_destroy_cq") == 0);
    CHECK(pair.send_cq() != pair.recv_cq());
    pair = qp();
    CHECK(fake::calls("ibv_destroy_cq") == 2);
}

TEST_CASE_METHOD(unit::test, "an id keeps each CQ of its queue pair, and its PD", "[ownership]") {
    bound_id on;
    {
        const context device(on.id);
        const pd domain(device);
        const cq sends(device, 8);
        const cq recvs(device, 8);
        on.id.create_qp(domain, qp_init_attr(sends, recvs));
    }
    CHECK(fake::calls("ibv_destroy_cq") == 0);
    CHECK(fake::calls("ibv_dealloc_pd") == 0);
    CHECK(on.id.qp().send_cq() != on.id.qp().recv_cq());
    on.id.close();
    CHECK(fake::successes("ibv_destroy_cq") == 2);
    CHECK(fake::in_order({"ibv_destroy_qp", "ibv_dealloc_pd", "rdma_free_devices"}));
}

TEST_CASE_METHOD(unit::test, "destroy_qp of an id lets go of PD and CQs", "[ownership]") {
    bound_id on;
    const pd_ref own = on.id.pd();
    {
        const context device(on.id);
        const pd domain(device);
        const cq queue(device, 8);
        on.id.create_qp(domain, qp_init_attr(queue));
        CHECK(on.id.pd() == domain);
    }
    CHECK(fake::calls("ibv_destroy_cq") == 0);
    on.id.destroy_qp();
    CHECK(on.id.pd() == own); // librdmacm's, as before
    CHECK(fake::in_order({"ibv_destroy_qp", "ibv_destroy_cq"}));
    CHECK(fake::in_order({"ibv_destroy_qp", "ibv_dealloc_pd", "rdma_free_devices"}));
}

TEST_CASE_METHOD(unit::test, "a child made from a ref keeps nothing", "[ownership]") {
    std::optional<opened> with(std::in_place);
    {
        const pd domain{context_ref(with->device)};
        const cq queue{context_ref(with->device), 8};
        const comp_channel events{context_ref(with->device)};
        const cq told(context_ref(with->device), 8, comp_channel_ref(events));
        std::array<std::byte, 64> memory{};
        const mr region(pd_ref(domain), memory);
        const cq_ref shared = queue;
        const qp pair{pd_ref(domain), qp_init_attr(shared)};
    }
    fake::clear_log();
    pd domain{context_ref(with->device)};
    domain = pd();
    with.reset();
    CHECK(fake::calls("ibv_close_device") == 1);

    // The device ends with its owner, though a PD of a ref is there: what C does then is the program's problem.
    opened again;
    pd hanging{context_ref(again.device)};
    again.cq.close();
    again.pd.close();
    {
        const fake::expected_failures failures;
        again.device.close();
        CHECK(failures.mentions("ibv_close_device"));
        CHECK(fake::calls("ibv_close_device") == 2);
        hanging.close();
    }
    CHECK_FALSE(again.device);
    fake::abandon();
}

TEST_CASE_METHOD(unit::test, "close of a parent with children detaches", "[ownership]") {
    opened with;
    with.device.close();
    CHECK_FALSE(with.device);
    CHECK(fake::calls("ibv_close_device") == 0);
    qp pair(with.pd, qp_init_attr(with.cq));
    std::error_code ec = std::make_error_code(std::errc::io_error);
    with.pd.close(ec);
    CHECK(!ec);
    with.cq.close();
    CHECK(fake::calls("ibv_dealloc_pd") == 0);
    CHECK(fake::calls("ibv_destroy_cq") == 0);
    CHECK(pair.query().state() == qp_state::reset);
    pair.close();
    CHECK(fake::in_order({"ibv_destroy_qp", "ibv_dealloc_pd", "ibv_close_device"}));
    CHECK(fake::in_order({"ibv_destroy_qp", "ibv_destroy_cq", "ibv_close_device"}));
}

TEST_CASE_METHOD(unit::test, "a detached parent whose end fails later goes to the hook", "[ownership]") {
    opened with;
    mr region;
    std::array<std::byte, 64> memory{};
    region = mr(with.pd, memory);
    const void* raw = with.pd.native_handle();
    leaked_on_purpose(detail::passkey::block(with.pd));
    with.pd.close();
    fake::fail("ibv_dealloc_pd", 1, EBUSY);
    region.close(); // its own end was good
    CHECK(take_destroy_reports() == std::vector<destroy_report>{{"ibv_dealloc_pd", EBUSY, raw}});
    with.cq.close();
    with.device.close();
    CHECK(fake::calls("ibv_close_device") == 0); // stays with the PD
    fake::abandon();
}

TEST_CASE_METHOD(unit::test, "a close that fails keeps the object and its parents", "[ownership]") {
    opened with;
    std::array<std::byte, 64> memory{};
    mr region(with.pd, memory);
    ibv_mr* raw = region.native_handle();
    fake::fail("ibv_dereg_mr", 1, EBUSY); // as an MR with bound windows
    const caught busy([&] { region.close(); });
    CHECK(busy.code == EBUSY);
    CHECK(busy.call == "ibv_dereg_mr");
    CHECK(region.native_handle() == raw);
    with.pd = pd();
    CHECK(fake::calls("ibv_dealloc_pd") == 0);
    CHECK(region.sge().lkey == raw->lkey);
    region.close();
    CHECK_FALSE(region);
    CHECK(fake::in_order({"ibv_dereg_mr", "ibv_dereg_mr", "ibv_dealloc_pd"}));
}

TEST_CASE_METHOD(unit::test, "a destructor whose end fails tells the hook, and leaks the object with its parents",
                 "[ownership]") {
    opened with;
    std::array<std::byte, 64> memory{};
    const void* raw = nullptr;
    {
        const mr region(with.pd, memory);
        raw = region.native_handle();
        leaked_on_purpose(detail::passkey::block(region));
        fake::fail("ibv_dereg_mr", 1, EBUSY);
    }
    CHECK(take_destroy_reports() == std::vector<destroy_report>{{"ibv_dereg_mr", EBUSY, raw}});
    with = opened();
    CHECK(fake::calls("ibv_dealloc_pd") == 0);
    CHECK(fake::successes("ibv_destroy_cq") == 1);
    CHECK(fake::calls("ibv_close_device") == 0);
    with.cq.close();
    with.pd.close();
    with.device.close();
    fake::abandon();
}

TEST_CASE_METHOD(unit::test, "each failing end names its own call", "[ownership]") {
    struct row {
        const char* call;
        std::function<void(opened&)> ends;
    };
    std::array<std::byte, 64> memory{};
    const std::vector<row> rows = {
        {"ibv_destroy_cq",
         [](opened& o) {
             o.cq.close();
         }},
        {"ibv_dealloc_pd",
         [](opened& o) {
             o.pd.close();
         }},
        {"ibv_destroy_comp_channel",
         [](opened& o) {
             comp_channel(o.device).close();
         }},
        {"ibv_destroy_qp",
         [](opened& o) {
             qp(o.pd, qp_init_attr(o.cq)).close();
         }},
        {"ibv_dereg_mr",
         [&](opened& o) {
             mr(o.pd, memory).close();
         }},
        {"ibv_close_device",
         [](opened& o) {
             o.cq.close();
             o.pd.close();
             o.device.close();
         }},
    };
    for (const row& r : rows) {
        CAPTURE(r.call);
        opened with;
        fake::fail(r.call, 1, ENOSPC);
        const caught failed([&] { r.ends(with); });
        CHECK(failed.code == ENOSPC);
        CHECK(failed.call == r.call);
        CHECK(contains(failed.what, std::string(r.call) + ": "));
    } // temporaries tried again in their destructors, with success
}

// ---------------------------------------------------------------- moves

TEST_CASE_METHOD(unit::test, "owners: self-move changes nothing, moved-from is empty", "[ownership]") {
    opened with;
    std::array<std::byte, 64> memory{};
    mr region(with.pd, memory);
    qp pair(with.pd, qp_init_attr(with.cq));
    comp_channel events(with.device);
    device_list devices;
    bound_id on;
    const auto check = [](auto& owner) {
        using Owner = std::remove_reference_t<decltype(owner)>;
        const auto raw = owner.native_handle();
        Owner& same = owner;
        owner = std::move(same);
        CHECK(owner.native_handle() == raw);
        Owner other(std::move(owner));
        CHECK_FALSE(owner); // NOLINT(bugprone-use-after-move)
        CHECK(owner.native_handle() == nullptr);
        CHECK(other.native_handle() == raw);
        owner = std::move(other);
        CHECK(owner.native_handle() == raw);
        owner.close();
        CHECK_FALSE(owner);
    };
    check(pair);
    check(region);
    check(with.cq);
    check(events);
    check(with.pd);
    check(with.device);
    check(devices);
    check(on.id);
    check(on.channel);
}

TEST_CASE_METHOD(unit::test, "owners: assignment takes the new object first, then ends the old", "[ownership]") {
    opened with;
    fake::clear_log();
    with.cq = cq(with.device, 8);
    CHECK(fake::in_order({"ibv_create_cq", "ibv_destroy_cq"}));
    CHECK(with.cq.size() == 8);
}

TEST_CASE_METHOD(unit::test, "empty handles: what is not the data path is EINVAL, without a C call", "[ownership]") {
    const std::size_t before = fake::calls();
    const auto refused = [](auto call) {
        const caught thrown([&] { static_cast<void>(call()); });
        CHECK(thrown.code == EINVAL);
        CHECK(thrown.cause == "empty handle");
    };
    comp_channel channel;
    CHECK(channel.fd() == -1);
    refused([&] { return channel.get_cq_event(); });
    refused([&] { return channel.try_get_cq_event(); });
    refused([&] { return channel.get_cq_event_for(1s); });
    context device;
    CHECK(device.async_fd() == -1);
    refused([&] { return get_async_event(device); });
    refused([&] { return try_get_async_event(device); });
    refused([&] { return device.query_device(); });
    refused([&] { return device.query_device_ex(); });
    refused([&] { return device.query_rt_values(); });
    refused([&] { return device.query_port(1); });
    refused([&] { return device.query_pkey(1, 0); });
    refused([&] { return device.query_gid_table(); });
    refused([&] { return device.query_gid(1, 0); });
    refused([&] { return resolve_eth_l2_from_gid(device, ibv_ah_attr{}); });
    const qp pair;
    refused([&] { return pair.query(); });
    refused([&] { return pair.cap(); });
    refused([&] { return pair.query_ece(); });
    CHECK(pair.query_data_in_order(wr_opcode::send) == data_in_order::none);
    refused([&] { return pair.modify(qp_attr(qp_state::err)), 0; });
    refused([&] { return pair.attach_mcast(gid()), 0; });
    refused([&] { return pair.detach_mcast(gid()), 0; });
    refused([&] { return pair.drain(1s, [](const wc&) {}), 0; });
    refused([&] { return srq_ref().query(); });
    refused([&] { return srq_ref().arm_limit(1), 0; });
    refused([&] { return cq_ref().resize(8), 0; });
    refused([&] { return cq_ref().moderate(1, 1), 0; });
    refused([&] { return wq_ref().modify(wq_state::rdy), 0; });
    refused([&] { return counters_ref().read({}), 0; });
    refused([&] { return dm_ref().memcpy_to_dm(0, {}), 0; });
    refused([&] { return dm_ref().memcpy_from_dm({}, 0), 0; });
    refused([&] { return advise_mr(pd_ref(), mr_advice::prefetch, {}), 0; });
    std::error_code ec;
    static_cast<void>(qp_ref().query(ec));
    CHECK(number(ec) == EINVAL);
    ec.clear();
    static_cast<void>(channel.try_get_cq_event(ec));
    CHECK(number(ec) == EINVAL);
    CHECK(fake::calls() == before);
}

TEST_CASE_METHOD(unit::test, "empty ids and event channels: every call is EINVAL, without a C call", "[ownership]") {
    const event_channel good;
    const address peer("192.0.2.1", 7471);
    const std::size_t before = fake::calls();
    const auto refused = [](auto call) {
        std::error_code ec;
        call(ec);
        CHECK(number(ec) == EINVAL);
    };
    event_channel channel(nullptr);
    CHECK(channel.fd() == -1);
    CHECK(event_channel_ref().fd() == -1);
    refused([&](auto& ec) { static_cast<void>(channel.get_cm_event(ec)); });
    refused([&](auto& ec) { static_cast<void>(channel.try_get_cm_event(ec)); });
    refused([&](auto& ec) { static_cast<void>(channel.get_cm_event_for(1s, ec)); });
    refused([&](auto& ec) { channel.expect_and_ack(cm_id_ref(), cm_event_type::established, ec); });

    cm_id id;
    CHECK_FALSE(id.local_address());
    CHECK_FALSE(id.peer_address());
    refused([&](auto& ec) { id.bind_addr(peer, ec); });
    refused([&](auto& ec) { id.listen(1, ec); });
    refused([&](auto& ec) { id.resolve_addr(peer, 1s, ec); });
    refused([&](auto& ec) { id.resolve_route(1s, ec); });
    refused([&](auto& ec) { id.connect({}, ec); });
    refused([&](auto& ec) { id.accept({}, ec); });
    refused([&](auto& ec) { id.reject({}, ec); });
    refused([&](auto& ec) { id.reject_ece({}, ec); });
    refused([&](auto& ec) { id.disconnect(ec); });
    refused([&](auto& ec) { id.destroy_qp(ec); });
    refused([&](auto& ec) { id.create_srq({}, srq_init_attr(), ec); });
    refused([&](auto& ec) { id.destroy_srq(ec); });
    refused([&](auto& ec) { id.set_tos(1, ec); });
    refused([&](auto& ec) { id.set_reuseaddr(true, ec); });
    refused([&](auto& ec) { id.set_ack_timeout(1, ec); });
    refused([&](auto& ec) { id.notify(IBV_EVENT_COMM_EST, ec); });
    refused([&](auto& ec) { static_cast<void>(id.init_qp_attr(qp_state::init, ec)); });
    refused([&](auto& ec) { id.establish(ec); });
    refused([&](auto& ec) { static_cast<void>(id.get_remote_ece(ec)); });
    refused([&](auto& ec) { id.set_local_ece({}, ec); });
    refused([&](auto& ec) { id.migrate(good, ec); });
    refused([&](auto& ec) { static_cast<void>(id.join_multicast(peer, nullptr, mc_join::full_member, ec)); });
    refused([&](auto& ec) { cm_id_ref().disconnect(ec); });
    refused([&](auto& ec) { cm_id_ref().bind_addr(peer, ec); });
    CHECK(caught([&] { id.connect(); }).cause == "empty handle"); // and says so, though it has no peer to name

    sync_id other(nullptr);
    CHECK(other.last_event().type() == cm_event_type::none);
    refused([&](auto& ec) { other.resolve_addr(peer, 1s, ec); });
    refused([&](auto& ec) { other.resolve_route(1s, ec); });
    refused([&](auto& ec) { other.connect({}, ec); });
    refused([&](auto& ec) { static_cast<void>(other.get_request(ec)); });
    refused([&](auto& ec) { other.accept({}, ec); });
    refused([&](auto& ec) { other.disconnect(ec); });
    refused([&](auto& ec) { static_cast<void>(std::move(other).migrate(good, ec)); });
    refused([&](auto& ec) { static_cast<void>(sync_id::create_ep(addrinfo_entry(), ec)); });
    CHECK(fake::calls() == before);
}

TEST_CASE_METHOD(unit::test, "adopt: of nothing is EINVAL, and gives an empty owner", "[ownership]") {
    const auto refused = [](auto adopt) {
        std::error_code ec;
        CHECK_FALSE(adopt(ec));
        CHECK(number(ec) == EINVAL);
    };
    const event_channel channel;
    refused([](auto& ec) { return event_channel::adopt(nullptr, ec); });
    refused([&](auto& ec) { return cm_id::adopt(nullptr, channel, ec); });
    refused([](auto& ec) { return sync_id::adopt(nullptr, ec); });
    refused([](auto& ec) { return rdmaxx::addrinfo::adopt(nullptr, ec); });
    refused([](auto& ec) { return context::adopt(nullptr, ec); });
    refused([](auto& ec) { return pd::adopt(nullptr, context(), ec); });
    refused([](auto& ec) { return mr::adopt(nullptr, pd(), ec); });
    refused([](auto& ec) { return comp_channel::adopt(nullptr, context(), ec); });
    refused([](auto& ec) { return cq::adopt(nullptr, context(), {}, ec); });
    refused([](auto& ec) { return cq_ex<>::adopt(nullptr, context(), {}, ec); });
    refused([](auto& ec) { return qp::adopt(nullptr, pd(), cq(), cq(), ec); });
    refused([](auto& ec) { return qp_ex<send_ops::send>::adopt(nullptr, pd(), cq(), cq(), ec); });
    refused([](auto& ec) { return srq::adopt(nullptr, pd(), ec); });
    refused([](auto& ec) { return ah::adopt(nullptr, pd(), ec); });
}

TEST_CASE_METHOD(unit::test, "device_list: moved-from and closed lists are empty ranges", "[ownership][device]") {
    device_list devices;
    REQUIRE(devices.size() == 1);
    device_list taken(std::move(devices));
    CHECK(taken.size() == 1);
    CHECK(devices.empty()); // NOLINT(bugprone-use-after-move)
    CHECK(devices.begin() == devices.end());
    CHECK_FALSE(devices.find("fake0"));
    taken.close();
    CHECK(taken.empty());
    CHECK(taken.begin() == taken.end());
}

// ---------------------------------------------------------------- refs

TEST_CASE_METHOD(unit::test, "refs: compare and hash by the C pointer, and an owner becomes one", "[ownership]") {
    opened with;
    const cq other(with.device, 8);
    const cq_ref a = with.cq;
    const cq_ref b(with.cq.native_handle());
    const cq_ref c = other;
    CHECK(a == b);
    CHECK(a != c);
    CHECK(std::hash<cq_ref>()(a) == std::hash<cq_ref>()(b));
    std::unordered_set<cq_ref> set{a, b, c};
    CHECK(set.size() == 2);
    CHECK(set.count(with.cq) == 1);
    CHECK_FALSE(cq_ref());
    CHECK(cq_ref() == cq_ref(nullptr));
    CHECK(cq_ref().native_handle() == nullptr);
    const cq empty;
    CHECK_FALSE(cq_ref(empty));
    CHECK(a.size() == with.cq.size());
}

// ---------------------------------------------------------------- adopt and release

TEST_CASE_METHOD(unit::test, "adopt takes over what C code made, and keeps what it is told", "[ownership]") {
    std::error_code ec;
    ibv_device** list = ::ibv_get_device_list(nullptr);
    context device = context::adopt(::ibv_open_device(list[0]), ec);
    ::ibv_free_device_list(list);
    REQUIRE(!ec);
    pd domain = pd::adopt(::ibv_alloc_pd(device.native_handle()), device, ec);
    REQUIRE(!ec);
    comp_channel events = comp_channel::adopt(::ibv_create_comp_channel(device.native_handle()), device, ec);
    REQUIRE(!ec);
    cq queue =
        cq::adopt(::ibv_create_cq(device.native_handle(), 4, nullptr, events.native_handle(), 0), device, events, ec);
    REQUIRE(!ec);
    std::array<std::byte, 64> memory{};
    mr region = mr::adopt((::ibv_reg_mr)(domain.native_handle(), memory.data(), memory.size(), 0), domain, ec);
    REQUIRE(!ec);
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = queue.native_handle();
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {4, 4, 1, 1, 0};
    qp pair = qp::adopt(::ibv_create_qp(domain.native_handle(), &attr), domain, queue, queue, ec);
    REQUIRE(!ec);

    device = context();
    domain = pd();
    events = comp_channel();
    queue = cq();
    for (const char* end : {"ibv_close_device", "ibv_dealloc_pd", "ibv_destroy_comp_channel", "ibv_destroy_cq"})
        CHECK(fake::calls(end) == 0);
    pair = qp();
    region = mr();
    for (const char* end : {"ibv_close_device", "ibv_dealloc_pd", "ibv_destroy_comp_channel", "ibv_destroy_cq"})
        CHECK(fake::successes(end) == 1);
}

TEST_CASE_METHOD(unit::test, "adopt with ENOMEM leaves the object to the caller", "[ownership]") {
    opened with;
    std::error_code ec;
    const auto no_memory = [&](auto adopt) {
        ec.clear();
        const failing_allocation fails(1);
        CHECK_FALSE(adopt());
        CHECK(number(ec) == ENOMEM);
    };
    ibv_pd* raw_pd = ::ibv_alloc_pd(with.device.native_handle());
    no_memory([&] { return pd::adopt(raw_pd, with.device, ec); });
    CHECK(::ibv_dealloc_pd(raw_pd) == 0);
    ibv_comp_channel* raw_channel = ::ibv_create_comp_channel(with.device.native_handle());
    no_memory([&] { return comp_channel::adopt(raw_channel, with.device, ec); });
    CHECK((::fcntl(raw_channel->fd, F_GETFL) & O_NONBLOCK) == 0);
    CHECK(::ibv_destroy_comp_channel(raw_channel) == 0);
    rdma_event_channel* raw_events = ::rdma_create_event_channel();
    no_memory([&] { return event_channel::adopt(raw_events, ec); });
    CHECK((::fcntl(raw_events->fd, F_GETFL) & O_NONBLOCK) == 0);
    ::rdma_destroy_event_channel(raw_events);
    bound_id on;
    rdma_cm_id* raw_id = std::move(on.id).release();
    no_memory([&] { return cm_id::adopt(raw_id, on.channel, ec); });
    CHECK(::rdma_destroy_id(raw_id) == 0);
}

TEST_CASE_METHOD(unit::test, "release hands out the object and gives up its pins", "[ownership]") {
    opened with;
    std::array<std::byte, 64> memory{};
    mr region(with.pd, memory);
    qp pair(with.pd, qp_init_attr(with.cq));
    fake::clear_log();
    ibv_qp* raw_qp = std::move(pair).release();
    ibv_mr* raw_mr = std::move(region).release();
    ibv_cq* raw_cq = std::move(with.cq).release();
    ibv_pd* raw_pd = std::move(with.pd).release();
    ibv_context* raw_context = std::move(with.device).release();
    CHECK(fake::calls() == 0);
    CHECK((raw_qp != nullptr && raw_mr != nullptr && raw_cq != nullptr && raw_pd != nullptr));
    CHECK(::ibv_destroy_qp(raw_qp) == 0);
    CHECK(::ibv_dereg_mr(raw_mr) == 0);
    CHECK(::ibv_destroy_cq(raw_cq) == 0);
    CHECK(::ibv_dealloc_pd(raw_pd) == 0);
    CHECK(::ibv_close_device(raw_context) == 0);
    CHECK(std::move(pair).release() == nullptr); // empty by now
}

TEST_CASE_METHOD(unit::test, "release of a child lets its parents end", "[ownership]") {
    opened with;
    std::array<std::byte, 64> memory{};
    mr region(with.pd, memory);
    ibv_mr* raw = std::move(region).release();
    std::error_code ec;
    with.pd.close(ec); // no child that it knows of: the C call is made, and says so
    CHECK(number(ec) == EBUSY);
    CHECK(with.pd);
    CHECK(::ibv_dereg_mr(raw) == 0);
    with.pd.close();
}

TEST_CASE_METHOD(unit::test, "release of a parent with children leaves the children working", "[ownership]") {
    opened with;
    std::array<std::byte, 64> memory{};
    mr region(with.pd, memory);
    ibv_pd* raw = std::move(with.pd).release();
    CHECK(region.sge().length == 64);
    region.close();
    CHECK(fake::calls("ibv_dealloc_pd") == 0); // the caller's
    CHECK(::ibv_dealloc_pd(raw) == 0);
}

TEST_CASE_METHOD(unit::test, "release and adopt of an id, its channel and its queue pair", "[ownership]") {
    connection c;
    qp_ref qp = c.client.qp();
    rdma_cm_id* raw = std::move(c.client).release();
    CHECK_FALSE(c.client);
    CHECK(raw->qp == qp.native_handle());
    std::error_code ec;
    c.client = cm_id::adopt(raw, c.channel, ec);
    REQUIRE(!ec);
    CHECK(c.client.qp() == qp);
    fake::clear_log();
    c.client.close();
    CHECK(fake::in_order({"ibv_destroy_qp", "rdma_destroy_id"}));
}

TEST_CASE_METHOD(unit::test, "adopt of an id of another channel fails with EINVAL", "[ownership]") {
    bound_id on;
    event_channel other;
    rdma_cm_id* raw = std::move(on.id).release();
    std::error_code ec;
    CHECK_FALSE(cm_id::adopt(raw, other, ec));
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(cm_id::adopt(nullptr, on.channel, ec));
    CHECK(number(ec) == EINVAL);
    on.id = cm_id::adopt(raw, on.channel, ec);
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "an adopted id goes with the CQs that rdma_create_qp made for it", "[ownership]") {
    bound_id on;
    rdma_cm_id* raw = std::move(on.id).release();
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {4, 4, 1, 1, 0};
    REQUIRE(::rdma_create_qp(raw, nullptr, &attr) == 0);
    std::error_code ec;
    on.id = cm_id::adopt(raw, on.channel, ec);
    const bool by_hand = GENERATE(false, true);
    if (by_hand)
        on.id.destroy_qp();
    on.id.close();
    CHECK(fake::successes("ibv_destroy_cq") == 2);
    CHECK(fake::successes("ibv_destroy_comp_channel") == 2);
    CHECK(fake::in_order({"ibv_destroy_qp", "ibv_destroy_cq", "ibv_destroy_comp_channel", "rdma_destroy_id"}));
}

TEST_CASE_METHOD(unit::test, "a channel is non-blocking here, and as it was before after release", "[ownership]") {
    const int more = GENERATE(0, O_NONBLOCK);
    std::error_code ec;
    SECTION("event channel") {
        rdma_event_channel* raw = ::rdma_create_event_channel();
        const int before = ::fcntl(raw->fd, F_GETFL) | more;
        ::fcntl(raw->fd, F_SETFL, before);
        const int descriptor_flags = ::fcntl(raw->fd, F_GETFD);
        event_channel channel = event_channel::adopt(raw, ec);
        REQUIRE(!ec);
        CHECK(::fcntl(raw->fd, F_GETFL) == (before | O_NONBLOCK));
        CHECK(::fcntl(raw->fd, F_GETFD) == descriptor_flags);
        CHECK(std::move(channel).release() == raw);
        CHECK(::fcntl(raw->fd, F_GETFL) == before);
        ::rdma_destroy_event_channel(raw);
    }
    SECTION("completion channel") {
        const opened with;
        ibv_comp_channel* raw = ::ibv_create_comp_channel(with.device.native_handle());
        const int before = ::fcntl(raw->fd, F_GETFL) | more;
        ::fcntl(raw->fd, F_SETFL, before);
        comp_channel channel = comp_channel::adopt(raw, with.device, ec);
        REQUIRE(!ec);
        CHECK(::fcntl(raw->fd, F_GETFL) == (before | O_NONBLOCK));
        CHECK(std::move(channel).release() == raw);
        CHECK(::fcntl(raw->fd, F_GETFL) == before);
        CHECK(::ibv_destroy_comp_channel(raw) == 0);
    }
    SECTION("one that was made here") {
        event_channel channel;
        CHECK((::fcntl(channel.fd(), F_GETFL) & O_NONBLOCK) != 0);
        CHECK((::fcntl(channel.fd(), F_GETFD) & FD_CLOEXEC) != 0);
        rdma_event_channel* raw = std::move(channel).release();
        CHECK((::fcntl(raw->fd, F_GETFL) & O_NONBLOCK) == 0);
        ::rdma_destroy_event_channel(raw);
    }
}

TEST_CASE_METHOD(unit::test, "release restores blocking only: other flags stay as they are by then", "[ownership]") {
    event_channel channel;
    ::fcntl(channel.fd(), F_SETFL, ::fcntl(channel.fd(), F_GETFL) | O_APPEND);
    rdma_event_channel* raw = std::move(channel).release();
    CHECK((::fcntl(raw->fd, F_GETFL) & (O_NONBLOCK | O_APPEND)) == O_APPEND);
    ::rdma_destroy_event_channel(raw);
}

TEST_CASE_METHOD(unit::test, "a released channel's ids still end in order", "[ownership]") {
    bound_id on;
    rdma_event_channel* raw = std::move(on.channel).release();
    on.id.close();
    CHECK(fake::calls("rdma_destroy_event_channel") == 0);
    ::rdma_destroy_event_channel(raw);
}
