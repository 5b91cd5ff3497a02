// Work requests of every kind, their completions, and their failures.
#include "live.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

using namespace live;
using rdmaxx::recv_wr;
using rdmaxx::send_wr;
using rdmaxx::wc_opcode;
using rdmaxx::wc_status;

TEST_CASE_METHOD(fixture, "an echo comes back over IPv4 and IPv6", "[data][asan]") {
    options how;
    how.at = GENERATE(ipv4(), ipv6());
    connection c(how);
    c.client.qp.post_recv(c.client.mr.sge(0, 64), 1);
    c.server.qp.post_recv(c.server.mr.sge(0, 64), 2);

    c.client.put("hello over RDMA", 1024);
    c.client.qp.post_send(c.client.mr.sge(1024, 15), 3);
    const rdmaxx::wc received = c.server.next_ok();
    CHECK(received.wr_id() == 2);
    CHECK(received.opcode() == wc_opcode::recv);
    CHECK(received.is_recv());
    CHECK(received.byte_len() == 15U);
    CHECK(received.imm_data() == std::nullopt);
    CHECK(received.qp_num() == c.server.qp.qp_num());
    CHECK(c.server.text(15) == "hello over RDMA");

    const rdmaxx::wc sent = c.client.next_ok();
    CHECK(sent.wr_id() == 3);
    CHECK(sent.opcode() == wc_opcode::send);
    CHECK_FALSE(sent.is_recv());
    CHECK(sent.byte_len() == std::nullopt);

    c.server.qp.post_send(c.server.mr.sge(0, 15));
    CHECK(c.client.next_ok().wr_id() == 1);
    CHECK(c.client.text(15) == "hello over RDMA");
}

TEST_CASE_METHOD(fixture, "a whole memory region is sent and received by its name", "[data]") {
    connection c;
    c.client.put("everything");
    c.server.qp.post_recv(c.server.mr);
    c.client.qp.post_send(c.client.mr);
    CHECK(c.server.next_ok().byte_len() == c.server.memory.size());
    CHECK(c.server.text(10) == "everything");
}

TEST_CASE_METHOD(fixture, "rdma_write lands in the peer's memory without a completion there", "[data][asan]") {
    connection c;
    c.client.put("written");
    c.client.qp.post_send(
        send_wr::rdma_write(c.client.mr.sge(0, 7), c.server.mr.remote().part(100, 7)).wr_id(5).signaled());
    const rdmaxx::wc done = c.client.next_ok();
    CHECK(done.wr_id() == 5);
    CHECK(done.opcode() == wc_opcode::rdma_write);
    CHECK(done.byte_len() == std::nullopt);
    CHECK(c.server.text(7, 100) == "written");
    std::array<rdmaxx::wc, 1> none;
    CHECK(c.server.cq.poll(none).empty());
}

TEST_CASE_METHOD(fixture, "rdma_write_with_imm takes a posted receive, which carries the 32 bits", "[ib][data]") {
    connection c;
    c.server.qp.post_recv(recv_wr().wr_id(6));
    c.client.put("written");
    c.client.qp.post_send(send_wr::rdma_write_with_imm(c.client.mr.sge(0, 7), c.server.mr.remote(), 0x01020304));
    const rdmaxx::wc received = c.server.next_ok();
    CHECK(received.wr_id() == 6);
    CHECK(received.opcode() == wc_opcode::recv_rdma_with_imm);
    CHECK(received.imm_data() == 0x01020304U);
    CHECK(received.byte_len() == 7U);
    CHECK(c.server.text(7) == "written");
}

TEST_CASE_METHOD(fixture, "rdma_read fetches the peer's memory", "[data][asan]") {
    connection c;
    c.server.put("to be read", 50);
    c.client.qp.post_send(send_wr::rdma_read(c.client.mr.sge(8, 10), c.server.mr.remote().part(50, 10)).signaled());
    const rdmaxx::wc done = c.client.next_ok();
    CHECK(done.opcode() == wc_opcode::rdma_read);
    CHECK(c.client.text(10, 8) == "to be read");
    // The length of a read is documented as undefined by some providers; rxe reports it.
    CHECK(done.byte_len().has_value());
}

