// struct ibv_comp_cntr, counters of completions: ibv_create_comp_cntr(3). rdma-core 65.
#ifndef RDMAXX_VERBS_COMP_CNTR_HPP
#define RDMAXX_VERBS_COMP_CNTR_HPP

#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/qp.hpp>

#include <cstdint>
#include <type_traits>

struct ibv_comp_cntr_caps;
struct ibv_qp_attach_comp_cntr_attr;

namespace rdmaxx::inline v0 {

/// What a completion counter counts (enum ibv_comp_cntr_type).
enum class comp_cntr_type : int {
    wrs = 0, ///< requests
    bytes = 1,
};

[[nodiscard]] constexpr const char* to_string(comp_cntr_type type) noexcept {
    switch (type) {
    case comp_cntr_type::wrs: return "wrs";
    case comp_cntr_type::bytes: return "bytes";
    }
    return "unknown";
}

/// Of which operations of a queue pair (enum ibv_qp_attach_comp_cntr_op).
enum class comp_cntr_ops : std::uint32_t {
    none = 0,
    send = 1 << 0,
    recv = 1 << 1,
    rdma_read = 1 << 2,
    remote_rdma_read = 1 << 3, ///< what the peer reads here
    rdma_write = 1 << 4,
    remote_rdma_write = 1 << 5, ///< what the peer writes here
};

/// What a device can count (struct ibv_comp_cntr_caps).
struct comp_cntr_caps {
    std::uint64_t max_value = 0;                                 ///< where a counter starts anew
    std::uint32_t max_counters = 0;                              ///< of the device
    comp_cntr_ops supported_qp_attach_ops = comp_cntr_ops::none; ///< what it can count
};

namespace detail {

template <>
inline constexpr bool is_flags<comp_cntr_ops> = true;

struct comp_cntr_traits {
    using raw_type = ibv_comp_cntr;
    using ref_type = comp_cntr_ref;
    using block = detail::block<ibv_comp_cntr, 1>; // context
    template <class Block>
    static status destroy(Block& b) noexcept {
        if constexpr (has_comp_cntr<std::remove_pointer_t<decltype(b.raw)>>)
            return check_number("ibv_destroy_comp_cntr", ibv_destroy_comp_cntr(b.raw));
        else
            return {"ibv_destroy_comp_cntr", ENOSYS};
    }
};

/// The operations of comp_cntr and comp_cntr_ref. (comp_cntr_ops is what they count.)
template <class Handle>
class comp_cntr_calls : public Handle {
public:
    using Handle::Handle;

    /// Counts what completes on a queue pair from now on. C call: ibv_qp_attach_comp_cntr(3).
    /// @param queue in the reset or init state
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void attach(qp_ref queue, comp_cntr_ops ops) const { check(do_attach<ibv_qp_attach_comp_cntr_attr>(queue, ops)); }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void attach(qp_ref queue, comp_cntr_ops ops, std::error_code& ec) const noexcept {
        assign(ec, do_attach<ibv_qp_attach_comp_cntr_attr>(queue, ops));
    }

