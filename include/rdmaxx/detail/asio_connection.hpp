// Coroutines that read like sockets code, on top of asio_adapter.hpp. Included by asio.hpp and boost_asio.hpp where the
// compiler and Asio have coroutines.
#ifndef RDMAXX_DETAIL_ASIO_CONNECTION_HPP
#define RDMAXX_DETAIL_ASIO_CONNECTION_HPP

#include <rdmaxx/detail/asio_adapter.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rdmaxx::inline v0::detail {

/// Sizes of a connection's buffers.
struct connection_options {
    std::size_t message_size = 4096;                 ///< the longest message; both sides should agree
    std::size_t receives = 4;                        ///< how many messages may arrive before the program takes them
    std::chrono::milliseconds resolve_timeout{2000}; ///< for the address, and for the path
};

/// Takes note of an operation, until the coroutine that has begun it ends, in whichever way.
class [[nodiscard]] under_way {
public:
    explicit under_way(bool& note) noexcept : note_(note) { note = true; }
    under_way(const under_way&) = delete;
    under_way& operator=(const under_way&) = delete;
    ~under_way() { note_ = false; }

private:
    bool& note_;
};

/// What a connection and its operations under way share.
template <class Net, class Executor>
struct connection_state {
    /// @param id_ bound to a device
    connection_state(cm_id id_, const connection_options& options)
        : id(std::move(id_)), size(options.message_size), send_channel(id.verbs()), recv_channel(id.verbs()),
          send_cq(id.verbs(), 1, send_channel), recv_cq(id.verbs(), static_cast<int>(options.receives), recv_channel),
          buffer(size * (options.receives + 1)), memory(id.pd(), buffer) {}
    connection_state(const connection_state&) = delete;
    connection_state& operator=(const connection_state&) = delete;
    /// The queue pair before its memory and CQs; the id, whose device they are on, after them.
    ~connection_state() {
        std::error_code ec;
        id.destroy_qp(ec);
    }

    /// Before connect or accept: what it may receive at once is posted.
    void create_qp(std::size_t receives) {
        const qp_ref qp =
            id.create_qp(qp_init_attr(send_cq, recv_cq, 1).max_recv_wr(static_cast<std::uint32_t>(receives)));
        for (std::size_t i = 0; i < receives; ++i) {
            qp.post_recv(receive_slot(i), i);
            ++receiving;
        }
    }

    /// Into the loop, where a connection is to be used. It may have waited elsewhere until it was one.
    void enter(basic_event_channel<Net, Executor> channel) {
        events.emplace(std::move(channel));
        send_events.emplace(events->get_executor(), std::move(send_channel));
        recv_events.emplace(events->get_executor(), std::move(recv_channel));
    }

    [[nodiscard]] sge slot(std::size_t index, std::size_t length) const { return memory.sge(size * index, length); }
    [[nodiscard]] sge receive_slot(std::size_t index) const { return slot(index + 1, size); }

    /// After its message was taken: room for another one. A queue pair that has ended may refuse it, as some devices'
    /// do; what arrived before is received all the same.
    void receive_again(std::size_t index) {
        if (id.qp().try_post_recv(receive_slot(index), index) == 0)
            ++receiving;
        else
            end();
    }

    /// What is posted then completes as flushed.
    void end() noexcept {
        std::error_code ec;
        id.disconnect(ec);
    }

    std::optional<basic_event_channel<Net, Executor>> events;
    cm_id id;
    std::size_t size;
    comp_channel send_channel;
    comp_channel recv_channel;
    std::optional<basic_comp_channel<Net, Executor>> send_events;
    std::optional<basic_comp_channel<Net, Executor>> recv_events;
    cq send_cq;
    cq recv_cq;
    std::vector<std::byte> buffer; // one message to send, then the receives
    mr memory;
    bool sending = false; ///< a send was posted and has not completed: that of a coroutine which was cancelled, perhaps
    bool received_all = false;
    std::size_t receiving = 0; ///< receives that are posted
    bool send_under_way = false;
    bool receive_under_way = false;
};

