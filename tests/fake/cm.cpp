// librdmacm: event channels, ids and their events.
#include "cm_kernel.hpp"

#include <cstdio>
#include <cstdlib>

#include <rdma/rdma_verbs.h>
#include <unistd.h>

namespace fake::detail {

namespace {

// ---------------------------------------------------------------- ids and channels

int add_channel(channel_object*& made) {
    const int fd = new_signal();
    if (fd < 0)
        return errno;
    block b;
    auto* c = new_struct<rdma_event_channel>(b);
    c->fd = fd;
    made = &enlist<channel_object>(c, b);
    made->c = c;
    made->fd = fd;
    return 0;
}

id_object& add_id(channel_object& channel, void* context, rdma_port_space ps, ibv_qp_type qp_type) {
    block b;
    auto* c = new_struct<rdma_cm_id>(b);
    std::memset(static_cast<void*>(c), 0, sizeof *c);
    c->channel = channel.c;
    c->context = context;
    c->ps = ps;
    c->qp_type = qp_type;
    auto& o = enlist<id_object>(c, b);
    o.c = c;
    o.channel = &channel;
    o.ps = ps;
    o.qp_type = qp_type;
    return o;
}

// The start of each call on an id: it must be alive, and so must its channel, which the library reads.
id_object* expect_id(const char* call, const rdma_cm_id* id) {
    auto* o = expect<id_object>(call, "id", id);
    if (o == nullptr)
        return nullptr;
    if (o->channel != nullptr)
        return o;
    report(std::string(call) + ": the channel of " + o->name + " was destroyed before");
    return nullptr;
}

bool checked(const char* call, const rdma_cm_id* id) {
    {
        section lock;
        if (expect_id(call, id) == nullptr)
            return false;
    }
    // As the library does, and as it does it: TSan may find that another thread is destroying them.
    const volatile int fd = id->channel->fd;
    (void)fd;
    return true;
}

// The record of an id that was checked.
id_object& record(const rdma_cm_id* id) {
    auto* o = find<id_object>(id);
    if (o != nullptr)
        return *o;
    std::fputs("fake: an id was destroyed while another thread was using it\n", stderr);
    std::abort();
}

template <class Body>
int id_call(const char* name, const rdma_cm_id* id, Body body) {
    return int_call(name, id, returns::minus_one,
                    [&](c_call& call) { return checked(call.name(), id) ? body(call) : EINVAL; });
}

// ---------------------------------------------------------------- binding to a device

// Like ucma_get_device: writes to the id without a lock. 0 or errno.
int bind_device(rdma_cm_id* id, const sockaddr_storage& local) {
    device_object* dev = nullptr;
    {
        section lock;
        auto* o = find<id_object>(id);
        if (o == nullptr || o->device != nullptr)
            return 0;
        dev = device_for(local);
        if (dev == nullptr)
            return ENODEV;
    }
    ibv_context* verbs = nullptr;
    ibv_pd* pd = nullptr;
    if (const int error = cm_attach(*dev, verbs, pd))
        return error;
    std::function<void(rdma_cm_id*)> hook;
    bool alive = false;
    {
        section lock;
        if (auto* o = find<id_object>(id)) {
            alive = true;
            o->device = context_of(verbs);
        }
        hook = the().before_id_changes;
    }
    if (!alive)
        return cm_detach(*dev), EINVAL;
    if (hook)
        hook(id);
    store_plainly(id->verbs, verbs);
    if (id->pd == nullptr)
        store_plainly(id->pd, pd);
    store_plainly(id->port_num, std::uint8_t{1});
    return 0;
}

void write_addresses(rdma_cm_id* id, const sockaddr_storage& source, const sockaddr_storage& destination) {
    if (!is_unset(source))
        std::memcpy(&id->route.addr.src_storage, &source, sizeof source);
    if (!is_unset(destination))
        std::memcpy(&id->route.addr.dst_storage, &destination, sizeof destination);
}

// ---------------------------------------------------------------- synchronous ids

// Acks the id's former event, waits for the next and keeps it. 0 or errno.
int sync_complete(rdma_cm_id* id) {
    {
        section lock;
        const auto* o = find<id_object>(id);
        if (o == nullptr || !o->sync)
            return 0;
    }
    if (id->event != nullptr) {
        rdma_ack_cm_event(id->event);
        id->event = nullptr;
    }
    if (rdma_get_cm_event(id->channel, &id->event) != 0)
        return errno;
    const int status = id->event->status;
    if (status == 0)
        return 0;
    if (load_enum(id->event->event) == RDMA_CM_EVENT_REJECTED)
        return ECONNREFUSED;
    return std::abs(status);
}

// ---------------------------------------------------------------- the QP of an id

int move_qp_to_rtr(rdma_cm_id* id, std::uint8_t responder_resources) {
    if (id->qp == nullptr)
        return 0;
    ibv_qp_attr attr = {};
    int mask = 0;
    attr.qp_state = IBV_QPS_INIT;
    if (rdma_init_qp_attr(id, &attr, &mask) != 0)
        return errno;
    if (const int error = ibv_modify_qp(id->qp, &attr, mask))
        return error < 0 ? errno : error;
    attr.qp_state = IBV_QPS_RTR;
    if (rdma_init_qp_attr(id, &attr, &mask) != 0)
        return errno;
    if (responder_resources != RDMA_MAX_RESP_RES)
        attr.max_dest_rd_atomic = responder_resources;
    const int error = ibv_modify_qp(id->qp, &attr, mask);
    return error < 0 ? errno : error;
}

int move_qp_to_rts(rdma_cm_id* id, std::uint8_t initiator_depth) {
    if (id->qp == nullptr)
        return 0;
    ibv_qp_attr attr = {};
    int mask = 0;
    attr.qp_state = IBV_QPS_RTS;
    if (rdma_init_qp_attr(id, &attr, &mask) != 0)
        return errno;
    if (initiator_depth != RDMA_MAX_INIT_DEPTH)
        attr.max_rd_atomic = initiator_depth;
    const int error = ibv_modify_qp(id->qp, &attr, mask);
    return error < 0 ? errno : error;
}

int move_qp_to(rdma_cm_id* id, ibv_qp_state to) {
    if (id->qp == nullptr)
        return 0;
    ibv_qp_attr attr = {};
    attr.qp_state = to;
    const int error = ibv_modify_qp(id->qp, &attr, IBV_QP_STATE);
    return error < 0 ? errno : error;
}

int init_new_qp(rdma_cm_id* id, ibv_qp* qp) {
    ibv_qp_attr attr = {};
    int mask = 0;
    attr.qp_state = IBV_QPS_INIT;
    if (rdma_init_qp_attr(id, &attr, &mask) != 0)
        return errno;
    int error = ibv_modify_qp(qp, &attr, mask);
    if (error != 0 || id->qp_type != IBV_QPT_UD)
        return error < 0 ? errno : error;
    attr.qp_state = IBV_QPS_RTR;
    error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    if (error != 0)
        return error < 0 ? errno : error;
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0;
    error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
    return error < 0 ? errno : error;
}

// As there, including that a send queue's CQ stays behind when the receive queue's was the user's.
void destroy_cqs(rdma_cm_id* id) {
    if (id->qp_type == IBV_QPT_XRC_RECV && id->srq != nullptr)
        return;
    if (id->recv_cq != nullptr) {
        ibv_destroy_cq(id->recv_cq);
        if (id->send_cq != nullptr && id->send_cq != id->recv_cq) {
            ibv_destroy_cq(id->send_cq);
            id->send_cq = nullptr;
        }
        id->recv_cq = nullptr;
    }
    if (id->recv_cq_channel != nullptr) {
        ibv_destroy_comp_channel(id->recv_cq_channel);
        if (id->send_cq_channel != nullptr && id->send_cq_channel != id->recv_cq_channel) {
            ibv_destroy_comp_channel(id->send_cq_channel);
            id->send_cq_channel = nullptr;
        }
        id->recv_cq_channel = nullptr;
    }
}

int create_cq(rdma_cm_id* id, std::uint32_t size, ibv_comp_channel*& channel, ibv_cq*& cq) {
    if (size == 0)
        return 0;
    channel = ibv_create_comp_channel(id->verbs);
    if (channel == nullptr)
        return errno;
    cq = ibv_create_cq(id->verbs, static_cast<int>(size), id, channel, 0);
    return cq == nullptr ? errno : 0;
}

int create_cqs(rdma_cm_id* id, std::uint32_t send_size, std::uint32_t recv_size) {
    int error = create_cq(id, recv_size, id->recv_cq_channel, id->recv_cq);
    if (error == 0)
        error = create_cq(id, send_size, id->send_cq_channel, id->send_cq);
    if (error != 0)
        destroy_cqs(id);
    return error;
}

int would_crash(const char* call, const char* why) {
    report(std::string(call) + ": " + why + ", this would crash");
    return EINVAL;
}

int create_qp(const char* call, rdma_cm_id* id, ibv_qp_init_attr_ex& attr) {
    if (id->qp != nullptr)
        return EINVAL;
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = id->pd;
    } else if (id->verbs != attr.pd->context) {
        return EINVAL;
    }
    if (id->verbs == nullptr)
        return would_crash(call, "the id is not bound to a device");
    if ((id->recv_cq != nullptr && attr.recv_cq != nullptr && id->recv_cq != attr.recv_cq) ||
        (id->send_cq != nullptr && attr.send_cq != nullptr && id->send_cq != attr.send_cq))
        return EINVAL;
    const bool own_send = attr.send_cq == nullptr && id->send_cq == nullptr;
    const bool own_recv = attr.recv_cq == nullptr && id->recv_cq == nullptr;
    if (const int error = create_cqs(id, own_send ? attr.cap.max_send_wr : 0, own_recv ? attr.cap.max_recv_wr : 0))
        return error;
    if (attr.send_cq == nullptr)
        attr.send_cq = id->send_cq;
    if (attr.recv_cq == nullptr)
        attr.recv_cq = id->recv_cq;
    if (id->srq != nullptr && attr.srq == nullptr)
        attr.srq = id->srq;
    ibv_qp* qp = ibv_create_qp_ex(id->verbs, &attr);
    int error = qp == nullptr ? errno : 0;
    if (qp != nullptr) {
        error = init_new_qp(id, qp);
        if (error != 0)
            ibv_destroy_qp(qp);
    }
    if (error != 0) {
        destroy_cqs(id);
        return error;
    }
    store_plainly(id->pd, qp->pd);
    store_plainly(id->qp, qp);
    return 0;
}

// ---------------------------------------------------------------- connections

int bad_conn_param(const id_object& id, const rdma_cm_id* c, const rdma_conn_param* param) {
    if (id.ps != RDMA_PS_TCP)
        return 0;
    if (c->qp == nullptr && param == nullptr)
        return EINVAL;
    if (param == nullptr)
        return 0;
    const std::uint8_t most = the().limits.max_rd_atom;
    if (param->responder_resources != RDMA_MAX_RESP_RES && param->responder_resources > most)
        return EINVAL;
    if (param->initiator_depth != RDMA_MAX_INIT_DEPTH && param->initiator_depth > most)
        return EINVAL;
    return 0;
}

std::uint8_t depth_or_most(const rdma_conn_param* param, std::uint8_t rdma_conn_param::*field) {
    const std::uint8_t most = the().limits.max_rd_atom;
    return param == nullptr || param->*field == 0xff ? most : param->*field;
}

int finish_handshake(rdma_cm_id* id) {
    int error = move_qp_to_rtr(id, RDMA_MAX_RESP_RES);
    if (error == 0)
        error = move_qp_to_rts(id, RDMA_MAX_INIT_DEPTH);
    if (error != 0) {
        move_qp_to(id, IBV_QPS_ERR);
        return error;
    }
    happens_before(wire());
    section lock;
    send_ready(record(id));
    return 0;
}

int join(rdma_cm_id* id, const sockaddr* address, bool send_only, void* context) {
    {
        section lock;
        auto* o = &record(id);
        if (strict() && o->device == nullptr)
            return EINVAL;
        group g;
        g.serial = the().next_group++;
        g.address = stored(address);
        g.context = context;
        g.send_only = send_only;
        g.gid = group_gid(g.address);
        g.lid = 0xc000;
        o->groups.push_back(g);
        if (auto* event = strict() ? tell(o, RDMA_CM_EVENT_MULTICAST_JOIN) : nullptr)
            event->group = g.serial;
    }
    return sync_complete(id);
}

// ---------------------------------------------------------------- getting an event

struct event_block {
    rdma_cm_event event;
    std::byte private_data[256];
};

// The event as get builds it, and the steps that get takes on the id.
struct taken_event {
    std::unique_ptr<queued_event> queued;
    rdma_cm_id* id = nullptr;     // it concerns
    rdma_cm_id* pinned = nullptr; // it counts on
    bool datagram = false;
    bool request = false;
    bool from_active = false; // CONNECT_RESPONSE or an ESTABLISHED that stands for one
    bool swallowed = false;
    void* group_context = nullptr;
    ibv_gid gid = {};
    std::uint16_t lid = 0;
    bool send_only = false;
};

std::string event_label(int type) {
    rdma_cm_event_type known = RDMA_CM_EVENT_ADDR_RESOLVED;
    if (type < 0 || type > RDMA_CM_EVENT_TIMEWAIT_EXIT)
        return "event " + std::to_string(type);
    std::memcpy(&known, &type, sizeof known);
    return rdma_event_str(known);
}

void accept_child(taken_event& taken, id_object& listener) {
    id_object& child = add_id(*listener.channel, listener.c->context, listener.ps, listener.qp_type);
    child.state = id_state::requested;
    child.source = listener.source;
    if (!taken.queued->scripted)
        ++listener.backlog;
    const auto& script = taken.queued->script;
    if (script.conn) {
        child.initiator_depth = script.conn->initiator_depth;
        child.responder_resources = script.conn->responder_resources;
        child.remote_qp_num = script.conn->qp_num;
        child.rnr_retry = script.conn->rnr_retry_count;
    }
    child.scripted = taken.queued->scripted;
    child.peer_gone = !child.scripted && taken.queued->from == nullptr;
    if (id_object* active = taken.queued->from) {
        child.peer = active;
        active->peer = &child;
        child.source = active->destination;
        child.destination = active->source;
    }
    taken.id = child.c;
}

// Takes the next event, counting it. Nothing: the queue is empty.
std::optional<taken_event> take_event(const char* call, const rdma_event_channel* c, int& fd) {
    section lock;
    auto* channel = expect<channel_object>(call, "channel", c);
    fd = channel == nullptr ? -1 : channel->fd;
    if (channel == nullptr || channel->queue.empty())
        return std::nullopt;
    taken_event taken;
    taken.queued = std::move(channel->queue.front());
    channel->queue.pop_front();
    if (channel->queue.empty())
        lower_signal(channel->fd);
    id_object& pins = *taken.queued->pins;
    const int type = taken.queued->script.type;
    taken.pinned = taken.id = pins.c;
    taken.datagram = is_datagram(pins);
    taken.swallowed = taken.queued->script.swallowed ||
                      (pins.connect_error && (type == RDMA_CM_EVENT_REJECTED || type == RDMA_CM_EVENT_DISCONNECTED));
    if (taken.swallowed)
        return taken;
    ++pins.events.got;
    if (group* g = find_group(pins, taken.queued->group)) {
        ++g->events.got;
        taken.group_context = g->context;
        taken.gid = g->gid;
        taken.lid = g->lid;
        taken.send_only = g->send_only;
    }
    taken.request = type == RDMA_CM_EVENT_CONNECT_REQUEST;
    taken.from_active = type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
                        (type == RDMA_CM_EVENT_ESTABLISHED && pins.state == id_state::connecting);
    if (taken.request)
        accept_child(taken, pins);
    if (type == RDMA_CM_EVENT_REJECTED || type == RDMA_CM_EVENT_CONNECT_ERROR || type == RDMA_CM_EVENT_UNREACHABLE)
        pins.state = id_state::spent;
    if (type == RDMA_CM_EVENT_ADDR_ERROR)
        pins.state = id_state::bound;
    if (type == RDMA_CM_EVENT_ADDR_RESOLVED)
        pins.state = id_state::address_resolved;
    if (type == RDMA_CM_EVENT_ROUTE_ERROR)
        pins.state = id_state::address_resolved;
    if (type == RDMA_CM_EVENT_ROUTE_RESOLVED)
        pins.state = id_state::route_resolved;
    if (type == RDMA_CM_EVENT_ESTABLISHED)
        pins.state = id_state::connected;
    return taken;
}

// Undoes a count: the event never reached the program.
void complete_quietly(const rdma_cm_id* pinned) {
    section lock;
    if (auto* o = find<id_object>(pinned))
        --o->events.got;
    the().changed.notify_all();
}

struct addresses {
    sockaddr_storage source = {};
    sockaddr_storage destination = {};
};

addresses addresses_of(const rdma_cm_id* id) {
    section lock;
    const auto* o = find<id_object>(id);
    return o == nullptr ? addresses{} : addresses{o->source, o->destination};
}

int after_address(rdma_cm_id* id) {
    addresses known = addresses_of(id);
    if (is_unset(known.source)) {
        section lock;
        known.source.ss_family = is_unset(known.destination) ? sa_family_t{AF_INET} : known.destination.ss_family;
        known.source = source_for(known.source);
    }
    if (const int error = bind_device(id, known.source))
        return error;
    write_addresses(id, known.source, known.destination);
    return 0;
}

void after_route(rdma_cm_id* id) {
    auto* path = static_cast<ibv_sa_path_rec*>(std::calloc(1, sizeof(ibv_sa_path_rec)));
    {
        section lock;
        if (auto* o = find<id_object>(id)) {
            std::free(o->path);
            o->path = path;
        }
    }
    id->route.path_rec = path;
    id->route.num_paths = 1;
}

// A failure here is silent: the new id is destroyed, and get goes on to the next event. False then.
bool after_request(taken_event& taken) {
    const addresses known = addresses_of(taken.id);
    int error = bind_device(taken.id, known.source);
    if (error == 0) {
        write_addresses(taken.id, known.source, known.destination);
        after_route(taken.id);
        bool sync = false;
        {
            section lock;
            const auto* listener = find<id_object>(taken.pinned);
            sync = listener != nullptr && listener->sync;
        }
        if (sync && rdma_migrate_id(taken.id, nullptr) != 0)
            error = errno;
    }
    if (error == 0)
        return true;
    rdma_destroy_id(taken.id);
    complete_quietly(taken.pinned);
    return false;
}

void read_qp(rdma_cm_id* id) {
    std::function<void(rdma_cm_id*)> hook;
    {
        section lock;
        hook = the().before_id_changes;
    }
    if (hook && id->qp != nullptr)
        hook(id);
}

// What get does on the calling thread before it returns the event; writes type, status and errno.
bool process(taken_event& taken, int& type, int& status, int& error) {
    const auto library_error = [&](int failed, int becomes) {
        if (failed == 0)
            return;
        type = becomes;
        status = -1;
        error = failed;
    };
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: library_error(after_address(taken.id), RDMA_CM_EVENT_ADDR_ERROR); break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: after_route(taken.id); break;
    case RDMA_CM_EVENT_CONNECT_REQUEST: return after_request(taken);
    case RDMA_CM_EVENT_CONNECT_RESPONSE: {
        read_qp(taken.id);
        if (taken.id->qp == nullptr)
            break;
        type = RDMA_CM_EVENT_ESTABLISHED;
        const int failed = finish_handshake(taken.id);
        library_error(failed, RDMA_CM_EVENT_CONNECT_ERROR);
        if (failed == 0)
            break;
        section lock;
        if (auto* o = find<id_object>(taken.id)) {
            o->connect_error = true;
            o->state = id_state::spent;
        }
        break;
    }
    case RDMA_CM_EVENT_REJECTED:
        read_qp(taken.id);
        move_qp_to(taken.id, IBV_QPS_ERR);
        break;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
        if (taken.id->qp == nullptr || taken.send_only)
            break;
        {
            const int failed = ibv_attach_mcast(taken.id->qp, &taken.gid, taken.lid);
            library_error(failed < 0 ? errno : failed, RDMA_CM_EVENT_MULTICAST_ERROR);
        }
        break;
    default: break;
    }
    return true;
}

