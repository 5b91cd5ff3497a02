// The coroutines on top of the I/O objects. The fake plays the network: both ends are in this process, and one thread.
// (No co_await inside an assertion: Catch2 takes what other coroutines assert meanwhile for a part of it.)
#include "loop.hpp"

#include <array>
#include <memory>

using namespace loops;
using rdmaxx::cm_event_type;

namespace {

using net::awaitable;

const rdmaxx::address server_address("192.0.2.1", 7471);

std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string_view text(std::span<const std::byte> data) {
    return {reinterpret_cast<const char*>(data.data()), data.size()};
}

/// What a coroutine ended with: empty if it returned.
struct ending {
    bool ended = false;
    std::string what;
    std::error_code code; // in the words of the C++ library
};

/// (Not a template: co_spawn is what takes long to compile.)
void start(net::io_context& loop, ending& end, std::function<awaitable<void>()> body) {
    net::co_spawn(loop, std::move(body), [&end](const std::exception_ptr& error) {
        end.ended = true;
        try {
            if (error)
                std::rethrow_exception(error);
        } catch (const rdmaxx::error& e) {
            end.what = e.what();
            end.code = e.code();
        } catch (const system_error& e) {
            end.what = e.code() == aborted ? "aborted" : e.what();
        } catch (const std::exception& e) {
            end.what = e.what();
        }
    });
}

/// The fake with both ends, an acceptor, and a loop.
struct place : fixture {
    explicit place(const rx::connection_options& with = {}, int backlog = 128) {
        fake::auto_connect();
        acceptor.emplace(loop, server_address, with, backlog);
    }

    net::io_context loop;
    std::optional<rx::acceptor> acceptor;
};

/// Sends back what comes, until the peer ends.
awaitable<void> echo(rx::connection with) {
    std::array<std::byte, 4096> buffer{};
    while (const std::size_t size = co_await with.receive(buffer))
        co_await with.send(std::span(buffer).first(size));
}

awaitable<void> serve(rx::acceptor& acceptor, unsigned clients) {
    for (unsigned i = 0; i < clients; ++i)
        net::co_spawn(acceptor.get_executor(), echo(co_await acceptor.accept()), net::detached);
}

awaitable<std::string> ask(rx::connection& with, std::string_view question) {
    std::array<std::byte, 4096> buffer{};
    co_await with.send(bytes(question));
    const std::size_t size = co_await with.receive(buffer);
    co_return std::string(text(std::span(buffer).first(size)));
}

/// Both ends of a connection.
struct pair : place {
    explicit pair(const rx::connection_options& with = {}) : place(with) {
        ending a;
        ending b;
        start(loop, a, [this]() -> awaitable<void> { server = co_await acceptor->accept(); });
        start(loop, b,
              [this, with]() -> awaitable<void> { client = co_await rx::connection::connect(server_address, with); });
        poll(loop);
        CHECK((a.ended && a.what == ""));
        CHECK((b.ended && b.what == ""));
    }

    rx::connection server;
    rx::connection client;
};

} // namespace

TEST_CASE("connections: an echo", "[connections]") {
    place here;
    ending server;
    ending client;
    std::string answer;
    start(here.loop, server, [&] { return serve(*here.acceptor, 1); });
    start(here.loop, client, [&]() -> awaitable<void> {
        rx::connection to = co_await rx::connection::connect(server_address);
        CHECK(to);
        CHECK(to.id().peer_address() == server_address);
        CHECK(to.get_executor() == here.loop.get_executor());
        for (int i = 0; i < 20; ++i) {
            answer = co_await ask(to, "message " + std::to_string(i));
            CHECK(answer == "message " + std::to_string(i));
        }
    });
    CHECK(run(here.loop));
    CHECK((server.ended && server.what == ""));
    CHECK((client.ended && client.what == ""));
    CHECK(answer == "message 19");
    CHECK(fake::cm_events().held() == 0);
    CHECK(fake::cq_events().held() == 0);
}

