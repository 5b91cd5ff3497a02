// expect-gcc: conversion from .* requested|could not convert|no matching function
// expect-clang: no viable conversion|no matching (constructor|function)
//
// A C pointer becomes an owner by the name adopt, with what to pin, and in no other way.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/cm/sync_id.hpp>
#include <rdmaxx/verbs/ah.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

rdmaxx::pd control(ibv_pd* raw, rdmaxx::context& device) {
    std::error_code ec;
    return rdmaxx::pd::adopt(raw, device, ec);
}

#ifdef MUST_NOT_COMPILE
void implicitly(ibv_context* context, ibv_pd* pd, ibv_mr* mr, ibv_cq* cq, ibv_qp* qp, rdma_cm_id* id) {
    rdmaxx::context context_owner = context; // bad
    rdmaxx::pd pd_owner = pd;                // bad
    rdmaxx::mr mr_owner = mr;                // bad
    rdmaxx::cq cq_owner = cq;                // bad
    rdmaxx::qp qp_owner = qp;                // bad
    rdmaxx::cm_id id_owner = id;             // bad
}

void explicitly(ibv_context* context, ibv_pd* pd, ibv_mr* mr, ibv_cq* cq, ibv_qp* qp, rdma_cm_id* id,
                rdma_event_channel* channel) {
    rdmaxx::context context_owner(context);       // bad
    rdmaxx::pd pd_owner(pd);                      // bad
    rdmaxx::mr mr_owner(mr);                      // bad
    rdmaxx::cq cq_owner(cq);                      // bad
    rdmaxx::qp qp_owner(qp);                      // bad
    rdmaxx::cm_id id_owner(id);                   // bad
    rdmaxx::event_channel channel_owner(channel); // bad
}

void more(ibv_srq* srq, ibv_ah* ah, rdma_cm_id* id) {
    rdmaxx::srq srq_owner(srq);     // bad
    rdmaxx::ah ah_owner(ah);        // bad
    rdmaxx::sync_id sync_owner(id); // bad
}
#endif