std::size_t field_of(const taken_event& taken, int type, std::size_t given) {
    switch (type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST: return field_of_request(taken.datagram);
    case RDMA_CM_EVENT_CONNECT_RESPONSE: return field_of_response(taken.datagram);
    case RDMA_CM_EVENT_ESTABLISHED:
        return taken.datagram || taken.from_active || given > 0 ? field_of_response(taken.datagram) : 0;
    case RDMA_CM_EVENT_REJECTED: return field_of_reject(taken.datagram);
    case RDMA_CM_EVENT_UNREACHABLE: return taken.datagram ? 136 : given;
    default: return given;
    }
}

template <class Param>
void fill_private_data(Param& param, event_block& b, const taken_event& taken, int type) {
    const auto& script = taken.queued->script;
    const std::size_t given = std::min<std::size_t>(script.private_data.size(), 255);
    std::size_t length = given;
    if (script.form == private_data_form::padded && !setting(&settings::exact_private_data))
        length = std::max(given, field_of(taken, type, given));
    std::memset(b.private_data, 0, length);
    if (given > 0)
        std::memcpy(b.private_data, script.private_data.data(), given);
    param.private_data = length > 0 ? b.private_data : nullptr;
    param.private_data_len = static_cast<std::uint8_t>(length);
    switch (script.form) {
    case private_data_form::none:
        param.private_data = nullptr;
        param.private_data_len = 0;
        break;
    case private_data_form::null_with_length:
        param.private_data = nullptr;
        param.private_data_len = 148;
        break;
    case private_data_form::pointer_without_length:
        param.private_data = b.private_data;
        param.private_data_len = 0;
        break;
    default: break;
    }
}

