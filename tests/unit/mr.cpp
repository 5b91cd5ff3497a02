// Memory regions, and what names a piece of one.
#include "test.hpp"

#include <array>
#include <limits>
#include <vector>

using namespace rdmaxx;
using namespace unit;

namespace {

constexpr std::size_t four_gib = std::size_t{1} << 32U;

/// The fake looks at no memory when it registers some.
std::span<std::byte> pretend(std::byte* at, std::size_t size) {
    return {at, size};
}

} // namespace

TEST_CASE_METHOD(unit::test, "mr: registers the bytes of a range", "[mr]") {
    const opened with;
    std::array<std::uint32_t, 16> numbers{};
    const mr region(with.pd, numbers);
    CHECK(region.addr() == numbers.data());
    CHECK(region.length() == sizeof numbers);
    CHECK(region.bytes().data() == reinterpret_cast<std::byte*>(numbers.data()));
    CHECK(region.bytes().size() == sizeof numbers);
    CHECK(region.pd() == with.pd);
    CHECK(value(region.lkey()) == region.native_handle()->lkey);
    CHECK(value(region.rkey()) == region.native_handle()->rkey);
    std::vector<char> text(10);
    const mr of_vector(with.pd, text);
    CHECK(of_vector.length() == 10);
    char array[7] = {};
    const mr of_array(with.pd, array);
    CHECK(of_array.length() == 7);
    const mr of_span(with.pd, std::span(text).subspan(2, 3));
    CHECK(of_span.addr() == text.data() + 2);
    const mr_ref ref = region;
    CHECK(ref.length() == region.length());
}

TEST_CASE_METHOD(unit::test, "mr: sge() names pieces that lie inside", "[mr]") {
    const opened with;
    std::array<std::byte, 100> memory{};
    const mr region(with.pd, memory);
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    struct row {
        std::size_t offset;
        std::size_t length;
        bool good;
    };
    for (const row& r : {row{0, 100, true}, row{0, 0, true}, row{100, 0, true}, row{99, 1, true}, row{10, 90, true},
                         row{0, 101, false}, row{100, 1, false}, row{101, 0, false}, row{50, 51, false},
                         row{most, 1, false}, row{1, most, false}, row{most, most, false}, row{50, most - 49, false}}) {
        CAPTURE(r.offset, r.length);
        std::error_code ec;
        const sge piece = region.sge(r.offset, r.length, ec);
        CHECK(number(ec) == (r.good ? 0 : ERANGE));
        const caught thrown([&] { static_cast<void>(region.sge(r.offset, r.length)); });
        CHECK(thrown.code == (r.good ? 0 : ERANGE));
        if (r.good) {
            CHECK(piece.addr == reinterpret_cast<std::uintptr_t>(memory.data()) + r.offset);
            CHECK(piece.length == r.length);
            CHECK(piece.lkey == value(region.lkey()));
        } else {
            CHECK((piece.addr == 0 && piece.length == 0 && piece.lkey == 0));
            CHECK(contains(thrown.cause, "inside"));
        }
    }
    CHECK(region.sge().length == 100);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    CHECK(region.sge(ec).length == 100);
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "mr: an SGE says 4 GiB - 1 and not 4 GiB", "[mr]") {
    const opened with;
    std::array<std::byte, 8> memory{};
    const mr fits(with.pd, pretend(memory.data(), four_gib - 1));
    CHECK(fits.sge().length == 0xffffffffU);
    CHECK(fits.remote().length == 0xffffffffU);
    const mr region(with.pd, pretend(memory.data(), four_gib));
    const caught whole([&] { static_cast<void>(region.sge()); });
    CHECK(whole.code == ERANGE);
    CHECK(contains(whole.cause, "4 GiB - 1"));
    std::error_code ec;
    CHECK(region.sge(ec).length == 0);
    CHECK(number(ec) == ERANGE);
    const caught remote([&] { static_cast<void>(region.remote()); });
    CHECK(remote.code == ERANGE);
    CHECK(region.remote(ec) == remote_buffer{});
    CHECK(number(ec) == ERANGE);
    // Its parts can be said, also behind the first 4 GiB.
    CHECK(region.sge(1, four_gib - 1).length == 0xffffffffU);
    const mr larger(with.pd, pretend(memory.data(), 2 * four_gib));
    CHECK(larger.sge(four_gib + 5, 6).addr == reinterpret_cast<std::uintptr_t>(memory.data()) + four_gib + 5);
    CHECK(caught([&] { static_cast<void>(larger.sge(1, four_gib)); }).code == ERANGE);
}

