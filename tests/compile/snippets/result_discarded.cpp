// expect-gcc: ignoring return(ed)? value of
// expect-clang: ignoring (return value of|temporary)
//
// "Not posted", "nothing polled" and "not armed" are results, and a result that may be ignored will be.
#include <rdmaxx/verbs/comp_channel.hpp>
#include <rdmaxx/verbs/qp.hpp>

#include <array>
#include <chrono>
#include <utility>

using namespace std::chrono_literals;

int control(rdmaxx::qp_ref qp, rdmaxx::cq_ref cq, rdmaxx::send_wr& send, rdmaxx::recv_wr& receive) {
    std::array<rdmaxx::wc, 4> room;
    std::error_code ec;
    qp.post_send(send);
    qp.post_recv(receive);
    qp.post_send(send, ec);
    cq.request_notify();
    const std::span<rdmaxx::wc> filled = cq.poll(room);
    return static_cast<int>(filled.size()) + qp.try_post_send(send) + qp.try_post_recv(receive) +
           cq.try_request_notify();
}

#ifdef MUST_NOT_COMPILE
void posts(rdmaxx::qp_ref qp, rdmaxx::send_wr& send, rdmaxx::recv_wr& receive) {
    ibv_send_wr* bad_send = nullptr;
    ibv_recv_wr* bad_receive = nullptr;
    qp.try_post_send(send);                 // bad
    qp.try_post_send(send, bad_send);       // bad
    qp.try_post_recv(receive);              // bad
    qp.try_post_recv(receive, bad_receive); // bad
}

void polls(rdmaxx::cq_ref cq) {
    std::array<rdmaxx::wc, 4> room;
    std::array<ibv_wc, 4> c_room;
    std::error_code ec;
    cq.poll(std::span<rdmaxx::wc>(room));     // bad
    cq.poll(std::span<rdmaxx::wc>(room), ec); // bad
    cq.poll(std::span<ibv_wc>(c_room));       // bad
    cq.poll(std::span<ibv_wc>(c_room), ec);   // bad
    cq.try_poll(std::span<rdmaxx::wc>(room)); // bad
    cq.try_request_notify();                  // bad
}

void waits(rdmaxx::comp_channel& channel, rdmaxx::cq_ref cq) {
    std::array<rdmaxx::wc, 4> room;
    std::error_code ec;
    const auto soon = std::chrono::steady_clock::now() + 1s;
    channel.wait(cq, room);                 // bad
    channel.wait(cq, room, ec);             // bad
    channel.wait_for(cq, room, 1s);         // bad
    channel.wait_for(cq, room, 1s, ec);     // bad
    channel.wait_until(cq, room, soon);     // bad
    channel.wait_until(cq, room, soon, ec); // bad
}

void queries(rdmaxx::qp_ref qp, rdmaxx::context_ref device) {
    std::error_code ec;
    qp.query();               // bad
    qp.query(ec);             // bad
    qp.cap();                 // bad
    device.query_device();    // bad
    device.query_port(1, ec); // bad
}
#endif
