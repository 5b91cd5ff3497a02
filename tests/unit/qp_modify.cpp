// What a refused ibv_modify_qp is told about, and the rest of a queue pair's control path.
#include "test.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

using namespace rdmaxx;
using namespace unit;

namespace {

qp_attr every_attribute() {
    ibv_qp_attr raw{};
    raw.qp_state = IBV_QPS_RTR;
    return {raw, (1 << 21) - 1};
}

std::string refused(const qp& queue, const qp_attr& attr) {
    const caught failed([&] { queue.modify(attr); });
    CHECK(failed.code == EINVAL);
    CHECK(failed.call == "ibv_modify_qp");
    std::error_code ec;
    queue.modify(attr, ec);
    CHECK(number(ec) == EINVAL);
    const std::string text = queue.explain_modify(attr);
    CHECK(contains(failed.what, text));
    return text;
}

} // namespace

TEST_CASE_METHOD(unit::test, "modify: an EINVAL names what is missing and what is not taken", "[modify]") {
    opened o;
    const qp rc(o.pd, qp_init_attr(o.cq));
    CHECK(refused(rc, qp_attr(qp_state::init).pkey_index(0).qkey(1)) ==
          "rc, reset to init: missing access_flags, port_num; not taken qkey");
    CHECK(refused(rc, qp_attr(qp_state::rts)) ==
          "rc, reset to rts: there is no such transition, reset goes to init, reset");
    rc.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
    CHECK(refused(rc, qp_attr(qp_state::rtr).path_mtu(mtu::bytes_1024).dest_qp_num(1).rq_psn(0)) ==
          "rc, init to rtr: missing ah_attr, min_rnr_timer, max_dest_rd_atomic");
    CHECK(refused(rc, qp_attr().qkey(1)) == "rc, init to init: not taken qkey");
    CHECK(refused(rc, qp_attr(qp_state::err).port_num(1)) == "rc, init to err: not taken port_num");
    CHECK(refused(rc, qp_attr(qp_state::init).cur_state(qp_state::rts)) == "rc, init to init: cur_state is rts");
    CHECK(refused(rc, every_attribute()).starts_with("rc, init to rtr: cur_state is reset"));
    // Nothing is wrong with the set: it is a value.
    CHECK(refused(rc, qp_attr(qp_state::init).port_num(9)) == "rc, init to init");

    const qp ud(o.pd, qp_init_attr(o.cq).type(qp_type::ud));
    CHECK(refused(ud, qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none)) ==
          "ud, reset to init: missing qkey; not taken access_flags");
    const qp uc(o.pd, qp_init_attr(o.cq).type(qp_type::uc));
    uc.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
    CHECK(refused(uc, qp_attr(qp_state::rtr).min_rnr_timer(1)) ==
          "uc, init to rtr: missing ah_attr, path_mtu, rq_psn, dest_qp_num; not taken min_rnr_timer");
}

TEST_CASE_METHOD(unit::test, "modify: other errors are not explained, nor what the query cannot tell", "[modify]") {
    opened o;
    const qp rc(o.pd, qp_init_attr(o.cq));
    fake::fail("ibv_modify_qp").with(ENOMEM);
    const caught other([&] { rc.modify(qp_attr(qp_state::rts)); });
    CHECK(other.code == ENOMEM);
    CHECK_FALSE(contains(other.what, "rc,"));
    fake::fail("ibv_query_qp").with(EIO);
    const caught blind([&] { rc.modify(qp_attr(qp_state::rts)); });
    CHECK(blind.code == EINVAL);
    CHECK_FALSE(contains(blind.what, "rc,"));
}

