// Queue pairs of every type that Soft-RoCE has, connected by hand, through both posting interfaces; what it lacks.
#include "live.hpp"

#include <array>
#include <cstring>
#include <string>
#include <thread>

using namespace live;
using rdmaxx::qp_attr;
using rdmaxx::qp_state;
using rdmaxx::qp_type;
using rdmaxx::send_ops;
using rdmaxx::send_wr;
using rdmaxx::wc_fields;
using rdmaxx::wc_opcode;
using rdmaxx::wc_status;

namespace {

constexpr std::uint8_t port = 1;
constexpr std::uint32_t qkey = 0x11111111;

constexpr send_ops uc_ops =
    send_ops::send | send_ops::send_with_imm | send_ops::rdma_write | send_ops::rdma_write_with_imm;
constexpr send_ops rc_ops = uc_ops | send_ops::rdma_read | send_ops::atomic_cmp_and_swp |
                            send_ops::atomic_fetch_and_add | send_ops::send_with_inv | send_ops::local_inv |
                            send_ops::bind_mw;
constexpr send_ops ud_ops = send_ops::send | send_ops::send_with_imm;
constexpr wc_fields fields = wc_fields::standard;

rdmaxx::context open_device() {
    const rdmaxx::device_list devices;
    return rdmaxx::context(devices.find(variable("RIG_DEVICE").c_str()));
}

/// The path to the device's own IPv4 address.
ibv_ah_attr path_to_self(const rdmaxx::context& device) {
    const auto own = device.find_gid(ipv4(), rdmaxx::gid_type::roce_v2);
    return rdmaxx::ah_attr_to(own.value(), own->gid());
}

/// A queue pair of any class, up to the state rts.
void to_init(const rdmaxx::qp_ref& qp) {
    qp_attr attr(qp_state::init);
    attr.pkey_index(0).port_num(port);
    qp.modify(qp.type() == qp_type::ud ? attr.qkey(qkey) : attr.access_flags(full_access));
}
void to_rtr(const rdmaxx::qp_ref& qp, std::uint32_t peer, const ibv_ah_attr& path) {
    qp_attr attr(qp_state::rtr);
    if (qp.type() != qp_type::ud)
        attr.ah_attr(path).path_mtu(rdmaxx::mtu::bytes_1024).dest_qp_num(peer).rq_psn(7);
    if (qp.type() == qp_type::rc)
        attr.max_dest_rd_atomic(1).min_rnr_timer(12);
    qp.modify(attr);
}
void to_rts(const rdmaxx::qp_ref& qp, std::uint32_t peer, const ibv_ah_attr& path) {
    to_rtr(qp, peer, path);
    qp_attr attr(qp_state::rts);
    attr.sq_psn(7);
    if (qp.type() == qp_type::rc)
        attr.timeout(14).retry_cnt(7).rnr_retry(7).max_rd_atomic(1);
    qp.modify(attr);
}

/// Two queue pairs on one device that are connected to each other, with extended completion queues.
template <send_ops Ops, qp_type Type>
struct couple {
    couple() {
        for (const rdmaxx::qp_ref qp : {rdmaxx::qp_ref(a), rdmaxx::qp_ref(b)})
            to_init(qp);
        to_rts(a, b.qp_num(), path);
        to_rts(b, a.qp_num(), path);
    }

    template <class Handle>
    static void next(const rdmaxx::cq_ex<fields>& cq, Handle handle) {
        for (const stopwatch waited; waited.elapsed() < soon;)
            for (const auto completion : cq.poll()) {
                if (!completion.ok())
                    throw std::runtime_error(to_string(completion.status()));
                handle(completion);
                return;
            }
        throw std::runtime_error("waited for a completion, none came");
    }
    void sent(std::uint64_t wr_id, wc_opcode opcode) {
        next(cq_a, [&](const auto& completion) {
            CHECK(completion.wr_id() == wr_id);
            CHECK(completion.opcode() == opcode);
            CHECK(completion.qp_num() == a.qp_num());
            CHECK_FALSE(completion.is_recv());
        });
    }
    void put(std::string_view text) { std::memcpy(memory.data(), text.data(), text.size()); }
    [[nodiscard]] std::string arrived(std::size_t size, std::size_t offset = 2048) const {
        return text(std::span(memory).subspan(offset, size));
    }
    [[nodiscard]] rdmaxx::sge source(std::size_t size) const { return mr.sge(0, size); }
    [[nodiscard]] rdmaxx::remote_buffer target(std::size_t size) const { return mr.remote().part(2048, size); }

