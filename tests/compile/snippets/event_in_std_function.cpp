// expect: copy.constructible|copyable|deleted (function|constructor)|static_?assert
//
// std::function copies what it holds. Other callables (std::move_only_function, a template parameter) will
// do.
#include <rdmaxx/cm/event_channel.hpp>

#include <functional>
#include <utility>

template <class Callable>
void run(Callable&& callable) {
    callable();
}

void control(rdmaxx::event_channel& channel) {
    rdmaxx::cm_event event = channel.get_cm_event();
    run([held = std::move(event)] { static_cast<void>(held.type()); });
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::event_channel& channel) {
    rdmaxx::cm_event event = channel.get_cm_event();
    const std::function<void()> later = [held = std::move(event)] {
        static_cast<void>(held.type());
    };
}
#endif
