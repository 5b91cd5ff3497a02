// Extended completion queues: how they are made, the range of an extended poll, and its fields.
#include "test.hpp"

#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include <arpa/inet.h>

using namespace rdmaxx;
using namespace unit;

namespace {

constexpr wc_fields every_field = wc_fields::standard | wc_fields::completion_timestamp | wc_fields::cvlan |
                                  wc_fields::flow_tag | wc_fields::tm_info | wc_fields::completion_timestamp_wallclock;

/// An open device, and what its last ibv_create_cq_ex was given.
struct device_only {
    [[nodiscard]] static std::string made() {
        std::string detail;
        for (const fake::call_record& call : fake::log())
            if (call.name == "ibv_create_cq_ex")
                detail = call.detail;
        return detail;
    }

    device_list devices;
    rdmaxx::context device{devices.front()};
    rdmaxx::pd pd{device};
};

/// A receive whose every field holds something of its own.
ibv_wc receive(ibv_wc_status status = IBV_WC_SUCCESS, unsigned flags = IBV_WC_GRH | IBV_WC_WITH_IMM) {
    ibv_wc raw{};
    raw.wr_id = 42;
    raw.status = status;
    raw.opcode = IBV_WC_RECV;
    raw.vendor_err = 7;
    raw.byte_len = 100;
    raw.imm_data = htonl(0x12345678);
    raw.qp_num = 17;
    raw.src_qp = 99;
    raw.wc_flags = flags;
    raw.slid = 3;
    raw.sl = 4;
    raw.dlid_path_bits = 5;
    return raw;
}

void push(cq_ref queue, std::uint64_t count) {
    for (std::uint64_t i = 1; i <= count; ++i)
        fake::push_success(queue.native_handle(), i, IBV_WC_RECV, 17, 10);
}

template <class Completion>
concept reads_byte_len = requires(const Completion& c) {
    c.byte_len();
};
template <class Completion>
concept reads_imm = requires(const Completion& c) {
    c.imm_data();
    c.invalidated_rkey();
};
template <class Completion>
concept reads_qp_num = requires(const Completion& c) {
    c.qp_num();
};
template <class Completion>
concept reads_src_qp = requires(const Completion& c) {
    c.src_qp();
};
template <class Completion>
concept reads_slid = requires(const Completion& c) {
    c.slid();
};
template <class Completion>
concept reads_sl = requires(const Completion& c) {
    c.sl();
};
template <class Completion>
concept reads_dlid_path_bits = requires(const Completion& c) {
    c.dlid_path_bits();
};
template <class Completion>
concept reads_timestamp = requires(const Completion& c) {
    c.completion_timestamp();
};
template <class Completion>
concept reads_cvlan = requires(const Completion& c) {
    c.cvlan();
};
template <class Completion>
concept reads_flow_tag = requires(const Completion& c) {
    c.flow_tag();
};
template <class Completion>
concept reads_tm_info = requires(const Completion& c) {
    c.tm_info();
};
template <class Completion>
concept reads_wallclock = requires(const Completion& c) {
    c.completion_wallclock_ns();
};

// A field exists where it was asked for, and nowhere else.
static_assert(reads_byte_len<completion<wc_fields::byte_len>> && !reads_byte_len<completion<wc_fields::qp_num>>);
static_assert(reads_imm<completion<wc_fields::imm>> && !reads_imm<completion<wc_fields::byte_len>>);
static_assert(reads_qp_num<completion<wc_fields::qp_num>> && !reads_qp_num<completion<wc_fields::none>>);
static_assert(reads_src_qp<completion<wc_fields::src_qp>> && !reads_src_qp<completion<wc_fields::none>>);
static_assert(reads_slid<completion<wc_fields::slid>> && !reads_slid<completion<wc_fields::sl>>);
static_assert(reads_sl<completion<wc_fields::sl>> && !reads_sl<completion<wc_fields::slid>>);
static_assert(reads_dlid_path_bits<completion<wc_fields::dlid_path_bits>> &&
              !reads_dlid_path_bits<completion<wc_fields::none>>);
static_assert(reads_timestamp<completion<wc_fields::completion_timestamp>> &&
              !reads_timestamp<completion<wc_fields::standard>>);
static_assert(reads_cvlan<completion<wc_fields::cvlan>> && !reads_cvlan<completion<wc_fields::standard>>);
static_assert(reads_flow_tag<completion<wc_fields::flow_tag>> && !reads_flow_tag<completion<wc_fields::standard>>);
static_assert(reads_tm_info<completion<wc_fields::tm_info>> && !reads_tm_info<completion<wc_fields::standard>>);
static_assert(reads_wallclock<completion<wc_fields::completion_timestamp_wallclock>> &&
              !reads_wallclock<completion<wc_fields::completion_timestamp>>);

static_assert(sizeof(cq_ex<>) == sizeof(cq) && sizeof(cq_ex_ref<wc_fields::none>) == sizeof(void*));

} // namespace

