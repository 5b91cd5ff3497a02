// Memory that is not a range of objects: other addresses, windows, device memory, buffers and pmr.
#include "test.hpp"

#include <rdmaxx/verbs/dm.hpp>
#include <rdmaxx/verbs/iova_mr.hpp>
#include <rdmaxx/verbs/memory_resource.hpp>

#include <array>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <vector>

#include <unistd.h>

using namespace rdmaxx;
using namespace unit;

namespace {

/// The detail of the last C call of that name.
std::string detail_of(std::string_view call) {
    std::string found;
    for (const auto& record : fake::log())
        if (record.name == call)
            found = record.detail;
    return found;
}

wc one(const cq& queue) {
    std::array<wc, 1> room;
    REQUIRE(queue.poll(room).size() == 1);
    return room[0];
}

} // namespace

// ---------------------------------------------------------------- iova_mr

TEST_CASE_METHOD(unit::test, "iova_mr: its pieces and what peers see begin at the iova", "[memory]") {
    const connection c;
    std::array<std::byte, 64> memory{};
    std::array<std::byte, 64> source{};
    source.fill(std::byte{7});
    const iova_mr region = iova_mr::reg_mr_iova(c.pd, memory, 0x10000, access::local_write | access::remote_write);
    CHECK(region.iova() == 0x10000);
    CHECK(region.length() == 64);
    CHECK(region.pd() == c.pd);
    CHECK(region.sge(8, 4).addr == 0x10008);
    CHECK(region.sge().length == 64);
    CHECK(region.sge().lkey == value(region.lkey()));
    CHECK(region.remote() == remote_buffer{0x10000, region.rkey(), 64});
    CHECK(caught([&] { static_cast<void>(region.sge(60, 5)); }).code == ERANGE);
    std::error_code ec;
    static_cast<void>(region.sge(65, 0, ec));
    CHECK(number(ec) == ERANGE);
    // It is the addresses of the wire that the device knows.
    const mr from(c.pd, source);
    const sge piece = from.sge(0, 8);
    c.client.qp().post_send(send_wr::rdma_write(piece, region.remote().part(16, 8)).signaled());
    CHECK(one(c.cq).ok());
    CHECK(memory[16] == std::byte{7});
    CHECK(memory[15] == std::byte{});
}

TEST_CASE_METHOD(unit::test, "iova_mr: a failed registration names size and limit, bad access makes no call",
                 "[memory]") {
    const opened with;
    std::array<std::byte, 64> memory{};
    fake::fail("ibv_reg_mr_iova", 1, ENOMEM);
    const caught none([&] { static_cast<void>(iova_mr::reg_mr_iova(with.pd, memory, 0x10000)); });
    CHECK(none.code == ENOMEM);
    CHECK(contains(none.what, "64 bytes, RLIMIT_MEMLOCK"));
    std::error_code ec;
    CHECK_FALSE(iova_mr::reg_mr_iova(with.pd, memory, 0x10000, access::remote_write, ec));
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(iova_mr::reg_mr_iova(pd(), memory, 0x10000, access::none, ec));
    CHECK(number(ec) == EINVAL);
    CHECK(fake::calls("ibv_reg_mr_iova") == 1);
}

