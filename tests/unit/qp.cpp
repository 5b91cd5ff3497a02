// Queue pairs: posts and their errors, modify and query, drain.
#include "test.hpp"

#include <algorithm>
#include <array>
#include <cstring>

using namespace rdmaxx;
using namespace unit;

namespace {

using clock = std::chrono::steady_clock;

/// A connection, memory, and requests that stay in the queues until the test lets them run.
struct posting : connection {
    explicit posting(std::uint32_t depth = 16) : connection(depth) { fake::set().hold_data_path = true; }

    [[nodiscard]] std::vector<fake::posted_wr> sends() const { return fake::posted_sends(client.qp().native_handle()); }
    [[nodiscard]] std::vector<fake::posted_wr> recvs() const { return fake::posted_recvs(server.qp().native_handle()); }
    std::vector<wc> poll() {
        std::array<wc, 64> room;
        const auto done = cq.poll(room);
        return {done.begin(), done.end()};
    }

    std::array<std::byte, 256> memory{};
    mr region{pd, memory, access::local_write | access::remote_write | access::remote_read | access::remote_atomic};
};

/// The posts, by name: one request each, valid or (too many SGEs) not.
struct bad_request {
    std::array<sge, 64> sges{};
    send_wr send = send_wr::send(sges);
    recv_wr recv{sges};
};

template <class Post>
std::size_t failed_index(Post post) {
    try {
        post();
    } catch (const post_error& e) {
        CHECK(e.code() == std::errc::invalid_argument);
        return e.index();
    }
    return 999;
}

} // namespace

// ---------------------------------------------------------------- posting

TEST_CASE_METHOD(unit::test, "post: the common case: a region or a piece of it", "[post]") {
    posting p;
    p.server.qp().post_recv(p.region, 11);
    p.server.qp().post_recv(p.region.sge(8, 16), 12);
    p.client.qp().post_send(p.region, 21);
    p.client.qp().post_send(p.region.sge(0, 4), 22);
    const auto recvs = p.recvs();
    REQUIRE(recvs.size() == 2);
    CHECK(recvs[0].wr_id == 11);
    CHECK(recvs[0].sges.at(0).length == 256);
    CHECK(recvs[0].sges.at(0).lkey == value(p.region.lkey()));
    CHECK(recvs[1].wr_id == 12);
    CHECK(recvs[1].sges.at(0).addr == reinterpret_cast<std::uintptr_t>(p.memory.data() + 8));
    const auto sends = p.sends();
    REQUIRE(sends.size() == 2);
    for (const fake::posted_wr& send : sends) {
        CHECK(send.opcode == IBV_WR_SEND);
        CHECK(send.flags == IBV_SEND_SIGNALED);
    }
    CHECK(sends[0].wr_id == 21);
    CHECK(sends[0].sges.at(0).length == 256);
    CHECK(sends[1].sges.at(0).length == 4);
}

TEST_CASE_METHOD(unit::test, "post: requests and SGEs may go when the call returns", "[post]") {
    posting p;
    std::memcpy(p.memory.data(), "abcdefgh", 8);
    {
        std::array<sge, 1> from = {p.region.sge(0, 8)};
        std::array<sge, 1> to = {p.region.sge(100, 8)};
        recv_wr recv = recv_wr(to).wr_id(1);
        send_wr send = send_wr::send(from).wr_id(2).signaled();
        p.server.qp().post_recv(recv);
        p.client.qp().post_send(send);
        from[0] = p.region.sge(50, 8);
        to[0] = p.region.sge(150, 8);
        send.wr_id(99);
        recv.wr_id(99);
    }
    fake::run_posted();
    CHECK(std::memcmp(p.memory.data() + 100, "abcdefgh", 8) == 0);
    for (const wc& done : p.poll()) {
        CHECK(done.ok());
        CHECK((done.wr_id() == 1 || done.wr_id() == 2));
    }
}

TEST_CASE_METHOD(unit::test, "post: inlined bytes are copied, and need no registration", "[post]") {
    connection c;
    cm_id other(c.channel);
    resolve(c.channel, other, connection::address(), 1s);
    const qp_ref qp = other.create_qp(c.pd, qp_init_attr(c.cq).max_inline_data(32));
    CHECK(qp.cap().max_inline_data >= 32);
    std::array<std::byte, 8> bytes{};
    const sge piece = sge::unchecked(bytes.data(), 8, {});
    std::error_code ec;
    qp.post_send(send_wr::send(piece).inlined(), ec);
    CHECK(!ec);
    bytes.fill(std::byte{9});
    const auto posted = fake::posted_sends(qp.native_handle());
    REQUIRE(posted.size() == 1);
    CHECK(posted[0].inline_data == std::vector<std::byte>(8));
    std::array<std::byte, 100> more{};
    const sge much = sge::unchecked(more.data(), 100, {});
    qp.post_send(send_wr::send(much).inlined(), ec);
    CHECK(number(ec) == EINVAL);
}

