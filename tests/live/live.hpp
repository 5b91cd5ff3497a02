// What the live tests share: the rig's environment, a fixture that watches for hangs and leaks, and two ends of a
// connection in one process.
#ifndef RDMAXX_TESTS_LIVE_LIVE_HPP
#define RDMAXX_TESTS_LIVE_LIVE_HPP

#include "catch.hpp"

#include <rdmaxx/rdmaxx.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace live {

using namespace std::chrono_literals;

// ---------------------------------------------------------------------------------------------------------------
// Where the tests run. The rig says so in RIG_... variables.

/// An environment variable, empty where it is not set.
[[nodiscard]] std::string variable(const char* name);

/// The device's own addresses: both ends of a connection use one of them.
[[nodiscard]] rdmaxx::address ipv4(std::uint16_t port = 0);
[[nodiscard]] rdmaxx::address ipv6(std::uint16_t port = 0);

/// On the device's subnet, and nobody's.
[[nodiscard]] rdmaxx::address address_of_nobody();

/// Whether this process has the machine for itself and is root there.
[[nodiscard]] bool in_vm();

/// For before_tests(): 0, or 77 with the reason on stderr.
[[nodiscard]] int need_device();

/// How long anything may take that should happen at once. Emulated, and under a sanitizer, it takes its time.
inline constexpr auto soon = 20s;

/// Milliseconds since the clock was made.
class stopwatch {
public:
    [[nodiscard]] std::chrono::milliseconds elapsed() const {
        return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_);
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// ---------------------------------------------------------------------------------------------------------------
// The fixture of every test.

/// What `rdma resource show` counts of the device, and this process's descriptors: "cm_id 0, cq 1, ..."
[[nodiscard]] std::string resources();

/// Waits until resources() is `expected`: the kernel ends some of its objects later. What it is then.
[[nodiscard]] std::string settled_resources(const std::string& expected);

/// A test that hangs ends the program. A test that leaves a kernel object or a descriptor behind fails, and so does
/// one in which a destructor could not destroy.
class fixture {
public:
    fixture();
    fixture(const fixture&) = delete;
    fixture& operator=(const fixture&) = delete;
    ~fixture();

    /// For tests that take longer.
    void allow(std::chrono::seconds time) const;

private:
    std::string before_;
};

// ---------------------------------------------------------------------------------------------------------------
// Other processes.

/// A part that this program plays in another process: started anew, since a forked child would share the device's
/// open descriptor with its parent, and what it makes would stay when it dies. Defined where it is used:
///
///     const role killed("killed", [] { ...; return 0; });
class role {
public:
    role(const char* name, int (*play)());

    [[nodiscard]] const char* name() const { return name_; }

    /// For before_tests(): plays the part that this process was started for, and exits; otherwise returns.
    static void play_if_asked();

private:
    const char* name_;
    int (*play_)();
    role* next_;
    static role* first_;
};

/// A process that plays a part.
class process {
public:
    explicit process(const role& part);
    process(const process&) = delete;
    process& operator=(const process&) = delete;
    ~process();

    /// The next line that it prints, without the end of the line.
    [[nodiscard]] std::string line();
    void kill();
    /// What else it prints, and its exit status: "...[exit status 0]", or "...[signal 9]".
    [[nodiscard]] std::string rest();

private:
    int pid_ = 0;
    int output_ = -1;
};

/// Runs `body` in a forked child, with a copy of everything that is there. What `body` returns or throws: empty when
/// all is well. Catch's assertions are for the parent only; the child has need().
[[nodiscard]] std::string in_forked_child(const std::function<std::string()>& body);
void need(bool condition, std::string_view what);

// ---------------------------------------------------------------------------------------------------------------
// Hangs: what the hook was told.

/// While it lives, destroys that wait longer than `after` are recorded and get `answer`.
class hang_recorder {
public:
    explicit hang_recorder(rdmaxx::hang_action answer, std::chrono::milliseconds after = 100ms);
    hang_recorder(const hang_recorder&) = delete;
    hang_recorder& operator=(const hang_recorder&) = delete;
    ~hang_recorder();

    [[nodiscard]] std::vector<rdmaxx::hang_report> reports() const;
    /// Runs when a report comes, before the answer.
    void on_report(std::function<void()> action);
};

// ---------------------------------------------------------------------------------------------------------------
// Connections.

/// The next event, which must be of that type.
[[nodiscard]] rdmaxx::cm_event get(rdmaxx::event_channel& channel, rdmaxx::cm_event_type type);

/// The next event's type and what it failed with.
[[nodiscard]] rdmaxx::cm_event_snapshot next(rdmaxx::event_channel& channel);

/// What a client is told that the peer's program did not accept: InfiniBand's reason 28, or iWARP's ECONNRESET.
[[nodiscard]] std::error_code rejected_by_program();

/// An id whose address and route are resolved.
[[nodiscard]] rdmaxx::cm_id resolved(rdmaxx::event_channel& channel, const rdmaxx::address& peer);

struct options {
    rdmaxx::address at = ipv4();
    std::uint32_t depth = 16;
    std::uint32_t sges = 1;
    std::uint32_t inline_bytes = 0;
    rdmaxx::conn_param connect{};
    rdmaxx::conn_param accept{};
};

inline constexpr rdmaxx::access full_access = rdmaxx::access::local_write | rdmaxx::access::remote_read |
                                              rdmaxx::access::remote_write | rdmaxx::access::remote_atomic;

/// An id that is bound to a device, with what it takes to move data: a queue pair, a completion queue with its
/// channel, and registered memory.
struct end {
    end() = default;
    end(rdmaxx::cm_id bound, const rdmaxx::pd& domain, const options& how = {});

    /// The next completion.
    [[nodiscard]] rdmaxx::wc next();
    /// The next completion, which must be a success.
    rdmaxx::wc next_ok();

    void put(std::string_view text, std::size_t offset = 0);
    [[nodiscard]] std::string text(std::size_t size, std::size_t offset = 0) const;

    std::vector<std::byte> memory;
    rdmaxx::cm_id id;
    rdmaxx::comp_channel completions;
    rdmaxx::cq cq;
    rdmaxx::mr mr;
    rdmaxx::qp_ref qp;
};

/// A listener on a device, with what accepted connections need.
struct host {
    explicit host(const rdmaxx::address& at = ipv4(), int backlog = 128);

    [[nodiscard]] rdmaxx::address address() const { return listener.local_address(); }
    /// Takes the next request, with a queue pair for it.
    [[nodiscard]] end request(const options& how = {});

    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener;
    rdmaxx::context device;
    rdmaxx::pd domain;
};

/// An established connection. One thread plays both sides: the client's established is got first, since the client's
/// last message of the handshake is sent inside that get.
struct connection {
    explicit connection(const options& how = {});

    host local;
    rdmaxx::event_channel channel; // the client's
    end client;
    end server;
};

/// Private data and the like.
[[nodiscard]] inline std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}
[[nodiscard]] std::string text(std::span<const std::byte> data);

} // namespace live

#endif