TEST_CASE_METHOD(unit::test, "cq_ex: is made with its fields, as long as its parents are needed", "[cq_ex]") {
    device_only d;
    const cq_ex<wc_fields::byte_len | wc_fields::qp_num> plain(d.device, 16);
    CHECK(device_only::made() == "cqe 16, fields 5");
    CHECK(plain.size() >= 16);

    comp_channel channel(d.device);
    // Any PD: the fake knows no other parent domains.
    pd domain(d.device);
    cq_ex<every_field> all(
        d.device, cq_init_attr_ex(8).channel(channel).single_threaded().ignore_overrun().parent_domain(domain));
    CHECK(device_only::made() == "cqe 8, fields 4095, flags 3, in " + fake::name_of(domain.native_handle()));
    CHECK(all.native_handle()->channel == channel.native_handle());
    const ibv_pd* raw_domain = domain.native_handle();
    const ibv_comp_channel* raw_channel = channel.native_handle();
    domain = pd();
    channel = comp_channel();
    CHECK(fake::alive(raw_domain));
    CHECK(fake::alive(raw_channel));
    all.close();
    CHECK_FALSE(fake::alive(raw_domain));
    CHECK_FALSE(fake::alive(raw_channel));
}

TEST_CASE_METHOD(unit::test, "cq_ex: what the device lacks is an error, and nothing is left", "[cq_ex]") {
    device_only d;
    fake::fail("ibv_create_cq_ex").with(EOPNOTSUPP);
    const caught thrown([&] { cq_ex<every_field>(d.device, 16).close(); });
    CHECK(thrown.code == EOPNOTSUPP);
    CHECK(thrown.call == "ibv_create_cq_ex");
    std::error_code ec;
    CHECK_FALSE(cq_ex<>::create(d.device, -1, {}, 0, ec));
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(cq_ex<>::create(d.device, 1, {}, -1, ec));
    CHECK(number(ec) == EINVAL);
    CHECK_FALSE(cq_ex<>::create(context_ref(), cq_init_attr_ex(1), ec));
    CHECK(number(ec) == EINVAL);
    const failing_allocation none(1);
    CHECK_FALSE(cq_ex<>::create(d.device, cq_init_attr_ex(1), ec));
    CHECK(number(ec) == ENOMEM);
}

TEST_CASE_METHOD(unit::test, "cq_ex: is one for queue pairs, channels and polls", "[cq_ex]") {
    device_only d;
    comp_channel channel(d.device);
    cq_ex<wc_fields::byte_len> queue(d.device, 16, channel);
    const ibv_cq* raw = queue.native_handle();
    std::array<wc, 2> room;
    push(queue, 3);
    CHECK(queue.poll(room).size() == 2);
    CHECK(channel.wait(queue, room).size() == 1);
    queue.request_notify();
    push(queue, 1);
    cq_event event = channel.get_cq_event();
    CHECK(event.cq() == cq_ref(queue));
    std::move(event).ack();

    qp user(d.pd, qp_init_attr(queue));
    CHECK(user.send_cq() == cq_ref(queue));
    queue = {}; // kept by the queue pair
    CHECK(fake::alive(raw));
    user = qp();
    CHECK_FALSE(fake::alive(raw));
}

