// Gets as asynchronous operations: tokens, executors, cancellation, and the life of the I/O objects.
#include "loop.hpp"

#include <fstream>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <tuple>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

using namespace loops;

namespace {

/// Which descriptors are in an epoll set of this process.
std::vector<int> descriptors_in_epoll() {
    std::vector<int> found;
    DIR* folder = ::opendir("/proc/self/fdinfo");
    while (const dirent* entry = ::readdir(folder)) { // NOLINT(concurrency-mt-unsafe): one stream, one thread
        std::ifstream info(std::string("/proc/self/fdinfo/") + entry->d_name);
        for (std::string line; std::getline(info, line);)
            if (line.starts_with("tfd:"))
                found.push_back(std::stoi(line.substr(4)));
    }
    ::closedir(folder);
    return found;
}

bool in_epoll(int fd) {
    const std::vector<int> found = descriptors_in_epoll();
    return std::find(found.begin(), found.end(), fd) != found.end();
}

bool is_open(int fd) {
    return ::fcntl(fd, F_GETFD) >= 0;
}

/// Hands out memory and counts it.
template <class T>
struct counting_allocator {
    using value_type = T;

    explicit counting_allocator(unsigned& count_) : count(&count_) {}
    template <class U>
    counting_allocator(const counting_allocator<U>& other) : count(other.count) {} // NOLINT(*-explicit-*)

    [[nodiscard]] T* allocate(std::size_t n) {
        ++*count;
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T* p, std::size_t n) { std::allocator<T>().deallocate(p, n); }
    friend bool operator==(const counting_allocator&, const counting_allocator&) = default;

    unsigned* count;
};

/// A handler with an allocator of its own.
template <class Handler>
struct allocating {
    using allocator_type = counting_allocator<char>;

    [[nodiscard]] allocator_type get_allocator() const noexcept { return allocator_type(*count); }
    template <class... Args>
    void operator()(Args&&... args) {
        handler(std::forward<Args>(args)...);
    }

    unsigned* count;
    Handler handler;
};
template <class Handler>
allocating(unsigned*, Handler) -> allocating<Handler>;

} // namespace

// ---------------------------------------------------------------------------------------------------------------
// Tokens.

TEMPLATE_TEST_CASE("gets: a callback gets the event, and keeps it", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> done;
    from.get(done.handler());
    poll(loop);
    CHECK(done.calls == 0);
    from.push();
    CHECK(run(loop));
    CHECK(done.calls == 1);
    CHECK_FALSE(done.code);
    CHECK(TestType::of_this(done.event, from));
    CHECK(TestType::tally().held() == 1);
    std::move(done.event).ack();
    CHECK(TestType::tally().held() == 0);
}

TEMPLATE_TEST_CASE("gets: use_future", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    from.push();
    from.push();
    std::future<typename TestType::event> first = from.get(net::use_future);
    std::future<typename TestType::event> second = from.get(net::use_future);
    std::future<typename TestType::event> third = from.get(net::use_future);
    unit::worker other([&] { run(loop); });
    {
        const auto event = first.get();
        CHECK(TestType::of_this(event, from));
    }
    CHECK_NOTHROW(second.get());
    loop.stop(); // the third one still waits, until:
    other.join();
    from.io.cancel();
    CHECK(run(loop));
    CHECK_THROWS_AS(third.get(), system_error);
    CHECK(TestType::tally().held() == 0);
}

TEMPLATE_TEST_CASE("gets: use_awaitable", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    unsigned got = 0;
    error_code last;
    net::co_spawn(
        loop,
        [&]() -> net::awaitable<void> {
            try {
                for (;;) {
                    const auto event = co_await from.get(net::use_awaitable);
                    got += TestType::of_this(event, from) ? 1U : 0U;
                }
            } catch (const system_error& e) {
                last = e.code();
            }
        },
        net::detached);
    for (int i = 0; i < 3; ++i) {
        from.push();
        poll(loop);
    }
    CHECK(got == 3);
    CHECK(TestType::tally().held() == 0);
    from.io.cancel();
    CHECK(run(loop));
    CHECK(last == aborted);
}

