// The Asio adapters: one template over what standalone Asio and Boost.Asio name differently (Net). Included by asio.hpp
// and boost_asio.hpp, after the library's own headers.
#ifndef RDMAXX_DETAIL_ASIO_ADAPTER_HPP
#define RDMAXX_DETAIL_ASIO_ADAPTER_HPP

#include <rdmaxx/cm.hpp>
#include <rdmaxx/verbs.hpp>

#include <concepts>
#include <memory>
#include <utility>

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

/// Where I/O objects may be made from instead of its executor. (Not from another I/O object: that would be a copy.)
template <class Context, class Net>
concept context_of = std::convertible_to<Context&, typename Net::execution_context&>;

template <class Other, class Executor>
concept other_executor = !std::same_as<Other, Executor> && std::convertible_to<Other, Executor>;

/// The object and its descriptor in the event loop, shared by the I/O object and the operations under way.
template <class Net, class Executor, class Source>
struct io_state {
    using object_type = typename Source::object;

    io_state(const Executor& executor, object_type&& from)
        : object(std::move(from)), descriptor(executor, fd_of(object)) {}
    io_state(const io_state&) = delete;
    io_state& operator=(const io_state&) = delete;
    ~io_state() { static_cast<void>(release()); }

    [[nodiscard]] bool is_open() const noexcept { return descriptor.is_open(); }

    void cancel() {
        ++cancels;
        descriptor.cancel();
    }

    /// Out of the loop, which would close the descriptor, and only then out of here.
    [[nodiscard]] object_type release() {
        if (is_open())
            descriptor.release();
        return std::move(object);
    }

    [[nodiscard]] static int fd_of(const object_type& from) {
        if (!from)
            raise({"epoll_ctl", EBADF, "empty channel or context"});
        return Source::fd(from);
    }

    object_type object;
    typename Net::template descriptor<Executor> descriptor;
    unsigned cancels = 0;
};

/// Waits until the descriptor is readable, and then gets, unless it was cancelled meanwhile. So an event that was got
/// is always handed over, and an operation that was cancelled has left its event in the channel.
template <class Net, class Executor, class Source>
class get_operation {
public:
    using state = io_state<Net, Executor, Source>;
    using error_code = typename Net::error_code;

    explicit get_operation(std::shared_ptr<state> from) noexcept : state_(std::move(from)) {}

    /// The start; and once more where there was nothing to wait for, since a handler is not called by its initiation.
    template <class Self>
    void operator()(Self& self) {
        if (std::exchange(started_, true)) {
            self.complete(Net::bad_descriptor(), typename Source::event());
            return;
        }
        self.reset_cancellation_state(Net::enable_total_cancellation());
        cancels_ = state_->cancels;
        if (state_->is_open())
            wait(self);
        else // as it is: with the handler's own executor and allocator
            Net::post(state_->descriptor.get_executor(), std::move(self));
    }

    /// The end of a wait.
    template <class Self>
    void operator()(Self& self, error_code failed) {
        typename Source::event event;
        if (!failed && is_cancelled(self))
            failed = Net::aborted();
        if (!failed) {
            std::error_code ec;
            event = Source::try_get(state_->object, ec);
            if (!event && !ec) { // another operation was faster, or the library kept it to itself
                wait(self);
                return;
            }
            failed = Net::from_std(ec);
        }
        self.complete(failed, std::move(event));
    }

private:
    /// After the wait, too: a cancellation finds nothing to cancel between the end of the wait and the handler.
    template <class Self>
    [[nodiscard]] bool is_cancelled(Self& self) const noexcept {
        return !state_->is_open() || cancels_ != state_->cancels || Net::is_cancelled(self.get_cancellation_state());
    }

    template <class Self>
    void wait(Self& self) {
        auto& descriptor = state_->descriptor; // self, which is moved, owns what state_ is
        descriptor.async_wait(Net::wait_read, std::move(self));
    }

    std::shared_ptr<state> state_;
    unsigned cancels_ = 0;
    bool started_ = false;
};

/// An I/O object: owns a channel or context, and reads its events in an event loop. Move-only. A moved-from one may be
/// assigned to, destroyed and asked whether it is open.
///
/// As with Asio's own, one object and the handlers of its operations belong to one thread or strand at a time; distinct
/// ones may be used concurrently. Any number of operations may be under way; each event goes to one of them. An object
/// ends before its loop does.
///
/// An operation under way outlives its object: moving the object changes nothing for it, and destroying the object
/// cancels it. One that was cancelled, in whichever way, before its handler began leaves the event in the channel.
template <class Net, class Executor, class Source>
class io_object {
    using state_type = io_state<Net, Executor, Source>;

public:
    /// What an I/O object of the library has, and what it owns.
    using executor_type = Executor;
    using object_type = typename Source::object;
    using event_type = typename Source::event;
    using error_code = typename Net::error_code;