    std::vector<std::byte> memory = std::vector<std::byte>(4096);
    rdmaxx::context device = open_device();
    ibv_ah_attr path = path_to_self(device);
    rdmaxx::pd domain{device};
    rdmaxx::mr mr{domain, memory, full_access};
    rdmaxx::cq_ex<fields> cq_a{device, 32};
    rdmaxx::cq_ex<fields> cq_b{device, 32};
    rdmaxx::qp_init_attr attr_a = rdmaxx::qp_init_attr(cq_a, 8).max_inline_data(64).max_send_sge(2);
    rdmaxx::qp_ex<Ops, Type> a{domain, attr_a};
    rdmaxx::qp_ex<Ops, Type> b{domain, rdmaxx::qp_init_attr(cq_b, 8)};
};

using rc_couple = couple<rc_ops, qp_type::rc>;
using uc_couple = couple<uc_ops, qp_type::uc>;
using ud_couple = couple<ud_ops, qp_type::ud>;

} // namespace

TEST_CASE_METHOD(fixture, "RC: every operation through a batch, its completion field by field",
                 "[extended][asan][ib]") {
    rc_couple c;
    CHECK(c.a.type() == qp_type::rc);
    c.b.post_recv(c.mr.sge(2048, 64), 1);
    c.b.post_recv(c.mr.sge(2048, 64), 2);
    c.b.post_recv(rdmaxx::recv_wr().wr_id(3));
    c.put("batched");
    auto batch = c.a.start();
    batch.wr(10).signaled().send(c.source(7));
    batch.wr(11).signaled().send_with_imm(c.source(7), 0x01020304);
    batch.wr(12).signaled().rdma_write(c.source(7), c.target(7));
    batch.wr(13).signaled().rdma_write_with_imm(c.source(7), c.target(7), 5);
    batch.complete();
    c.sent(10, wc_opcode::send);
    c.sent(11, wc_opcode::send);
    c.sent(12, wc_opcode::rdma_write);
    c.sent(13, wc_opcode::rdma_write);
    rc_couple::next(c.cq_b, [&](const auto& received) {
        CHECK(received.wr_id() == 1);
        CHECK(received.opcode() == wc_opcode::recv);
        CHECK(received.is_recv());
        CHECK(received.byte_len() == 7U);
        CHECK_FALSE(received.imm_data());
        CHECK(received.qp_num() == c.b.qp_num());
    });
    rc_couple::next(c.cq_b, [&](const auto& received) { CHECK(received.imm_data() == 0x01020304U); });
    rc_couple::next(c.cq_b, [&](const auto& received) {
        CHECK(received.wr_id() == 3);
        CHECK(received.opcode() == wc_opcode::recv_rdma_with_imm);
        CHECK(received.imm_data() == 5U);
    });
    CHECK(c.arrived(7) == "batched");

    const std::uint64_t before = 40;
    std::memcpy(c.memory.data() + 2048, &before, sizeof before);
    auto atomics = c.a.start();
    atomics.wr(20).signaled().atomic_fetch_and_add(c.mr.sge(1024, 8), c.target(8), 2);
    atomics.wr(21).signaled().atomic_cmp_and_swp(c.mr.sge(1032, 8), c.target(8), 42, 99);
    atomics.wr(22).signaled().fenced().rdma_read(c.mr.sge(1040, 8), c.target(8));
    atomics.complete();
    c.sent(20, wc_opcode::fetch_add);
    c.sent(21, wc_opcode::comp_swap);
    c.sent(22, wc_opcode::rdma_read);
    std::array<std::uint64_t, 3> results{};
    std::memcpy(results.data(), c.memory.data() + 1024, sizeof results);
    CHECK(results == std::array<std::uint64_t, 3>{40, 42, 99});
}

TEST_CASE_METHOD(fixture, "RC: inline data and lists of pieces through a batch", "[extended][ib]") {
    rc_couple c;
    std::array<char, 8> text = {'i', 'n', 'l', 'i', 'n', 'e', 'd', '!'};
    const std::array pieces = {rdmaxx::inline_data(text.data(), 2), rdmaxx::inline_data(text.data() + 6, 2)};
    const std::array<rdmaxx::sge, 2> sges = {c.mr.sge(0, 3), c.mr.sge(8, 3)}; // rxe counts the first for each
    c.put("abc     def");
    auto batch = c.a.start();
    batch.wr(1).rdma_write(rdmaxx::inline_data(text.data(), text.size()), c.target(8));
    batch.wr(2).rdma_write(rdmaxx::inline_data_list(pieces), c.mr.remote().part(2100, 4));
    batch.wr(3).signaled().rdma_write(sges, c.mr.remote().part(2200, 6));
    text.fill('x');
    batch.complete();
    c.sent(3, wc_opcode::rdma_write);
    CHECK(c.arrived(8) == "inlined!");
    // rxe forgets to count the pieces, and sends none of them.
    CHECK((c.arrived(4, 2100) == "ind!" || c.arrived(4, 2100) == std::string(4, '\0')));
    CHECK(c.arrived(6, 2200) == "abcdef");
}

