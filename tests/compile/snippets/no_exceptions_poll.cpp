// expect: without exceptions use (try_poll or )?the form that takes a std::error_code&
// flags: -fno-exceptions
// needs: code
//
// The same for the data path's polls and for what reports through them.
#include <rdmaxx/verbs/cq.hpp>

void control(rdmaxx::cq_ref cq, std::span<rdmaxx::wc> room) {
    std::error_code ec;
    static_cast<void>(cq.poll(room, ec));
    static_cast<void>(cq.try_poll(room));
    cq.request_notify(false, ec);
    static_cast<void>(cq.try_request_notify());
}

#ifdef MUST_NOT_COMPILE
void poll(rdmaxx::cq_ref cq, std::span<rdmaxx::wc> room) {
    static_cast<void>(cq.poll(room));
}
#endif
