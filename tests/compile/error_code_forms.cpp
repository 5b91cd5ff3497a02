// Every fallible call has a form that takes a std::error_code& last and is noexcept. Compiling this is the
// test. (That no such form is declared without noexcept is looked for in the text of the headers: see
// tests/headers.)
#include <rdmaxx/cm/rsocket.hpp>
#include <rdmaxx/cm/stop.hpp>
#include <rdmaxx/rdmaxx.hpp>
#include <rdmaxx/verbs/stop.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

using namespace rdmaxx;

#define IS_NOEXCEPT(...) static_assert(noexcept(__VA_ARGS__))

// Operands, for operators that do not evaluate them.
extern std::error_code& ec;
extern std::chrono::milliseconds duration;
extern std::chrono::steady_clock::time_point& time_point;
extern std::string_view& text;

extern device_ref& which;
extern context& device;
extern context_ref& borrowed_device;
extern pd& domain;
extern mr& region;
extern comp_channel& completions;
extern cq& queue;
extern qp& pair;
extern qp_ref& pair_ref;
extern event_channel& channel;
extern cm_id& id;
extern cm_id_ref& id_ref;
extern srq& shared_queue;
extern sync_id& synchronous;
extern rdmaxx::rsocket& stream;
extern rdmaxx::addrinfo_entry& entry;
extern cm_event& event;
extern const cm_event& const_event;

extern address& peer;
extern conn_param& parameters;
extern qp_init_attr& init_attr;
extern qp_attr& attr;
extern srq_init_attr& srq_attr;
extern ibv_ah_attr& ah_attr;
extern ibv_qp_init_attr_ex& init_attr_ex;
extern ibv_srq_init_attr_ex& srq_attr_ex;
extern std::span<const ibv_path_data>& paths;
extern ibv_qp_attr& raw_attr;
extern remote_buffer& remote;
extern read_access& reading;
extern std::span<std::byte>& memory;
extern std::span<const std::byte>& constant;
extern std::span<send_wr>& sends;
extern std::span<recv_wr>& receives;
extern std::span<wc>& room;
extern std::span<ibv_wc>& raw_room;
extern ibv_send_wr*& bad_send;
extern ibv_recv_wr*& bad_receive;

// ---- address.hpp
IS_NOEXCEPT(address::parse(text, ec));

// ---- Every owner.
template <class Owner>
constexpr bool closes() {
    IS_NOEXCEPT(std::declval<Owner&>().close(ec));
    IS_NOEXCEPT(std::declval<Owner>().release());
    return true;
}
static_assert(closes<device_list>() && closes<context>() && closes<pd>() && closes<mr>());
static_assert(closes<comp_channel>() && closes<cq>() && closes<qp>() && closes<srq>() && closes<ah>());
static_assert(closes<event_channel>() && closes<cm_id>() && closes<sync_id>() && closes<multicast_membership>());
static_assert(closes<devices>() && closes<rdmaxx::addrinfo>() && closes<rdmaxx::rsocket>());

// ---- verbs/
IS_NOEXCEPT(device_list::create(ec));

IS_NOEXCEPT(context::create(which, ec));
IS_NOEXCEPT(context::create(id, ec));
IS_NOEXCEPT(context::create(id_ref, ec));
IS_NOEXCEPT(context::adopt(nullptr, ec));
IS_NOEXCEPT(device.query_device(ec));
IS_NOEXCEPT(device.query_port(1, ec));
IS_NOEXCEPT(borrowed_device.query_device(ec));
IS_NOEXCEPT(borrowed_device.query_port(1, ec));

IS_NOEXCEPT(pd::create(device, ec));
IS_NOEXCEPT(pd::create(borrowed_device, ec));
IS_NOEXCEPT(pd::adopt(nullptr, device, ec));

IS_NOEXCEPT(mr::create(domain, memory, access::local_write, ec));
IS_NOEXCEPT(mr::create(domain, constant, reading, ec));
IS_NOEXCEPT(mr::adopt(nullptr, domain, ec));
IS_NOEXCEPT(region.sge(ec));
IS_NOEXCEPT(region.sge(1, 1, ec));
IS_NOEXCEPT(region.remote(ec));
IS_NOEXCEPT(remote.part(1, 1, ec));

IS_NOEXCEPT(send_wr_n<1>::create(sends[0], ec));
IS_NOEXCEPT(recv_wr_n<1>::create(receives[0], ec));

IS_NOEXCEPT(comp_channel::create(device, ec));
IS_NOEXCEPT(comp_channel::adopt(nullptr, device, ec));
IS_NOEXCEPT(completions.get_cq_event(ec));
IS_NOEXCEPT(completions.try_get_cq_event(ec));
IS_NOEXCEPT(completions.get_cq_event_for(duration, ec));
IS_NOEXCEPT(completions.get_cq_event_until(time_point, ec));
IS_NOEXCEPT(completions.wait(queue, room, ec));
IS_NOEXCEPT(completions.wait_for(queue, room, duration, ec));
IS_NOEXCEPT(completions.wait_until(queue, room, time_point, ec));