TEST_CASE_METHOD(fixture, "RC: windows are bound, used, and invalidated from both ends by batches", "[extended][ib]") {
    rc_couple c;
    const rdmaxx::mr region(c.domain, c.memory, full_access | rdmaxx::access::mw_bind);
    const rdmaxx::mw window(c.domain, rdmaxx::mw_type::type_2);
    const rdmaxx::mw_bind_info part(region, 2048, 64, rdmaxx::access::remote_write);
    // The peer writes by the window, and gives it back.
    const rdmaxx::rkey first = rdmaxx::inc_rkey(window.rkey());
    auto bind = c.b.start();
    bind.wr(1).signaled().bind_mw(window, first, part);
    bind.complete();
    rc_couple::next(c.cq_b, [](const auto& bound) { CHECK(bound.opcode() == wc_opcode::bind_mw); });
    c.b.post_recv(c.mr.sge(1024, 64), 2);
    c.put("window");
    auto use = c.a.start();
    use.wr(3).rdma_write(c.source(6), part.remote(first));
    use.wr(4).signaled().send_with_inv(c.source(1), first);
    use.complete();
    c.sent(4, wc_opcode::send);
    rc_couple::next(c.cq_b, [&](const auto& received) {
        CHECK(received.wr_id() == 2);
        CHECK(received.opcode() == wc_opcode::recv);
        // Soft-RoCE has the kernel's bit for it in the flags, which is another one's here.
        if (rdmaxx::has(received.flags(), rdmaxx::wc_flags::with_inv))
            CHECK(received.invalidated_rkey() == first);
        else
            CHECK(rdmaxx::has(received.flags(), rdmaxx::wc_flags::ip_csum_ok));
    });
    CHECK(c.arrived(6) == "window");

    c.a.post_send(send_wr::rdma_write(c.source(1), part.remote(first)).wr_id(7).signaled());
    for (bool refused = false; !refused;)
        for (const auto completion : c.cq_a.poll()) {
            CHECK(completion.status() == wc_status::rem_access_err);
            refused = true;
        }
}

TEST_CASE_METHOD(fixture, "RC: a window that its owner invalidates shows nothing any more", "[extended][ib]") {
    rc_couple c;
    const rdmaxx::mr region(c.domain, c.memory, full_access | rdmaxx::access::mw_bind);
    const rdmaxx::mw window(c.domain, rdmaxx::mw_type::type_2);
    const rdmaxx::mw_bind_info part(region, 2048, 64, rdmaxx::access::remote_write);
    const rdmaxx::rkey second = rdmaxx::inc_rkey(window.rkey());
    auto again = c.b.start();
    again.wr(5).signaled().bind_mw(window, second, part);
    again.wr(6).signaled().local_inv(second);
    again.complete();
    rc_couple::next(c.cq_b, [](const auto& bound) { CHECK(bound.opcode() == wc_opcode::bind_mw); });
    rc_couple::next(c.cq_b, [](const auto& gone) { CHECK(gone.opcode() == wc_opcode::local_inv); });
    c.a.post_send(send_wr::rdma_write(c.source(1), part.remote(second)).wr_id(7).signaled());
    for (const stopwatch waited; waited.elapsed() < soon;)
        for (const auto completion : c.cq_a.poll()) {
            CHECK(completion.status() == wc_status::rem_access_err);
            return;
        }
    FAIL("no completion came");
}

TEST_CASE_METHOD(fixture, "a batch that fails or is dropped posts nothing, and the next one runs",
                 "[extended][asan][ib]") {
    rc_couple c;
    const std::uint32_t slots = c.a.cap().max_send_wr;
    auto too_long = c.a.start();
    for (std::uint32_t i = 0; i <= slots; ++i)
        too_long.wr(i).signaled().rdma_write(c.source(1), c.target(1));
    std::error_code ec;
    too_long.complete(ec);
    CHECK((ec == std::errc::no_space_on_device || ec == std::errc::not_enough_memory)); // rxe's; as documented
    {
        auto dropped = c.a.start();
        dropped.wr(100).signaled().rdma_write(c.source(1), c.target(1));
    }
    auto wide = c.a.start();
    const std::vector<rdmaxx::sge> many(c.a.cap().max_send_sge + 1, c.source(1));
    wide.wr(101).signaled().rdma_write(many, c.target(64));
    wide.complete(ec);
    CHECK(ec);

    auto good = c.a.start();
    good.wr(200).signaled().rdma_write(c.source(1), c.target(1));
    good.complete();
    c.sent(200, wc_opcode::rdma_write);
    for (const auto completion : c.cq_a.poll())
        FAIL(completion.wr_id());
}

