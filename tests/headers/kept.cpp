// flags: -O2
// needs: code
//
// Owners and events where programs keep them: in std::optional, in std::vector, in a variable that is assigned to.
//
// Compiled with optimisation: only then g++ follows values through what it inlines, and it has seen uses of values that
// are not set where there are none. A user who compiles with -Werror would have to switch that warning off.
#include <rdmaxx/rdmaxx.hpp>

#include <optional>
#include <utility>
#include <vector>

bool decide();

// Functions of their own, so that each is looked at by itself.

template <class Make, class... From>
void assigned(Make make, From&... from) {
    std::optional<decltype(make(from...))> kept;
    kept = make(from...);
    if (decide())
        kept.reset();
}

template <class Make, class... From>
void made(Make make, From&... from) {
    std::optional<decltype(make(from...))> kept{make(from...)};
    if (decide())
        kept.reset();
}

template <class Make, class... From>
void emplaced(Make make, From&... from) {
    std::optional<decltype(make(from...))> kept;
    if (decide())
        kept.emplace(make(from...));
    while (!decide())
        kept.reset();
}

template <class Make, class... From>
void moved(Make make, From&... from) {
    std::optional<decltype(make(from...))> kept{make(from...)};
    if (decide()) {
        const auto other = std::move(*kept);
        kept.reset();
    }
}

template <class Make, class... From>
void many(Make make, From&... from) {
    std::vector<decltype(make(from...))> kept;
    kept.push_back(make(from...));
    while (!decide())
        kept.push_back(make(from...));
    kept.pop_back();
}

#define KEPT(name, parameters, make, ...)                                                                              \
    void name##_assigned parameters {                                                                                  \
        assigned(make __VA_OPT__(, ) __VA_ARGS__);                                                                     \
    }                                                                                                                  \
    void name##_made parameters {                                                                                      \
        made(make __VA_OPT__(, ) __VA_ARGS__);                                                                         \
    }                                                                                                                  \
    void name##_emplaced parameters {                                                                                  \
        emplaced(make __VA_OPT__(, ) __VA_ARGS__);                                                                     \
    }                                                                                                                  \
    void name##_moved parameters {                                                                                     \
        moved(make __VA_OPT__(, ) __VA_ARGS__);                                                                        \
    }                                                                                                                  \
    void name##_many parameters {                                                                                      \
        many(make __VA_OPT__(, ) __VA_ARGS__);                                                                         \
    }

using namespace rdmaxx;

KEPT(
    cm_events, (event_channel & channel), [](event_channel& from) { return from.get_cm_event(); }, channel)
KEPT(
    cq_events, (comp_channel & channel), [](comp_channel& from) { return from.get_cq_event(); }, channel)
KEPT(
    async_events, (context & device), [](context& from) { return get_async_event(from); }, device)
KEPT(
    ids, (event_channel & channel), [](event_channel& from) { return cm_id(from); }, channel)
KEPT(
    contexts, (device_ref & device), [](device_ref& from) { return context(from); }, device)
KEPT(
    pds, (context & device), [](context& from) { return pd(from); }, device)
KEPT(
    cqs, (context & device), [](context& from) { return cq(from, 16); }, device)
KEPT(
    comp_channels, (context & device), [](context& from) { return comp_channel(from); }, device)
KEPT(qps, (pd & domain, qp_init_attr& attr), ([](pd& from, qp_init_attr& how) { return qp(from, how); }), domain, attr)
KEPT(
    srqs, (pd & domain), [](pd& from) { return srq(from); }, domain)
KEPT(channels, (), [] { return event_channel(); })
