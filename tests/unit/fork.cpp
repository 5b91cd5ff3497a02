// After fork, the child's copies of owners and events forget: what they would end is the parent's.
#include "test.hpp"

#include <rdmaxx/verbs/memory_resource.hpp>

#include <algorithm>
#include <array>
#include <csignal>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;

/// Runs the body in a child. Its result, or minus the signal that killed it (SIGALRM: it blocked).
template <class Body>
int in_child(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
        std::signal(SIGALRM, SIG_DFL);
        ::alarm(10);
        ::_exit(body());
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

} // namespace

TEST_CASE_METHOD(unit::test, "fork: the child's owners and events make no C call, whatever their order", "[fork]") {
    connection c;
    std::optional<comp_channel> events(std::in_place, c.device);
    std::optional<cq> queue(std::in_place, c.device, 8, *events);
    std::array<std::byte, 64> memory{};
    std::optional<mr> region(std::in_place, c.pd, memory);
    std::optional<qp> pair(std::in_place, c.pd, qp_init_attr(*queue));
    std::optional<device_list> devices(std::in_place);
    queue->request_notify();
    fake::push_success(queue->native_handle(), 1, IBV_WC_SEND, 1);
    std::optional<cq_event> completion(events->get_cq_event());
    push(c.client, type::disconnected);
    std::optional<cm_event> event(c.channel.get_cm_event());

    const bool parents_first = GENERATE(false, true);
    const int result = in_child([&] {
        errno = 4711;
        if (parents_first) {
            c.channel = event_channel(nullptr);
            c.device = context();
            c.pd = pd();
            c.cq = cq();
            queue.reset();
            events.reset();
        }
        event.reset(); // its end would be an ack
        completion.reset();
        c.client = cm_id(); // held up by no event
        std::error_code ec;
        c.server.close(ec);
        if (ec)
            return 2;
        c.listener.close();
        pair.reset();
        region->close(ec);
        if (ec)
            return 3;
        region.reset();
        queue.reset();
        events.reset();
        devices.reset();
        c.cq = cq();
        c.pd = pd();
        c.device = context();
        c.channel = event_channel(nullptr);
        return errno == 4711 ? 0 : 4;
    });
    CHECK(result == 0);
    CHECK(fake::calls_in_children() == std::vector<std::string>());

    // The parent's are as they were.
    CHECK(fake::cm_events().held() == 1);
    CHECK(event->type() == type::disconnected);
    event.reset();
    completion.reset();
    c.server.qp().post_recv(*region, 5);
    c.client.qp().post_send(*region, 6);
    std::array<wc, 4> done;
    CHECK(c.cq.poll(done).size() == 2);
}

TEST_CASE_METHOD(unit::test, "fork: while another thread is inside a get, the child does not block on its lock",
                 "[fork]") {
    bound_id on;
    cm_id other(on.channel);
    push(other, type::established);
    std::optional<cm_event> held(on.channel.get_cm_event());
    gate inside;
    gate forked;
    fake::before("rdma_get_cm_event", [&] { // the gates stay open: later gets pass
        inside.open();
        forked.wait();
    });
    worker getter([&] { static_cast<void>(on.channel.try_get_cm_event()); });
    inside.wait(); // and the channel is locked
    const int result = in_child([&] {
        held.reset();
        on.id.close();
        other = cm_id();
        on.channel = event_channel(nullptr);
        return 0;
    });
    forked.open();
    getter.join();
    CHECK(result == 0);
    CHECK(fake::calls_in_children() == std::vector<std::string>());
    held.reset();
    push(on.id, type::established);
    on.channel.expect_and_ack(on.id, type::established);
}

TEST_CASE_METHOD(unit::test, "fork: while another thread waits in the end of an id, the child does not", "[fork]") {
    bound_id on;
    push(on.id, type::established);
    std::optional<cm_event> held(on.channel.get_cm_event());
    hang_report_after(1ms);
    gate waiting;
    on_hang([&] {
        waiting.open();
        return hang_action::keep_waiting;
    });
    worker destroyer([&, id = std::move(on.id)]() mutable { id.close(); });
    waiting.wait();
    const int result = in_child([&] {
        held.reset();
        on.channel.close();
        return 0;
    });
    held.reset();
    destroyer.join();
    CHECK(result == 0);
    CHECK(fake::calls_in_children() == std::vector<std::string>());
    CHECK(take_hang_reports().size() == 1);
}

TEST_CASE_METHOD(unit::test, "fork: an untaken connect_request in the child is the parent's", "[fork]") {
    requesting from;
    std::optional<cm_event> request(from.channel.get_cm_event());
    const int result = in_child([&] {
        request.reset();
        return 0;
    });
    CHECK(result == 0);
    CHECK(fake::calls_in_children() == std::vector<std::string>());
    CHECK(request->take_id());
}

TEST_CASE_METHOD(unit::test, "fork: what the child makes itself it also ends", "[fork]") {
    const int result = in_child([] {
        const opened with;
        return 0;
    });
    CHECK(result == 0);
    std::vector<std::string> calls = fake::calls_in_children();
    for (const char* call : {"ibv_open_device", "ibv_close_device", "ibv_dealloc_pd", "ibv_destroy_cq"})
        CHECK(std::count(calls.begin(), calls.end(), call) == 1);
}

TEST_CASE_METHOD(unit::test, "fork: a registered_resource and its containers end in a child that has not their memory",
                 "[fork]") {
    const opened with;
    constexpr std::size_t size = 64 * 1024;
    std::optional<registered_resource> registered(std::in_place, with.pd, access::local_write, size);
    std::optional<std::pmr::vector<int>> numbers(std::in_place, 100, &*registered);
    // As after fork_init(), on a kernel that does not copy.
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    auto* first = reinterpret_cast<std::byte*>(numbers->data());
    first -= reinterpret_cast<std::uintptr_t>(first) % page;
    std::error_code ec;
    while (registered->sge(std::span(first - page, 1), ec).length != 0)
        first -= page;
    REQUIRE(::madvise(first, size, MADV_DONTFORK) == 0);
    const int result = in_child([&] {
        bool refused = false;
        try {
            const std::pmr::vector<int> more(10, &*registered);
        } catch (const std::bad_alloc&) {
            refused = true;
        }
        numbers.reset();
        registered.reset();
        return refused ? 0 : 1;
    });
    CHECK(result == 0);
    CHECK(fake::calls_in_children().empty());
}