    /// Reads, sets and adds to the number of what succeeded. Data path on devices that map it.
    /// C calls: ibv_read_comp_cntr(3), ibv_set_comp_cntr(3), ibv_inc_comp_cntr(3).
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    [[nodiscard]] std::uint64_t read() const {
        std::uint64_t value = 0;
        check(check_number("ibv_read_comp_cntr", ibv_read_comp_cntr(raw<Raw>(), &value)));
        return value;
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    [[nodiscard]] std::uint64_t read(std::error_code& ec) const noexcept {
        std::uint64_t value = 0;
        assign(ec, check_number("ibv_read_comp_cntr", ibv_read_comp_cntr(raw<Raw>(), &value)));
        return value;
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void set(std::uint64_t value) const {
        check(check_number("ibv_set_comp_cntr", ibv_set_comp_cntr(raw<Raw>(), value)));
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void set(std::uint64_t value, std::error_code& ec) const noexcept {
        assign(ec, check_number("ibv_set_comp_cntr", ibv_set_comp_cntr(raw<Raw>(), value)));
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void inc(std::uint64_t amount) const {
        check(check_number("ibv_inc_comp_cntr", ibv_inc_comp_cntr(raw<Raw>(), amount)));
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void inc(std::uint64_t amount, std::error_code& ec) const noexcept {
        assign(ec, check_number("ibv_inc_comp_cntr", ibv_inc_comp_cntr(raw<Raw>(), amount)));
    }

    /// Reads, sets and adds to the number of what failed. Data path on devices that map it.
    /// C calls: ibv_read_err_comp_cntr(3), ibv_set_err_comp_cntr(3), ibv_inc_err_comp_cntr(3).
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    [[nodiscard]] std::uint64_t read_err() const {
        std::uint64_t value = 0;
        check(check_number("ibv_read_err_comp_cntr", ibv_read_err_comp_cntr(raw<Raw>(), &value)));
        return value;
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    [[nodiscard]] std::uint64_t read_err(std::error_code& ec) const noexcept {
        std::uint64_t value = 0;
        assign(ec, check_number("ibv_read_err_comp_cntr", ibv_read_err_comp_cntr(raw<Raw>(), &value)));
        return value;
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void set_err(std::uint64_t value) const {
        check(check_number("ibv_set_err_comp_cntr", ibv_set_err_comp_cntr(raw<Raw>(), value)));
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void set_err(std::uint64_t value, std::error_code& ec) const noexcept {
        assign(ec, check_number("ibv_set_err_comp_cntr", ibv_set_err_comp_cntr(raw<Raw>(), value)));
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void inc_err(std::uint64_t amount) const {
        check(check_number("ibv_inc_err_comp_cntr", ibv_inc_err_comp_cntr(raw<Raw>(), amount)));
    }
    template <class Raw = ibv_comp_cntr>
        requires has_comp_cntr<Raw>
    void inc_err(std::uint64_t amount, std::error_code& ec) const noexcept {
        assign(ec, check_number("ibv_inc_err_comp_cntr", ibv_inc_err_comp_cntr(raw<Raw>(), amount)));
    }

private:
    template <class Raw>
    [[nodiscard]] Raw* raw() const noexcept {
        return this->native_handle();
    }

    template <class Attr>
    [[nodiscard]] status do_attach(qp_ref queue, comp_cntr_ops ops) const noexcept {
        Attr attr{};
        attr.op_mask = bits(ops);
        if (!queue || !*this)
            return {"ibv_qp_attach_comp_cntr", EINVAL, empty_handle};
        return check_number("ibv_qp_attach_comp_cntr",
                            ibv_qp_attach_comp_cntr(queue.native_handle(), this->native_handle(), &attr));
    }
};

} // namespace detail

/// A completion counter that somebody else owns.
class comp_cntr_ref : public detail::comp_cntr_calls<detail::ref<ibv_comp_cntr>> {
public:
    using comp_cntr_calls::comp_cntr_calls;
};

/// Two numbers that the device counts: completions that succeeded and that failed, of the queue pairs it is attached
/// to. It ends exactly when its owner ends; it must outlive those queue pairs.
///
/// C calls: ibv_create_comp_cntr(3), ibv_destroy_comp_cntr(3); what makes one is there with rdma-core 65
/// (RDMAXX_HAS_COMP_CNTR). Any number of threads may use one.
class comp_cntr : public detail::comp_cntr_calls<detail::owner<detail::comp_cntr_traits>> {
public:
    comp_cntr() noexcept = default;

    /// @throws error EOPNOTSUPP for a kernel, driver or device without
    template <class Raw = ibv_comp_cntr>
        requires detail::has_comp_cntr<Raw>
    explicit comp_cntr(detail::parent<ibv_context> device, comp_cntr_type type = comp_cntr_type::wrs) {
        detail::check(init<ibv_comp_cntr_init_attr>(device, type));
    }
    template <class Raw = ibv_comp_cntr>
        requires detail::has_comp_cntr<Raw>
    [[nodiscard]] static comp_cntr create(detail::parent<ibv_context> device, comp_cntr_type type,
                                          std::error_code& ec) noexcept {
        comp_cntr result;
        detail::assign(ec, result.template init<ibv_comp_cntr_init_attr>(device, type));
        return result;
    }

    /// Takes over a counter that ibv_create_comp_cntr made; it will be ended by ibv_destroy_comp_cntr.
    /// @param ec ENOMEM, and the object is still the caller's
    [[nodiscard]] static comp_cntr adopt(ibv_comp_cntr* raw, detail::parent<ibv_context> pinned,
                                         std::error_code& ec) noexcept {
        comp_cntr result;
        detail::assign(ec, result.take_over("ibv_create_comp_cntr", raw, pinned.pin()));
        return result;
    }

    /// C call: ibv_query_comp_cntr_caps(3).
    template <class Raw = ibv_comp_cntr>
        requires detail::has_comp_cntr<Raw>
    [[nodiscard]] static comp_cntr_caps query_caps(context_ref device) {
        comp_cntr_caps caps;
        detail::check(do_query_caps<ibv_comp_cntr_caps>(device, caps));
        return caps;
    }
    template <class Raw = ibv_comp_cntr>
        requires detail::has_comp_cntr<Raw>
    [[nodiscard]] static comp_cntr_caps query_caps(context_ref device, std::error_code& ec) noexcept {
        comp_cntr_caps caps;
        detail::assign(ec, do_query_caps<ibv_comp_cntr_caps>(device, caps));
        return caps;
    }

private:
    template <class Attr>
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device, comp_cntr_type type) noexcept {
        if (!device)
            return {"ibv_create_comp_cntr", EINVAL, "empty context"};
        Attr attr{};
        attr.type = static_cast<decltype(attr.type)>(type);
        return make(
            "ibv_create_comp_cntr", [&]() noexcept { return ibv_create_comp_cntr(device.native_handle(), &attr); },
            device.pin());
    }

    template <class Caps>
    [[nodiscard]] static detail::status do_query_caps(context_ref device, comp_cntr_caps& out) noexcept {
        if (!device)
            return {"ibv_query_comp_cntr_caps", EINVAL, detail::empty_handle};
        Caps caps{};
        const detail::status result =
            detail::check_number("ibv_query_comp_cntr_caps", ibv_query_comp_cntr_caps(device.native_handle(), &caps));
        out = {caps.max_value, caps.max_counters, static_cast<comp_cntr_ops>(caps.supported_qp_attach_ops)};
        return result;
    }
};

} // namespace rdmaxx::inline v0

#endif