TEST_CASE_METHOD(unit::test, "rereg_mr: what stays where it is gets another domain or access, and no other memory",
                 "[memory]") {
    opened with;
    std::array<std::byte, 64> memory{};
    std::array<std::byte, 64> other{};
    const auto again = [&](auto region, const auto& unmoved) {
        const pd second(with.device);
        region.rereg_mr(mr_change().pd(second).access(access::local_write | access::remote_read));
        CHECK(detail_of("ibv_rereg_mr") ==
              "flags 6, access " + std::to_string(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
        CHECK(region.pd() == second);
        CHECK(unmoved(region));
        const ibv_pd* kept = second.native_handle();
        const std::size_t calls = fake::calls("ibv_rereg_mr");
        std::error_code ec;
        region.rereg_mr(mr_change().translation(other), ec);
        CHECK(number(ec) == EINVAL);
        CHECK(caught([&] { region.rereg_mr(mr_change().translation(other).pd(with.pd)); }).code == EINVAL);
        CHECK(caught([&] { region.rereg_mr(mr_change().access(access::remote_write)); }).code == EINVAL);
        CHECK(caught([&] { region.rereg_mr(mr_change().pd(pd())); }).code == EINVAL);
        CHECK(fake::calls("ibv_rereg_mr") == calls);
        fake::fail("ibv_rereg_mr", 1, EOPNOTSUPP);
        const caught unable = caught([&] { region.rereg_mr(mr_change().access(access::local_write)); });
        CHECK(unable.code == EOPNOTSUPP);
        CHECK(unable.call == "ibv_rereg_mr");
        CHECK(contains(unable.cause, "as before"));
        CHECK(region.pd() == second);
        decltype(region)().rereg_mr(mr_change(), ec);
        CHECK(number(ec) == EINVAL);
        return std::pair(std::move(region), kept);
    };
    {
        const auto [region, domain] =
            again(iova_mr::reg_mr_iova(with.pd, memory, 0x10000), [](const iova_mr& r) { return r.iova() == 0x10000; });
        CHECK(fake::alive(domain)); // the region keeps it
        CHECK(region.remote().address == 0x10000);
    }
    {
        registered_buffer buffer(with.pd, 5000);
        const void* at = buffer.addr();
        const auto [moved, domain] =
            again(std::move(buffer), [&](const registered_buffer& r) { return r.addr() == at && r.length() == 5000; });
        CHECK(fake::alive(domain));
    }
    const ibv_pd* first = with.pd.native_handle();
    with.pd.close(); // nobody's any more
    CHECK_FALSE(fake::alive(first));
}

TEST_CASE_METHOD(unit::test, "iova_mr: of a dma-buf, of nothing, and of everything", "[memory]") {
    const opened with;
    const iova_mr of_dmabuf = iova_mr::reg_dmabuf_mr(with.pd, 4096, 100, 8192, 5, access::local_write);
    CHECK(detail_of("ibv_reg_dmabuf_mr") == "100 bytes from 4096 of fd 5");
    CHECK(of_dmabuf.remote() == remote_buffer{8192, of_dmabuf.rkey(), 100});
    CHECK(caught([&] { static_cast<void>(iova_mr::reg_dmabuf_mr(with.pd, 0, 100, 0, -1)); }).code == EBADF);

    const iova_mr null = iova_mr::alloc_null_mr(with.pd);
    CHECK(null.sge(5, 10).addr == 5);
    CHECK(null.sge(0, 10).lkey == value(null.lkey()));
    CHECK(caught([&] { static_cast<void>(null.sge()); }).code == ERANGE); // more than an SGE can say
    std::error_code ec;
    iova_mr::alloc_null_mr(with.pd).rereg_mr(mr_change().access(access::local_write), ec);
    CHECK(number(ec) == EINVAL); // C's own: it is of no memory
    fake::fail("ibv_alloc_null_mr", 1, EOPNOTSUPP);
    CHECK(caught([&] { static_cast<void>(iova_mr::alloc_null_mr(with.pd)); }).code == EOPNOTSUPP);

    const iova_mr all = iova_mr::reg_implicit(with.pd);
    std::array<int, 4> numbers{};
    CHECK(all.sge_of(numbers).addr == reinterpret_cast<std::uintptr_t>(numbers.data()));
    CHECK(all.sge_of(numbers).length == sizeof numbers);
    CHECK(fake::calls("ibv_reg_mr") == 1);
}

TEST_CASE_METHOD(unit::test, "iova_mr: one that is imported is given back, and not destroyed", "[memory]") {
    opened with;
    std::array<std::byte, 64> memory{};
    const mr region(with.pd, memory);
    const context other = context::import_device(::dup(with.device.cmd_fd()));
    {
        pd domain = pd::import_pd(other, with.pd.handle());
        CHECK(detail_of("ibv_import_pd") == "handle " + std::to_string(with.pd.native_handle()->handle));
        CHECK(domain.native_handle() != with.pd.native_handle());
        CHECK(domain.context() == other);
        const iova_mr imported = iova_mr::import_mr(domain, region.handle(), 0x1000);
        CHECK(detail_of("ibv_import_mr") == "handle " + std::to_string(region.native_handle()->handle));
        CHECK(imported.length() == 64);
        CHECK(imported.remote() == remote_buffer{0x1000, region.rkey(), 64});
        domain.close(); // only let go: the region needs it
        CHECK(fake::calls("ibv_unimport_pd") == 0);
    }
    CHECK(fake::in_order({"ibv_unimport_mr", "ibv_unimport_pd"}));
    CHECK(fake::calls("ibv_dereg_mr") == 0);
    CHECK(fake::calls("ibv_dealloc_pd") == 0);
    CHECK(fake::alive(region.native_handle()));
    CHECK(caught([&] { static_cast<void>(pd::import_pd(other, 12345)); }).code == ENOENT);
    std::error_code ec;
    CHECK_FALSE(pd::import_pd(context(), 1, ec));
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(iova_mr::import_mr(pd(), 1, 0, ec));
    CHECK(number(ec) == EINVAL);
}

TEST_CASE_METHOD(unit::test, "what is imported ends by its twin in either order, and what is made of it by its own",
                 "[memory]") {
    auto exporter = std::make_unique<opened>();
    std::array<std::byte, 64> memory{};
    auto region = std::make_unique<mr>(exporter->pd, memory);
    const context other = context::import_device(::dup(exporter->device.cmd_fd()));
    pd domain = pd::import_pd(other, exporter->pd.handle());
    iova_mr imported = iova_mr::import_mr(domain, region->handle(), 0);
    {
        const cq queue(other, 4);
        const qp made(domain, qp_init_attr(queue, 2));
        const mr own(domain, memory);
    }
    CHECK(fake::calls("ibv_dereg_mr") == 1);
    CHECK(fake::calls("ibv_destroy_qp") == 1);
    region.reset();
    exporter.reset(); // the peer ends first: what is here is still to be given back
    CHECK(fake::calls("ibv_dereg_mr") == 2);
    CHECK(fake::calls("ibv_dealloc_pd") == 1);
    imported.close();
    domain.close();
    CHECK(fake::calls("ibv_unimport_mr") == 1);
    CHECK(fake::calls("ibv_unimport_pd") == 1);
    CHECK(fake::calls("ibv_dereg_mr") == 2);
    CHECK(fake::calls("ibv_dealloc_pd") == 1);
}

TEST_CASE_METHOD(unit::test, "advise_mr: says what, and returns when it is done", "[memory]") {
    const opened with;
    std::array<std::byte, 64> memory{};
    const mr region(with.pd, memory, access::local_write | access::on_demand);
    const std::array pieces = {region.sge(0, 8), region.sge(16, 4)};
    advise_mr(with.pd, mr_advice::prefetch_write, pieces);
    CHECK(detail_of("ibv_advise_mr") == "advice 1, flags 1, 8 bytes, 4 bytes");
    std::error_code ec;
    advise_mr(with.pd, mr_advice::prefetch, std::span(pieces).first(1), false, ec);
    CHECK(!ec);
    CHECK(detail_of("ibv_advise_mr") == "advice 0, flags 0, 8 bytes");
    fake::fail("ibv_advise_mr", 1, EOPNOTSUPP);
    CHECK(caught([&] { advise_mr(with.pd, mr_advice::prefetch, pieces); }).code == EOPNOTSUPP);
    CHECK(std::string(to_string(mr_advice::prefetch_no_fault)) == "prefetch_no_fault");
}

// ---------------------------------------------------------------- dm

TEST_CASE_METHOD(unit::test, "dm: copies in and out, and stays as long as its regions", "[memory]") {
    const opened with;
    dm memory(with.device, 256, 6);
    CHECK(detail_of("ibv_alloc_dm") == "256 bytes, aligned to 2^6");
    CHECK(memory.context() == with.device);
    std::array<std::byte, 8> in{};
    std::array<std::byte, 8> out{};
    in.fill(std::byte{3});
    memory.memcpy_to_dm(16, in);
    memory.memcpy_from_dm(out, 16);
    CHECK(in == out);
    CHECK(caught([&] { memory.memcpy_to_dm(252, in); }).code == EINVAL);
    std::error_code ec;
    memory.memcpy_from_dm(out, 1000, ec);
    CHECK(number(ec) == EINVAL);

    iova_mr region = iova_mr::reg_dm_mr(with.pd, memory, 16, 64, access::local_write | access::remote_read);
    CHECK(detail_of("ibv_reg_dm_mr") ==
          "64 bytes from 16, access " +
              std::to_string(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED));
    CHECK(region.sge(4, 8).addr == 4);
    CHECK(region.remote().length == 64);
    memory.close();
    CHECK(fake::calls("ibv_free_dm") == 0);
    region.close();
    CHECK(fake::in_order({"ibv_dereg_mr", "ibv_free_dm"}));
    CHECK(caught([&] { static_cast<void>(iova_mr::reg_dm_mr(with.pd, dm(), 0, 8)); }).code == EINVAL);
    fake::fail("ibv_alloc_dm", 1, EOPNOTSUPP);
    const caught none([&] { const dm other(with.device, 64); });
    CHECK(none.code == EOPNOTSUPP);
    CHECK(none.call == "ibv_alloc_dm");
}

TEST_CASE_METHOD(unit::test, "dm: one that is imported is given back", "[memory]") {
    const opened with;
    const dm memory(with.device, 256);
    const context other = context::import_device(::dup(with.device.cmd_fd()));
    {
        const dm imported = dm::import_dm(other, memory.handle());
        CHECK(detail_of("ibv_import_dm") == "handle " + std::to_string(memory.native_handle()->handle));
        CHECK(imported.context() == other);
    }
    CHECK(fake::calls("ibv_unimport_dm") == 1);
    CHECK(fake::calls("ibv_free_dm") == 0);
    std::error_code ec;
    CHECK_FALSE(dm::import_dm(other, 999, ec));
    CHECK(number(ec) == ENOENT);
}

// ---------------------------------------------------------------- mw

TEST_CASE_METHOD(unit::test, "mw: type 1 is bound by the queue pair, and has another key then", "[memory]") {
    const connection c;
    std::array<std::byte, 64> memory{};
    std::array<std::byte, 8> source{};
    source.fill(std::byte{9});
    const mr from(c.pd, source);
    const mr region(c.pd, memory, access::local_write | access::mw_bind);
    const mw window(c.pd, mw_type::type_1);
    CHECK(window.type() == mw_type::type_1);
    CHECK(window.pd() == c.pd);
    const rkey before = window.rkey();
    const mw_bind_info part(region, 16, 8, access::remote_write);
    c.server.qp().bind_mw(window, part, 5);
    const wc bound = one(c.cq);
    CHECK(bound.wr_id() == 5);
    CHECK(bound.opcode() == wc_opcode::bind_mw);
    CHECK(window.rkey() != before);
    const sge piece = from.sge();
    c.client.qp().post_send(send_wr::rdma_write(piece, part.remote(window.rkey())).signaled());
    CHECK(one(c.cq).ok());
    CHECK(memory[16] == std::byte{9});
    std::error_code ec;
    c.server.qp().bind_mw(window, mw_bind_info(), 6, false, ec); // to nothing
    CHECK(!ec);
    CHECK(c.cq.poll(std::span<wc>()).empty());
    CHECK(c.server.qp().try_bind_mw(mw_ref(), part) == EINVAL);
    const mr closed(c.pd, memory);
    const caught refused([&] { c.server.qp().bind_mw(window, mw_bind_info(closed, 0, 8, access::remote_read)); });
    CHECK(refused.code == EINVAL);
    CHECK(refused.call == "ibv_bind_mw");
}

TEST_CASE_METHOD(unit::test, "mw: type 2 is bound and taken back by requests", "[memory]") {
    const connection c;
    std::array<std::byte, 64> memory{};
    std::array<std::byte, 8> target{};
    const mr to(c.pd, target);
    const mr region(c.pd, memory, access::local_write | access::mw_bind);
    const mw window(c.pd, mw_type::type_2);
    const rkey key = inc_rkey(window.rkey());
    CHECK((value(key) ^ value(window.rkey())) < 0x100);
    const mw_bind_info part(region, 32, 8, access::remote_read);
    c.server.qp().post_send(send_wr::bind_mw(window, key, part).wr_id(1).signaled());
    CHECK(one(c.cq).opcode() == wc_opcode::bind_mw);
    const sge piece = to.sge();
    c.client.qp().post_send(send_wr::rdma_read(piece, part.remote(key)).signaled());
    CHECK(one(c.cq).ok());
    c.server.qp().post_send(send_wr::local_inv(key).wr_id(2).signaled());
    CHECK(one(c.cq).opcode() == wc_opcode::local_inv);
    c.client.qp().post_send(send_wr::rdma_read(piece, part.remote(key)).signaled());
    CHECK(one(c.cq).status() == wc_status::rem_access_err);
}

TEST_CASE_METHOD(unit::test, "mw: a send takes the peer's key back", "[memory]") {
    const connection c;
    std::array<std::byte, 64> memory{};
    std::array<std::byte, 8> target{};
    const mr to(c.pd, target);
    const mr region(c.pd, memory, access::local_write | access::mw_bind);
    const mw window(c.pd, mw_type::type_2);
    const rkey key = inc_rkey(window.rkey());
    c.server.qp().post_send(send_wr::bind_mw(window, key, mw_bind_info(region, 0, 8, access::remote_read)).signaled());
    CHECK(one(c.cq).ok());
    c.server.qp().post_recv(region);
    const sge piece = to.sge();
    c.client.qp().post_send(send_wr::send_with_inv(piece, key));
    const wc received = one(c.cq);
    CHECK(received.is_recv());
    CHECK(has(received.flags(), wc_flags::with_inv));
    CHECK(received.raw().invalidated_rkey == value(key));
}

TEST_CASE_METHOD(unit::test, "mw: a region with a window cannot end, and a window keeps its PD", "[memory]") {
    opened with;
    std::array<std::byte, 64> memory{};
    mr region(with.pd, memory, access::local_write | access::mw_bind);
    mw window(with.pd, mw_type::type_1);
    const qp pair(with.pd, qp_init_attr(with.cq));
    pair.bind_mw(window, mw_bind_info(region, 0, 8, access::remote_read));
    CHECK(caught([&] { region.close(); }).code == EBUSY);
    CHECK(region);
    with.pd.close();
    CHECK(fake::calls("ibv_dealloc_pd") == 0);
    window.close();
    region.close();
    std::error_code ec;
    CHECK_FALSE(mw::create(pd(), mw_type::type_1, ec));
    CHECK(number(ec) == EINVAL);
    fake::fail("ibv_alloc_mw", 1, EOPNOTSUPP);
    const pd domain(with.device);
    CHECK(caught([&] { const mw other(domain, mw_type::type_2); }).call == "ibv_alloc_mw");
}

TEST_CASE_METHOD(unit::test, "mw_bind_info: lies inside its region", "[memory]") {
    const opened with;
    std::array<std::byte, 64> memory{};
    const mr region(with.pd, memory, access::local_write | access::mw_bind);
    const mw_bind_info whole(region, 0, 64, access::remote_read | access::remote_write);
    CHECK(whole.raw().mr == region.native_handle());
    CHECK(whole.raw().addr == reinterpret_cast<std::uintptr_t>(memory.data()));
    CHECK(whole.raw().length == 64);
    CHECK(whole.raw().mw_access_flags == (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE));
    CHECK(caught([&] { static_cast<void>(mw_bind_info(region, 60, 5, access::remote_read)); }).code == ERANGE);
    std::error_code ec;
    static_cast<void>(mw_bind_info::create(region, 65, 0, access::remote_read, ec));
    CHECK(number(ec) == ERANGE);
    static_cast<void>(mw_bind_info::create(mr_ref(), 0, 0, access::remote_read, ec));
    CHECK(number(ec) == EINVAL);
    const iova_mr moved = iova_mr::reg_mr_iova(with.pd, memory, 0x10000, access::local_write | access::mw_bind);
    const mw_bind_info at_iova(moved, 8, 16, access::remote_read);
    CHECK(at_iova.raw().mr == moved.native_handle());
    CHECK(at_iova.raw().addr == 0x10008);
    CHECK(at_iova.remote(rkey{3}) == remote_buffer{0x10008, rkey{3}, 16});
    CHECK(caught([&] { static_cast<void>(mw_bind_info(moved, 60, 5, access::remote_read)); }).code == ERANGE);
    static_cast<void>(mw_bind_info::create(iova_mr(), 0, 0, access::remote_read, ec));
    CHECK(number(ec) == EINVAL);
    CHECK(mw_bind_info::create(moved, 1, 2, access::remote_read, ec).raw().addr == 0x10001);
    CHECK(!ec);
    const mw_bind_info zero(region, 8, 8, access::remote_read | access::zero_based);
    CHECK(zero.remote(rkey{3}) == remote_buffer{0, rkey{3}, 8});
    CHECK(whole.remote(rkey{3}, ec).address == whole.raw().addr);
}

// ---------------------------------------------------------------- registered_buffer

TEST_CASE_METHOD(unit::test, "registered_buffer: pages of its own, registered as long as it lives", "[memory]") {
    opened with;
    registered_buffer buffer(with.pd, 5000, access::local_write | access::remote_read);
    CHECK(buffer.length() == 5000);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.addr()) % 4096 == 0);
    CHECK(detail_of("ibv_reg_mr") == "5000 bytes");
    for (const std::byte b : buffer.bytes())
        REQUIRE(b == std::byte{});
    buffer.bytes()[4999] = std::byte{1};
    CHECK(buffer.sge(4990, 10).length == 10);
    const mr_ref ref = buffer;
    CHECK(ref.rkey() == buffer.rkey());
    const qp pair(with.pd, qp_init_attr(with.cq));
    pair.modify(qp_attr(qp_state::init).pkey_index(0).port_num(1).access_flags(access::none));
    pair.post_recv(buffer);
    registered_buffer moved = std::move(buffer);
    CHECK_FALSE(buffer);
    with.pd.close();
    CHECK(fake::calls("ibv_dealloc_pd") == 0);
    moved.close();
    CHECK(fake::calls("ibv_dereg_mr") == 1);
}

