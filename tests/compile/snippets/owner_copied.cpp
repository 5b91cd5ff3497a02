// expect: deleted (function|constructor)|implicitly-deleted|is implicitly deleted|overload resolution
// selected deleted
//
// One owner for one object.
#include <rdmaxx/cm/devices.hpp>
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/cm/rsocket.hpp>
#include <rdmaxx/cm/sync_id.hpp>
#include <rdmaxx/verbs/ah.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <utility>

void control(rdmaxx::pd& pd, rdmaxx::cm_id& id) {
    const rdmaxx::pd moved = std::move(pd);
    const rdmaxx::cm_id moved_id = std::move(id);
    const rdmaxx::pd_ref ref = moved; // copies of a ref are free
    const rdmaxx::pd_ref copy = ref;
    static_cast<void>(copy);
}

#ifdef MUST_NOT_COMPILE
void constructed(rdmaxx::device_list& list, rdmaxx::context& context, rdmaxx::pd& pd, rdmaxx::mr& mr,
                 rdmaxx::comp_channel& completions, rdmaxx::cq& cq, rdmaxx::qp& qp, rdmaxx::event_channel& channel,
                 rdmaxx::cm_id& id) {
    rdmaxx::device_list list2 = list;                // bad
    rdmaxx::context context2 = context;              // bad
    rdmaxx::pd pd2 = pd;                             // bad
    rdmaxx::mr mr2 = mr;                             // bad
    rdmaxx::comp_channel completions2 = completions; // bad
    rdmaxx::cq cq2 = cq;                             // bad
    rdmaxx::qp qp2 = qp;                             // bad
    rdmaxx::event_channel channel2 = channel;        // bad
    rdmaxx::cm_id id2 = id;                          // bad
}

void more(rdmaxx::srq& srq, rdmaxx::ah& ah, rdmaxx::sync_id& sync, rdmaxx::multicast_membership& membership,
          rdmaxx::devices& devices, rdmaxx::addrinfo& info, rdmaxx::rsocket& socket) {
    rdmaxx::srq srq2 = srq;                                // bad
    rdmaxx::ah ah2 = ah;                                   // bad
    rdmaxx::sync_id sync2 = sync;                          // bad
    rdmaxx::multicast_membership membership2 = membership; // bad
    rdmaxx::devices devices2 = devices;                    // bad
    rdmaxx::addrinfo info2 = info;                         // bad
    rdmaxx::rsocket socket2 = socket;                      // bad
}

void assigned(rdmaxx::context& context, rdmaxx::pd& pd, rdmaxx::cm_id& id) {
    rdmaxx::context context2;
    context2 = context; // bad
    rdmaxx::pd pd2;
    pd2 = pd; // bad
    rdmaxx::cm_id id2;
    id2 = id; // bad
}
#endif
