// rdmaxx in Boost.Asio's event loops: Boost 1.77 or later (Debian's libboost1.81-dev). For standalone Asio see
// asio.hpp.
#ifndef RDMAXX_BOOST_ASIO_HPP
#define RDMAXX_BOOST_ASIO_HPP

#include <rdmaxx/detail/asio_adapter.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#if defined(BOOST_ASIO_HAS_CO_AWAIT)
#    include <boost/asio/awaitable.hpp>
#    include <boost/asio/this_coro.hpp>
#    include <boost/asio/use_awaitable.hpp>
#    include <rdmaxx/detail/asio_connection.hpp>
#endif

namespace rdmaxx::inline v0 {
namespace detail {

struct boost_asio_net {
    using error_code = ::boost::system::error_code;
    using execution_context = ::boost::asio::execution_context;
    template <class Executor>
    using descriptor = ::boost::asio::posix::basic_stream_descriptor<Executor>;
    template <class Executor>
    using default_token = typename ::boost::asio::default_completion_token<Executor>::type;

    static constexpr auto wait_read = ::boost::asio::posix::descriptor_base::wait_read;

    [[nodiscard]] static error_code aborted() noexcept { return ::boost::asio::error::operation_aborted; }
    [[nodiscard]] static error_code bad_descriptor() noexcept { return ::boost::asio::error::bad_descriptor; }
    [[nodiscard]] static error_code from_std(const std::error_code& ec) noexcept {
        return {ec.value(), ::boost::system::system_category()}; // all of rdmaxx's codes here are errnos
    }
    [[nodiscard]] static auto enable_total_cancellation() noexcept {
        return ::boost::asio::enable_total_cancellation();
    }
    [[nodiscard]] static bool is_cancelled(const ::boost::asio::cancellation_state& state) noexcept {
        return state.cancelled() != ::boost::asio::cancellation_type::none;
    }
    template <class Executor, class Function>
    static void post(const Executor& executor, Function&& function) {
        ::boost::asio::post(executor, std::forward<Function>(function));
    }
    template <class Signature, class Operation, class Token, class IoObject>
    static auto async_compose(Operation&& operation, Token&& token, IoObject& object) {
        return ::boost::asio::async_compose<Token, Signature>(std::forward<Operation>(operation), token, object);
    }

    /// So that a handler of another signature is refused where it is given.
    template <class Token, class Signature>
#if defined(BOOST_ASIO_HAS_CONCEPTS)
    static constexpr bool accepts = ::boost::asio::completion_token_for<Token, Signature>;
#else
    static constexpr bool accepts = true;
#endif

#if defined(BOOST_ASIO_HAS_CO_AWAIT)
    template <class T, class Executor>
    using awaitable = ::boost::asio::awaitable<T, Executor>;
    template <class Executor>
    [[nodiscard]] static auto use_awaitable() noexcept {
        return ::boost::asio::use_awaitable_t<Executor>();
    }
    template <class Executor>
    [[nodiscard]] static auto this_executor() noexcept {
        return ::boost::asio::this_coro::executor;
    }
#endif
};

} // namespace detail

/// Boost.Asio.
namespace boost_asio {

/// An event_channel in an event loop: async_get_cm_event(token).
template <class Executor = ::boost::asio::any_io_executor>
using basic_event_channel = detail::basic_event_channel<detail::boost_asio_net, Executor>;
using event_channel = basic_event_channel<>;

/// A comp_channel in an event loop: async_get_cq_event(token).
template <class Executor = ::boost::asio::any_io_executor>
using basic_comp_channel = detail::basic_comp_channel<detail::boost_asio_net, Executor>;
using comp_channel = basic_comp_channel<>;

/// A context in an event loop: async_get_async_event(token).
template <class Executor = ::boost::asio::any_io_executor>
using basic_context = detail::basic_context<detail::boost_asio_net, Executor>;
using context = basic_context<>;

#if defined(BOOST_ASIO_HAS_CO_AWAIT)
/// Coroutines that read like sockets code; where Asio has coroutines for this compiler.
template <class Executor = ::boost::asio::any_io_executor>
using basic_connection = detail::basic_connection<detail::boost_asio_net, Executor>;
using connection = basic_connection<>;

/// Takes connections: co_await acceptor.accept().
template <class Executor = ::boost::asio::any_io_executor>
using basic_acceptor = detail::basic_acceptor<detail::boost_asio_net, Executor>;
using acceptor = basic_acceptor<>;
/// How connections are made.
using connection_options = detail::connection_options;
#endif

} // namespace boost_asio
} // namespace rdmaxx::inline v0

#endif