TEST_CASE_METHOD(unit::test, "cq_ex: a ref to it, and one that C code made", "[cq_ex]") {
    device_only d;
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
    ibv_cq_ex* made = ::ibv_create_cq_ex(d.device.native_handle(), &attr);
    REQUIRE(made != nullptr);
    {
        const cq_ex_ref<wc_fields::byte_len> ref(made);
        fake::push_success(ref.native_handle(), 1, IBV_WC_RECV, 17, 10);
        for (const auto completion : ref.poll())
            CHECK(completion.byte_len() == 10U);
        CHECK(ref.native_handle_ex() == made);
    }
    std::error_code ec;
    cq_ex<wc_fields::byte_len> owner = cq_ex<wc_fields::byte_len>::adopt(made, d.device, {}, ec);
    CHECK_FALSE(ec);
    const cq_ex_ref<wc_fields::byte_len> ref = owner;
    CHECK(ref == owner);
    CHECK(::ibv_destroy_cq(std::move(owner).release()) == 0);
}

TEST_CASE_METHOD(unit::test, "poll range: gives what is there, and ends once", "[cq_ex]") {
    device_only d;
    const cq_ex<wc_fields::byte_len> queue(d.device, 16);
    push(queue, 3);
    std::vector<std::uint64_t> seen;
    for (const auto completion : queue.poll()) {
        CHECK(fake::polling(queue.native_handle()));
        seen.push_back(completion.wr_id());
    }
    CHECK(seen == std::vector<std::uint64_t>{1, 2, 3});
    CHECK_FALSE(fake::polling(queue.native_handle()));
    CHECK(fake::calls("ibv_start_poll") == 1);
    CHECK(fake::calls("ibv_next_poll") == 3);
    CHECK(fake::calls("ibv_end_poll") == 1);

    for (const auto completion : queue.poll())
        FAIL(completion.wr_id());
    CHECK(fake::calls("ibv_start_poll") == 2);
    CHECK(fake::calls("ibv_end_poll") == 1); // what found nothing must not be ended
}

TEST_CASE_METHOD(unit::test, "poll range: is ended by whatever path the loop is left; the rest stays", "[cq_ex]") {
    device_only d;
    const cq_ex<wc_fields::byte_len> queue(d.device, 16);
    push(queue, 4);
    for (const auto completion : queue.poll())
        if (completion.wr_id() == 1)
            break;
    CHECK_FALSE(fake::polling(queue.native_handle()));
    CHECK(fake::queued(queue.native_handle()) == 3);
    const auto first = [&]() -> std::uint64_t {
        for (const auto completion : queue.poll())
            return completion.wr_id();
        return 0;
    };
    CHECK(first() == 2);
    CHECK_FALSE(fake::polling(queue.native_handle()));
    try {
        for (const auto completion : queue.poll())
            throw completion.wr_id();
    } catch (const std::uint64_t& id) {
        CHECK(id == 3);
    }
    CHECK_FALSE(fake::polling(queue.native_handle()));
    // Never begun: the completion that the start took is gone with it, as in C.
    static_cast<void>(queue.poll());
    CHECK_FALSE(fake::polling(queue.native_handle()));
    CHECK(fake::calls("ibv_end_poll") == 4);
}