TEST_CASE("connections: many at once", "[connections]") {
    constexpr unsigned count = 60;
    place here;
    ending server;
    std::array<ending, count> clients;
    unsigned answers = 0;
    start(here.loop, server, [&] { return serve(*here.acceptor, count); });
    for (unsigned i = 0; i < count; ++i)
        start(here.loop, clients[i], [&answers, i]() -> awaitable<void> {
            rx::connection to = co_await rx::connection::connect(server_address);
            for (int n = 0; n < 3; ++n)
                answers += co_await ask(to, std::to_string(i)) == std::to_string(i) ? 1U : 0U;
        });
    CHECK(run(here.loop));
    for (const ending& client : clients)
        CHECK((client.ended && client.what == ""));
    CHECK(answers == 3 * count);
    CHECK(fake::cm_events().held() == 0);
}

TEST_CASE("connections: messages of every size, and those that do not fit", "[connections]") {
    pair both({.message_size = 64});
    ending end;
    start(both.loop, end, [&]() -> awaitable<void> {
        std::array<std::byte, 100> in{};
        const std::array<std::byte, 65> out{};
        for (std::size_t size = 1; size <= 64; ++size) {
            co_await both.client.send(std::span(out).first(size));
            const std::size_t received = co_await both.server.receive(in);
            CHECK(received == size);
        }
        // Cut to what there is room for.
        co_await both.client.send(bytes("twelve bytes"));
        co_await both.client.send(bytes("next"));
        std::size_t received = co_await both.server.receive(std::span(in).first(6));
        CHECK(received == 6);
        CHECK(text(std::span(in).first(6)) == "twelve");
        received = co_await both.server.receive(in);
        CHECK(received == 4);

        std::error_code code;
        try {
            co_await both.client.send(out);
        } catch (const rdmaxx::error& e) {
            code = e.code();
        }
        CHECK(code.value() == EMSGSIZE);
        code.clear();
        try {
            co_await both.client.send({});
        } catch (const rdmaxx::error& e) {
            code = e.code();
        }
        CHECK(code.value() == EINVAL);
        // Neither has done any harm.
        co_await both.client.send(bytes("still there"));
        received = co_await both.server.receive(in);
        CHECK(received == 11);
    });
    poll(both.loop);
    CHECK(end.ended);
    CHECK(end.what == "");
}

TEST_CASE("connections: the peer sends more than this side has room for", "[connections]") {
    place here({.message_size = 16});
    ending server;
    ending client;
    start(here.loop, server, [&]() -> awaitable<void> {
        rx::connection from = co_await here.acceptor->accept();
        std::array<std::byte, 100> in{};
        static_cast<void>(co_await from.receive(in));
    });
    start(here.loop, client, [&]() -> awaitable<void> {
        rx::connection to = co_await rx::connection::connect(server_address, {.message_size = 100});
        co_await to.send(bytes("more than sixteen bytes"));
    });
    CHECK(run(here.loop));
    CHECK(server.code.value() == EMSGSIZE);
    CHECK(client.code.value() == ENOTCONN);
}

TEST_CASE("connections: messages that came before the end are received", "[connections]") {
    pair both;
    ending end;
    std::vector<std::size_t> sizes;
    start(both.loop, end, [&]() -> awaitable<void> {
        co_await both.client.send(bytes("one"));
        co_await both.client.send(bytes("three"));
        both.client.close();
        CHECK_FALSE(both.client);
        std::array<std::byte, 100> in{};
        do
            sizes.push_back(co_await both.server.receive(in));
        while (sizes.back() != 0);
        // And so it stays, however often one asks.
        for (int i = 0; i < 20; ++i)
            sizes.push_back(co_await both.server.receive(in));
        std::error_code code;
        try {
            co_await both.server.send(bytes("too late"));
        } catch (const rdmaxx::error& e) {
            code = e.code();
        }
        CHECK(code.value() == ENOTCONN);
    });
    poll(both.loop);
    CHECK(end.ended);
    CHECK(end.what == "");
    CHECK(sizes.size() == 23);
    sizes.resize(4);
    CHECK(sizes == std::vector<std::size_t>{3, 5, 0, 0});
}