/// A connection of messages: send() and receive() are coroutines. One send and one receive may be under way at a time,
/// in one thread or strand. Moved-from and closed connections are empty.
///
/// Until one of both sides has ended it, it is work for its loop, whose run() does not return. The object ends before
/// the loop does, as Asio's own I/O objects.
///
/// Destroying a connection ends it: the peer's receive() returns 0, and so does one that another coroutine has under
/// way here; a send under way fails. A coroutine that is cancelled in send() or receive() has lost nothing: a send that
/// was posted is still sent.
///
/// Messages are copied into and out of registered buffers: it is for control traffic and for getting started. What
/// moves bulk data has a queue pair and CQs of its own, and waits for them with async_get_cq_event.
template <class Net, class Executor>
class basic_connection {
    template <class T>
    using awaitable = typename Net::template awaitable<T, Executor>;
    using state = connection_state<Net, Executor>;
    using shared_state = std::shared_ptr<state>;

public:
    /// As Asio calls it.
    using executor_type = Executor;
    /// How it is made.
    using options = connection_options;

    basic_connection() noexcept = default;
    basic_connection(basic_connection&&) noexcept = default;
    basic_connection& operator=(basic_connection&& other) noexcept {
        basic_connection taken(std::move(other));
        std::swap(state_, taken.state_);
        return *this;
    }
    basic_connection(const basic_connection&) = delete;
    basic_connection& operator=(const basic_connection&) = delete;
    ~basic_connection() { close(); }

    /// Connects to an address. Its handlers run where the calling coroutine does.
    /// @throws error, unexpected_event (rejected, unreachable, ...), the loop's system_error
    [[nodiscard]] static awaitable<basic_connection> connect(address peer, options with = {}) {
        const Executor executor = co_await Net::template this_executor<Executor>();
        basic_event_channel<Net, Executor> events(executor);
        cm_id id(events.next_layer());
        id.resolve_addr(peer, with.resolve_timeout);
        co_await expect(events, id, cm_event_type::addr_resolved);
        id.resolve_route(with.resolve_timeout);
        co_await expect(events, id, cm_event_type::route_resolved);
        auto made = std::make_shared<state>(std::move(id), with);
        made->create_qp(with.receives);
        made->enter(std::move(events));
        made->id.connect();
        co_await expect(*made->events, made->id, cm_event_type::established);
        co_return basic_connection(std::move(made));
    }

