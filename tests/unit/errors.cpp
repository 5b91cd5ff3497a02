// Errors, categories, diagnose() and the hooks.
#include "test.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

using namespace rdmaxx;
using namespace unit;

namespace {

std::error_code posix(int value) {
    return {value, std::system_category()};
}

} // namespace

TEST_CASE_METHOD(unit::test, "error: what() names the call, what it was about and why", "[errors]") {
    event_channel channel;
    const cm_id id(channel);
    fake::fail("rdma_resolve_addr", 1, ENODEV);
    const caught failed([&] { id.resolve_addr(address("192.0.2.9", 7471), 1s); });
    CHECK(failed.what == "rdma_resolve_addr 192.0.2.9:7471: No such device");
    CHECK(failed.call == "rdma_resolve_addr");
    CHECK(failed.cause.empty());

    const caught refused([&] { id.listen(0); });
    CHECK(refused.what == "rdma_listen: a backlog below 1: Invalid argument");
    CHECK(refused.cause == "a backlog below 1");

    fake::fail("rdma_create_id", 1, ENOMEM);
    const caught plain([&] { const cm_id none(channel); });
    CHECK(plain.what == "rdma_create_id: Cannot allocate memory");
}

TEST_CASE_METHOD(unit::test, "error: is a std::system_error, and can be copied", "[errors]") {
    const error original(posix(ENODEV), "rdma_bind_addr", "because", "192.0.2.9:1");
    error copy = original;
    const error other(posix(EIO), "ibv_poll_cq", "", "");
    CHECK(std::string(copy.what()) == original.what());
    CHECK(std::string(copy.call()) == "rdma_bind_addr");
    CHECK(std::string(copy.cause()) == "because");
    copy = other;
    CHECK(std::string(copy.what()) == other.what());
    CHECK(copy.code() == posix(EIO));
    CHECK(copy.code() == std::errc::io_error);
    std::exception_ptr kept;
    try {
        throw original;
    } catch (const std::system_error&) {
        kept = std::current_exception();
    }
    try {
        std::rethrow_exception(kept);
    } catch (const error& e) {
        CHECK(e.code() == std::errc::no_such_device);
    }
    static_assert(std::is_nothrow_copy_constructible_v<error>);
}

TEST_CASE_METHOD(unit::test, "error: of an unexpected event and of a post know more, and can be copied", "[errors]") {
    bound_id on;
    push(on.id, cm_event_type::rejected, 8);
    try {
        on.channel.expect_and_ack(on.id, cm_event_type::established);
        FAIL("not reached");
    } catch (const unexpected_event& e) {
        const unexpected_event copy = e;
        CHECK(copy.event().status() == 8);
        CHECK(contains(diagnose(copy), "The peer was reached and said no"));
    }
    const post_error post(posix(ENOMEM), "ibv_post_send", 3);
    const post_error copy = post;
    CHECK(copy.index() == 3);
    CHECK(std::string(copy.what()) == "ibv_post_send request 3: Cannot allocate memory");
}

// ---------------------------------------------------------------- categories

TEST_CASE_METHOD(unit::test, "reject_category: names and texts, also of numbers it does not know", "[errors]") {
    CHECK(std::string(reject_category().name()) == "rdma_cm reject");
    CHECK(&reject_category() == &reject_category());
    CHECK(contains(reject_category().message(8), "nobody listens"));
    CHECK(contains(reject_category().message(28), "peer's program"));
    CHECK(contains(reject_category().message(10), "stale"));
    CHECK(reject_category().message(35) == "vendor option not supported");
    CHECK(reject_category().message(0) == "no error");
    for (const int unknown : {36, 1000, -1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()})
        CHECK(reject_category().message(unknown) == "rdma_cm reject " + std::to_string(unknown));
    for (int i = 1; i < 36; ++i)
        CHECK(std::error_code(i, reject_category()) == std::errc::connection_refused);
    CHECK(std::error_code(8, reject_category()) != std::error_code(8, std::system_category()));
}

TEST_CASE_METHOD(unit::test, "sidr_category: names and texts, also of numbers it does not know", "[errors]") {
    CHECK(std::string(sidr_category().name()) == "rdma_cm sidr");
    CHECK(contains(sidr_category().message(1), "nobody listens"));
    CHECK(contains(sidr_category().message(2), "peer's program"));
    CHECK(sidr_category().message(6) == "rdma_cm sidr 6");
    CHECK(std::error_code(1, sidr_category()) == std::errc::connection_refused);
    CHECK(sidr_category() != reject_category());
}