TEST_CASE("connections: messages are received though their buffers cannot be posted again", "[connections]") {
    pair both;
    ending end;
    std::vector<std::size_t> sizes;
    start(both.loop, end, [&]() -> awaitable<void> {
        co_await both.client.send(bytes("one"));
        co_await both.client.send(bytes("three"));
        fake::fail("ibv_post_recv").every().with(EINVAL); // as of devices that take none in the error state
        std::array<std::byte, 100> in{};
        do
            sizes.push_back(co_await both.server.receive(in));
        while (sizes.back() != 0);
        sizes.push_back(co_await both.server.receive(in));
    });
    poll(both.loop);
    CHECK(end.ended);
    CHECK(end.what == "");
    CHECK(sizes == std::vector<std::size_t>{3, 5, 0, 0});
}

TEST_CASE("connections: there is no more room than for one message, and it cannot be posted again", "[connections]") {
    pair both({.receives = 1});
    ending end;
    std::vector<std::size_t> sizes;
    start(both.loop, end, [&]() -> awaitable<void> {
        co_await both.client.send(bytes("one"));
        fake::fail("ibv_post_recv").every().with(EINVAL);
        std::array<std::byte, 100> in{};
        sizes.push_back(co_await both.server.receive(in));
        sizes.push_back(co_await both.server.receive(in)); // nothing is posted that could be flushed
    });
    poll(both.loop);
    CHECK(end.ended);
    CHECK(end.what == "");
    CHECK(sizes == std::vector<std::size_t>{3, 0});
}

TEST_CASE("connections: one is work for its loop until a side has ended it", "[connections]") {
    pair both;
    both.loop.restart();
    both.loop.run_for(20ms);
    CHECK_FALSE(both.loop.stopped());
    both.client.close();
    CHECK(run(both.loop));
    CHECK(both.server); // which has been told
}

TEST_CASE("connections: an empty one sends and receives nothing", "[connections]") {
    pair both;
    const std::string how = GENERATE("closed", "moved from", "default");
    rx::connection other;
    if (how == "closed")
        both.client.close();
    if (how == "moved from")
        other = std::move(both.client);
    if (how == "default")
        both.client = rx::connection();
    ending sender;
    ending receiver;
    std::array<std::byte, 4> data{};
    start(both.loop, sender, [&]() -> awaitable<void> { co_await both.client.send(data); });
    start(both.loop, receiver, [&]() -> awaitable<void> { co_await both.client.receive(data); });
    poll(both.loop);
    CHECK((sender.ended && sender.code.value() == ENOTCONN));
    CHECK((receiver.ended && receiver.code.value() == ENOTCONN));
}

TEST_CASE("connections: one ends while another coroutine receives from it", "[connections]") {
    pair both;
    ending receiver;
    std::size_t received = 9;
    start(both.loop, receiver, [&]() -> awaitable<void> {
        std::array<std::byte, 100> in{};
        received = co_await both.client.receive(in);
    });
    poll(both.loop);
    const std::string how = GENERATE("destructor", "move assignment", "close");
    if (how == "destructor")
        static_cast<void>(rx::connection(std::move(both.client)));
    else if (how == "move assignment")
        both.client = rx::connection();
    else
        both.client.close();
    CHECK_FALSE(receiver.ended);
    poll(both.loop);
    CHECK(receiver.ended);
    CHECK(receiver.what == "");
    CHECK(received == 0);
}

TEST_CASE("connections: moved while a coroutine has begun, or is about to begin", "[connections]") {
    pair both;
    ending receiver;
    ending sender;
    std::array<std::byte, 100> in{};
    std::size_t received = 0;
    net::co_spawn(both.loop, both.server.receive(in), [&](const std::exception_ptr&, std::size_t n) { received = n; });
    const rx::connection server = std::move(both.server);
    auto sending = both.client.send(bytes("moved"));
    const rx::connection client = std::move(both.client);
    net::co_spawn(both.loop, std::move(sending), net::detached);
    poll(both.loop);
    CHECK(received == 5);
}