TEST_CASE_METHOD(unit::test, "post: a chain of C requests", "[post]") {
    posting p;
    ibv_sge piece = p.region.sge(0, 8);
    ibv_send_wr second{};
    second.wr_id = 2;
    second.opcode = IBV_WR_SEND;
    second.sg_list = &piece;
    second.num_sge = 1;
    ibv_send_wr first = second;
    first.wr_id = 1;
    first.next = &second;
    p.client.qp().post_send(first);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK(p.client.qp().post_send(first, ec) == 0);
    CHECK(!ec);
    CHECK(p.client.qp().try_post_send(second) == 0);
    CHECK(p.client.qp().try_post_send(send_wr::send(p.region.sge())) == 0);
    CHECK(p.sends().size() == 6);
    ibv_recv_wr recv{};
    recv.wr_id = 3;
    p.server.qp().post_recv(recv);
    CHECK(p.server.qp().post_recv(recv, ec) == 0);
    CHECK(p.server.qp().try_post_recv(recv) == 0);
    CHECK(p.server.qp().try_post_recv(recv_wr()) == 0);
    CHECK(p.recvs().size() == 4);
}

TEST_CASE_METHOD(unit::test, "post: requests in a row become one chain", "[post]") {
    posting p;
    const std::array<sge, 3> pieces = {p.region.sge(0, 1), p.region.sge(1, 2), p.region.sge(3, 3)};
    send_wr stray;
    std::vector<send_wr> sends;
    std::vector<recv_wr> recvs;
    for (std::uint64_t i = 0; i < 3; ++i) {
        sends.push_back(send_wr::send(pieces[i]).wr_id(i));
        recvs.push_back(recv_wr(pieces[i]).wr_id(i));
    }
    sends.back().next = &stray; // of an earlier use
    const std::size_t before = fake::calls("ibv_post_send");
    p.client.qp().post_send(sends);
    CHECK(fake::calls("ibv_post_send") == before + 1);
    CHECK(sends[0].next == &sends[1]);
    CHECK(sends[1].next == &sends[2]);
    CHECK(sends[2].next == nullptr);
    const auto posted = p.sends();
    REQUIRE(posted.size() == 3);
    for (std::uint64_t i = 0; i < 3; ++i) {
        CHECK(posted[i].wr_id == i);
        CHECK(posted[i].sges.at(0).length == i + 1);
    }
    std::error_code ec;
    CHECK(p.client.qp().post_send(sends, ec) == 0);
    CHECK(!ec);
    p.server.qp().post_recv(recvs);
    CHECK(p.server.qp().post_recv(recvs, ec) == 0);
    CHECK(!ec);
    CHECK(p.recvs().size() == 6);
    for (std::size_t i = 0; i < 3; ++i) {
        sends[i].next = nullptr;
        recvs[i].next = nullptr;
    }
    CHECK(p.client.qp().try_post_send(sends) == 0);
    CHECK(p.server.qp().try_post_recv(recvs) == 0);
    CHECK(p.sends().size() == 9);
    CHECK(p.recvs().size() == 9);
}

TEST_CASE_METHOD(unit::test, "post: no requests have no effect", "[post]") {
    posting p;
    const std::size_t before = fake::calls();
    std::error_code ec = std::make_error_code(std::errc::io_error);
    p.client.qp().post_send(std::span<send_wr>());
    CHECK(p.client.qp().post_send(std::span<send_wr>(), ec) == 0);
    CHECK(!ec);
    CHECK(p.client.qp().try_post_send(std::span<send_wr>()) == 0);
    CHECK(p.server.qp().try_post_recv(std::span<recv_wr>()) == 0);
    p.client.qp().post_recv(std::span<recv_wr>());
    ec = std::make_error_code(std::errc::io_error);
    CHECK(p.client.qp().post_recv(std::span<recv_wr>(), ec) == 0);
    CHECK(!ec);
    CHECK(fake::calls() == before);
}

