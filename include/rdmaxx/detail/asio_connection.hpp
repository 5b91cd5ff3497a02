// Coroutines that read like sockets code, on top of asio_adapter.hpp. Included by asio.hpp and boost_asio.hpp where the
// compiler and Asio have coroutines.
#ifndef RDMAXX_DETAIL_ASIO_CONNECTION_HPP
#define RDMAXX_DETAIL_ASIO_CONNECTION_HPP

#include <rdmaxx/detail/asio_adapter.hpp>

namespace rdmaxx::inline v0::detail {

/// Sizes of a connection's buffers.
struct connection_options {
    std::size_t message_size = 4096; ///< the longest message; both sides should agree
    std::size_t receives = 4;        ///< how many messages may arrive before the program takes them
    std::chrono::milliseconds resolve_timeout{2000};
};

/// What connections share, and what the operations under way keep.
template <class Net, class Executor>
struct connection_state {
    connection_state(const Executor& executor, event_channel channel_, cm_id id_, const pd& domain,
                     const connection_options& options)
        : events(executor, std::move(channel_)), id(std::move(id_)), size(options.message_size),
          send_events(executor, comp_channel(domain.context())), recv_events(executor, comp_channel(domain.context())),
          send_cq(domain.context(), 1, send_events.next_layer()),
          recv_cq(domain.context(), static_cast<int>(options.receives), recv_events.next_layer()),
          buffer(size * (options.receives + 1)), memory(domain, buffer) {
        const qp_ref qp = id.create_qp(
            domain, qp_init_attr(send_cq, recv_cq, 1).max_recv_wr(static_cast<std::uint32_t>(options.receives)));
        for (std::size_t i = 0; i < options.receives; ++i)
            post_recv(qp, i);
        send_cq.request_notify();
        recv_cq.request_notify();
    }

    void post_recv(qp_ref qp, std::size_t index) const { qp.post_recv(memory.sge(size * (index + 1), size), index); }

    basic_event_channel<Net, Executor> events;
    cm_id id;
    std::size_t size;
    basic_comp_channel<Net, Executor> send_events;
    basic_comp_channel<Net, Executor> recv_events;
    cq send_cq;
    cq recv_cq;
    std::vector<std::byte> buffer; // one message to send, then the receives
    mr memory;
};

/// A connection of messages: send() and receive() are coroutines. One send and one receive may be under way at a time.
/// Moved-from connections are empty. Destroying one ends it: the peer's receive() returns 0.
///
/// Messages are copied into and out of registered buffers: it is for control traffic and for getting started; what
/// moves bulk data posts its own requests on id().qp().
template <class Net, class Executor>
class basic_connection {
    template <class T>
    using awaitable = typename Net::template awaitable<T, Executor>;
    using state = connection_state<Net, Executor>;

public:
    using options = connection_options;

    basic_connection() noexcept = default;

    /// Connects to an address. @throws error, unexpected_event (rejected, unreachable, ...), the loop's error_code
    [[nodiscard]] static awaitable<basic_connection> connect(address peer, options with = {}) {
        const Executor executor = co_await Net::template this_executor<Executor>();
        basic_event_channel<Net, Executor> resolving(executor);
        cm_id id(resolving.next_layer());
        id.resolve_addr(peer, with.resolve_timeout);
        co_await expect(resolving, id, cm_event_type::addr_resolved);
        id.resolve_route(with.resolve_timeout);
        co_await expect(resolving, id, cm_event_type::route_resolved);
        const pd domain{context(id)};
        event_channel channel;
        id.migrate(channel);
        auto made = std::make_shared<state>(executor, std::move(channel), std::move(id), domain, with);
        made->id.connect();
        co_await expect(made->events, made->id, cm_event_type::established);
        co_return basic_connection(std::move(made));
    }

