// expect-clang: reference to stack memory|address of stack memory|temporary .* will be destroyed
//
// Only clang: [[clang::lifetimebound]] tells it which result points into which argument.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/qp.hpp>

#include <cstddef>
#include <span>

void use(std::span<const std::byte> data);

void control(rdmaxx::event_channel& channel, rdmaxx::qp_ref qp, const rdmaxx::mr& mr) {
    const rdmaxx::cm_event event = channel.get_cm_event();
    use(event.private_data());
    qp.post_send(rdmaxx::send_wr::send(mr.sge()).signaled()); // posted before the SGE ends
    const rdmaxx::sge piece = mr.sge();
    rdmaxx::send_wr request = rdmaxx::send_wr::send(piece);
    qp.post_send(request);
    for (const rdmaxx::device_ref device : rdmaxx::device_list()) // the list lives as long as the loop
        static_cast<void>(device.name());
}

#ifdef MUST_NOT_COMPILE
std::span<const std::byte> private_data_of_a_local(rdmaxx::event_channel& channel) {
    const rdmaxx::cm_event event = channel.get_cm_event();
    return event.private_data(); // bad
}

std::span<const std::byte> private_data_of_a_local_copy(const rdmaxx::cm_event& event) {
    const rdmaxx::cm_event_snapshot copy = event.snapshot();
    return copy.private_data(); // bad
}

rdmaxx::cm_id_ref request_of_a_local(rdmaxx::event_channel& channel) {
    const rdmaxx::cm_event event = channel.get_cm_event();
    return event.request(); // bad
}

const rdma_conn_param& parameters_of_a_local(rdmaxx::event_channel& channel) {
    const rdmaxx::cm_event event = channel.get_cm_event();
    return event.conn_param(); // bad
}

const sockaddr* data_of_a_local(const rdmaxx::cm_id& id) {
    const rdmaxx::address peer = id.peer_address();
    return peer.data(); // bad
}

void request_of_a_temporary_sge(rdmaxx::qp_ref qp, const rdmaxx::mr& mr, const rdmaxx::remote_buffer& peer) {
    rdmaxx::send_wr send = rdmaxx::send_wr::send(mr.sge());              // bad
    rdmaxx::send_wr write = rdmaxx::send_wr::rdma_write(mr.sge(), peer); // bad
    rdmaxx::send_wr read = rdmaxx::send_wr::rdma_read(mr.sge(), peer);   // bad
    rdmaxx::recv_wr receive(mr.sge());                                   // bad
    qp.post_send(send);
    qp.post_send(write);
    qp.post_send(read);
    qp.post_recv(receive);
}

void device_of_a_temporary_list() {
    rdmaxx::device_list::iterator first = rdmaxx::device_list().begin(); // bad
    static_cast<void>(first);
}

rdmaxx::device_ref device_of_a_local_list() {
    const rdmaxx::device_list devices;
    return devices.front(); // bad
}
#endif