TEST_CASE_METHOD(unit::test, "modify: the explanations of every type", "[modify]") {
    const auto explain = [](qp_type type, qp_state from, const qp_attr& attr) {
        return detail::explain_modify(type, from, attr.raw(), attr.mask());
    };
    CHECK(explain(qp_type::raw_packet, qp_state::reset, qp_attr(qp_state::init)) ==
          "raw_packet, reset to init: missing port_num");
    CHECK(explain(qp_type::raw_packet, qp_state::rtr, qp_attr(qp_state::rts).rate_limit(1)) ==
          "raw_packet, rtr to rts");
    CHECK(explain(qp_type::xrc_send, qp_state::init, qp_attr(qp_state::rtr)) ==
          "xrc_send, init to rtr: missing ah_attr, path_mtu, rq_psn, dest_qp_num");
    CHECK(explain(qp_type::xrc_recv, qp_state::rtr, qp_attr(qp_state::rts).retry_cnt(1)) ==
          "xrc_recv, rtr to rts: missing timeout, sq_psn; not taken retry_cnt");
    CHECK(explain(qp_type::ud, qp_state::sqe, qp_attr(qp_state::rts).qkey(1)) == "ud, sqe to rts");
    CHECK(explain(qp_type::rc, qp_state::rts, qp_attr(qp_state::sqd).en_sqd_async_notify()) == "rc, rts to sqd");
    CHECK(explain(qp_type::rc, qp_state::err, qp_attr(qp_state::init)) ==
          "rc, err to init: there is no such transition, err goes to reset, err");
    CHECK(explain(qp_type::driver, qp_state::reset, qp_attr(qp_state::init)) == "driver, reset to init"); // unknown
    // Transitions that all types have, some without attributes.
    CHECK(explain(qp_type::raw_packet, qp_state::rts, qp_attr(qp_state::sqd).en_sqd_async_notify()) ==
          "raw_packet, rts to sqd: not taken en_sqd_async_notify");
    CHECK(explain(qp_type::raw_packet, qp_state::init, qp_attr(qp_state::init)) == "raw_packet, init to init");
    CHECK(explain(qp_type::raw_packet, qp_state::sqd, qp_attr(qp_state::rts)) == "raw_packet, sqd to rts");
    CHECK(explain(qp_type::rc, qp_state::sqe, qp_attr(qp_state::rts)) == "rc, sqe to rts");
    CHECK(explain(qp_type::uc, qp_state::sqd, qp_attr().ah_attr({})) == "uc, sqd to sqd: not taken ah_attr");
    CHECK(explain(qp_type::rc, qp_state::sqd, qp_attr().ah_attr({})) == "rc, sqd to sqd");
    CHECK(explain(qp_type::rc, qp_state::init, qp_attr(ibv_qp_attr{}, 1 << 28)) ==
          "rc, init to init: not taken unknown attribute 28");
}

TEST_CASE_METHOD(unit::test, "qp_attr: each setter sets its field and its bit, and nothing else", "[modify]") {
    const auto sets = [](const qp_attr& attr, int bit, auto field, auto value) {
        CAPTURE(bit);
        CHECK(attr.mask() == bit);
        ibv_qp_attr raw = attr.raw();
        CHECK(raw.*field == value);
        raw.*field = {};
        const ibv_qp_attr none{};
        CHECK(std::memcmp(&raw, &none, sizeof raw) == 0);
    };
    using raw = ibv_qp_attr;
    sets(qp_attr(qp_state::rtr), IBV_QP_STATE, &raw::qp_state, IBV_QPS_RTR);
    sets(qp_attr().access_flags(access::remote_read), IBV_QP_ACCESS_FLAGS, &raw::qp_access_flags,
         decltype(raw::qp_access_flags){IBV_ACCESS_REMOTE_READ});
    sets(qp_attr().pkey_index(1), IBV_QP_PKEY_INDEX, &raw::pkey_index, 1);
    sets(qp_attr().port_num(2), IBV_QP_PORT, &raw::port_num, 2);
    sets(qp_attr().qkey(3), IBV_QP_QKEY, &raw::qkey, 3U);
    sets(qp_attr().path_mtu(mtu::bytes_512), IBV_QP_PATH_MTU, &raw::path_mtu, IBV_MTU_512);
    sets(qp_attr().dest_qp_num(4), IBV_QP_DEST_QPN, &raw::dest_qp_num, 4U);
    sets(qp_attr().rq_psn(5), IBV_QP_RQ_PSN, &raw::rq_psn, 5U);
    sets(qp_attr().sq_psn(6), IBV_QP_SQ_PSN, &raw::sq_psn, 6U);
    sets(qp_attr().max_rd_atomic(7), IBV_QP_MAX_QP_RD_ATOMIC, &raw::max_rd_atomic, 7);
    sets(qp_attr().max_dest_rd_atomic(8), IBV_QP_MAX_DEST_RD_ATOMIC, &raw::max_dest_rd_atomic, 8);
    sets(qp_attr().min_rnr_timer(9), IBV_QP_MIN_RNR_TIMER, &raw::min_rnr_timer, 9);
    sets(qp_attr().timeout(10), IBV_QP_TIMEOUT, &raw::timeout, 10);
    sets(qp_attr().retry_cnt(6), IBV_QP_RETRY_CNT, &raw::retry_cnt, 6);
    sets(qp_attr().rnr_retry(5), IBV_QP_RNR_RETRY, &raw::rnr_retry, 5);
    ibv_ah_attr path{};
    path.dlid = 7;
    const qp_attr to = qp_attr().ah_attr(path);
    CHECK(to.mask() == IBV_QP_AV);
    CHECK(to.raw().ah_attr.dlid == 7);
    CHECK(to.raw().alt_ah_attr.dlid == 0);
}

