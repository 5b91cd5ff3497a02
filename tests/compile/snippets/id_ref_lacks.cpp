// expect-gcc: has no member named
// expect-clang: no member named
//
// What changes what an id holds needs its owner: a ref does not know what is pinned, or whether the request
// was answered.
#include <rdmaxx/cm/event_channel.hpp>

void control(rdmaxx::cm_id& id, rdmaxx::cm_id_ref ref, const rdmaxx::qp_init_attr& attr) {
    id.create_qp(attr);
    id.accept();
    id.destroy_qp();
    id.reject();
    id.connect();
    ref.disconnect();
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::cm_id_ref id, rdmaxx::pd& pd, const rdmaxx::qp_init_attr& attr, rdmaxx::cm_event& event,
       rdmaxx::event_channel& channel, const rdmaxx::address& group) {
    id.accept();              // bad
    id.reject();              // bad
    id.connect();             // bad
    id.create_qp(attr);       // bad
    id.create_qp(pd, attr);   // bad
    id.destroy_qp();          // bad
    id.create_srq();          // bad
    id.destroy_srq();         // bad
    id.migrate(channel);      // bad
    id.join_multicast(group); // bad
    event.request().accept(); // bad
    event.request().reject(); // bad
    event.id().connect();     // bad
}
#endif