void fill_param(event_block& b, const taken_event& taken, int type) {
    const auto& script = taken.queued->script;
    auto& param = b.event.param; // all garbage so far
    switch (script.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_RESOLVED: return;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
        param.ud = script.ud.value_or(rdma_ud_param{});
        param.ud.ah_attr.grh.dgid = taken.gid;
        param.ud.ah_attr.dlid = taken.lid;
        param.ud.ah_attr.is_global = 1;
        param.ud.ah_attr.port_num = 1;
        param.ud.qp_num = 0xffffff;
        param.ud.qkey = RDMA_UDP_QKEY;
        param.ud.private_data = taken.group_context;
        param.ud.private_data_len = 148; // the kernel's, and means nothing
        return;
    default: break;
    }
    if (type == 18) { // USER
        std::memcpy(&param, &script.arg, sizeof script.arg);
        return;
    }
    const bool always_connected =
        type == RDMA_CM_EVENT_REJECTED || type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_CONNECT_RESPONSE;
    if (taken.datagram && !always_connected) {
        param.ud = script.ud.value_or(rdma_ud_param{});
        fill_private_data(param.ud, b, taken, type);
    } else {
        param.conn = script.conn.value_or(rdma_conn_param{});
        fill_private_data(param.conn, b, taken, type);
    }
}