TEST_CASE_METHOD(unit::test, "qp_attr: the setters that few programs need", "[modify]") {
    ibv_ah_attr path{};
    path.dlid = 7;
    ibv_qp_cap cap{};
    cap.max_send_wr = 5;
    const qp_attr attr = qp_attr()
                             .cur_state(qp_state::rts)
                             .en_sqd_async_notify()
                             .alt_path(path, 1, 2, 3)
                             .path_mig_state(mig_state::rearm)
                             .cap(cap)
                             .rate_limit(9);
    CHECK(attr.mask() == (IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
                          IBV_QP_CAP | IBV_QP_RATE_LIMIT));
    CHECK(attr.raw().cur_qp_state == IBV_QPS_RTS);
    CHECK(attr.raw().en_sqd_async_notify == 1);
    CHECK(attr.raw().alt_ah_attr.dlid == 7);
    CHECK(attr.raw().alt_pkey_index == 1);
    CHECK(attr.raw().alt_port_num == 2);
    CHECK(attr.raw().alt_timeout == 3);
    CHECK(attr.raw().path_mig_state == IBV_MIG_REARM);
    CHECK(std::string(to_string(mig_state::armed)) == "armed");
    CHECK(std::string(to_string(static_cast<mig_state>(9))) == "unknown");
    CHECK(attr.raw().cap.max_send_wr == 5);
    CHECK(attr.raw().rate_limit == 9);
}

