// What the unit tests share: the fixture that each of them runs in, and small helpers.
#ifndef RDMAXX_TESTS_UNIT_TEST_HPP
#define RDMAXX_TESTS_UNIT_TEST_HPP

#include "catch.hpp"

#include "fake.hpp"

#include <rdmaxx/rdmaxx.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace unit {

using namespace std::chrono_literals;

/// What the destroy-failure hook was told.
struct destroy_report {
    std::string call;
    int error = 0;
    const void* object = nullptr;

    friend bool operator==(const destroy_report&, const destroy_report&) = default;
};

/// Every test case is a TEST_CASE_METHOD of it. It starts with a fresh fake, and ends with the check that
/// nothing is left, that the fake found no fault, and that neither hook was told anything that the test did
/// not take. A test that hangs is aborted.
class test {
protected:
    test();
    ~test() noexcept(false);
    test(const test&) = delete;
    test& operator=(const test&) = delete;
};

// ---- The hooks of error.hpp, as tests see them.

[[nodiscard]] std::vector<destroy_report> take_destroy_reports();
[[nodiscard]] std::vector<rdmaxx::hang_report> take_hang_reports();

/// What the hooks do after they have taken note: by default nothing, and keep_waiting.
void on_destroy_failure(std::function<void()> action);
void on_hang(std::function<rdmaxx::hang_action()> action);

/// Restores what a test of the hooks themselves has changed.
void install_hooks();

// ---- Faults that are not the fake's.

/// While it lives, the allocation of this thread that is the nth from here on (from 1; 0: none) fails. Only
/// those count that may fail: new (std::nothrow).
class failing_allocation {
public:
    explicit failing_allocation(unsigned nth) noexcept;
    ~failing_allocation();
    failing_allocation(const failing_allocation&) = delete;
    failing_allocation& operator=(const failing_allocation&) = delete;

    [[nodiscard]] static unsigned seen() noexcept;
};

/// What a test gives up for good, on purpose: the leak checker must not find it.
void leaked_on_purpose(const void* block);

// ---- Output.

/// What is written to stderr meanwhile.
[[nodiscard]] std::string captured_stderr(const std::function<void()>& action);

// ---- Errors.

/// What a callable threw: nothing (code 0) or an rdmaxx::error.
struct caught {
    template <class Callable>
    explicit caught(Callable&& callable) {
        try {
            std::forward<Callable>(callable)();
        } catch (const rdmaxx::error& e) {
            error.emplace(e);
            code = e.code().category() == std::system_category() ? e.code().value() : -1;
            call = e.call();
            cause = e.cause();
            what = e.what();
        }
    }

    std::optional<rdmaxx::error> error;
    int code = 0; ///< an errno, -1 for another category
    std::string call;
    std::string cause;
    std::string what;
};

/// The errno of a code, 0 for none.
[[nodiscard]] inline int number(const std::error_code& ec) {
    return ec.category() == std::system_category() ? ec.value() : -1;
}

[[nodiscard]] inline bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

// ---- Threads.

/// Joined at its end.
class worker {
public:
    template <class Body>
    explicit worker(Body body) : thread_(std::move(body)) {}
    worker(worker&&) = default;
    worker& operator=(worker&&) = delete;
    ~worker() { join(); }

    void join() {
        if (thread_.joinable())
            thread_.join();
    }
    [[nodiscard]] std::thread::native_handle_type native_handle() { return thread_.native_handle(); }

private:
    std::thread thread_;
};

/// Opened once; whoever waits goes on then.
class gate {
public:
    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return open_; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
};

[[nodiscard]] inline std::chrono::milliseconds elapsed(std::chrono::steady_clock::time_point since) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - since);
}

// ---- Objects that many tests start from.

/// An id that is bound to the fake's device and has no peer: its events are pushed by the test.
struct bound_id {
    explicit bound_id(rdmaxx::port_space ps = rdmaxx::port_space::tcp);

    rdmaxx::event_channel channel;
    rdmaxx::cm_id id;
};

/// A bound_id that listens, and takes connect requests that are pushed by the test.
struct bound_listener : bound_id {
    explicit bound_listener(rdmaxx::port_space ps = rdmaxx::port_space::tcp);

    void push_request() const;
};

void push(const rdmaxx::cm_id& id, rdmaxx::cm_event_type type, int status = 0);

/// Both ends of one connection, on one channel: the fake answers by itself.
struct connection {
    explicit connection(std::uint32_t depth = 16);

    static rdmaxx::address address() { return rdmaxx::address("192.0.2.1", 7471); }

    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener;
    rdmaxx::cm_id client;
    rdmaxx::cm_id server;
    rdmaxx::context device;
    rdmaxx::pd pd;
    rdmaxx::cq cq;
};

/// Up to the connect request that the client's connect() has brought; not yet got.
struct requesting {
    explicit requesting(rdmaxx::port_space ps = rdmaxx::port_space::tcp, const rdmaxx::conn_param& param = {});

    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener;
    rdmaxx::cm_id client;
    rdmaxx::context device;
    rdmaxx::pd pd;
    rdmaxx::cq cq;
    rdmaxx::qp_init_attr attr;
};

/// An open device with what queue pairs are made from.
struct opened {
    opened();

    rdmaxx::context device;
    rdmaxx::pd pd;
    rdmaxx::cq cq;
};

} // namespace unit

#endif