rdma_cm_event* build_event(const taken_event& taken, int type, int status) {
    const block memory = take_block(sizeof(event_block));
    auto* b = static_cast<event_block*>(memory.memory);
    b->event.id = taken.id;
    b->event.listen_id = taken.request ? taken.pinned : nullptr;
    store_enum(b->event.event, type);
    b->event.status = status;
    fill_param(*b, taken, type);
    section lock;
    auto& o = enlist<event_object>(&b->event, memory);
    o.pins = find<id_object>(taken.pinned);
    o.group = taken.queued->group;
    o.label = event_label(type);
    o.thread = std::this_thread::get_id();
    ++the().cm_events.got;
    return &b->event;
}

int get_event(c_call& call, rdma_event_channel* channel, rdma_cm_event** event) {
    if (event == nullptr)
        return EINVAL;
    for (;;) {
        int fd = -1;
        auto taken = take_event(call.name(), channel, fd);
        if (fd < 0)
            return EBADF;
        if (!taken) {
            const int error = wait_for_signal(fd, setting(&settings::get_limit));
            if (error == ETIMEDOUT)
                report(std::string(call.name()) + ": blocks for ever");
            if (error != 0)
                return error;
            continue;
        }
        happens_after(taken->queued.get());
        happens_after(taken->pinned);
        if (taken->queued->script.type >= RDMA_CM_EVENT_CONNECT_REQUEST)
            happens_after(wire());
        if (taken->swallowed)
            continue;
        int type = taken->queued->script.type;
        int status = taken->queued->script.status;
        int error = taken->queued->script.error;
        if (!process(*taken, type, status, error))
            continue;
        rdma_cm_event* made = build_event(*taken, type, status);
        call.detail(event_label(type) + " of " + describe(taken->id) +
                    (status != 0 ? ", status " + std::to_string(status) : std::string()));
        if (error != 0)
            call.leave_errno(error);
        *event = made;
        return 0;
    }
}

// ---------------------------------------------------------------- waits

std::string held_events(const id_object& id, std::uint64_t group_serial) {
    std::string names;
    each<event_object>([&](event_object& e) {
        if (e.pins != &id || (group_serial != 0 && e.group != group_serial))
            return;
        names += (names.empty() ? "" : ", ") + e.label + " (" + e.name + ")";
        names += e.thread == std::this_thread::get_id() ? ", got by this same thread" : ", got by another thread";
    });
    return names;
}

bool wait_for_acks(section& lock, const char* call, const id_object& id, const tally& events) {
    if (lock.wait(the().settings.wait_limit, [&] { return events.held() == 0; }))
        return true;
    report(std::string(call) + ": would hang, " + id.name + " has events that are not acked: " + held_events(id, 0));
    return false;
}

} // namespace

} // namespace fake::detail

// ---------------------------------------------------------------- the control interface

namespace fake {

using namespace detail;

namespace {

// Private data behind a pointer is copied when the event is pushed.
void own_private_data(cm_event& event) {
    const auto take = [&](const void* data, std::size_t length) {
        if (!event.private_data.empty() || data == nullptr)
            return;
        const auto* first = static_cast<const std::byte*>(data);
        event.private_data.assign(first, first + length);
    };
    if (event.conn)
        take(event.conn->private_data, event.conn->private_data_len);
    if (event.ud)
        take(event.ud->private_data, event.ud->private_data_len);
}

bool of_a_group(int type) {
    return type == RDMA_CM_EVENT_MULTICAST_JOIN || type == RDMA_CM_EVENT_MULTICAST_ERROR;
}

} // namespace

void push_event(rdma_event_channel* channel, cm_event event) {
    own_private_data(event);
    auto made = std::make_unique<queued_event>();
    const bool request = event.type == RDMA_CM_EVENT_CONNECT_REQUEST;
    const rdma_cm_id* pins = request ? (event.listen_id != nullptr ? event.listen_id : event.id) : event.id;
    const sockaddr* group_address = event.group;
    made->script = std::move(event);
    made->scripted = true;
    happens_before(made.get());
    section lock;
    auto* to = expect<channel_object>("push_event", "channel", channel);
    auto* id = expect<id_object>("push_event", "id", pins);
    if (to == nullptr || id == nullptr)
        return;
    made->pins = id;
    if (of_a_group(made->script.type)) {
        const group* g = group_address != nullptr ? find_group(*id, group_address)
                         : id->groups.empty()     ? nullptr
                                                  : &id->groups.front();
        if (g == nullptr)
            return report("push_event: " + id->name + " has not joined this group");
        made->group = g->serial;
    }
    if (id->going)
        return; // the kernel discards it
    enqueue(*to, std::move(made));
}

void push_event(cm_event event) {
    rdma_event_channel* channel = nullptr;
    {
        section lock;
        const auto* id = expect_id("push_event", event.id != nullptr ? event.id : event.listen_id);
        if (id == nullptr)
            return;
        channel = id->channel->c;
    }
    push_event(channel, std::move(event));
}

std::size_t queued(const rdma_event_channel* channel) {
    section lock;
    const auto* o = find<channel_object>(channel);
    return o == nullptr ? 0 : o->queue.size();
}

tally group_events(const rdma_cm_id* id, const sockaddr* address) {
    section lock;
    auto* o = find<id_object>(id);
    const group* g = o == nullptr ? nullptr : find_group(*o, address);
    return g == nullptr ? tally{} : g->events;
}

} // namespace fake