TEST_CASE_METHOD(unit::test, "post: a failure tells which request failed; those before it were posted", "[post]") {
    posting p(64);
    constexpr std::size_t count = 4;
    const auto bad = static_cast<std::size_t>(GENERATE(range(0, 4)));
    const bad_request wrong;
    const sge piece = p.region.sge(0, 1);
    std::vector<send_wr> sends(count, send_wr::send(piece));
    std::vector<recv_wr> recvs(count, recv_wr(piece));
    sends[bad] = wrong.send;
    recvs[bad] = wrong.recv;
    const qp_ref qp = p.client.qp();
    const auto posted_sends = [&] {
        return fake::posted_sends(qp.native_handle()).size();
    };
    const auto posted_recvs = [&] {
        return fake::posted_recvs(qp.native_handle()).size();
    };

    CHECK(failed_index([&] { qp.post_send(sends); }) == bad);
    CHECK(posted_sends() == bad);
    CHECK(failed_index([&] { qp.post_send(sends.front()); }) == bad);
    CHECK(posted_sends() == 2 * bad);
    std::error_code ec;
    CHECK(qp.post_send(sends, ec) == bad);
    CHECK(number(ec) == EINVAL);
    CHECK(qp.post_send(sends.front(), ec) == bad);
    ibv_send_wr* bad_send = nullptr;
    CHECK(qp.try_post_send(sends.front(), bad_send) == EINVAL);
    CHECK(bad_send == &sends[bad]);

    CHECK(failed_index([&] { qp.post_recv(recvs); }) == bad);
    CHECK(posted_recvs() == bad);
    CHECK(failed_index([&] { qp.post_recv(recvs.front()); }) == bad);
    ec.clear();
    CHECK(qp.post_recv(recvs, ec) == bad);
    CHECK(number(ec) == EINVAL);
    CHECK(qp.post_recv(recvs.front(), ec) == bad);
    ibv_recv_wr* bad_recv = nullptr;
    CHECK(qp.try_post_recv(recvs.front(), bad_recv) == EINVAL);
    CHECK(bad_recv == &recvs[bad]);

    const caught failed([&] { qp.post_send(sends); });
    CHECK(failed.call == "ibv_post_send");
    CHECK(contains(failed.what, bad == 0 ? "ibv_post_send: " : "ibv_post_send request " + std::to_string(bad) + ": "));
}

TEST_CASE_METHOD(unit::test, "post: a full queue is ENOMEM, and good again after a signaled completion was polled",
                 "[post]") {
    connection c(4);
    std::array<std::byte, 64> memory{};
    const mr region(c.pd, memory);
    for (int i = 0; i < 8; ++i)
        if (i < 4)
            c.server.qp().post_recv(region, 100);
    const sge piece = region.sge(0, 1);
    const qp_ref qp = c.client.qp();
    send_wr wr = send_wr::send(piece);
    for (int i = 0; i < 3; ++i)
        qp.post_send(wr);
    wr.signaled();
    qp.post_send(wr);
    const caught full([&] { qp.post_send(wr); });
    CHECK(full.code == ENOMEM);
    CHECK(contains(diagnose(*full.error), "queue is full"));
    std::error_code ec;
    CHECK(qp.post_send(wr, ec) == 0);
    CHECK(number(ec) == ENOMEM);
    CHECK(qp.try_post_send(wr) == ENOMEM);
    std::array<wc, 16> room;
    CHECK_FALSE(c.cq.poll(room).empty());
    c.server.qp().post_recv(region, 100);
    CHECK(qp.try_post_send(wr) == 0);
}

TEST_CASE_METHOD(unit::test, "post: in a state that takes no requests is EINVAL", "[post]") {
    const opened with;
    const qp pair(with.pd, qp_init_attr(with.cq));
    std::array<std::byte, 64> memory{};
    const mr region(with.pd, memory);
    const caught refused([&] { pair.post_recv(region); });
    CHECK(refused.code == EINVAL);
    CHECK(refused.call == "ibv_post_recv");
    CHECK(contains(diagnose(*refused.error), "state"));
    CHECK(caught([&] { pair.post_send(region); }).code == EINVAL);
}

TEST_CASE_METHOD(unit::test, "post: a region that an SGE cannot say is ERANGE, without a C call", "[post]") {
    connection c;
    std::array<std::byte, 64> memory{};
    const mr huge(c.pd, std::span<std::byte>(memory.data(), std::size_t{1} << 32U));
    const std::size_t before = fake::calls();
    CHECK(caught([&] { c.client.qp().post_send(huge); }).code == ERANGE);
    CHECK(caught([&] { c.client.qp().post_recv(huge); }).code == ERANGE);
    std::error_code ec;
    c.client.qp().post_send(huge, 0, ec);
    CHECK(number(ec) == ERANGE);
    ec.clear();
    c.client.qp().post_recv(huge, 0, ec);
    CHECK(number(ec) == ERANGE);
    CHECK(c.client.qp().try_post_send(huge) == ERANGE);
    CHECK(c.client.qp().try_post_recv(huge) == ERANGE);
    CHECK(fake::calls() == before);
}

// ---------------------------------------------------------------- conventions