TEST_CASE_METHOD(unit::test, "qp: rate limit, ECE and the order of data", "[qp]") {
    opened o;
    const qp queue(o.pd, qp_init_attr(o.cq));
    std::error_code ec;
    const qp_rate_limit limit = {.kbps = 1000, .max_burst_bytes = 2, .typical_packet_bytes = 3};
    queue.modify_rate_limit(limit, ec);
    CHECK(number(ec) == EINVAL); // not yet
    const qp sending(o.pd, qp_init_attr(o.cq).type(qp_type::ud));
    sending.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).qkey(1));
    sending.modify(qp_attr(qp_state::rtr));
    sending.modify(qp_attr(qp_state::rts).sq_psn(0));
    sending.modify_rate_limit(limit);
    CHECK(fake::log().back().detail == "rate 1000, burst 2, packet 3");
    fake::fail("ibv_modify_qp_rate_limit", 1, EOPNOTSUPP); // most devices
    const caught refused([&] { sending.modify_rate_limit({.kbps = 1}); });
    CHECK(refused.call == "ibv_modify_qp_rate_limit");
    CHECK(refused.code == EOPNOTSUPP);
    CHECK(queue.query_data_in_order(wr_opcode::send) == data_in_order::whole_msg);
    CHECK(queue.query_data_in_order(wr_opcode::rdma_write) == data_in_order::none);
    CHECK(fake::calls("ibv_query_qp_data_in_order", queue.native_handle()) == 2);
    CHECK(fake::log().back().detail == "opcode 0, flags " + std::to_string(detail::data_in_order_caps_flag<>));
    const auto of_device = [](const auto& pair) {
        if constexpr (requires { pair.query_data_in_order_of_device(wr_opcode::send); }) {
            CHECK(pair.query_data_in_order_of_device(wr_opcode::send) == data_in_order::whole_msg);
            CHECK(fake::log().back().detail == "opcode 2, flags 3");
        }
    };
    of_device(queue);

    CHECK(queue.query_ece().vendor_id == 0xfa); // the fake's
    queue.set_ece({.vendor_id = 0xfa, .options = 1, .comp_mask = 0});
    CHECK(fake::log().back().detail == "vendor 250, options 1");
    CHECK(queue.query_ece(ec).options == 1);
    CHECK(!ec);
    queue.set_ece({.vendor_id = 0, .options = 0, .comp_mask = 8}, ec);
    CHECK(number(ec) == EINVAL);
    fake::fail("ibv_query_ece", 1, EOPNOTSUPP); // most devices
    CHECK(caught([&] { static_cast<void>(queue.query_ece()); }).call == "ibv_query_ece");
    fake::fail("ibv_set_ece", 1, EOPNOTSUPP);
    CHECK(caught([&] { queue.set_ece({}); }).call == "ibv_set_ece");
}

TEST_CASE_METHOD(unit::test, "qp: the most inline data is found by trying", "[qp]") {
    opened o;
    fake::limits().max_inline_data = 400;
    CHECK(qp::probe_max_inline_data(o.pd, qp_init_attr(o.cq).max_inline_data(1 << 20)) == 400);
    CHECK(qp::probe_max_inline_data(o.pd, qp_init_attr(o.cq).max_inline_data(64)) == 64);
    fake::limits().max_inline_data = 0;
    CHECK(qp::probe_max_inline_data(o.pd, qp_init_attr(o.cq).max_inline_data(1000)) == 0);
    // No queue pair at all.
    const qp_init_attr too_deep(o.cq, 1 << 30);
    CHECK(caught([&] { static_cast<void>(qp::probe_max_inline_data(o.pd, too_deep)); }).code == EINVAL);
    std::error_code ec;
    CHECK(qp::probe_max_inline_data(o.pd, too_deep, ec) == 0);
    CHECK(number(ec) == EINVAL);
}

TEST_CASE_METHOD(unit::test, "qp: opens the receiving end of XRC by its number, and keeps the domain", "[qp]") {
    opened o;
    xrcd domain(o.device);
    const ibv_xrcd* kept = domain.native_handle();
    qp target({}, qp_init_attr_ex::xrc_recv(domain));
    const std::uint32_t number = target.qp_num();
    int mine = 0;
    {
        const qp again = qp::open(domain, number, &mine);
        CHECK(fake::log().back().detail ==
              "number " + std::to_string(number) + " of " + fake::name_of(domain.native_handle()));
        CHECK(again.native_handle() != target.native_handle());
        CHECK(again.qp_num() == number);
        CHECK(again.type() == qp_type::xrc_recv);
        CHECK(again.qp_context() == &mine);
        CHECK(again.context() == o.device);
        domain.close();
        target.close();
        CHECK(fake::calls("ibv_destroy_qp") == 1);
        CHECK(fake::alive(kept)); // by this one
        // Its asynchronous events are of its own.
        fake::push_async_event(again.native_handle(), IBV_EVENT_QP_FATAL);
        CHECK(get_async_event(o.device).qp() == again);
    }
    CHECK(fake::calls("ibv_destroy_qp") == 2);
    CHECK_FALSE(fake::alive(kept));

    const xrcd other(o.device);
    const xrcd third(o.device);
    target = qp({}, qp_init_attr_ex::xrc_recv(third));
    std::error_code ec;
    CHECK_FALSE(qp::open(other, target.qp_num(), nullptr, ec)); // of another domain
    CHECK(unit::number(ec) == EINVAL);
    const caught missing([&] { static_cast<void>(qp::open(other, 12345)); });
    CHECK(missing.code == EINVAL);
    CHECK(missing.call == "ibv_open_qp");
    const std::size_t calls = fake::calls("ibv_open_qp");
    CHECK_FALSE(qp::open(xrcd_ref(), 5, nullptr, ec));
    CHECK(unit::number(ec) == EINVAL);
    CHECK(fake::calls("ibv_open_qp") == calls);
    fake::fail("ibv_open_qp", 1, EOPNOTSUPP);
    CHECK_FALSE(qp::open(third, target.qp_num(), nullptr, ec));
    CHECK(unit::number(ec) == EOPNOTSUPP);
}