using namespace fake::detail;

// ---------------------------------------------------------------- channels

rdma_event_channel* rdma_create_event_channel() {
    return make_call<rdma_event_channel>("rdma_create_event_channel", nullptr, [](c_call&, rdma_event_channel*& made) {
        section lock;
        if (!any_device())
            return ENODEV;
        channel_object* channel = nullptr;
        const int error = add_channel(channel);
        if (error == 0)
            made = channel->c;
        return error;
    });
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
    c_call call("rdma_destroy_event_channel", channel, returns::nothing);
    section lock;
    auto* o = expect<channel_object>(call.name(), "channel", channel);
    if (o == nullptr)
        return;
    std::string ids;
    each<id_object>([&](id_object& id) {
        if (id.channel != o)
            return;
        ids += (ids.empty() ? "" : ", ") + id.name;
        kernel_end(id);
        id.channel = nullptr;
    });
    if (!ids.empty())
        report(std::string(call.name()) + ": " + o->name + " still has " + ids);
    close(o->fd);
    bury(*o);
}

// ---------------------------------------------------------------- ids

namespace {

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps, ibv_qp_type qp_type) {
    section lock;
    if (!any_device())
        return ENODEV;
    channel_object* on = nullptr;
    if (channel != nullptr) {
        on = expect<channel_object>("rdma_create_id", "channel", channel);
        if (on == nullptr)
            return EBADF;
    } else if (const int error = add_channel(on)) {
        return error;
    }
    auto& made = add_id(*on, context, ps, qp_type);
    made.sync = channel == nullptr;
    if (made.sync)
        on->internal = true;
    *id = made.c;
    return 0;
}

ibv_qp_type qp_type_of(rdma_port_space ps) {
    return ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

} // namespace

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps) {
    return int_call("rdma_create_id", channel, returns::minus_one, [&](c_call& call) {
        const int error = create_id(channel, id, context, ps, qp_type_of(ps));
        if (error == 0)
            call.detail(describe(*id));
        return error;
    });
}

int rdma_destroy_id(rdma_cm_id* id) {
    return destroy_call("rdma_destroy_id", id, returns::minus_one, [&](c_call& call) {
        rdma_cm_event* kept = nullptr;
        happens_before(wire());
        {
            section lock;
            auto* o = expect_id(call.name(), id);
            if (o == nullptr)
                return EINVAL;
            if (o->going) {
                report(std::string(call.name()) + ": " + o->name + " is being destroyed by another call");
                return EINVAL;
            }
            if (const auto* qp = find<qp_object>(id->qp))
                report(std::string(call.name()) + ": " + o->name + " still has " + qp->name);
            kernel_end(*o);
            o->going = true;
            kept = o->sync ? id->event : nullptr;
        }
        if (kept != nullptr)
            rdma_ack_cm_event(kept);
        device_object* dev = nullptr;
        rdma_event_channel* own_channel = nullptr;
        rdma_addrinfo* resolved = nullptr;
        {
            section lock;
            auto& o = record(id);
            if (!wait_for_acks(lock, call.name(), o, o.events)) {
                o.going = false;
                return ETIMEDOUT;
            }
            if (o.device != nullptr)
                dev = o.device->dev;
            if (o.sync)
                own_channel = o.channel->c;
            std::free(o.path);
            resolved = o.resolved;
            happens_after_at_end(acks_of(id));
            bury(o);
        }
        if (dev != nullptr)
            cm_detach(*dev);
        if (resolved != nullptr)
            free_addrinfo(call.name(), resolved);
        if (own_channel != nullptr)
            rdma_destroy_event_channel(own_channel);
        return 0;
    });
}

// ---------------------------------------------------------------- addresses and routes

int rdma_bind_addr(rdma_cm_id* id, sockaddr* addr) {
    return id_call("rdma_bind_addr", id, [&](c_call& call) {
        if (length_of(addr) == 0)
            return EINVAL;
        sockaddr_storage source = {};
        {
            section lock;
            auto& o = record(id);
            if (strict() && o.state != id_state::idle)
                return EINVAL;
            source = stored(addr);
            call.detail(text_of(source));
            if (!is_wildcard(source) && device_for(source) == nullptr)
                return EADDRNOTAVAIL;
            if (const int error = bind_source(o, source))
                return error;
            source = o.source;
        }
        if (!is_wildcard(source))
            if (const int error = bind_device(id, source))
                return error;
        write_addresses(id, source, {});
        return 0;
    });
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int timeout_ms) {
    return id_call("rdma_resolve_addr", id, [&](c_call& call) {
        if (length_of(dst_addr) == 0 || (src_addr != nullptr && length_of(src_addr) == 0))
            return EINVAL;
        sockaddr_storage destination = stored(dst_addr);
        call.detail(text_of(destination) + ", " + std::to_string(timeout_ms) + " ms");
        // There it is written after the request, and races with the get of the answer: nobody can help that.
        write_addresses(id, {}, destination);
        happens_before(id);
        {
            section lock;
            auto& o = record(id);
            if (strict() && o.state != id_state::idle && o.state != id_state::bound)
                return EINVAL;
            if (src_addr != nullptr)
                if (const int error = bind_source(o, stored(src_addr)))
                    return error;
            o.destination = destination;
            if (is_unset(o.source) || is_wildcard(o.source)) {
                const in_port_t port = is_unset(o.source) ? free_port() : port_of(o.source);
                o.source = source_for(destination);
                if (in_port_t* where = port_in(o.source))
                    *where = port;
            }
            if (strict())
                answer_address(o);
        }
        return sync_complete(id);
    });
}

int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) {
    return id_call("rdma_resolve_route", id, [&](c_call& call) {
        call.detail(std::to_string(timeout_ms) + " ms");
        if (id->verbs == nullptr)
            return would_crash(call.name(), "the id is not bound to a device");
        happens_before(id);
        {
            section lock;
            auto& o = record(id);
            if (strict()) {
                if (o.state != id_state::address_resolved)
                    return EINVAL;
                o.state = id_state::routing;
                tell(&o, RDMA_CM_EVENT_ROUTE_RESOLVED);
            }
        }
        return sync_complete(id);
    });
}

// ---------------------------------------------------------------- queue pairs

