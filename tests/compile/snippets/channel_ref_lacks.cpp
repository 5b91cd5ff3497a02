// expect-gcc: has no member named|cannot convert
// expect-clang: no member named|no viable conversion
//
// Events are counted in the owner's block, which a ref does not know: adopt the channel to get from it.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <chrono>

using namespace std::chrono_literals;

int control(rdmaxx::event_channel_ref channel, rdmaxx::comp_channel_ref completions) {
    return channel.fd() + completions.fd();
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::event_channel_ref channel, rdmaxx::comp_channel_ref completions, rdmaxx::cm_id_ref id,
       rdma_cm_event* raw) {
    std::error_code ec;
    rdmaxx::cm_event a = channel.get_cm_event();                                 // bad
    rdmaxx::cm_event b = channel.try_get_cm_event();                             // bad
    rdmaxx::cm_event c = channel.get_cm_event_for(1s);                           // bad
    rdmaxx::cm_event d = channel.expect(id, rdmaxx::cm_event_type::established); // bad
    rdmaxx::cm_event e = rdmaxx::cm_event::adopt(raw, channel, ec);              // bad
    rdmaxx::cq_event g = completions.get_cq_event();                             // bad
    rdmaxx::cq_event h = completions.try_get_cq_event();                         // bad
}
#endif
