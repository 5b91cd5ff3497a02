// Atomic writes and flushes. Soft-RoCE has both from Linux 6.2 on; where they are missing, each test says what is said.
#include "live.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace live;
using rdmaxx::device_cap_flags;
using rdmaxx::flush_placement;
using rdmaxx::flush_selectivity;
using rdmaxx::qp_attr;
using rdmaxx::qp_state;
using rdmaxx::send_ops;
using rdmaxx::wc_opcode;
using rdmaxx::wc_status;

namespace {

// What the C headers here have; the driver is of the same version.
constexpr bool headers_have_atomic_write = rdmaxx::detail::has_wr_atomic_write<ibv_qp_ex>;
constexpr bool headers_have_flush = rdmaxx::detail::has_wr_flush<ibv_qp_ex>;

bool kernel_has_both() {
    int major = 0;
    int minor = 0;
    std::sscanf(variable("RIG_KERNEL").c_str(), "%d.%d", &major, &minor);
    return major > 6 || (major == 6 && minor >= 2);
}

using rdmaxx::access;
constexpr access global = full_access | access::flush_global;
constexpr access persistent = full_access | access::flush_persistent;
constexpr access both = global | persistent;

rdmaxx::context open_device() {
    const rdmaxx::device_list devices;
    return rdmaxx::context(devices.find(variable("RIG_DEVICE").c_str()));
}

/// Two connected queue pairs: `a` asks, `b` has memory.
template <send_ops Ops>
struct couple {
    couple(access of_qp, access of_memory, std::span<std::byte> memory) : mr(domain, memory, of_memory) {
        const auto own = device.find_gid(ipv4(), rdmaxx::gid_type::roce_v2);
        const ibv_ah_attr path = rdmaxx::ah_attr_to(own.value(), own->gid());
        for (const auto& [qp, peer] : {std::pair(&a, &b), std::pair(&b, &a)}) {
            qp->modify(qp_attr(qp_state::init).pkey_index(0).port_num(path.port_num).access_flags(of_qp));
            qp->modify(qp_attr(qp_state::rtr)
                           .ah_attr(path)
                           .path_mtu(rdmaxx::mtu::bytes_1024)
                           .dest_qp_num(peer->qp_num())
                           .rq_psn(7)
                           .max_dest_rd_atomic(1)
                           .min_rnr_timer(12));
            qp->modify(qp_attr(qp_state::rts).sq_psn(7).timeout(14).retry_cnt(7).rnr_retry(7).max_rd_atomic(1));
        }
    }

    /// How the next request ended. One that succeeded must have been this operation.
    wc_status next(wc_opcode opcode) {
        for (const stopwatch waited; waited.elapsed() < soon;)
            for (const auto completion : cq.poll()) {
                CHECK(completion.qp_num() == a.qp_num());
                CHECK(completion.opcode() == (completion.ok() ? std::optional(opcode) : std::nullopt));
                return completion.status();
            }
        throw std::runtime_error("waited for a completion, none came");
    }

    rdmaxx::context device = open_device();
    rdmaxx::pd domain{device};
    rdmaxx::mr mr;
    rdmaxx::cq_ex<rdmaxx::wc_fields::qp_num> cq{device, 32};
    rdmaxx::qp_ex<Ops> a{domain, rdmaxx::qp_init_attr(cq, 8)};
    rdmaxx::qp_ex<Ops> b{domain, rdmaxx::qp_init_attr(cq, 8)};
};

constexpr std::array<std::byte, 8> word = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                           std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};

// Templates, since what the headers lack can only be named where it depends on something.

template <class Couple>
wc_status write_word(Couple& c, std::size_t offset) {
    auto batch = c.a.start();
    batch.wr(1).signaled().atomic_write(word, c.mr.remote().part(offset, 8));
    batch.complete();
    return c.next(wc_opcode::atomic_write);
}

template <class Couple>
wc_status flush(Couple& c, std::size_t offset, std::uint32_t length, flush_placement placement,
                flush_selectivity selectivity = flush_selectivity::range) {
    rdmaxx::remote_buffer what = c.mr.remote();
    what.address += offset;
    what.length = length;
    auto batch = c.a.start();
    batch.wr(2).signaled().flush(what, placement, selectivity);
    batch.complete();
    return c.next(wc_opcode::flush);
}

/// What a queue pair for these operations is refused with, if it is.
template <send_ops Ops>
std::error_code refusal_of_qp() {
    const rdmaxx::context device = open_device();
    const rdmaxx::pd domain(device);
    const rdmaxx::cq cq(device, 8);
    std::error_code ec;
    static_cast<void>(rdmaxx::qp_ex<Ops>::create(domain, rdmaxx::qp_init_attr(cq, 2), ec));
    return ec;
}