TEST_CASE_METHOD(unit::test, "mr: remote() gives the rkey, sge() the lkey", "[mr]") {
    const opened with;
    std::array<std::byte, 64> memory{};
    const mr region(with.pd, memory, access::local_write | access::remote_write);
    REQUIRE(value(region.lkey()) != value(region.rkey()));
    CHECK(region.sge().lkey == region.native_handle()->lkey);
    const remote_buffer remote = region.remote();
    CHECK(value(remote.rkey) == region.native_handle()->rkey);
    CHECK(remote.address == reinterpret_cast<std::uintptr_t>(memory.data()));
    CHECK(remote.length == 64);
}

TEST_CASE_METHOD(unit::test, "mr: access that writes from afar needs local_write: EINVAL, without a C call", "[mr]") {
    const opened with;
    std::array<std::byte, 64> memory{};
    const auto bad = GENERATE(access::remote_write, access::remote_atomic, access::remote_read | access::remote_write);
    const std::size_t before = fake::calls();
    const caught refused([&] { const mr region(with.pd, memory, bad); });
    CHECK(refused.code == EINVAL);
    CHECK(refused.call == "ibv_reg_mr");
    CHECK(contains(refused.cause, "need local_write"));
    CHECK(contains(diagnose(*refused.error), "need local_write"));
    std::error_code ec;
    CHECK_FALSE(mr::create(with.pd, memory, bad, ec));
    CHECK(number(ec) == EINVAL);
    CHECK(fake::calls() == before);
    CHECK(mr::create(with.pd, memory, bad | access::local_write, ec));
    CHECK(!ec);
}

TEST_CASE_METHOD(unit::test, "mr: memory that cannot be written is registered for reading", "[mr]") {
    const opened with;
    static constexpr std::array<std::byte, 64> constant{};
    const mr region(with.pd, constant);
    CHECK(region.length() == 64);
    const mr shared(with.pd, constant, access::remote_read);
    std::error_code ec;
    const std::vector<int> numbers(4);
    CHECK(mr::create(with.pd, numbers, access::none, ec));
    CHECK(!ec);
    const mr of_span(with.pd, std::as_bytes(std::span(numbers)), access::remote_read);
    CHECK(of_span.length() == 16);
}

TEST_CASE_METHOD(unit::test, "mr: a remote write to a region without remote_write fails at the peer", "[mr]") {
    connection c;
    std::array<std::byte, 64> memory{};
    const mr region(c.pd, memory);
    const rdmaxx::access flags = GENERATE(access::local_write, access::local_write | access::remote_read,
                                          access::local_write | access::remote_write);
    const mr target(c.pd, memory, flags);
    const sge piece = region.sge();
    c.client.qp().post_send(send_wr::rdma_write(piece, target.remote()).signaled());
    std::array<wc, 4> room;
    const auto done = c.cq.poll(room);
    REQUIRE_FALSE(done.empty());
    CHECK(done[0].ok() == has(flags, access::remote_write));
}

TEST_CASE_METHOD(unit::test, "mr: ENOMEM is explained by the limit of locked memory, EFAULT by the pages", "[mr]") {
    const opened with;
    std::array<std::byte, 64> memory{};
    fake::fail("ibv_reg_mr", 1, ENOMEM);
    const caught none([&] { const mr region(with.pd, memory); });
    CHECK(none.code == ENOMEM);
    CHECK(contains(none.what, "ibv_reg_mr 64 bytes, RLIMIT_MEMLOCK "));
    CHECK(contains(diagnose(*none.error), "RLIMIT_MEMLOCK"));
    fake::fail("ibv_reg_mr", 1, EFAULT);
    const caught fault([&] { const mr region(with.pd, memory); });
    CHECK(fault.code == EFAULT);
    CHECK(contains(fault.what, "ibv_reg_mr 64 bytes: "));
    CHECK(contains(diagnose(*fault.error), "not mapped"));
}

TEST_CASE_METHOD(unit::test, "mr: rereg_mr changes what is named, and keeps the new domain", "[mr]") {
    std::array<std::byte, 64> memory{};
    std::array<std::byte, 32> other{};
    opened with;
    pd second(with.device);
    mr region(with.pd, memory);
    region.rereg_mr(mr_change().translation(other));
    CHECK(region.addr() == other.data());
    CHECK(region.length() == 32);
    CHECK(region.pd() == with.pd);
    const pd_ref kept = second;
    region.rereg_mr(mr_change().pd(second).access(access::local_write | access::remote_read));
    CHECK(region.pd() == kept);
    second.close();
    CHECK(fake::alive(kept.native_handle()));
    const ibv_pd* first = with.pd.native_handle();
    with.pd.close(); // no longer the region's
    CHECK_FALSE(fake::alive(first));
    region.close();
    CHECK_FALSE(fake::alive(kept.native_handle()));
}

