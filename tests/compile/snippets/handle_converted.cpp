// expect-gcc: cannot convert|no match for|invalid operands|could not convert|conversion from
// expect-clang: cannot (convert|initialize)|no viable conversion|invalid operands|no matching function
//
// Handles are no pointers, numbers or truth values, and handles of different kinds are not compared.
#include <rdmaxx/cm/event_channel.hpp>

bool control(const rdmaxx::pd& pd, rdmaxx::pd_ref other) {
    return pd && other && rdmaxx::pd_ref(pd) == other && pd.native_handle() != nullptr;
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::pd& pd, rdmaxx::pd_ref ref, rdmaxx::cq_ref cq, rdmaxx::cm_event& event) {
    ibv_pd* from_owner = pd; // bad
    ibv_pd* from_ref = ref;  // bad
    ::ibv_dealloc_pd(pd);    // bad
    ::ibv_dealloc_pd(ref);   // bad
    bool is = pd;            // bad
    int number = ref;        // bad
    bool same = ref == cq;   // bad
    int answer = event;      // bad
}
#endif