std::error_code refusal_of_memory(access flags, std::span<std::byte> memory) {
    const rdmaxx::context device = open_device();
    const rdmaxx::pd domain(device);
    std::error_code ec;
    const rdmaxx::mr made = rdmaxx::mr::create(domain, memory, flags, ec);
    CHECK(made.operator bool() == !ec);
    return ec;
}

/// Persistent memory of the machine, where there is some (the rig's --pmem).
class persistent_memory {
public:
    persistent_memory() {
        const int fd = ::open(variable("RIG_PMEM").c_str(), O_RDWR | O_CLOEXEC);
        REQUIRE(fd >= 0);
        at_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ::close(fd);
        REQUIRE(at_ != MAP_FAILED);
    }
    persistent_memory(const persistent_memory&) = delete;
    persistent_memory& operator=(const persistent_memory&) = delete;
    ~persistent_memory() { ::munmap(at_, size); }

    [[nodiscard]] std::span<std::byte> bytes() const { return {static_cast<std::byte*>(at_), 8192}; }

private:
    static constexpr std::size_t size = 2 << 20; // its pages are as large

    void* at_ = nullptr;
};

template <class Couple>
void check_log_entry(Couple& c, std::span<std::byte> memory, flush_placement placement) {
    const std::span<std::byte> entry = memory.subspan(4096, 8);
    const std::span<std::byte> tail = memory.first(8);
    std::memset(memory.data(), 0, memory.size());
    const rdmaxx::sge source = c.mr.sge(2048, 8);
    std::memcpy(memory.data() + 2048, word.data(), word.size());
    auto batch = c.a.start();
    batch.wr(1).signaled().rdma_write(source, c.mr.remote().part(4096, 8));
    batch.wr(2).signaled().flush(c.mr.remote().part(4096, 8), placement);
    batch.wr(3).signaled().atomic_write(word, c.mr.remote().part(0, 8));
    batch.wr(4).signaled().flush(c.mr.remote(), placement, flush_selectivity::mr);
    batch.complete();
    CHECK(c.next(wc_opcode::rdma_write) == wc_status::success);
    CHECK(c.next(wc_opcode::flush) == wc_status::success);
    CHECK(std::memcmp(entry.data(), word.data(), word.size()) == 0);
    CHECK(c.next(wc_opcode::atomic_write) == wc_status::success);
    CHECK(std::memcmp(tail.data(), word.data(), word.size()) == 0);
    CHECK(c.next(wc_opcode::flush) == wc_status::success);
}

constexpr send_ops log_ops = send_ops::rdma_write | send_ops::atomic_write | send_ops::flush;

} // namespace

TEST_CASE_METHOD(fixture, "RC: an atomic write brings its 8 bytes, or is loc_qp_op_err on a kernel without it",
                 "[flush][ib]") {
    const auto with_headers = [&]<send_ops Ops>() {
        if constexpr (headers_have_atomic_write) {
            std::vector<std::byte> memory(4096);
            couple<Ops> c(full_access, full_access, memory);
            const bool has = kernel_has_both();
            CHECK(rdmaxx::has(c.device.query_device_ex().device_cap_flags(), device_cap_flags::atomic_write) == has);
            CHECK(write_word(c, 1024) == (has ? wc_status::success : wc_status::loc_qp_op_err));
            CHECK((std::memcmp(memory.data() + 1024, word.data(), word.size()) == 0) == has);
        } else {
            CHECK(refusal_of_qp<Ops>() == std::errc::operation_not_supported);
        }
    };
    with_headers.operator()<send_ops::atomic_write>();
}

TEST_CASE_METHOD(fixture, "RC: an atomic write is refused at odd addresses, and where a write is", "[flush][ib]") {
    const auto with_headers = [&]<send_ops Ops>() {
        if constexpr (headers_have_atomic_write) {
            struct {
                access of_qp, of_memory;
                std::size_t offset;
                wc_status expected;
            } const cases[] = {
                {full_access, full_access, 1025, wc_status::rem_inv_req_err},
                {access::local_write | access::remote_read, full_access, 1024, wc_status::rem_inv_req_err},
                {full_access, access::local_write | access::remote_read, 1024, wc_status::rem_access_err},
            };
            for (const auto& one : cases) {
                std::vector<std::byte> memory(4096);
                const std::vector<std::byte> before = memory;
                couple<Ops> c(one.of_qp, one.of_memory, memory);
                CHECK(write_word(c, one.offset) == (kernel_has_both() ? one.expected : wc_status::loc_qp_op_err));
                CHECK(memory == before);
            }
        } else {
            CHECK(refusal_of_qp<Ops>() == std::errc::operation_not_supported);
        }
    };
    with_headers.operator()<send_ops::atomic_write>();
}

