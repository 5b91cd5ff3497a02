// Work requests: what reaches the C structs.
#include "test.hpp"

#include <array>
#include <memory>
#include <vector>

#include <arpa/inet.h>

using namespace rdmaxx;
using namespace unit;

namespace {

std::byte memory[256];

sge piece(std::uint32_t offset = 0, std::uint32_t length = 16) {
    return sge::unchecked(memory + offset, length, lkey{77});
}

constexpr remote_buffer peer{0x1122334455667788, rkey{0x99}, 4096};

/// What a request of that operation must be, and nothing else.
void check_plain(const send_wr& wr, ibv_wr_opcode opcode, const ibv_sge* sges, int count) {
    const ibv_send_wr& c = wr;
    CHECK(c.opcode == opcode);
    CHECK(c.sg_list == sges);
    CHECK(c.num_sge == count);
    CHECK(c.wr_id == 0);
    CHECK(c.next == nullptr);
    CHECK(c.send_flags == 0);
}

bool no_imm(const ibv_send_wr& c) {
    return c.imm_data == 0;
}

bool no_remote(const ibv_send_wr& c) {
    return c.wr.rdma.remote_addr == 0 && c.wr.rdma.rkey == 0;
}

bool inside(const void* object, std::size_t size, const void* at) {
    const auto* first = static_cast<const std::byte*>(object);
    return std::less_equal<>()(first, static_cast<const std::byte*>(at)) &&
           std::less<>()(static_cast<const std::byte*>(at), first + size);
}

} // namespace

TEST_CASE_METHOD(unit::test, "send_wr: each operation sets its own fields and no other", "[wr]") {
    const sge one = piece();
    const std::array<sge, 3> three = {piece(0), piece(16), piece(32)};
    SECTION("send") {
        const send_wr wr = send_wr::send(one);
        check_plain(wr, IBV_WR_SEND, &one, 1);
        CHECK((no_imm(wr) && no_remote(wr)));
        check_plain(send_wr::send(three), IBV_WR_SEND, three.data(), 3);
        check_plain(send_wr::send({}), IBV_WR_SEND, nullptr, 0);
    }
    SECTION("send with immediate data, in network byte order") {
        const send_wr wr = send_wr::send_with_imm(one, 0x12345678);
        check_plain(wr, IBV_WR_SEND_WITH_IMM, &one, 1);
        CHECK(wr.imm_data == htonl(0x12345678));
        CHECK(no_remote(wr));
        check_plain(send_wr::send_with_imm(three, 1), IBV_WR_SEND_WITH_IMM, three.data(), 3);
    }
    SECTION("RDMA write") {
        const send_wr wr = send_wr::rdma_write(one, peer);
        check_plain(wr, IBV_WR_RDMA_WRITE, &one, 1);
        CHECK(wr.wr.rdma.remote_addr == peer.address);
        CHECK(wr.wr.rdma.rkey == value(peer.rkey));
        CHECK(no_imm(wr));
        check_plain(send_wr::rdma_write(three, peer), IBV_WR_RDMA_WRITE, three.data(), 3);
    }
    SECTION("RDMA write with immediate data") {
        const send_wr wr = send_wr::rdma_write_with_imm(one, peer, 0xabcdef01);
        check_plain(wr, IBV_WR_RDMA_WRITE_WITH_IMM, &one, 1);
        CHECK(wr.wr.rdma.remote_addr == peer.address);
        CHECK(wr.wr.rdma.rkey == value(peer.rkey));
        CHECK(wr.imm_data == htonl(0xabcdef01));
        check_plain(send_wr::rdma_write_with_imm(three, peer, 1), IBV_WR_RDMA_WRITE_WITH_IMM, three.data(), 3);
    }
    SECTION("RDMA read") {
        const send_wr wr = send_wr::rdma_read(one, peer);
        check_plain(wr, IBV_WR_RDMA_READ, &one, 1);
        CHECK(wr.wr.rdma.remote_addr == peer.address);
        CHECK(wr.wr.rdma.rkey == value(peer.rkey));
        CHECK(no_imm(wr));
        check_plain(send_wr::rdma_read(three, peer), IBV_WR_RDMA_READ, three.data(), 3);
    }
    SECTION("compare and swap") {
        const send_wr wr = send_wr::atomic_cmp_and_swp(one, peer, 5, 6);
        check_plain(wr, IBV_WR_ATOMIC_CMP_AND_SWP, &one, 1);
        CHECK(wr.wr.atomic.remote_addr == peer.address);
        CHECK(wr.wr.atomic.rkey == value(peer.rkey));
        CHECK(wr.wr.atomic.compare_add == 5);
        CHECK(wr.wr.atomic.swap == 6);
    }
    SECTION("fetch and add") {
        const send_wr wr = send_wr::atomic_fetch_and_add(one, peer, 7);
        check_plain(wr, IBV_WR_ATOMIC_FETCH_AND_ADD, &one, 1);
        CHECK(wr.wr.atomic.remote_addr == peer.address);
        CHECK(wr.wr.atomic.rkey == value(peer.rkey));
        CHECK(wr.wr.atomic.compare_add == 7);
        CHECK(wr.wr.atomic.swap == 0);
    }
}

