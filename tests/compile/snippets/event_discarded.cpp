// expect-gcc: ignoring return(ed)? value of
// expect-clang: ignoring (return value of|temporary)
//
// A get whose event is dropped on the spot has lost what happened; for a connect_request it has rejected the
// peer.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/async_event.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <chrono>
#include <utility>

using namespace std::chrono_literals;
using rdmaxx::cm_event_type;

void control(rdmaxx::event_channel& channel, rdmaxx::cm_id_ref id, rdmaxx::comp_channel& completions) {
    rdmaxx::cm_event event = channel.get_cm_event();
    rdmaxx::cm_id taken = event.take_id();
    rdmaxx::cq_event completion = completions.get_cq_event();
    static_cast<void>(channel.try_get_cm_event());
    channel.expect_and_ack(id,
                           cm_event_type::established); // what to write where the event itself is not wanted
}

#ifdef MUST_NOT_COMPILE
void cm_events(rdmaxx::event_channel& channel, rdmaxx::cm_id_ref id) {
    const auto soon = std::chrono::steady_clock::now() + 1s;
    channel.get_cm_event();                               // bad
    channel.try_get_cm_event();                           // bad
    channel.get_cm_event_for(1s);                         // bad
    channel.get_cm_event_until(soon);                     // bad
    channel.expect(id, cm_event_type::established);       // bad
    channel.expect(id, cm_event_type::established, soon); // bad
    std::error_code ec;
    channel.get_cm_event(ec);                                 // bad
    channel.try_get_cm_event(ec);                             // bad
    channel.get_cm_event_for(1s, ec);                         // bad
    channel.get_cm_event_until(soon, ec);                     // bad
    channel.expect(id, cm_event_type::established, ec);       // bad
    channel.expect(id, cm_event_type::established, soon, ec); // bad
}

void ids(rdmaxx::cm_event event) {
    std::error_code ec;
    event.take_id();            // bad
    event.take_id(ec);          // bad
    event.snapshot();           // bad
    std::move(event).release(); // bad
}

void cq_events(rdmaxx::comp_channel& completions) {
    const auto soon = std::chrono::steady_clock::now() + 1s;
    completions.get_cq_event();           // bad
    completions.try_get_cq_event();       // bad
    completions.get_cq_event_for(1s);     // bad
    completions.get_cq_event_until(soon); // bad
    std::error_code ec;
    completions.get_cq_event(ec);             // bad
    completions.try_get_cq_event(ec);         // bad
    completions.get_cq_event_for(1s, ec);     // bad
    completions.get_cq_event_until(soon, ec); // bad
}

void async_events(rdmaxx::context& device) {
    const auto soon = std::chrono::steady_clock::now() + 1s;
    get_async_event(device);             // bad
    try_get_async_event(device);         // bad
    get_async_event_for(device, 1s);     // bad
    get_async_event_until(device, soon); // bad
    std::error_code ec;
    get_async_event(device, ec);             // bad
    try_get_async_event(device, ec);         // bad
    get_async_event_for(device, 1s, ec);     // bad
    get_async_event_until(device, soon, ec); // bad
}
#endif