TEST_CASE_METHOD(fixture, "ranges that run to their end, thousands of times, give each completion once",
                 "[extended][ib]") {
    rc_couple c;
    std::uint64_t posted = 0;
    std::uint64_t seen = 0;
    const stopwatch waited;
    while (seen < 2000) {
        REQUIRE(waited.elapsed() < soon);
        while (posted < 2000 && posted - seen < 8) {
            auto batch = c.a.start();
            batch.wr(posted++).signaled().rdma_write(c.source(1), c.target(1));
            batch.complete();
        }
        for (const auto completion : c.cq_a.poll()) {
            REQUIRE(completion.wr_id() == seen);
            ++seen;
        }
    }
    for (const auto completion : c.cq_a.poll())
        FAIL(completion.wr_id());
}

TEST_CASE_METHOD(fixture, "two ranges of one thread, both at their end, leave their queues right", "[extended][ib]") {
    rc_couple c;
    const auto post = [&](auto& from, std::uint64_t wr_id) {
        auto batch = from.start();
        batch.wr(wr_id).signaled().rdma_write(c.source(1), c.target(1));
        batch.complete();
    };
    const auto run = [](auto& range, std::uint64_t wr_id) {
        bool found = false;
        for (auto at = range.begin(); !(at == range.end()); ++at) {
            REQUIRE_FALSE(found);
            REQUIRE((*at).wr_id() == wr_id);
            found = true;
        }
        return found;
    };
    const stopwatch waited;
    for (std::uint64_t i = 0; i < 100; ++i) {
        post(c.a, i);
        post(c.b, 1000 + i);
        for (bool of_a = false; !of_a;) {
            REQUIRE(waited.elapsed() < soon);
            auto outer = c.cq_a.poll();
            of_a = run(outer, i);
            for (bool of_b = !of_a; !of_b;) { // while the other one is at its end
                REQUIRE(waited.elapsed() < soon);
                auto inner = c.cq_b.poll();
                of_b = run(inner, 1000 + i);
            }
        }
    }
}

TEST_CASE_METHOD(fixture, "UC: sends and writes through both interfaces", "[transports][ib]") {
    uc_couple c;
    CHECK(c.a.type() == qp_type::uc);
    c.b.post_recv(c.mr.sge(2048, 64), 1);
    c.b.post_recv(c.mr.sge(2112, 64), 2);
    c.b.post_recv(rdmaxx::recv_wr().wr_id(3));
    c.put("by UC");
    c.a.post_send(c.source(5), 10);
    c.sent(10, wc_opcode::send);
    uc_couple::next(c.cq_b, [&](const auto& received) { CHECK(received.byte_len() == 5U); });
    CHECK(c.arrived(5) == "by UC");
    c.a.post_send(send_wr::rdma_write(c.source(5), c.mr.remote().part(3000, 5)).wr_id(11).signaled());
    c.sent(11, wc_opcode::rdma_write);
    auto batch = c.a.start();
    batch.wr(12).signaled().send_with_imm(c.source(5), 6);
    batch.wr(13).signaled().rdma_write(c.source(5), c.mr.remote().part(3100, 5));
    batch.wr(14).signaled().rdma_write_with_imm(rdmaxx::inline_data("inlined", 7), c.mr.remote().part(3200, 7), 8);
    batch.complete();
    c.sent(12, wc_opcode::send);
    c.sent(13, wc_opcode::rdma_write);
    c.sent(14, wc_opcode::rdma_write);
    uc_couple::next(c.cq_b, [&](const auto& received) {
        CHECK(received.wr_id() == 2);
        CHECK(received.imm_data() == 6U);
    });
    CHECK(c.arrived(5, 3000) == "by UC");
    CHECK(c.arrived(5, 3100) == "by UC");
    uc_couple::next(c.cq_b, [&](const auto& received) {
        CHECK(received.wr_id() == 3);
        CHECK(received.opcode() == wc_opcode::recv_rdma_with_imm);
        CHECK(received.imm_data() == 8U);
    });
    CHECK(c.arrived(7, 3200) == "inlined");
}