TEST_CASE("connections: nobody listens, or says no, or is there", "[connections]") {
    const fixture here;
    fake::auto_connect();
    net::io_context loop;
    ending end;
    const auto connect = [&](const rdmaxx::address& peer) {
        start(loop, end, [peer]() -> awaitable<void> { co_await rx::connection::connect(peer); });
    };
    connect(server_address);
    CHECK(run(loop));
    CHECK(unit::contains(end.what, "expected established, got rejected"));
    CHECK(end.code.category() == rdmaxx::reject_category());

    fake::unreachable("192.0.2.1");
    connect(server_address);
    CHECK(run(loop));
    CHECK(unit::contains(end.what, "expected addr_resolved, got addr_error"));
    CHECK(end.code.value() == ETIMEDOUT);

    connect(rdmaxx::address());
    CHECK(run(loop));
    CHECK(end.code.value() == EINVAL);
}

TEST_CASE("connections: failures while connecting leave nothing behind", "[connections]") {
    place here;
    ending end;
    static constexpr const char* calls[] = {"rdma_create_event_channel",
                                            "rdma_create_id",
                                            "rdma_resolve_addr",
                                            "rdma_resolve_route",
                                            "rdma_create_qp",
                                            "ibv_create_cq",
                                            "ibv_reg_mr",
                                            "ibv_create_comp_channel",
                                            "ibv_post_recv",
                                            "rdma_connect"};
    const char* call = calls[GENERATE(range(0, 10))];
    CAPTURE(call);
    fake::fail(call).with(ENOMEM);
    start(here.loop, end, []() -> awaitable<void> { co_await rx::connection::connect(server_address); });
    CHECK(run(here.loop));
    CHECK(end.code.value() == ENOMEM);
}

TEST_CASE("connections: connecting is cancelled at every step", "[connections][cancel]") {
    place here;
    const int steps = GENERATE(range(0, 8));
    ending end;
    net::cancellation_signal signal;
    net::co_spawn(
        here.loop, []() -> awaitable<void> { co_await rx::connection::connect(server_address); },
        net::bind_cancellation_slot(signal.slot(), [&](const std::exception_ptr& error) {
            end.ended = true;
            end.what = error ? "failed" : "";
        }));
    here.loop.restart();
    for (int i = 0; i < steps; ++i)
        here.loop.poll_one();
    signal.emit(net::cancellation_type::terminal);
    poll(here.loop);
    // Nobody accepts: it cannot have got further.
    CHECK(end.ended);
    CHECK(end.what == "failed");
}

TEST_CASE("connections: a send that is cancelled is sent, and the next one waits for it", "[connections][cancel]") {
    pair both;
    net::cancellation_signal signal;
    ending first;
    ending second;
    std::vector<std::string> received;
    fake::set().hold_data_path = true;
    net::co_spawn(both.loop, both.client.send(bytes("first")),
                  net::bind_cancellation_slot(signal.slot(), [&](const std::exception_ptr& error) {
                      first.ended = true;
                      first.what = error ? "failed" : "";
                  }));
    poll(both.loop);
    signal.emit(net::cancellation_type::terminal);
    poll(both.loop);
    CHECK(first.what == "failed");
    start(both.loop, second, [&]() -> awaitable<void> { co_await both.client.send(bytes("second")); });
    start(both.loop, second, [&]() -> awaitable<void> {
        std::array<std::byte, 100> in{};
        for (int i = 0; i < 2; ++i)
            received.emplace_back(text(std::span(in).first(co_await both.server.receive(in))));
    });
    poll(both.loop);
    CHECK_FALSE(second.ended);
    CHECK(fake::posted_sends(both.client.id().qp().native_handle()).size() == 1); // its buffer is not written over
    fake::set().hold_data_path = false;
    fake::run_posted();
    poll(both.loop);
    CHECK(second.ended);
    CHECK(second.what == "");
    CHECK(received == std::vector<std::string>{"first", "second"});
}