#if RDMAXX_TESTS_TOKENS
TEMPLATE_TEST_CASE("gets: deferred and as_tuple", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> done;
    auto operation = from.get(deferred);
    from.push();
    CHECK(run(loop)); // it has not begun
    std::move(operation)(done.handler());
    CHECK(run(loop));
    CHECK(done.calls == 1);
    CHECK(TestType::of_this(done.event, from));

    // The object may be gone when it begins.
    auto late = from.get(deferred);
    from.io.close();
    std::move(late)(done.handler());
    CHECK(done.calls == 1);
    CHECK(run(loop));
    CHECK(done.calls == 2);
    CHECK(done.code == net::error::bad_descriptor);
    CHECK_FALSE(done.event);
    CHECK(from.queued() == 0);

    TestType other(loop.get_executor());
    error_code last;
    net::co_spawn(
        loop,
        [&]() -> net::awaitable<void> {
            auto [first, event] = co_await other.get(as_tuple(net::use_awaitable));
            CHECK(first == error_code());
            CHECK(event);
            std::move(event).ack();
            std::tie(last, event) = co_await other.get(as_tuple(net::use_awaitable));
            CHECK_FALSE(event);
        },
        net::detached);
    other.push();
    poll(loop);
    other.io.cancel();
    CHECK(run(loop));
    CHECK(last == aborted);
}

// Whichever of two ends first, the other one's event is not lost.
TEMPLATE_TEST_CASE("gets: one of two, by ||", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    using namespace net::experimental::awaitable_operators;
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    net::steady_timer timer(loop, 0s);
    std::size_t first = 9;
    from.push(); // the timer has expired, too
    net::co_spawn(
        loop,
        [&]() -> net::awaitable<void> {
            const auto which = co_await (timer.async_wait(net::use_awaitable) || from.get(net::use_awaitable));
            first = which.index();
        },
        net::detached);
    CHECK(run(loop));
    CHECK(first != 9);
    CHECK(TestType::tally().got == first);
    CHECK(from.queued() == 1 - first);
    if (from.queued() == 1)
        CHECK(TestType::try_get(from.io.next_layer()));
}
#endif

TEMPLATE_TEST_CASE("gets: the default token of an executor", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    using token = net::use_awaitable_t<>;
    TestType made(loop.get_executor());
    auto from = token::as_default_on(std::move(made.io));
    static_assert(std::is_same_v<decltype(from), token::as_default_on_t<typename TestType::io_object>>);
    CHECK_FALSE(made.io.is_open());
    CHECK(in_epoll(made.fd));
    bool got = false;
    net::co_spawn(
        loop,
        [&]() -> net::awaitable<void> {
            const auto event = co_await TestType::get_by_default(from);
            got = TestType::of_this(event, made);
        },
        net::detached);
    made.push();
    CHECK(run(loop));
    CHECK(got);
    // From a context, as Asio's own are made.
    if constexpr (requires { decltype(from)(loop); })
        CHECK(decltype(from)(loop).is_open());
}

// ---------------------------------------------------------------------------------------------------------------
// How handlers are called.

TEMPLATE_TEST_CASE("gets: no handler is called by its initiating function", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> done;
    const std::string what = GENERATE("event", "closed");
    if (what == "event")
        from.push();
    else
        from.io.close();
    net::post(loop, [&] { // where it would be allowed to run handlers at once
        from.get(done.handler());
        CHECK(done.calls == 0);
    });
    CHECK(run(loop));
    CHECK(done.calls == 1);
    CHECK(done.code == (what == "event" ? error_code() : net::error::bad_descriptor));
    CHECK(done.event.operator bool() == (what == "event"));
}

TEMPLATE_TEST_CASE("gets: handlers run on their own executor", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    net::io_context other;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> done;
    const std::string what = GENERATE("event", "closed", "cancelled");
    if (what == "event")
        from.push();
    if (what == "closed")
        from.io.close();
    from.get(net::bind_executor(other, done.handler()));
    if (what == "cancelled")
        from.io.cancel();
    poll(loop);
    CHECK(done.calls == 0);
    CHECK(TestType::tally().got == 0); // not got for a handler that may never run
    CHECK(run(other));
    CHECK(done.calls == 1);
}

TEMPLATE_TEST_CASE("gets: memory of operations comes from the handler's allocator", "[gets]",
                   RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> done;
    unsigned allocations = 0;
    from.push();
    from.get(allocating{&allocations, done.handler()});
    CHECK(run(loop));
    CHECK(done.calls == 1);
    CHECK(allocations > 0);
}

TEMPLATE_TEST_CASE("gets: a get under way is work, and nothing else is", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    CHECK(run(loop)); // an open object alone does not keep the loop
    outcome<typename TestType::event> done;
    from.get(done.handler());
    loop.restart();
    loop.run_for(20ms);
    CHECK_FALSE(loop.stopped());
    from.push();
    CHECK(run(loop));
    CHECK(done.calls == 1);
}

