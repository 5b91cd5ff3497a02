// What the types promise to the compiler: sizes, copies, conversions, layouts. Compiling it is the test.
#include <rdmaxx/cm/rsocket.hpp>
#include <rdmaxx/rdmaxx.hpp>
#include <rdmaxx/verbs/buf.hpp>
#include <rdmaxx/verbs/comp_cntr.hpp>
#include <rdmaxx/verbs/counters.hpp>
#include <rdmaxx/verbs/dm.hpp>
#include <rdmaxx/verbs/dmah.hpp>
#include <rdmaxx/verbs/flow.hpp>
#include <rdmaxx/verbs/iova_mr.hpp>
#include <rdmaxx/verbs/memory_resource.hpp>
#include <rdmaxx/verbs/td.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <iterator>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

using namespace rdmaxx;

// ---------------------------------------------------------------------------------------------------------------
// Owners and refs.

template <class Ref, class Raw, class Native = Raw>
constexpr bool is_ref() {
    // It is the C pointer.
    static_assert(sizeof(Ref) == sizeof(Raw*) && alignof(Ref) == alignof(Raw*));
    static_assert(std::is_trivially_copyable_v<Ref> && std::is_trivially_destructible_v<Ref>);
    static_assert(std::is_standard_layout_v<Ref>);
    static_assert(std::is_nothrow_default_constructible_v<Ref>);
    // Made from one in writing only, and it does not become one, or a number, by itself.
    static_assert(std::is_nothrow_constructible_v<Ref, Raw*>);
    static_assert(!std::is_convertible_v<Raw*, Ref>);
    static_assert(!std::is_constructible_v<Raw*, Ref>);
    static_assert(std::is_constructible_v<bool, Ref> && !std::is_convertible_v<Ref, bool>);
    static_assert(!std::is_convertible_v<Ref, int> && !std::is_convertible_v<Ref, void*>);
    static_assert(std::same_as<decltype(std::declval<const Ref&>().native_handle()), Native*>);
    // Comparable and hashable, by value.
    static_assert(std::equality_comparable<Ref>&& noexcept(std::declval<Ref>() == std::declval<Ref>()));
    static_assert(!std::equality_comparable_with<Ref, Raw*>);
    static_assert(std::is_invocable_r_v<std::size_t, std::hash<Ref>, const Ref&>);
    return true;
}

static_assert(is_ref<device_ref, ibv_device>());
static_assert(is_ref<context_ref, ibv_context>());
static_assert(is_ref<pd_ref, ibv_pd>());
static_assert(is_ref<mr_ref, ibv_mr>());
static_assert(is_ref<comp_channel_ref, ibv_comp_channel>());
static_assert(is_ref<cq_ref, ibv_cq>());
static_assert(is_ref<qp_ref, ibv_qp>());
static_assert(is_ref<srq_ref, ibv_srq>());
static_assert(is_ref<ah_ref, ibv_ah>());
static_assert(is_ref<mw_ref, ibv_mw>());
static_assert(is_ref<dm_ref, ibv_dm>());
static_assert(is_ref<dmah_ref, ibv_dmah>());
static_assert(is_ref<buf_ref, ibv_buf>());
static_assert(is_ref<xrcd_ref, ibv_xrcd>());
static_assert(is_ref<td_ref, ibv_td>());
static_assert(is_ref<wq_ref, ibv_wq>());
static_assert(is_ref<rwq_ind_table_ref, ibv_rwq_ind_table>());
static_assert(is_ref<flow_ref, ibv_flow>());
static_assert(is_ref<flow_action_ref, ibv_flow_action>());
static_assert(is_ref<counters_ref, ibv_counters>());
static_assert(is_ref<comp_cntr_ref, ibv_comp_cntr>());
static_assert(is_ref<event_channel_ref, rdma_event_channel>());
static_assert(is_ref<cm_id_ref, rdma_cm_id>());
static_assert(is_ref<addrinfo_entry, rdma_addrinfo>());

