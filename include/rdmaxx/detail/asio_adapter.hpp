// The Asio adapters: one template over what standalone Asio and Boost.Asio name differently (Net). Included by asio.hpp
// and boost_asio.hpp, after the library's own headers.
#ifndef RDMAXX_DETAIL_ASIO_ADAPTER_HPP
#define RDMAXX_DETAIL_ASIO_ADAPTER_HPP

#include <rdmaxx/cm.hpp>
#include <rdmaxx/verbs.hpp>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rdmaxx::inline v0::detail {

// What an I/O object reads events from.

struct cm_source {
    using object = event_channel;
    using event = cm_event;
    [[nodiscard]] static int fd(const object& from) noexcept { return from.fd(); }
    [[nodiscard]] static event try_get(object& from, std::error_code& ec) noexcept { return from.try_get_cm_event(ec); }
};

struct cq_source {
    using object = comp_channel;
    using event = cq_event;
    [[nodiscard]] static int fd(const object& from) noexcept { return from.fd(); }
    [[nodiscard]] static event try_get(object& from, std::error_code& ec) noexcept { return from.try_get_cq_event(ec); }
};

struct async_source {
    using object = context;
    using event = async_event;
    [[nodiscard]] static int fd(const object& from) noexcept { return from.async_fd(); }
    [[nodiscard]] static event try_get(object& from, std::error_code& ec) noexcept {
        return try_get_async_event(from, ec);
    }
};

/// The object and its descriptor in the event loop, shared by the I/O object and the operations under way.
template <class Net, class Executor, class Source>
struct io_state {
    io_state(const Executor& executor, typename Source::object&& from)
        : object(std::move(from)), descriptor(executor, Source::fd(object)) {}
    io_state(const io_state&) = delete;
    io_state& operator=(const io_state&) = delete;
    ~io_state() { close(); }

    /// Out of the loop before the C object closes the descriptor. Operations under way end with operation_aborted.
    void close() {
        if (descriptor.is_open())
            descriptor.release();
    }

    typename Source::object object;
    typename Net::template descriptor<Executor> descriptor;
};

/// Waits until the descriptor is readable, and then tries to get: so an operation that is cancelled has got nothing,
/// and one that has got an event hands it over.
template <class Net, class Executor, class Source>
class get_operation {
public:
    using state = io_state<Net, Executor, Source>;
    explicit get_operation(std::shared_ptr<state> from) noexcept : state_(std::move(from)) {}

    template <class Self>
    void operator()(Self& self) {
        self.reset_cancellation_state(Net::enable_total_cancellation());
        wait(self);
    }

    template <class Self>
    void operator()(Self& self, typename Net::error_code failed) {
        typename Source::event event;
        if (failed || !state_->descriptor.is_open()) {
            self.complete(failed ? failed : Net::aborted(), std::move(event));
            return;
        }
        std::error_code ec;
        event = Source::try_get(state_->object, ec);
        if (event || ec)
            self.complete(Net::from_std(ec), std::move(event));
        else if (Net::is_cancelled(self))
            self.complete(Net::aborted(), std::move(event));
        else
            wait(self);
    }

private:
    template <class Self>
    void wait(Self& self) {
        auto& descriptor = state_->descriptor; // self, which is moved, owns what state_ is
        if (!descriptor.is_open())
            Net::post(descriptor.get_executor(), [moved = std::move(self)]() mutable { moved(Net::aborted()); });
        else
            descriptor.async_wait(Net::wait_read, std::move(self));
    }

    std::shared_ptr<state> state_;
};

/// An I/O object: owns a channel or context, and reads its events in an event loop. Move-only; moved-from and closed
/// ones are not open. As with Asio's own, one object may be used by one thread (or strand) at a time.
template <class Net, class Executor, class Source>
class io_object {
public:
    using executor_type = Executor;
    using object_type = typename Source::object;
    using event_type = typename Source::event;
    using error_code = typename Net::error_code;

    /// Takes the object over.
    io_object(const Executor& executor, object_type object)
        : state_(std::make_shared<io_state<Net, Executor, Source>>(executor, std::move(object))) {}
    template <class Context>
        requires requires(Context& c) {
            c.get_executor();
        }
    io_object(Context& context, object_type object) : io_object(Executor(context.get_executor()), std::move(object)) {}

    io_object(io_object&&) noexcept = default;
    io_object& operator=(io_object&& other) noexcept {
        io_object taken(std::move(other));
        std::swap(state_, taken.state_);
        return *this;
    }
    io_object(const io_object&) = delete;
    io_object& operator=(const io_object&) = delete;
    ~io_object() { close(); }

    [[nodiscard]] Executor get_executor() { return state_->descriptor.get_executor(); }
    [[nodiscard]] bool is_open() const noexcept { return state_ != nullptr && state_->descriptor.is_open(); }

    /// The object: for making ids, CQs and the like on it, and for gets that do not wait.
    [[nodiscard]] object_type& next_layer() noexcept { return state_->object; }
    [[nodiscard]] const object_type& next_layer() const noexcept { return state_->object; }

    /// Operations under way end with operation_aborted; no event is lost.
    void cancel() {
        if (is_open())
            state_->descriptor.cancel();
    }
    /// The same, and the object is let go of.
    void close() noexcept {
        if (state_ != nullptr)
            state_->close();
        state_.reset();
    }

protected:
    /// Signature of the handler: void(error_code, event). Cancellable, of every type.
    template <class Token>
    auto async_get(Token&& token) {
        return Net::template async_compose<void(error_code, event_type)>(
            get_operation<Net, Executor, Source>(state_), std::forward<Token>(token), state_->descriptor);
    }

    [[nodiscard]] const std::shared_ptr<io_state<Net, Executor, Source>>& state() const noexcept { return state_; }

private:
    std::shared_ptr<io_state<Net, Executor, Source>> state_;
};

/// An event_channel in an event loop.
template <class Net, class Executor>
class basic_event_channel : public io_object<Net, Executor, cm_source> {
public:
    using io_object<Net, Executor, cm_source>::io_object;

    /// With a channel of its own. @throws error as event_channel
    explicit basic_event_channel(const Executor& executor) : basic_event_channel(executor, event_channel()) {}
    template <class Context>
        requires requires(Context& c) {
            c.get_executor();
        }
    explicit basic_event_channel(Context& context) : basic_event_channel(context, event_channel()) {}

    /// The next event: void(error_code, cm_event), for any completion token.
    template <class Token = typename Net::template default_token<Executor>>
    auto async_get_cm_event(Token&& token = {}) {
        return this->async_get(std::forward<Token>(token));
    }
};

/// A comp_channel in an event loop.
template <class Net, class Executor>
class basic_comp_channel : public io_object<Net, Executor, cq_source> {
public:
    using io_object<Net, Executor, cq_source>::io_object;

    /// The next event: void(error_code, cq_event), for any completion token.
    template <class Token = typename Net::template default_token<Executor>>
    auto async_get_cq_event(Token&& token = {}) {
        return this->async_get(std::forward<Token>(token));
    }
};

/// A context, whose asynchronous events are read in an event loop.
template <class Net, class Executor>
class basic_context : public io_object<Net, Executor, async_source> {
public:
    using io_object<Net, Executor, async_source>::io_object;

    /// The next event: void(error_code, async_event), for any completion token.
    template <class Token = typename Net::template default_token<Executor>>
    auto async_get_async_event(Token&& token = {}) {
        return this->async_get(std::forward<Token>(token));
    }
};

} // namespace rdmaxx::inline v0::detail

#endif
