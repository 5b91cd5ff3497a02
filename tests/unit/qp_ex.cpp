// Queue pairs with extended attributes and the extended work-request API.
#include "test.hpp"

#include <array>
#include <cstring>

#include <arpa/inet.h>

using namespace rdmaxx;
using namespace unit;

namespace {

constexpr send_ops every_op = send_ops::rdma_write | send_ops::rdma_write_with_imm | send_ops::send |
                              send_ops::send_with_imm | send_ops::rdma_read | send_ops::atomic_cmp_and_swp |
                              send_ops::atomic_fetch_and_add | send_ops::local_inv | send_ops::bind_mw |
                              send_ops::send_with_inv;
constexpr send_ops ud_ops = send_ops::send | send_ops::send_with_imm | send_ops::tso;

std::string made() {
    std::string detail;
    for (const fake::call_record& call : fake::log())
        if (call.name == "ibv_create_qp_ex")
            detail = call.detail;
    return detail;
}

void to_init(const qp_ref& queue) {
    queue.modify(queue.type() == qp_type::ud
                     ? qp_attr(qp_state::init).pkey_index(0).port_num(1).qkey(17)
                     : qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
}

/// A queue pair in the init state: its requests wait, for the test to look at.
template <class Qp>
struct waiting : opened {
    explicit waiting(std::uint32_t depth = 16, std::uint32_t sges = 2)
        : queue(pd, qp_init_attr(cq, depth).max_send_sge(sges).max_inline_data(64)) {
        to_init(queue);
    }

    [[nodiscard]] std::vector<fake::posted_wr> posted() const { return fake::posted_sends(queue.native_handle()); }
    [[nodiscard]] sge piece(std::size_t offset, std::size_t length) const { return region.sge(offset, length); }

    std::array<std::byte, 64> memory{};
    mr region{pd, memory};
    Qp queue;
};

using rc_queue = waiting<qp_ex<every_op>>;
constexpr remote_buffer peer{0x1000, rkey{77}, 64};

template <class Queue>
concept writes = requires(const Queue& queue, const sge& piece) {
    queue.start().wr().rdma_write(piece, peer);
};
template <class Queue>
concept reads_inline = requires(const Queue& queue, const inline_data& data) {
    queue.start().wr().rdma_read(data, peer);
};
template <class Queue>
concept sends = requires(const Queue& queue, const sge& piece) {
    queue.start().wr().send(piece);
};
template <class Queue>
concept sends_datagrams = requires(const Queue& queue, const sge& piece, ah_ref ah) {
    queue.start().wr().to(ah, 1, 2).send(piece);
};
template <class Queue>
concept sends_to_srq = requires(const Queue& queue, const sge& piece) {
    queue.start().wr().to_srq(1).send(piece);
};
template <class Queue>
concept invalidates = requires(const Queue& queue) {
    queue.start().wr().local_inv(rkey{1});
};
template <class Queue>
concept invalidates_at_srq = requires(const Queue& queue) {
    queue.start().wr().to_srq(1).local_inv(rkey{1});
};
template <class Queue>
concept sums = requires(const Queue& queue) {
    queue.start().wr().ip_csum();
};

// An operation exists where the queue pair was made for it, with what belongs to it.
static_assert(writes<qp_ex<send_ops::rdma_write>> && !writes<qp_ex<send_ops::send>>);
static_assert(!reads_inline<qp_ex<send_ops::rdma_read>>);
static_assert(sends<qp_ex<send_ops::send>> && !sends_datagrams<qp_ex<send_ops::send>> &&
              !sends_to_srq<qp_ex<send_ops::send>>);
static_assert(!sends<qp_ex<send_ops::send, qp_type::ud>> && sends_datagrams<qp_ex<send_ops::send, qp_type::ud>>);
static_assert(!sends<qp_ex<send_ops::send, qp_type::xrc_send>> &&
              sends_to_srq<qp_ex<send_ops::send, qp_type::xrc_send>>);
static_assert(sums<qp_ex<send_ops::send, qp_type::ud>> && !sums<qp_ex<send_ops::send>>);
// What goes to no peer has no address, of XRC neither.
static_assert(invalidates<qp_ex<send_ops::local_inv>> && invalidates<qp_ex<send_ops::local_inv, qp_type::xrc_send>> &&
              !invalidates<qp_ex<send_ops::send>> &&
              !invalidates_at_srq<qp_ex<send_ops::local_inv | send_ops::send, qp_type::xrc_send>>);
static_assert(sizeof(qp_ex<send_ops::send>) == sizeof(qp) && sizeof(qp_ex_ref<send_ops::send>) == sizeof(void*));

} // namespace

// ---------------------------------------------------------------- creation

TEST_CASE_METHOD(unit::test, "qp_ex: is made for its operations and of its type", "[qp_ex]") {
    opened o;
    const qp_ex<send_ops::rdma_write | send_ops::send> rc(o.pd, qp_init_attr(o.cq, 16));
    CHECK(made() == "send_ops 5");
    CHECK(rc.type() == qp_type::rc);
    CHECK(rc.cap().max_send_wr >= 16);
    const qp_ex<ud_ops, qp_type::ud> ud(o.pd, qp_init_attr_ex(qp_init_attr(o.cq, 16)).max_tso_header(54));
    CHECK(made() == "send_ops 1036, max_tso_header 54");
    CHECK(ud.type() == qp_type::ud);
    const qp_ref as_qp = rc;
    const qp_ex_ref<send_ops::rdma_write | send_ops::send> as_ref = rc;
    CHECK(as_qp == as_ref);
    CHECK(as_ref.native_handle_ex() == rc.native_handle_ex());
    const qp_ref plain = as_ref;
    CHECK(plain == rc);
}

TEST_CASE_METHOD(unit::test, "qp_ex: one that C made is taken over, kept by what it was made from, and given up",
                 "[qp_ex]") {
    opened o;
    const auto attr = qp_init_attr_ex(qp_init_attr(o.cq, 16)).send_ops_flags(send_ops::send);
    const auto make = [&] {
        ibv_qp_init_attr_ex raw = attr.raw();
        raw.comp_mask |= IBV_QP_INIT_ATTR_PD;
        raw.pd = o.pd.native_handle();
        return ::ibv_qp_to_qp_ex(::ibv_create_qp_ex(o.device.native_handle(), &raw));
    };
    using queue = qp_ex<send_ops::send>;
    std::error_code ec;
    queue adopted = queue::adopt(make(), o.pd, o.cq, o.cq, ec);
    CHECK_FALSE(ec);
    auto batch = adopted.start();
    batch.wr(1).send(inline_data(nullptr, 0));
    batch.abort();
    const ibv_pd* domain = o.pd.native_handle();
    o.pd.close();
    CHECK(fake::alive(domain));
    adopted.close();
    CHECK(fake::calls("ibv_destroy_qp") == 1);
    CHECK_FALSE(fake::alive(domain));

    o.pd = pd(o.device);
    ibv_qp_ex* raw = make();
    {
        const failing_allocation none(1);
        CHECK_FALSE(queue::adopt(raw, o.pd, o.cq, o.cq, ec));
    }
    CHECK(number(ec) == ENOMEM);
    queue again = queue::adopt(raw, o.pd, o.cq, o.cq, ec);
    CHECK(::ibv_destroy_qp(std::move(again).release()) == 0);
}

TEST_CASE_METHOD(unit::test, "qp_ex: what the device lacks is an error, and nothing is left", "[qp_ex]") {
    opened o;
    fake::fail("ibv_create_qp_ex").with(EOPNOTSUPP);
    const caught refused([&] { qp_ex<every_op>(o.pd, qp_init_attr(o.cq)).close(); });
    CHECK(refused.code == EOPNOTSUPP);
    CHECK(refused.call == "ibv_create_qp_ex");
    // A provider that ignores the flag.
    fake::fail("ibv_qp_to_qp_ex").with(EINVAL);
    std::error_code ec;
    CHECK_FALSE(qp_ex<every_op>::create(o.pd, qp_init_attr(o.cq), ec));
    CHECK(number(ec) == EOPNOTSUPP);
    CHECK(fake::calls("ibv_destroy_qp") == 1);
    CHECK_FALSE(qp_ex<every_op>::create(pd_ref(), qp_init_attr(o.cq), ec));
    CHECK(number(ec) == EINVAL);
}

TEST_CASE_METHOD(unit::test, "qp_init_attr_ex: what it asks for, and what it keeps", "[qp_ex]") {
    opened o;
    const qp_init_attr_ex attr = qp_init_attr_ex(qp_init_attr(o.cq, 8).type(qp_type::raw_packet))
                                     .create_flags(qp_create_flags::scatter_fcs)
                                     .source_qpn(99);
    CHECK(attr.raw().comp_mask == IBV_QP_INIT_ATTR_CREATE_FLAGS);
    CHECK(attr.raw().sq_sig_all == 0);
    CHECK(qp_init_attr_ex(qp_init_attr(o.cq).sq_sig_all()).raw().sq_sig_all == 1);
    int mine = 0;
    const qp raw(o.pd, qp_init_attr_ex(qp_init_attr(o.cq, 8).type(qp_type::raw_packet).qp_context(&mine))
                           .create_flags(qp_create_flags::scatter_fcs)
                           .source_qpn(99));
    CHECK(raw.type() == qp_type::raw_packet);
    CHECK(raw.qp_context() == &mine);
    CHECK(made() == "create_flags 1280, source_qpn 99");
    const ibv_cq* kept = o.cq.native_handle();
    o.cq = cq();
    CHECK(fake::alive(kept));
}

TEST_CASE_METHOD(unit::test, "qp_init_attr_ex: a hash over packets spreads them over a table, which is kept",
                 "[qp_ex]") {
    opened o;
    std::array<wq, 2> queues = {wq(o.pd, o.cq), wq(o.pd, o.cq)};
    rwq_ind_table table(o.device, queues);
    std::array<std::uint8_t, 40> key{};
    key[39] = 7;
    const rx_hash_conf hash(rx_hash_fields::src_ipv4 | rx_hash_fields::dst_port_udp | rx_hash_fields::inner, key);
    CHECK(hash.rx_hash_key[39] == 7);
    const srq shared(o.pd);
    // What is said of receives is not a part of it: the table has them.
    qp spread(o.pd, qp_init_attr_ex(qp_init_attr(o.cq, 8).type(qp_type::raw_packet).srq(shared)).rx_hash(table, hash));
    CHECK(made() == "rx_hash 2147483777, function 1, key of 40");
    CHECK(spread.cap().max_recv_wr == 0);
    CHECK_FALSE(spread.recv_cq());
    CHECK(spread.send_cq() == o.cq);
    table.close();
    CHECK(fake::calls("ibv_destroy_rwq_ind_table") == 0);
    spread.close();
    CHECK(fake::in_order({"ibv_destroy_qp", "ibv_destroy_rwq_ind_table"}));
    // Without sends it needs no CQ at all.
    const rwq_ind_table other(o.device, queues);
    const qp only_receives(o.pd,
                           qp_init_attr_ex(qp_init_attr({}, {}, 0).type(qp_type::raw_packet)).rx_hash(other, hash));
    CHECK_FALSE(only_receives.send_cq());
    const qp_init_attr_ex given = qp_init_attr_ex(qp_init_attr(o.cq, 0).type(qp_type::raw_packet)).rx_hash(other, hash);
    CHECK(given.raw().send_cq == nullptr);
    CHECK(given.raw().cap.max_send_sge == 0);
    const caught empty(
        [&] { qp(o.pd, qp_init_attr_ex(qp_init_attr(o.cq)).rx_hash(rwq_ind_table_ref(), hash)).close(); });
    CHECK(empty.code == EINVAL);
    CHECK(contains(empty.cause, "empty indirection table"));
}

TEST_CASE_METHOD(unit::test, "qp: what libibverbs would look into without a check is an error", "[qp]") {
    opened o;
    const cq none;
    const caught no_cq([&] { qp(o.pd, qp_init_attr(none)).close(); });
    CHECK(no_cq.code == EINVAL);
    CHECK(no_cq.call == "ibv_create_qp");
    CHECK(contains(no_cq.cause, "empty CQ"));
    CHECK(contains(caught([&] { qp(o.pd, qp_init_attr(o.cq, none)).close(); }).cause, "empty CQ"));
    CHECK(contains(caught([&] { qp(o.pd, qp_init_attr(none, o.cq)).close(); }).cause, "empty CQ"));
    CHECK(contains(caught([&] { qp(o.pd, qp_init_attr_ex(qp_init_attr(none))).close(); }).cause, "empty CQ"));
    CHECK(contains(caught([&] { qp_ex<send_ops::send>(o.pd, qp_init_attr(none)).close(); }).cause, "empty CQ"));
    CHECK(contains(caught([&] { qp(pd(), qp_init_attr_ex::xrc_recv(xrcd())).close(); }).cause, "empty"));
    CHECK(contains(caught([&] { qp(o.pd, qp_init_attr_ex::xrc_recv(xrcd())).close(); }).cause, "XRC domain"));
    // Of the sending end of extended reliable connections, C asks for no receive CQ.
    CHECK(qp(o.pd, qp_init_attr(o.cq, none).type(qp_type::xrc_send)));
    // A shared receive queue that was wanted: without it the queue pair would get one of its own.
    CHECK(contains(caught([&] { qp(o.pd, qp_init_attr(o.cq).srq(srq())).close(); }).cause, "empty SRQ"));
    CHECK(contains(caught([&] { qp_ex<send_ops::send>(o.pd, qp_init_attr(o.cq).srq(srq())).close(); }).cause,
                   "empty SRQ"));
}

TEST_CASE_METHOD(unit::test, "qp: the receiving end of XRC has a domain, which it keeps, and neither PD nor CQ",
                 "[qp_ex]") {
    opened o;
    xrcd domain(o.device);
    const ibv_xrcd* kept = domain.native_handle();
    {
        const qp target({}, qp_init_attr_ex::xrc_recv(domain));
        CHECK(target.type() == qp_type::xrc_recv);
        CHECK(target.native_handle()->pd == nullptr);
        domain = xrcd();
        CHECK(fake::alive(kept));
        // Its asynchronous events count, as those of others do.
        fake::push_async_event(target.native_handle(), IBV_EVENT_QP_FATAL);
        async_event event = get_async_event(o.device);
        CHECK(event.type() == async_event_type::qp_fatal);
    }
    CHECK_FALSE(fake::alive(kept));
    std::error_code ec;
    CHECK_FALSE(qp::create({}, qp_init_attr_ex(qp_init_attr(o.cq)), ec)); // neither
    CHECK(number(ec) == EINVAL);
}

TEST_CASE_METHOD(unit::test, "cm_id: makes a queue pair for batches, and keeps what it was made from", "[qp_ex]") {
    bound_id on;
    context device(on.id);
    pd domain(device);
    cq queue(device, 16);
    const ibv_cq* raw_queue = queue.native_handle();
    const ibv_pd* raw_domain = domain.native_handle();
    const qp_init_attr_ex attr = qp_init_attr_ex(qp_init_attr(queue)).send_ops_flags(send_ops::send);
    const qp_ex_ref<send_ops::send> made(on.id.create_qp_ex(domain, attr));
    REQUIRE(made);
    CHECK(made == on.id.qp());
    CHECK(made.pd() == domain);
    auto batch = made.start();
    batch.wr(1).send(inline_data(nullptr, 0));
    batch.abort();
    std::error_code ec;
    CHECK_FALSE(on.id.create_qp_ex(domain, attr, ec)); // it has one
    CHECK(number(ec) == EINVAL);
    on.id.destroy_qp();
    // One without the operations has no batches.
    CHECK_FALSE(qp_ex_ref<send_ops::send>(on.id.create_qp_ex({}, qp_init_attr_ex(qp_init_attr(queue)))));
    queue = cq();
    domain = pd();
    CHECK_FALSE(fake::alive(raw_domain));
    CHECK(fake::alive(raw_queue));
}

// ---------------------------------------------------------------- requests

TEST_CASE_METHOD(unit::test, "batch: each operation sets its own fields", "[batch]") {
    rc_queue q;
    const sge piece = q.piece(8, 8);
    const std::array<sge, 2> two = {q.piece(0, 4), q.piece(16, 8)};
    const mw window(q.pd, mw_type::type_2);
    const mr bindable(q.pd, q.memory, access::local_write | access::mw_bind);
    const mw_bind_info bind(bindable, 8, 32, access::remote_read);
    auto batch = q.queue.start();
    batch.wr(1).signaled().send(piece);
    batch.wr(2).send_with_imm(two, 0x01020304);
    batch.wr(3).solicited().send_with_inv(piece, rkey{5});
    batch.wr(4).rdma_write(piece, peer);
    batch.wr(5).rdma_write_with_imm(std::span(two), peer, 6);
    batch.wr(6).fenced().signaled().rdma_read(piece, peer);
    batch.wr(7).atomic_cmp_and_swp(piece, peer, 8, 9);
    batch.wr(8).atomic_fetch_and_add(piece, peer, 10);
    batch.wr(9).local_inv(rkey{11});
    batch.wr(10).bind_mw(window, rkey{12}, bind);
    batch.complete();

    const auto posted = q.posted();
    REQUIRE(posted.size() == 10);
    const auto expect = [&](std::size_t i, ibv_wr_opcode opcode, unsigned flags, std::size_t sges) {
        CAPTURE(i);
        CHECK(posted[i].wr_id == i + 1);
        CHECK(posted[i].opcode == opcode);
        CHECK(posted[i].flags == flags);
        CHECK(posted[i].sges.size() == sges);
    };
    expect(0, IBV_WR_SEND, IBV_SEND_SIGNALED, 1);
    CHECK(posted[0].sges[0].addr == piece.addr);
    CHECK(posted[0].sges[0].length == 8);
    CHECK(posted[0].sges[0].lkey == value(q.region.lkey()));
    expect(1, IBV_WR_SEND_WITH_IMM, 0, 2);
    CHECK(posted[1].wr.imm_data == htonl(0x01020304));
    CHECK(posted[1].sges[1].length == 8);
    expect(2, IBV_WR_SEND_WITH_INV, IBV_SEND_SOLICITED, 1);
    CHECK(posted[2].wr.invalidate_rkey == 5);
    expect(3, IBV_WR_RDMA_WRITE, 0, 1);
    CHECK(posted[3].wr.wr.rdma.remote_addr == 0x1000);
    CHECK(posted[3].wr.wr.rdma.rkey == 77);
    expect(4, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 2);
    CHECK(posted[4].wr.imm_data == htonl(6));
    CHECK(posted[4].wr.wr.rdma.rkey == 77);
    expect(5, IBV_WR_RDMA_READ, IBV_SEND_FENCE | IBV_SEND_SIGNALED, 1);
    CHECK(posted[5].wr.wr.rdma.remote_addr == 0x1000);
    expect(6, IBV_WR_ATOMIC_CMP_AND_SWP, 0, 1);
    CHECK(posted[6].wr.wr.atomic.compare_add == 8);
    CHECK(posted[6].wr.wr.atomic.swap == 9);
    CHECK(posted[6].wr.wr.atomic.rkey == 77);
    expect(7, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1);
    CHECK(posted[7].wr.wr.atomic.compare_add == 10);
    expect(8, IBV_WR_LOCAL_INV, 0, 0);
    CHECK(posted[8].wr.invalidate_rkey == 11);
    expect(9, IBV_WR_BIND_MW, 0, 0);
    CHECK(posted[9].wr.bind_mw.mw == window.native_handle());
    CHECK(posted[9].wr.bind_mw.rkey == 12);
    CHECK(posted[9].wr.bind_mw.bind_info.length == 32);
    CHECK(posted[9].wr.bind_mw.bind_info.addr == reinterpret_cast<std::uintptr_t>(q.memory.data() + 8));
    CHECK(posted[9].wr.bind_mw.bind_info.mr == bindable.native_handle());
    CHECK(fake::calls("ibv_wr_complete") == 1);
    CHECK(fake::calls("ibv_wr_abort") == 0);
}

TEST_CASE_METHOD(unit::test, "batch: inline data is copied while the request is made, from one place or several",
                 "[batch]") {
    rc_queue q;
    std::array<char, 8> text = {'i', 'n', 'l', 'i', 'n', 'e', 'd', '\0'};
    const std::array pieces = {inline_data(text.data(), 2), inline_data(text.data() + 4, 3)};
    auto batch = q.queue.start();
    batch.wr(1).send(inline_data(text.data(), 7));
    batch.wr(2).rdma_write(inline_data_list(pieces), peer);
    batch.wr(3).send(inline_data(std::as_bytes(std::span(text))));
    text.fill('x');
    batch.complete();
    const auto posted = q.posted();
    REQUIRE(posted.size() == 3);
    CHECK(posted[0].inline_data == fake::bytes("inlined"));
    CHECK(posted[1].inline_data == fake::bytes("inned"));
    CHECK(posted[2].inline_data.size() == 8);
}

TEST_CASE_METHOD(unit::test, "batch: datagrams have their address, requests of XRC their queue", "[batch]") {
    waiting<qp_ex<ud_ops, qp_type::ud>> ud;
    ibv_ah_attr path{};
    path.port_num = 1;
    const ah to(ud.pd, path);
    const std::array<std::byte, 4> header{};
    auto batch = ud.queue.start();
    batch.wr(1).to(to, 17, 18).send(ud.piece(0, 8));
    batch.wr(2).signaled().to(to, 19, 20).send_with_imm(inline_data(header), 5);
    batch.wr(3).ip_csum().to(to, 21, 22).tso(ud.piece(0, 32), header, 16);
    batch.complete();
    const auto posted = ud.posted();
    REQUIRE(posted.size() == 3);
    CHECK(posted[0].wr.wr.ud.ah == to.native_handle());
    CHECK(posted[0].wr.wr.ud.remote_qpn == 17);
    CHECK(posted[0].wr.wr.ud.remote_qkey == 18);
    CHECK(posted[1].wr.wr.ud.remote_qpn == 19);
    CHECK(posted[1].flags == (IBV_SEND_SIGNALED | IBV_SEND_INLINE));
    CHECK(posted[2].opcode == IBV_WR_TSO);
    CHECK(posted[2].flags == IBV_SEND_IP_CSUM);
    CHECK(posted[2].wr.tso.hdr_sz == 4);
    CHECK(posted[2].wr.tso.mss == 16);

    constexpr send_ops xrc_ops = send_ops::send | send_ops::send_with_imm | send_ops::send_with_inv |
                                 send_ops::rdma_write | send_ops::rdma_write_with_imm | send_ops::rdma_read |
                                 send_ops::atomic_fetch_and_add | send_ops::atomic_cmp_and_swp | send_ops::local_inv |
                                 send_ops::bind_mw;
    waiting<qp_ex<xrc_ops, qp_type::xrc_send>> xrc;
    const mw window(xrc.pd, mw_type::type_2);
    const mr bindable(xrc.pd, xrc.memory, access::local_write | access::mw_bind);
    auto other = xrc.queue.start();
    other.wr(1).to_srq(5).send(xrc.piece(0, 8));
    other.wr(2).to_srq(6).send_with_imm(xrc.piece(0, 8), 1);
    other.wr(3).to_srq(7).send_with_inv(inline_data(header), rkey{2});
    other.wr(4).to_srq(8).rdma_write(xrc.piece(0, 8), peer);
    other.wr(5).to_srq(9).rdma_write_with_imm(xrc.piece(0, 8), peer, 1);
    other.wr(6).to_srq(10).rdma_read(xrc.piece(0, 8), peer);
    other.wr(7).to_srq(11).atomic_fetch_and_add(xrc.piece(0, 8), peer, 1);
    other.wr(8).to_srq(12).atomic_cmp_and_swp(xrc.piece(0, 8), peer, 1, 2);
    other.wr(9).local_inv(rkey{3});
    other.wr(10).bind_mw(window, rkey{4}, mw_bind_info(bindable, 0, 8, access::remote_read));
    other.complete();
    const auto sent = xrc.posted();
    REQUIRE(sent.size() == 10);
    for (std::uint32_t i = 0; i < 8; ++i)
        CHECK(sent[i].wr.qp_type.xrc.remote_srqn == 5 + i);
    CHECK(sent[2].wr.invalidate_rkey == 2);
    CHECK(sent[2].inline_data.size() == 4);
    CHECK(sent[3].wr.wr.rdma.rkey == 77);
    CHECK(sent[7].wr.wr.atomic.swap == 2);
    CHECK(sent[8].opcode == IBV_WR_LOCAL_INV);
    CHECK(sent[9].opcode == IBV_WR_BIND_MW);
}

TEST_CASE_METHOD(unit::test, "batch: atomic writes and flushes, where the headers have them", "[batch]") {
    constexpr send_ops ops = send_ops::atomic_write | send_ops::flush;
    waiting<qp_ex<ops>> q;
    const std::array<std::byte, 8> word = {std::byte{1}, std::byte{2}};
    const auto post = [&]<class Batch>(Batch& batch) {
        std::size_t count = 0;
        if constexpr (requires { batch.wr().atomic_write(word, peer); }) {
            batch.wr(1).atomic_write(word, peer);
            ++count;
        }
        if constexpr (requires { batch.wr().flush(peer, flush_placement::global); }) {
            batch.wr(2).flush(peer, flush_placement::persistent, flush_selectivity::mr);
            ++count;
        }
        return count;
    };
    auto batch = q.queue.start();
    const std::size_t count = post(batch);
    batch.complete();
    const auto posted = q.posted();
    REQUIRE(posted.size() == count);
    if (count > 0) {
        CHECK(posted[0].opcode == 15);
        CHECK(posted[0].inline_data.size() == 8);
        CHECK(posted[0].wr.wr.rdma.rkey == 77);
    }
    if (count > 1) {
        CHECK(posted[1].opcode == 14);
        CHECK(posted[1].wr.wr.rdma.remote_addr == 0x1000);
        CHECK(posted[1].wr.wr.atomic.compare_add == 64);
        CHECK(posted[1].wr.wr.atomic.swap == (2U << 8 | 1U));
    }
}

// ---------------------------------------------------------------- its end

TEST_CASE_METHOD(unit::test, "batch: dropped or aborted it posts nothing, and the next one may start", "[batch]") {
    rc_queue q;
    {
        auto dropped = q.queue.start();
        dropped.wr(1).send(q.piece(0, 8));
    }
    try {
        auto unwound = q.queue.start();
        unwound.wr(2).send(q.piece(0, 8));
        throw 1;
    } catch (int) {
    }
    auto aborted = q.queue.start();
    aborted.wr(3).send(q.piece(0, 8));
    aborted.abort();
    aborted.abort();
    CHECK(fake::calls("ibv_wr_abort") == 3);
    CHECK(q.posted().empty());

    auto batch = q.queue.start();
    batch.wr(4).send(q.piece(0, 8));
    batch.complete();
    CHECK(q.posted().size() == 1);
    batch.abort(); // over: no effect
    CHECK(fake::calls("ibv_wr_abort") == 3);
}

TEST_CASE_METHOD(unit::test, "batch: complete posts all or none, and says why", "[batch]") {
    rc_queue q(4);
    const auto fill = [&](auto& batch, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i)
            batch.wr(i).send(q.piece(0, 8));
    };
    auto too_long = q.queue.start();
    fill(too_long, 5);
    const caught full([&] { too_long.complete(); });
    CHECK(full.code == ENOMEM);
    CHECK(full.call == "ibv_wr_complete");
    CHECK(q.posted().empty());
    CHECK(fake::calls("ibv_wr_abort") == 0);
    CHECK(too_long.try_complete() == EINVAL); // over, and no C call
    CHECK(fake::calls("ibv_wr_complete") == 1);