    /// False when empty.
    [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
    /// Where it runs. Not of an empty one.
    [[nodiscard]] Executor get_executor() const noexcept { return state_->events->get_executor(); }
    /// For its addresses and its queue pair; as long as the connection. Not of an empty one.
    [[nodiscard]] const cm_id& id() const noexcept { return state_->id; }

    /// Ends the connection. An empty one: no effect.
    void close() noexcept {
        if (const shared_state ended = std::exchange(state_, nullptr))
            ended->end();
    }

    /// Sends one message, and ends when the peer's side has it. `message` is copied when the send begins.
    /// @throws error EMSGSIZE for more than message_size; EINVAL for an empty one, which looks like an end;
    ///         ENOTCONN when the connection has ended, or is empty; EBUSY while another send is under way
    [[nodiscard]] awaitable<void> send(std::span<const std::byte> message) { return do_send(state_, message); }

    /// The next message, cut to `into`. @return its length in `into`; 0 when the peer has ended the connection
    /// @throws error EMSGSIZE when the peer has sent more than message_size, which ends the connection; ENOTCONN when
    ///         the connection broke (so, for Soft-RoCE, when a message was too long), or is empty; EBUSY while another
    ///         receive is under way
    [[nodiscard]] awaitable<std::size_t> receive(std::span<std::byte> into) { return do_receive(state_, into); }

private:
    template <class, class>
    friend class basic_acceptor;

    explicit basic_connection(shared_state made) : state_(std::move(made)) { watch(state_); }

    // The coroutines have the state, and not this, which may be moved before they begin.

    [[nodiscard]] static awaitable<void> do_send(shared_state self, std::span<const std::byte> message) {
        if (self == nullptr)
            raise({"ibv_post_send", ENOTCONN, empty_handle});
        if (message.size() > self->size)
            raise({"ibv_post_send", EMSGSIZE, "longer than the connection's message_size"});
        if (message.empty())
            raise({"ibv_post_send", EINVAL, "an empty message"});
        if (self->send_under_way)
            raise({"ibv_post_send", EBUSY, "another send is under way"});
        const under_way noted(self->send_under_way);
        while (self->sending) // by a coroutine that was cancelled: its buffer is the one
            static_cast<void>(co_await sent(self));
        std::memcpy(self->buffer.data(), message.data(), message.size());
        self->id.qp().post_send(self->slot(0, message.size()));
        self->sending = true;
        const wc done = co_await sent(self);
        if (!done.ok())
            raise({"ibv_post_send", ENOTCONN, to_string(done.status())});
    }

    [[nodiscard]] static awaitable<wc> sent(shared_state self) {
        const wc done = co_await completion(*self->send_events, self->send_cq);
        self->sending = false;
        co_return done;
    }

    [[nodiscard]] static awaitable<std::size_t> do_receive(shared_state self, std::span<std::byte> into) {
        if (self == nullptr)
            raise({"ibv_post_recv", ENOTCONN, empty_handle});
        if (self->receive_under_way)
            raise({"ibv_post_recv", EBUSY, "another receive is under way"});
        const under_way noted(self->receive_under_way);
        while (!self->received_all && self->receiving != 0) {
            const wc done = co_await completion(*self->recv_events, self->recv_cq);
            --self->receiving;
            if (!done.ok()) {
                self->received_all = true;
                if (done.status() == wc_status::loc_len_err)
                    raise({"ibv_post_recv", EMSGSIZE, "the peer's message is longer than message_size"});
                if (done.status() != wc_status::wr_flush_err)
                    raise({"ibv_post_recv", ENOTCONN, to_string(done.status())});
                break;
            }
            const auto index = static_cast<std::size_t>(done.wr_id());
            const std::size_t length = std::min<std::size_t>(into.size(), done.byte_len().value_or(0));
            if (length != 0)
                std::memcpy(into.data(), self->buffer.data() + self->size * (index + 1), length);
            self->receive_again(index);
            if (length != 0 || into.empty())
                co_return length; // an empty message, of another program, is nothing
        }
        co_return 0;
    }

    /// When the peer disconnects, so does this side: its posted receives then end.
    static void watch(const shared_state& self) {
        self->events->async_get_cm_event(
            [weak = std::weak_ptr<state>(self)](typename Net::error_code failed, cm_event event) {
                const shared_state still = weak.lock();
                if (still == nullptr)
                    return;
                const cm_event_type type = event.type();
                std::move(event).ack(); // before the id goes, with `still`
                if (failed || type == cm_event_type::disconnected || type == cm_event_type::device_removal)
                    still->end();
                else
                    watch(still);
            });
    }

    static awaitable<void> expect(basic_event_channel<Net, Executor>& channel, cm_id_ref id, cm_event_type type) {
        const cm_event event = co_await channel.async_get_cm_event(Net::template use_awaitable<Executor>());
        if (event.type() != type || event.id() != id)
            raise_unexpected(event.snapshot(), type);
    }

    /// Polls, asks for an event, polls again, and only then waits.
    static awaitable<wc> completion(basic_comp_channel<Net, Executor>& events, const cq& from) {
        wc done[1];
        while (from.poll(done).empty()) {
            from.request_notify();
            if (!from.poll(done).empty())
                break;
            static_cast<void>(co_await events.async_get_cq_event(Net::template use_awaitable<Executor>()));
        }
        co_return done[0];
    }

    shared_state state_;
};

/// A listener whose accept() is a coroutine. Move-only, as the I/O objects are: to one thread or strand at a time. A
/// moved-from one may be assigned to and destroyed. Destroying one closes it; the connections that it has accepted are
/// not touched.
template <class Net, class Executor>
class basic_acceptor {
    template <class T>
    using awaitable = typename Net::template awaitable<T, Executor>;
    using connection = basic_connection<Net, Executor>;
    using connection_state = detail::connection_state<Net, Executor>;

    struct pending_connection {
        std::shared_ptr<connection_state> made;
        event_channel channel; // of its own, when it is established
    };

    struct state {
        state(const Executor& executor, const connection_options& options)
            : events(executor), listener(events.next_layer()), with(options) {}