template <class Handle>
concept hashable = requires(const Handle& handle) {
    std::hash<Handle>()(handle);
};

template <class Owner>
constexpr bool is_owner() {
    using raw = typename Owner::raw_type;
    // The C pointer, and one word that keeps the parents.
    static_assert(sizeof(Owner) == 2 * sizeof(void*));
    static_assert(!std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner>);
    static_assert(std::is_nothrow_move_constructible_v<Owner> && std::is_nothrow_move_assignable_v<Owner>);
    static_assert(std::is_nothrow_swappable_v<Owner> && std::is_nothrow_destructible_v<Owner>);
    static_assert(!std::has_virtual_destructor_v<Owner> && !std::is_polymorphic_v<Owner>);
    // A C pointer becomes an owner by adopt() and in no other way, and does not come out of one by itself.
    static_assert(!std::is_constructible_v<Owner, raw*> && !std::is_assignable_v<Owner&, raw*>);
    static_assert(!std::is_constructible_v<raw*, Owner&> && !std::is_constructible_v<void*, Owner&>);
    static_assert(std::is_constructible_v<bool, const Owner&> && !std::is_convertible_v<const Owner&, bool>);
    static_assert(std::same_as<decltype(std::declval<const Owner&>().native_handle()), raw*>);
    // Owners have identity: they are told apart by their refs.
    static_assert(!hashable<Owner>);
    return true;
}

template <class Owner, class Ref>
constexpr bool is_owner_of() {
    static_assert(std::same_as<typename Owner::ref_type, Ref>);
    static_assert(std::same_as<typename Owner::raw_type, typename Ref::raw_type>);
    // An owner that stays converts to its ref; one that is about to go does not.
    static_assert(std::is_nothrow_convertible_v<Owner&, Ref> && std::is_nothrow_convertible_v<const Owner&, Ref>);
    static_assert(!std::is_convertible_v<Owner, Ref> && !std::is_convertible_v<const Owner, Ref>);
    static_assert(!std::is_convertible_v<Ref, Owner> && !std::is_assignable_v<Owner&, Ref>);
    return is_owner<Owner>();
}

static_assert(is_owner_of<context, context_ref>());
static_assert(is_owner_of<pd, pd_ref>());
static_assert(is_owner_of<mr, mr_ref>());
static_assert(is_owner_of<comp_channel, comp_channel_ref>());
static_assert(is_owner_of<cq, cq_ref>());
static_assert(is_owner_of<qp, qp_ref>());
static_assert(is_owner_of<srq, srq_ref>());
static_assert(is_owner_of<ah, ah_ref>());
static_assert(is_owner_of<mw, mw_ref>());
static_assert(is_owner_of<dm, dm_ref>());
static_assert(is_owner_of<dmah, dmah_ref>());
static_assert(is_owner_of<buf, buf_ref>());
static_assert(is_owner_of<xrcd, xrcd_ref>());
static_assert(is_owner_of<td, td_ref>());
static_assert(is_owner_of<parent_domain, pd_ref>());
static_assert(is_owner_of<wq, wq_ref>());
static_assert(is_owner_of<rwq_ind_table, rwq_ind_table_ref>());
static_assert(is_owner_of<flow, flow_ref>());
static_assert(is_owner_of<flow_action, flow_action_ref>());
static_assert(is_owner_of<counters, counters_ref>());
static_assert(is_owner_of<comp_cntr, comp_cntr_ref>());
static_assert(is_owner_of<registered_buffer, mr_ref>());
// What is read or posted in another way is an owner of the same C object, and more.
static_assert(is_owner<cq_ex<>>() && is_owner<qp_ex<send_ops::send>>());
static_assert(std::is_nothrow_convertible_v<const cq_ex<>&, cq_ex_ref<wc_fields::standard>>);
static_assert(!std::is_convertible_v<cq_ex<>, cq_ex_ref<wc_fields::standard>> &&
              !std::is_convertible_v<cq_ex<>, cq_ref>);