TEST_CASE_METHOD(fixture, "RC: a log entry is written, flushed, and published by an atomic write", "[flush][ib]") {
    std::vector<std::byte> memory(8192);
    const auto with_headers = [&]<send_ops Ops>() {
        if (!kernel_has_both()) {
            CHECK(refusal_of_memory(global, memory) == std::errc::invalid_argument);
        } else if constexpr (headers_have_flush) {
            couple<Ops> c(global, global, memory);
            const device_cap_flags flags = c.device.query_device_ex().device_cap_flags();
            CHECK(rdmaxx::has(flags, device_cap_flags::flush_global));
            CHECK(rdmaxx::has(flags, device_cap_flags::flush_persistent));
            check_log_entry(c, memory, flush_placement::global);
        }
        if constexpr (!headers_have_flush)
            CHECK(refusal_of_qp<Ops>() == std::errc::operation_not_supported);
    };
    with_headers.operator()<log_ops>();
}

TEST_CASE_METHOD(fixture, "RC: a flush wants its placement of region and queue pair, and a range inside",
                 "[flush][ib]") {
    std::vector<std::byte> memory(8192);
    const auto with_headers = [&]<send_ops Ops>() {
        if constexpr (headers_have_flush) {
            if (!kernel_has_both()) {
                couple<Ops> c(full_access, full_access, memory);
                CHECK(flush(c, 0, 8, flush_placement::global) == wc_status::loc_qp_op_err);
                return;
            }
            struct {
                access of_qp, of_memory;
                flush_placement placement;
                flush_selectivity selectivity;
                std::size_t offset;
                std::uint32_t length;
                wc_status expected;
            } const cases[] = {
                {global, global, flush_placement::global, flush_selectivity::range, 0, 8192, wc_status::success},
                {global, global, flush_placement::global, flush_selectivity::mr, 0, 0, wc_status::success},
                {global, global, flush_placement::global, flush_selectivity::mr, 4096, 8192, wc_status::success},
                {global, global, flush_placement::global, flush_selectivity::range, 4096, 8192,
                 wc_status::rem_access_err},
                {full_access, global, flush_placement::global, flush_selectivity::range, 0, 8,
                 wc_status::rem_inv_req_err},
                {global, full_access, flush_placement::global, flush_selectivity::range, 0, 8,
                 wc_status::rem_access_err},
                {global, global, flush_placement::persistent, flush_selectivity::range, 0, 8,
                 wc_status::rem_inv_req_err},
                {both, global, flush_placement::persistent, flush_selectivity::range, 0, 8, wc_status::rem_access_err},
                {both, global, flush_placement::global | flush_placement::persistent, flush_selectivity::range, 0, 8,
                 wc_status::rem_access_err},
            };
            for (const auto& one : cases) {
                CAPTURE(static_cast<unsigned>(one.of_qp), static_cast<unsigned>(one.of_memory), one.offset, one.length);
                couple<Ops> c(one.of_qp, one.of_memory, memory);
                CHECK(flush(c, one.offset, one.length, one.placement, one.selectivity) == one.expected);
            }
        } else {
            CHECK(refusal_of_qp<Ops>() == std::errc::operation_not_supported);
        }
    };
    with_headers.operator()<send_ops::flush>();
}

TEST_CASE_METHOD(fixture, "RC: a queue pair takes flushes from when it is told so, as one of rdma_cm's must be",
                 "[flush][ib]") {
    std::vector<std::byte> memory(8192);
    const auto with_headers = [&]<send_ops Ops>() {
        if constexpr (headers_have_flush) {
            if (kernel_has_both()) {
                couple<Ops> c(full_access, global, memory);
                c.b.modify(qp_attr(qp_state::rts).access_flags(global));
                CHECK(flush(c, 0, 8, flush_placement::global) == wc_status::success);
                return;
            }
        }
        CHECK(refusal_of_memory(global, memory) == std::errc::invalid_argument);
    };
    with_headers.operator()<send_ops::flush>();
}

TEST_CASE_METHOD(fixture, "RC: persistent memory is flushed as such, and other memory not registered for it",
                 "[flush][ib]") {
    std::vector<std::byte> ordinary(8192);
    CHECK(refusal_of_memory(persistent, ordinary) == std::errc::invalid_argument);
    const auto with_headers = [&]<send_ops Ops>() {
        if constexpr (headers_have_flush) {
            const persistent_memory memory;
            constexpr flush_placement everywhere = flush_placement::global | flush_placement::persistent;
            {
                couple<Ops> c(both, persistent, memory.bytes());
                check_log_entry(c, memory.bytes(), flush_placement::persistent);
                CHECK(flush(c, 0, 8, flush_placement::global) == wc_status::rem_access_err);
            }
            couple<Ops> c(both, both, memory.bytes());
            check_log_entry(c, memory.bytes(), everywhere);
        }
    };
    if (kernel_has_both() && !variable("RIG_PMEM").empty())
        with_headers.operator()<log_ops>();
}