TEST_CASE_METHOD(unit::test, "registered_buffer: what fails leaves nothing", "[memory]") {
    const opened with;
    fake::fail("ibv_reg_mr", 1, ENOMEM);
    const caught none([&] { const registered_buffer buffer(with.pd, 5000); });
    CHECK(none.code == ENOMEM);
    CHECK(contains(none.what, "5000 bytes, RLIMIT_MEMLOCK"));
    CHECK(caught([&] { const registered_buffer buffer(with.pd, 0); }).code == EINVAL);
    CHECK(caught([&] { const registered_buffer buffer(with.pd, 1, access::remote_write); }).code == EINVAL);
    std::error_code ec;
    CHECK_FALSE(registered_buffer::create(with.pd, ~std::size_t{0}, access::local_write, ec));
    CHECK(number(ec) == ENOMEM);
    CHECK_FALSE(registered_buffer::create(with.pd, ~std::size_t{0} / 2, access::local_write, ec));
    CHECK(number(ec) == ENOMEM);
    CHECK_FALSE(registered_buffer::create(pd(), 10, access::local_write, ec));
    CHECK(number(ec) == EINVAL);
}

TEST_CASE_METHOD(unit::test, "registered_buffer: a region that cannot end keeps its memory", "[memory]") {
    const opened with;
    registered_buffer buffer(with.pd, 64);
    const auto bytes = buffer.bytes();
    fake::fail("ibv_dereg_mr", 1, EBUSY);
    CHECK(caught([&] { buffer.close(); }).code == EBUSY);
    bytes[0] = std::byte{1}; // still mapped
    CHECK(buffer.bytes()[0] == std::byte{1});
    ibv_mr* raw = std::move(buffer).release();
    static_cast<std::byte*>(raw->addr)[1] = std::byte{2}; // the caller's now
    CHECK(::ibv_dereg_mr(raw) == 0);
    ::munmap(bytes.data(), 4096);
}