TEST_CASE_METHOD(unit::test, "poll range: a failing start or next is an error, and what was started is ended",
                 "[cq_ex]") {
    device_only d;
    const cq_ex<wc_fields::byte_len> queue(d.device, 16);
    push(queue, 2);
    fake::fail("ibv_start_poll").with(EIO);
    const caught start([&] {
        for (const auto completion : queue.poll())
            FAIL(completion.wr_id());
    });
    CHECK(start.code == EIO);
    CHECK(start.call == "ibv_start_poll");
    CHECK(fake::calls("ibv_end_poll") == 0);

    fake::fail("ibv_next_poll").with(EIO);
    int seen = 0;
    const caught next([&] {
        for (const auto completion : queue.poll())
            seen += completion.ok() ? 1 : 0;
    });
    CHECK(seen == 1);
    CHECK(next.code == EIO);
    CHECK(next.call == "ibv_next_poll");
    CHECK(fake::calls("ibv_end_poll") == 1);

    std::error_code ec;
    fake::fail("ibv_start_poll").with(EINVAL);
    for (const auto completion : queue.poll(ec))
        FAIL(completion.wr_id());
    CHECK(number(ec) == EINVAL);
    push(queue, 1);
    fake::fail("ibv_next_poll").with(EIO);
    for (const auto completion : queue.poll(ec)) {
        CHECK_FALSE(ec); // cleared by the start
        CHECK(completion.ok());
    }
    CHECK(number(ec) == EIO);
    // mlx5's own code for a broken queue, whose number is that of "nothing there".
    fake::fail("ibv_start_poll").returning(-2);
    for (const auto completion : queue.poll(ec))
        FAIL(completion.wr_id());
    CHECK(number(ec) == EIO);
    fake::fail("ibv_start_poll").returning(-2);
    CHECK(caught([&] { static_cast<void>(queue.poll()); }).code == EIO);
    CHECK_FALSE(fake::polling(queue.native_handle()));
    for (const auto completion : queue.poll(ec))
        CHECK(completion.ok());
    CHECK_FALSE(ec); // nothing there is no error
}