TEST_CASE_METHOD(unit::test, "the error is the same whatever convention a call uses: 12, -1 and errno, -12",
                 "[errors]") {
    const auto how = GENERATE(fake::convention::positive, fake::convention::minus_one, fake::convention::negative);
    connection c;
    std::array<std::byte, 64> memory{};
    mr region(c.pd, memory);
    const qp_ref qp = c.client.qp();
    const auto enomem = [&](const char* call, auto throws) {
        CAPTURE(call);
        errno = EBADF;
        fake::fail(call).as(how).with(ENOMEM);
        const caught failed(throws);
        CHECK(failed.code == ENOMEM);
        CHECK(failed.call == call);
    };
    enomem("ibv_post_send", [&] { qp.post_send(region); });
    enomem("ibv_post_recv", [&] { qp.post_recv(region); });
    enomem("ibv_modify_qp", [&] { qp.modify(qp_attr(qp_state::err)); });
    enomem("ibv_query_qp", [&] { static_cast<void>(qp.query()); });
    enomem("ibv_query_qp", [&] { static_cast<void>(qp.cap()); });
    enomem("ibv_req_notify_cq", [&] { c.cq.request_notify(); });
    enomem("ibv_query_device", [&] { static_cast<void>(c.device.query_device()); });
    enomem("ibv_query_port", [&] { static_cast<void>(c.device.query_port(1)); });
    enomem("ibv_dereg_mr", [&] { region.close(); });
    enomem("ibv_destroy_qp", [&] { c.client.close(); });
    enomem("ibv_destroy_qp", [&] { c.client.destroy_qp(); });
    {
        comp_channel events(c.device);
        cq queue(c.device, 4, events);
        rdmaxx::qp pair(c.pd, qp_init_attr(queue));
        enomem("ibv_destroy_qp", [&] { pair.close(); });
        pair.close();
        enomem("ibv_destroy_cq", [&] { queue.close(); });
        queue.close();
        enomem("ibv_destroy_comp_channel", [&] { events.close(); });
        pd domain(c.device);
        enomem("ibv_dealloc_pd", [&] { domain.close(); });
    }
    sge piece = region.sge(0, 8);
    send_wr send = send_wr::send(piece);
    recv_wr recv(piece);
    fake::fail("ibv_post_send").as(how).with(ENOMEM);
    CHECK(qp.try_post_send(send) == ENOMEM);
    fake::fail("ibv_post_recv").as(how).with(ENOMEM);
    CHECK(qp.try_post_recv(recv) == ENOMEM);
    fake::fail("ibv_req_notify_cq").as(how).with(ENOMEM);
    CHECK(c.cq.try_request_notify() == ENOMEM);
}

// ---------------------------------------------------------------- modify and query

TEST_CASE_METHOD(unit::test, "qp: goes through its states by hand", "[qp]") {
    const opened with;
    qp pair(with.pd, qp_init_attr(with.cq, 3));
    CHECK(pair.query().state() == qp_state::reset);
    CHECK(pair.type() == qp_type::rc);
    CHECK(pair.send_cq() == with.cq);
    CHECK(pair.recv_cq() == with.cq);
    CHECK(pair.pd() == with.pd);
    CHECK(pair.context() == with.device);
    CHECK(pair.qp_num() != 0);
    CHECK(pair.cap().max_send_wr == 4);
    pair.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::remote_write));
    ibv_ah_attr path{};
    path.port_num = 1;
    path.is_global = 1;
    pair.modify(qp_attr(qp_state::rtr)
                    .ah_attr(path)
                    .path_mtu(mtu::bytes_2048)
                    .dest_qp_num(pair.qp_num())
                    .rq_psn(5)
                    .max_dest_rd_atomic(6)
                    .min_rnr_timer(7));
    std::error_code ec = std::make_error_code(std::errc::io_error);
    pair.modify(qp_attr(qp_state::rts).timeout(8).retry_cnt(3).rnr_retry(4).sq_psn(9).max_rd_atomic(2), ec);
    CHECK(!ec);
    const qp_info info = pair.query();
    CHECK(info.state() == qp_state::rts);
    CHECK(info.attr.path_mtu == IBV_MTU_2048);
    CHECK(info.attr.dest_qp_num == pair.qp_num());
    CHECK(info.attr.rq_psn == 5);
    CHECK(info.attr.max_dest_rd_atomic == 6);
    CHECK(info.attr.min_rnr_timer == 7);
    CHECK(info.attr.timeout == 8);
    CHECK(info.attr.retry_cnt == 3);
    CHECK(info.attr.rnr_retry == 4);
    CHECK(info.attr.sq_psn == 9);
    CHECK(info.attr.max_rd_atomic == 2);
    CHECK(info.attr.qp_access_flags == IBV_ACCESS_REMOTE_WRITE);
    CHECK(info.cap().max_recv_wr == 4);
    CHECK(std::string(to_string(info.state())) == "rts");
}

