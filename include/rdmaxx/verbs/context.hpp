// struct ibv_context, an open device: ibv_open_device(3), ibv_query_device_ex(3), ibv_query_port(3),
// ibv_import_device(3).
#ifndef RDMAXX_VERBS_CONTEXT_HPP
#define RDMAXX_VERBS_CONTEXT_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/held_events.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/detail/wait.hpp>
#include <rdmaxx/verbs/device.hpp>
#include <rdmaxx/verbs/device_attr.hpp>
#include <rdmaxx/verbs/gid.hpp>
#include <rdmaxx/verbs/port.hpp>

#include <cstdint>
#include <optional>

#include <arpa/inet.h>

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
    const void* raw = nullptr; // null when C has freed it
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
    [[nodiscard]] device_attr query_device() const {
        device_attr attr;
        check(do_query_device(attr));
        return attr;
    }
    [[nodiscard]] device_attr query_device(std::error_code& ec) const noexcept {
        device_attr attr;
        assign(ec, do_query_device(attr));
        return attr;
    }

    /// What the device can do beyond that: on-demand paging, tag matching, RSS, packet pacing ... System call.
    /// C call: ibv_query_device_ex(3).
    [[nodiscard]] device_attr_ex query_device_ex() const {
        device_attr_ex attr;
        check(do_query_device_ex(attr));
        return attr;
    }
    [[nodiscard]] device_attr_ex query_device_ex(std::error_code& ec) const noexcept {
        device_attr_ex attr;
        assign(ec, do_query_device_ex(attr));
        return attr;
    }

    /// The device's clock in the ticks of completion timestamps (ibv_device_attr_ex::hca_core_clock, kHz).
    /// @throws error EOPNOTSUPP for a device that has none. C call: ibv_query_rt_values_ex(3).
    [[nodiscard]] timespec query_rt_values() const {
        timespec clock{};
        check(do_query_rt_values(clock));
        return clock;
    }
    [[nodiscard]] timespec query_rt_values(std::error_code& ec) const noexcept {
        timespec clock{};
        assign(ec, do_query_rt_values(clock));
        return clock;
    }

    /// State and limits of a port. System call.
    /// @param port from 1
    /// @throws error EINVAL for a port that the device does not have
    /// C call: ibv_query_port(3).
    [[nodiscard]] port_attr query_port(std::uint32_t port) const {
        port_attr attr;
        check(do_query_port(port, attr));
        return attr;
    }
    [[nodiscard]] port_attr query_port(std::uint32_t port, std::error_code& ec) const noexcept {
        port_attr attr;
        assign(ec, do_query_port(port, attr));
        return attr;
    }

    /// The effective speed of a port in Mb/s, of all links of a bond together. (port_attr::speed_mbps() is there with
    /// every rdma-core, for one link.) System call.
    /// @throws error EOPNOTSUPP for a kernel or device that does not tell. C call: ibv_query_port_speed(3), rdma-core
    ///         62.
    template <class C = ibv_context>
        requires has_query_port_speed<C>
    [[nodiscard]] std::uint64_t query_port_speed(std::uint32_t port) const {
        std::uint64_t speed = 0;
        check(do_query_port_speed<C>(port, speed));
        return speed;
    }
    template <class C = ibv_context>
        requires has_query_port_speed<C>
    [[nodiscard]] std::uint64_t query_port_speed(std::uint32_t port, std::error_code& ec) const noexcept {
        std::uint64_t speed = 0;
        assign(ec, do_query_port_speed<C>(port, speed));
        return speed;
    }

    /// An entry of a port's P_Key table, in host byte order. System call. C call: ibv_query_pkey(3).
    [[nodiscard]] std::uint16_t query_pkey(std::uint32_t port, int index) const {
        std::uint16_t pkey = 0;
        check(do_query_pkey(port, index, pkey));
        return pkey;
    }
    [[nodiscard]] std::uint16_t query_pkey(std::uint32_t port, int index, std::error_code& ec) const noexcept {
        std::uint16_t pkey = 0;
        assign(ec, do_query_pkey(port, index, pkey));
        return pkey;
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// Where a port's P_Key table has it, for qp_attr::pkey_index; empty if it has not. System calls.
    /// @param pkey in host byte order; 0xffff is the default one
    /// C call: ibv_get_pkey_index(3).
    [[nodiscard]] std::optional<std::uint16_t> find_pkey(std::uint32_t port, std::uint16_t pkey) const noexcept {
        const int index = *this ? ::ibv_get_pkey_index(this->native_handle(), c_port(port), htons(pkey)) : -1;
        return index >= 0 ? std::optional(static_cast<std::uint16_t>(index)) : std::nullopt;
    }

    /// Every GID of every port. System calls. C call: ibv_query_gid_table(3).
    [[nodiscard]] gid_table query_gid_table() const {
        gid_table table;
        check(gid_queries::table(this->native_handle(), table));
        return table;
    }
    [[nodiscard]] gid_table query_gid_table(std::error_code& ec) const noexcept {
        gid_table table;
        assign(ec, gid_queries::table(this->native_handle(), table));
        return table;
    }

    /// The row of an address in the GID table: whose index() is a path's sgid_index. Empty if the device does not have
    /// that address with that type. System calls.
    /// @param port from 1, or 0 for any
    [[nodiscard]] std::optional<gid_entry> find_gid(const address& local, gid_type type, std::uint32_t port = 0) const {
        return query_gid_table().find(gid(local), type, port);
    }
    [[nodiscard]] std::optional<gid_entry> find_gid(const address& local, gid_type type, std::uint32_t port,
                                                    std::error_code& ec) const noexcept {
        return query_gid_table(ec).find(gid(local), type, port);
    }

    /// One row of the GID table. System call.
    /// @throws error ENODATA for a row without a GID, EINVAL. C call: ibv_query_gid_ex(3).
    [[nodiscard]] gid_entry query_gid(std::uint32_t port, std::uint32_t index) const {
        gid_entry entry;
        check(gid_queries::entry(this->native_handle(), port, index, entry));
        return entry;
    }
    [[nodiscard]] gid_entry query_gid(std::uint32_t port, std::uint32_t index, std::error_code& ec) const noexcept {
        gid_entry entry;
        assign(ec, gid_queries::entry(this->native_handle(), port, index, entry));
        return entry;
    }
#endif

    /// The descriptor that context::import_device takes in a process that got a copy of it (SCM_RIGHTS): ours, not to
    /// be closed.
    [[nodiscard]] int cmd_fd() const noexcept {
        return this->native_handle()->cmd_fd;
    }

    /// How many completion vectors (interrupts) a CQ can choose from.
    [[nodiscard]] int num_comp_vectors() const noexcept {
        return this->native_handle()->num_comp_vectors;
    }

    /// The descriptor of asynchronous events, for event loops; -1 when empty.
    [[nodiscard]] int async_fd() const noexcept {
        return *this ? this->native_handle()->async_fd : -1;
    }

private:
    [[nodiscard]] status do_query_device(device_attr& attr) const noexcept {
        return check_call("ibv_query_device", ::ibv_query_device, this->native_handle(), &attr);
    }
    [[nodiscard]] status do_query_device_ex(device_attr_ex& attr) const noexcept {
        return check_call("ibv_query_device_ex", ::ibv_query_device_ex, this->native_handle(), nullptr, &attr);
    }
    [[nodiscard]] status do_query_rt_values(timespec& clock) const noexcept {
        ibv_values_ex values{};
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        const status result =
            check_call("ibv_query_rt_values_ex", ::ibv_query_rt_values_ex, this->native_handle(), &values);
        if (!result.failed() && (values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0)
            return {"ibv_query_rt_values_ex", EOPNOTSUPP, "the device told no clock"};
        clock = values.raw_clock;
        return result;
    }
    [[nodiscard]] status do_query_port(std::uint32_t port, port_attr& attr) const noexcept {
        const auto query = [](ibv_context* device, std::uint8_t of, ibv_port_attr* out) noexcept {
            return ::ibv_query_port(device, of, out); // a macro
        };
        return check_call("ibv_query_port", query, this->native_handle(), c_port(port), &attr);
    }
    template <class C>
    [[nodiscard]] status do_query_port_speed(std::uint32_t port, std::uint64_t& mbps) const noexcept {
        C* raw = this->native_handle();
        if (raw == nullptr)
            return {"ibv_query_port_speed", EINVAL, empty_handle};
        std::uint64_t hundreds = 0; // of Mb/s
        const status result = check_number("ibv_query_port_speed", ibv_query_port_speed(raw, port, &hundreds));
        mbps = hundreds * 100;
        return result;
    }
    [[nodiscard]] status do_query_pkey(std::uint32_t port, int index, std::uint16_t& pkey) const noexcept {
        decltype(htons(0)) wire = 0;
        errno = 0; // not every failure sets it
        if (!*this)
            return {"ibv_query_pkey", EINVAL, empty_handle};
        const status result =
            check_errno("ibv_query_pkey", ::ibv_query_pkey(this->native_handle(), c_port(port), index, &wire));
        pkey = ntohs(wire);
        return result;
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
    /// (about a millisecond): once for a program, not once for a connection. Two of one device are one C context: take
    /// its asynchronous events from the one that the objects were made with (see get_async_event).
    /// @throws error EINVAL for an id that is not bound to a device yet: a listener on all addresses never is, the ids
    ///         of its requests are
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

#if RDMAXX_HAS_LINUX_VERBS
    /// The context of another process, by a descriptor that came from there (context_ops::cmd_fd, over a Unix socket):
    /// its objects can be imported by their handles (pd::import_pd ...). It is closed by ibv_close_device, and takes
    /// the descriptor with it. Until every copy of that is closed, the kernel keeps what the other process made, even
    /// when that has died.
    /// @param cmd_fd becomes the context's when the call succeeds: never another context's own, but a copy of it
    /// @throws error EOPNOTSUPP for a driver without it (Soft-RoCE's), ENODEV for what is no device's, EINVAL for what
    ///         is no descriptor
    /// C call: ibv_import_device(3).
    [[nodiscard]] static context import_device(int cmd_fd) {
        context result;
        detail::check(result.import(cmd_fd));
        return result;
    }
    [[nodiscard]] static context import_device(int cmd_fd, std::error_code& ec) noexcept {
        context result;
        detail::assign(ec, result.import(cmd_fd));
        return result;
    }
#endif

private:
    [[nodiscard]] detail::status init(device_ref device) noexcept {
        if (!device)
            return {"ibv_open_device", ENODEV, "no such device in the list"};
        const detail::status made =
            make("ibv_open_device", [&]() noexcept { return ::ibv_open_device(device.native_handle()); });
        return made.failed() ? made : unblock_or_close();
    }

#if RDMAXX_HAS_LINUX_VERBS
    [[nodiscard]] detail::status import(int cmd_fd) noexcept {
        const detail::status made =
            make("ibv_import_device", [cmd_fd]() noexcept { return ::ibv_import_device(cmd_fd); });
        return made.failed() ? made : unblock_or_close();
    }
#endif

    [[nodiscard]] detail::status take(ibv_context* raw) noexcept {
        const detail::status made = take_over("ibv_open_device", raw);
        if (made.failed())
            return made;
        const detail::status result = unblock();
        if (result.failed())
            static_cast<void>(std::move(*this).release());
        return result;
    }

    [[nodiscard]] detail::status unblock_or_close() noexcept {
        const detail::status result = unblock();
        if (result.failed())
            *this = context();
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