    /// Takes the object over. Its descriptor becomes non-blocking, and is in one loop at a time.
    /// @throws error EBADF for an empty one; the loop's system_error
    io_object(const Executor& executor, object_type object)
        : state_(std::make_shared<state_type>(executor, std::move(object))) {}
    template <context_of<Net> Context>
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

    /// Where handlers run. Not of a moved-from one.
    [[nodiscard]] executor_type get_executor() noexcept { return state_->descriptor.get_executor(); }
    /// False when moved from, closed or released.
    [[nodiscard]] bool is_open() const noexcept { return state_ != nullptr && state_->is_open(); }

    /// The object: for making ids, CQs and the like on it, and for gets that do not wait. Not of a moved-from one.
    [[nodiscard]] object_type& next_layer() noexcept { return state_->object; }
    [[nodiscard]] const object_type& next_layer() const noexcept { return state_->object; }

    /// Operations under way end with operation_aborted.
    void cancel() {
        if (is_open())
            state_->cancel();
    }
    /// The same, and the object is let go of, at once. Operations that are begun later end with bad_descriptor.
    void close() noexcept {
        if (is_open())
            static_cast<void>(state_->release());
    }
    /// The same, and gives the object back.
    [[nodiscard]] object_type release() { return state_->release(); }

protected:
    template <class Token>
    static constexpr bool token_of = Net::template accepts<Token, void(error_code, event_type)>;

    template <class Token>
    auto async_get(Token&& token) {
        return Net::template async_compose<void(error_code, event_type)>(
            get_operation<Net, Executor, Source>(state_), std::forward<Token>(token), state_->descriptor);
    }

private:
    std::shared_ptr<state_type> state_;
};

/// An event_channel in an event loop.
template <class Net, class Executor>
class basic_event_channel : public io_object<Net, Executor, cm_source> {
    using base = io_object<Net, Executor, cm_source>;

public:
    /// For use_awaitable_t<>::as_default_on_t and the like.
    template <class Other>
    struct rebind_executor {
        using other = basic_event_channel<Net, Other>;
    };

    using base::base;

    /// With a channel of its own. @throws error as event_channel
    explicit basic_event_channel(const Executor& executor) : base(executor, event_channel()) {}
    template <context_of<Net> Context>
    explicit basic_event_channel(Context& context) : base(context, event_channel()) {}

    /// Takes the channel out of another one's hands, with another executor type. What was under way there is cancelled.
    template <other_executor<Executor> Other>
    explicit basic_event_channel(basic_event_channel<Net, Other>&& other)
        : base(Executor(other.get_executor()), other.release()) {}

    /// The next event: void(error_code, cm_event), for any completion token. Can be cancelled, by every type of
    /// cancellation. The event is empty if and only if there is an error: operation_aborted, bad_descriptor, or one of
    /// event_channel::get_cm_event.
    template <class Token = typename Net::template default_token<Executor>>
        requires(base::template token_of<Token>)
    auto async_get_cm_event(Token&& token = {}) { return this->async_get(std::forward<Token>(token)); }
};

/// A comp_channel in an event loop.
template <class Net, class Executor>
class basic_comp_channel : public io_object<Net, Executor, cq_source> {
    using base = io_object<Net, Executor, cq_source>;

public:
    template <class Other>
    struct rebind_executor {
        using other = basic_comp_channel<Net, Other>;
    };

    using base::base;

    /// From one with another executor type.
    template <other_executor<Executor> Other>
    explicit basic_comp_channel(basic_comp_channel<Net, Other>&& other)
        : base(Executor(other.get_executor()), other.release()) {}

    /// The next event: void(error_code, cq_event), for any completion token; otherwise as async_get_cm_event.
    /// A completion that was there before the CQ's request_notify raises none: poll after it, and then wait.
    template <class Token = typename Net::template default_token<Executor>>
        requires(base::template token_of<Token>)
    auto async_get_cq_event(Token&& token = {}) { return this->async_get(std::forward<Token>(token)); }
};

/// A context, whose asynchronous events are read in an event loop. (Of a context that an id brought, the descriptor is
/// the process's only one for that device: one loop at a time, and it stays non-blocking.)
template <class Net, class Executor>
class basic_context : public io_object<Net, Executor, async_source> {
    using base = io_object<Net, Executor, async_source>;

public:
    template <class Other>
    struct rebind_executor {
        using other = basic_context<Net, Other>;
    };

    using base::base;

    /// From one with another executor type.
    template <other_executor<Executor> Other>
    explicit basic_context(basic_context<Net, Other>&& other) : base(Executor(other.get_executor()), other.release()) {}

    /// The next event: void(error_code, async_event), for any completion token; otherwise as async_get_cm_event.
    template <class Token = typename Net::template default_token<Executor>>
        requires(base::template token_of<Token>)
    auto async_get_async_event(Token&& token = {}) { return this->async_get(std::forward<Token>(token)); }
};

} // namespace rdmaxx::inline v0::detail

#endif
