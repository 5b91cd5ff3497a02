// struct ibv_context, an open device: ibv_open_device(3), ibv_query_device(3), ibv_query_port(3).
#ifndef RDMAXX_VERBS_CONTEXT_HPP
#define RDMAXX_VERBS_CONTEXT_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/held_events.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/detail/wait.hpp>
#include <rdmaxx/verbs/device.hpp>

namespace rdmaxx::inline v0 {
namespace detail {

/// A context that somebody else keeps open, and how to let it go.
struct borrowed_context {
    ibv_context* raw = nullptr;
    void* keeper = nullptr;
    void (*let_go)(void* keeper) noexcept = nullptr;
    status result;
};

/// An object that is being destroyed: gets ack its asynchronous events themselves.
struct going_object {
    const void* raw = nullptr;
    going_object* next = nullptr;
};

struct context_traits {
    using raw_type = ibv_context;
    using ref_type = context_ref;
    struct block : detail::block<ibv_context, 0> {
        using detail::block<ibv_context, 0>::block;
        borrowed_context borrowed; // the twin of the call that made it, where that is not ibv_open_device
        held_events events;        // asynchronous ones
        going_object* going RDMAXX_GUARDED_BY(events.lock) = nullptr;
        int flags_before = O_NONBLOCK; // of the descriptor of asynchronous events
    };
    static void detach(block& b) noexcept { restore_blocking(b.raw->async_fd, b.flags_before); }
    static status destroy(block& b) noexcept {
        if (b.borrowed.let_go == nullptr)
            return check_number("ibv_close_device", ::ibv_close_device(b.raw));
        b.borrowed.let_go(b.borrowed.keeper);
        return {};
    }
};

/// The operations of context and context_ref.
template <class Handle>
class context_ops : public Handle {
public:
    using Handle::Handle;

    /// The device; valid as long as the context.
    [[nodiscard]] device_ref device() const noexcept { return device_ref(this->native_handle()->device); }

    /// Attributes and limits of the device. System call.
    /// C call: ibv_query_device(3).
    [[nodiscard]] ibv_device_attr query_device() const {
        ibv_device_attr attr{};
        check(do_query_device(attr));
        return attr;
    }
    [[nodiscard]] ibv_device_attr query_device(std::error_code& ec) const noexcept {
        ibv_device_attr attr{};
        assign(ec, do_query_device(attr));
        return attr;
    }

    /// State and limits of a port. System call.
    /// @param port from 1
    /// C call: ibv_query_port(3).
    [[nodiscard]] ibv_port_attr query_port(std::uint8_t port) const {
        ibv_port_attr attr{};
        check(do_query_port(port, attr));
        return attr;
    }
    [[nodiscard]] ibv_port_attr query_port(std::uint8_t port, std::error_code& ec) const noexcept {
        ibv_port_attr attr{};
        assign(ec, do_query_port(port, attr));
        return attr;
    }

    /// The descriptor of asynchronous events, for event loops.
    [[nodiscard]] int async_fd() const noexcept { return this->native_handle()->async_fd; }

private:
    [[nodiscard]] status do_query_device(ibv_device_attr& attr) const noexcept {
        return check_number("ibv_query_device", ::ibv_query_device(this->native_handle(), &attr));
    }
    [[nodiscard]] status do_query_port(std::uint8_t port, ibv_port_attr& attr) const noexcept {
        return check_number("ibv_query_port", ::ibv_query_port(this->native_handle(), port, &attr));
    }
};

} // namespace detail

/// A context that is somebody else's: what an id brings (cm_id::verbs), or a C program's.
class context_ref : public detail::context_ops<detail::ref<ibv_context>> {
public:
    using context_ops::context_ops;
};

/// An open device. It stays open until this owner and the last object made from it are gone.
///
/// C calls: ibv_open_device(3), ibv_close_device(3). Any number of threads may use one context.
class context : public detail::context_ops<detail::owner<detail::context_traits>> {
public:
    context() noexcept = default;

    /// Opens a device. The device_list it comes from may go afterwards. System calls; some milliseconds.
    /// @throws error EACCES without permission on /dev/infiniband/uverbsN, ENODEV for a device that is gone, EMFILE
    explicit context(device_ref device) { detail::check(init(device)); }
    [[nodiscard]] static context create(device_ref device, std::error_code& ec) noexcept {
        context result;
        detail::assign(ec, result.init(device));
        return result;
    }

    /// The device that a cm_id is bound to (include cm/cm_id.hpp), kept open when the id is gone: what the PD and the
    /// memory regions of a program that outlive single connections are made from. Opens every device of the machine
    /// (about a millisecond): once for a program, not once for a connection.
    /// @throws error EINVAL for an id that is not bound to a device yet
    /// C calls: rdma_get_devices(3), rdma_free_devices(3).
    template <class Id>
        requires requires(const Id& id) {
            keep_context_of(id);
        }
    explicit context(const Id& id) { detail::check(init(keep_context_of(id))); }
    template <class Id>
        requires requires(const Id& id) {
            keep_context_of(id);
        }
    [[nodiscard]] static context create(const Id& id, std::error_code& ec) noexcept {
        context result;
        detail::assign(ec, result.init(keep_context_of(id)));
        return result;
    }

    /// Takes over a context that ibv_open_device made; it will be closed by ibv_close_device.
    /// @param ec ENOMEM, and the context is still the caller's
    [[nodiscard]] static context adopt(ibv_context* raw, std::error_code& ec) noexcept {
        context result;
        detail::assign(ec, result.take(raw));
        return result;
    }

private:
    [[nodiscard]] detail::status init(device_ref device) noexcept {
        if (!device)
            return {"ibv_open_device", ENODEV, "no such device in the list"};
        const detail::status made =
            make("ibv_open_device", [&]() noexcept { return ::ibv_open_device(device.native_handle()); });
        return made.failed() ? made : unblock();
    }

    [[nodiscard]] detail::status take(ibv_context* raw) noexcept {
        const detail::status made = make("ibv_open_device", [raw]() noexcept { return raw; });
        if (made.failed())
            return made;
        const detail::status result = unblock();
        if (result.failed())
            static_cast<void>(std::move(*this).release());
        return result;
    }

    [[nodiscard]] detail::status unblock() noexcept {
        return detail::set_nonblocking(async_fd(), detail::passkey::block(*this)->flags_before);
    }

    [[nodiscard]] detail::status init(const detail::borrowed_context& borrowed) noexcept {
        if (borrowed.result.failed())
            return borrowed.result;
        const detail::status result = make("rdma_get_devices", [&]() noexcept { return borrowed.raw; });
        if (result.failed())
            borrowed.let_go(borrowed.keeper);
        else
            detail::passkey::block(*this)->borrowed = borrowed;
        return result;
    }
};

} // namespace rdmaxx::inline v0

#endif
