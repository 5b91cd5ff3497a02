// expect-gcc: passing .* as 'this' argument discards qualifiers
// expect-clang: 'this' argument to member function .* is an lvalue|no matching member function
//
// ack() and release() end the event: std::move says so at the place where it happens, to the reader, to
// clang -Wconsumed and to clang-tidy's use-after-move.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/verbs/async_event.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <utility>

void control(rdmaxx::cm_event event, rdmaxx::cm_event other, rdmaxx::cq_event completion,
             rdmaxx::async_event asynchronous) {
    std::error_code ec;
    std::move(event).ack();
    std::move(other).ack(ec);
    std::move(completion).ack();
    std::move(asynchronous).ack();
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::cm_event event, rdmaxx::cq_event completion, rdmaxx::async_event asynchronous) {
    std::error_code ec;
    event.ack();                          // bad
    event.ack(ec);                        // bad
    rdma_cm_event* raw = event.release(); // bad
    completion.ack();                     // bad
    asynchronous.ack();                   // bad
    static_cast<void>(raw);
}
#endif
