// expect-gcc: has no member named|argument given to 'delete'
// expect-clang: no member named|cannot delete expression
//
// A ref ends nothing.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/ah.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <utility>

void control(rdmaxx::pd& pd, rdmaxx::cm_id& id) {
    pd.close();
    id.close();
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::context_ref context, rdmaxx::pd_ref pd, rdmaxx::mr_ref mr, rdmaxx::cq_ref cq, rdmaxx::qp_ref qp,
       rdmaxx::event_channel_ref channel, rdmaxx::cm_id_ref id) {
    context.close();                            // bad
    pd.close();                                 // bad
    mr.close();                                 // bad
    cq.close();                                 // bad
    qp.close();                                 // bad
    channel.close();                            // bad
    id.close();                                 // bad
    static_cast<void>(std::move(id).release()); // bad
    delete qp;                                  // bad
}

void more(rdmaxx::srq_ref srq, rdmaxx::ah_ref ah, rdmaxx::device_ref device) {
    srq.close();    // bad
    ah.close();     // bad
    device.close(); // bad
}
#endif
