// expect-gcc: conversion from .* requested|could not convert|no matching function
// expect-clang: no viable conversion|no matching (constructor|function)
//
// A ref owns nothing, so nothing becomes an owner through it. What takes a parent makes a child of it.
#include <rdmaxx/cm/event_channel.hpp>

rdmaxx::pd control(rdmaxx::context_ref device) {
    return rdmaxx::pd(device);
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::pd_ref pd, rdmaxx::cq_ref cq, rdmaxx::qp_ref qp, rdmaxx::cm_id_ref id) {
    rdmaxx::pd pd_owner(pd);    // bad
    rdmaxx::cq cq_owner(cq);    // bad
    rdmaxx::qp qp_owner(qp);    // bad
    rdmaxx::cm_id id_owner(id); // bad
}
#endif