// ---------------------------------------------------------------- opt-in helpers

TEST_CASE_METHOD(unit::test, "queue_slots: unsignaled requests keep theirs until a later signaled one has completed",
                 "[slots]") {
    queue_slots slots(4);
    CHECK(slots.size() == 4);
    CHECK(slots.take(1, false));
    CHECK(slots.take(1, false));
    CHECK(slots.unsignaled() == 2);
    CHECK(slots.give() == 0); // none was signaled
    CHECK(slots.take(1, true));
    CHECK(slots.take(1, true));
    CHECK(slots.free() == 0);
    CHECK_FALSE(slots.take());
    CHECK(slots.give() == 3);
    CHECK(slots.free() == 3);
    CHECK(slots.take(2, false));
    slots.untake(2, false);
    CHECK(slots.take(3, true));
    slots.untake(3, true);
    CHECK(slots.free() == 3);
    CHECK(slots.take(0));
    slots.untake(0);
    CHECK(slots.give() == 1);
    CHECK(slots.free() == 4);
    // Round and round.
    for (int i = 0; i < 100; ++i) {
        CHECK(slots.take(3, true));
        CHECK(slots.give() == 3);
    }
    CHECK(slots.take(4, false));
    slots.reset();
    CHECK(slots.free() == 4);
    CHECK(slots.unsignaled() == 0);

    queue_slots moved = std::move(slots);
    CHECK(moved.take(4));
    queue_slots none;
    CHECK_FALSE(none.take());
    CHECK(none.give() == 0);
    none = std::move(moved);
    CHECK(none.free() == 0);
    std::error_code ec;
    const failing_allocation fails(0);
    CHECK(queue_slots::create(8, ec).size() == 8);
    CHECK_FALSE(ec);
}

TEST_CASE_METHOD(unit::test, "queue_slots: agrees with a queue that fills up", "[slots]") {
    opened o;
    const qp queue(o.pd, qp_init_attr(o.cq, 4));
    queue.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
    std::array<std::byte, 8> memory{};
    const mr region(o.pd, memory);
    queue_slots slots(queue.cap().max_send_wr);
    send_wr request = send_wr::send(std::span<const sge>());
    while (slots.take(1, false))
        CHECK(queue.try_post_send(request) == 0);
    CHECK(queue.try_post_send(request) == ENOMEM);
}

TEST_CASE_METHOD(unit::test, "cq_room: refuses the queue pair that could overrun the CQ", "[slots]") {
    opened o;
    const cq small(o.device, 60);
    cq_room room(small);
    CHECK(room.size() == 64); // what was granted
    const auto most = [&](std::uint32_t depth) {
        const ibv_qp_cap cap = qp(o.pd, qp_init_attr(small, depth)).cap();
        return cap.max_send_wr + cap.max_recv_wr;
    };
    CHECK(room.take(most(16)));
    CHECK(room.take(most(8)));
    CHECK(room.free() == 16);
    CHECK_FALSE(room.take(17));
    CHECK_FALSE(room.take(0xffffffff));
    CHECK(room.free() == 16);
    CHECK(room.take(16));
    CHECK(room.free() == 0);
    CHECK(room.take(0));
    room.give(most(8)); // in another order
    CHECK(room.free() == 16);
    CHECK(room.take(most(8)));
    room.give(most(16));
    CHECK(room.free() == 32);
    room.give(1000);
    CHECK(room.free() == 64);
    cq_room none;
    CHECK_FALSE(none.take(1));
}

