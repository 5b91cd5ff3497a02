#include "static_owners.hpp"

#include <array>

namespace live {
namespace {

rdmaxx::pd domain;
rdmaxx::cq cq;
rdmaxx::cm_id server;
rdmaxx::comp_channel completions;
rdmaxx::mr region;
std::array<std::byte, 4096> memory;
rdmaxx::cm_id client;
rdmaxx::event_channel clients_channel(nullptr);

} // namespace

void connect_static_owners() {
    domain = rdmaxx::pd(static_context);
    completions = rdmaxx::comp_channel(static_context);
    cq = rdmaxx::cq(static_context, 16, completions);
    region = rdmaxx::mr(domain, memory);
    clients_channel = rdmaxx::event_channel();
    client = resolved(clients_channel, static_listener.local_address());
    client.create_qp(domain, rdmaxx::qp_init_attr(cq, 2));
    client.connect();
    server = get(static_channel, rdmaxx::cm_event_type::connect_request).take_id();
    server.create_qp(domain, rdmaxx::qp_init_attr(cq, 2)).post_recv(region);
    server.accept();
    static_cast<void>(get(clients_channel, rdmaxx::cm_event_type::established));
}

} // namespace live