IS_NOEXCEPT(cq::create(device, 1, completions, 0, ec));
IS_NOEXCEPT(cq::adopt(nullptr, device, completions, ec));
IS_NOEXCEPT(queue.poll(room, ec));
IS_NOEXCEPT(queue.poll(raw_room, ec));
IS_NOEXCEPT(queue.try_poll(room));
IS_NOEXCEPT(queue.request_notify(false, ec));
IS_NOEXCEPT(queue.try_request_notify());

IS_NOEXCEPT(qp::create(domain, init_attr, ec));
IS_NOEXCEPT(qp::adopt(nullptr, domain, queue, queue, ec));
IS_NOEXCEPT(pair_ref.post_send(sends[0], ec));
IS_NOEXCEPT(pair_ref.post_send(send_wr(), ec));
IS_NOEXCEPT(pair_ref.post_send(sends, ec));
IS_NOEXCEPT(pair_ref.try_post_send(sends[0]));
IS_NOEXCEPT(pair_ref.try_post_send(sends[0], bad_send));
IS_NOEXCEPT(pair_ref.post_recv(receives[0], ec));
IS_NOEXCEPT(pair_ref.post_recv(recv_wr(), ec));
IS_NOEXCEPT(pair_ref.post_recv(receives, ec));
IS_NOEXCEPT(pair_ref.try_post_recv(receives[0]));
IS_NOEXCEPT(pair_ref.try_post_recv(receives[0], bad_receive));
IS_NOEXCEPT(pair.modify(attr, ec));
IS_NOEXCEPT(pair.modify(raw_attr, IBV_QP_STATE, ec));
IS_NOEXCEPT(pair.query(ec));
IS_NOEXCEPT(pair.cap(ec));
// (drain(..., ec) runs the caller's code, which may throw.)

IS_NOEXCEPT(srq::create(domain, srq_attr, ec));
IS_NOEXCEPT(srq::adopt(nullptr, domain, ec));
IS_NOEXCEPT(shared_queue.query(ec));
IS_NOEXCEPT(shared_queue.arm_limit(1, ec));
IS_NOEXCEPT(shared_queue.resize(1, ec));
IS_NOEXCEPT(shared_queue.post_recv(receives[0], ec));
IS_NOEXCEPT(shared_queue.post_recv(receives, ec));
IS_NOEXCEPT(shared_queue.try_post_recv(receives[0]));

IS_NOEXCEPT(ah::create(domain, ah_attr, ec));
IS_NOEXCEPT(ah::from_wc(domain, room[0], nullptr, 1, ec));
IS_NOEXCEPT(ah::adopt(nullptr, domain, ec));

IS_NOEXCEPT(get_async_event(device, ec));
IS_NOEXCEPT(try_get_async_event(device, ec));
IS_NOEXCEPT(get_async_event_for(device, duration, ec));
IS_NOEXCEPT(get_async_event_until(device, time_point, ec));
IS_NOEXCEPT(std::declval<async_event>().ack());

// ---- cm/
IS_NOEXCEPT(event_channel::create(ec));
IS_NOEXCEPT(event_channel::adopt(nullptr, ec));
IS_NOEXCEPT(channel.get_cm_event(ec));
IS_NOEXCEPT(channel.try_get_cm_event(ec));
IS_NOEXCEPT(channel.get_cm_event_for(duration, ec));
IS_NOEXCEPT(channel.get_cm_event_until(time_point, ec));
IS_NOEXCEPT(channel.expect(id, cm_event_type::established, ec));
IS_NOEXCEPT(channel.expect(id, cm_event_type::established, time_point, ec));
IS_NOEXCEPT(channel.expect_and_ack(id, cm_event_type::established, ec));
IS_NOEXCEPT(channel.expect_and_ack(id, cm_event_type::established, time_point, ec));
IS_NOEXCEPT(resolve(channel, id, peer, duration, ec));
IS_NOEXCEPT(close(channel, id, duration, ec));

IS_NOEXCEPT(cm_event::adopt(nullptr, channel, ec));
IS_NOEXCEPT(std::move(event).ack());
IS_NOEXCEPT(std::move(event).ack(ec));
IS_NOEXCEPT(std::move(event).release());
IS_NOEXCEPT(event.take_id(ec));
IS_NOEXCEPT(const_event.conn_param(ec));
IS_NOEXCEPT(const_event.ud_param(ec));
IS_NOEXCEPT(const_event.snapshot());
IS_NOEXCEPT(const_event.private_data());