TEST_CASE_METHOD(unit::test, "poll range: where ibv_next_poll is known to be broken, it is an end and a start",
                 "[cq_ex]") {
    device_only d;
    fake::limits().vendor_id = 0xffffff;
    const cq_ex<wc_fields::byte_len> queue(d.device, 16);
    const cq_ex<wc_fields::byte_len> other(d.device, 16);
    push(queue, 3);
    push(other, 2);
    std::vector<std::uint64_t> seen;
    for (const auto completion : queue.poll()) {
        seen.push_back(completion.wr_id());
        for (const auto inner : other.poll()) // polls of one thread nest
            CHECK(inner.ok());
    }
    CHECK(seen == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(fake::calls("ibv_next_poll") == 0);
    CHECK(fake::calls("ibv_start_poll", queue.native_handle()) == 4);
    CHECK(fake::calls("ibv_end_poll", queue.native_handle()) == 3);
    CHECK_FALSE(fake::polling(queue.native_handle()));
    CHECK_FALSE(fake::polling(other.native_handle()));
    push(queue, 2);
    for (const auto completion : queue.poll())
        if (completion.ok())
            break;
    CHECK_FALSE(fake::polling(queue.native_handle()));
    CHECK(fake::queued(queue.native_handle()) == 1);
}

TEST_CASE_METHOD(unit::test, "poll range: mended are the queues of Soft-RoCE, of old kernels too, and no others",
                 "[cq_ex]") {
    device_only d;
    fake::device_limits& limits = fake::limits();
    const auto is_mended = [&] {
        fake::clear_log(); // of a queue that was at the same address
        const cq_ex<wc_fields::byte_len> queue(d.device, 16);
        push(queue, 2);
        for (const auto completion : queue.poll())
            CHECK(completion.ok());
        return fake::calls("ibv_next_poll", queue.native_handle()) == 0;
    };
    CHECK_FALSE(is_mended());
    limits.vendor_id = 0xffffff;
    CHECK(is_mended());
    // Before Linux 5.7 it had no numbers at all; a device of a vendor that has no number has some.
    limits.vendor_id = 0;
    CHECK_FALSE(is_mended());
    limits.vendor_part_id = 0;
    CHECK(is_mended());

    // The provider is one and the same: a queue of another one is left alone.
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    ibv_cq_ex* made = ::ibv_create_cq_ex(d.device.native_handle(), &attr);
    REQUIRE(made != nullptr);
    const auto next = made->next_poll;
    made->end_poll = [](ibv_cq_ex*) {
    };
    const auto end = made->end_poll;
    std::error_code ec;
    const cq_ex<wc_fields::none> other = cq_ex<wc_fields::none>::adopt(made, d.device, {}, ec);
    CHECK_FALSE(ec);
    CHECK(made->next_poll == next);
    CHECK(made->end_poll == end);
}

TEST_CASE_METHOD(unit::test, "poll range: any number that are at their end are each ended once", "[cq_ex]") {
    device_only d;
    if (GENERATE(false, true))
        fake::limits().vendor_id = 0xffffff;
    // To its end, and the others meanwhile.
    std::uint64_t seen = 0;
    const std::function<void(unsigned)> run = [&](unsigned others) {
        const cq_ex<wc_fields::byte_len> queue(d.device, 16);
        push(queue, 3);
        for (std::uint64_t of_this = 0; of_this < 3;) {
            auto range = queue.poll();
            for (auto at = range.begin(); !(at == range.end()); ++at) {
                CHECK((*at).wr_id() == ++of_this);
                ++seen;
            }
            if (of_this == 3 && others > 0)
                run(others - 1);
        }
        CHECK_FALSE(fake::polling(queue.native_handle()));
        CHECK(fake::queued(queue.native_handle()) == 0);
        for (const auto completion : queue.poll())
            FAIL(completion.wr_id());
    };
    const unsigned others = GENERATE(0U, 1U, 20U);
    run(others);
    CHECK(seen == 3 * (others + 1));
}

TEST_CASE_METHOD(unit::test, "completion: every field of a receive", "[cq_ex]") {
    device_only d;
    const cq_ex<every_field> queue(d.device, 16);
    fake::extended_fields more;
    more.timestamp = 1001;
    more.wallclock_ns = 1002;
    more.cvlan = 1003;
    more.flow_tag = 1004;
    more.tm = {1005, 1006};
    fake::push_completion(queue.native_handle(), receive(), more);
    for (const auto c : queue.poll()) {
        CHECK(c.wr_id() == 42);
        CHECK(c.ok());
        CHECK(c.status() == wc_status::success);
        CHECK(c.opcode() == wc_opcode::recv);
        CHECK(c.is_recv());
        CHECK(c.flags() == (wc_flags::grh | wc_flags::with_imm));
        CHECK(c.vendor_err() == 7);
        CHECK(c.byte_len() == 100U);
        CHECK(c.imm_data() == 0x12345678U);
        CHECK_FALSE(c.invalidated_rkey());
        CHECK(c.qp_num() == 17);
        CHECK(c.src_qp() == 99U);
        CHECK(c.slid() == 3U);
        CHECK(c.sl() == std::uint8_t{4});
        CHECK(c.dlid_path_bits() == std::uint8_t{5});
        CHECK(c.completion_timestamp() == 1001U);
        CHECK(c.completion_wallclock_ns() == 1002U);
        CHECK(c.cvlan() == std::uint16_t{1003});
        CHECK(c.flow_tag() == 1004U);
        REQUIRE(c.tm_info());
        CHECK(c.tm_info()->tag == 1005);
        CHECK(c.tm_info()->priv == 1006);
    }
    ibv_wc invalidating = receive(IBV_WC_SUCCESS, IBV_WC_WITH_INV);
    invalidating.invalidated_rkey = 0xabc;
    fake::push_completion(queue.native_handle(), invalidating);
    for (const auto c : queue.poll()) {
        CHECK(c.invalidated_rkey() == rkey{0xabc});
        CHECK_FALSE(c.imm_data());
    }
}

TEST_CASE_METHOD(unit::test, "completion: of a send has no fields of a receive", "[cq_ex]") {
    device_only d;
    const cq_ex<every_field> queue(d.device, 16);
    ibv_wc sent = receive();
    sent.opcode = IBV_WC_SEND;
    fake::push_completion(queue.native_handle(), sent);
    for (const auto c : queue.poll()) {
        CHECK(c.opcode() == wc_opcode::send);
        CHECK_FALSE(c.is_recv());
        CHECK_FALSE(c.byte_len());
        CHECK_FALSE(c.imm_data());
        CHECK_FALSE(c.src_qp());
        CHECK_FALSE(c.slid());
        CHECK_FALSE(c.cvlan());
        CHECK(c.completion_timestamp() == 0U);
    }
}

TEST_CASE_METHOD(unit::test, "completion: a failed one has a wr_id, a status, a queue pair and a vendor error, no more",
                 "[cq_ex]") {
    device_only d;
    const cq_ex<every_field> queue(d.device, 16);
    fake::push_completion(queue.native_handle(), receive(IBV_WC_WR_FLUSH_ERR));
    for (const auto c : queue.poll()) {
        CHECK(c.wr_id() == 42);
        CHECK_FALSE(c.ok());
        CHECK(c.status() == wc_status::wr_flush_err);
        CHECK(c.qp_num() == 17);
        CHECK(c.vendor_err() == 7);
        CHECK_FALSE(c.opcode());
        CHECK_FALSE(c.is_recv());
        CHECK(c.flags() == wc_flags::none);
        CHECK_FALSE(c.byte_len());
        CHECK_FALSE(c.imm_data());
        CHECK_FALSE(c.invalidated_rkey());
        CHECK_FALSE(c.src_qp());
        CHECK_FALSE(c.slid());
        CHECK_FALSE(c.sl());
        CHECK_FALSE(c.dlid_path_bits());
        CHECK_FALSE(c.completion_timestamp());
        CHECK_FALSE(c.completion_wallclock_ns());
        CHECK_FALSE(c.cvlan());
        CHECK_FALSE(c.flow_tag());
        CHECK_FALSE(c.tm_info());
    }
}

TEST_CASE_METHOD(unit::test, "completion: a snapshot is the wc that a plain poll would have given", "[cq_ex]") {
    device_only d;
    const cq_ex<wc_fields::standard> queue(d.device, 16);
    fake::push_completion(queue.native_handle(), receive());
    ibv_wc invalidating = receive(IBV_WC_SUCCESS, IBV_WC_WITH_INV);
    invalidating.invalidated_rkey = 0xabc;
    fake::push_completion(queue.native_handle(), invalidating);
    ibv_wc sent = receive();
    sent.opcode = IBV_WC_SEND;
    fake::push_completion(queue.native_handle(), sent);
    fake::push_completion(queue.native_handle(), receive(IBV_WC_WR_FLUSH_ERR));
    std::vector<wc> kept;
    for (const auto c : queue.poll())
        kept.push_back(c.snapshot());
    REQUIRE(kept.size() == 4);
    for (const wc& each : kept) {
        CHECK(each.wr_id() == 42);
        CHECK(each.qp_num() == 17);
        CHECK(each.vendor_err() == 7);
    }
    CHECK(kept[0].is_recv());
    CHECK(kept[0].byte_len() == 100U);
    CHECK(kept[0].imm_data() == 0x12345678U);
    CHECK(kept[0].src_qp() == 99U);
    CHECK(kept[0].flags() == (wc_flags::grh | wc_flags::with_imm));
    CHECK(kept[0].raw().slid == 3);
    CHECK(kept[0].raw().sl == 4);
    CHECK(kept[0].raw().dlid_path_bits == 5);
    CHECK(kept[1].invalidated_rkey() == rkey{0xabc});
    CHECK_FALSE(kept[1].imm_data());
    CHECK(kept[2].opcode() == wc_opcode::send);
    CHECK_FALSE(kept[2].byte_len());
    CHECK(kept[3].status() == wc_status::wr_flush_err);
    CHECK_FALSE(kept[3].opcode());
    CHECK(kept[3].raw().byte_len == 0);

    std::array<std::byte, 128> buffer{};
    CHECK(datagram(kept[0], buffer).payload().size() == 60);
}