static_assert(std::is_nothrow_convertible_v<const qp_ex<send_ops::send>&, qp_ex_ref<send_ops::send>>);
static_assert(!std::is_convertible_v<qp_ex<send_ops::send>, qp_ex_ref<send_ops::send>> &&
              !std::is_convertible_v<qp_ex<send_ops::send>, qp_ref>);
static_assert(is_ref<cq_ex_ref<wc_fields::none>, ibv_cq_ex, ibv_cq>() &&
              is_ref<qp_ex_ref<send_ops::send>, ibv_qp_ex, ibv_qp>());
static_assert(std::is_nothrow_convertible_v<cq_ex_ref<wc_fields::none>, cq_ref> &&
              std::is_nothrow_convertible_v<qp_ex_ref<send_ops::send>, qp_ref>);
// It is assigned no plain one, by whatever reference to it.
template <class Extended, class Plain>
constexpr bool apart = !std::is_convertible_v<Extended&, Plain&> && !std::is_assignable_v<Extended&, Plain> &&
                       !std::is_constructible_v<Plain, Extended&&> && !std::is_convertible_v<Plain, Extended>;
static_assert(apart<cq_ex<>, cq> && apart<qp_ex<send_ops::send>, qp>);
static_assert(!std::is_convertible_v<cq_ex_ref<wc_fields::none>&, cq_ref&> &&
              !std::is_convertible_v<cq_ref, cq_ex_ref<wc_fields::none>>);
static_assert(!std::is_convertible_v<qp_ex_ref<send_ops::send>&, qp_ref&> &&
              !std::is_convertible_v<qp_ref, qp_ex_ref<send_ops::send>>);
// One that was made for other operations, or other fields, is another.
static_assert(!std::is_assignable_v<qp_ex<send_ops::send>&, qp_ex<send_ops::rdma_read>> &&
              !std::is_assignable_v<cq_ex<wc_fields::sl>&, cq_ex<wc_fields::slid>>);
static_assert(!std::is_copy_constructible_v<wr_batch<send_ops::send, qp_type::rc>> &&
              !std::is_move_constructible_v<wr_batch<send_ops::send, qp_type::rc>>);
static_assert(is_owner_of<event_channel, event_channel_ref>());
static_assert(is_owner_of<cm_id, cm_id_ref>());

// No C object behind these: an empty owner that is assigned to later costs no call.
static_assert(std::is_nothrow_default_constructible_v<context> && std::is_nothrow_default_constructible_v<pd>);
static_assert(std::is_nothrow_default_constructible_v<mr> && std::is_nothrow_default_constructible_v<comp_channel>);
static_assert(std::is_nothrow_default_constructible_v<cq> && std::is_nothrow_default_constructible_v<qp>);
static_assert(std::is_nothrow_default_constructible_v<cm_id>);
static_assert(std::is_nothrow_constructible_v<event_channel, std::nullptr_t>);
static_assert(!std::is_convertible_v<std::nullptr_t, event_channel>);

// Lists are owners whose elements are refs.
static_assert(is_owner<device_list>() && is_owner<devices>() && is_owner<rdmaxx::addrinfo>());
static_assert(std::same_as<decltype(*std::declval<device_list&>().begin()), device_ref>);
static_assert(std::same_as<decltype(*std::declval<devices&>().begin()), context_ref>);
static_assert(std::same_as<decltype(*std::declval<rdmaxx::addrinfo&>().begin()), addrinfo_entry>);