TEST_CASE("connections: a second send, or receive, at the same time is refused", "[connections]") {
    pair both;
    ending sender;
    ending second_sender;
    ending receiver;
    ending second_receiver;
    std::array<std::byte, 100> in{};
    std::array<std::byte, 100> unused{};
    std::size_t received = 0;
    fake::set().hold_data_path = true;
    start(both.loop, sender, [&]() -> awaitable<void> { co_await both.client.send(bytes("first")); });
    start(both.loop, second_sender, [&]() -> awaitable<void> { co_await both.client.send(bytes("second")); });
    start(both.loop, receiver, [&]() -> awaitable<void> { received = co_await both.server.receive(in); });
    start(both.loop, second_receiver, [&]() -> awaitable<void> { co_await both.server.receive(unused); });
    poll(both.loop);
    CHECK((second_sender.ended && second_sender.code.value() == EBUSY));
    CHECK((second_receiver.ended && second_receiver.code.value() == EBUSY));
    fake::set().hold_data_path = false;
    fake::run_posted();
    poll(both.loop);
    CHECK((sender.ended && sender.what == ""));
    CHECK((receiver.ended && receiver.what == ""));
    CHECK(text(std::span(in).first(received)) == "first");
    // And then it is not any more.
    ending again;
    start(both.loop, again, [&]() -> awaitable<void> {
        co_await both.client.send(bytes("third"));
        received = co_await both.server.receive(in);
    });
    poll(both.loop);
    CHECK((again.ended && again.what == ""));
    CHECK(text(std::span(in).first(received)) == "third");
}

TEST_CASE("connections: a receive that is cancelled has lost no message", "[connections][cancel]") {
    pair both;
    net::cancellation_signal signal;
    bool cancelled = false;
    std::array<std::byte, 100> in{};
    net::co_spawn(both.loop, both.server.receive(in),
                  net::bind_cancellation_slot(signal.slot(), [&](const std::exception_ptr& error, std::size_t) {
                      cancelled = error != nullptr;
                  }));
    poll(both.loop);
    const bool there = GENERATE(false, true);
    ending end;
    if (there) { // its event has come, and its handler has not run
        start(both.loop, end, [&]() -> awaitable<void> { co_await both.client.send(bytes("message")); });
        for (int i = 0; i < 2; ++i)
            both.loop.poll_one();
    }
    signal.emit(net::cancellation_type::terminal);
    poll(both.loop);
    std::size_t received = 0;
    if (!there)
        start(both.loop, end, [&]() -> awaitable<void> { co_await both.client.send(bytes("message")); });
    if (cancelled || !there)
        start(both.loop, end, [&]() -> awaitable<void> { received = co_await both.server.receive(in); });
    poll(both.loop);
    CHECK((received == 7 || !cancelled));
    CHECK(text(std::span(in).first(7)) == "message");
}

// ---------------------------------------------------------------------------------------------------------------
// The acceptor.

TEST_CASE("connections: accept is cancelled, and goes on later", "[connections][accept]") {
    place here;
    ending first;
    ending second;
    ending client;
    start(here.loop, first, [&]() -> awaitable<void> { co_await here.acceptor->accept(); });
    poll(here.loop);
    here.acceptor->cancel();
    poll(here.loop);
    CHECK(first.what == "aborted");
    start(here.loop, client, []() -> awaitable<void> { co_await rx::connection::connect(server_address); });
    poll(here.loop);
    CHECK_FALSE(client.ended);
    start(here.loop, second, [&]() -> awaitable<void> { co_await here.acceptor->accept(); });
    CHECK(run(here.loop));
    CHECK(client.what == "");
    CHECK(second.what == "");
}

// Between the request and the end of the handshake. The next accept goes on with what the former one began.
TEST_CASE("connections: accept is cancelled in the middle", "[connections][accept]") {
    place here;
    ending first;
    ending second;
    ending client;
    const int steps = GENERATE(range(1, 12));
    start(here.loop, first, [&]() -> awaitable<void> { co_await here.acceptor->accept(); });
    start(here.loop, client, []() -> awaitable<void> { co_await rx::connection::connect(server_address); });
    here.loop.restart();
    for (int i = 0; i < steps; ++i)
        here.loop.poll_one();
    here.acceptor->cancel();
    start(here.loop, second, [&]() -> awaitable<void> {
        if (!first.ended || first.what != "")
            co_await here.acceptor->accept();
    });
    poll(here.loop);
    here.acceptor->cancel(); // where the first one was so far that it had ended
    CHECK(run(here.loop));
    CHECK(first.ended);
    CHECK(client.what == "");
    CHECK((first.what == "" || second.what == ""));
}

