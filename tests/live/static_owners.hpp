// Owners with static storage duration, in two translation units: they end after main, in whatever order.
#ifndef RDMAXX_TESTS_LIVE_STATIC_OWNERS_HPP
#define RDMAXX_TESTS_LIVE_STATIC_OWNERS_HPP

#include "live.hpp"

namespace live {

extern rdmaxx::event_channel static_channel; // in the first unit, as are the device and what it counts
extern rdmaxx::cm_id static_listener;
extern rdmaxx::context static_context;

void connect_static_owners(); // in the second unit, with the connection that uses them

} // namespace live

#endif
