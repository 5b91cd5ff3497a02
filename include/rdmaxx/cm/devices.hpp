// The devices that librdmacm has open: rdma_get_devices(3), rdma_free_devices(3).
#ifndef RDMAXX_CM_DEVICES_HPP
#define RDMAXX_CM_DEVICES_HPP

#include <rdmaxx/detail/cm_api.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/pointer_list.hpp>
#include <rdmaxx/verbs/context.hpp>

#include <cstddef>

namespace rdmaxx::inline v0 {
namespace detail {

struct devices_traits {
    using raw_type = ibv_context*;
    using ref_type = ref<ibv_context*>;
    using block = detail::block<raw_type, 0>;
    static status destroy(block& b) noexcept {
        ::rdma_free_devices(b.raw);
        return {};
    }
};

} // namespace detail

/// A context for every RDMA device, as ids will have them (cm_id::verbs): a range of context_ref, valid as long as
/// this.
/// Opens every device of the machine: about a millisecond. For the device of one id see context(id). Any number of
/// threads may read one list.
class devices : public detail::pointer_list<detail::devices_traits, context_ref> {
public:
    /// @throws error ENODEV where there is no RDMA device, ENOMEM
    devices() { detail::check(init()); }
    [[nodiscard]] static devices create(std::error_code& ec) noexcept {
        devices result(nullptr);
        detail::assign(ec, result.init());
        return result;
    }

private:
    explicit devices(std::nullptr_t) noexcept {}

    [[nodiscard]] detail::status init() noexcept {
        return make("rdma_get_devices", []() noexcept { return ::rdma_get_devices(nullptr); });
    }
};

} // namespace rdmaxx::inline v0

#endif
