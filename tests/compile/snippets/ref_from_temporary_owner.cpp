// expect: deleted function
//
// The ref of an owner that is gone at the end of the statement.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/ah.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <utility>

rdmaxx::pd make_pd(rdmaxx::context& device) {
    return rdmaxx::pd(device);
}

void control(rdmaxx::context& device) {
    const rdmaxx::pd pd = make_pd(device);
    const rdmaxx::pd_ref ref = pd;
    static_cast<void>(ref);
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::device_ref which, rdmaxx::context& device, rdmaxx::event_channel& events, rdmaxx::qp& owned_qp) {
    rdmaxx::pd_ref pd = rdmaxx::pd(device);                            // bad
    rdmaxx::pd_ref made = make_pd(device);                             // bad
    rdmaxx::context_ref context = rdmaxx::context(which);              // bad
    rdmaxx::cq_ref cq = rdmaxx::cq(device, 16);                        // bad
    rdmaxx::comp_channel_ref channel = rdmaxx::comp_channel(device);   // bad
    rdmaxx::qp_ref qp = std::move(owned_qp);                           // bad
    rdmaxx::cm_id_ref id = rdmaxx::cm_id(events);                      // bad
    rdmaxx::event_channel_ref event_channel = rdmaxx::event_channel(); // bad
}

void datagram(rdmaxx::pd& pd, const ibv_ah_attr& attr, const rdmaxx::sge& piece) {
    rdmaxx::srq_ref srq = rdmaxx::srq(pd);                                // bad
    rdmaxx::ah_ref ah = rdmaxx::ah(pd, attr);                             // bad
    rdmaxx::send_wr::send(piece).to(rdmaxx::ah(pd, attr), 1, 0x11111111); // bad
}
#endif
