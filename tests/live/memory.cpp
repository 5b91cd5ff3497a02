// Memory that is not a range of objects: other addresses, windows, buffers with pages of their own, pmr containers, and
// what a software device has none of.
#include "live.hpp"

#include <rdmaxx/verbs/buf.hpp>
#include <rdmaxx/verbs/comp_cntr.hpp>
#include <rdmaxx/verbs/dm.hpp>
#include <rdmaxx/verbs/dmah.hpp>
#include <rdmaxx/verbs/iova_mr.hpp>
#include <rdmaxx/verbs/memory_resource.hpp>

#include <array>
#include <cstring>
#include <memory_resource>
#include <optional>

#include <unistd.h>

using namespace live;
using rdmaxx::access;
using rdmaxx::send_wr;
using rdmaxx::wc_opcode;
using rdmaxx::wc_status;

namespace {

/// What a call that the device cannot do failed with, 0 if it did not.
template <class Call>
int refusal(Call call) {
    try {
        call();
        return 0;
    } catch (const rdmaxx::error& e) {
        return e.code().value();
    }
}

/// The client reads from the server: how that ended.
wc_status read_at(connection& c, const rdmaxx::remote_buffer& from) {
    const rdmaxx::sge piece = c.client.mr.sge(0, from.length);
    c.client.qp.post_send(send_wr::rdma_read(piece, from).signaled());
    return c.client.next().status();
}

} // namespace

TEST_CASE_METHOD(fixture, "a region with another iova is reached by that, and not by its pointer", "[memory][ib]") {
    connection c;
    std::vector<std::byte> memory(8192);
    const std::uint64_t iova = 0x7000'0000'0000 + reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
    const rdmaxx::iova_mr region = rdmaxx::iova_mr::reg_mr_iova(c.local.domain, memory, iova, full_access);
    CHECK(region.iova() == iova);
    CHECK(region.length() == memory.size());
    c.client.put("by its iova");
    const rdmaxx::sge piece = c.client.mr.sge(0, 11);
    c.client.qp.post_send(send_wr::rdma_write(piece, region.remote().part(100, 11)).signaled());
    c.client.next_ok();
    CHECK(text(std::span(memory).subspan(100, 11)) == "by its iova");
    // Here as well: the server sends from it.
    c.client.qp.post_recv(c.client.mr.sge(1000, 100));
    const rdmaxx::sge answer = region.sge(103, 4);
    c.server.qp.post_send(send_wr::send(answer).signaled());
    CHECK(c.client.next_ok().byte_len() == 4U);
    CHECK(c.client.text(4, 1000) == "its ");
    CHECK(read_at(c, {reinterpret_cast<std::uintptr_t>(memory.data()), region.rkey(), 8}) == wc_status::rem_access_err);
    std::error_code ec;
    CHECK_FALSE(rdmaxx::iova_mr::reg_mr_iova(c.local.domain, memory, iova + 1, full_access, ec));
    CHECK(ec == std::errc::invalid_argument); // at another place of its page
}

// ---------------------------------------------------------------------------------------------------------------
// Windows.

TEST_CASE_METHOD(fixture, "a type 1 window shows a piece of a region, and with its next bind another",
                 "[memory][asan][ib]") {
    connection c;
    const rdmaxx::mr region(c.local.domain, c.server.memory, full_access | access::mw_bind);
    c.server.put("0123456789abcdef");
    const rdmaxx::mw window(c.local.domain, rdmaxx::mw_type::type_1);
    const rdmaxx::mw_bind_info first(region, 0, 8, access::remote_read);
    c.server.qp.bind_mw(window, first, 4);
    const rdmaxx::wc bound = c.server.next_ok();
    CHECK(bound.opcode() == wc_opcode::bind_mw);
    CHECK(bound.wr_id() == 4);
    const rdmaxx::rkey key = window.rkey();
    CHECK(read_at(c, first.remote(key)) == wc_status::success);
    CHECK(c.client.text(8) == "01234567");

    const rdmaxx::mw_bind_info second(region, 8, 8, access::remote_read);
    c.server.qp.bind_mw(window, second);
    c.server.next_ok();
    CHECK(window.rkey() != key);
    CHECK(read_at(c, second.remote(window.rkey())) == wc_status::success);
    CHECK(c.client.text(8) == "89abcdef");
    CHECK(read_at(c, first.remote(key)) == wc_status::rem_access_err); // the key before
}