TEST_CASE_METHOD(unit::test, "wr_table: a number finds its request once, with the queue that it was for", "[slots]") {
    wr_table<std::string> under_way(3);
    CHECK(under_way.size() == 3);
    const auto first = under_way.enter(wr_queue::send, "first");
    const auto second = under_way.enter(wr_queue::recv, "second");
    const auto third = under_way.enter(wr_queue::send, "third");
    REQUIRE((first && second && third));
    CHECK_FALSE(under_way.enter(wr_queue::send, "one too many"));
    CHECK(under_way.count() == 3);
    CHECK(queue_of(*first) == wr_queue::send);
    CHECK(queue_of(*second) == wr_queue::recv);
    CHECK(std::string(to_string(queue_of(*second))) == "recv");

    const auto found = under_way.take(*second);
    REQUIRE(found);
    CHECK(found->value == "second");
    CHECK(found->queue == wr_queue::recv);
    CHECK_FALSE(under_way.take(*second));
    const auto fourth = under_way.enter(wr_queue::recv, "fourth"); // where the second one was
    REQUIRE(fourth);
    CHECK(*fourth != *second);
    CHECK_FALSE(under_way.take(*second));
    CHECK_FALSE(under_way.take(*fourth ^ 1)); // of the other queue
    CHECK(under_way.take(*first)->value == "first");
    CHECK(under_way.take(*third)->queue == wr_queue::send);
    CHECK(under_way.take(*fourth)->value == "fourth");
    CHECK(under_way.count() == 0);
    for (const std::uint64_t foreign : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{3} << 32})
        CHECK_FALSE(under_way.take(foreign));
}

