// expect-clang: reference to stack memory|address of stack memory|temporary .* will be destroyed
// expect-clang: object backing the pointer
//
// Only clang: [[clang::lifetimebound]] tells it which result points into which argument, [[gsl::Pointer]] which copies
// do.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/qp.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

void use(std::span<const std::byte> data);

void control(rdmaxx::event_channel& channel, rdmaxx::qp_ref qp, const rdmaxx::mr& mr) {
    const rdmaxx::cm_event event = channel.get_cm_event();
    use(event.private_data());
    qp.post_send(rdmaxx::send_wr::send(mr.sge()).signaled()); // posted before the SGE ends
    qp.post_recv(rdmaxx::recv_wr(mr.sge()).wr_id(1));
    rdmaxx::send_wr_n<1> kept(rdmaxx::send_wr::send(mr.sge()).signaled()); // which has an SGE of its own
    qp.post_send(kept);
    const rdmaxx::sge piece = mr.sge();
    rdmaxx::send_wr request = rdmaxx::send_wr::send(piece);
    qp.post_send(request);
    const std::vector<rdmaxx::sge> pieces = {piece, piece};
    rdmaxx::send_wr of_row = rdmaxx::send_wr::send(std::span(pieces).first(1)); // a view may go
    qp.post_send(of_row);
    rdmaxx::send_wr of_nothing = rdmaxx::send_wr::send({}).signaled();
    qp.post_send(of_nothing);
    request = rdmaxx::send_wr::send(piece).wr_id(2);
    auto set = rdmaxx::send_wr::send(piece).wr_id(2).signaled();
    qp.post_send(set);
    auto empty = rdmaxx::recv_wr().wr_id(3);
    qp.post_recv(empty);
    std::array<rdmaxx::recv_wr, 2> row = {rdmaxx::recv_wr(piece), rdmaxx::recv_wr(piece).wr_id(4)};
    qp.post_recv(row);
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

void request_of_a_temporary_sge_with_setters(rdmaxx::qp_ref qp, const rdmaxx::mr& mr, rdmaxx::ah_ref ah) {
    auto send = rdmaxx::send_wr::send(mr.sge()).wr_id(1).signaled();                           // bad
    const rdmaxx::send_wr datagram = rdmaxx::send_wr::send_with_imm(mr.sge(), 1).to(ah, 2, 3); // bad
    auto receive = rdmaxx::recv_wr(mr.sge()).wr_id(1);                                         // bad
    std::array<rdmaxx::recv_wr, 1> row = {rdmaxx::recv_wr(mr.sge()).wr_id(1)};                 // bad
    const auto tagged = rdmaxx::ops_wr::tag_add(mr.sge(), 1, 1).wr_id(1);                      // bad
    const rdmaxx::sge piece = mr.sge();
    const auto of_owner = rdmaxx::recv_wr_n<1>(rdmaxx::recv_wr(piece)).wr_id(1); // bad
    static_cast<void>(of_owner);
    qp.post_send(send);
    qp.post_recv(receive);
    qp.post_recv(row);
    static_cast<void>(datagram);
    static_cast<void>(tagged);
}

void request_of_a_temporary_row(rdmaxx::qp_ref qp, const rdmaxx::mr& mr) {
    rdmaxx::send_wr send = rdmaxx::send_wr::send(std::vector<rdmaxx::sge>{mr.sge()}); // bad
    qp.post_send(send);
}

rdmaxx::recv_wr request_of_a_local_sge(const rdmaxx::mr& mr) {
    const rdmaxx::sge piece = mr.sge();
    return rdmaxx::recv_wr(piece).wr_id(1); // bad
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
