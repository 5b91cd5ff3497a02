// struct rdma_conn_param: rdma_connect(3), rdma_accept(3).
#ifndef RDMAXX_CM_CONN_PARAM_HPP
#define RDMAXX_CM_CONN_PARAM_HPP

#include <rdmaxx/detail/cm_api.hpp>
#include <rdmaxx/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmaxx::inline v0 {

/// Parameters of connect and accept, with defaults that work: a zeroed struct rdma_conn_param would give up at the
/// first lost packet and at the first receive that is posted late.
///
///     id.connect({.private_data = std::as_bytes(std::span(hello)), .rnr_retry_count = 0});
struct conn_param {
    /// What the peer reads from its event; it must live until the call returns. Length limits are the transport's
    /// (InfiniBand and RoCE: connect 56, accept 196; datagrams 180 and 136), and the peer sees the transport's whole
    /// field, padded with zeroes: put a length or a magic number into it.
    std::span<const std::byte> private_data{};
    /// RDMA reads and atomics of the peer that this side serves at once; 255: as many as the device can.
    std::uint8_t responder_resources = 0xff;
    /// RDMA reads and atomics that this side may have under way; 255: as many as the device can.
    std::uint8_t initiator_depth = 0xff;
    bool flow_control = true;
    /// How often to resend what is not acknowledged, 0 to 7. Connect's is for both sides; accept's is ignored.
    std::uint8_t retry_count = 7;
    /// How often the *peer* resends when this side has no receive posted, 0 to 7; 7 is for ever. What this side's own
    /// sends do is the peer's to say. The pause is long (0.65 s with rdma_cm): post receives before they are needed.
    std::uint8_t rnr_retry_count = 7;
    /// For a queue pair that is not the id's own.
    bool srq = false;
    std::uint32_t qp_num = 0;
};

namespace detail {

/// Private data limits: what rdma_cm's header of 36 bytes leaves of InfiniBand's fields (none for AF_IB); 255, the most
/// that the C interface can say, for iWARP.
enum class cm_message { connect, accept, reject };

[[nodiscard]] inline std::size_t private_data_limit(const rdma_cm_id* id, cm_message message) noexcept {
    const bool datagram = id->qp_type == IBV_QPT_UD;
    if (id->verbs != nullptr && id->verbs->device->transport_type == IBV_TRANSPORT_IWARP)
        return 255;
    if (message == cm_message::connect) {
#if defined(AF_IB)
        const std::size_t header = id->route.addr.dst_addr.sa_family == AF_IB ? 0 : 36;
#else
        const std::size_t header = 36;
#endif
        return (datagram ? 216 : 92) - header;
    }
    if (datagram)
        return 136;
    return message == cm_message::accept ? 196 : 148;
}

[[nodiscard]] inline const char* private_data_cause(std::size_t limit) noexcept {
    switch (limit) {
    case 56: return "more than 56 bytes of private data, the limit of connect";
    case 92: return "more than 92 bytes of private data, the limit of connect with AF_IB";
    case 136: return "more than 136 bytes of private data, the limit of a datagram's accept and reject";
    case 148: return "more than 148 bytes of private data, the limit of reject";
    case 180: return "more than 180 bytes of private data, the limit of a datagram's connect";
    case 196: return "more than 196 bytes of private data, the limit of accept";
    case 216: return "more than 216 bytes of private data, the limit of a datagram's connect with AF_IB";
    default: return "more than 255 bytes of private data";
    }
}

[[nodiscard]] inline status check_private_data(const char* call, const rdma_cm_id* id, cm_message message,
                                               std::size_t size) noexcept {
    const std::size_t limit = private_data_limit(id, message);
    return size <= limit ? status{} : status{call, EINVAL, private_data_cause(limit)};
}

[[nodiscard]] inline rdma_conn_param to_c(const conn_param& from) noexcept {
    rdma_conn_param to{};
    to.private_data = from.private_data.data();
    to.private_data_len = static_cast<std::uint8_t>(from.private_data.size());
    to.responder_resources = from.responder_resources;
    to.initiator_depth = from.initiator_depth;
    to.flow_control = from.flow_control ? 1 : 0;
    to.retry_count = from.retry_count;
    to.rnr_retry_count = from.rnr_retry_count;
    to.srq = from.srq ? 1 : 0;
    to.qp_num = from.qp_num;
    return to;
}

} // namespace detail
} // namespace rdmaxx::inline v0

#endif