TEST_CASE_METHOD(unit::test, "mr: rereg_mr gives a range of const objects no access that writes", "[mr]") {
    const opened with;
    static constexpr std::array<std::byte, 64> constant{};
    std::array<std::byte, 64> writable{};
    std::error_code ec;
    const auto is_kept = [&](mr region) {
        const std::size_t before = fake::calls();
        const caught refused([&] { region.rereg_mr(mr_change().access(access::local_write)); });
        CHECK(refused.code == EINVAL);
        CHECK(contains(refused.cause, "const"));
        region.rereg_mr(mr_change().access(access::local_write | access::remote_write), ec);
        CHECK(number(ec) == EINVAL);
        CHECK(fake::calls() == before);
        region.rereg_mr(mr_change().access(access::remote_read));
        region.rereg_mr(mr_change().translation(writable).access(access::local_write));
        region.rereg_mr(mr_change().access(access::local_write | access::remote_write));
    };
    is_kept(mr(with.pd, constant));
    is_kept(mr::create(with.pd, constant, access::none, ec));
}

TEST_CASE_METHOD(unit::test, "mr: rereg_mr says what became of the region", "[mr]") {
    std::array<std::byte, 64> memory{};
    const opened with;
    mr region(with.pd, memory);
    const auto tried = [&](const mr_change& change) {
        return caught([&] { region.rereg_mr(change); });
    };
    const caught nowhere = tried(mr_change().translation(std::span(memory).first(0)));
    CHECK(nowhere.code == EINVAL);
    CHECK(nowhere.cause == "the region is as before");
    CHECK(contains(tried(mr_change().access(access::remote_write)).cause, "local_write"));
    CHECK(contains(tried(mr_change().pd(pd())).cause, "empty PD"));
    fake::fail("ibv_rereg_mr").with(ENOMEM).returning(IBV_REREG_MR_ERR_DONT_FORK_NEW);
    const caught advised = tried(mr_change().translation(memory));
    CHECK(advised.code == ENOMEM);
    CHECK(contains(advised.cause, "the region is as before"));
    CHECK(contains(advised.what, "ibv_rereg_mr 64 bytes, RLIMIT_MEMLOCK "));
    std::error_code ec;
    region.rereg_mr(mr_change(), ec);
    CHECK(!ec);
    fake::fail("ibv_rereg_mr", 1, EIO);
    CHECK(contains(tried(mr_change().access(access::local_write)).cause, "only be closed"));
    fake::fail("ibv_rereg_mr", 1, EOPNOTSUPP);
    const caught unable = tried(mr_change().access(access::local_write));
    CHECK(unable.code == EOPNOTSUPP);
    CHECK(contains(unable.cause, "as before"));
    CHECK(caught([&] { mr().rereg_mr(mr_change()); }).code == EINVAL);
    CHECK(fake::calls("ibv_rereg_mr") == 5);
}

// ---------------------------------------------------------------- remote_buffer

TEST_CASE_METHOD(unit::test, "remote_buffer: goes to 16 bytes in network byte order, and back", "[mr]") {
    constexpr remote_buffer buffer{0x0102030405060708, rkey{0x090a0b0c}, 0x0d0e0f10};
    std::array<std::byte, remote_buffer::wire_size> bytes{};
    buffer.to_bytes(bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        CHECK(bytes[i] == static_cast<std::byte>(i + 1));
    CHECK(remote_buffer::from_bytes(bytes) == buffer);
    constexpr bool constant = [] {
        std::array<std::byte, 16> b{};
        remote_buffer{~std::uint64_t{0}, rkey{1}, 2}.to_bytes(b);
        return remote_buffer::from_bytes(b) == remote_buffer{~std::uint64_t{0}, rkey{1}, 2};
    }();
    static_assert(constant);
    CHECK(remote_buffer{} != buffer);
}

TEST_CASE_METHOD(unit::test, "remote_buffer: part() lies inside", "[mr]") {
    constexpr remote_buffer buffer{1000, rkey{7}, 100};
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    struct row {
        std::size_t offset;
        std::size_t size;
        bool good;
    };
    for (const row& r : {row{0, 100, true}, row{100, 0, true}, row{40, 60, true}, row{0, 101, false},
                         row{101, 0, false}, row{40, 61, false}, row{most, 1, false}, row{1, most, false},
                         row{four_gib, 1, false}, row{0, four_gib, false}}) {
        CAPTURE(r.offset, r.size);
        std::error_code ec;
        const remote_buffer part = buffer.part(r.offset, r.size, ec);
        CHECK(number(ec) == (r.good ? 0 : ERANGE));
        CHECK(caught([&] { static_cast<void>(buffer.part(r.offset, r.size)); }).code == (r.good ? 0 : ERANGE));
        if (r.good)
            CHECK(part == remote_buffer{1000 + r.offset, rkey{7}, static_cast<std::uint32_t>(r.size)});
        else
            CHECK(part == remote_buffer{});
    }
}