        basic_event_channel<Net, Executor> events;
        cm_id listener;
        connection_options with;
        // Accepted, and not yet established: one that is slow, or has gone, does not keep the others waiting.
        std::unordered_map<cm_id_ref, pending_connection> pending;
    };
    using shared_state = std::shared_ptr<state>;

public:
    /// As Asio calls it.
    using executor_type = Executor;

    /// Listens on an address of this machine.
    /// @throws error as cm_id::bind_addr and listen
    basic_acceptor(const Executor& executor, const address& local, const connection_options& with = {},
                   int backlog = 128)
        : state_(std::make_shared<state>(executor, with)) {
        state_->listener.bind_addr(local);
        state_->listener.listen(backlog);
    }
    template <context_of<Net> Context>
    basic_acceptor(Context& context, const address& local, const connection_options& with = {}, int backlog = 128)
        : basic_acceptor(Executor(context.get_executor()), local, with, backlog) {}

    basic_acceptor(basic_acceptor&&) noexcept = default;
    basic_acceptor& operator=(basic_acceptor&& other) noexcept {
        basic_acceptor taken(std::move(other));
        std::swap(state_, taken.state_);
        return *this;
    }
    basic_acceptor(const basic_acceptor&) = delete;
    basic_acceptor& operator=(const basic_acceptor&) = delete;
    ~basic_acceptor() { close(); }

    /// Stops listening. accept() under way ends with operation_aborted, and clients that wait are told no.
    void close() noexcept {
        if (state_ == nullptr)
            return;
        std::error_code ec;
        state_->events.close();
        state_->pending.clear();
        state_->listener.close(ec);
    }

    /// Where it runs.
    [[nodiscard]] Executor get_executor() const noexcept { return state_->events.get_executor(); }

    /// With the port that the kernel chose. Empty when closed.
    [[nodiscard]] address local_address() const noexcept { return state_->listener.local_address(); }

    /// The next connection that is established. Clients that go away before they are do not end it, and slow ones do
    /// not hold it up. Several may be under way.
    /// @throws error where a client could not be given what it needs (EMFILE, ENOMEM; it was told no): go on accepting;
    ///         unexpected_event for what happens to the listener (device_removal); the loop's system_error
    [[nodiscard]] awaitable<connection> accept() { return do_accept(state_, get_executor()); }
    /// The same, for a connection that will be used on another executor than the acceptor's: in a strand of its own,
    /// where several threads run the loop.
    [[nodiscard]] awaitable<connection> accept(const Executor& executor) { return do_accept(state_, executor); }

    /// accept() under way ends with operation_aborted. What it has begun with its clients, the next one goes on with.
    void cancel() { state_->events.cancel(); }

private:
    [[nodiscard]] static awaitable<connection> do_accept(shared_state self, Executor executor) {
        for (;;) {
            cm_event event = co_await self->events.async_get_cm_event(Net::template use_awaitable<Executor>());
            if (event.type() == cm_event_type::connect_request) {
                answer(*self, event.take_id());
                continue;
            }
            if (event.id() == self->listener)
                raise_unexpected(event.snapshot(), cm_event_type::connect_request);
            const cm_event_type type = event.type();
            const auto found = self->pending.find(event.id());
            std::move(event).ack(); // before the id goes, or moves
            if (found == self->pending.end())
                continue;
            pending_connection client = std::move(found->second);
            self->pending.erase(found);
            if (type != cm_event_type::established)
                continue;
            client.made->id.migrate(client.channel);
            client.made->enter({executor, std::move(client.channel)});
            co_return connection(std::move(client.made));
        }
    }

    static void answer(state& self, cm_id id) {
        pending_connection client{std::make_shared<connection_state>(std::move(id), self.with), event_channel()};
        cm_id& its = client.made->id;
        std::error_code ec;
        try {
            client.made->create_qp(self.with.receives);
        } catch (const error&) { // fails also when the client has gone, and then so does this:
            static_cast<void>(its.init_qp_attr(qp_state::init, ec));
            if (!ec)
                throw;
            return;
        }
        its.accept({}, ec); // fails when the client has gone
        const cm_id_ref key = its;
        if (!ec)
            self.pending.emplace(key, std::move(client));
    }

    shared_state state_;
};

} // namespace rdmaxx::inline v0::detail

#endif