IS_NOEXCEPT(cm_id::create(channel, port_space::tcp, ec));
IS_NOEXCEPT(cm_id::adopt(nullptr, channel, ec));
IS_NOEXCEPT(id.bind_addr(peer, ec));
IS_NOEXCEPT(id.resolve_addr(peer, duration, ec));
IS_NOEXCEPT(id.resolve_addr(peer, peer, duration, ec));
IS_NOEXCEPT(id.resolve_route(duration, ec));
IS_NOEXCEPT(id.listen(1, ec));
IS_NOEXCEPT(id.create_qp(init_attr, ec));
IS_NOEXCEPT(id.create_qp(domain, init_attr, ec));
IS_NOEXCEPT(id.destroy_qp(ec));
IS_NOEXCEPT(id.connect(parameters, ec));
IS_NOEXCEPT(id.accept(parameters, ec));
IS_NOEXCEPT(id.reject(constant, ec));
IS_NOEXCEPT(id.disconnect(ec));
IS_NOEXCEPT(id.set_tos(1, ec));
IS_NOEXCEPT(id.set_reuseaddr(true, ec));
IS_NOEXCEPT(id.set_afonly(true, ec));
IS_NOEXCEPT(id.set_ack_timeout(14, ec));
IS_NOEXCEPT(id.set_ib_path(paths, ec));
IS_NOEXCEPT(id.notify(IBV_EVENT_COMM_EST, ec));
IS_NOEXCEPT(id.create_qp_ex(init_attr_ex, ec));
IS_NOEXCEPT(id.create_srq(domain, srq_attr, ec));
IS_NOEXCEPT(id.create_srq_ex(srq_attr_ex, ec));
IS_NOEXCEPT(id.destroy_srq(ec));
IS_NOEXCEPT(id.migrate(channel, ec));
IS_NOEXCEPT(id.join_multicast(peer, nullptr, mc_join::full_member, ec));
#if RDMAXX_HAS_ESTABLISH
IS_NOEXCEPT(id.establish(ec));
IS_NOEXCEPT(id.init_qp_attr(qp_state::rtr, ec));
IS_NOEXCEPT(id.get_remote_ece(ec));
IS_NOEXCEPT(id.set_local_ece(std::declval<const ibv_ece&>(), ec));
IS_NOEXCEPT(id.reject_ece(constant, ec));
#endif
#if RDMAXX_HAS_RESOLVE_ADDRINFO
IS_NOEXCEPT(id.resolve_addrinfo("", "", nullptr, ec));
IS_NOEXCEPT(id.write_cm_event(0, 0, ec));
IS_NOEXCEPT(rdmaxx::addrinfo::query(id, ec));
#endif
IS_NOEXCEPT(id_ref.bind_addr(peer, ec));
IS_NOEXCEPT(id_ref.resolve_addr(peer, duration, ec));
IS_NOEXCEPT(id_ref.resolve_route(duration, ec));
IS_NOEXCEPT(id_ref.listen(1, ec));
IS_NOEXCEPT(id_ref.disconnect(ec));

IS_NOEXCEPT(devices::create(ec));
IS_NOEXCEPT(rdmaxx::addrinfo::create("", "", {}, ec));
IS_NOEXCEPT(rdmaxx::addrinfo::adopt(nullptr, ec));

IS_NOEXCEPT(sync_id::create(port_space::tcp, ec));
IS_NOEXCEPT(sync_id::create(std::move(id), ec));
IS_NOEXCEPT(sync_id::create_ep(entry, ec));
IS_NOEXCEPT(sync_id::create_ep(entry, domain, init_attr, ec));
IS_NOEXCEPT(sync_id::adopt(nullptr, ec));
IS_NOEXCEPT(synchronous.resolve_addr(peer, duration, ec));
IS_NOEXCEPT(synchronous.resolve_addr(peer, peer, duration, ec));
IS_NOEXCEPT(synchronous.resolve_route(duration, ec));
IS_NOEXCEPT(synchronous.connect(parameters, ec));
IS_NOEXCEPT(synchronous.get_request(ec));
IS_NOEXCEPT(synchronous.accept(parameters, ec));
IS_NOEXCEPT(synchronous.reject(constant, ec));
IS_NOEXCEPT(synchronous.disconnect(ec));
IS_NOEXCEPT(std::move(synchronous).migrate(channel, ec));

IS_NOEXCEPT(rdmaxx::rsocket::create(AF_INET, SOCK_STREAM, 0, ec));
IS_NOEXCEPT(stream.bind(peer, ec));
IS_NOEXCEPT(stream.listen(1, ec));
IS_NOEXCEPT(stream.accept(ec));
IS_NOEXCEPT(stream.connect(peer, ec));
IS_NOEXCEPT(stream.send(constant, 0, ec));
IS_NOEXCEPT(stream.recv(memory, 0, ec));
IS_NOEXCEPT(stream.shutdown(SHUT_RDWR, ec));

// ---- cm/stop.hpp, verbs/stop.hpp
#if RDMAXX_HAS_STOP_TOKEN
extern std::stop_token& token;
IS_NOEXCEPT(get_cm_event(channel, token, ec));
IS_NOEXCEPT(get_cq_event(completions, token, ec));
#endif
