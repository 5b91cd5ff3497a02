// An echo server of coroutines, on standalone Asio: any number of clients, one thread.
//
//     asio_echo address:port               sends back what it receives, until SIGINT or SIGTERM
//     asio_echo address:port clients       so many clients at once, each with ten messages over its own connection
//
// With Boost.Asio it is the same but for the names: <rdmaxx/boost_asio.hpp>, rdmaxx::boost_asio, boost::asio.
#include <rdmaxx/asio.hpp>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <string_view>

namespace {

using asio::awaitable;
using rdmaxx::asio::acceptor;
using rdmaxx::asio::connection;

// ---- The server.

awaitable<void> serve(connection client) try {
    std::array<std::byte, 4096> message{};
    while (const std::size_t size = co_await client.receive(message)) // 0: the client has left
        co_await client.send(std::span(message).first(size));
} catch (const std::exception& e) { // one client's trouble is not the server's
    std::fprintf(stderr, "asio_echo: a client: %s\n", e.what());
}

awaitable<void> listen(acceptor& from) {
    for (;;)
        try {
            asio::co_spawn(from.get_executor(), serve(co_await from.accept()), asio::detached);
        } catch (const rdmaxx::error& e) { // no memory or descriptors for that one
            std::fprintf(stderr, "asio_echo: %s\n", e.what());
        }
}

void run_server(asio::io_context& loop, const rdmaxx::address& at) {
    acceptor from(loop, at, {}, 1024);
    std::fprintf(stderr, "listening on %s\n", from.local_address().to_string().c_str());
    asio::co_spawn(loop, listen(from), asio::detached);
    asio::signal_set signals(loop, SIGINT, SIGTERM);
    signals.async_wait([&](const std::error_code&, int) { loop.stop(); });
    loop.run();
}

// ---- The clients.

awaitable<void> ask(rdmaxx::address peer, int number, unsigned& answers) {
    connection server = co_await connection::connect(peer);
    std::array<std::byte, 4096> buffer{};
    for (int i = 0; i < 10; ++i) {
        const std::string question = "message " + std::to_string(i) + " of client " + std::to_string(number);
        co_await server.send(std::as_bytes(std::span(question)));
        const std::size_t size = co_await server.receive(buffer);
        answers += std::string_view(reinterpret_cast<const char*>(buffer.data()), size) == question ? 1U : 0U;
    }
}

int run_clients(asio::io_context& loop, const rdmaxx::address& peer, int count) {
    const auto start = std::chrono::steady_clock::now();
    unsigned answers = 0;
    for (int i = 0; i < count; ++i)
        asio::co_spawn(loop, ask(peer, i, answers), [](const std::exception_ptr& failed) {
            if (failed)
                std::rethrow_exception(failed); // out of run()
        });
    loop.run();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    std::printf("%d clients, %u right answers, %.2f s\n", count, answers, elapsed.count());
    return answers == 10 * static_cast<unsigned>(count) ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) try {
    asio::io_context loop(1); // one thread
    const auto address = rdmaxx::address::parse(argc > 1 ? argv[1] : "");
    if (argc > 2)
        return run_clients(loop, address, std::atoi(argv[2]));
    run_server(loop, address);
} catch (const std::exception& e) {
    return std::fprintf(stderr, "asio_echo: %s\n", e.what()), 1;
}