TEST_CASE_METHOD(unit::test, "qp_attr: each setter sets its field and its bit", "[qp]") {
    struct row {
        qp_attr attr;
        int mask;
    };
    const ibv_ah_attr path{};
    const std::vector<row> rows = {
        {qp_attr(qp_state::init), IBV_QP_STATE},
        {qp_attr().access_flags(access::remote_read), IBV_QP_ACCESS_FLAGS},
        {qp_attr().pkey_index(1), IBV_QP_PKEY_INDEX},
        {qp_attr().port_num(1), IBV_QP_PORT},
        {qp_attr().qkey(1), IBV_QP_QKEY},
        {qp_attr().ah_attr(path), IBV_QP_AV},
        {qp_attr().path_mtu(mtu::bytes_256), IBV_QP_PATH_MTU},
        {qp_attr().dest_qp_num(1), IBV_QP_DEST_QPN},
        {qp_attr().rq_psn(1), IBV_QP_RQ_PSN},
        {qp_attr().sq_psn(1), IBV_QP_SQ_PSN},
        {qp_attr().max_rd_atomic(1), IBV_QP_MAX_QP_RD_ATOMIC},
        {qp_attr().max_dest_rd_atomic(1), IBV_QP_MAX_DEST_RD_ATOMIC},
        {qp_attr().min_rnr_timer(1), IBV_QP_MIN_RNR_TIMER},
        {qp_attr().timeout(1), IBV_QP_TIMEOUT},
        {qp_attr().retry_cnt(1), IBV_QP_RETRY_CNT},
        {qp_attr().rnr_retry(1), IBV_QP_RNR_RETRY},
    };
    for (const row& r : rows)
        CHECK(r.attr.mask() == r.mask);
    CHECK(qp_attr().mask() == 0);
    CHECK(qp_attr(qp_state::rts).qkey(0x11).mask() == (IBV_QP_STATE | IBV_QP_QKEY));
    CHECK(qp_attr().qkey(0x11).raw().qkey == 0x11);
    CHECK(qp_attr().access_flags(access::remote_read).raw().qp_access_flags == IBV_ACCESS_REMOTE_READ);
}

TEST_CASE_METHOD(unit::test, "qp: a transition that does not exist, or lacks an attribute, is EINVAL", "[qp]") {
    const opened with;
    const qp pair(with.pd, qp_init_attr(with.cq));
    const caught skipped([&] { pair.modify(qp_attr(qp_state::rts)); });
    CHECK(skipped.code == EINVAL);
    CHECK(skipped.call == "ibv_modify_qp");
    CHECK(contains(diagnose(*skipped.error), "transition"));
    std::error_code ec;
    pair.modify(qp_attr(qp_state::init), ec);
    CHECK(number(ec) == EINVAL);
    CHECK(pair.query().state() == qp_state::reset);
    pair.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
    ibv_qp_attr raw{};
    raw.qp_state = IBV_QPS_ERR;
    pair.modify(raw, IBV_QP_STATE);
    CHECK(pair.query(ec).state() == qp_state::err);
    CHECK(pair.cap(ec).max_send_wr == 16);
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "qp_init_attr: what it asks for", "[qp]") {
    const opened with;
    const cq other(with.device, 8);
    int context = 0;
    const qp_init_attr attr = qp_init_attr(with.cq, other, 7)
                                  .type(qp_type::ud)
                                  .max_send_wr(1)
                                  .max_recv_wr(2)
                                  .max_send_sge(3)
                                  .max_recv_sge(4)
                                  .max_inline_data(5)
                                  .sq_sig_all()
                                  .qp_context(&context);
    const ibv_qp_init_attr& raw = attr.raw();
    CHECK(raw.send_cq == with.cq.native_handle());
    CHECK(raw.recv_cq == other.native_handle());
    CHECK(raw.qp_type == IBV_QPT_UD);
    CHECK(raw.cap.max_send_wr == 1);
    CHECK(raw.cap.max_recv_wr == 2);
    CHECK(raw.cap.max_send_sge == 3);
    CHECK(raw.cap.max_recv_sge == 4);
    CHECK(raw.cap.max_inline_data == 5);
    CHECK(raw.sq_sig_all == 1);
    CHECK(raw.qp_context == &context);
    const qp_init_attr plain(with.cq);
    CHECK(plain.raw().qp_type == IBV_QPT_RC);
    CHECK(plain.raw().cap.max_send_wr == 16);
    CHECK(plain.raw().cap.max_recv_sge == 1);
    CHECK(plain.raw().sq_sig_all == 0);
    CHECK(plain.raw().srq == nullptr);
}