TEST_CASE_METHOD(fixture, "atomic_cmp_and_swp swaps what is equal, and tells what was there", "[ib][data]") {
    connection c;
    const auto value = [&]() {
        std::uint64_t result = 0;
        std::memcpy(&result, c.server.memory.data(), sizeof result);
        return result;
    };
    const auto old = [&]() {
        std::uint64_t result = 0;
        std::memcpy(&result, c.client.memory.data(), sizeof result);
        return result;
    };
    const rdmaxx::remote_buffer at = c.server.mr.remote().part(0, 8);
    const rdmaxx::sge result = c.client.mr.sge(0, 8);

    c.client.qp.post_send(send_wr::atomic_cmp_and_swp(result, at, 0, 42).signaled());
    CHECK(c.client.next_ok().opcode() == wc_opcode::comp_swap);
    CHECK(value() == 42);
    CHECK(old() == 0);

    c.client.qp.post_send(send_wr::atomic_cmp_and_swp(result, at, 1, 99).signaled());
    CHECK(c.client.next_ok().ok());
    CHECK(value() == 42);
    CHECK(old() == 42);
}

TEST_CASE_METHOD(fixture, "atomic_fetch_and_add adds, and tells what was there", "[ib][data]") {
    connection c;
    const std::uint64_t before = 1'000'000'000'000;
    std::memcpy(c.server.memory.data() + 8, &before, sizeof before);
    c.client.qp.post_send(
        send_wr::atomic_fetch_and_add(c.client.mr.sge(0, 8), c.server.mr.remote().part(8, 8), 5).signaled());
    const rdmaxx::wc done = c.client.next_ok();
    CHECK(done.opcode() == wc_opcode::fetch_add);
    std::uint64_t fetched = 0;
    std::uint64_t after = 0;
    std::memcpy(&fetched, c.client.memory.data(), sizeof fetched);
    std::memcpy(&after, c.server.memory.data() + 8, sizeof after);
    CHECK(fetched == before);
    CHECK(after == before + 5);
}

TEST_CASE_METHOD(fixture, "send_with_imm carries 32 bits in host byte order", "[ib][data]") {
    connection c;
    c.server.qp.post_recv(c.server.mr);
    c.client.qp.post_send(send_wr::send_with_imm(c.client.mr.sge(0, 3), 0xcafef00d));
    const rdmaxx::wc received = c.server.next_ok();
    CHECK(received.imm_data() == 0xcafef00dU);
    CHECK(rdmaxx::has(received.flags(), rdmaxx::wc_flags::with_imm));
    CHECK(received.byte_len() == 3U);
}

TEST_CASE_METHOD(fixture, "inlined bytes need no registration, and may change at once", "[data][asan]") {
    options how;
    how.inline_bytes = 32;
    connection c(how);
    CHECK(c.client.qp.cap().max_inline_data >= 32);
    c.server.qp.post_recv(c.server.mr);
    std::array<char, 8> bytes = {'i', 'n', 'l', 'i', 'n', 'e', 'd', '!'};
    c.client.qp.post_send(send_wr::send(rdmaxx::sge::unchecked(bytes.data(), 8, {})).inlined().signaled());
    bytes.fill('x');
    CHECK(c.server.next_ok().byte_len() == 8U);
    CHECK(c.server.text(8) == "inlined!");
    CHECK(c.client.next_ok().ok());
}

