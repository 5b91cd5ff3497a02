// expect: deleted (member )?function
//
// What an event shows by reference ends with it: a view of an event that is gone at the end of the statement.
#include <rdmaxx/cm/event_channel.hpp>

#include <cstddef>
#include <span>
#include <utility>

std::size_t control(rdmaxx::event_channel& channel) {
    std::error_code ec;
    const rdmaxx::cm_event event = channel.get_cm_event();
    const rdmaxx::cm_event_snapshot copy = event.snapshot();
    const rdmaxx::cm_id_ref request = event.request();
    return event.private_data().size() + copy.private_data().size() + event.conn_param().private_data_len +
           (event.ud_param(ec) != nullptr ? 1U : 0U) + (request ? 1U : 0U);
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::event_channel& channel) {
    std::error_code ec;
    std::span<const std::byte> data = channel.get_cm_event().private_data();              // bad
    std::span<const std::byte> copied = channel.get_cm_event().snapshot().private_data(); // bad
    rdmaxx::cm_id_ref request = channel.get_cm_event().request();                         // bad
    const rdma_conn_param& conn = channel.get_cm_event().conn_param();                    // bad
    const rdma_conn_param* conn_or_null = channel.get_cm_event().conn_param(ec);          // bad
    const rdma_ud_param& ud = channel.get_cm_event().ud_param();                          // bad
    const rdma_ud_param* ud_or_null = channel.get_cm_event().ud_param(ec);                // bad
}

void moved(rdmaxx::cm_event event) {
    std::span<const std::byte> data = std::move(event).private_data(); // bad
}
#endif