int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) {
    return id_call("rdma_init_qp_attr", id, [&](c_call&) {
        section lock;
        const auto& o = record(id);
        const ibv_qp_state to = attr->qp_state;
        *attr = {};
        attr->qp_state = to;
        *mask = IBV_QP_STATE;
        const bool datagram = is_datagram(o);
        switch (to) {
        case IBV_QPS_INIT:
            attr->port_num = 1;
            attr->qkey = RDMA_UDP_QKEY;
            attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
            *mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
            return 0;
        case IBV_QPS_RTR:
            if (datagram)
                return 0;
            attr->ah_attr.is_global = 1;
            attr->ah_attr.port_num = 1;
            attr->path_mtu = IBV_MTU_1024;
            attr->dest_qp_num = o.remote_qp_num;
            attr->max_dest_rd_atomic = o.responder_resources;
            attr->min_rnr_timer = 0;
            *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                     IBV_QP_MIN_RNR_TIMER;
            return 0;
        case IBV_QPS_RTS:
            *mask |= IBV_QP_SQ_PSN;
            if (datagram)
                return 0;
            attr->timeout = 18;
            attr->retry_cnt = 7;
            attr->rnr_retry = o.rnr_retry;
            attr->max_rd_atomic = o.initiator_depth;
            *mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
            return 0;
        default: return EINVAL;
        }
    });
}

int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
    return id_call("rdma_create_qp_ex", id, [&](c_call& call) { return create_qp(call.name(), id, *attr); });
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
    return id_call("rdma_create_qp", id, [&](c_call& call) {
        ibv_qp_init_attr_ex extended = {};
        std::memcpy(&extended, attr, sizeof *attr);
        extended.comp_mask = IBV_QP_INIT_ATTR_PD;
        extended.pd = pd != nullptr ? pd : id->pd;
        const int error = create_qp(call.name(), id, extended);
        std::memcpy(attr, &extended, sizeof *attr);
        return error;
    });
}

void rdma_destroy_qp(rdma_cm_id* id) {
    c_call call("rdma_destroy_qp", id, returns::nothing);
    if (!checked(call.name(), id))
        return;
    ibv_qp* qp = id->qp;
    if (qp == nullptr) {
        would_crash(call.name(), "the id has no QP");
        return;
    }
    ibv_destroy_qp(qp);
    store_plainly(id->qp, static_cast<ibv_qp*>(nullptr));
    destroy_cqs(id);
}

int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
    return id_call("rdma_create_srq_ex", id, [&](c_call& call) {
        if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0)
            return EINVAL;
        if (id->verbs == nullptr)
            return would_crash(call.name(), "the id is not bound to a device");
        if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
            attr->pd = id->pd;
            attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        }
        ibv_srq* srq = ibv_create_srq_ex(id->verbs, attr);
        if (srq == nullptr) {
            const int error = errno;
            destroy_cqs(id);
            return error;
        }
        if (id->pd == nullptr)
            id->pd = attr->pd;
        id->srq = srq;
        return 0;
    });
}

int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
    return int_call("rdma_create_srq", id, returns::minus_one, [&](c_call&) {
        ibv_srq_init_attr_ex extended = {};
        std::memcpy(&extended, attr, sizeof *attr);
        extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        extended.srq_type = IBV_SRQT_BASIC;
        extended.pd = pd;
        const int result = rdma_create_srq_ex(id, &extended);
        const int error = result == 0 ? 0 : errno;
        std::memcpy(attr, &extended, sizeof *attr);
        return error;
    });
}

void rdma_destroy_srq(rdma_cm_id* id) {
    c_call call("rdma_destroy_srq", id, returns::nothing);
    if (!checked(call.name(), id))
        return;
    if (id->srq == nullptr) {
        would_crash(call.name(), "the id has no SRQ");
        return;
    }
    ibv_destroy_srq(id->srq);
    id->srq = nullptr;
    destroy_cqs(id);
}

// ---------------------------------------------------------------- connections

int rdma_listen(rdma_cm_id* id, int backlog) {
    return id_call("rdma_listen", id, [&](c_call& call) {
        sockaddr_storage source = {};
        call.detail("backlog " + std::to_string(backlog));
        happens_before(id);
        {
            section lock;
            auto& o = record(id);
            if (strict() && o.state != id_state::idle && o.state != id_state::bound)
                return EINVAL;
            if (is_unset(o.source)) {
                sockaddr_storage any = {};
                any.ss_family = AF_INET;
                if (const int error = bind_source(o, any))
                    return error;
            }
            o.state = id_state::listening;
            o.backlog = backlog > 0 ? backlog : 1024;
            source = o.source;
        }
        write_addresses(id, source, {});
        return 0;
    });
}

int rdma_connect(rdma_cm_id* id, rdma_conn_param* param) {
    return id_call("rdma_connect", id, [&](c_call& call) {
        if (id->verbs == nullptr)
            return would_crash(call.name(), "the id is not bound to a device");
        std::uint32_t qp_num = param != nullptr ? param->qp_num : 0;
        bool srq = param != nullptr && param->srq != 0;
        if (id->qp != nullptr) {
            qp_num = id->qp->qp_num;
            srq = id->qp->srq != nullptr;
        }
        happens_before(wire());
        {
            section lock;
            auto& o = record(id);
            if (const int error = bad_conn_param(o, id, param))
                return error;
            o.initiator_depth = depth_or_most(param, &rdma_conn_param::initiator_depth);
            o.responder_resources = depth_or_most(param, &rdma_conn_param::responder_resources);
            const sent_param sent = param_to_send(o, param, qp_num, srq);
            if (!fits(sent.private_data.size(), field_of_request(is_datagram(o))))
                return EINVAL;
            if (strict() && o.state != id_state::route_resolved)
                return EINVAL;
            o.ep_connect.clear();
            o.state = id_state::connecting;
            if (strict())
                send_request(o, sent);
        }
        return sync_complete(id);
    });
}

int rdma_establish(rdma_cm_id* id) {
    return id_call("rdma_establish", id, [&](c_call&) {
        if (id->qp != nullptr)
            return EINVAL;
        return finish_handshake(id);
    });
}

namespace {

void reject_after_failed_accept(const rdma_cm_id* id) {
    section lock;
    auto* o = find<id_object>(id);
    if (o == nullptr || o->state != id_state::requested)
        return;
    refuse(std::exchange(o->peer, nullptr), reject_consumer);
    o->state = id_state::spent;
}

// The accept of a datagram service has no answer to wait for.
void ack_kept_event(rdma_cm_id* id) {
    {
        section lock;
        if (!record(id).sync)
            return;
    }
    if (id->event == nullptr)
        return;
    rdma_ack_cm_event(id->event);
    id->event = nullptr;
}

int accept(c_call& call, rdma_cm_id* id, rdma_conn_param* param) {
    if (!checked(call.name(), id))
        return EINVAL;
    if (id->qp == nullptr && param == nullptr)
        return would_crash(call.name(), "no QP and no parameters");
    if (id->verbs == nullptr)
        return would_crash(call.name(), "the id is not bound to a device");
    const std::uint32_t qp_num = id->qp != nullptr ? id->qp->qp_num : param->qp_num;
    const bool srq = id->qp != nullptr ? id->qp->srq != nullptr : param->srq != 0;
    std::uint8_t depth = 0;
    std::uint8_t resources = 0;
    bool datagram = false;
    {
        section lock;
        auto& o = record(id);
        if (const int error = bad_conn_param(o, id, param))
            return error;
        const std::uint8_t most = the().limits.max_rd_atom;
        const bool own_depth = param != nullptr && param->initiator_depth != RDMA_MAX_INIT_DEPTH;
        const bool own_resources = param != nullptr && param->responder_resources != RDMA_MAX_RESP_RES;
        o.initiator_depth = own_depth ? param->initiator_depth : std::min(o.initiator_depth, most);
        o.responder_resources = own_resources ? param->responder_resources : std::min(o.responder_resources, most);
        depth = o.initiator_depth;
        resources = o.responder_resources;
        datagram = is_datagram(o);
    }
    if (!datagram) {
        if (const int error = move_qp_to_rtr(id, resources))
            return error;
        if (const int error = move_qp_to_rts(id, depth))
            return error;
    }
    happens_before(wire());
    int error = 0;
    {
        section lock;
        auto& o = record(id);
        error = send_response(o, param_to_send(o, param, qp_num, srq));
    }
    if (error != 0) {
        move_qp_to(id, IBV_QPS_ERR);
        return error;
    }
    if (!datagram)
        return sync_complete(id);
    ack_kept_event(id);
    return 0;
}

} // namespace

