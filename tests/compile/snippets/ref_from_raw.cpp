// expect-gcc: conversion from .* requested|could not convert|conversion from
// expect-clang: no viable conversion|no known conversion|no matching
//
// A ref says that its object outlives it. Who makes one from a C pointer says so in writing.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/ah.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

int takes(rdmaxx::cm_id_ref id);

int control(rdma_cm_id* raw, ibv_qp* raw_qp) {
    const rdmaxx::qp_ref qp(raw_qp);
    return takes(rdmaxx::cm_id_ref(raw)) + (qp ? 1 : 0);
}

#ifdef MUST_NOT_COMPILE
void f(ibv_context* context, ibv_pd* pd, ibv_mr* mr, ibv_comp_channel* completions, ibv_cq* cq, ibv_qp* qp,
       rdma_event_channel* channel, rdma_cm_id* id) {
    rdmaxx::context_ref context_ref = context;              // bad
    rdmaxx::pd_ref pd_ref = pd;                             // bad
    rdmaxx::mr_ref mr_ref = mr;                             // bad
    rdmaxx::comp_channel_ref completions_ref = completions; // bad
    rdmaxx::cq_ref cq_ref = cq;                             // bad
    rdmaxx::qp_ref qp_ref = qp;                             // bad
    rdmaxx::event_channel_ref channel_ref = channel;        // bad
    rdmaxx::cm_id_ref id_ref = id;                          // bad
    takes(id);                                              // bad
}

void more(ibv_srq* srq, ibv_ah* ah, ibv_device* device) {
    rdmaxx::srq_ref srq_ref = srq;          // bad
    rdmaxx::ah_ref ah_ref = ah;             // bad
    rdmaxx::device_ref device_ref = device; // bad
}
#endif