TEST_CASE_METHOD(fixture, "a type 2 window is shown and taken back by requests", "[memory][ib]") {
    connection c;
    const rdmaxx::mr region(c.local.domain, c.server.memory, full_access | access::mw_bind);
    c.server.put("0123456789abcdef");
    const rdmaxx::mw window(c.local.domain, rdmaxx::mw_type::type_2);
    const rdmaxx::rkey key = inc_rkey(window.rkey());
    const rdmaxx::mw_bind_info part(region, 4, 8, access::remote_read | access::remote_write);
    c.server.qp.post_send(send_wr::bind_mw(window, key, part).wr_id(1).signaled());
    CHECK(c.server.next_ok().opcode() == wc_opcode::bind_mw);
    CHECK(read_at(c, part.remote(key)) == wc_status::success);
    CHECK(c.client.text(8) == "456789ab");
    c.server.qp.post_send(send_wr::local_inv(key).wr_id(2).signaled());
    CHECK(c.server.next_ok().opcode() == wc_opcode::local_inv);
    CHECK(read_at(c, part.remote(key)) == wc_status::rem_access_err);
}

TEST_CASE_METHOD(fixture, "a window of a region with another iova is reached by that", "[memory][ib]") {
    connection c;
    const auto in_page = reinterpret_cast<std::uintptr_t>(c.server.memory.data()) % 4096;
    const rdmaxx::iova_mr region = rdmaxx::iova_mr::reg_mr_iova(
        c.local.domain, c.server.memory, 0x7000'0000'0000 + in_page, full_access | access::mw_bind);
    c.server.put("0123456789abcdef");
    const rdmaxx::mw window(c.local.domain, rdmaxx::mw_type::type_2);
    const rdmaxx::rkey key = inc_rkey(window.rkey());
    const rdmaxx::mw_bind_info part(region, 4, 8, access::remote_read);
    c.server.qp.post_send(send_wr::bind_mw(window, key, part).signaled());
    CHECK(c.server.next_ok().opcode() == wc_opcode::bind_mw);
    CHECK(part.remote(key).address == 0x7000'0000'0000 + in_page + 4);
    CHECK(read_at(c, part.remote(key)) == wc_status::success);
    CHECK(c.client.text(8) == "456789ab");
}

TEST_CASE_METHOD(fixture, "a send takes the peer's window back, and says so there", "[memory][ib]") {
    connection c;
    const rdmaxx::mr region(c.local.domain, c.server.memory, full_access | access::mw_bind);
    const rdmaxx::mw window(c.local.domain, rdmaxx::mw_type::type_2);
    const rdmaxx::rkey key = inc_rkey(window.rkey());
    const rdmaxx::mw_bind_info part(region, 0, 8, access::remote_read);
    c.server.qp.post_send(send_wr::bind_mw(window, key, part).signaled());
    c.server.next_ok();
    c.server.qp.post_recv(c.server.mr.sge(1000, 100));
    const rdmaxx::sge piece = c.client.mr.sge(0, 4);
    c.client.qp.post_send(send_wr::send_with_inv(piece, key).signaled());
    c.client.next_ok();
    const rdmaxx::wc received = c.server.next_ok();
    // Soft-RoCE gives the kernel's number of this flag, which in libibverbs is another flag's.
    CHECK(has(received.flags(), rdmaxx::wc_flags::with_inv | rdmaxx::wc_flags::ip_csum_ok));
    CHECK(received.raw().invalidated_rkey == value(key));
    CHECK(read_at(c, part.remote(key)) == wc_status::rem_access_err);
}

TEST_CASE_METHOD(fixture, "a window outside its rights is refused, and a region without mw_bind as well",
                 "[memory][ib]") {
    connection c;
    const rdmaxx::mw window(c.local.domain, rdmaxx::mw_type::type_1);
    const rdmaxx::mr plain(c.local.domain, c.server.memory, full_access);
    std::error_code ec;
    c.server.qp.bind_mw(window, rdmaxx::mw_bind_info(plain, 0, 8, access::remote_read), 1, true, ec);
    // rdma-core asks first; where it does not, the bind completes with an error, which is not the same in all kernels.
    if (!ec)
        CHECK_FALSE(c.server.next().ok());
    else
        CHECK((ec == std::errc::invalid_argument || ec == std::errc::operation_not_permitted));
}

