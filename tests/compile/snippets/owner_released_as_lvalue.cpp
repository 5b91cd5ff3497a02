// expect-gcc: passing .* as 'this' argument discards qualifiers
// expect-clang: 'this' argument to member function .* is an lvalue
//
// release() leaves an empty owner behind, and gives up the pins of the parents: std::move says so.
#include <rdmaxx/cm/event_channel.hpp>

#include <utility>

ibv_pd* control(rdmaxx::pd pd) {
    return std::move(pd).release();
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::pd& pd, rdmaxx::mr& mr, rdmaxx::cq& cq, rdmaxx::qp& qp, rdmaxx::cm_id& id,
       rdmaxx::event_channel& channel) {
    static_cast<void>(pd.release());      // bad
    static_cast<void>(mr.release());      // bad
    static_cast<void>(cq.release());      // bad
    static_cast<void>(qp.release());      // bad
    static_cast<void>(id.release());      // bad
    static_cast<void>(channel.release()); // bad
}
#endif
