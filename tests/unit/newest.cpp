// What rdma-core 59 to 65 have added: there where the headers have it, and not there to call where they have not.
#include "test.hpp"

#include <rdmaxx/verbs/buf.hpp>
#include <rdmaxx/verbs/comp_cntr.hpp>
#include <rdmaxx/verbs/dm.hpp>
#include <rdmaxx/verbs/dmah.hpp>
#include <rdmaxx/verbs/iova_mr.hpp>

#include <array>

#include <unistd.h>

using namespace rdmaxx;
using namespace unit;

// The fake has what the headers have, and RDMAXX_HAS_... says so.
static_assert(RDMAXX_HAS_DMAH == (FAKE_HAS_DMAH == 1) && RDMAXX_HAS_REG_MR_EX == (FAKE_HAS_DMAH == 1));
static_assert(RDMAXX_HAS_QUERY_PORT_SPEED == (FAKE_HAS_QUERY_PORT_SPEED == 1));
static_assert(RDMAXX_HAS_DM_DMABUF == (FAKE_HAS_QUERY_PORT_SPEED == 1));
static_assert(RDMAXX_HAS_BUF == (FAKE_HAS_BUF == 1));
static_assert(RDMAXX_HAS_COMP_CNTR == (FAKE_HAS_COMP_CNTR == 1));
static_assert(RDMAXX_HAS_BUF_DMABUF == (FAKE_HAS_COMP_CNTR == 1));

// What a version lacks is not there to call.
template <class Context>
concept tells_speed = requires(const Context& device) {
    device.query_port_speed(1);
};
static_assert(tells_speed<context> == RDMAXX_HAS_QUERY_PORT_SPEED);
static_assert(std::is_constructible_v<dmah, context&, dmah_init_attr> == RDMAXX_HAS_DMAH);
static_assert(std::is_constructible_v<buf, pd&, std::size_t> == RDMAXX_HAS_BUF);
static_assert(std::is_constructible_v<comp_cntr, context&> == RDMAXX_HAS_COMP_CNTR);
static_assert(!std::is_convertible_v<context&, comp_cntr>);