// ---------------------------------------------------------------------------------------------------------------
// Memory with its registration.

TEST_CASE_METHOD(fixture, "a registered buffer is a region in every use, and a forked child has its own copy",
                 "[memory][asan]") {
    connection c;
    rdmaxx::registered_buffer from(c.local.domain, 5000, access::local_write);
    rdmaxx::registered_buffer to(c.local.domain, 5000, full_access);
    std::memcpy(from.bytes().data() + 4000, "pages of its own", 16);
    c.client.qp.post_recv(to);
    const rdmaxx::sge piece = from.sge(4000, 16);
    c.server.qp.post_send(send_wr::send(piece).signaled());
    CHECK(c.client.next_ok().byte_len() == 16U);
    c.server.next_ok();
    CHECK(text(to.bytes().first(16)) == "pages of its own");

    CHECK(rdmaxx::is_fork_initialized() != rdmaxx::fork_status::disabled); // the rig's kernels copy
    CHECK(in_forked_child([&]() -> std::string {
              need(text(from.bytes().subspan(4000, 5)) == "pages", "the child's copy");
              from.bytes()[4000] = std::byte{'c'};
              from = rdmaxx::registered_buffer(); // no end for the parent's
              return "";
          }) == "");
    CHECK(text(from.bytes().subspan(4000, 5)) == "pages");
    c.client.qp.post_recv(to);
    c.server.qp.post_send(send_wr::send(piece).signaled()); // still registered
    c.server.next_ok();
    CHECK(c.client.next_ok().byte_len() == 16U);
}

TEST_CASE_METHOD(fixture, "what lies beside a registered piece of the heap is there after a fork", "[memory]") {
    const host local;
    std::vector<std::byte> memory(3 * 4096, std::byte{7});
    const auto middle = std::span(memory).subspan(5000, 64); // neither its page nor its neighbours' are its own
    const rdmaxx::mr region(local.domain, middle);
    CHECK(in_forked_child([&]() -> std::string {
              for (const std::byte b : memory)
                  need(b == std::byte{7}, "a byte of the parent's");
              memory[4999] = std::byte{8};
              return "";
          }) == "");
    CHECK(memory[4999] == std::byte{7});
}