TEST_CASE_METHOD(fixture, "UC: nobody answers for a message without a receive", "[transports][ib]") {
    uc_couple c;
    c.a.post_send(c.source(5), 1); // lost, and a success all the same
    c.sent(1, wc_opcode::send);
    for (const auto completion : c.cq_b.poll())
        FAIL(completion.wr_id());
}

TEST_CASE_METHOD(fixture, "UD: datagrams through both interfaces, with 40 bytes before the payload",
                 "[transports][asan][ib]") {
    ud_couple c;
    CHECK(c.a.type() == qp_type::ud);
    const rdmaxx::ah to_self(c.domain, c.path);
    c.b.post_recv(c.mr.sge(2048, 48), 1);
    c.b.post_recv(c.mr.sge(3048, 48), 2);
    c.put("datagram");
    c.a.post_send(send_wr::send(c.source(8)).to(to_self, c.b.qp_num(), qkey).wr_id(10).signaled());
    c.sent(10, wc_opcode::send);
    std::array<rdmaxx::wc, 1> one;
    for (const stopwatch waited; c.cq_b.poll(one).empty();)
        REQUIRE(waited.elapsed() < soon);
    CHECK(one[0].byte_len() == 48U);
    CHECK(one[0].src_qp() == c.a.qp_num());
    CHECK(rdmaxx::has(one[0].flags(), rdmaxx::wc_flags::grh));
    const rdmaxx::datagram got(one[0], std::span(c.memory).subspan(2048, 48));
    CHECK(text(got.payload()) == "datagram");

    // Answers go to the sender of what came.
    const rdmaxx::ah back = rdmaxx::ah::from_datagram(c.domain, got, port);
    c.a.post_recv(c.mr.sge(1000, 48), 3);
    auto batch = c.b.start();
    batch.wr(20).signaled().to(back, *one[0].src_qp(), qkey).send_with_imm(c.source(8), 77);
    batch.complete();
    ud_couple::next(c.cq_a, [&](const auto& received) {
        CHECK(received.wr_id() == 3);
        CHECK(received.byte_len() == 48U);
        CHECK(received.imm_data() == 77U);
        CHECK(received.src_qp() == c.b.qp_num());
        const rdmaxx::datagram answer(received.snapshot(), std::span(c.memory).subspan(1000, 48));
        CHECK(text(answer.payload()) == "datagram");
        CHECK(answer.src_qp() == c.b.qp_num());
    });

    auto inlined = c.a.start();
    inlined.wr(11).signaled().to(to_self, c.b.qp_num(), qkey).send(rdmaxx::inline_data("inlined", 7));
    inlined.complete();
    c.sent(11, wc_opcode::send);
    ud_couple::next(c.cq_b, [&](const auto& received) { // after its own send
        CHECK(received.wr_id() == 20);
        CHECK(received.opcode() == wc_opcode::send);
    });
    ud_couple::next(c.cq_b, [&](const auto& received) {
        CHECK(received.wr_id() == 2);
        CHECK(received.byte_len() == 47U);
    });
    CHECK(c.arrived(7, 3088) == "inlined");
}

TEST_CASE_METHOD(fixture, "UD: a completion has all that struct ibv_wc has, read field by field or at once",
                 "[transports][ib]") {
    ud_couple c;
    const rdmaxx::cq_ex<> cq(c.device, 8);
    const rdmaxx::qp self(c.domain, rdmaxx::qp_init_attr(cq, 4).type(qp_type::ud));
    to_init(self);
    to_rts(self, 0, c.path);
    const rdmaxx::ah to_self(c.domain, c.path);
    for (const bool at_once : {false, true}) {
        self.post_recv(c.mr.sge(2048, 48), 1);
        c.a.post_send(send_wr::send(c.source(8)).to(to_self, self.qp_num(), qkey).signaled());
        c.sent(0, wc_opcode::send);
        const auto check = [](const auto& received) { // RoCE has neither LIDs nor path bits
            REQUIRE(received.is_recv());
            CHECK(received.slid() == 0U);
            CHECK(received.sl() == 0U);
            CHECK(received.dlid_path_bits() == 0U);
            CHECK(received.byte_len() == 48U);
        };
        bool seen = false;
        for (const stopwatch waited; !seen && waited.elapsed() < soon;) {
            if (at_once) {
                std::array<rdmaxx::wc, 1> one;
                for (const rdmaxx::wc& received : cq.poll(one)) {
                    check(received);
                    seen = true;
                }
            } else {
                for (const auto received : cq.poll()) {
                    check(received);
                    seen = true;
                }
            }
        }
        CHECK(seen);
    }
}