TEMPLATE_TEST_CASE("gets: a handler that throws", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    from.push();
    from.get([](error_code, typename TestType::event) { throw std::runtime_error("thrown"); });
    CHECK_THROWS_WITH(run(loop), "thrown");
    CHECK(TestType::tally().got == 1);
    CHECK(TestType::tally().held() == 0);
}

TEMPLATE_TEST_CASE("gets: errors of C go to the handler", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> done;
    from.push();
    fake::fail(TestType::get_call).with(ENODEV);
    from.get(done.handler());
    CHECK(run(loop));
    CHECK(done.calls == 1);
    CHECK(done.code.value() == ENODEV);
    CHECK_FALSE(done.event);
    CHECK(from.queued() == 1);
    fake::fail(TestType::get_call).with(EINTR); // no error
    from.get(done.handler());
    CHECK(run(loop));
    CHECK(done.calls == 2);
    CHECK_FALSE(done.code);
    CHECK(done.event);
}

TEST_CASE("gets: events that the library keeps to itself do not end a get", "[gets]") {
    const fixture here;
    net::io_context loop;
    cm_events from(loop.get_executor());
    outcome<rdmaxx::cm_event> done;
    from.get(done.handler());
    fake::push_event({.type = RDMA_CM_EVENT_ESTABLISHED, .id = from.id.native_handle(), .swallowed = true});
    poll(loop);
    CHECK(done.calls == 0);
    CHECK(from.queued() == 0);
    from.push();
    CHECK(run(loop));
    CHECK(done.calls == 1);
    CHECK(done.event.type() == rdmaxx::cm_event_type::user);
}