TEST_CASE_METHOD(fixture, "containers in registered memory are sent and written to", "[memory][asan]") {
    connection c;
    rdmaxx::registered_resource registered(c.local.domain, full_access);
    {
        std::pmr::vector<int> numbers({1, 2, 3, 4}, &registered);
        std::pmr::vector<int> target(4, &registered);
        const rdmaxx::sge piece = registered.sge(numbers);
        c.client.qp.post_send(send_wr::rdma_write(piece, registered.remote(target)).signaled());
        c.client.next_ok();
        CHECK(target == numbers);
        std::pmr::string large(300'000, 'x', &registered);
        std::pmr::string larger(2'000'000, 'y', &registered);
        c.client.qp.post_send(
            send_wr::rdma_write(registered.sge(large), registered.remote(std::span(larger).subspan(10, 300'000)))
                .signaled());
        c.client.next_ok();
        CHECK(larger[9] == 'y');
        CHECK(larger[10] == 'x');
        CHECK(larger[300'009] == 'x');
        CHECK(larger[300'010] == 'y');
    }
    CHECK(registered.buffer_count() >= 1);
}

// ---------------------------------------------------------------------------------------------------------------
// On-demand paging, where the device has it: rxe of recent kernels.

TEST_CASE_METHOD(fixture, "on-demand paging moves data and takes advice, or is EINVAL where there is none",
                 "[memory]") {
    connection c;
    const rdmaxx::device_attr_ex caps = c.local.device.query_device_ex();
    std::vector<std::byte> memory(64 * 1024);
    if (!has(caps.odp(), rdmaxx::odp_general_caps::support)) {
        const int refused =
            refusal([&] { rdmaxx::mr(c.local.domain, memory, access::local_write | access::on_demand); });
        CHECK((refused == EINVAL || refused == EOPNOTSUPP)); // the latter from Linux 6.12 on
        CHECK(refusal([&] { rdmaxx::advise_mr(c.local.domain, rdmaxx::mr_advice::prefetch, {}); }) == EOPNOTSUPP);
    } else {
        CHECK(has(caps.rc_odp(), rdmaxx::odp_transport_caps::write));
        // At the start of a page: Soft-RoCE of Linux 7.2 drops the offset in the page of what it pages on demand.
        const rdmaxx::registered_buffer region(c.local.domain, 64 * 1024, full_access | access::on_demand);
        c.client.put("paged");
        const rdmaxx::sge piece = c.client.mr.sge(0, 5);
        c.client.qp.post_send(send_wr::rdma_write(piece, region.remote().part(8192, 5)).signaled());
        c.client.next_ok();
        CHECK(text(region.bytes().subspan(8192, 5)) == "paged");
        const std::array pieces = {region.sge()};
        // Software drivers that page on demand may still take no advice.
        const int advised =
            refusal([&] { rdmaxx::advise_mr(c.local.domain, rdmaxx::mr_advice::prefetch_write, pieces); });
        CHECK((advised == 0 || advised == EOPNOTSUPP));
    }
    if (!has(caps.odp(), rdmaxx::odp_general_caps::support_implicit)) {
        const int refused = refusal([&] { static_cast<void>(rdmaxx::iova_mr::reg_implicit(c.local.domain)); });
        CHECK((refused == EINVAL || refused == EOPNOTSUPP));
    }
}

TEST_CASE_METHOD(fixture, "a region is registered anew, or is as before where the device cannot", "[memory][ib]") {
    std::vector<std::byte> memory(4096);
    const auto anew = [](auto make) {
        connection c;
        auto region = make(c.local.domain);
        const std::uint64_t start = region.remote().address;
        std::error_code ec;
        region.rereg_mr(rdmaxx::mr_change().access(access::local_write | access::remote_read), ec);
        CHECK(region.length() == 4096);
        if (ec)
            CHECK(ec == std::errc::operation_not_supported);
        const rdmaxx::remote_buffer whole = region.remote();
        CHECK(whole.address == start);
        CHECK(region.sge(0, 8).lkey == value(region.lkey()));
        CHECK(read_at(c, whole.part(0, 8)) == (ec ? wc_status::rem_access_err : wc_status::success));
    };
    anew([&](const rdmaxx::pd& domain) { return rdmaxx::mr(domain, memory); });
    anew([](const rdmaxx::pd& domain) { return rdmaxx::registered_buffer(domain, 4096); });
    anew([&](const rdmaxx::pd& domain) {
        const auto in_page = reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
        return rdmaxx::iova_mr::reg_mr_iova(domain, memory, 0x7000'0000'0000 + in_page);
    });
}

// ---------------------------------------------------------------------------------------------------------------
// What a software device has none of says so, in its own words.

TEST_CASE_METHOD(fixture, "null regions, dma-bufs, device memory and imports are EOPNOTSUPP on a software device",
                 "[memory]") {
    const host local;
    std::vector<std::byte> memory(4096);
    const rdmaxx::mr region(local.domain, memory);
    CHECK(refusal([&] { static_cast<void>(rdmaxx::iova_mr::alloc_null_mr(local.domain)); }) == EOPNOTSUPP);
    CHECK(refusal([&] { rdmaxx::dm(local.device, 64); }) == EOPNOTSUPP);
    CHECK(refusal([&] { static_cast<void>(rdmaxx::pd::import_pd(local.device, local.domain.handle())); }) ==
          EOPNOTSUPP);
    CHECK(refusal([&] { static_cast<void>(rdmaxx::iova_mr::import_mr(local.domain, region.handle(), 0)); }) ==
          EOPNOTSUPP);
    CHECK(refusal([&] { static_cast<void>(rdmaxx::dm::import_dm(local.device, 1)); }) == EOPNOTSUPP);
    // Newer kernels look at the descriptor first.
    const int dmabuf = refusal([&] { static_cast<void>(rdmaxx::iova_mr::reg_dmabuf_mr(local.domain, 0, 4096, 0, 0)); });
    CHECK((dmabuf == EOPNOTSUPP || dmabuf == EINVAL || dmabuf == EBADF));
}

// ---------------------------------------------------------------------------------------------------------------
// What rdma-core 59 to 65 have added.

#if RDMAXX_HAS_RESOLVE_ADDRINFO
namespace {

// What is not there can only be named where it depends on something.
template <class Type, class>
struct depending {
    using type = Type;
};
template <class Type, class On>
using of = typename depending<Type, On>::type;

/// The client writes into a region of the server's.
void write_into(connection& c, const rdmaxx::remote_buffer& target, std::string_view what) {
    c.client.put(what);
    const rdmaxx::sge piece = c.client.mr.sge(0, what.size());
    c.client.qp.post_send(send_wr::rdma_write(piece, target).signaled());
    c.client.next_ok();
}

template <class Connection>
void into_extended_region(Connection& c) {
    if constexpr (RDMAXX_HAS_REG_MR_EX) {
        std::vector<std::byte> memory(8192);
        const std::uint64_t iova = 0x7000'0000'0000 + reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
        using region_type = of<rdmaxx::iova_mr, Connection>;
        const region_type region =
            region_type::reg_mr_ex(c.local.domain, rdmaxx::mr_init_attr(memory, full_access).iova(iova));
        CHECK(region.iova() == iova);
        write_into(c, region.remote().part(100, 8), "extended");
        CHECK(text(std::span(memory).subspan(100, 8)) == "extended");
        std::error_code ec;
        CHECK_FALSE(region_type::reg_mr_ex(c.local.domain, rdmaxx::mr_init_attr(0, 0, 4096), ec)); // of a dma-buf
        CHECK(ec);
    }
}

template <class Connection>
void into_allocated_buffer(Connection& c) {
    if constexpr (RDMAXX_HAS_BUF) {
        of<rdmaxx::buf, Connection> memory(c.local.domain, 8192);
        CHECK(memory.bytes().size() == 8192);
        const auto bytes = memory.bytes();
        rdmaxx::mr whole = memory.reg_mr(full_access);
        write_into(c, whole.remote().part(5000, 9), "allocated");
        CHECK(text(bytes.subspan(5000, 9)) == "allocated");
        const rdmaxx::mr part = memory.reg_mr(4096, 64, full_access);
        CHECK(part.addr() == bytes.data() + 4096);
        write_into(c, part.remote().part(60, 4), "part");
        CHECK(text(bytes.subspan(4156, 4)) == "part");
        using region_type = of<rdmaxx::iova_mr, Connection>;
        const region_type with_all =
            region_type::reg_mr_ex(c.local.domain, rdmaxx::mr_init_attr(bytes, full_access).buf(memory));
        memory.close(); // its regions keep it
        whole.close();
        write_into(c, with_all.remote().part(0, 4), "both");
        CHECK(text(bytes.first(4)) == "both");
        if constexpr (RDMAXX_HAS_BUF_DMABUF) {
            const of<rdmaxx::buf, Connection> other(c.local.domain, 4096);
            const int refused = refusal([&] { static_cast<void>(other.export_dmabuf_fd()); });
            CHECK((refused == ENODATA || refused == EOPNOTSUPP)); // it is memory of the process
        }
    }
}

template <class Host>
void refused_by_software(const Host& local) {
    if constexpr (RDMAXX_HAS_DMAH)
        CHECK(refusal([&] { of<rdmaxx::dmah, Host>(local.device, rdmaxx::dmah_init_attr().cpu_id(0)); }) == EOPNOTSUPP);
    if constexpr (RDMAXX_HAS_QUERY_PORT_SPEED)
        CHECK(refusal([&] { static_cast<void>(local.device.query_port_speed(1)); }) == EOPNOTSUPP);
    if constexpr (RDMAXX_HAS_COMP_CNTR) {
        using counter = of<rdmaxx::comp_cntr, Host>;
        CHECK(refusal([&] { static_cast<void>(counter::query_caps(local.device)); }) == EOPNOTSUPP);
        CHECK(refusal([&] { counter(local.device, rdmaxx::comp_cntr_type::bytes); }) == EOPNOTSUPP);
    }
}

} // namespace

TEST_CASE_METHOD(fixture, "data arrives in regions of reg_mr_ex, and in buffers that libibverbs allocates",
                 "[memory][data][60]") {
    connection c;
    into_extended_region(c);
    into_allocated_buffer(c);
}

TEST_CASE_METHOD(fixture, "DMA handles, speeds of bonds and completion counters are EOPNOTSUPP on a software device",
                 "[memory][errors][60]") {
    const host local;
    refused_by_software(local);
}
#endif