TEST_CASE_METHOD(unit::test, "qp: data arrives only by the right keys and access", "[qp]") {
    connection c;
    std::array<std::byte, 64> from{};
    std::array<std::byte, 64> to{};
    std::memcpy(from.data(), "payload!", 8);
    const mr local(c.pd, from);
    SECTION("write and read") {
        const mr remote(c.pd, to, access::local_write | access::remote_write | access::remote_read);
        const sge piece = local.sge(0, 8);
        c.client.qp().post_send(send_wr::rdma_write(piece, remote.remote().part(8, 8)).signaled());
        CHECK(std::memcmp(to.data() + 8, "payload!", 8) == 0);
        const sge back = local.sge(16, 8);
        c.client.qp().post_send(send_wr::rdma_read(back, remote.remote().part(8, 8)).signaled());
        CHECK(std::memcmp(from.data() + 16, "payload!", 8) == 0);
        std::array<wc, 4> room;
        const auto done = c.cq.poll(room);
        REQUIRE(done.size() == 2);
        CHECK(done[0].opcode() == wc_opcode::rdma_write);
        CHECK(done[1].opcode() == wc_opcode::rdma_read);
        CHECK(done[1].byte_len() == 8U);
    }
    SECTION("atomics") {
        alignas(8) std::array<std::uint64_t, 2> counter = {40, 0};
        const mr remote(c.pd, counter, access::local_write | access::remote_atomic);
        const sge result = local.sge(32, 8);
        c.client.qp().post_send(send_wr::atomic_fetch_and_add(result, remote.remote(), 2));
        c.client.qp().post_send(send_wr::atomic_cmp_and_swp(result, remote.remote(), 42, 7).signaled());
        CHECK(counter[0] == 7);
        std::uint64_t before = 0;
        std::memcpy(&before, from.data() + 32, 8);
        CHECK(before == 42);
    }
    SECTION("immediate data") {
        const mr remote(c.pd, to, access::local_write | access::remote_write);
        c.server.qp().post_recv(recv_wr().wr_id(5));
        const sge piece = local.sge(0, 8);
        c.client.qp().post_send(send_wr::rdma_write_with_imm(piece, remote.remote(), 0xCAFE));
        std::array<wc, 4> room;
        const auto done = c.cq.poll(room);
        REQUIRE(done.size() == 1);
        CHECK(done[0].opcode() == wc_opcode::recv_rdma_with_imm);
        CHECK(done[0].imm_data() == 0xCAFEU);
        CHECK(done[0].byte_len() == 8U);
    }
    SECTION("refused") {
        const mr remote(c.pd, to); // local_write only
        const sge piece = local.sge(0, 8);
        c.client.qp().post_send(send_wr::rdma_write(piece, remote.remote()).wr_id(3).signaled());
        std::array<wc, 4> room;
        const auto done = c.cq.poll(room);
        REQUIRE_FALSE(done.empty());
        CHECK(done[0].status() == wc_status::rem_access_err);
        CHECK(done[0].wr_id() == 3);
    }
}

// ---------------------------------------------------------------- drain

TEST_CASE_METHOD(unit::test, "drain: hands on what was posted, keeps its own markers, and ends when both are through",
                 "[drain]") {
    posting p;
    const qp_ref qp = p.client.qp();
    for (std::uint64_t i = 1; i <= 3; ++i) {
        qp.post_send(p.region, i);
        qp.post_recv(p.region, 10 + i);
    }
    std::vector<std::uint64_t> seen;
    qp.drain(5s, [&](const wc& done) {
        CHECK(done.status() == wc_status::wr_flush_err);
        seen.push_back(done.wr_id());
    });
    std::sort(seen.begin(), seen.end());
    CHECK(seen == std::vector<std::uint64_t>{1, 2, 3, 11, 12, 13});
    CHECK(qp.query().state() == qp_state::err);
    CHECK(fake::queued(p.cq.native_handle()) == 0);
    CHECK(fake::posted_sends(qp.native_handle()).empty());
    CHECK(fake::posted_recvs(qp.native_handle()).empty());
}

TEST_CASE_METHOD(unit::test, "drain: the marker of a datagram queue pair has an address, which goes again", "[drain]") {
    const opened with;
    qp datagrams(with.pd, qp_init_attr(with.cq).type(qp_type::ud));
    datagrams.drain(5s); // in the reset state there is nothing to do
    CHECK(fake::calls("ibv_create_ah") == 0);
    datagrams.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).qkey(17));
    datagrams.drain(5s);
    CHECK(fake::calls("ibv_create_ah") == 1);
    CHECK(fake::calls("ibv_destroy_ah") == 1);
    CHECK(datagrams.query().state() == qp_state::err);
    for (const char* call : {"ibv_query_port", "ibv_query_gid", "ibv_create_ah"}) {
        fake::fail(call).with(EIO);
        const caught failed([&] { datagrams.drain(5s); });
        CHECK(failed.code == EIO);
        CHECK(failed.call == call);
    }
}

TEST_CASE_METHOD(unit::test, "drain: requests of a provider's own kind are left to it", "[drain]") {
    const opened with;
    const qp own(with.pd, qp_init_attr(with.cq).type(qp_type::driver));
    own.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
    const caught drained([&] { own.drain(5s); });
    CHECK(drained.code == EOPNOTSUPP);
    CHECK(fake::calls("ibv_post_send") == 0);
    CHECK(own.query().state() == qp_state::err);
}

TEST_CASE_METHOD(unit::test, "drain: a CQ without room to spare is polled empty first, and not overrun", "[drain]") {
    opened with;
    const cq exact(with.device, 7);
    const qp pair(with.pd, qp_init_attr(exact, 8));
    pair.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
    for (int i = 0; i < exact.size(); ++i)
        pair.post_recv(recv_wr().wr_id(1));
    int flushed = 0;
    pair.drain(5s, [&](const wc&) { ++flushed; });
    CHECK(flushed == exact.size());
    CHECK_FALSE(try_get_async_event(with.device)); // no cq_err
}

