// rdmaxx in standalone Asio's event loops: asio 1.19 or later (Debian's libasio-dev). For Boost.Asio see
// boost_asio.hpp.
#ifndef RDMAXX_ASIO_HPP
#define RDMAXX_ASIO_HPP

#include <rdmaxx/detail/asio_adapter.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_state.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/compose.hpp>
#include <asio/error.hpp>
#include <asio/execution_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>

#if defined(ASIO_HAS_CO_AWAIT)
#    include <asio/awaitable.hpp>
#    include <asio/this_coro.hpp>
#    include <asio/use_awaitable.hpp>
#    include <rdmaxx/detail/asio_connection.hpp>
#endif

namespace rdmaxx::inline v0 {
namespace detail {

struct standalone_asio {
    using error_code = ::asio::error_code;
    using execution_context = ::asio::execution_context;
    template <class Executor>
    using descriptor = ::asio::posix::basic_stream_descriptor<Executor>;
    template <class Executor>
    using default_token = typename ::asio::default_completion_token<Executor>::type;

    static constexpr auto wait_read = ::asio::posix::descriptor_base::wait_read;

    [[nodiscard]] static error_code aborted() noexcept { return ::asio::error::operation_aborted; }
    [[nodiscard]] static error_code bad_descriptor() noexcept { return ::asio::error::bad_descriptor; }
    [[nodiscard]] static error_code from_std(const std::error_code& ec) noexcept { return ec; }
    [[nodiscard]] static auto enable_total_cancellation() noexcept { return ::asio::enable_total_cancellation(); }
    [[nodiscard]] static bool is_cancelled(const ::asio::cancellation_state& state) noexcept {
        return state.cancelled() != ::asio::cancellation_type::none;
    }
    template <class Executor, class Function>
    static void post(const Executor& executor, Function&& function) {
        ::asio::post(executor, std::forward<Function>(function));
    }
    template <class Signature, class Operation, class Token, class IoObject>
    static auto async_compose(Operation&& operation, Token&& token, IoObject& object) {
        return ::asio::async_compose<Token, Signature>(std::forward<Operation>(operation), token, object);
    }

    /// So that a handler of another signature is refused where it is given.
    template <class Token, class Signature>
#if defined(ASIO_HAS_CONCEPTS)
    static constexpr bool accepts = ::asio::completion_token_for<Token, Signature>;
#else
    static constexpr bool accepts = true;
#endif

#if defined(ASIO_HAS_CO_AWAIT)
    template <class T, class Executor>
    using awaitable = ::asio::awaitable<T, Executor>;
    template <class Executor>
    [[nodiscard]] static auto use_awaitable() noexcept {
        return ::asio::use_awaitable_t<Executor>();
    }
    template <class Executor>
    [[nodiscard]] static auto this_executor() noexcept {
        return ::asio::this_coro::executor;
    }
#endif
};

} // namespace detail

/// Standalone Asio. (After `using namespace rdmaxx`, Asio's own namespace needs a leading `::`.)
namespace asio {

/// An event_channel in an event loop: async_get_cm_event(token).
template <class Executor = ::asio::any_io_executor>
using basic_event_channel = detail::basic_event_channel<detail::standalone_asio, Executor>;
using event_channel = basic_event_channel<>;

/// A comp_channel in an event loop: async_get_cq_event(token).
template <class Executor = ::asio::any_io_executor>
using basic_comp_channel = detail::basic_comp_channel<detail::standalone_asio, Executor>;
using comp_channel = basic_comp_channel<>;

/// A context in an event loop: async_get_async_event(token).
template <class Executor = ::asio::any_io_executor>
using basic_context = detail::basic_context<detail::standalone_asio, Executor>;
using context = basic_context<>;

#if defined(ASIO_HAS_CO_AWAIT)
/// Coroutines that read like sockets code; where Asio has coroutines for this compiler.
template <class Executor = ::asio::any_io_executor>
using basic_connection = detail::basic_connection<detail::standalone_asio, Executor>;
using connection = basic_connection<>;

/// Takes connections: co_await acceptor.accept().
template <class Executor = ::asio::any_io_executor>
using basic_acceptor = detail::basic_acceptor<detail::standalone_asio, Executor>;
using acceptor = basic_acceptor<>;
/// How connections are made.
using connection_options = detail::connection_options;
#endif

} // namespace asio
} // namespace rdmaxx::inline v0

#endif
