// expect: deleted (function|constructor)|implicitly-deleted|overload resolution selected deleted
//
// An event is given back once: two objects for one event would give it back twice.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/async_event.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <utility>

template <class Callable>
void run(Callable&& callable) {
    callable();
}

void control(rdmaxx::event_channel& channel, rdmaxx::comp_channel& completions) {
    rdmaxx::cm_event event = channel.get_cm_event();
    rdmaxx::cm_event moved = std::move(event);
    event = std::move(moved);
    rdmaxx::cq_event completion = completions.get_cq_event();
    rdmaxx::cq_event moved_completion = std::move(completion);
    completion = std::move(moved_completion);
}

#ifdef MUST_NOT_COMPILE
void by_construction(rdmaxx::event_channel& channel, rdmaxx::comp_channel& completions) {
    rdmaxx::cm_event event = channel.get_cm_event();
    rdmaxx::cm_event copy = event; // bad
    rdmaxx::cq_event completion = completions.get_cq_event();
    rdmaxx::cq_event copied_completion = completion; // bad
}

void by_assignment(rdmaxx::event_channel& channel, rdmaxx::comp_channel& completions) {
    rdmaxx::cm_event event = channel.get_cm_event();
    rdmaxx::cm_event other;
    other = event; // bad
    rdmaxx::cq_event completion = completions.get_cq_event();
    rdmaxx::cq_event other_completion;
    other_completion = completion; // bad
}

void asynchronous(rdmaxx::async_event event) {
    rdmaxx::async_event copy = event; // bad
    rdmaxx::async_event other;
    other = event; // bad
}

void by_capture(rdmaxx::event_channel& channel) {
    rdmaxx::cm_event event = channel.get_cm_event();
    run([event] {}); // bad
}
#endif
