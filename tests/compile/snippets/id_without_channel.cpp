// expect-gcc: no matching function|cannot convert|conversion from
// expect-clang: no matching (constructor|function)|no viable conversion
//
// An id without a channel is another thing (its events belong to librdmacm), and a channel that somebody else
// owns cannot be kept open and counts nothing.
#include <rdmaxx/cm/event_channel.hpp>

void control(rdmaxx::event_channel& channel) {
    const rdmaxx::cm_id empty;
    const rdmaxx::cm_id id(channel);
    const rdmaxx::cm_id datagrams(channel, rdmaxx::port_space::udp);
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::event_channel_ref channel, rdma_event_channel* raw) {
    std::error_code ec;
    rdmaxx::cm_id a(nullptr);                                                      // bad
    rdmaxx::cm_id b(rdmaxx::port_space::tcp);                                      // bad
    rdmaxx::cm_id c(channel);                                                      // bad
    rdmaxx::cm_id d(raw);                                                          // bad
    rdmaxx::cm_id e = rdmaxx::cm_id::create(channel, rdmaxx::port_space::tcp, ec); // bad
    rdmaxx::cm_id g = rdmaxx::cm_id::adopt(nullptr, channel, ec);                  // bad
}
#endif
