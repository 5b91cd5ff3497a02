// The kernel's part of connection management: what becomes of ids and their peers, and which events are queued.
// All of it runs in a section.
#pragma once

#include "addresses.hpp"
#include "internal.hpp"

#include <algorithm>

namespace fake::detail {

constexpr int reject_consumer = 28; // IB: consumer defined
constexpr int reject_no_listener = 8;
constexpr int sidr_unsupported = 1;
constexpr int sidr_rejected = 2;

inline bool strict() {
    return the().settings.auto_connect;
}

inline bool is_datagram(const id_object& id) {
    return id.qp_type == IBV_QPT_UD;
}

// ---------------------------------------------------------------- queueing events

inline void enqueue(channel_object& channel, std::unique_ptr<queued_event> event) {
    if (channel.queue.empty())
        raise_signal(channel.fd);
    channel.queue.push_back(std::move(event));
}

inline queued_event* tell(id_object* id, int type, int status = 0, std::vector<std::byte> private_data = {}) {
    if (id == nullptr || id->going || id->channel == nullptr)
        return nullptr;
    auto event = std::make_unique<queued_event>();
    event->script.type = type;
    event->script.status = status;
    event->script.private_data = std::move(private_data);
    event->pins = id;
    queued_event* raw = event.get();
    enqueue(*id->channel, std::move(event));
    return raw;
}

inline void drop_events_of(id_object& id) {
    if (id.channel == nullptr || id.channel->queue.empty())
        return;
    auto& queue = id.channel->queue;
    queue.erase(std::remove_if(queue.begin(), queue.end(), [&](const auto& e) { return e->pins == &id; }), queue.end());
    if (queue.empty())
        lower_signal(id.channel->fd);
}

// The passive side's no, in the words of its transport.
inline void refuse(id_object* active, int reason, std::vector<std::byte> private_data = {}) {
    if (active == nullptr)
        return;
    active->state = id_state::spent;
    active->peer = nullptr;
    if (is_datagram(*active))
        tell(active, RDMA_CM_EVENT_UNREACHABLE, reason == reject_no_listener ? sidr_unsupported : sidr_rejected,
             std::move(private_data));
    else
        tell(active, RDMA_CM_EVENT_REJECTED, reason, std::move(private_data));
}

inline void tell_disconnected(id_object* id) {
    if (id == nullptr || id->disconnected)
        return;
    id->disconnected = true;
    tell(id, RDMA_CM_EVENT_DISCONNECTED);
}

// What the kernel does for the peer, and for requests nobody has seen, when its part of an id ends.
inline void kernel_end(id_object& id) {
    id_object* peer = std::exchange(id.peer, nullptr);
    if (peer != nullptr)
        peer->peer = nullptr;
    switch (id.state) {
    case id_state::requested:
    case id_state::accepted: refuse(peer, reject_consumer); break;
    case id_state::connecting:
        if (peer != nullptr && peer->state == id_state::accepted) {
            peer->state = id_state::spent;
            tell(peer, RDMA_CM_EVENT_REJECTED, reject_consumer);
        } else if (peer != nullptr) {
            peer->peer_gone = true;
        }
        break;
    case id_state::connected:
        if (!is_datagram(id))
            tell_disconnected(peer);
        break;
    case id_state::listening:
        if (id.channel == nullptr)
            break;
        for (const auto& event : id.channel->queue)
            if (event->pins == &id)
                refuse(event->from, reject_consumer);
        break;
    default: break;
    }
    each<channel_object>([&](channel_object& channel) {
        for (const auto& event : channel.queue)
            if (event->from == &id)
                event->from = nullptr;
    });
    id.groups.clear();
    drop_events_of(id);
}

// ---------------------------------------------------------------- addresses

// What the routing table would say: a device's own address of the family, the destination where it is local.
inline sockaddr_storage source_for(const sockaddr_storage& destination) {
    sockaddr_storage source = {};
    source.ss_family = destination.ss_family;
    const auto take = [&](const std::string& host) {
        if (source.ss_family == AF_INET)
            return inet_pton(AF_INET, host.c_str(), &reinterpret_cast<sockaddr_in&>(source).sin_addr) == 1;
        return inet_pton(AF_INET6, host.c_str(), &reinterpret_cast<sockaddr_in6&>(source).sin6_addr) == 1;
    };
    const std::string wanted = host_of(destination);
    take(destination.ss_family == AF_INET ? "192.0.2.1" : "2001:db8::1");
    bool found = false;
    for (const auto& dev : the().devices) {
        if (dev->removed)
            continue;
        for (const std::string& own : dev->config.addresses) {
            if (own == wanted)
                return take(own), source;
            if (!found)
                found = take(own);
        }
    }
    return source;
}

inline in_port_t free_port() {
    auto& next = the().next_port;
    for (;;) {
        if (next == 0)
            next = 49152;
        const in_port_t candidate = htons(next++);
        bool used = false;
        each<id_object>([&](id_object& other) { used = used || port_of(other.source) == candidate; });
        if (!used)
            return candidate;
    }
}

inline bool port_taken(const id_object& id, const sockaddr_storage& address) {
    bool taken = false;
    each<id_object>([&](id_object& other) {
        if (&other == &id || other.ps != id.ps || is_unset(other.source) || other.state == id_state::requested)
            return;
        if (port_of(other.source) != port_of(address) || (other.reuse_address && id.reuse_address))
            return;
        if (other.state != id_state::bound && other.state != id_state::listening)
            return;
        const bool overlap =
            is_wildcard(other.source) || is_wildcard(address) || host_of(other.source) == host_of(address);
        taken = taken || overlap;
    });
    return taken;
}

inline int bind_source(id_object& id, sockaddr_storage address) {
    in_port_t* port = port_in(address);
    if (port != nullptr && *port == 0)
        *port = free_port();
    else if (port_taken(id, address))
        return EADDRINUSE;
    id.source = address;
    id.state = id_state::bound;
    return 0;
}

// The answer of the address resolution, as an event.
inline void answer_address(id_object& id) {
    id.state = id_state::resolving;
    const auto& dead = the().unreachable;
    if (std::find(dead.begin(), dead.end(), host_of(id.destination)) != dead.end())
        tell(&id, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    else if (device_for(id.source) == nullptr)
        tell(&id, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
    else
        tell(&id, RDMA_CM_EVENT_ADDR_RESOLVED);
}

// ---------------------------------------------------------------- connections

// What a connect or accept sends to the other end.
struct sent_param {
    rdma_conn_param fields = {};
    std::vector<std::byte> private_data;
};

inline sent_param param_to_send(id_object& id, const rdma_conn_param* given, std::uint32_t qp_num, bool srq) {
    sent_param sent;
    sent.fields.retry_count = sent.fields.rnr_retry_count = 7;
    if (given != nullptr)
        sent.fields = *given;
    sent.fields.private_data = nullptr;
    sent.fields.qp_num = qp_num;
    sent.fields.srq = srq ? 1 : 0;
    sent.fields.responder_resources = id.responder_resources;
    sent.fields.initiator_depth = id.initiator_depth;
    sent.private_data = id.ep_connect;
    if (given != nullptr && given->private_data != nullptr) {
        const auto* data = static_cast<const std::byte*>(given->private_data);
        sent.private_data.insert(sent.private_data.end(), data, data + given->private_data_len);
    }
    return sent;
}

inline std::size_t field_of_request(bool datagram) {
    return datagram ? 180 : 56;
}
inline std::size_t field_of_response(bool datagram) {
    return datagram ? 136 : 196;
}
inline std::size_t field_of_reject(bool datagram) {
    return datagram ? 136 : 148;
}

inline bool fits(std::size_t size, std::size_t field) {
    return size <= (the().settings.exact_private_data ? 255 : field);
}

inline id_object* listener_for(const id_object& active) {
    id_object* found = nullptr;
    each<id_object>([&](id_object& id) {
        if (id.state != id_state::listening || id.ps != active.ps || id.going || id.channel == nullptr)
            return;
        if (port_of(id.source) != port_of(active.destination))
            return;
        if (!is_wildcard(id.source) && host_of(id.source) != host_of(active.destination))
            return;
        if (found == nullptr || is_wildcard(found->source))
            found = &id;
    });
    return found;
}

inline void send_request(id_object& active, const sent_param& sent) {
    id_object* listener = listener_for(active);
    active.state = id_state::connecting;
    if (listener == nullptr)
        return refuse(&active, reject_no_listener);
    if (listener->backlog == 0)
        return refuse(&active, reject_consumer);
    --listener->backlog;
    queued_event* request = tell(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0, sent.private_data);
    request->from = &active;
    rdma_conn_param param = sent.fields;
    // The other side's view: what we can initiate is what it must respond to.
    std::swap(param.responder_resources, param.initiator_depth);
    request->script.conn = param;
}

// The kernel's part of an accept, after the QP was moved.
inline int send_response(id_object& id, const sent_param& sent) {
    const bool datagram = is_datagram(id);
    const bool bad = !fits(sent.private_data.size(), field_of_response(datagram));
    if (bad || (strict() && !id.scripted && (id.state != id_state::requested || id.peer_gone))) {
        if (id.state == id_state::requested) {
            refuse(std::exchange(id.peer, nullptr), reject_consumer);
            id.state = id_state::spent;
        }
        return EINVAL;
    }
    id.state = datagram ? id_state::connected : id_state::accepted;
    id_object* active = id.peer;
    if (active == nullptr)
        return 0;
    active->remote_qp_num = sent.fields.qp_num;
    if (datagram) {
        active->state = id_state::connected;
        auto* event = tell(active, RDMA_CM_EVENT_ESTABLISHED, 0, sent.private_data);
        if (event == nullptr)
            return 0;
        rdma_ud_param param = {};
        param.qp_num = sent.fields.qp_num;
        param.qkey = RDMA_UDP_QKEY;
        param.ah_attr.is_global = 1;
        param.ah_attr.port_num = 1;
        event->script.ud = param;
        return 0;
    }
    active->rnr_retry = sent.fields.rnr_retry_count;
    auto* event = tell(active, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, sent.private_data);
    if (event == nullptr)
        return 0;
    rdma_conn_param param = sent.fields;
    std::swap(param.responder_resources, param.initiator_depth);
    event->script.conn = param;
    return 0;
}

// The active side's last message of the handshake.
inline void send_ready(id_object& active) {
    active.state = id_state::connected;
    if (active.peer == nullptr || active.peer->state != id_state::accepted)
        return;
    active.peer->state = id_state::connected;
    tell(active.peer, RDMA_CM_EVENT_ESTABLISHED);
}

inline int kernel_disconnect(id_object& id) {
    switch (id.state) {
    case id_state::connected: break;
    case id_state::disconnecting:
    case id_state::disconnected: return 0;
    default: return strict() ? EINVAL : 0;
    }
    id_object* peer = id.peer;
    id.state = id_state::disconnecting;
    if (peer == nullptr)
        return 0;
    // The one who was first learns of the end when the second has disconnected too.
    tell_disconnected(peer);
    if (peer->state == id_state::disconnecting)
        peer->state = id.state = id_state::disconnected;
    return 0;
}

// ---------------------------------------------------------------- multicast

inline ibv_gid group_gid(const sockaddr_storage& address) {
    ibv_gid gid = {};
    if (address.ss_family == AF_INET6) {
        std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, sizeof gid.raw);
        return gid;
    }
    gid.raw[0] = 0xff;
    gid.raw[1] = 0x0e;
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    return gid;
}

inline group* find_group(id_object& id, std::uint64_t serial) {
    const auto it =
        std::find_if(id.groups.begin(), id.groups.end(), [&](const group& g) { return g.serial == serial; });
    return it == id.groups.end() ? nullptr : &*it;
}

// By all bytes, as the library does.
inline group* find_group(id_object& id, const sockaddr* address) {
    const auto it = std::find_if(id.groups.begin(), id.groups.end(), [&](const group& g) {
        return std::memcmp(&g.address, address, length_of(address)) == 0;
    });
    return it == id.groups.end() ? nullptr : &*it;
}

} // namespace fake::detail