    [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
    [[nodiscard]] const cm_id& id() const noexcept { return state_->id; }

    /// Sends one message, and ends when the peer's side has it. @throws error EMSGSIZE, ENOTCONN
    [[nodiscard]] awaitable<void> send(std::span<const std::byte> message) {
        const std::shared_ptr<state> self = state_;
        if (message.size() > self->size)
            raise({"ibv_post_send", EMSGSIZE, "longer than the connection's message_size"});
        if (!message.empty())
            std::memcpy(self->buffer.data(), message.data(), message.size());
        self->id.qp().post_send(self->memory.sge(0, message.size()));
        const wc done = co_await completion(self->send_events, self->send_cq);
        if (!done.ok())
            raise({"ibv_post_send", ENOTCONN, to_string(done.status())});
    }

    /// The next message, cut to `into`. @return its length in `into`; 0 when the peer has ended the connection
    [[nodiscard]] awaitable<std::size_t> receive(std::span<std::byte> into) {
        const std::shared_ptr<state> self = state_;
        const wc done = co_await completion(self->recv_events, self->recv_cq);
        if (!done.ok())
            co_return 0;
        const std::size_t index = static_cast<std::size_t>(done.wr_id());
        const std::size_t length = std::min<std::size_t>(into.size(), done.byte_len().value_or(0));
        std::memcpy(into.data(), self->buffer.data() + self->size * (index + 1), length);
        self->post_recv(self->id.qp(), index);
        co_return length;
    }

private:
    template <class, class>
    friend class basic_acceptor;

    explicit basic_connection(std::shared_ptr<state> made) : state_(std::move(made)) { watch(state_); }

    /// When the peer disconnects, so does this side: its posted receives then end.
    static void watch(const std::shared_ptr<state>& self) {
        self->events.async_get_cm_event(
            [weak = std::weak_ptr<state>(self)](typename Net::error_code failed, cm_event event) {
                const std::shared_ptr<state> still = weak.lock();
                if (failed || still == nullptr)
                    return;
                const bool ended =
                    event.type() == cm_event_type::disconnected || event.type() == cm_event_type::device_removal;
                std::move(event).ack(); // before the id goes, with `still`
                std::error_code ec;
                if (ended)
                    still->id.disconnect(ec);
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

    std::shared_ptr<state> state_;
};

/// A listener whose accept() is a coroutine.
template <class Net, class Executor>
class basic_acceptor {
    template <class T>
    using awaitable = typename Net::template awaitable<T, Executor>;

public:
    /// Listens on an address of this machine. @throws error as cm_id::bind_addr and listen
    basic_acceptor(const Executor& executor, const address& local, connection_options with = {}, int backlog = 128)
        : events_(executor), listener_(events_.next_layer()), with_(with) {
        listener_.bind_addr(local);
        listener_.listen(backlog);
    }

    /// With the port that the kernel chose.
    [[nodiscard]] address local_address() const noexcept { return listener_.local_address(); }

    /// The next connection. @throws error; of a client that went away meanwhile, unexpected_event: go on accepting
    [[nodiscard]] awaitable<basic_connection<Net, Executor>> accept() {
        cm_id id;
        {
            cm_event request = co_await events_.async_get_cm_event(Net::template use_awaitable<Executor>());
            if (request.type() != cm_event_type::connect_request)
                raise_unexpected(request.snapshot(), cm_event_type::connect_request);
            id = request.take_id();
        }
        if (!domain_ || domain_.context() != id.verbs())
            domain_ = pd(context(id));
        event_channel channel;
        id.migrate(channel);
        auto made = std::make_shared<connection_state<Net, Executor>>(events_.get_executor(), std::move(channel),
                                                                      std::move(id), domain_, with_);
        made->id.accept();
        co_await basic_connection<Net, Executor>::expect(made->events, made->id, cm_event_type::established);
        co_return basic_connection<Net, Executor>(std::move(made));
    }

    /// accept() under way ends with operation_aborted.
    void cancel() { events_.cancel(); }

private:
    basic_event_channel<Net, Executor> events_;
    cm_id listener_;
    connection_options with_;
    pd domain_; // of the device of the last connection
};

} // namespace rdmaxx::inline v0::detail

#endif
