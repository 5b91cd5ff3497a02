// struct ibv_counters, counters of flow rules: ibv_create_counters(3), ibv_read_counters(3).
#ifndef RDMAXX_VERBS_COUNTERS_HPP
#define RDMAXX_VERBS_COUNTERS_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/context.hpp>

#include <cstdint>
#include <span>

namespace rdmaxx::inline v0 {

#if RDMAXX_HAS_LINUX_VERBS
/// What is counted (enum ibv_counter_description).
enum class counter_description : int {
    packets = IBV_COUNTER_PACKETS,
    bytes = IBV_COUNTER_BYTES,
};

[[nodiscard]] constexpr const char* to_string(counter_description description) noexcept {
    switch (description) {
    case counter_description::packets: return "packets";
    case counter_description::bytes: return "bytes";
    }
    return "unknown";
}

namespace detail {

struct counters_traits {
    using raw_type = ibv_counters;
    using ref_type = counters_ref;
    using block = detail::block<ibv_counters, 1>; // context
    static status destroy(block& b) noexcept {
        return check_number("ibv_destroy_counters", ::ibv_destroy_counters(b.raw));
    }
};

/// The operations of counters and counters_ref.
template <class Handle>
class counters_ops : public Handle {
public:
    using Handle::Handle;

    /// Says what the value at `index` shall count, of a flow that is made with flow_attr::count(*this): before that,
    /// with a null flow, or afterwards.
    /// @throws error EOPNOTSUPP, EINVAL
    /// C call: ibv_attach_counters_point_flow(3).
    void attach_point_flow(counter_description what, std::uint32_t index, ref<ibv_flow> of = {}) const {
        check(do_attach(what, index, of));
    }
    void attach_point_flow(counter_description what, std::uint32_t index, ref<ibv_flow> of,
                           std::error_code& ec) const noexcept {
        assign(ec, do_attach(what, index, of));
    }

    /// Reads as many values as there is room for, from index 0 on. System call on some devices.
    /// @param prefer_cached of some time ago, and cheaper
    /// C call: ibv_read_counters(3).
    void read(std::span<std::uint64_t> values, bool prefer_cached = false) const {
        check(do_read(values, prefer_cached));
    }
    void read(std::span<std::uint64_t> values, bool prefer_cached, std::error_code& ec) const noexcept {
        assign(ec, do_read(values, prefer_cached));
    }

private:
    [[nodiscard]] status do_attach(counter_description what, std::uint32_t index, ref<ibv_flow> of) const noexcept {
        ibv_counter_attach_attr attr{};
        attr.counter_desc = static_cast<ibv_counter_description>(what);
        attr.index = index;
        return check_call("ibv_attach_counters_point_flow", ::ibv_attach_counters_point_flow, this->native_handle(),
                          &attr, of.native_handle());
    }
    [[nodiscard]] status do_read(std::span<std::uint64_t> values, bool prefer_cached) const noexcept {
        return check_call("ibv_read_counters", ::ibv_read_counters, this->native_handle(), values.data(),
                          static_cast<std::uint32_t>(values.size()),
                          prefer_cached ? std::uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED} : 0U);
    }
};

} // namespace detail

/// Counters that somebody else owns.
class counters_ref : public detail::counters_ops<detail::ref<ibv_counters>> {
public:
    using counters_ops::counters_ops;
};

/// Counters of what flow rules let through: flow_attr::count. They stay until this owner and those flows are gone.
///
/// C calls: ibv_create_counters(3), ibv_destroy_counters(3). Any number of threads may read them.
class counters : public detail::counters_ops<detail::owner<detail::counters_traits>> {
public:
    counters() noexcept = default;

    /// @throws error EOPNOTSUPP for a device without counters, ENOMEM
    explicit counters(detail::parent<ibv_context> device) { detail::check(init(device)); }
    [[nodiscard]] static counters create(detail::parent<ibv_context> device, std::error_code& ec) noexcept {
        counters result;
        detail::assign(ec, result.init(device));
        return result;
    }

    /// Takes over counters that ibv_create_counters made; it will be ended by ibv_destroy_counters.
    /// @param ec ENOMEM, and the object is still the caller's
    [[nodiscard]] static counters adopt(ibv_counters* raw, detail::parent<ibv_context> pinned,
                                        std::error_code& ec) noexcept {
        counters result;
        detail::assign(ec, result.take_over("ibv_create_counters", raw, pinned.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device) noexcept {
        if (!device)
            return {"ibv_create_counters", EINVAL, "empty context"};
        ibv_counters_init_attr attr{};
        return make(
            "ibv_create_counters", [&]() noexcept { return ::ibv_create_counters(device.native_handle(), &attr); },
            device.pin());
    }
};
#endif

} // namespace rdmaxx::inline v0

#endif
