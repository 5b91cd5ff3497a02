// expect-gcc: cannot convert|invalid .?static_cast.?
// expect-clang: no matching function|no viable conversion|cannot (convert|cast|initialize)
//
// The C ack takes the event away from under its owner, which would give it back a second time.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/async_event.hpp>
#include <rdmaxx/verbs/cq_event.hpp>

#include <utility>

// An event that is to be C's own is released, which is to be seen in the source.
int control(rdmaxx::cm_event event) {
    return ::rdma_ack_cm_event(std::move(event).release());
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::cm_event event) {
    ::rdma_ack_cm_event(event);                      // bad
    ::rdma_ack_cm_event(std::move(event));           // bad
    ::rdma_ack_cm_event(rdmaxx::cm_event());         // bad
    rdma_cm_event* implicit = event;                 // bad
    auto* cast = static_cast<rdma_cm_event*>(event); // bad
}

void completions(rdmaxx::cq_event event) {
    ::ibv_ack_cq_events(event, 1); // bad
}

void asynchronous(rdmaxx::async_event event) {
    ::ibv_ack_async_event(event);  // bad
    ::ibv_ack_async_event(&event); // bad
}
#endif
