// What to look for with rdma_getaddrinfo(3) and rdma_resolve_addrinfo(3).
#ifndef RDMAXX_CM_ADDRINFO_HINTS_HPP
#define RDMAXX_CM_ADDRINFO_HINTS_HPP

#include <rdmaxx/address.hpp>
#include <rdmaxx/detail/cm_api.hpp>
#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/id_ops.hpp>
#include <rdmaxx/verbs/qp.hpp>

namespace rdmaxx::inline v0 {

/// ai_flags.
enum class addrinfo_flags : int {
    none = 0,                       ///< nothing of the below
    passive = RAI_PASSIVE,          ///< for a listener
    numeric_host = RAI_NUMERICHOST, ///< no name service
    noroute = RAI_NOROUTE,          ///< do not resolve the route
    family = RAI_FAMILY,            ///< ai_family says how to read the node
#if RDMAXX_HAS_RESOLVE_ADDRINFO
    sa = RAI_SA,   ///< by the fabric's path service: cm_id::resolve_addrinfo only
    dns = RAI_DNS, ///< by the name service: cm_id::resolve_addrinfo only
#endif
};

namespace detail {
template <>
inline constexpr bool is_flags<addrinfo_flags> = true;
}

/// What to look for (the `hints` of rdma_getaddrinfo). The addresses must live until the call returns.
struct addrinfo_hints {
    addrinfo_flags flags = addrinfo_flags::none; ///< addrinfo_flags::passive for a listener, for one
    int family = AF_UNSPEC;                      ///< used with addrinfo_flags::family
    port_space ps = port_space::tcp;             ///< what the id will be made with
    qp_type type = qp_type::rc;                  ///< what its queue pair will be
    address source{};                            ///< the address of this machine to use; empty for any
};

namespace detail {

[[nodiscard]] inline rdma_addrinfo to_c(const addrinfo_hints& from) noexcept {
    rdma_addrinfo to{};
    to.ai_flags = static_cast<int>(from.flags);
    to.ai_family = from.family;
    to.ai_qp_type = static_cast<int>(from.type);
    to.ai_port_space = static_cast<int>(from.ps);
    if (from.source) {
        to.ai_src_addr = const_cast<sockaddr*>(from.source.data()); // C does not write
        to.ai_src_len = static_cast<socklen_t>(from.source.size());
    }
    return to;
}

} // namespace detail
} // namespace rdmaxx::inline v0

#endif