TEST_CASE("connections: the acceptor ends", "[connections][accept]") {
    place here;
    ending accepting;
    const std::string how = GENERATE("close", "destructor", "moved, then destructor");
    start(here.loop, accepting, [&]() -> awaitable<void> { co_await here.acceptor->accept(); });
    poll(here.loop);
    if (how == "close")
        here.acceptor->close();
    else if (how == "destructor")
        here.acceptor.reset();
    else {
        std::optional<rx::acceptor> moved(std::move(*here.acceptor));
        here.acceptor.reset();
        poll(here.loop);
        CHECK_FALSE(accepting.ended);
        moved.reset();
    }
    CHECK(fake::calls("rdma_listen") == 1);
    CHECK(fake::successes("rdma_destroy_id") == 1); // at once
    CHECK((!here.acceptor || !here.acceptor->local_address()));
    ending client;
    start(here.loop, client, []() -> awaitable<void> { co_await rx::connection::connect(server_address); });
    CHECK(run(here.loop));
    CHECK(accepting.what == "aborted");
    CHECK(unit::contains(client.what, "rejected"));
}

TEST_CASE("connections: the acceptor ends, and its connections go on", "[connections][accept]") {
    pair both;
    both.acceptor.reset();
    ending end;
    start(both.loop, end, [&]() -> awaitable<void> {
        std::array<std::byte, 100> in{};
        co_await both.client.send(bytes("hello"));
        const std::size_t received = co_await both.server.receive(in);
        CHECK(received == 5);
    });
    poll(both.loop);
    CHECK((end.ended && end.what == ""));
}

namespace {

/// A client that goes as far as it is told, by hand, and takes no part in the loop.
struct slow_client {
    slow_client()
        : id(channel), device([this] {
              rdmaxx::resolve(channel, id, server_address, 1s);
              return rdmaxx::context(id);
          }()),
          cq(device, 8) {
        id.create_qp(rdmaxx::qp_init_attr(cq, 4));
        id.connect();
    }
    void establish() { channel.expect_and_ack(id, cm_event_type::established); }

    rdmaxx::event_channel channel;
    rdmaxx::cm_id id;
    rdmaxx::context device;
    rdmaxx::cq cq;
};

} // namespace

TEST_CASE("connections: clients that vanish or are slow do not hold the others up", "[connections][accept]") {
    place here;
    ending server;
    ending client;
    std::string answer;
    const std::string what =
        GENERATE("slow", "gone before accept", "gone while it is answered", "gone after accept", "never established");
    CAPTURE(what);
    std::optional<slow_client> other(std::in_place); // its request comes first
    if (what == "gone before accept")
        other.reset();
    if (what == "gone while it is answered") { // as the kernel says it
        fake::fail("rdma_create_qp").with(EINVAL);
        fake::fail("rdma_init_qp_attr").with(EINVAL);
    }
    start(here.loop, server, [&] { return serve(*here.acceptor, what == "slow" ? 2 : 1); });
    poll(here.loop);
    if (what == "gone after accept")
        other.reset();
    start(here.loop, client, [&]() -> awaitable<void> {
        rx::connection to = co_await rx::connection::connect(server_address);
        answer = co_await ask(to, "me");
    });
    poll(here.loop);
    CHECK((client.ended && client.what == ""));
    CHECK(answer == "me");
    CHECK(server.ended == (what != "slow"));
    if (what == "slow")
        other->establish();
    other.reset();
    CHECK(run(here.loop));
    CHECK((server.ended && server.what == ""));
}