TEST_CASE_METHOD(unit::test, "wc_category: a text for every status", "[errors]") {
    CHECK(std::string(wc_category().name()) == "ibv_wc status");
    for (int status = IBV_WC_SUCCESS; std::string(to_string(static_cast<wc_status>(status))) != "unknown"; ++status) {
        CAPTURE(status);
        CHECK_FALSE(wc_category().message(status).empty());
        CHECK_FALSE(contains(wc_category().message(status), "ibv_wc status"));
    }
    CHECK(wc_category().message(IBV_WC_WR_FLUSH_ERR) == "flushed: the connection had ended");
    CHECK(wc_category().message(IBV_WC_REM_ACCESS_ERR) ==
          "the peer's memory does not allow it, or the range lies outside");
    CHECK(contains(wc_category().message(IBV_WC_REM_INV_REQ_ERR), "queue pair takes no such request"));
    CHECK(wc_category().message(IBV_WC_GENERAL_ERR) == "general error of the device");
    CHECK(contains(wc_category().message(IBV_WC_TM_RNDV_INCOMPLETE), "tagged"));
    CHECK(wc_category().message(99) == "ibv_wc status 99");
}

TEST_CASE_METHOD(unit::test, "classify: what can be done about a failure", "[errors]") {
    for (const int value : {EINVAL, EPERM, EACCES, EFAULT, ENOSYS, EOPNOTSUPP})
        CHECK(classify(posix(value)) == error_class::permanent);
    for (const int value : {ENODEV, EIO})
        CHECK(classify(posix(value)) == error_class::device);
    for (const int value : {ETIMEDOUT, EADDRNOTAVAIL, ENOMEM, EAGAIN, ENETUNREACH, EHOSTUNREACH, EMFILE})
        CHECK(classify(posix(value)) == error_class::transient);
    CHECK(classify({10, reject_category()}) == error_class::transient); // stale
    CHECK(classify({8, reject_category()}) == error_class::transient);  // nobody listens, yet
    CHECK(classify({28, reject_category()}) == error_class::permanent);
    CHECK(classify({1, sidr_category()}) == error_class::transient);
    CHECK(classify({2, sidr_category()}) == error_class::permanent);
    for (const int status : {IBV_WC_WR_FLUSH_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR})
        CHECK(classify({status, wc_category()}) == error_class::transient);
    for (const int status : {IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR})
        CHECK(classify({status, wc_category()}) == error_class::permanent);
    CHECK(classify({IBV_WC_FATAL_ERR, wc_category()}) == error_class::device);
    CHECK(classify({}) == error_class::transient);
    CHECK(std::string(to_string(error_class::device)) == "device");
}

// ---------------------------------------------------------------- diagnose

TEST_CASE_METHOD(unit::test, "diagnose: says something about each errno that is worth handling", "[errors]") {
    struct row {
        int value;
        const char* call;
        const char* mentions;
    };
    for (const row& r : {row{ENODEV, "rdma_create_event_channel", "/sys/class/infiniband"},
                         row{ENOENT, "rdma_create_event_channel", ""},
                         row{ENOSYS, "ibv_get_device_list", ""},
                         row{EPERM, "rdma_create_event_channel", ""},
                         row{EACCES, "ibv_open_device", "changed its user"},
                         row{EMFILE, "rdma_create_event_channel", "RLIMIT_NOFILE"},
                         row{ENOMEM, "ibv_reg_mr", "RLIMIT_MEMLOCK"},
                         row{ENOMEM, "ibv_create_cq", "RLIMIT_MEMLOCK"},
                         row{ENOMEM, "ibv_post_send", "queue is full"},
                         row{ENOMEM, "ibv_post_recv", "queue is full"},
                         row{ENOMEM, "ibv_bind_mw", "queue is full"},
                         row{EINVAL, "ibv_create_qp", "max_qp_wr"},
                         row{EINVAL, "rdma_create_qp", "max_sge"},
                         row{EINVAL, "ibv_modify_qp", "transition"},
                         row{EINVAL, "ibv_post_send", "SGEs"},
                         row{EINVAL, "ibv_post_send", "aligned"},
                         row{EINVAL, "ibv_post_recv", "shared queue"},
                         row{EINVAL, "ibv_post_srq_recv", "SGEs"},
                         row{EINVAL, "ibv_create_cq", "max_cqe"},
                         row{EINVAL, "ibv_create_cq_ex", "max_cqe"},
                         row{EINVAL, "ibv_create_srq", "max_srq_wr"},
                         row{EINVAL, "rdma_create_srq", "max_srq_wr"},
                         row{EINVAL, "ibv_modify_qp", "value is wrong"},
                         row{EINVAL, "ibv_bind_mw", "type 1"},
                         row{EINVAL, "ibv_reg_mr", "empty"},
                         row{EINVAL, "ibv_dereg_mr", "window"},
                         row{EINVAL, "rdma_connect", "route_resolved"},
                         row{EINVAL, "rdma_bind_addr", "order"},
                         row{EINVAL, "rdma_resolve_addr", "order"},
                         row{EINVAL, "rdma_resolve_route", "order"},
                         row{EPROTO, "rdma_get_cm_event", "one flow"},
                         row{EOPNOTSUPP, "ibv_create_cq_ex", "wc_fields"},
                         row{EOPNOTSUPP, "ibv_alloc_dm", "does not have"},
                         row{EFAULT, "ibv_reg_mr", "local_write"},
                         row{EADDRNOTAVAIL, "rdma_bind_addr", "this machine"},
                         row{EADDRINUSE, "rdma_bind_addr", "port"},
                         row{ENETUNREACH, "rdma_resolve_addr", "route"},
                         row{EHOSTUNREACH, "rdma_resolve_addr", "route"},
                         row{ETIMEDOUT, "rdma_get_cm_event", "4791"},
                         row{EBUSY, "ibv_dealloc_pd", "still uses it"}}) {
        CAPTURE(r.value, r.call);
        const std::string text = diagnose(posix(r.value), r.call);
        CHECK_FALSE(text.empty());
        CHECK(contains(text, r.mentions));
        CHECK(text.back() == '.');
        CHECK(diagnose(error(posix(r.value), r.call, "", "")) == text);
    }
    CHECK_FALSE(contains(diagnose(posix(ENOMEM), "ibv_post_recv"), "signaled")); // no receive is
    CHECK(diagnose(posix(EXDEV), "rdma_listen").empty());
    CHECK(diagnose(posix(EINVAL), "rdma_listen").empty());
}