TEST_CASE_METHOD(fixture, "UD: a receive without room for the 40 bytes takes nothing", "[transports][ib]") {
    ud_couple c;
    const rdmaxx::ah to_self(c.domain, c.path);
    c.b.post_recv(c.mr.sge(2048, 8), 1);
    c.a.post_send(send_wr::send(c.source(8)).to(to_self, c.b.qp_num(), qkey).wr_id(10).signaled());
    c.sent(10, wc_opcode::send);
    for (const auto completion : c.cq_b.poll()) {
        CHECK(completion.wr_id() == 1);
        CHECK_FALSE(completion.ok());
        CHECK_FALSE(completion.byte_len());
    }
}

TEST_CASE_METHOD(fixture, "modify: the kernel refuses what explain_modify says, and nothing else", "[modify][ib]") {
    const rdmaxx::context device = open_device();
    const ibv_ah_attr path = path_to_self(device);
    const rdmaxx::pd domain(device);
    const rdmaxx::cq cq(device, 8);
    const qp_type type = GENERATE(qp_type::rc, qp_type::uc, qp_type::ud);
    CAPTURE(to_string(type));
    // Values that are right for every attribute.
    ibv_qp_attr values{};
    values.port_num = port;
    values.qkey = qkey;
    values.ah_attr = path;
    values.path_mtu = IBV_MTU_1024;
    values.dest_qp_num = 17;
    values.timeout = 14;
    values.retry_cnt = values.rnr_retry = 7;
    values.max_rd_atomic = values.max_dest_rd_atomic = 1;
    values.min_rnr_timer = 12;
    values.alt_ah_attr = path;
    values.alt_port_num = port;
    values.alt_timeout = 14;
    const auto prepared = [&](qp_state state) {
        rdmaxx::qp qp(domain, rdmaxx::qp_init_attr(cq, 2).type(type));
        if (state != qp_state::reset)
            to_init(qp);
        if (state == qp_state::rtr)
            to_rtr(qp, qp.qp_num(), path);
        if (state == qp_state::rts || state == qp_state::sqd)
            to_rts(qp, qp.qp_num(), path);
        if (state == qp_state::sqd || state == qp_state::err)
            qp.modify(qp_attr(state));
        for (const stopwatch waited; qp.query().attr.sq_draining != 0;)
            REQUIRE(waited.elapsed() < soon);
        return qp;
    };
    // From every state but sqe, into which no Soft-RoCE queue pair gets. Alternate paths the kernel has on InfiniBand
    // only.
    constexpr std::array states = {qp_state::reset, qp_state::init, qp_state::rtr,
                                   qp_state::rts,   qp_state::sqd,  qp_state::err};
    int explained_count = 0;
    int taken_count = 0;
    for (const qp_state from : states) {
        rdmaxx::qp qp = prepared(from);
        for (const qp_state to : states) {
            int needed = IBV_QP_STATE;
            for (const auto& t : rdmaxx::detail::qp_transitions)
                if (t.from == static_cast<ibv_qp_state>(from) && t.to == static_cast<ibv_qp_state>(to) &&
                    (t.types & rdmaxx::detail::type_bit(type)) != 0)
                    needed |= t.needed;
            // The right set, and each attribute more or less.
            for (int bit = 0; bit <= 20; ++bit) {
                const int mask = bit == 0 ? needed : needed ^ 1 << bit;
                values.qp_state = static_cast<ibv_qp_state>(to);
                values.cur_qp_state = static_cast<ibv_qp_state>(from);
                const qp_attr attr(values, mask);
                const std::string why = qp.explain_modify(attr);
                std::error_code ec;
                qp.modify(attr, ec);
                CAPTURE(why, mask, ec.value());
                const bool explained = why.find(": ") != std::string::npos;
                CHECK((ec == std::errc::invalid_argument) == (explained || (mask & IBV_QP_ALT_PATH) != 0));
                (explained ? explained_count : taken_count) += 1;
                if (!ec)
                    qp = prepared(from);
            }
        }
    }
    CHECK(explained_count > 0);
    CHECK(taken_count > 0);
}

TEST_CASE_METHOD(fixture, "a send queue that is drained finishes what was begun, says so, and goes on when told",
                 "[modify][async][ib]") {
    rc_couple c;
    c.a.modify(qp_attr(qp_state::sqd).en_sqd_async_notify());
    {
        const rdmaxx::async_event event = rdmaxx::get_async_event_for(c.device, soon);
        CHECK(event.type() == rdmaxx::async_event_type::sq_drained);
        CHECK(event.qp() == c.a);
    }
    CHECK(c.a.query().state() == qp_state::sqd);
    c.put("later");
    c.a.post_send(send_wr::rdma_write(c.source(5), c.target(5)).wr_id(1).signaled());
    std::this_thread::sleep_for(50ms);
    for (const auto completion : c.cq_a.poll())
        FAIL(completion.wr_id());
    CHECK(c.arrived(5) == std::string(5, '\0'));
    c.a.modify(qp_attr(qp_state::rts).min_rnr_timer(12));
    c.a.post_send(send_wr::rdma_write(c.source(5), c.target(5)).wr_id(2).signaled()); // Soft-RoCE looks again
    c.sent(1, wc_opcode::rdma_write);
    c.sent(2, wc_opcode::rdma_write);
    CHECK(c.arrived(5) == "later");
}

