// expect-clang: invalid invocation of method '.*' on .* while it is in the 'consumed' state
// flags-clang: -Wconsumed
//
// Only clang: the typestate attributes behind -Wconsumed are its own. What it sees, with the event a local
// variable or a parameter by value: use after ack and after move, a second ack, an ack in both branches, a
// captured event.
//
// What it does not see, and where an event that is empty by then does no harm (see the unit tests):
//  - an ack in one branch, or in a loop: the states that meet are unknown, and unknown may be used;
//  - events that are members, elements of containers, in std::optional or behind references and pointers;
//  - a lambda that was given the event by reference and acked it.
// clang-tidy's bugprone-use-after-move sees some of these.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/async_event.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <utility>

bool decide();
void keep(rdmaxx::cm_event event);

void control(rdmaxx::event_channel& channel, rdmaxx::comp_channel& completions) {
    rdmaxx::cm_event event = channel.get_cm_event();
    if (event.type() == rdmaxx::cm_event_type::established && event.private_data().empty())
        std::move(event).ack();
    else
        keep(std::move(event));
    event = channel.try_get_cm_event(); // what is assigned may be used again
    if (event)
        static_cast<void>(event.status());
    while (rdmaxx::cm_event next = channel.try_get_cm_event())
        std::move(next).ack();
    rdmaxx::cq_event completion = completions.get_cq_event();
    const rdmaxx::cq_ref cq = completion.cq();
    std::move(completion).ack();
    static_cast<void>(cq);
}

#ifdef MUST_NOT_COMPILE
void used_after_ack(rdmaxx::event_channel& channel) {
    std::error_code ec;
    rdmaxx::cm_event event = channel.get_cm_event();
    std::move(event).ack();
    static_cast<void>(event.type());         // bad
    static_cast<void>(event.status());       // bad
    static_cast<void>(event.code());         // bad
    static_cast<void>(event.id());           // bad
    static_cast<void>(event.listen_id());    // bad
    static_cast<void>(event.request());      // bad
    static_cast<void>(event.private_data()); // bad
    static_cast<void>(event.conn_param());   // bad
    static_cast<void>(event.ud_param());     // bad
    static_cast<void>(event.snapshot());     // bad
    static_cast<void>(event.take_id());      // bad
    static_cast<void>(event.take_id(ec));    // bad
}

void acked_twice(rdmaxx::cm_event event) {
    std::error_code ec;
    std::move(event).ack(ec);
    std::move(event).ack(); // bad
}

void acked_and_released(rdmaxx::cm_event event) {
    rdma_cm_event* raw = std::move(event).release();
    std::move(event).ack(); // bad
    ::rdma_ack_cm_event(raw);
}

void used_after_move(rdmaxx::cm_event event) {
    keep(std::move(event));
    static_cast<void>(event.type()); // bad
}

void moved_into_another(rdmaxx::cm_event event) {
    const rdmaxx::cm_event other = std::move(event);
    static_cast<void>(event.private_data()); // bad
    static_cast<void>(other.private_data());
}

void acked_in_both_branches(rdmaxx::cm_event event) {
    if (decide())
        std::move(event).ack();
    else
        keep(std::move(event));
    static_cast<void>(event.type()); // bad
}

void captured(rdmaxx::cm_event event) {
    const auto later = [held = std::move(event)] {
        return held.status();
    };
    static_cast<void>(later());
    static_cast<void>(event.status()); // bad
}

void completion_used_after_ack(rdmaxx::comp_channel& completions) {
    rdmaxx::cq_event event = completions.get_cq_event();
    std::move(event).ack();
    static_cast<void>(event.cq()); // bad
}

void completion_acked_twice(rdmaxx::cq_event event) {
    std::move(event).ack();
    std::move(event).ack(); // bad
}

void asynchronous_used_after_ack(rdmaxx::async_event event) {
    std::move(event).ack();
    static_cast<void>(event.type());     // bad
    static_cast<void>(event.cq());       // bad
    static_cast<void>(event.qp());       // bad
    static_cast<void>(event.srq());      // bad
    static_cast<void>(event.wq());       // bad
    static_cast<void>(event.port_num()); // bad
}

void asynchronous_acked_twice(rdmaxx::async_event event) {
    std::move(event).ack();
    std::move(event).ack(); // bad
}

void merged_and_used(rdmaxx::cq_event event, rdmaxx::cq_event more) {
    event += std::move(more);
    static_cast<void>(event.cq());
    static_cast<void>(more.cq()); // bad
}
#endif