// ---------------------------------------------------------------- registered_resource

TEST_CASE_METHOD(unit::test, "registered_resource: containers whose elements can be posted", "[memory]") {
    opened with;
    registered_resource registered(with.pd, access::local_write | access::remote_write, 64 * 1024);
    CHECK(registered.buffer_count() == 0);
    with.pd.close();
    {
        std::pmr::vector<int> numbers(100, &registered);
        std::pmr::string text("a text that is too long for a string without memory of its own", &registered);
        CHECK(registered.buffer_count() == 1);
        CHECK(registered.sge(numbers).addr == reinterpret_cast<std::uintptr_t>(numbers.data()));
        CHECK(registered.sge(numbers).length == 400);
        CHECK(registered.sge(text).length == text.size());
        CHECK(registered.sge(std::span(numbers).subspan(10, 2)).length == 8);
        CHECK(registered.remote(numbers).address == registered.sge(numbers).addr);
        CHECK(value(registered.remote(numbers).rkey) != registered.sge(numbers).lkey);

        const std::pmr::vector<std::byte> large(200 * 1024, &registered); // a buffer of its own
        CHECK(registered.buffer_count() == 2);
        CHECK(registered.sge(large).length == 200 * 1024);

        std::array<int, 4> foreign{};
        CHECK(caught([&] { static_cast<void>(registered.sge(foreign)); }).code == ERANGE);
        const std::pmr::string few("few", &registered);
        CHECK(contains(caught([&] { static_cast<void>(registered.sge(few)); }).cause, "short string"));
        std::pmr::string reserved("few", &registered);
        reserved.reserve(100);
        CHECK(registered.sge(reserved).length == 3);
        const std::pmr::vector<int> empty(&registered); // which has no memory
        CHECK(registered.sge(empty).length == 0);
        CHECK(registered.remote(empty).length == 0);
        std::error_code ec;
        CHECK(registered.remote(foreign, ec) == remote_buffer{});
        CHECK(number(ec) == ERANGE);
        const auto beyond = std::span(large.data() + large.size() - 8, 4096 * 64);
        static_cast<void>(registered.sge(beyond, ec));
        CHECK(number(ec) == ERANGE);
    }
    CHECK(registered.buffer_count() == 1); // the large one is gone
    CHECK(fake::calls("ibv_dereg_mr") == 1);
}

