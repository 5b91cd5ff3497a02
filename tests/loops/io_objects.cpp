// The adapter's header before any other, twice, and what needs no coroutines.
#if RDMAXX_TESTS_BOOST
#    include <rdmaxx/boost_asio.hpp>

#    include <rdmaxx/boost_asio.hpp>

#    include <boost/asio/io_context.hpp>
#    include <boost/asio/use_future.hpp>
namespace net = boost::asio;
namespace rx = rdmaxx::boost_asio;
#else
#    include <rdmaxx/asio.hpp>

#    include <rdmaxx/asio.hpp>

#    include <asio/io_context.hpp>
#    include <asio/use_future.hpp>
namespace net = asio;
namespace rx = rdmaxx::asio;
#endif

/// A handler of another signature is no token: it is refused where it is given, and can be asked for.
template <class Handler>
concept takes_a_cm_event = requires(rx::event_channel& from, Handler handler) {
    from.async_get_cm_event(std::move(handler));
};
using error_code = rx::event_channel::error_code;
static_assert(takes_a_cm_event<void (*)(error_code, rdmaxx::cm_event)>);
static_assert(takes_a_cm_event<void (*)(error_code, const rdmaxx::cm_event&)>);
static_assert(takes_a_cm_event<net::use_future_t<>>);
static_assert(!takes_a_cm_event<void (*)(error_code)> && !takes_a_cm_event<void (*)(error_code, rdmaxx::cm_event&)>);
static_assert(!takes_a_cm_event<void (*)(error_code, rdmaxx::cq_event)>);

int main() {
    net::io_context loop;
    rx::event_channel channel(loop);
    rx::context device(loop, rdmaxx::context());
    rx::comp_channel completions(loop.get_executor(), rdmaxx::comp_channel());
    const auto handler = [](auto /*failed*/, auto event) {
        std::move(event).ack();
    };
    channel.async_get_cm_event(handler);
    completions.async_get_cq_event(handler);
    device.async_get_async_event(handler);
    auto future = channel.async_get_cm_event(net::use_future);
    auto moved = std::move(channel);
    moved.cancel();
    moved.close();
    const rdmaxx::event_channel back = moved.release();
    rx::basic_event_channel<net::io_context::executor_type> other(loop);
    rx::event_channel converted(std::move(other));
    loop.run();
}
