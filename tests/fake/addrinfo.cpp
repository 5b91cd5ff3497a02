// librdmacm: rdma_getaddrinfo, for numeric addresses and for names that the system resolves.
#include "internal.hpp"

#include <netdb.h>

namespace fake::detail {
namespace {

// A copy of an address that belongs to the result.
sockaddr* keep_address(addrinfo_object& owner, const sockaddr* address, socklen_t length) {
    const block b = take_block(length);
    std::memcpy(b.memory, address, length);
    owner.parts.push_back(b);
    return static_cast<sockaddr*>(b.memory);
}

rdma_addrinfo defaults(const rdma_addrinfo* hints) {
    rdma_addrinfo info = {};
    if (hints != nullptr) {
        info.ai_flags = hints->ai_flags;
        info.ai_family = hints->ai_family;
        info.ai_qp_type = hints->ai_qp_type;
        info.ai_port_space = hints->ai_port_space;
    }
    const bool datagram = info.ai_qp_type == IBV_QPT_UD || info.ai_port_space == RDMA_PS_UDP;
    if (info.ai_qp_type == 0)
        info.ai_qp_type = datagram ? IBV_QPT_UD : IBV_QPT_RC;
    if (info.ai_port_space == 0)
        info.ai_port_space = datagram ? RDMA_PS_UDP : RDMA_PS_TCP;
    return info;
}

addrinfo system_hints(const rdma_addrinfo& info) {
    addrinfo hints = {};
    if ((info.ai_flags & RAI_PASSIVE) != 0)
        hints.ai_flags |= AI_PASSIVE;
    if ((info.ai_flags & RAI_NUMERICHOST) != 0)
        hints.ai_flags |= AI_NUMERICHOST;
    if ((info.ai_flags & RAI_FAMILY) != 0)
        hints.ai_family = info.ai_family;
    hints.ai_socktype = info.ai_port_space == RDMA_PS_UDP ? SOCK_DGRAM : SOCK_STREAM;
    return hints;
}

// 0, EAI_* or -1 with errno in error.
int look_up(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo*& made, int& error) {
    const bool named = node != nullptr || service != nullptr;
    if (!named && (hints == nullptr || (hints->ai_src_addr == nullptr && hints->ai_dst_addr == nullptr))) {
        error = EINVAL;
        return -1;
    }
    rdma_addrinfo info = defaults(hints);
    addrinfo* found = nullptr;
    if (named) {
        const addrinfo wanted = system_hints(info);
        if (const int failed = getaddrinfo(node, service, &wanted, &found))
            return failed;
    }
    section lock;
    const block b = take_block(sizeof(rdma_addrinfo));
    made = static_cast<rdma_addrinfo*>(b.memory);
    auto& owner = enlist<addrinfo_object>(made, b);
    const bool passive = (info.ai_flags & RAI_PASSIVE) != 0;
    const auto set_source = [&](const sockaddr* address, socklen_t length) {
        info.ai_src_addr = keep_address(owner, address, length);
        info.ai_src_len = length;
        info.ai_family = address->sa_family;
    };
    const auto set_destination = [&](const sockaddr* address, socklen_t length) {
        info.ai_dst_addr = keep_address(owner, address, length);
        info.ai_dst_len = length;
        info.ai_family = address->sa_family;
    };
    if (hints != nullptr && hints->ai_src_addr != nullptr)
        set_source(hints->ai_src_addr, hints->ai_src_len);
    if (hints != nullptr && hints->ai_dst_addr != nullptr)
        set_destination(hints->ai_dst_addr, hints->ai_dst_len);
    if (found != nullptr && passive)
        set_source(found->ai_addr, found->ai_addrlen);
    if (found != nullptr && !passive)
        set_destination(found->ai_addr, found->ai_addrlen);
    if (found != nullptr)
        freeaddrinfo(found);
    *made = info;
    return 0;
}

} // namespace

void free_addrinfo(const char* call, rdma_addrinfo* list) {
    std::vector<block> parts;
    {
        section lock;
        auto* o = expect<addrinfo_object>(call, "address list", list);
        if (o == nullptr)
            return;
        parts = o->parts;
        bury(*o);
    }
    for (const block& b : parts)
        drop_block(b);
}

} // namespace fake::detail

using namespace fake::detail;

int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo** res) {
    c_call call("rdma_getaddrinfo", nullptr, returns::minus_one,
                std::string(node == nullptr ? "" : node) + ":" + (service == nullptr ? "" : service));
    if (call.injected())
        return call.finish(call.injected_error());
    {
        section lock;
        if (!any_device())
            return call.finish(ENODEV);
    }
    int error = 0;
    const int result = look_up(node, service, hints, *res, error);
    if (error != 0)
        return call.finish(error);
    return call.number(result); // an EAI code says nothing in errno
}

void rdma_freeaddrinfo(rdma_addrinfo* res) {
    c_call call("rdma_freeaddrinfo", res, returns::nothing);
    if (res != nullptr)
        free_addrinfo(call.name(), res);
}

#ifdef RAI_DNS // rdma-core 60 and later
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service, const rdma_addrinfo* hints) {
    return int_call("rdma_resolve_addrinfo", id, returns::minus_one, [&](c_call& call) {
        {
            section lock;
            const auto* o = expect<id_object>(call.name(), "id", id);
            if (o == nullptr)
                return EINVAL;
            if (o->resolved != nullptr)
                return EBUSY; // until it is queried
        }
        rdma_addrinfo* list = nullptr;
        int error = 0;
        const int failed = look_up(node, service, hints, list, error);
        {
            section lock;
            if (failed == 0)
                find<id_object>(id)->resolved = list;
        }
        if (failed == 0)
            fake::push_event({.type = RDMA_CM_EVENT_ADDRINFO_RESOLVED, .id = id});
        else
            fake::push_event({.type = RDMA_CM_EVENT_ADDRINFO_ERROR, .id = id, .status = error != 0 ? error : EINVAL});
        return 0;
    });
}

int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) {
    return int_call("rdma_query_addrinfo", id, returns::minus_one, [&](c_call& call) {
        section lock;
        auto* o = expect<id_object>(call.name(), "id", id);
        if (o == nullptr)
            return EINVAL;
        *info = std::exchange(o->resolved, nullptr);
        return *info == nullptr ? ENOENT : 0;
    });
}

int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, std::uint64_t arg) {
    return int_call("rdma_write_cm_event", id, returns::minus_one, [&](c_call&) {
        if (event != RDMA_CM_EVENT_USER)
            return EINVAL;
        fake::push_event({.type = RDMA_CM_EVENT_USER, .id = id, .status = status, .arg = arg});
        return 0;
    });
}
#endif