TEMPLATE_TEST_CASE("gets: other executors", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    {
        using executor = net::io_context::executor_type;
        typename TestType::template with_executor<executor> from(loop.get_executor());
        static_assert(std::is_same_v<typename decltype(from.io)::executor_type, executor>);
        outcome<typename TestType::event> done;
        from.push();
        from.get(done.handler());
        CHECK(run(loop));
        CHECK(done.calls == 1);
    }
    {
        using executor = net::strand<net::io_context::executor_type>;
        const executor strand = net::make_strand(loop);
        typename TestType::template with_executor<executor> from(strand);
        CHECK(from.io.get_executor() == strand);
        bool in_strand = false;
        from.push();
        from.get([&](error_code, typename TestType::event) { in_strand = strand.running_in_this_thread(); });
        CHECK(run(loop));
        CHECK(in_strand);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// More than one.

TEMPLATE_TEST_CASE("gets: several under way, each event goes to one", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> a;
    outcome<typename TestType::event> b;
    outcome<typename TestType::event> c;
    for (auto* each : {&a, &b, &c})
        from.get(each->handler());
    from.push();
    poll(loop);
    CHECK(a.calls + b.calls + c.calls == 1);
    from.push();
    poll(loop);
    CHECK(a.calls + b.calls + c.calls == 2);
    from.push();
    CHECK(run(loop));
    CHECK((a.calls == 1 && b.calls == 1 && c.calls == 1));
    CHECK((a.event && b.event && c.event));
}

TEMPLATE_TEST_CASE("gets: begun in the handler of another, a channel is emptied", "[gets]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    unsigned got = 0;
    std::function<void()> again = [&] {
        from.get([&](error_code ec, typename TestType::event event) {
            if (ec)
                return;
            got += event ? 1U : 0U;
            again();
        });
    };
    again();
    for (int i = 0; i < 100; ++i)
        from.push();
    poll(loop);
    CHECK(got == 100);
    from.io.cancel();
    CHECK(run(loop));
}

// ---------------------------------------------------------------------------------------------------------------
// Cancellation. `push` before or after says whether the wait had ended already: then the handler is queued.

TEMPLATE_TEST_CASE("gets: cancelled, by every type and way", "[gets][cancel]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    std::optional<TestType> from(std::in_place, loop.get_executor());
    std::optional<typename TestType::io_object> moved_to;
    net::cancellation_signal signal;
    outcome<typename TestType::event> done;
    const std::string how =
        GENERATE("terminal", "partial", "total", "all", "cancel", "close", "release", "move", "end of the object");
    const bool wait_has_ended = GENERATE(false, true);
    CAPTURE(how, wait_has_ended);
    const bool stays = how != "close" && how != "end of the object" && how != "move";

    const auto cancel = [&] {
        if (how == "terminal")
            signal.emit(net::cancellation_type::terminal);
        else if (how == "partial")
            signal.emit(net::cancellation_type::partial);
        else if (how == "total")
            signal.emit(net::cancellation_type::total);
        else if (how == "all")
            signal.emit(net::cancellation_type::all);
        else if (how == "cancel")
            from->io.cancel();
        else if (how == "close")
            from->io.close();
        else if (how == "release") {
            auto object = from->io.release();
            CHECK(object.native_handle() == from->raw);
            moved_to.emplace(loop.get_executor(), std::move(object));
        } else if (how == "move")
            from->io = typename TestType::io_object(loop.get_executor(), from->another());
        else {
            auto gone = std::move(from->io);
        }
    };

    from->get(net::bind_cancellation_slot(signal.slot(), done.handler()));
    if (wait_has_ended) {
        from->push();
        net::post(loop, cancel); // runs when the descriptor was found readable, and before the handler
    } else {
        poll(loop);
        cancel();
        CHECK(done.calls == 0); // nor by what cancels
        from->push();
    }
    CHECK(run(loop));
    CHECK(done.calls == 1);
    CHECK(done.code == aborted);
    CHECK_FALSE(done.event);
    CHECK(TestType::tally().got == 0);
    if (stays) {
        // The event is there for the next one.
        outcome<typename TestType::event> next;
        TestType::get(moved_to ? *moved_to : from->io, next.handler());
        CHECK(run(loop));
        CHECK(next.calls == 1);
        CHECK(next.event);
    }
}

// The premise of the test above: there, a get that nobody cancels has its event when the loop has run that far.
TEMPLATE_TEST_CASE("gets: what is posted after the event runs before the handler", "[gets][cancel]",
                   RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> done;
    from.get(done.handler());
    from.push();
    std::optional<bool> before;
    net::post(loop, [&] { before = done.calls == 0; });
    loop.run_one();
    CHECK(before == true);
    loop.run_one(); // no wait between: the handler was queued
    CHECK(done.calls == 1);
}

TEMPLATE_TEST_CASE("gets: cancelled after the end, nothing happens", "[gets][cancel]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    net::cancellation_signal signal;
    outcome<typename TestType::event> done;
    from.push();
    from.get(net::bind_cancellation_slot(signal.slot(), done.handler()));
    CHECK(run(loop));
    signal.emit(net::cancellation_type::all);
    from.io.cancel();
    CHECK(run(loop));
    CHECK(done.calls == 1);
    CHECK_FALSE(done.code);
    // What is begun afterwards is not cancelled.
    from.get(done.handler());
    from.push();
    CHECK(run(loop));
    CHECK(done.calls == 2);
    CHECK_FALSE(done.code);
}

TEMPLATE_TEST_CASE("gets: one is cancelled, the other one goes on", "[gets][cancel]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    net::cancellation_signal signal;
    outcome<typename TestType::event> a;
    outcome<typename TestType::event> b;
    from.get(net::bind_cancellation_slot(signal.slot(), a.handler()));
    from.get(b.handler());
    if (GENERATE(false, true)) {
        from.push();
        net::post(loop, [&] { signal.emit(net::cancellation_type::total); });
    } else {
        signal.emit(net::cancellation_type::total);
        poll(loop);
        CHECK(b.calls == 0);
        from.push();
    }
    CHECK(run(loop));
    CHECK(a.code == aborted);
    CHECK_FALSE(b.code);
    CHECK(b.event);
}

// Both waits end, one get has the event, and its handler cancels: the other one must not go back to wait.
TEMPLATE_TEST_CASE("gets: cancel() reaches a get that was too late for an event", "[gets][cancel]",
                   RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> late;
    unsigned got = 0;
    from.get([&](error_code ec, typename TestType::event) {
        got += ec ? 0U : 1U;
        from.io.cancel();
    });
    from.get(late.handler());
    from.push();
    CHECK(run(loop));
    CHECK(got == 1);
    CHECK(late.calls == 1);
    CHECK(late.code == aborted);
}

// ---------------------------------------------------------------------------------------------------------------
// The life of the objects.

TEMPLATE_TEST_CASE("gets: out of the loop before the C object closes", "[gets][life]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    std::optional<TestType> from(std::in_place, loop.get_executor());
    const int fd = from->fd;
    outcome<typename TestType::event> done;
    from->get(done.handler());
    CHECK(in_epoll(fd));
    bool registered = true;
    bool open = false;
    fake::before(TestType::close_call, [&] {
        registered = in_epoll(fd);
        open = is_open(fd);
    });
    const std::string how = GENERATE("close", "destructor");
    if (GENERATE(false, true)) { // with children, the C object goes with the last of them
        if (how == "close")
            from->io.close();
        else
            static_cast<void>(typename TestType::io_object(std::move(from->io)));
        CHECK_FALSE(in_epoll(fd));
        CHECK(is_open(fd));
        CHECK(fake::calls(TestType::close_call) == 0);
        from->drop_children();
    } else {
        from->drop_children();
        if (how == "close")
            from->io.close();
        else
            static_cast<void>(typename TestType::io_object(std::move(from->io)));
    }
    // At once, and not when the operation has ended.
    CHECK(fake::calls(TestType::close_call) == 1);
    CHECK_FALSE(registered);
    CHECK(open);
    CHECK_FALSE(is_open(fd));
    CHECK(done.calls == 0);
    CHECK(run(loop));
    CHECK(done.code == aborted);
}

TEMPLATE_TEST_CASE("gets: an object is moved while a get is under way", "[gets][life]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    net::io_context loop;
    TestType from(loop.get_executor());
    outcome<typename TestType::event> done;
    from.get(done.handler());
    auto moved = std::move(from.io);
    CHECK_FALSE(from.io.is_open()); // NOLINT(bugprone-use-after-move)
    from.io.cancel();
    from.io.close();
    auto& self = moved;
    moved = std::move(self);
    CHECK(moved.is_open());
    from.push();
    CHECK(run(loop));
    CHECK(done.calls == 1);
    CHECK(done.event);
    TestType::get(moved, done.handler());
    moved.cancel();
    CHECK(run(loop));
    CHECK(done.code == aborted);
}

TEMPLATE_TEST_CASE("gets: the loop ends with gets under way", "[gets][life]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    auto loop = std::make_unique<net::io_context>();
    auto other = std::make_unique<net::io_context>();
    std::optional<TestType> from(std::in_place, loop->get_executor());
    bool called = false;
    auto alive = std::make_shared<int>(1);
    const auto handler = [&called, alive](error_code, typename TestType::event) {
        called = true;
    };
    const std::string what = GENERATE("waiting", "wait ended", "in another loop", "closed", "closed before");
    CAPTURE(what);
    if (what == "closed before")
        from->io.close();
    if (what == "in another loop") {
        from->push();
        from->get(net::bind_executor(*other, handler));
        poll(*loop); // the handler waits there
    } else
        from->get(handler);
    if (what == "wait ended") {
        from->push();
        net::post(*loop, [] {});
        loop->run_one(); // that function; the handler is queued behind it
    }
    if (what == "closed")
        from->io.close();
    if (what == "in another loop")
        other.reset();
    // As Asio demands it, the I/O object goes before its loop. What is under way goes with the loop.
    from->drop_children();
    from.reset();
    loop.reset();
    CHECK_FALSE(called);
    CHECK(alive.use_count() == 2); // ours, and the handler that was copied
    CHECK(TestType::tally().held() == 0);
}

TEMPLATE_TEST_CASE("gets: a loop ends that has coroutines which own the object and an event", "[gets][life]",
                   RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    auto loop = std::make_unique<net::io_context>();
    auto from = std::make_unique<TestType>(loop->get_executor());
    from->push();
    net::co_spawn(
        *loop,
        [](std::unique_ptr<TestType> mine) -> net::awaitable<void> {
            const auto event = co_await mine->get(net::use_awaitable);
            static_cast<void>(co_await mine->get(net::use_awaitable));
        }(std::move(from)),
        net::detached);
    poll(*loop);
    CHECK(TestType::tally().held() == 1);
    loop.reset();
    CHECK(TestType::tally().held() == 0);
    CHECK(fake::leaks().empty());
}

TEMPLATE_TEST_CASE("gets: what cannot be made", "[gets][life]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
    using io_object = typename TestType::io_object;
    // From another I/O object: that would be a copy.
    static_assert(!std::is_constructible_v<io_object, io_object&>);
    static_assert(!std::is_copy_assignable_v<io_object>);
    static_assert(std::is_nothrow_move_constructible_v<io_object> && std::is_nothrow_move_assignable_v<io_object>);

    net::io_context loop;
    TestType from(loop.get_executor());
    const unit::caught empty([&] {
        typename io_object::object_type taken = from.io.release();
        auto gone = std::move(taken);
        static_cast<void>(io_object(loop, std::move(taken))); // NOLINT(bugprone-use-after-move)
    });
    CHECK(empty.code == EBADF);

    // The loop refuses the descriptor: the object, which was taken over, has ended.
    TestType other(loop.get_executor());
    const int spare = ::dup(other.fd);
    auto object = other.io.release();
    other.drop_children();
    ::close(other.fd);
    CHECK_THROWS_AS(io_object(loop, std::move(object)), system_error);
    CHECK(fake::successes(TestType::close_call) >= 1);
    ::close(spare);
}