TEST_CASE_METHOD(unit::test,
                 "diagnose: of an address without a device speaks of the interface, where there are devices",
                 "[errors]") {
    const std::string text = diagnose(posix(ENODEV), "rdma_resolve_addr");
    CHECK_FALSE(text.empty());
    CHECK((contains(text, "namespace") || contains(text, "RDMA support") || contains(text, "no RDMA device")));
}

TEST_CASE_METHOD(unit::test, "diagnose: what rdmaxx itself found is the diagnosis", "[errors]") {
    const error found(posix(EINVAL), "rdma_listen", "a backlog below 1", "");
    CHECK(diagnose(found) == "a backlog below 1.");
    CHECK(diagnose({28, reject_category()}, "rdma_get_cm_event") ==
          "The peer was reached and said no: rejected by the peer's program.");
    CHECK(contains(diagnose({1, sidr_category()}, "rdma_get_cm_event"), "nobody listens"));
}

// ---------------------------------------------------------------- hooks

TEST_CASE_METHOD(unit::test, "destroy-failure hook: can be replaced, null restores the one that prints", "[errors]") {
    static int told;
    told = 0;
    const destroy_failure_hook own = [](const destroy_failure& failure) noexcept {
        if (std::strcmp(failure.call, "ibv_dereg_mr") == 0 && failure.code == std::errc::device_or_resource_busy &&
            failure.object != nullptr)
            ++told;
    };
    const destroy_failure_hook before = set_destroy_failure_hook(own);
    opened with;
    std::array<std::byte, 64> memory{};
    const auto fails = [&] {
        const mr region(with.pd, memory);
        leaked_on_purpose(detail::passkey::block(region));
        fake::fail("ibv_dereg_mr", 1, EBUSY);
    };
    fails();
    CHECK(told == 1);
    CHECK(set_destroy_failure_hook(nullptr) == own);
    const std::string text = captured_stderr(fails);
    CHECK(told == 1);
    CHECK(contains(text, "rdmaxx: ibv_dereg_mr 0x"));
    CHECK(contains(text, "Device or resource busy\n"));
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);
    set_destroy_failure_hook(before);
    with.cq.close();
    fake::abandon(); // the two regions, and what they have pinned
}

TEST_CASE_METHOD(unit::test, "hang hook: can be replaced, null restores the one that prints and keeps waiting",
                 "[errors]") {
    static int told;
    told = 0;
    const hang_hook own = [](const hang_report&) noexcept {
        ++told;
        return hang_action::keep_waiting;
    };
    const hang_hook before = set_hang_hook(own);
    hang_report_after(1ms);
    event_channel channel;
    const auto hangs = [&] {
        cm_id id(channel);
        push(id, cm_event_type::established);
        cm_event event = channel.get_cm_event();
        worker later([&event] {
            std::this_thread::sleep_for(300ms); // the report comes first
            std::move(event).ack();
        });
        id.close();
    };
    hangs();
    CHECK(told == 1);
    CHECK(set_hang_hook(nullptr) == own);
    const std::string text = captured_stderr(hangs);
    CHECK(told == 1);
    CHECK(contains(text, "rdmaxx: rdma_destroy_id 0x"));
    CHECK(contains(text, "waiting for the ack of 1 event(s): established, got by thread "));
    CHECK(contains(text, "(this thread: an event must end before its id)\n"));
    set_hang_hook(before);
}