TEST_CASE_METHOD(fixture, "a refused modify names the attributes", "[modify][asan][ib]") {
    const rdmaxx::context device = open_device();
    const rdmaxx::pd domain(device);
    const rdmaxx::cq cq(device, 8);
    const rdmaxx::qp qp(domain, rdmaxx::qp_init_attr(cq, 2));
    to_init(qp);
    try {
        qp.modify(qp_attr(qp_state::rtr).path_mtu(rdmaxx::mtu::bytes_1024).dest_qp_num(1).rq_psn(0).qkey(1));
        FAIL("nothing was thrown");
    } catch (const rdmaxx::error& e) {
        CHECK(e.code() == std::errc::invalid_argument);
        CHECK(std::string(e.what()).find("rc, init to rtr: missing ah_attr, min_rnr_timer, max_dest_rd_atomic; not "
                                         "taken qkey") != std::string::npos);
    }
}

TEST_CASE_METHOD(fixture, "what Soft-RoCE lacks is a documented error", "[transports][ib]") {
    const rdmaxx::context device = open_device();
    const rdmaxx::pd domain(device);
    const rdmaxx::cq cq(device, 8);
    std::error_code ec;
    const auto refused = [&](const char* what) {
        CAPTURE(what, ec.value(), ec.message());
        CHECK((ec == std::errc::operation_not_supported || ec == std::errc::invalid_argument ||
               ec == std::errc::function_not_supported));
    };
    CHECK_FALSE(rdmaxx::qp::create(domain, rdmaxx::qp_init_attr(cq, 2).type(qp_type::raw_packet), ec));
    refused("raw packets");
    CHECK_FALSE(rdmaxx::qp_ex<send_ops::send, qp_type::xrc_send>::create(domain, rdmaxx::qp_init_attr(cq, 2), ec));
    refused("XRC");
    CHECK_FALSE(rdmaxx::qp_ex<send_ops::send | send_ops::tso, qp_type::ud>::create(
        domain, rdmaxx::qp_init_attr_ex(rdmaxx::qp_init_attr(cq, 2)).max_tso_header(64), ec));
    refused("segmentation");
    CHECK_FALSE(rdmaxx::cq_ex<wc_fields::completion_timestamp>::create(device, 8, {}, 0, ec));
    refused("time stamps");
    const rdmaxx::qp qp(domain, rdmaxx::qp_init_attr(cq, 2));
    qp.modify_rate_limit({.kbps = 1000}, ec);
    refused("rate limits");
    static_cast<void>(qp.query_ece(ec));
    refused("ECE");
    qp.set_ece({}, ec);
    refused("ECE");
    if constexpr (requires { qp.query_data_in_order(rdmaxx::wr_opcode::send); })
        CHECK(qp.query_data_in_order(rdmaxx::wr_opcode::rdma_write) == rdmaxx::data_in_order::none);
}

TEST_CASE_METHOD(fixture, "the most inline data that a queue pair can carry is found by trying", "[transports]") {
    const rdmaxx::context device = open_device();
    const rdmaxx::pd domain(device);
    const rdmaxx::cq cq(device, 8);
    std::error_code ec;
    CHECK_FALSE(rdmaxx::qp::create(domain, rdmaxx::qp_init_attr(cq, 2).max_inline_data(1 << 20), ec));
    CHECK(ec == std::errc::invalid_argument);
    const std::uint32_t most =
        rdmaxx::qp::probe_max_inline_data(domain, rdmaxx::qp_init_attr(cq, 2).max_inline_data(1 << 20));
    CHECK(most > 0);
    CHECK(rdmaxx::qp(domain, rdmaxx::qp_init_attr(cq, 2).max_inline_data(most)).cap().max_inline_data >= most);
}