TEST_CASE_METHOD(fixture, "more inlined bytes than were granted are EINVAL", "[data]") {
    connection c;
    const std::uint32_t most = c.client.qp.cap().max_inline_data;
    std::vector<std::byte> bytes(most + 1);
    std::error_code ec;
    c.client.qp.post_send(send_wr::send(rdmaxx::sge::unchecked(bytes.data(), most + 1, {})).inlined(), ec);
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(fixture, "an SGE list gathers here and scatters there", "[data][asan]") {
    options how;
    how.sges = 4;
    connection c(how);
    c.client.put("one", 0);
    c.client.put("two", 100);
    c.client.put("three", 200);
    const std::array to = {c.server.mr.sge(0, 2), c.server.mr.sge(1000, 4), c.server.mr.sge(2000, 100)};
    c.server.qp.post_recv(recv_wr(to));
    {
        const std::array from = {c.client.mr.sge(0, 3), c.client.mr.sge(100, 3), c.client.mr.sge(200, 5)};
        c.client.qp.post_send(send_wr::send(from));
    } // the list need not outlive the call
    CHECK(c.server.next_ok().byte_len() == 11U);
    CHECK(c.server.text(2) == "on");
    CHECK(c.server.text(4, 1000) == "etwo");
    CHECK(c.server.text(5, 2000) == "three");
}

TEST_CASE_METHOD(fixture, "one-sided requests take SGE lists too", "[ib][data]") {
    options how;
    how.sges = 3;
    connection c(how);
    c.client.put("one", 0);
    c.client.put("two", 100);
    const std::array from = {c.client.mr.sge(0, 3), c.client.mr.sge(100, 3)};
    c.client.qp.post_send(send_wr::rdma_write(from, c.server.mr.remote().part(1000, 6)).signaled());
    CHECK(c.client.next_ok().opcode() == wc_opcode::rdma_write);
    CHECK(c.server.text(6, 1000) == "onetwo");
    const std::array to = {c.client.mr.sge(200, 2), c.client.mr.sge(300, 4)};
    c.client.qp.post_send(send_wr::rdma_read(to, c.server.mr.remote().part(1000, 6)).signaled());
    CHECK(c.client.next_ok().opcode() == wc_opcode::rdma_read);
    CHECK(c.client.text(2, 200) == "on");
    CHECK(c.client.text(4, 300) == "etwo");
}

TEST_CASE_METHOD(fixture, "more SGEs than were granted are EINVAL, for sends and receives", "[ib][data]") {
    connection c;
    const ibv_qp_cap granted = c.client.qp.cap();
    const std::vector<rdmaxx::sge> sends(granted.max_send_sge + 1, c.client.mr.sge(0, 1));
    const std::vector<rdmaxx::sge> receives(granted.max_recv_sge + 1, c.client.mr.sge(0, 1));
    std::error_code ec;
    c.client.qp.post_send(send_wr::send(sends), ec);
    CHECK(ec == std::errc::invalid_argument);
    c.client.qp.post_recv(recv_wr(receives), ec);
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(fixture, "a fenced send waits for the read before it", "[data]") {
    connection c;
    c.server.put("fence", 500);
    c.server.qp.post_recv(c.server.mr.sge(0, 64));
    // The send carries what the read brings: without the fence it could go first.
    const rdmaxx::sge piece = c.client.mr.sge(0, 5);
    std::array<send_wr, 2> chain = {send_wr::rdma_read(piece, c.server.mr.remote().part(500, 5)).wr_id(1),
                                    send_wr::send(piece).fenced().wr_id(2).signaled()};
    c.client.qp.post_send(chain);
    CHECK(c.server.next_ok().byte_len() == 5U);
    CHECK(c.server.text(5) == "fence");
    CHECK(c.client.next_ok().wr_id() == 2);
}

TEST_CASE_METHOD(fixture, "request_notify(true) wakes for solicited sends only", "[ib][data]") {
    connection c;
    c.server.qp.post_recv(c.server.mr.sge(0, 8));
    c.server.qp.post_recv(c.server.mr.sge(8, 8));
    c.server.cq.request_notify(true);
    c.client.qp.post_send(send_wr::send(c.client.mr.sge(0, 8)).signaled());
    CHECK(c.client.next_ok().ok());
    CHECK_FALSE(c.server.completions.get_cq_event_for(50ms));

    c.client.qp.post_send(send_wr::send(c.client.mr.sge(0, 8)).solicited().signaled());
    CHECK(c.client.next_ok().ok());
    CHECK(c.server.completions.get_cq_event_for(soon).cq() == c.server.cq);
    std::array<rdmaxx::wc, 4> done;
    CHECK(c.server.cq.poll(done).size() == 2);
}

TEST_CASE_METHOD(fixture, "a row of requests and a chain by next are posted in one call", "[data]") {
    connection c;
    std::vector<rdmaxx::recv_wr_n<1>> receives;
    for (std::size_t i = 0; i < 6; ++i) {
        receives.emplace_back(recv_wr(c.server.mr.sge(i * 8, 8)));
        receives.back().wr_id(i);
    }
    for (std::size_t i = 0; i + 1 < receives.size(); ++i)
        receives[i].next = &receives[i + 1];
    c.server.qp.post_recv(receives.front());

    std::array<rdmaxx::sge, 6> pieces;
    for (std::size_t i = 0; i < 6; ++i) {
        c.client.put(std::to_string(i), i);
        pieces[i] = c.client.mr.sge(i, 1);
    }
    std::array<send_wr, 3> row = {send_wr::send(pieces[0]), send_wr::send(pieces[1]), send_wr::send(pieces[2])};
    c.client.qp.post_send(row);
    std::array<send_wr, 3> linked = {send_wr::send(pieces[3]), send_wr::send(pieces[4]),
                                     send_wr::send(pieces[5]).wr_id(77).signaled()};
    linked[0].next = &linked[1];
    linked[1].next = &linked[2];
    c.client.qp.post_send(linked[0]);

    for (std::size_t i = 0; i < 6; ++i) {
        CHECK(c.server.next_ok().wr_id() == i);
        CHECK(c.server.text(1, i * 8) == std::to_string(i));
    }
    CHECK(c.client.next_ok().wr_id() == 77);
}

TEST_CASE_METHOD(fixture, "a chain longer than the send queue is ENOMEM with the failed one's index",
                 "[ib][data][asan]") {
    options how;
    how.depth = 4;
    connection c(how);
    const std::size_t granted = c.client.qp.cap().max_send_wr;
    const rdmaxx::sge piece = c.client.mr.sge(0, 8);
    std::vector<send_wr> chain(granted + 8, send_wr::rdma_write(piece, c.server.mr.remote()));

    std::size_t posted = 0;
    SECTION("by error code") {
        std::error_code ec;
        posted = c.client.qp.post_send(chain, ec);
        CHECK(ec == std::errc::not_enough_memory);
    }
    SECTION("by exception") {
        try {
            c.client.qp.post_send(chain);
            FAIL("nothing was thrown");
        } catch (const rdmaxx::post_error& e) {
            posted = e.index();
            CHECK(e.code() == std::errc::not_enough_memory);
            CHECK(std::string(e.call()) == "ibv_post_send");
            CHECK(std::string(e.what()).find("request " + std::to_string(posted)) != std::string::npos);
            CHECK(rdmaxx::diagnose(e).find("queue is full") != std::string::npos);
        }
    }
    SECTION("by number") {
        for (std::size_t i = 0; i + 1 < chain.size(); ++i)
            chain[i].next = &chain[i + 1];
        ibv_send_wr* bad = nullptr;
        CHECK(c.client.qp.try_post_send(chain.front(), bad) == ENOMEM);
        posted = static_cast<std::size_t>(static_cast<send_wr*>(bad) - chain.data());
    }
    CHECK(posted >= granted);
    CHECK(posted < chain.size());

    // Nothing was signaled. Other devices free no place until a later, signaled request was polled; rxe frees each as
    // soon as it was carried out.
    std::error_code full = std::make_error_code(std::errc::not_enough_memory);
    for (const stopwatch waited; full && waited.elapsed() < soon;)
        c.client.qp.post_send(send_wr::rdma_write(piece, c.server.mr.remote()).signaled().wr_id(9), full);
    CHECK_FALSE(full);
    CHECK(c.client.next_ok().wr_id() == 9);
}

TEST_CASE_METHOD(fixture, "a send queue that was full is usable when its signaled requests are polled", "[ib][data]") {
    options how;
    how.depth = 4;
    connection c(how);
    const rdmaxx::sge piece = c.client.mr.sge(0, 8);
    std::vector<send_wr> chain(c.client.qp.cap().max_send_wr + 8,
                               send_wr::rdma_write(piece, c.server.mr.remote()).signaled());
    std::error_code ec;
    const std::size_t posted = c.client.qp.post_send(chain, ec);
    CHECK(ec == std::errc::not_enough_memory);
    for (std::size_t i = 0; i < posted; ++i)
        CHECK(c.client.next_ok().ok());

    c.client.put("again");
    c.client.qp.post_send(send_wr::rdma_write(c.client.mr.sge(0, 5), c.server.mr.remote()).wr_id(1).signaled());
    CHECK(c.client.next_ok().wr_id() == 1);
    CHECK(c.server.text(5) == "again");
}

TEST_CASE_METHOD(fixture, "a chain longer than the receive queue is ENOMEM with the failed one's index", "[data]") {
    options how;
    how.depth = 4;
    connection c(how);
    const rdmaxx::sge piece = c.server.mr.sge(0, 8);
    std::vector<recv_wr> chain(c.server.qp.cap().max_recv_wr + 8, recv_wr(piece));
    std::error_code ec;
    const std::size_t posted = c.server.qp.post_recv(chain, ec);
    CHECK(ec == std::errc::not_enough_memory);
    CHECK(posted >= 4);
    CHECK(posted < chain.size());

    c.client.qp.post_send(c.client.mr.sge(0, 8));
    CHECK(c.server.next_ok().ok()); // one was taken, so there is a place
    c.server.qp.post_recv(piece);
}

TEST_CASE_METHOD(fixture, "C structs are posted and polled as they are", "[data][asan]") {
    connection c;
    ibv_sge to{};
    to.addr = reinterpret_cast<std::uintptr_t>(c.server.memory.data());
    to.length = 32;
    to.lkey = value(c.server.mr.lkey());
    ibv_recv_wr receive{};
    receive.wr_id = 11;
    receive.sg_list = &to;
    receive.num_sge = 1;
    c.server.qp.post_recv(receive);

    c.client.put("plain C");
    ibv_sge from{};
    from.addr = reinterpret_cast<std::uintptr_t>(c.client.memory.data());
    from.length = 7;
    from.lkey = value(c.client.mr.lkey());
    ibv_send_wr send{};
    send.wr_id = 12;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    send.sg_list = &from;
    send.num_sge = 1;
    c.client.qp.post_send(send);

    std::array<ibv_wc, 4> raw{};
    const auto poll_one = [&](const rdmaxx::cq& cq) {
        std::span<ibv_wc> some;
        for (const stopwatch waited; some.empty() && waited.elapsed() < soon;)
            some = cq.poll(raw);
        REQUIRE(some.size() == 1);
        return some[0];
    };
    const ibv_wc received = poll_one(c.server.cq);
    CHECK(received.status == IBV_WC_SUCCESS);
    CHECK(received.wr_id == 11);
    CHECK(received.byte_len == 7);
    CHECK(poll_one(c.client.cq).wr_id == 12);
    CHECK(c.server.text(7) == "plain C");
}

TEST_CASE_METHOD(fixture, "sends are kept and copied with their SGEs", "[data]") {
    connection c;
    rdmaxx::send_wr_n<1> kept(send_wr::send(c.client.mr.sge(0, 4)).signaled());
    c.server.qp.post_recv(c.server.mr.sge(0, 4));
    c.server.qp.post_recv(c.server.mr.sge(4, 4));
    c.client.put("kept");
    c.client.qp.post_send(kept);
    rdmaxx::send_wr_n<1> copy = kept;
    c.client.qp.post_send(copy);
    CHECK(c.server.next_ok().ok());
    CHECK(c.server.next_ok().ok());
    CHECK(c.server.text(8) == "keptkept");
}

TEST_CASE_METHOD(fixture, "requests and their SGEs may be overwritten as soon as they are posted", "[data]") {
    connection c;
    rdmaxx::sge piece;
    for (std::size_t i = 0; i < 10; ++i) {
        piece = c.server.mr.sge(i * 8, 4);
        recv_wr recv = recv_wr(piece).wr_id(i);
        c.server.qp.post_recv(recv);
        std::memset(static_cast<void*>(&piece), 0xa5, sizeof piece);
        std::memset(static_cast<void*>(&recv), 0xa5, sizeof recv);
    }
    c.client.put("overwritten as soon as they are posted");
    for (std::size_t i = 0; i < 10; ++i) {
        piece = c.client.mr.sge(i, 4);
        send_wr send = send_wr::send(piece).wr_id(100 + i).signaled();
        c.client.qp.post_send(send);
        std::memset(static_cast<void*>(&piece), 0xa5, sizeof piece);
        std::memset(static_cast<void*>(&send), 0xa5, sizeof send);
    }
    for (std::size_t i = 0; i < 10; ++i) {
        CHECK(c.server.next_ok().wr_id() == i);
        CHECK(c.server.text(4, i * 8) == c.client.text(4, i));
        CHECK(c.client.next_ok().wr_id() == 100 + i);
    }
}

TEST_CASE_METHOD(fixture, "what was granted is readable, and at least what was asked for", "[ib][data]") {
    options how;
    how.depth = 20;
    how.sges = 3;
    how.inline_bytes = 50;
    connection c(how);
    const ibv_qp_cap granted = c.client.qp.cap();
    CHECK(granted.max_send_wr >= 20);
    CHECK(granted.max_recv_wr >= 20);
    CHECK(granted.max_send_sge >= 3);
    CHECK(granted.max_recv_sge >= 3);
    CHECK(granted.max_inline_data >= 50);
    CHECK(c.client.cq.size() >= 40);

    const rdmaxx::qp_info info = c.client.qp.query();
    CHECK(info.state() == rdmaxx::qp_state::rts);
    CHECK(info.attr.dest_qp_num == c.server.qp.qp_num());
    CHECK(c.client.qp.type() == rdmaxx::qp_type::rc);
    CHECK(c.client.qp.send_cq() == c.client.cq);
    CHECK(c.client.qp.recv_cq() == c.client.cq);
    CHECK(c.client.qp.pd() == c.local.domain);

    CHECK(c.local.device.query_device().max_qp > 0);
    CHECK(c.local.device.query_port(1).state == IBV_PORT_ACTIVE);
    std::error_code ec;
    static_cast<void>(c.local.device.query_port(99, ec));
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(fixture, "more than the device has is EINVAL, and nothing is left", "[data]") {
    host local;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id = resolved(channel, local.address());
    rdmaxx::cq cq(local.device, 16);
    std::error_code ec;
    id.create_qp(local.domain, rdmaxx::qp_init_attr(cq).max_inline_data(1 << 20), ec);
    CHECK(ec == std::errc::invalid_argument);
    CHECK_FALSE(id.qp());
    id.create_qp(local.domain, rdmaxx::qp_init_attr(cq, 1U << 30), ec);
    CHECK(ec == std::errc::invalid_argument);
    CHECK_FALSE(id.qp());

    const rdmaxx::cq too_big = rdmaxx::cq::create(local.device, local.device.query_device().max_cqe + 1, {}, 0, ec);
    CHECK(ec == std::errc::invalid_argument);
    CHECK_FALSE(too_big);

    id.create_qp(local.domain, rdmaxx::qp_init_attr(cq)); // the id is as good as before
    CHECK(id.qp());
    id.create_qp(local.domain, rdmaxx::qp_init_attr(cq), ec);
    CHECK(ec == std::errc::invalid_argument); // it has one
}

TEST_CASE_METHOD(fixture, "a piece outside its memory region is ERANGE here, loc_prot_err unchecked", "[ib][data]") {
    connection c;
    std::error_code ec;
    static_cast<void>(c.client.mr.sge(0, c.client.memory.size() + 1, ec));
    CHECK(ec == std::errc::result_out_of_range);
    c.server.qp.post_recv(c.server.mr);
    const std::byte* const last = c.client.memory.data() + c.client.memory.size() - 1;
    c.client.qp.post_send(send_wr::send(rdmaxx::sge::unchecked(last, 2, c.client.mr.lkey())).wr_id(4));
    const rdmaxx::wc failed = c.client.next(); // unsignaled, but it failed
    // rxe of Linux 6.12 moves the queue pair to the error state first, and then flushes the request like the others.
    CHECK((failed.status() == wc_status::loc_prot_err || failed.status() == wc_status::wr_flush_err));
    CHECK(failed.wr_id() == 4);
}

TEST_CASE_METHOD(fixture, "a write with a wrong rkey completes with rem_access_err, and without an opcode",
                 "[ib][data]") {
    connection c;
    rdmaxx::remote_buffer wrong = c.server.mr.remote();
    wrong.rkey = rdmaxx::rkey{value(wrong.rkey) ^ 0xff00};
    c.client.qp.post_send(send_wr::rdma_write(c.client.mr.sge(0, 8), wrong).wr_id(8));
    const rdmaxx::wc failed = c.client.next();
    CHECK(failed.status() == wc_status::rem_access_err);
    CHECK(failed.wr_id() == 8);
    CHECK(failed.opcode() == std::nullopt);
}

TEST_CASE_METHOD(fixture, "what is posted when the connection ends completes with wr_flush_err and nothing else",
                 "[ib][data][asan]") {
    connection c;
    for (std::uint64_t i = 0; i < 3; ++i)
        c.server.qp.post_recv(c.server.mr.sge(0, 8), i);
    c.client.id.disconnect();
    static_cast<void>(get(c.local.channel, rdmaxx::cm_event_type::disconnected));
    // The event alone does not move this side's queue pair to the error state: that is what the answer is for.
    std::array<rdmaxx::wc, 4> none;
    CHECK(c.server.completions.wait_for(c.server.cq, none, 50ms).empty());

    c.server.id.disconnect();
    for (std::uint64_t i = 0; i < 3; ++i) {
        const rdmaxx::wc flushed = c.server.next();
        CHECK(flushed.status() == wc_status::wr_flush_err);
        CHECK(flushed.wr_id() == i);
        CHECK(flushed.qp_num() == c.server.qp.qp_num());
        CHECK_FALSE(flushed.is_recv());
        CHECK(flushed.opcode() == std::nullopt);
        CHECK(flushed.byte_len() == std::nullopt);
        CHECK(flushed.imm_data() == std::nullopt);
        CHECK(flushed.src_qp() == std::nullopt);
        CHECK(flushed.flags() == rdmaxx::wc_flags::none);
    }
    static_cast<void>(get(c.channel, rdmaxx::cm_event_type::disconnected));
    CHECK(c.server.qp.query().state() == rdmaxx::qp_state::err);
}

TEST_CASE_METHOD(fixture, "drain returns everything that was posted, sends and receives", "[ib][data][asan]") {
    connection c;
    rdmaxx::wr_table<int> under_way(26);
    for (int i = 0; i < 16; ++i)
        c.client.qp.post_recv(c.client.mr.sge(0, 8), under_way.enter(rdmaxx::wr_queue::recv, i).value());
    // The peer has posted no receive: rxe keeps trying, until the drain.
    for (int i = 100; i < 110; ++i)
        c.client.qp.post_send(c.client.mr.sge(0, 8), under_way.enter(rdmaxx::wr_queue::send, i).value());
    std::vector<int> sends;
    std::vector<int> receives;
    c.client.qp.drain(soon, [&](const rdmaxx::wc& done) {
        CHECK_FALSE(done.ok());
        CHECK(done.opcode() == std::nullopt); // which queue it is of only its number tells
        CHECK_FALSE(done.is_recv());
        const auto request = under_way.take(done.wr_id());
        REQUIRE(request);
        (request->queue == rdmaxx::wr_queue::recv ? receives : sends).push_back(request->value);
    });
    CHECK(under_way.count() == 0);
    REQUIRE(receives.size() == 16);
    CHECK(receives.front() == 0);
    CHECK(receives.back() == 15);
    REQUIRE(sends.size() == 10);
    CHECK(sends.front() == 100);
    CHECK(sends.back() == 109);
    CHECK(c.client.qp.query().state() == rdmaxx::qp_state::err);
    // A second one finds nothing, and is as good.
    c.client.qp.drain(soon, [](const rdmaxx::wc&) { FAIL_CHECK("nothing was posted"); });
}

TEST_CASE_METHOD(fixture, "drain gives up at its deadline with ETIMEDOUT, and can go on", "[ib][data]") {
    connection c;
    for (std::uint64_t i = 1; i <= 5; ++i)
        c.client.qp.post_recv(c.client.mr.sge(0, 8), i);
    std::size_t flushed = 0;
    const auto count = [&](const rdmaxx::wc& done) {
        if (done.wr_id() <= 5)
            ++flushed;
    };
    // Whether the kernel has flushed the queue within no time at all is up to it.
    std::error_code ec;
    c.client.qp.drain(0s, count, ec);
    CHECK((!ec || ec == std::errc::timed_out));
    c.client.qp.drain(soon, count);
    CHECK(flushed == 5);
}

TEST_CASE_METHOD(fixture, "one thread posts while another ends the connection: each request completes once",
                 "[ib][data]") {
    options how;
    how.depth = 64;
    connection c(how);
    std::atomic<bool> stop = false;
    std::uint64_t posted = 0;
    std::thread poster([&]() {
        const rdmaxx::sge piece = c.client.mr.sge(0, 8);
        send_wr write = send_wr::rdma_write(piece, c.server.mr.remote()).wr_id(1).signaled();
        while (!stop && posted < 60) { // in the error state rxe takes requests all the same, and flushes them
            if (c.client.qp.try_post_send(write) == 0)
                ++posted;
            std::this_thread::sleep_for(500us);
        }
    });
    std::this_thread::sleep_for(5ms);
    c.client.id.disconnect(); // moves the queue pair to the error state
    std::this_thread::sleep_for(5ms);
    stop = true;
    poster.join(); // drain() wants no new requests meanwhile
    std::uint64_t completed = 0;
    c.client.qp.drain(soon, [&](const rdmaxx::wc& done) {
        if (done.wr_id() == 1)
            ++completed;
    });
    CHECK(posted > 0);
    CHECK(completed == posted);
}

TEST_CASE_METHOD(fixture, "the default parameters wait for a receive that is posted late", "[ib][data][rnr]") {
    connection c;
    c.client.put("late");
    c.client.qp.post_send(c.client.mr.sge(0, 4));
    std::this_thread::sleep_for(100ms);
    c.server.qp.post_recv(c.server.mr);
    CHECK(c.client.next_ok().ok()); // about 0.7 s: rdma_cm has the receiver ask for the longest pause
    CHECK(c.server.next_ok().byte_len() == 4U);
    CHECK(c.server.text(4) == "late");
}

TEST_CASE_METHOD(fixture, "rnr_retry_count 0 is rnr_retry_exc_err at the peer's first send without a receive",
                 "[ib][data][rnr]") {
    // It is what one side demands of the other: that of connect limits the server, that of accept the client.
    options how;
    const bool by_connect = GENERATE(true, false);
    (by_connect ? how.connect : how.accept).rnr_retry_count = 0;
    connection c(how);
    end& limited = by_connect ? c.server : c.client;
    end& other = by_connect ? c.client : c.server;
    limited.qp.post_send(limited.mr.sge(0, 4));
    CHECK(limited.next().status() == wc_status::rnr_retry_exc_err);
    CHECK(limited.qp.query().attr.rnr_retry == 0);
    CHECK(other.qp.query().attr.rnr_retry == 7);
}

TEST_CASE_METHOD(fixture, "retry_count of connect is both sides', that of accept nobody's", "[ib][data]") {
    options how;
    how.connect.retry_count = 3;
    how.accept.retry_count = 2;
    connection c(how);
    CHECK(c.client.qp.query().attr.retry_cnt == 3);
    CHECK(c.server.qp.query().attr.retry_cnt == 3);
}