int rdma_accept(rdma_cm_id* id, rdma_conn_param* param) {
    c_call call("rdma_accept", id, returns::minus_one);
    if (call.injected()) {
        reject_after_failed_accept(id);
        return call.finish(call.injected_error());
    }
    return call.finish(accept(call, id, param));
}

namespace {

int reject(rdma_cm_id* id, const void* private_data, std::uint8_t length) {
    happens_before(wire());
    section lock;
    auto& o = record(id);
    if (private_data == nullptr)
        length = 0;
    if (!fits(length, field_of_reject(is_datagram(o))))
        return EINVAL;
    if (strict() && o.state != id_state::requested)
        return EINVAL;
    std::vector<std::byte> data(length);
    if (length > 0)
        std::memcpy(data.data(), private_data, length);
    o.state = id_state::spent;
    refuse(std::exchange(o.peer, nullptr), reject_consumer, std::move(data));
    return 0;
}

} // namespace

int rdma_reject(rdma_cm_id* id, const void* private_data, std::uint8_t length) {
    return int_call("rdma_reject", id, returns::minus_one, [&](c_call&) { return reject(id, private_data, length); });
}

int rdma_reject_ece(rdma_cm_id* id, const void* private_data, std::uint8_t length) {
    return int_call("rdma_reject_ece", id, returns::minus_one,
                    [&](c_call&) { return reject(id, private_data, length); });
}

int rdma_notify(rdma_cm_id* id, ibv_event_type) {
    return id_call("rdma_notify", id, [](c_call&) { return 0; });
}

int rdma_disconnect(rdma_cm_id* id) {
    return id_call("rdma_disconnect", id, [&](c_call&) {
        if (id->verbs == nullptr)
            return EINVAL;
        const bool iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
        if (const int error = move_qp_to(id, iwarp ? IBV_QPS_SQD : IBV_QPS_ERR))
            return error;
        happens_before(wire());
        {
            section lock;
            if (const int error = kernel_disconnect(record(id)))
                return error;
        }
        return sync_complete(id);
    });
}

// ---------------------------------------------------------------- multicast

int rdma_join_multicast(rdma_cm_id* id, sockaddr* addr, void* context) {
    return id_call("rdma_join_multicast", id, [&](c_call&) {
        if (length_of(addr) == 0)
            return EINVAL;
        return join(id, addr, false, context);
    });
}

int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr, void* context) {
    return id_call("rdma_join_multicast_ex", id, [&](c_call&) {
        if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
            return ENOTSUP;
        constexpr std::uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
        if ((attr->comp_mask & needed) != needed || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED ||
            length_of(attr->addr) == 0)
            return EINVAL;
        return join(id, attr->addr, attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context);
    });
}

int rdma_leave_multicast(rdma_cm_id* id, sockaddr* addr) {
    c_call call("rdma_leave_multicast", id, returns::minus_one);
    if (!checked(call.name(), id) || length_of(addr) == 0)
        return call.finish(EINVAL);
    group left;
    {
        section lock;
        const group* g = find_group(record(id), addr);
        if (g == nullptr)
            return call.finish(EADDRNOTAVAIL);
        left = *g;
    }
    if (id->qp != nullptr && !left.send_only)
        ibv_detach_mcast(id->qp, &left.gid, left.lid);
    section lock;
    auto& o = record(id);
    const auto forget = [&] {
        o.groups.erase(
            std::remove_if(o.groups.begin(), o.groups.end(), [&](const group& g) { return g.serial == left.serial; }),
            o.groups.end());
    };
    // When the kernel refuses, the library forgets the group all the same, without waiting.
    if (call.injected()) {
        forget();
        return call.finish(call.injected_error());
    }
    auto& queue = o.channel->queue;
    queue.erase(std::remove_if(queue.begin(), queue.end(), [&](const auto& e) { return e->group == left.serial; }),
                queue.end());
    if (queue.empty())
        lower_signal(o.channel->fd);
    const bool acked = lock.wait(the().settings.wait_limit, [&] {
        const group* g = find_group(o, left.serial);
        return g == nullptr || g->events.held() == 0;
    });
    if (!acked) {
        report(std::string(call.name()) + ": would hang, " + o.name +
               " has events of the group that are not acked: " + held_events(o, left.serial));
        return call.finish(ETIMEDOUT);
    }
    forget();
    happens_after_at_end(acks_of(id));
    return call.finish(0);
}

// ---------------------------------------------------------------- events

namespace {

rdma_cm_id* bench_id = nullptr;
event_block bench_block;

// As much work as the library's own bookkeeping: it clears the block before it asks the kernel.
int bench_get(rdma_cm_event** event) {
    std::memset(static_cast<void*>(&bench_block), 0, sizeof bench_block);
    bench_block.event.id = bench_id;
    bench_block.event.event = RDMA_CM_EVENT_ESTABLISHED;
    *event = &bench_block.event;
    return 0;
}

} // namespace

void fake::bench_mode(bool on, rdma_cm_id* id) {
    section lock;
    bench_id = id;
    benching.store(on, std::memory_order_relaxed);
    each<context_object>([&](context_object& context) { install_ops(*context.c, on); });
    each<cq_object>([&](cq_object& cq) { set_extended_poll(*cq.c, on); });
    each<qp_object>([&](qp_object& qp) {
        if (qp.send_ops)
            install_work_requests(*reinterpret_cast<ibv_qp_ex*>(qp.c), on);
    });
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
    if (benching.load(std::memory_order_relaxed))
        return bench_get(event);
    return int_call("rdma_get_cm_event", channel, returns::minus_one,
                    [&](c_call& call) { return get_event(call, channel, event); });
}

int rdma_ack_cm_event(rdma_cm_event* event) {
    if (benching.load(std::memory_order_relaxed))
        return 0;
    return int_call("rdma_ack_cm_event", event, returns::minus_one, [&](c_call& call) {
        if (event == nullptr)
            return EINVAL;
        const void* pinned = nullptr;
        {
            section lock;
            auto* o = expect<event_object>(call.name(), "event", event);
            if (o == nullptr)
                return 0;
            pinned = o->pins->handle;
        }
        happens_before(acks_of(pinned));
        section lock;
        auto* o = expect<event_object>(call.name(), "event", event);
        if (o == nullptr)
            return 0;
        call.detail(o->label + " of " + o->pins->name);
        if (o->group != 0) {
            if (group* g = find_group(*o->pins, o->group))
                ++g->events.acked;
            else
                report(std::string(call.name()) + ": the group of this event was left before, this would crash");
        }
        ++o->pins->events.acked;
        ++the().cm_events.acked;
        bury(*o);
        return 0;
    });
}

