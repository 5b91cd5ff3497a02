// co_await without Asio: any number of clients of echo_server in one thread, each of them a coroutine.
//
//     coroutine_adapter address:port [clients]
//
// The adapter is next, some ten lines: an awaitable that tries to get, and tries again whenever the descriptor is
// readable. poll_loop, some twenty lines over poll(2), is what tells it. A loop of your own needs the same two things
// of rdmaxx: a descriptor (fd(), async_fd()) and a get that does not wait (try_get_...).
#include <rdmaxx/rdmaxx.hpp>

#include <array>
#include <chrono>
#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>

namespace {

using rdmaxx::cm_event_type;
using namespace std::chrono_literals;

// ---- The adapter.

struct poll_loop {
    struct waiter {
        int fd;
        std::function<bool()> got; // tries to get
        std::coroutine_handle<> coroutine;
    };
    std::vector<waiter> waiting;

    void run() { // until nobody waits
        while (!waiting.empty()) {
            std::vector<pollfd> fds;
            for (const waiter& each : waiting)
                fds.push_back({each.fd, POLLIN, 0});
            ::poll(fds.data(), fds.size(), -1);
            for (std::size_t i = fds.size(); i-- > 0;) // backwards: who waits anew goes to the end
                if (fds[i].revents != 0 && waiting[i].got()) {
                    std::swap(waiting[i], waiting.back());
                    const auto woken = waiting.back().coroutine;
                    waiting.pop_back();
                    woken.resume();
                }
        }
    }
};

template <class Get>
struct next {
    next(poll_loop& in, int descriptor, Get how) : loop(in), fd(descriptor), get(std::move(how)) {}

    bool await_ready() { return static_cast<bool>(result = get()); }
    void await_suspend(std::coroutine_handle<> who) {
        loop.waiting.push_back({fd, [this] { return await_ready(); }, who});
    }
    auto await_resume() { return std::move(result); }

    poll_loop& loop;
    int fd;
    Get get;
    decltype(get()) result{};
};

// ---- What is waited for.

auto next_event(poll_loop& loop, rdmaxx::event_channel& from) {
    return next(loop, from.fd(), [&from] { return from.try_get_cm_event(); });
}

auto next_completion(poll_loop& loop, rdmaxx::comp_channel& events, const rdmaxx::cq& from) {
    return next(loop, events.fd(), [&]() -> std::optional<rdmaxx::wc> {
        while (events.try_get_cq_event())
            ;
        from.request_notify(); // before polling: what comes after raises the next event
        std::array<rdmaxx::wc, 1> done;
        return from.poll(done).empty() ? std::nullopt : std::optional(done[0]);
    });
}

// ---- The clients.

/// A coroutine that runs by itself, and deals with its errors.
struct task {
    // NOLINTBEGIN(readability-convert-member-functions-to-static): they are called on an object
    struct promise_type {
        task get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
    // NOLINTEND(readability-convert-member-functions-to-static)
};

void need(const rdmaxx::cm_event& event, cm_event_type type) {
    if (event.type() != type)
        throw rdmaxx::unexpected_event(event.snapshot(), type);
}

task ask(poll_loop& loop, rdmaxx::address peer, int number, int& answers) try {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    id.resolve_addr(peer, 2s);
    need(co_await next_event(loop, channel), cm_event_type::addr_resolved);
    id.resolve_route(2s);
    need(co_await next_event(loop, channel), cm_event_type::route_resolved);

    rdmaxx::comp_channel completions(id.verbs());
    const rdmaxx::cq cq(id.verbs(), 4, completions);
    const std::string question = "question " + std::to_string(number);
    std::array<char, 64> out{};
    std::array<char, 64> in{};
    const rdmaxx::mr sent(id.pd(), out);
    const rdmaxx::mr received(id.pd(), in);
    const rdmaxx::qp_ref qp = id.create_qp(rdmaxx::qp_init_attr(cq, 2));
    qp.post_recv(received);
    id.connect();
    need(co_await next_event(loop, channel), cm_event_type::established);

    question.copy(out.data(), out.size());
    qp.post_send(sent.sge(0, question.size()));
    for (bool answered = false; !answered;) {
        const auto wc = co_await next_completion(loop, completions, cq);
        if (!wc->ok())
            throw std::runtime_error(to_string(wc->status()));
        answered = wc->is_recv();
    }
    answers += std::string_view(in.data(), question.size()) == question ? 1 : 0;
    id.disconnect();
} catch (const std::exception& e) {
    std::fprintf(stderr, "coroutine_adapter: client %d: %s\n", number, e.what());
}

} // namespace

int main(int argc, char** argv) try {
    const auto peer = rdmaxx::address::parse(argc > 1 ? argv[1] : "");
    const int clients = argc > 2 ? std::atoi(argv[2]) : 3;
    int answers = 0;
    poll_loop loop;
    for (int i = 0; i < clients; ++i)
        ask(loop, peer, i, answers);
    loop.run();
    std::printf("%d clients, %d answers\n", clients, answers);
    return answers == clients ? 0 : 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "coroutine_adapter: %s\n", e.what()), 1;
}