// Ranges, as algorithms ask for them; none whose elements outlive it.
template <class Range>
constexpr bool is_list() {
    static_assert(std::ranges::forward_range<const Range&> && std::ranges::common_range<const Range&>);
    static_assert(!std::ranges::borrowed_range<Range>);
    return true;
}
static_assert(is_list<device_list>() && is_list<devices>() && is_list<rdmaxx::addrinfo>() && is_list<gid_table>());
static_assert(std::ranges::contiguous_range<const gid_table&> && std::ranges::sized_range<const gid_table&>);
template <bool Throws>
constexpr bool is_polled() {
    using range = completion_range<wc_fields::standard, Throws>;
    static_assert(std::ranges::input_range<range&> && std::input_iterator<typename range::iterator>);
    static_assert(std::sentinel_for<typename range::sentinel, typename range::iterator>);
    static_assert(noexcept(++std::declval<typename range::iterator&>()) == !Throws);
    return true;
}
static_assert(is_polled<true>() && is_polled<false>());

// Owners that are more than their C object: a synchronous id is no cm_id, and a membership leaves its group.
static_assert(is_owner<sync_id>() && is_owner<multicast_membership>());
static_assert(!std::is_constructible_v<cm_id, sync_id> && !std::is_convertible_v<cm_id, sync_id>);
static_assert(std::is_constructible_v<sync_id, cm_id> && !std::is_constructible_v<sync_id, cm_id&>);

// Memory whose addresses are no pointers does not pass for memory whose addresses are, and has no bytes.
static_assert(is_owner<iova_mr>() && !std::is_convertible_v<iova_mr&, mr_ref> && !std::is_constructible_v<mr, iova_mr>);
template <class Region>
concept has_bytes = requires(const Region& region) {
    region.bytes();
};
static_assert(has_bytes<mr> && has_bytes<registered_buffer> && !has_bytes<iova_mr>);

// A parent domain is a PD, and moves into one.
static_assert(std::is_constructible_v<qp, parent_domain&, qp_init_attr&> && std::is_constructible_v<pd, parent_domain>);

// Containers keep the address of their memory resource.
static_assert(!std::is_copy_constructible_v<registered_resource> && !std::is_move_constructible_v<registered_resource>);

// Plain values of C's layout.
static_assert(std::is_trivially_copyable_v<gid> && sizeof(gid) == sizeof(ibv_gid) && std::equality_comparable<gid>);
static_assert(std::is_trivially_copyable_v<gid_entry> && std::is_trivially_copyable_v<port_attr>);
static_assert(!std::is_convertible_v<ibv_gid, gid> && !std::is_convertible_v<address, gid>);
static_assert(sizeof(port_attr) == sizeof(ibv_port_attr) && std::is_trivially_copyable_v<ops_wr>);
static_assert(sizeof(lkey) == 4 && !std::is_convertible_v<std::uint32_t, lkey> && !std::is_convertible_v<rkey, lkey>);

// An rsocket is a number.
static_assert(!std::is_copy_constructible_v<rdmaxx::rsocket> && !std::is_copy_assignable_v<rdmaxx::rsocket>);
static_assert(std::is_nothrow_move_constructible_v<rdmaxx::rsocket> &&
              std::is_nothrow_move_assignable_v<rdmaxx::rsocket>);
static_assert(!std::is_convertible_v<int, rdmaxx::rsocket> && !std::is_convertible_v<rdmaxx::rsocket&, int>);

// Refs of one kind do not become refs of another, and neither do owners.
static_assert(!std::is_constructible_v<pd_ref, cq_ref> && !std::is_constructible_v<pd_ref, cq&>);
static_assert(!std::is_constructible_v<pd, cq&> && !std::is_constructible_v<cm_id, event_channel_ref>);

// A child is made from an owner or from a ref, in writing.
static_assert(std::is_constructible_v<pd, context&> && std::is_constructible_v<pd, context_ref>);
static_assert(!std::is_convertible_v<context&, pd> && !std::is_convertible_v<context_ref, pd>);
static_assert(std::is_constructible_v<cm_id, event_channel&> && !std::is_convertible_v<event_channel&, cm_id>);
static_assert(!std::is_convertible_v<device_ref, context> && !std::is_convertible_v<cm_id&, context>);

// ---------------------------------------------------------------------------------------------------------------
// Events.

