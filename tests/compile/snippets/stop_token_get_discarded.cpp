// expect-gcc: ignoring return(ed)? value of
// expect-clang: ignoring (return value of|temporary)
//
// The gets of the optional headers.
#include <rdmaxx/cm/stop.hpp>
#include <rdmaxx/verbs/stop.hpp>

#if RDMAXX_HAS_STOP_TOKEN
void control(rdmaxx::event_channel& channel, rdmaxx::comp_channel& completions, rdmaxx::context& device,
             const std::stop_token& token) {
    rdmaxx::cm_event event = get_cm_event(channel, token);
    rdmaxx::cq_event completion = get_cq_event(completions, token);
    rdmaxx::async_event other = get_async_event(device, token);
    log_async_events(device, token); // how many is not always wanted
}
#endif

#ifdef MUST_NOT_COMPILE
#    if RDMAXX_HAS_STOP_TOKEN
void f(rdmaxx::event_channel& channel, rdmaxx::comp_channel& completions, rdmaxx::context& device,
       const std::stop_token& token) {
    std::error_code ec;
    get_cm_event(channel, token);         // bad
    get_cm_event(channel, token, ec);     // bad
    get_cq_event(completions, token);     // bad
    get_cq_event(completions, token, ec); // bad
    get_async_event(device, token);       // bad
    get_async_event(device, token, ec);   // bad
}
#    else
#        error "ignoring return value of: no std::stop_token here, and so nothing to test"
#    endif
#endif