TEST_CASE_METHOD(unit::test, "registered_resource: ends every buffer and its PD, in that order", "[memory]") {
    opened with;
    {
        registered_resource registered(with.pd, access::local_write, 8192);
        std::vector<std::pmr::vector<std::byte>> parts;
        for (std::size_t i = 1; i <= 40; ++i)
            parts.emplace_back(i * 100, &registered);
        CHECK(registered.buffer_count() > 3);
        for (const auto& part : parts)
            CHECK(registered.sge(part).length == part.size());
        with.pd.close();
        CHECK(fake::calls("ibv_dealloc_pd") == 0);
    }
    CHECK(fake::calls("ibv_dereg_mr") == fake::calls("ibv_reg_mr"));
    CHECK(fake::in_order({"ibv_dereg_mr", "ibv_dealloc_pd"}));
}

TEST_CASE_METHOD(unit::test, "registered_resource: any alignment is met, and leaves no buffer behind", "[memory]") {
    const opened with;
    constexpr std::size_t buffer_size = 64 * 1024;
    registered_resource registered(with.pd, access::local_write, buffer_size);
    const auto aligned = [&](std::size_t size, std::size_t alignment) {
        CAPTURE(size, alignment);
        void* at = registered.allocate(size, alignment);
        CHECK(reinterpret_cast<std::uintptr_t>(at) % alignment == 0);
        CHECK(registered.sge(std::span(static_cast<std::byte*>(at), size)).length == size);
        registered.deallocate(at, size, alignment);
    };
    for (int round = 0; round < 8; ++round)
        for (const std::size_t alignment : {std::size_t{64}, std::size_t{8192}, std::size_t{2} << 20})
            for (const std::size_t size : {std::size_t{100}, buffer_size - 4096, buffer_size, std::size_t{2} << 20})
                aligned(size, alignment);
    CHECK(registered.buffer_count() <= 2); // the one that the pool has chunks in, and one for what comes next
    CHECK_FALSE(registered.last_error());
    CHECK(fake::calls("ibv_reg_mr") - fake::calls("ibv_dereg_mr") == registered.buffer_count());
}

