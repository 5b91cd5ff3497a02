// Work completions: what may be read of one, and what may not.
#include "test.hpp"

#include <tuple>

#include <cstring>

#include <arpa/inet.h>

using namespace rdmaxx;
using namespace unit;

namespace {

/// As devices leave it: the fields that do not count hold anything.
ibv_wc garbage() {
    ibv_wc raw;
    std::memset(&raw, 0xA5, sizeof raw);
    return raw;
}

wc completion(wc_status status, int opcode, unsigned flags = 0) {
    ibv_wc raw = garbage();
    raw.wr_id = 42;
    raw.status = static_cast<ibv_wc_status>(status);
    raw.qp_num = 17;
    std::memcpy(&raw.opcode, &opcode, sizeof opcode);
    raw.wc_flags = flags;
    raw.byte_len = 100;
    raw.imm_data = htonl(0x12345678);
    raw.src_qp = 99;
    return wc(raw);
}

} // namespace

TEST_CASE_METHOD(unit::test, "wc: a failed completion has a wr_id, a status, a queue pair and a vendor error, no more",
                 "[wc]") {
    const auto status = static_cast<wc_status>(GENERATE(range(1, 22)));
    // A send's opcode on a receive and the reverse, and whatever else was there.
    const int opcode = GENERATE(as<int>{}, IBV_WC_SEND, IBV_WC_RECV, IBV_WC_RDMA_READ, IBV_WC_RECV_RDMA_WITH_IMM, -1);
    const wc failed = completion(status, opcode, IBV_WC_WITH_IMM | IBV_WC_GRH);
    CAPTURE(to_string(status));
    CHECK_FALSE(failed.ok());
    CHECK(failed.status() == status);
    CHECK(failed.wr_id() == 42);
    CHECK(failed.qp_num() == 17);
    CHECK(failed.vendor_err() == 0xA5A5A5A5);
    CHECK_FALSE(failed.opcode());
    CHECK_FALSE(failed.is_recv());
    CHECK_FALSE(failed.byte_len());
    CHECK_FALSE(failed.imm_data());
    CHECK_FALSE(failed.src_qp());
    CHECK_FALSE(failed.slid());
    CHECK_FALSE(failed.sl());
    CHECK_FALSE(failed.dlid_path_bits());
    CHECK(failed.flags() == wc_flags::none);
    CHECK(failed.raw().byte_len == 100); // for who insists
}

TEST_CASE_METHOD(unit::test, "wc: why one failed, as a code and as an exception", "[wc]") {
    const wc good = completion(wc_status::success, IBV_WC_SEND);
    CHECK_FALSE(good.code());
    CHECK(good.code().message() == "no error");
    CHECK_NOTHROW(good.check());

    const wc failed = completion(wc_status::rnr_retry_exc_err, IBV_WC_SEND);
    CHECK(failed.code() == std::error_code(IBV_WC_RNR_RETRY_EXC_ERR, wc_category()));
    try {
        failed.check();
        FAIL("no exception");
    } catch (const error& e) {
        CHECK(e.code() == failed.code());
        CHECK(std::string(e.call()) == "ibv_poll_cq");
        CHECK(std::string(e.what()) == "ibv_poll_cq request 42 of queue pair 17: the peer had no receive posted");
        CHECK(contains(diagnose(e), "Post receives"));
    }
    for (const auto status :
         {wc_status::loc_len_err, wc_status::loc_qp_op_err, wc_status::loc_prot_err, wc_status::wr_flush_err,
          wc_status::mw_bind_err, wc_status::loc_access_err, wc_status::rem_inv_req_err, wc_status::rem_access_err,
          wc_status::rem_op_err, wc_status::retry_exc_err})
        CHECK_FALSE(diagnose(completion(status, IBV_WC_SEND).code(), "ibv_poll_cq").empty());
    CHECK(contains(diagnose(completion(wc_status::retry_exc_err, IBV_WC_SEND).code(), ""), "4791"));
    CHECK(contains(diagnose(completion(wc_status::rem_access_err, IBV_WC_SEND).code(), ""), "rkey"));
    CHECK(contains(diagnose(completion(wc_status::mw_bind_err, IBV_WC_SEND).code(), ""), "mw_bind"));
    CHECK(contains(diagnose(completion(wc_status::loc_prot_err, IBV_WC_SEND).code(), ""), "lkey"));
    CHECK(diagnose(completion(wc_status::general_err, IBV_WC_SEND).code(), "ibv_poll_cq").empty());
    const wc newer = completion(static_cast<wc_status>(77), IBV_WC_SEND);
    CHECK(newer.code().message() == "ibv_wc status 77");
    CHECK_THROWS_AS(newer.check(), error);
}

TEST_CASE_METHOD(unit::test, "wc: flushed requests of a queue pair tell nothing but their wr_id", "[wc]") {
    connection c;
    std::array<std::byte, 64> memory{};
    const mr region(c.pd, memory);
    fake::set().hold_data_path = true;
    c.client.qp().post_send(region, 1);
    c.client.qp().post_recv(region, 2);
    c.client.qp().modify(qp_attr(qp_state::err));
    std::array<wc, 4> room;
    const auto done = c.cq.poll(room);
    REQUIRE(done.size() == 2);
    for (const wc& failed : done) {
        CHECK(failed.status() == wc_status::wr_flush_err);
        CHECK_FALSE(failed.opcode());
        CHECK_FALSE(failed.is_recv());
    }
    CHECK(done[0].wr_id() + done[1].wr_id() == 3);
}