TEST_CASE_METHOD(unit::test, "drain: a handler that throws loses its completion only", "[drain]") {
    posting p;
    const qp_ref qp = p.client.qp();
    for (std::uint64_t i = 1; i <= 4; ++i)
        qp.post_send(p.region, i);
    unsigned seen = 0;
    CHECK_THROWS_AS(qp.drain(5s,
                             [&](const wc&) {
                                 ++seen;
                                 throw std::runtime_error("not now");
                             }),
                    std::runtime_error);
    CHECK(seen == 1);
    qp.drain(5s, [&](const wc& done) {
        CHECK_FALSE(is_drain_marker(done.wr_id()));
        ++seen;
    });
    CHECK(seen == 4);
}

TEST_CASE_METHOD(unit::test, "drain: a marker of one that failed is told apart, and taken by the next", "[drain]") {
    posting p;
    const qp_ref qp = p.client.qp();
    qp.post_send(p.region, 5);
    fake::fail("ibv_modify_qp").at(2).with(EIO); // when the receive queue has its marker
    std::vector<std::uint64_t> seen;
    std::error_code ec;
    qp.drain(
        5s, [&](const wc& done) { seen.push_back(done.wr_id()); }, ec);
    CHECK(number(ec) == EIO);
    CHECK(seen == std::vector<std::uint64_t>{5});
    CHECK_FALSE(is_drain_marker(5));
    if (GENERATE(true, false)) {
        const auto left = p.poll();
        REQUIRE(left.size() == 1);
        CHECK(is_drain_marker(left[0].wr_id()));
    } else {
        qp.drain(5s, [](const wc&) { FAIL("a marker was handed on"); });
        CHECK(fake::queued(p.cq.native_handle()) == 0);
    }
}

TEST_CASE_METHOD(unit::test, "drain: of idle queues ends at once, in both forms, also a second time", "[drain]") {
    connection c;
    unsigned handed = 0;
    c.client.qp().drain(5s, [&](const wc&) { ++handed; });
    std::error_code ec = std::make_error_code(std::errc::io_error);
    c.client.qp().drain(
        5s, [&](const wc&) { ++handed; }, ec);
    CHECK(!ec);
    CHECK(handed == 0);
}

TEST_CASE_METHOD(unit::test, "drain: waits until the unsignaled have flushed, too", "[drain]") {
    posting p;
    const qp_ref qp = p.client.qp();
    const sge piece = p.region.sge(0, 1);
    for (std::uint64_t i = 0; i < 4; ++i)
        qp.post_send(send_wr::send(piece).wr_id(i));
    unsigned flushed = 0;
    qp.drain(5s, [&](const wc&) { ++flushed; });
    CHECK(flushed == 4);
}

TEST_CASE_METHOD(unit::test, "drain: queues that are full take the markers when completions were polled", "[drain]") {
    posting p(4);
    const qp_ref qp = p.client.qp();
    for (std::uint64_t i = 0; i < 4; ++i) {
        qp.post_send(p.region, i);
        qp.post_recv(p.region, i);
    }
    fake::fail("ibv_post_recv").with(ENOMEM).times(2); // as providers that count flushed receives until they are polled
    unsigned flushed = 0;
    qp.drain(5s, [&](const wc&) { ++flushed; });
    CHECK(flushed == 8);
    CHECK(fake::calls("ibv_post_recv") >= 6);
}

TEST_CASE_METHOD(unit::test, "drain: a device that takes no markers has what comes handed on, and is an error",
                 "[drain]") {
    posting p;
    const qp_ref qp = p.client.qp();
    const bool receives_too = GENERATE(false, true);
    for (std::uint64_t i = 0; i < 3; ++i) {
        qp.post_send(p.region, i);
        qp.post_recv(p.region, i);
    }
    fake::fail("ibv_post_send").with(EINVAL); // as bnxt_re, efa and cxgb4 in the error state
    if (receives_too)
        fake::fail("ibv_post_recv").with(EINVAL);
    unsigned flushed = 0;
    std::error_code ec;
    qp.drain(
        60s, [&](const wc&) { ++flushed; }, ec);
    CHECK(number(ec) == EOPNOTSUPP);
    CHECK(flushed == 6);
    CHECK(qp.query().state() == qp_state::err);
}

TEST_CASE_METHOD(unit::test, "qp: asks for no more attributes than it needs", "[qp]") {
    const connection c;
    const auto asked = [] {
        return fake::log().back().detail;
    };
    static_cast<void>(c.client.qp().cap());
    CHECK(asked() == "mask " + std::to_string(IBV_QP_CAP));
    static_cast<void>(c.client.qp().query(IBV_QP_STATE));
    CHECK(asked() == "mask " + std::to_string(IBV_QP_STATE));
    std::error_code ec;
    CHECK(c.client.qp().query(IBV_QP_STATE | IBV_QP_CAP, ec).state() == qp_state::rts);
    CHECK(asked() == "mask " + std::to_string(IBV_QP_STATE | IBV_QP_CAP));
    static_cast<void>(c.client.qp().query());
    CHECK(asked() == "mask " + std::to_string((IBV_QP_DEST_QPN << 1) - 1));
}