TEST_CASE_METHOD(unit::test, "wr_table: no number comes twice, and none is 0", "[slots]") {
    wr_table<int> under_way(2);
    std::vector<std::uint64_t> seen;
    for (int i = 0; i < 1000; ++i) {
        const auto id = under_way.enter(i % 2 == 0 ? wr_queue::send : wr_queue::recv, i);
        REQUIRE(id);
        CHECK(*id != 0);
        CHECK(under_way.take(*id)->value == i);
        seen.push_back(*id);
    }
    for (const std::uint64_t id : seen)
        CHECK_FALSE(under_way.take(id));
    std::sort(seen.begin(), seen.end());
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE_METHOD(unit::test, "wr_table: owns its values, and gives up those of a queue pair that is gone", "[slots]") {
    struct counted {
        explicit counted(int* of) : alive(of) { ++*alive; }
        counted(counted&& other) noexcept : alive(std::exchange(other.alive, nullptr)) {}
        counted& operator=(counted&&) = delete;
        counted(const counted&) = delete;
        counted& operator=(const counted&) = delete;
        ~counted() {
            if (alive != nullptr)
                --*alive;
        }
        int* alive;
    };
    int mine = 0;
    int theirs = 0;
    {
        wr_table<counted> under_way(8);
        const auto a = under_way.enter(wr_queue::send, counted(&mine));
        const auto b = under_way.enter(wr_queue::recv, counted(&theirs));
        const auto c = under_way.enter(wr_queue::recv, counted(&mine));
        CHECK((mine == 2 && theirs == 1));
        CHECK(under_way.erase_if([&](const counted& value) { return value.alive == &mine; }) == 2);
        CHECK((mine == 0 && theirs == 1));
        CHECK_FALSE(under_way.take(*a));
        CHECK_FALSE(under_way.take(*c));
        CHECK(under_way.take(*b)->value.alive == &theirs);
        CHECK(theirs == 0);
        CHECK(under_way.erase_if([](const counted&) { return true; }) == 0);

        static_cast<void>(under_way.enter(wr_queue::send, counted(&mine)));
        wr_table<counted> moved = std::move(under_way);
        CHECK(moved.count() == 1);
        CHECK(under_way.size() == 0); // NOLINT(bugprone-use-after-move): it has no room
        CHECK_FALSE(under_way.enter(wr_queue::send, counted(&mine)));
        CHECK(mine == 1);
    }
    CHECK(mine == 0);
    std::error_code ec;
    {
        const failing_allocation fails(1);
        CHECK_FALSE(wr_table<int>::create(8, ec).enter(wr_queue::send, 1));
    }
    CHECK(number(ec) == ENOMEM);
    CHECK(wr_table<int>::create(0, ec).size() == 0);
    CHECK_FALSE(ec);
    CHECK(caught([] { const wr_table<int> too_many(0xffffffff); }).code == EINVAL);
}

TEST_CASE_METHOD(unit::test, "wr_table: a destructor of its values may use it", "[slots]") {
    struct reposts {
        wr_table<std::unique_ptr<reposts>>* into = nullptr;
        std::optional<std::uint64_t>* id = nullptr;
        ~reposts() {
            if (into != nullptr)
                *id = into->enter(wr_queue::recv, std::make_unique<reposts>());
        }
    };
    wr_table<std::unique_ptr<reposts>> under_way(1);
    std::optional<std::uint64_t> second;
    auto value = std::make_unique<reposts>();
    value->into = &under_way;
    value->id = &second;
    REQUIRE(under_way.enter(wr_queue::send, std::move(value)));
    CHECK(under_way.erase_if([](const std::unique_ptr<reposts>& v) { return v->into != nullptr; }) <= 1);
    REQUIRE(second);
    CHECK(under_way.count() == 1);
    CHECK(under_way.take(*second)->queue == wr_queue::recv);
}

TEST_CASE_METHOD(unit::test, "wr_table: a completion of a queue pair that is gone finds nothing", "[slots]") {
    opened o;
    const int old_connection = 1;
    const int new_connection = 2;
    wr_table<const int*> under_way(1);
    const auto stale = under_way.enter(wr_queue::recv, &old_connection);
    REQUIRE(stale);
    fake::push_failure(o.cq.native_handle(), *stale, IBV_WC_WR_FLUSH_ERR, 17);
    under_way.erase_if([&](const int* of) { return of == &old_connection; }); // its queue pair is destroyed here
    const auto fresh = under_way.enter(wr_queue::recv, &new_connection);      // the same place
    REQUIRE(fresh);
    fake::push_success(o.cq.native_handle(), *fresh, IBV_WC_RECV, 18);
    std::array<wc, 4> done;
    int handled = 0;
    for (const wc& completion : o.cq.poll(done))
        if (const auto request = under_way.take(completion.wr_id())) {
            ++handled;
            CHECK(request->value == &new_connection);
            CHECK(completion.ok());
        }
    CHECK(handled == 1);
}

TEST_CASE_METHOD(unit::test, "drain: of a queue pair in the reset state, or without queues, is done at once",
                 "[drain]") {
    opened o;
    qp queue(o.pd, qp_init_attr(o.cq));
    queue.drain(2s);
    CHECK(fake::calls("ibv_modify_qp") == 0);
    queue = qp(o.pd, qp_init_attr(o.cq, 0));
    queue.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
    CHECK(fake::calls("ibv_poll_cq") == 0);
    queue.drain(2s);
    CHECK(fake::calls("ibv_poll_cq") <= 4); // before and after each of two markers
}

TEST_CASE_METHOD(unit::test, "drain: at a time, and for completions that nobody needs", "[drain]") {
    connection c;
    fake::set().hold_data_path = true;
    std::array<std::byte, 8> memory{};
    const mr region(c.pd, memory);
    c.client.qp().post_recv(region, 1);
    c.client.qp().drain(2s);
    std::error_code ec;
    c.server.qp().post_recv(region, 2);
    c.server.qp().drain(2s, ec);
    CHECK_FALSE(ec);
    int seen = 0;
    c.server.qp().drain_until(std::chrono::steady_clock::now() + 2s, [&](const wc&) { ++seen; });
    CHECK(seen == 0);
    c.server.qp().drain_until(
        std::chrono::steady_clock::now() + 2s, [&](const wc&) { ++seen; }, ec);
    CHECK_FALSE(ec);
}
