// Every fallible call has a form that takes a std::error_code& last and is noexcept. Compiling this is the
// test. (That no such form is declared without noexcept is looked for in the text of the headers: see
// tests/headers.)
#include <rdmaxx/cm/rsocket.hpp>
#include <rdmaxx/cm/stop.hpp>
#include <rdmaxx/rdmaxx.hpp>
#include <rdmaxx/verbs/buf.hpp>
#include <rdmaxx/verbs/comp_cntr.hpp>
#include <rdmaxx/verbs/counters.hpp>
#include <rdmaxx/verbs/dm.hpp>
#include <rdmaxx/verbs/dmah.hpp>
#include <rdmaxx/verbs/flow.hpp>
#include <rdmaxx/verbs/iova_mr.hpp>
#include <rdmaxx/verbs/memory_resource.hpp>
#include <rdmaxx/verbs/stop.hpp>
#include <rdmaxx/verbs/td.hpp>

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
extern mw& window;
extern mw_bind_info& bind_info;
extern iova_mr& other_region;
extern mr_change& change;
extern dm& device_memory;
extern buf& buffer;
extern xrcd& xrc_domain;
extern wq& work_queue;
extern flow_action& action;
extern counters& counted;
extern registered_resource& registered;
extern gid& group;
extern datagram& received;
extern std::span<const wq>& work_queues;
extern std::span<const wq_ref>& work_queue_refs;
extern std::span<std::uint64_t>& values;
extern std::span<const sge>& pieces;
extern ibv_ops_wr& tag_operation;
extern ibv_ops_wr*& bad_operation;
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
static_assert(closes<mw>() && closes<iova_mr>() && closes<registered_buffer>() && closes<dm>() && closes<dmah>());
static_assert(closes<buf>() && closes<xrcd>() && closes<td>() && closes<parent_domain>() && closes<wq>());
static_assert(closes<rwq_ind_table>() && closes<flow>() && closes<flow_action>() && closes<counters>());
static_assert(closes<comp_cntr>());
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

IS_NOEXCEPT(context::import_device(0, ec));
IS_NOEXCEPT(device.query_device_ex(ec));
IS_NOEXCEPT(device.query_rt_values(ec));
IS_NOEXCEPT(device.query_pkey(1, 0, ec));
IS_NOEXCEPT(device.find_pkey(1, 0xffff));
IS_NOEXCEPT(device.query_gid_table(ec));
IS_NOEXCEPT(device.query_gid(1, 0, ec));
IS_NOEXCEPT(device.find_gid(peer, gid_type::roce_v2, 0, ec));
IS_NOEXCEPT(fork_init(ec));

IS_NOEXCEPT(pd::create(device, ec));
IS_NOEXCEPT(pd::import_pd(device, 0, ec));
IS_NOEXCEPT(parent_domain::create(parent_domain_attr(domain), ec));
IS_NOEXCEPT(td::create(device, ec));
IS_NOEXCEPT(td::adopt(nullptr, device, ec));
IS_NOEXCEPT(pd::create(borrowed_device, ec));
IS_NOEXCEPT(pd::adopt(nullptr, device, ec));