// ---------------------------------------------------------------- the rest

int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
    return id_call("rdma_migrate_id", id, [&](c_call& call) {
        rdma_event_channel* old_private = nullptr;
        rdma_cm_event* kept = nullptr;
        {
            section lock;
            auto& o = record(id);
            if (o.sync && channel == nullptr)
                return EINVAL;
            channel_object* to = nullptr;
            if (channel != nullptr) {
                to = expect<channel_object>(call.name(), "channel", channel);
                if (to == nullptr)
                    return EBADF;
            } else {
                if (const int error = add_channel(to))
                    return error;
                to->internal = true;
                channel = to->c;
            }
            channel_object& from = *o.channel;
            std::deque<std::unique_ptr<queued_event>> stay;
            const bool had = !from.queue.empty();
            for (auto& event : from.queue) {
                if (event->pins == &o)
                    enqueue(*to, std::move(event));
                else
                    stay.push_back(std::move(event));
            }
            from.queue = std::move(stay);
            if (had && from.queue.empty())
                lower_signal(from.fd);
            if (o.sync) {
                old_private = from.c;
                kept = id->event;
            }
            o.sync = to->internal;
            o.channel = to;
            call.detail(to->name);
        }
        if (kept != nullptr) {
            rdma_ack_cm_event(kept);
            id->event = nullptr;
        }
        if (old_private != nullptr)
            rdma_destroy_event_channel(old_private);
        id->channel = channel;
        section lock;
        auto& o = record(id);
        happens_after_at_end(acks_of(id));
        return wait_for_acks(lock, call.name(), o, o.events) ? 0 : ETIMEDOUT;
    });
}

int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, std::size_t size) {
    return id_call("rdma_set_option", id, [&](c_call&) {
        happens_before(id);
        section lock;
        auto& o = record(id);
        if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) {
            if (size == 0)
                return EINVAL;
            if (strict()) {
                if (o.state != id_state::address_resolved)
                    return EINVAL;
                o.state = id_state::routing;
                tell(&o, RDMA_CM_EVENT_ROUTE_RESOLVED);
            }
            return 0;
        }
        if (level != RDMA_OPTION_ID)
            return ENOSYS;
        switch (name) {
        case RDMA_OPTION_ID_TOS:
        case RDMA_OPTION_ID_ACK_TIMEOUT: return size == sizeof(std::uint8_t) ? 0 : EINVAL;
        case RDMA_OPTION_ID_REUSEADDR:
            if (size != sizeof(int))
                return EINVAL;
            o.reuse_address = *static_cast<const int*>(value) != 0;
            return 0;
        case RDMA_OPTION_ID_AFONLY: return size == sizeof(int) ? 0 : EINVAL;
        default: return ENOSYS;
        }
    });
}

int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
    return id_call("rdma_set_local_ece", id, [&](c_call&) { return id->qp != nullptr || ece == nullptr ? EINVAL : 0; });
}

int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
    return id_call("rdma_get_remote_ece", id, [&](c_call&) {
        if (id->qp != nullptr || ece == nullptr)
            return EINVAL;
        *ece = {};
        return 0;
    });
}

__be16 rdma_get_src_port(rdma_cm_id* id) {
    c_call call("rdma_get_src_port", id, returns::nothing);
    return checked(call.name(), id) ? port_of(id->route.addr.src_storage) : __be16{0};
}

__be16 rdma_get_dst_port(rdma_cm_id* id) {
    c_call call("rdma_get_dst_port", id, returns::nothing);
    return checked(call.name(), id) ? port_of(id->route.addr.dst_storage) : __be16{0};
}

// ---------------------------------------------------------------- endpoints

int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) {
    return id_call("rdma_get_request", listen, [&](c_call&) {
        std::optional<ibv_qp_init_attr> qp_attr;
        {
            section lock;
            const auto& o = record(listen);
            if (!o.sync)
                return EINVAL;
            qp_attr = o.ep_attr;
        }
        if (listen->event != nullptr) {
            rdma_ack_cm_event(listen->event);
            listen->event = nullptr;
        }
        rdma_cm_event* event = nullptr;
        if (rdma_get_cm_event(listen->channel, &event) != 0)
            return errno;
        int error = std::abs(event->status);
        if (error == 0 && load_enum(event->event) != RDMA_CM_EVENT_CONNECT_REQUEST)
            error = EINVAL;
        if (error == 0 && qp_attr && rdma_create_qp(event->id, listen->pd, &*qp_attr) != 0)
            error = errno;
        if (error != 0) {
            listen->event = event;
            return error;
        }
        *id = event->id;
        (*id)->event = event;
        return 0;
    });
}

namespace {

int make_passive(rdma_cm_id* id, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr) {
    if (rdma_bind_addr(id, res->ai_src_addr) != 0)
        return errno;
    if (pd != nullptr)
        id->pd = pd;
    if (attr == nullptr)
        return 0;
    section lock;
    auto& o = record(id);
    o.ep_attr = *attr;
    store_enum(o.ep_attr->qp_type, res->ai_qp_type);
    return 0;
}

int make_active(rdma_cm_id* id, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr) {
    if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, 2000) != 0)
        return errno;
    if (rdma_resolve_route(id, 2000) != 0)
        return errno;
    if (attr != nullptr) {
        store_enum(attr->qp_type, res->ai_qp_type);
        if (rdma_create_qp(id, pd, attr) != 0)
            return errno;
    }
    if (res->ai_connect_len == 0)
        return 0;
    section lock;
    const auto* data = static_cast<const std::byte*>(res->ai_connect);
    record(id).ep_connect.assign(data, data + res->ai_connect_len);
    return 0;
}

} // namespace

int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr) {
    return int_call("rdma_create_ep", nullptr, returns::minus_one, [&](c_call&) {
        rdma_cm_id* made = nullptr;
        rdma_port_space ps = RDMA_PS_TCP;
        ibv_qp_type qp_type = IBV_QPT_RC;
        store_enum(ps, res->ai_port_space);
        store_enum(qp_type, res->ai_qp_type);
        if (const int error = create_id(nullptr, &made, nullptr, ps, qp_type))
            return error;
        const bool passive = (res->ai_flags & RAI_PASSIVE) != 0;
        const int error = passive ? make_passive(made, res, pd, attr) : make_active(made, res, pd, attr);
        if (error != 0) {
            rdma_destroy_ep(made);
            return error;
        }
        *id = made;
        return 0;
    });
}

void rdma_destroy_ep(rdma_cm_id* id) {
    c_call call("rdma_destroy_ep", id, returns::nothing);
    if (!checked(call.name(), id))
        return;
    if (id->qp != nullptr)
        rdma_destroy_qp(id);
    if (id->srq != nullptr)
        rdma_destroy_srq(id);
    rdma_destroy_id(id);
}
