// expect-gcc: ignoring return(ed)? value of
// expect-clang: ignoring (return value of|temporary)
//
// An owner that is made and dropped in one statement, and a C pointer that nobody destroys any more.
#include <rdmaxx/cm/event_channel.hpp>
#include <rdmaxx/cm/rsocket.hpp>
#include <rdmaxx/cm/sync_id.hpp>
#include <rdmaxx/verbs/ah.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>

#include <utility>

void control(rdmaxx::context& device, rdmaxx::pd& pd) {
    std::error_code ec;
    const rdmaxx::pd other = rdmaxx::pd::create(device, ec);
    ibv_pd* raw = std::move(pd).release();
    pd = rdmaxx::pd::adopt(raw, device, ec);
}

#ifdef MUST_NOT_COMPILE
void created(rdmaxx::device_ref which, rdmaxx::context& device, rdmaxx::pd& pd, const rdmaxx::qp_init_attr& attr,
             rdmaxx::event_channel& channel, std::span<std::byte> memory) {
    std::error_code ec;
    rdmaxx::device_list::create(ec);                                 // bad
    rdmaxx::context::create(which, ec);                              // bad
    rdmaxx::pd::create(device, ec);                                  // bad
    rdmaxx::mr::create(pd, memory, rdmaxx::access::local_write, ec); // bad
    rdmaxx::comp_channel::create(device, ec);                        // bad
    rdmaxx::cq::create(device, 16, {}, 0, ec);                       // bad
    rdmaxx::qp::create(pd, attr, ec);                                // bad
    rdmaxx::event_channel::create(ec);                               // bad
    rdmaxx::cm_id::create(channel, rdmaxx::port_space::tcp, ec);     // bad
}

void more(rdmaxx::pd& pd, const ibv_ah_attr& ah, rdmaxx::sync_id& listener, rdmaxx::event_channel& channel,
          rdmaxx::cm_id& id, const rdmaxx::address& group) {
    std::error_code ec;
    rdmaxx::srq::create(pd, {}, ec);                                     // bad
    rdmaxx::ah::create(pd, ah, ec);                                      // bad
    rdmaxx::sync_id::create(rdmaxx::port_space::tcp, ec);                // bad
    listener.get_request();                                              // bad
    listener.get_request(ec);                                            // bad
    std::move(listener).migrate(channel);                                // bad
    id.join_multicast(group);                                            // bad
    id.join_multicast(group, nullptr, rdmaxx::mc_join::full_member, ec); // bad
    rdmaxx::addrinfo::create("localhost", "7471", {}, ec);               // bad
    rdmaxx::rsocket::create(AF_INET, SOCK_STREAM, 0, ec);                // bad
}

void adopted(rdmaxx::context& device, rdmaxx::pd& pd, rdmaxx::event_channel& channel, ibv_pd* raw_pd, ibv_mr* raw_mr,
             rdma_cm_id* raw_id, rdma_cm_event* raw_event) {
    std::error_code ec;
    rdmaxx::pd::adopt(raw_pd, device, ec);           // bad
    rdmaxx::mr::adopt(raw_mr, pd, ec);               // bad
    rdmaxx::cm_id::adopt(raw_id, channel, ec);       // bad
    rdmaxx::cm_event::adopt(raw_event, channel, ec); // bad
}

void released(rdmaxx::pd pd, rdmaxx::cm_id id, rdmaxx::event_channel channel) {
    std::move(pd).release();      // bad
    std::move(id).release();      // bad
    std::move(channel).release(); // bad
}
#endif