namespace {

[[maybe_unused]] std::string detail_of(std::string_view call) {
    std::string found;
    for (const auto& record : fake::log())
        if (record.name == call)
            found = record.detail;
    return found;
}

// Templates, since what is not there can only be named where it depends on something.
template <class Type, class>
struct depending {
    using type = Type;
};
template <class Type, class On>
using of = typename depending<Type, On>::type;

template <class Opened>
void port_speed(const Opened& with) {
    if constexpr (RDMAXX_HAS_QUERY_PORT_SPEED) {
        CHECK(with.device.query_port_speed(1) == 400'000);
        CHECK(caught([&] { static_cast<void>(with.device.query_port_speed(2)); }).code == EINVAL);
        std::error_code ec;
        CHECK(with.device.query_port_speed(1, ec) == 400'000);
        const of<dm, Opened> memory(with.device, 64);
        const int fd = memory.export_dmabuf_fd();
        CHECK(::close(fd) == 0);
        fake::fail("ibv_dm_export_dmabuf_fd", 1, EOPNOTSUPP);
        CHECK(memory.export_dmabuf_fd(ec) == -1);
        CHECK(number(ec) == EOPNOTSUPP);
    }
}

template <class Opened>
void dma_handles(Opened& with) {
    if constexpr (RDMAXX_HAS_DMAH) {
        std::array<std::byte, 64> memory{};
        of<dmah, Opened> hints(with.device, dmah_init_attr().cpu_id(3).ph(2).tph_mem_type(tph_mem_type::pm));
        CHECK(detail_of("ibv_alloc_dmah") == "mask 7, cpu 3, ph 2, memory 1");
        using region_type = of<iova_mr, Opened>;
        region_type region = region_type::reg_mr_ex(with.pd, mr_init_attr(memory).iova(0x10000).dmah(hints));
        CHECK(detail_of("ibv_reg_mr_ex") == "mask 19, 64 bytes");
        CHECK(region.remote() == remote_buffer{0x10000, region.rkey(), 64});
        hints.close();
        CHECK(fake::calls("ibv_dealloc_dmah") == 0);
        region.close();
        CHECK(fake::in_order({"ibv_dereg_mr", "ibv_dealloc_dmah"}));
        std::error_code ec;
        const region_type of_fd = region_type::reg_mr_ex(with.pd, mr_init_attr(5, 8192, 100), ec);
        CHECK(detail_of("ibv_reg_mr_ex") == "mask 13, 100 bytes from 8192 of fd 5");
        CHECK(of_fd.iova() == 8192);
        fake::fail("ibv_reg_mr_ex", 1, ENOMEM);
        const caught none([&] { static_cast<void>(region_type::reg_mr_ex(with.pd, mr_init_attr(memory))); });
        CHECK(contains(none.what, "ibv_reg_mr_ex 64 bytes, RLIMIT_MEMLOCK"));
        fake::fail("ibv_alloc_dmah", 1, EOPNOTSUPP);
        CHECK_FALSE(of<dmah, Opened>::create(with.device, dmah_init_attr(), ec));
        CHECK(number(ec) == EOPNOTSUPP);
    }
}

template <class Opened>
void buffers(Opened& with) {
    if constexpr (RDMAXX_HAS_BUF) {
        using buf_type = of<buf, Opened>;
        buf_type memory(with.pd, 4096);
        CHECK(memory.bytes().size() == 4096);
        memory.bytes()[4095] = std::byte{1};
        mr region = memory.reg_mr(access::local_write | access::remote_read);
        CHECK(region.pd() == with.pd);
        CHECK(region.addr() == memory.bytes().data());
        CHECK(region.length() == 4096);
        memory.close();
        CHECK(fake::calls("ibv_free_buf") == 0);
        region.bytes()[0] = std::byte{2};
        region.close();
        CHECK(fake::in_order({"ibv_dereg_mr", "ibv_free_buf"}));
        CHECK(buf().bytes().empty());
        std::error_code ec;
        CHECK_FALSE(buf_type().reg_mr(access::none, ec));
        CHECK(number(ec) == EINVAL);
        fake::fail("ibv_alloc_buf", 1, EOPNOTSUPP);
        CHECK_FALSE(buf_type::create(with.pd, 64, ec));
        CHECK(number(ec) == EOPNOTSUPP);
        if constexpr (RDMAXX_HAS_BUF_DMABUF) {
            const buf_type other(with.pd, 64);
            const int fd = other.export_dmabuf_fd();
            CHECK(::close(fd) == 0);
            fake::fail("ibv_export_buf_dmabuf_fd", 1, EOPNOTSUPP);
            CHECK(caught([&] { static_cast<void>(other.export_dmabuf_fd()); }).code == EOPNOTSUPP);
        }
    }
}

template <class Opened>
void completion_counters(const Opened& with) {
    if constexpr (RDMAXX_HAS_COMP_CNTR) {
        const comp_cntr_caps caps = of<comp_cntr, Opened>::query_caps(with.device);
        CHECK(caps.max_counters == 8);
        CHECK(caps.supported_qp_attach_ops == (comp_cntr_ops::send | comp_cntr_ops::recv));
        of<comp_cntr, Opened> counter(with.device, comp_cntr_type::bytes);
        CHECK(detail_of("ibv_create_comp_cntr") == "type 1");
        const qp pair(with.pd, qp_init_attr(with.cq));
        counter.attach(pair, comp_cntr_ops::send | comp_cntr_ops::remote_rdma_write);
        CHECK(detail_of("ibv_qp_attach_comp_cntr") == "ops 33 by " + fake::name_of(counter.native_handle()));
        counter.set(10);
        counter.inc(5);
        CHECK(counter.read() == 15);
        counter.set_err(1);
        counter.inc_err(2);
        CHECK(counter.read_err() == 3);
        std::error_code ec;
        fake::fail("ibv_read_comp_cntr", 1, EIO);
        static_cast<void>(counter.read(ec));
        CHECK(number(ec) == EIO);
        counter.close();
        CHECK(fake::calls("ibv_destroy_comp_cntr") == 1);
        fake::fail("ibv_create_comp_cntr", 1, EOPNOTSUPP);
        CHECK_FALSE(of<comp_cntr, Opened>::create(with.device, comp_cntr_type::wrs, ec));
        CHECK(number(ec) == EOPNOTSUPP);
    }
}

} // namespace

TEST_CASE_METHOD(unit::test, "the newest of libibverbs: what the headers have is called as it is", "[newest]") {
    opened with;
    port_speed(with);
    dma_handles(with);
    buffers(with);
    completion_counters(with);
    CHECK(with.pd);
}
