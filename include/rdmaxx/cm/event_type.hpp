// enum rdma_cm_event_type: rdma_get_cm_event(3).
#ifndef RDMAXX_CM_EVENT_TYPE_HPP
#define RDMAXX_CM_EVENT_TYPE_HPP

#include <rdmaxx/detail/cm_api.hpp>

#include <cstring>

namespace rdmaxx::inline v0 {

/// What happened. The values are those of the C enum, by number where older headers lack the name.
enum class cm_event_type : int {
    none = -1, ///< no event: acked, moved from, or never there
    addr_resolved = RDMA_CM_EVENT_ADDR_RESOLVED,
    addr_error = RDMA_CM_EVENT_ADDR_ERROR,
    route_resolved = RDMA_CM_EVENT_ROUTE_RESOLVED,
    route_error = RDMA_CM_EVENT_ROUTE_ERROR,
    connect_request = RDMA_CM_EVENT_CONNECT_REQUEST,   ///< brings a new id: cm_event::take_id
    connect_response = RDMA_CM_EVENT_CONNECT_RESPONSE, ///< only for an id without a queue pair of its own
    connect_error = RDMA_CM_EVENT_CONNECT_ERROR,
    unreachable = RDMA_CM_EVENT_UNREACHABLE,
    rejected = RDMA_CM_EVENT_REJECTED,
    established = RDMA_CM_EVENT_ESTABLISHED,
    disconnected = RDMA_CM_EVENT_DISCONNECTED, ///< answer it with disconnect()
    device_removal = RDMA_CM_EVENT_DEVICE_REMOVAL,
    multicast_join = RDMA_CM_EVENT_MULTICAST_JOIN,
    multicast_error = RDMA_CM_EVENT_MULTICAST_ERROR,
    addr_change = RDMA_CM_EVENT_ADDR_CHANGE,
    timewait_exit = RDMA_CM_EVENT_TIMEWAIT_EXIT,
    addrinfo_resolved = 16, // rdma-core 60
    addrinfo_error = 17,
    user = 18,
    internal = 19,
};

/// The enumerator's name; `unknown` for a value that this version does not know.
[[nodiscard]] constexpr const char* to_string(cm_event_type type) noexcept {
    switch (type) {
    case cm_event_type::none: return "none";
    case cm_event_type::addr_resolved: return "addr_resolved";
    case cm_event_type::addr_error: return "addr_error";
    case cm_event_type::route_resolved: return "route_resolved";
    case cm_event_type::route_error: return "route_error";
    case cm_event_type::connect_request: return "connect_request";
    case cm_event_type::connect_response: return "connect_response";
    case cm_event_type::connect_error: return "connect_error";
    case cm_event_type::unreachable: return "unreachable";
    case cm_event_type::rejected: return "rejected";
    case cm_event_type::established: return "established";
    case cm_event_type::disconnected: return "disconnected";
    case cm_event_type::device_removal: return "device_removal";
    case cm_event_type::multicast_join: return "multicast_join";
    case cm_event_type::multicast_error: return "multicast_error";
    case cm_event_type::addr_change: return "addr_change";
    case cm_event_type::timewait_exit: return "timewait_exit";
    case cm_event_type::addrinfo_resolved: return "addrinfo_resolved";
    case cm_event_type::addrinfo_error: return "addrinfo_error";
    case cm_event_type::user: return "user";
    case cm_event_type::internal: return "internal";
    }
    return "unknown";
}

namespace detail {

/// Read as a number: that of a newer library is none of the C enum's values here, and must not be loaded as one.
[[nodiscard]] inline cm_event_type type_of(const rdma_cm_event& event) noexcept {
    int number = 0;
    static_assert(sizeof number == sizeof event.event);
    std::memcpy(&number, &event.event, sizeof number);
    return static_cast<cm_event_type>(number);
}

} // namespace detail
} // namespace rdmaxx::inline v0

#endif