TEST_CASE_METHOD(unit::test, "send_wr: setters add up, in any order", "[wr]") {
    const sge one = piece();
    CHECK(send_wr::send(one).signaled().send_flags == IBV_SEND_SIGNALED);
    CHECK(send_wr::send(one).fenced().send_flags == IBV_SEND_FENCE);
    CHECK(send_wr::send(one).solicited().send_flags == IBV_SEND_SOLICITED);
    CHECK(send_wr::send(one).inlined().send_flags == IBV_SEND_INLINE);
    send_wr wr = send_wr::send(one).inlined().signaled().wr_id(9).fenced().solicited().signaled();
    CHECK(wr.send_flags == (IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_SOLICITED | IBV_SEND_INLINE));
    CHECK(static_cast<const ibv_send_wr&>(wr).wr_id == 9);
    CHECK(wr.sges().size() == 1);
    CHECK(wr.sges().data() == &one);
}

TEST_CASE_METHOD(unit::test, "send_wr: segmentation, checksums, a datagram's address, and the queue of an XRC message",
                 "[wr]") {
    ibv_ah handle{};
    const sge one;
    const send_wr datagram = send_wr::send(one).to(ah_ref(&handle), 17, 18);
    CHECK(datagram.wr.ud.ah == &handle);
    CHECK(datagram.wr.ud.remote_qpn == 17);
    CHECK(datagram.wr.ud.remote_qkey == 18);
    const std::array<std::byte, 14> header{};
    const sge piece = sge::unchecked(&header, 14, lkey{3});
    const send_wr cut = send_wr::tso(std::span(&piece, 1), header, 1000).wr_id(4);
    CHECK(cut.opcode == IBV_WR_TSO);
    CHECK(cut.ibv_send_wr::tso.hdr == header.data());
    CHECK(cut.ibv_send_wr::tso.hdr_sz == 14);
    CHECK(cut.ibv_send_wr::tso.mss == 1000);
    CHECK(cut.num_sge == 1);
    const std::vector<std::byte> much(0x10010); // 16 would be left of it
    CHECK(send_wr::tso(std::span(&piece, 1), much, 1000).ibv_send_wr::tso.hdr_sz == 0xffff);
    CHECK(send_wr::send(piece).ip_csum().send_flags == IBV_SEND_IP_CSUM);
    CHECK(send_wr::send(piece).to_srq(17).qp_type.xrc.remote_srqn == 17);
    CHECK(std::string(to_string(wr_opcode::atomic_write)) == "atomic_write");
    CHECK(std::string(to_string(static_cast<wr_opcode>(99))) == "unknown");
}

TEST_CASE_METHOD(unit::test, "recv_wr: its fields", "[wr]") {
    const std::array<sge, 2> two = {piece(0), piece(16)};
    recv_wr wr(two);
    wr.wr_id(5);
    const ibv_recv_wr& c = wr;
    CHECK(c.wr_id == 5);
    CHECK(c.sg_list == two.data());
    CHECK(c.num_sge == 2);
    CHECK(c.next == nullptr);
    const sge one = piece();
    CHECK(recv_wr(one).sges().data() == &one);
    const recv_wr empty;
    CHECK(empty.num_sge == 0);
    CHECK(empty.sges().empty());
}