TEST_CASE_METHOD(unit::test, "wc: opcode, direction and length of one that succeeded", "[wc]") {
    struct row {
        wc_opcode opcode;
        bool recv;
        bool length;
    };
    const row row = GENERATE(values<struct row>({
        {wc_opcode::send, false, false},
        {wc_opcode::rdma_write, false, false},
        {wc_opcode::rdma_read, false, true},
        {wc_opcode::comp_swap, false, true},
        {wc_opcode::fetch_add, false, true},
        {wc_opcode::bind_mw, false, false},
        {wc_opcode::local_inv, false, false},
        {wc_opcode::recv, true, true},
        {wc_opcode::recv_rdma_with_imm, true, true},
    }));
    CAPTURE(to_string(row.opcode));
    const wc done = completion(wc_status::success, static_cast<int>(row.opcode));
    CHECK(done.ok());
    CHECK(done.opcode() == row.opcode);
    CHECK(done.is_recv() == row.recv);
    CHECK(done.byte_len().has_value() == row.length);
    if (row.length)
        CHECK(done.byte_len() == 100U);
    CHECK(done.src_qp().has_value() == row.recv);
    CHECK(done.slid().has_value() == row.recv);
    CHECK(done.sl().has_value() == row.recv);
    CHECK(done.dlid_path_bits().has_value() == row.recv);
}

TEST_CASE_METHOD(unit::test, "wc: immediate data is in host byte order, and there only where it came", "[wc]") {
    CHECK(completion(wc_status::success, IBV_WC_RECV, IBV_WC_WITH_IMM).imm_data() == 0x12345678U);
    CHECK(completion(wc_status::success, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM).imm_data() == 0x12345678U);
    CHECK_FALSE(completion(wc_status::success, IBV_WC_RECV).imm_data());
    CHECK_FALSE(completion(wc_status::success, IBV_WC_RECV, IBV_WC_WITH_INV).imm_data());
    CHECK_FALSE(completion(wc_status::success, IBV_WC_SEND, IBV_WC_WITH_IMM).imm_data()); // stale flag of a send
}

TEST_CASE_METHOD(unit::test, "wc: flags of one that succeeded", "[wc]") {
    const wc done = completion(wc_status::success, IBV_WC_RECV, IBV_WC_GRH | IBV_WC_WITH_IMM);
    CHECK(has(done.flags(), wc_flags::grh));
    CHECK(has(done.flags(), wc_flags::with_imm));
    CHECK_FALSE(has(done.flags(), wc_flags::with_inv));
    CHECK(done.src_qp() == 99U);
}

TEST_CASE_METHOD(unit::test, "wc: an opcode or a status of a newer library passes through", "[wc]") {
    const wc done = completion(wc_status::success, 120);
    CHECK(static_cast<int>(*done.opcode()) == 120);
    CHECK(std::string(to_string(*done.opcode())) == "unknown");
    CHECK(std::string(to_string(static_cast<wc_status>(99))) == "unknown");
    for (int i = 0; i < 22; ++i)
        CHECK(std::string(to_string(static_cast<wc_status>(i))) != "unknown");
    CHECK(std::string(to_string(wc_status::rnr_retry_exc_err)) == "rnr_retry_exc_err");
    CHECK(std::string(to_string(wc_opcode::recv_rdma_with_imm)) == "recv_rdma_with_imm");
}

TEST_CASE_METHOD(unit::test, "wc: room for completions costs what C's does, and its C struct can be written", "[wc]") {
    static_assert(std::is_trivially_default_constructible_v<wc>);
    wc done{};
    CHECK(done.ok());
    CHECK(done.wr_id() == 0);
    done.raw().wr_id = 8;
    CHECK(done.wr_id() == 8);
}

TEST_CASE_METHOD(unit::test, "wc: operations on tagged receives are no receives", "[wc]") {
    ibv_wc raw{};
    raw.status = IBV_WC_SUCCESS;
    for (const auto& [opcode, is_recv, name] : {std::tuple{IBV_WC_TM_ADD, false, "tm_add"},
                                                {IBV_WC_TM_DEL, false, "tm_del"},
                                                {IBV_WC_TM_SYNC, false, "tm_sync"},
                                                {IBV_WC_TM_RECV, true, "tm_recv"},
                                                {IBV_WC_TM_NO_TAG, true, "tm_no_tag"},
                                                {IBV_WC_RECV, true, "recv"},
                                                {IBV_WC_RECV_RDMA_WITH_IMM, true, "recv_rdma_with_imm"},
                                                {IBV_WC_SEND, false, "send"}}) {
        raw.opcode = opcode;
        const wc completion(raw);
        CHECK(completion.is_recv() == is_recv);
        CHECK(completion.byte_len().has_value() == is_recv);
        CHECK(std::string(to_string(*completion.opcode())) == name);
    }
    CHECK(std::string(to_string(static_cast<wc_status>(IBV_WC_TM_ERR))) == "tm_err");
    CHECK(std::string(to_string(static_cast<wc_status>(IBV_WC_TM_RNDV_INCOMPLETE))) == "tm_rndv_incomplete");
    static_assert(is_qpt_supported(1U << IBV_QPT_RAW_PACKET, qp_type::raw_packet));
    static_assert(!is_qpt_supported(1U << IBV_QPT_RAW_PACKET, qp_type::ud));
    static_assert(!is_qpt_supported(~0U, qp_type::driver)); // no bit of 32 is its
}