TEST_CASE_METHOD(fixture, "queue_slots agrees with the device's send queue", "[transports][ib]") {
    rc_couple c;
    rdmaxx::queue_slots slots(c.a.cap().max_send_wr);
    const rdmaxx::sge piece = c.source(1);
    send_wr quiet = send_wr::rdma_write(piece, c.target(1));
    while (slots.free() > 1) {
        REQUIRE(slots.take(1, false));
        REQUIRE(c.a.try_post_send(quiet) == 0);
    }
    REQUIRE(slots.take(1, true));
    c.a.post_send(send_wr::rdma_write(c.source(1), c.target(1)).wr_id(5).signaled());
    CHECK_FALSE(slots.take());
    c.sent(5, wc_opcode::rdma_write);
    CHECK(slots.give() == slots.size());
    for (std::uint32_t i = 0; i < slots.size(); ++i) // all of it is there again
        REQUIRE(c.a.try_post_send(quiet) == 0);
}

TEST_CASE_METHOD(fixture, "completions of a queue pair that is gone can be polled from a shared CQ",
                 "[transports][ib]") {
    rc_couple c;
    rdmaxx::wr_table<std::string> under_way(3); // of all queue pairs of the CQ
    const auto enter = [&](rdmaxx::wr_queue queue, const char* of) {
        return under_way.enter(queue, of).value();
    };
    {
        rdmaxx::qp_ex<rc_ops> qp(c.domain, rdmaxx::qp_init_attr(c.cq_a, 4));
        to_init(qp);
        to_rts(qp, qp.qp_num(), c.path); // to itself
        qp.post_recv(c.mr.sge(2048, 8), enter(rdmaxx::wr_queue::recv, "gone"));
        qp.post_send(c.source(8), enter(rdmaxx::wr_queue::send, "gone"));
        c.put("it went");
        for (const stopwatch waited; c.arrived(7) != "it went" && waited.elapsed() < 200ms;)
            ; // both complete, and nobody polls
        std::this_thread::sleep_for(50ms);
    }
    CHECK(under_way.erase_if([](const std::string& of) { return of == "gone"; }) == 2);
    c.a.post_send(send_wr::rdma_write(c.source(1), c.target(1))
                      .wr_id(enter(rdmaxx::wr_queue::send, "here")) // in a place of one that is gone
                      .signaled());
    // The old ones are of a queue pair that is no more, or the provider took them out: either is a poll without an
    // error, and neither is taken for the new one.
    std::array<rdmaxx::wc, 8> room;
    int handled = 0;
    for (const stopwatch waited; handled == 0 && waited.elapsed() < soon;)
        for (const rdmaxx::wc& completion : c.cq_a.poll(room))
            if (const auto request = under_way.take(completion.wr_id())) {
                ++handled;
                CHECK(request->value == "here");
                CHECK(completion.opcode() == wc_opcode::rdma_write);
                CHECK(completion.qp_num() == c.a.qp_num());
            }
    CHECK(handled == 1);
    CHECK(under_way.count() == 0);
}

TEST_CASE_METHOD(fixture, "an extended CQ is one for wait, and its range leaves nothing locked",
                 "[extended][asan][ib]") {
    const rdmaxx::context device = open_device();
    rdmaxx::comp_channel channel(device);
    const rdmaxx::cq_ex<fields> cq(device, 8, channel);
    const rdmaxx::pd domain(device);
    const rdmaxx::qp qp(domain, rdmaxx::qp_init_attr(cq, 4));
    to_init(qp);
    std::vector<std::byte> memory(64);
    const rdmaxx::mr mr(domain, memory);
    for (std::uint64_t i = 1; i <= 3; ++i)
        qp.post_recv(mr.sge(0, 8), i);
    cq.request_notify();
    qp.modify(qp_attr(qp_state::err));
    qp.post_recv(mr.sge(0, 8), 4);
    qp.modify(qp_attr(qp_state::err));
    rdmaxx::cq_event event = channel.get_cq_event_for(soon);
    CHECK(event.cq() == rdmaxx::cq_ref(cq));
    std::move(event).ack();
    std::vector<std::uint64_t> seen;
    for (const stopwatch waited; seen.size() < 3 && waited.elapsed() < soon;)
        for (const auto completion : cq.poll()) {
            CHECK(completion.status() == wc_status::wr_flush_err);
            CHECK_FALSE(completion.opcode());
            CHECK_FALSE(completion.byte_len());
            CHECK(completion.vendor_err() == 0); // a flush is nobody's fault
            CHECK(completion.qp_num() == qp.qp_num());
            seen.push_back(completion.wr_id());
            if (seen.size() >= 2)
                break; // what comes after the second stays, for the next poll
        }
    CHECK(seen == std::vector<std::uint64_t>{1, 2, 3});
    std::array<rdmaxx::wc, 2> room;
    CHECK(channel.wait_for(cq, room, soon).size() == 1);
    CHECK(room[0].wr_id() == 4);
}