TEST_CASE("connections: a client that there is no memory for is told no", "[connections][accept]") {
    place here;
    ending first;
    ending second;
    ending client;
    static constexpr const char* calls[] = {"rdma_create_event_channel", "rdma_create_qp", "ibv_create_cq",
                                            "ibv_reg_mr", "ibv_create_comp_channel"};
    const char* call = calls[GENERATE(range(0, 5))];
    slow_client refused;
    fake::fail(call).with(ENOMEM);
    start(here.loop, first, [&]() -> awaitable<void> { co_await here.acceptor->accept(); });
    poll(here.loop);
    CHECK(first.code.value() == ENOMEM);
    CHECK(refused.channel.get_cm_event_for(1s).type() == cm_event_type::rejected);
    // And the acceptor goes on.
    start(here.loop, second, [&] { return serve(*here.acceptor, 1); });
    start(here.loop, client, []() -> awaitable<void> { co_await rx::connection::connect(server_address); });
    CHECK(run(here.loop));
    CHECK(second.what == "");
    CHECK(client.what == "");
}

TEST_CASE("connections: the device goes", "[connections][accept]") {
    pair both;
    ending accepting;
    ending receiving;
    std::size_t received = 9;
    start(both.loop, accepting, [&]() -> awaitable<void> { co_await both.acceptor->accept(); });
    start(both.loop, receiving, [&]() -> awaitable<void> {
        std::array<std::byte, 100> in{};
        received = co_await both.server.receive(in);
    });
    poll(both.loop);
    fake::remove_device("fake0");
    poll(both.loop);
    CHECK(unit::contains(accepting.what, "device_removal"));
    CHECK(receiving.ended);
    CHECK(received == 0);
}

// ---------------------------------------------------------------------------------------------------------------
// The loop ends first.

TEST_CASE("connections: the loop ends with coroutines under way", "[connections][life]") {
    const fixture here;
    fake::auto_connect();
    auto loop = std::make_unique<net::io_context>();
    const int steps = GENERATE(range(0, 40, 3));
    net::co_spawn(
        *loop,
        [&]() -> awaitable<void> {
            rx::acceptor acceptor(*loop, server_address);
            co_await serve(acceptor, 3);
        },
        net::detached);
    for (int i = 0; i < 3; ++i)
        net::co_spawn(
            *loop,
            []() -> awaitable<void> {
                rx::connection to = co_await rx::connection::connect(server_address);
                for (;;)
                    static_cast<void>(co_await ask(to, "again"));
            },
            net::detached);
    for (int i = 0; i < steps; ++i)
        loop->poll_one();
    loop.reset();
    CHECK(fake::leaks().empty());
    CHECK(fake::cm_events().held() == 0);
    CHECK(fake::cq_events().held() == 0);
}

// ---------------------------------------------------------------------------------------------------------------
// Several threads: each connection's coroutine in a strand of its own.

TEST_CASE("connections: a loop that several threads run", "[connections][threads]") {
    const fixture here;
    fake::auto_connect();
    net::io_context loop;
    std::atomic<unsigned> answers = 0;
    constexpr unsigned count = 12;
    const auto strand = net::make_strand(loop);
    rx::acceptor acceptor(strand, server_address);
    net::co_spawn(
        strand,
        [&]() -> awaitable<void> {
            for (unsigned i = 0; i < count; ++i) {
                const auto own = net::make_strand(loop);
                net::co_spawn(own, echo(co_await acceptor.accept(own)), net::detached);
            }
        },
        net::detached);
    for (unsigned i = 0; i < count; ++i)
        net::co_spawn(
            net::make_strand(loop),
            [&, i]() -> awaitable<void> {
                rx::connection to = co_await rx::connection::connect(server_address);
                for (int n = 0; n < 5; ++n)
                    answers += co_await ask(to, std::to_string(i)) == std::to_string(i) ? 1U : 0U;
            },
            net::detached);
    {
        std::vector<unit::worker> threads;
        for (int i = 0; i < 3; ++i)
            threads.emplace_back([&] { loop.run_for(soon); });
    }
    CHECK(loop.stopped());
    CHECK(answers == 5 * count);
}