TEST_CASE_METHOD(unit::test, "sge: unchecked takes what it is given", "[wr]") {
    const sge s = sge::unchecked(memory + 3, 5, lkey{6});
    CHECK(s.addr == reinterpret_cast<std::uintptr_t>(memory + 3));
    CHECK(s.length == 5);
    CHECK(s.lkey == 6);
    const sge none;
    CHECK((none.addr == 0 && none.length == 0 && none.lkey == 0));
}

TEST_CASE_METHOD(unit::test, "send_wr_n: owns its SGEs, and each copy its own", "[wr]") {
    auto original = std::make_unique<std::array<sge, 2>>();
    (*original)[0] = piece(0, 1);
    (*original)[1] = piece(16, 2);
    auto first = std::make_unique<send_wr_n<4>>(send_wr::rdma_write(*original, peer).wr_id(3).signaled());
    original.reset(); // ASan would see a look at it
    CHECK(inside(first.get(), sizeof *first, first->sg_list));
    CHECK(first->sges().size() == 2);
    CHECK(first->sges()[1].length == 2);

    send_wr_n<4> second(*first);
    send_wr_n<4> third(send_wr::send(piece(32, 9)));
    third = *first;
    send_wr_n<4>& same = third;
    third = same;
    first.reset();
    for (const send_wr_n<4>* copy : {&second, &third}) {
        CHECK(inside(copy, sizeof *copy, copy->sg_list));
        REQUIRE(copy->sges().size() == 2);
        CHECK(copy->sges()[0].length == 1);
        CHECK(copy->sges()[1].length == 2);
        CHECK(static_cast<const ibv_send_wr&>(*copy).wr_id == 3);
        CHECK(copy->opcode == IBV_WR_RDMA_WRITE);
        CHECK(copy->send_flags == IBV_SEND_SIGNALED);
        CHECK(copy->wr.rdma.rkey == value(peer.rkey));
    }
    std::vector<send_wr_n<4>> many(3, second);
    many.push_back(third);
    for (const send_wr_n<4>& copy : many)
        CHECK(inside(&copy, sizeof copy, copy.sg_list));
}

TEST_CASE_METHOD(unit::test, "send_wr_n: one that was told other SGEs refers to these, and its copies as well",
                 "[wr]") {
    const std::array<sge, 3> others{};
    const sge own;
    send_wr_n<1> small(send_wr::send(own));
    send_wr& as_request = small;
    as_request = send_wr::send(others).wr_id(7); // more of them than it has room for
    const send_wr_n<1> copy = small;
    send_wr_n<1> assigned(send_wr::send(own));
    assigned = small;
    for (const send_wr_n<1>* each : {&std::as_const(small), &copy, &std::as_const(assigned)}) {
        CHECK(each->sges().data() == others.data());
        CHECK(each->sges().size() == 3);
    }
}

TEST_CASE_METHOD(unit::test, "send_wr_n: more SGEs than it has room for is EINVAL", "[wr]") {
    const std::array<sge, 3> three = {piece(), piece(), piece()};
    const caught refused([&] { const send_wr_n<2> wr(send_wr::send(three)); });
    CHECK(refused.code == EINVAL);
    CHECK(contains(refused.cause, "more SGEs"));
    std::error_code ec;
    const auto none = send_wr_n<2>::create(send_wr::send(three), ec);
    CHECK(number(ec) == EINVAL);
    CHECK(none.sges().empty());
    const auto good = send_wr_n<3>::create(send_wr::send(three), ec);
    CHECK(!ec);
    CHECK(good.sges().size() == 3);
    const send_wr_n<2> empty(send_wr::send(std::span<const sge>()));
    CHECK(empty.num_sge == 0);
}

TEST_CASE_METHOD(unit::test, "recv_wr_n: owns its SGEs as well", "[wr]") {
    std::optional<recv_wr_n<1>> copy;
    {
        const sge one = piece(0, 3);
        const recv_wr_n<1> wr(recv_wr(one).wr_id(4));
        copy.emplace(wr);
    }
    CHECK(inside(&*copy, sizeof *copy, copy->sg_list));
    CHECK(copy->sges()[0].length == 3);
    CHECK(static_cast<const ibv_recv_wr&>(*copy).wr_id == 4);
    const std::array<sge, 2> two = {piece(), piece()};
    std::error_code ec;
    CHECK(recv_wr_n<1>::create(recv_wr(two), ec).sges().empty());
    CHECK(number(ec) == EINVAL);
}
