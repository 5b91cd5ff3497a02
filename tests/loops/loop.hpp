// What the tests of the two Asio adapters on the fake share.
#ifndef RDMAXX_TESTS_LOOPS_LOOP_HPP
#define RDMAXX_TESTS_LOOPS_LOOP_HPP

#include "../unit/test.hpp"
#include "net.hpp"

// Where as_tuple and deferred are: 1 for its place since Asio 1.24 and Boost 1.81, 2 for the one before.
#if RDMAXX_TESTS_BOOST
#    if __has_include(<boost/asio/as_tuple.hpp>)
#        define RDMAXX_TESTS_TOKENS 1
#        include <boost/asio/as_tuple.hpp>
#        include <boost/asio/deferred.hpp>
#        include <boost/asio/experimental/awaitable_operators.hpp>
#    endif
#elif __has_include(<asio/as_tuple.hpp>)
#    define RDMAXX_TESTS_TOKENS 1
#    include <asio/as_tuple.hpp>
#    include <asio/deferred.hpp>
#    include <asio/experimental/awaitable_operators.hpp>
#elif __has_include(<asio/experimental/as_tuple.hpp>)
#    define RDMAXX_TESTS_TOKENS 2
#    include <asio/experimental/as_tuple.hpp>
#    include <asio/experimental/awaitable_operators.hpp>
#    include <asio/experimental/deferred.hpp>
#endif

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace loops {

#if RDMAXX_TESTS_TOKENS == 1
using net::as_tuple;
using net::deferred;
#elif RDMAXX_TESTS_TOKENS == 2
using net::experimental::as_tuple;
using net::experimental::deferred;
#endif

using namespace std::chrono_literals;

/// How long the loop may run until all that should happen has happened.
inline constexpr auto soon = 40s;

/// Runs until there is nothing more to do, which must be soon. Handlers that still wait do not.
inline bool run(net::io_context& loop) {
    loop.restart();
    loop.run_for(soon);
    return loop.stopped();
}

/// Runs what is ready.
inline void poll(net::io_context& loop) {
    loop.restart();
    loop.poll();
}

// ---- Where events come from: the three I/O objects with the same names, for tests that are the same for each.

/// What became of gets.
template <class Event>
struct outcome {
    unsigned calls = 0;
    error_code code;
    Event event;

    /// A handler; the outcome must be there when it is called.
    auto handler() {
        return [this](error_code ec, Event got) {
            ++calls;
            code = ec;
            event = std::move(got);
        };
    }
};

template <class Executor = net::any_io_executor>
struct basic_cm_events {
    using event = rdmaxx::cm_event;
    using io_object = rx::basic_event_channel<Executor>;
    template <class Other>
    using with_executor = basic_cm_events<Other>;
    static constexpr const char* get_call = "rdma_get_cm_event";
    static constexpr const char* close_call = "rdma_destroy_event_channel";

    explicit basic_cm_events(const Executor& executor)
        : io(executor), id(io.next_layer()), raw(io.next_layer().native_handle()), fd(raw->fd) {
        id.bind_addr(rdmaxx::address("192.0.2.1", 0));
    }

    template <class Token>
    static auto get(io_object& from, Token&& token) {
        return from.async_get_cm_event(std::forward<Token>(token));
    }
    template <class Token>
    auto get(Token&& token) {
        return get(io, std::forward<Token>(token));
    }
    template <class Object>
    static auto get_by_default(Object& from) {
        return from.async_get_cm_event();
    }
    [[nodiscard]] rdmaxx::event_channel another() const { return {}; }
    void push() const { unit::push(id, rdmaxx::cm_event_type::user); }
    [[nodiscard]] std::size_t queued() const { return fake::queued(raw); }
    [[nodiscard]] static event try_get(rdmaxx::event_channel& from) { return from.try_get_cm_event(); }
    [[nodiscard]] static bool of_this(const event& got, const basic_cm_events& from) { return got.id() == from.id; }
    [[nodiscard]] static fake::tally tally() { return fake::cm_events(); }
    void drop_children() { id = rdmaxx::cm_id(); }

    io_object io;
    rdmaxx::cm_id id;
    rdma_event_channel* raw;
    int fd;
};
using cm_events = basic_cm_events<>;

template <class Executor = net::any_io_executor>
struct basic_cq_events {
    using event = rdmaxx::cq_event;
    using io_object = rx::basic_comp_channel<Executor>;
    template <class Other>
    using with_executor = basic_cq_events<Other>;
    static constexpr const char* get_call = "ibv_get_cq_event";
    static constexpr const char* close_call = "ibv_destroy_comp_channel";

    explicit basic_cq_events(const Executor& executor)
        : io(executor, rdmaxx::comp_channel(opened.device)), cq(opened.device, 4, io.next_layer()),
          raw(io.next_layer().native_handle()), fd(raw->fd) {}

    template <class Token>
    static auto get(io_object& from, Token&& token) {
        return from.async_get_cq_event(std::forward<Token>(token));
    }
    template <class Token>
    auto get(Token&& token) {
        return get(io, std::forward<Token>(token));
    }
    template <class Object>
    static auto get_by_default(Object& from) {
        return from.async_get_cq_event();
    }
    [[nodiscard]] rdmaxx::comp_channel another() const { return rdmaxx::comp_channel(opened.device); }
    void push() const { fake::push_cq_event(cq.native_handle()); }
    [[nodiscard]] std::size_t queued() const { return fake::queued(raw); }
    [[nodiscard]] static event try_get(rdmaxx::comp_channel& from) { return from.try_get_cq_event(); }
    [[nodiscard]] static bool of_this(const event& got, const basic_cq_events& from) { return got.cq() == from.cq; }
    [[nodiscard]] static fake::tally tally() { return fake::cq_events(); }
    void drop_children() { cq = rdmaxx::cq(); }

    unit::opened opened;
    io_object io;
    rdmaxx::cq cq;
    ibv_comp_channel* raw;
    int fd;
};
using cq_events = basic_cq_events<>;

template <class Executor = net::any_io_executor>
struct basic_async_events {
    using event = rdmaxx::async_event;
    using io_object = rx::basic_context<Executor>;
    template <class Other>
    using with_executor = basic_async_events<Other>;
    static constexpr const char* get_call = "ibv_get_async_event";
    static constexpr const char* close_call = "ibv_close_device";

    explicit basic_async_events(const Executor& executor)
        : io(executor, another()), pd(io.next_layer()), raw(io.next_layer().native_handle()), fd(raw->async_fd) {}

    template <class Token>
    static auto get(io_object& from, Token&& token) {
        return from.async_get_async_event(std::forward<Token>(token));
    }
    template <class Token>
    auto get(Token&& token) {
        return get(io, std::forward<Token>(token));
    }
    template <class Object>
    static auto get_by_default(Object& from) {
        return from.async_get_async_event();
    }
    [[nodiscard]] static rdmaxx::context another() {
        const rdmaxx::device_list devices;
        return rdmaxx::context(devices.front());
    }
    void push() {
        fake::push_async_event(raw, 1, IBV_EVENT_PORT_ACTIVE);
        ++pushed;
    }
    [[nodiscard]] std::size_t queued() const { return pushed - tally().got; }
    [[nodiscard]] static event try_get(rdmaxx::context& from) { return rdmaxx::try_get_async_event(from); }
    [[nodiscard]] static bool of_this(const event& got, const basic_async_events&) { return got.port_num() == 1; }
    [[nodiscard]] static fake::tally tally() { return fake::async_events(); }
    void drop_children() { pd = rdmaxx::pd(); }

    io_object io;
    rdmaxx::pd pd; // keeps the context
    ibv_context* raw;
    int fd;
    std::size_t pushed = 0;
};
using async_events = basic_async_events<>;

/// The fixture, for templated test cases.
class fixture : unit::test {};

#define RDMAXX_TESTS_EACH_SOURCE loops::cm_events, loops::cq_events, loops::async_events

} // namespace loops

#endif