TEST_CASE_METHOD(unit::test, "registered_resource: what no memory is large enough for is bad_alloc, and says so",
                 "[memory]") {
    const opened with;
    registered_resource registered(with.pd);
    registered.deallocate(registered.allocate(100), 100);
    const std::size_t before = registered.buffer_count();
    const volatile std::size_t half = ~(~std::size_t{0} >> 1); // g++ would warn of a constant
    CHECK_THROWS_AS(registered.allocate(half, half), std::bad_alloc);
    CHECK(number(registered.last_error()) == ENOMEM);
    CHECK(registered.buffer_count() == before);
}

TEST_CASE_METHOD(unit::test, "registered_resource: memory that cannot be registered is bad_alloc, and says why",
                 "[memory]") {
    const opened with;
    registered_resource registered(with.pd);
    fake::fail("ibv_reg_mr", 1, EPERM);
    CHECK_THROWS_AS(std::pmr::vector<int>(100, &registered), std::bad_alloc);
    CHECK(number(registered.last_error()) == EPERM);
    const std::pmr::vector<int> numbers(100, &registered);
    CHECK(registered.sge(numbers).length == 400);
    CHECK(registered.is_equal(registered));
    const registered_resource other(with.pd);
    CHECK_FALSE(registered.is_equal(other));
}