template <class Event>
constexpr bool is_event() {
    static_assert(!std::is_copy_constructible_v<Event> && !std::is_copy_assignable_v<Event>);
    static_assert(std::is_nothrow_move_constructible_v<Event> && std::is_nothrow_move_assignable_v<Event>);
    static_assert(std::is_nothrow_default_constructible_v<Event> && std::is_nothrow_destructible_v<Event>);
    static_assert(std::is_nothrow_swappable_v<Event> && !std::is_polymorphic_v<Event>);
    static_assert(std::is_constructible_v<bool, const Event&> && !std::is_convertible_v<const Event&, bool>);
    return true;
}

static_assert(is_event<cm_event>() && sizeof(cm_event) <= 2 * sizeof(void*));
static_assert(is_event<cq_event>() && sizeof(cq_event) <= 3 * sizeof(void*));
static_assert(is_event<async_event>() && sizeof(async_event) <= sizeof(ibv_async_event) + sizeof(void*));

// Neither becomes the C event, nor is made from it, but by release() and adopt().
static_assert(!std::is_constructible_v<rdma_cm_event*, cm_event&> && !std::is_constructible_v<void*, cm_event&>);
static_assert(!std::is_constructible_v<rdma_cm_event*, cm_event>);
static_assert(!std::is_constructible_v<cm_event, rdma_cm_event*>);
static_assert(!std::is_constructible_v<cq_event, ibv_cq*> && !std::is_constructible_v<ibv_cq*, cq_event&>);

// What outlives an event is a value.
static_assert(std::copyable<cm_event_snapshot> && std::is_nothrow_copy_constructible_v<cm_event_snapshot>);

template <class Event>
concept acked_as_lvalue = requires(Event& event) {
    event.ack();
};
template <class Event>
concept acked_as_rvalue = requires(Event&& event) {
    std::forward<Event>(event).ack();
};
static_assert(!acked_as_lvalue<cm_event> && acked_as_rvalue<cm_event>);
static_assert(!acked_as_lvalue<cq_event> && acked_as_rvalue<cq_event>);
static_assert(!acked_as_lvalue<async_event> && acked_as_rvalue<async_event>);

// ---------------------------------------------------------------------------------------------------------------
// Values with the C layout: a C program adopts the library one call at a time.

template <class Value, class Raw>
constexpr bool is_like() {
    static_assert(sizeof(Value) == sizeof(Raw) && alignof(Value) == alignof(Raw));
    static_assert(std::is_standard_layout_v<Value> && std::is_trivially_copyable_v<Value>);
    static_assert(std::is_nothrow_default_constructible_v<Value>);
    return true;
}

static_assert(is_like<sge, ibv_sge>());
static_assert(is_like<send_wr, ibv_send_wr>());
static_assert(is_like<recv_wr, ibv_recv_wr>());
static_assert(is_like<wc, ibv_wc>());

// Requests are C requests; a completion is read through accessors that know which fields it has.
static_assert(std::is_convertible_v<send_wr*, ibv_send_wr*> && std::is_convertible_v<recv_wr*, ibv_recv_wr*>);
static_assert(std::is_convertible_v<sge*, ibv_sge*> && !std::is_convertible_v<wc*, ibv_wc*>);
static_assert(std::is_nothrow_constructible_v<wc, const ibv_wc&> && !std::is_convertible_v<ibv_wc, wc>);

// What a request is made of: one SGE, or any row of them; or nothing, where its bytes are none.
static_assert(std::is_trivially_copyable_v<sge_list> && std::is_nothrow_convertible_v<const sge&, sge_list>);
static_assert(std::is_convertible_v<std::vector<sge>&, sge_list> && std::is_convertible_v<const sge (&)[2], sge_list>);
static_assert(std::is_convertible_v<std::span<sge>, sge_list> &&
              std::is_convertible_v<std::span<const sge, 3>, sge_list>);