IS_NOEXCEPT(mr::create(domain, memory, access::local_write, ec));
IS_NOEXCEPT(mr::create(domain, constant, reading, ec));
IS_NOEXCEPT(mr::adopt(nullptr, domain, ec));
IS_NOEXCEPT(region.rereg_mr(change, ec));
IS_NOEXCEPT(advise_mr(domain, mr_advice::prefetch, pieces, true, ec));
IS_NOEXCEPT(iova_mr::reg_mr_iova(domain, memory, 0, access::none, ec));
IS_NOEXCEPT(iova_mr::reg_implicit(domain, access::none, ec));
IS_NOEXCEPT(iova_mr::reg_dmabuf_mr(domain, 0, 0, 0, 0, access::none, ec));
IS_NOEXCEPT(iova_mr::alloc_null_mr(domain, ec));
IS_NOEXCEPT(iova_mr::reg_dm_mr(domain, device_memory, 0, 0, access::none, ec));
IS_NOEXCEPT(iova_mr::import_mr(domain, 0, 0, ec));
IS_NOEXCEPT(other_region.sge(ec));
IS_NOEXCEPT(other_region.sge(0, 0, ec));
IS_NOEXCEPT(other_region.sge_of(memory, ec));
IS_NOEXCEPT(other_region.remote(ec));
IS_NOEXCEPT(registered_buffer::create(domain, 1, access::none, ec));
IS_NOEXCEPT(registered.sge(memory, ec));
IS_NOEXCEPT(registered.remote(memory, ec));
IS_NOEXCEPT(mw::create(domain, mw_type::type_1, ec));
IS_NOEXCEPT(mw::adopt(nullptr, domain, ec));
IS_NOEXCEPT(mw_bind_info::create(region, 0, 0, access::none, ec));
IS_NOEXCEPT(bind_info.remote(rkey{}, ec));
IS_NOEXCEPT(dm::create(device, 1, 0, ec));
IS_NOEXCEPT(dm::import_dm(device, 0, ec));
IS_NOEXCEPT(dm::adopt(nullptr, device, ec));
IS_NOEXCEPT(device_memory.memcpy_to_dm(0, constant, ec));
IS_NOEXCEPT(device_memory.memcpy_from_dm(memory, 0, ec));
IS_NOEXCEPT(buffer.bytes());
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
IS_NOEXCEPT(queue.resize(1, ec));
IS_NOEXCEPT(queue.moderate(1, 1, ec));
IS_NOEXCEPT(wq::create(domain, queue, {}, ec));
IS_NOEXCEPT(wq::adopt(nullptr, domain, queue, ec));
IS_NOEXCEPT(work_queue.modify(wq_state::rdy, ec));
IS_NOEXCEPT(work_queue.modify_flags(wq_flags::none, wq_flags::none, ec));
IS_NOEXCEPT(rwq_ind_table::create(device, work_queues, ec));
IS_NOEXCEPT(rwq_ind_table::create(device, work_queue_refs, ec));
IS_NOEXCEPT(xrcd::create(device, ec));
IS_NOEXCEPT(xrcd::create(device, 0, 0, ec));
IS_NOEXCEPT(xrcd::adopt(nullptr, device, ec));
IS_NOEXCEPT(srq::create(domain, srq_init_attr_ex({}).xrc(xrc_domain, queue), ec));
IS_NOEXCEPT(shared_queue.srq_num(ec));
IS_NOEXCEPT(shared_queue.post_srq_ops(tag_operation, ec));
IS_NOEXCEPT(shared_queue.try_post_srq_ops(tag_operation, bad_operation));
IS_NOEXCEPT(flow::create(pair, flow_attr(1), ec));
IS_NOEXCEPT(flow_action::create(device, {}, ec));
IS_NOEXCEPT(flow_action::create(device, flow_action_esp_attr(flow_action_esp_flags::none), ec));
IS_NOEXCEPT(action.modify(flow_action_esp_attr(flow_action_esp_flags::none), ec));
IS_NOEXCEPT(flow_action_ref().modify(ibv_flow_action_esp_attr(), ec));
IS_NOEXCEPT(action.modify({}, ec));
IS_NOEXCEPT(counters::create(device, ec));
IS_NOEXCEPT(counted.attach_point_flow(counter_description::bytes, 0, {}, ec));
IS_NOEXCEPT(counted.read(values, false, ec));
IS_NOEXCEPT(pair.bind_mw(window, bind_info, 0, true, ec));
IS_NOEXCEPT(pair.try_bind_mw(window, bind_info));
IS_NOEXCEPT(pair.attach_mcast(group, 0, ec));
IS_NOEXCEPT(pair.detach_mcast(group, 0, ec));
IS_NOEXCEPT(ah::from_datagram(domain, received, 1, ec));
IS_NOEXCEPT(init_ah_from_datagram(device, received, 1, ec));
IS_NOEXCEPT(ah_attr_to(gid_entry(), group, 1, ec));
IS_NOEXCEPT(resolve_eth_l2_from_gid(device, ah_attr, ec));
IS_NOEXCEPT(datagram::create(received.completion(), constant, ec));
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
IS_NOEXCEPT(pair_ref.post_send(*pieces.data(), 1, ec));
IS_NOEXCEPT(pair_ref.post_send(region, 1, ec));
IS_NOEXCEPT(pair_ref.try_post_send(*pieces.data()));
IS_NOEXCEPT(pair_ref.try_post_send(region, 1));
IS_NOEXCEPT(pair_ref.post_recv(receives[0], ec));
IS_NOEXCEPT(pair_ref.post_recv(recv_wr(), ec));
IS_NOEXCEPT(pair_ref.post_recv(receives, ec));
IS_NOEXCEPT(pair_ref.try_post_recv(receives[0]));
IS_NOEXCEPT(pair_ref.try_post_recv(receives[0], bad_receive));
IS_NOEXCEPT(pair_ref.post_recv(*pieces.data(), 1, ec));
IS_NOEXCEPT(pair_ref.post_recv(region, 1, ec));
IS_NOEXCEPT(pair_ref.try_post_recv(*pieces.data()));
IS_NOEXCEPT(pair_ref.try_post_recv(region, 1));
IS_NOEXCEPT(pair.modify(attr, ec));
IS_NOEXCEPT(pair.modify(raw_attr, IBV_QP_STATE, ec));
IS_NOEXCEPT(pair.query(ec));
IS_NOEXCEPT(pair.cap(ec));
// (drain(..., ec) and log_async_events(..., ec) run the caller's code, which may throw.)

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
IS_NOEXCEPT(id.resolve_addrinfo("", "", {}, ec));
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
IS_NOEXCEPT(get_async_event(device, token, ec));
#endif