    const std::array<sge, 3> three = {q.piece(0, 8), q.piece(8, 8), q.piece(16, 8)};
    auto wrong = q.queue.start();
    fill(wrong, 1);
    wrong.wr(2).send(three);
    std::error_code ec;
    wrong.complete(ec);
    CHECK(number(ec) == EINVAL);
    CHECK(q.posted().empty());

    fake::fail("ibv_wr_complete").with(EIO);
    auto failing = q.queue.start();
    fill(failing, 1);
    CHECK(failing.try_complete() == EIO);

    auto good = q.queue.start();
    fill(good, 4);
    good.complete(ec);
    CHECK_FALSE(ec);
    CHECK(q.posted().size() == 4);
}

TEST_CASE_METHOD(unit::test, "batch: runs like posted requests do", "[batch]") {
    opened o;
    std::array<std::byte, 64> memory{};
    const mr region(o.pd, memory, access::local_write | access::remote_write);
    const qp_ex<send_ops::send | send_ops::rdma_write> one(o.pd, qp_init_attr(o.cq, 8));
    const qp_ex<send_ops::send | send_ops::rdma_write> other(o.pd, qp_init_attr(o.cq, 8));
    const auto connect = [](const qp_ref& self, const qp_ref& to) {
        self.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::remote_write));
        self.modify(qp_attr(qp_state::rtr)
                        .ah_attr(ibv_ah_attr{})
                        .path_mtu(mtu::bytes_1024)
                        .dest_qp_num(to.qp_num())
                        .rq_psn(0)
                        .max_dest_rd_atomic(1)
                        .min_rnr_timer(12));
        self.modify(qp_attr(qp_state::rts).timeout(14).retry_cnt(7).rnr_retry(7).sq_psn(0).max_rd_atomic(1));
    };
    connect(one, other);
    connect(other, one);
    other.post_recv(region.sge(32, 32), 1);
    std::memcpy(memory.data(), "batch", 5);
    auto batch = one.start();
    batch.wr(2).rdma_write(region.sge(0, 5), region.remote().part(16, 5));
    batch.wr(3).signaled().send(region.sge(0, 5));
    batch.complete();
    std::array<wc, 4> room;
    const auto done = o.cq.poll(room);
    REQUIRE(done.size() == 2);
    CHECK(done[0].is_recv());
    CHECK(done[1].wr_id() == 3);
    CHECK(std::memcmp(memory.data() + 16, "batch", 5) == 0);
    CHECK(std::memcmp(memory.data() + 32, "batch", 5) == 0);
}
