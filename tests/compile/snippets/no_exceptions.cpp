// expect: detail::raise\W.*without exceptions use the form that takes a std::error_code&
// expect: detail::raise_unexpected\W.*without exceptions use the form that takes a std::error_code&
// expect: detail::raise_post\W.*without exceptions use try_post_send or the form that takes
// flags: -fno-exceptions
// needs: code
//
// Without exceptions the throwing forms exist for overload resolution only: a call is refused with a sentence
// that says what to write instead. (The compilers' own words would be "exception handling disabled", inside a
// header.)
#include <rdmaxx/cm/event_channel.hpp>

void control(rdmaxx::event_channel& channel, rdmaxx::cm_id& id, rdmaxx::cq_ref cq, rdmaxx::qp_ref qp,
             rdmaxx::send_wr& request, std::span<rdmaxx::wc> room) {
    std::error_code ec;
    const rdmaxx::cm_event event = channel.get_cm_event(ec);
    channel.expect_and_ack(id, rdmaxx::cm_event_type::established, ec);
    id.listen(1, ec);
    const std::span<rdmaxx::wc> filled = cq.poll(room, ec);
    qp.post_send(request, ec);
    static_cast<void>(qp.try_post_send(request));
    static_cast<void>(filled);
}

#ifdef MUST_NOT_COMPILE
void get(rdmaxx::event_channel& channel) {
    const rdmaxx::cm_event event = channel.get_cm_event();
}

void expect(rdmaxx::event_channel& channel, rdmaxx::cm_id_ref id) {
    channel.expect_and_ack(id, rdmaxx::cm_event_type::established);
}

void post(rdmaxx::qp_ref qp, rdmaxx::send_wr& request) {
    qp.post_send(request);
}
#endif