static_assert(!std::is_convertible_v<const ibv_sge&, sge_list> && !std::is_convertible_v<mr&, sge_list>);
inline void of_what(const remote_buffer& peer, const sge* two) {
    static_cast<void>(send_wr::send({}));
    static_cast<void>(send_wr::rdma_write_with_imm({}, peer, 1));
    static_cast<void>(send_wr::send({two, 2}));
}

// Requests that own their SGEs follow them when they are copied.
static_assert(std::copyable<send_wr_n<2>> && std::copyable<recv_wr_n<2>>);
static_assert(std::is_nothrow_copy_constructible_v<send_wr_n<2>> && std::is_nothrow_copy_assignable_v<send_wr_n<2>>);
static_assert(!std::is_trivially_copyable_v<send_wr_n<2>>);

// ---------------------------------------------------------------------------------------------------------------
// Other values.

static_assert(std::copyable<address> && std::is_trivially_copyable_v<address> && std::equality_comparable<address>);
static_assert(std::is_nothrow_default_constructible_v<address>);
static_assert(hashable<address>&& noexcept(std::hash<address>()(address())) && hashable<gid>);
static_assert(!std::is_convertible_v<const sockaddr*, address> && !std::is_convertible_v<address&, const sockaddr*>);

static_assert(std::is_trivially_copyable_v<remote_buffer> && std::equality_comparable<remote_buffer>);
static_assert(sizeof(remote_buffer) == remote_buffer::wire_size);

static_assert(std::copyable<qp_attr> && std::copyable<qp_init_attr> && std::copyable<qp_info>);

static_assert(std::derived_from<error, std::system_error> && std::derived_from<unexpected_event, error>);
static_assert(std::derived_from<post_error, error> && std::is_nothrow_copy_constructible_v<error>);
static_assert(std::is_nothrow_copy_constructible_v<unexpected_event> &&
              std::is_nothrow_copy_constructible_v<post_error>);

// Enums have the C values, and are no numbers.
static_assert(static_cast<int>(cm_event_type::connect_request) == RDMA_CM_EVENT_CONNECT_REQUEST);
static_assert(static_cast<int>(wc_status::rnr_retry_exc_err) == IBV_WC_RNR_RETRY_EXC_ERR);
static_assert(static_cast<int>(wc_opcode::recv_rdma_with_imm) == IBV_WC_RECV_RDMA_WITH_IMM);
static_assert(static_cast<int>(qp_state::rts) == IBV_QPS_RTS && static_cast<int>(qp_type::ud) == IBV_QPT_UD);
static_assert(static_cast<int>(port_space::udp) == RDMA_PS_UDP);
static_assert(static_cast<unsigned>(access::remote_atomic) == IBV_ACCESS_REMOTE_ATOMIC);
static_assert(!std::is_convertible_v<rdmaxx::access, unsigned> && !std::is_convertible_v<cm_event_type, int>);
static_assert((access::local_write | access::remote_read) == (access::remote_read | access::local_write));
static_assert(has(access::local_write | access::remote_read, access::remote_read));
static_assert(!has(access::local_write, access::remote_read));

// ---------------------------------------------------------------------------------------------------------------
// conn_param is written with the names of what differs from the defaults, without a warning.

static_assert(std::is_aggregate_v<conn_param>);

inline conn_param nothing_set() {
    return {};
}
inline conn_param some_set(std::span<const std::byte> data) {
    return {.private_data = data, .rnr_retry_count = 0};
}
inline conn_param all_set(std::span<const std::byte> data) {
    return {.private_data = data,
            .responder_resources = 1,
            .initiator_depth = 1,
            .flow_control = false,
            .retry_count = 3,
            .rnr_retry_count = 3,
            .srq = true,
            .qp_num = 7};
}
inline void as_arguments(cm_id& id, std::span<const std::byte> data) {
    id.connect();
    id.connect({});
    id.connect({.private_data = data});
    id.accept({.private_data = data, .responder_resources = 1, .initiator_depth = 1});
    id.reject(data);
}
static_assert(conn_param{}.retry_count == 7 && conn_param{}.rnr_retry_count == 7);