TEST_CASE_METHOD(unit::test, "drain: completions of another queue pair on the same CQ are handed on", "[drain]") {
    connection c; // both ends on one CQ
    std::array<std::byte, 64> memory{};
    const mr region(c.pd, memory);
    c.server.qp().post_recv(region, 5);
    c.server.qp().post_recv(region, 6);
    c.client.qp().post_send(region, 7);
    std::vector<std::uint64_t> client;
    std::vector<std::uint64_t> server;
    c.client.qp().drain(5s, [&](const wc& done) {
        (done.qp_num() == c.client.qp().qp_num() ? client : server).push_back(done.wr_id());
    });
    CHECK(client == std::vector<std::uint64_t>{7});
    CHECK(server == std::vector<std::uint64_t>{5}); // 6 is still posted
    CHECK(fake::posted_recvs(c.server.qp().native_handle()).size() == 1);
}

TEST_CASE_METHOD(unit::test, "drain: polls two CQs", "[drain]") {
    const opened with;
    const cq other(with.device, 8);
    qp pair(with.pd, qp_init_attr(with.cq, other, 4));
    pair.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
    std::array<std::byte, 64> memory{};
    const mr region(with.pd, memory);
    pair.post_recv(region, 1);
    std::vector<std::uint64_t> seen;
    pair.drain(5s, [&](const wc& done) { seen.push_back(done.wr_id()); });
    CHECK(seen == std::vector<std::uint64_t>{1});
}

TEST_CASE_METHOD(unit::test, "drain: with a shared receive queue posts no receive marker", "[drain]") {
    const opened with;
    ibv_srq_init_attr init{};
    init.attr = {8, 1, 0};
    ibv_srq* srq = ::ibv_create_srq(with.pd.native_handle(), &init);
    REQUIRE(srq != nullptr);
    {
        const qp pair(with.pd, qp_init_attr(with.cq).srq(srq_ref(srq)));
        pair.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
        pair.drain(5s, [](const wc&) {});
        CHECK(fake::calls("ibv_post_recv") == 0);
        CHECK(fake::calls("ibv_post_srq_recv") == 0);
        CHECK(fake::calls("ibv_post_send") == 1);
    }
    CHECK(::ibv_destroy_srq(srq) == 0);
}

TEST_CASE_METHOD(unit::test, "qp: keeps its shared receive queue, whichever way it was made", "[qp]") {
    opened with;
    srq shared(with.pd);
    const ibv_srq* kept = shared.native_handle();
    qp plain(with.pd, qp_init_attr(with.cq).srq(shared));
    qp extended(with.pd, qp_init_attr_ex(qp_init_attr(with.cq).srq(shared)));
    shared.close();
    plain.close();
    CHECK(fake::alive(kept));
    CHECK(extended.srq().native_handle() == kept);
    extended.close();
    CHECK_FALSE(fake::alive(kept));
}

TEST_CASE_METHOD(unit::test, "drain: gives up at its deadline with ETIMEDOUT", "[drain]") {
    connection c;
    fake::fail("ibv_post_send").every().with(ENOMEM); // its marker never finds room
    const auto start = clock::now();
    const caught late([&] { c.client.qp().drain(30ms, [](const wc&) {}); });
    CHECK(late.code == ETIMEDOUT);
    CHECK(elapsed(start) >= 30ms);
    CHECK(elapsed(start) < 5s);
    CHECK(contains(late.cause, "not everything"));
    std::error_code ec;
    c.client.qp().drain(
        std::chrono::duration<double>(0), [](const wc&) {}, ec);
    CHECK(number(ec) == ETIMEDOUT);
}

TEST_CASE_METHOD(unit::test, "drain: failures name their call", "[drain]") {
    connection c;
    const auto fails = [&](const char* call, int error) {
        CAPTURE(call);
        fake::fail(call).with(error);
        const caught failed([&] { c.client.qp().drain(1s, [](const wc&) {}); });
        CHECK(failed.code == error);
        CHECK(failed.call == call);
    };
    fails("ibv_modify_qp", EINVAL);
    fails("ibv_post_send", EIO);
    fails("ibv_post_recv", EIO);
    fake::fail("ibv_poll_cq").returning(-1);
    const caught broken([&] { c.client.qp().drain(1s, [](const wc&) {}); });
    CHECK(broken.code == EIO);
    CHECK(contains(broken.cause, "CQ is broken"));
}

TEST_CASE_METHOD(unit::test, "drain: what the handler throws passes", "[drain]") {
    posting p;
    p.client.qp().post_send(p.region, 1);
    CHECK_THROWS_AS(p.client.qp().drain(1s, [](const wc&) { throw std::runtime_error("enough"); }), std::runtime_error);
}
