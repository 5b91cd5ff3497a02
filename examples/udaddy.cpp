// udaddy: datagrams between two programs that found each other by rdma_cm. Both roles, and on the wire that of
// rdma-core's librdmacm/examples/udaddy.c.
//
// A datagram id is not connected: the server's answer tells the client where datagrams go. The client sends first, each
// datagram with its queue pair's number as immediate data; that and the datagram's routing header tell the server where
// its answers go.
//
// What it does better than the C program: neither role waits for ever for a datagram that was lost, and they sleep
// meanwhile; a request that failed ends the program with words; and all that was made ends with it.
#include <rdmaxx/rdmaxx.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <list>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

using rdmaxx::cm_event_type;
using std::chrono::seconds;

constexpr const char* port = "7174"; // the C program has no option for it

struct options {
    const char *server = nullptr, *source = nullptr;
    rdmaxx::port_space ps = rdmaxx::port_space::udp;
    unsigned connections = 1, count = 10, size = 100;
    std::optional<std::uint8_t> tos;
    seconds patience{60};
};

/// One pair of queue pairs, as one side has it.
struct connection {
    /// @param bound an id that has a device: its route is resolved, or it came with a request
    connection(rdmaxx::cm_id bound, const options& opts)
        : o(opts), id(std::move(bound)), completions(id.verbs()), send_cq(id.verbs(), depth(), completions),
          recv_cq(id.verbs(), depth(), completions), datagram(id.pd(), rdmaxx::datagram::room_for(o.size)),
          qp(id.create_qp(rdmaxx::qp_init_attr(send_cq, recv_cq, o.count + 1).type(rdmaxx::qp_type::ud))) {
        const std::uint32_t mtu = to_bytes(id.verbs().query_port(id.port_num()).mtu());
        if (o.size > mtu)
            throw std::runtime_error("a datagram takes at most " + std::to_string(mtu) + " bytes here");
        for (unsigned i = 0; i < o.count; ++i) // before connect and accept: the peer may send at once
            qp.post_recv(datagram);
    }

    [[nodiscard]] int depth() const { return static_cast<int>(o.count) + 1; }

    /// The client's peer, from its established event.
    void set_peer(const rdma_ud_param& param) {
        peer = rdmaxx::ah(id.pd(), param.ah_attr);
        peer_qpn = param.qp_num;
        peer_qkey = param.qkey;
    }

    /// The server's peer, from the first datagram that came.
    void set_peer(const rdmaxx::wc& first) {
        peer = rdmaxx::ah::from_datagram(id.pd(), {first, datagram.bytes()}, id.port_num());
        peer_qpn = first.imm_data().value();
        peer_qkey = qp.query().attr.qkey; // all of a port space have the same
    }

    void send_all() const {
        const rdmaxx::sge piece = datagram.sge(rdmaxx::datagram::grh_size, o.size);
        for (unsigned i = 0; i < o.count; ++i)
            qp.post_send(rdmaxx::send_wr::send_with_imm(piece, qp.qp_num()).to(peer, peer_qpn, peer_qkey).signaled());
    }

    void wait_for_sends() { wait_for_all(send_cq, "were not sent"); }
    void wait_for_receives() { wait_for_all(recv_cq, "have not come"); }

    const options& o;
    rdmaxx::cm_id id; // before what is made from its device
    rdmaxx::comp_channel completions;
    rdmaxx::cq send_cq, recv_cq;
    rdmaxx::registered_buffer datagram; // of all of them: nobody reads any
    rdmaxx::qp_ref qp;
    rdmaxx::ah peer;
    std::uint32_t peer_qpn = 0, peer_qkey = 0;

private:
    void wait_for_all(const rdmaxx::cq& cq, const char* complaint) {
        std::array<rdmaxx::wc, 8> done;
        for (std::size_t left = o.count; left != 0;) {
            const auto some = completions.wait_for(cq, std::span(done).first(std::min(left, done.size())), o.patience);
            if (some.empty())
                throw std::runtime_error(std::to_string(left) + " of " + std::to_string(o.count) + " datagrams " +
                                         complaint);
            for (const rdmaxx::wc& wc : some)
                wc.check();
            if (!peer)
                set_peer(some.front());
            left -= some.size();
        }
    }
};

[[nodiscard]] rdmaxx::cm_event next(rdmaxx::event_channel& channel, seconds patience) {
    rdmaxx::cm_event event = channel.get_cm_event_for(patience);
    if (!event)
        throw std::runtime_error("nothing happened for " + std::to_string(patience.count()) + " s");
    return event;
}

void run_server(const options& o) {
    std::puts("udaddy: starting server");
    const rdmaxx::addrinfo local(o.source, port,
                                 {.flags = rdmaxx::addrinfo_flags::passive, .ps = o.ps, .type = rdmaxx::qp_type::ud});
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener(channel, o.ps);
    listener.bind_addr(local.front().source());
    listener.listen(static_cast<int>(o.connections)); // they may all come at once

    std::list<connection> all;
    while (all.size() < o.connections) { // an accepted id has no established event
        rdmaxx::cm_event event = next(channel, all.empty() ? seconds::max() : o.patience);
        if (event.type() != cm_event_type::connect_request)
            throw rdmaxx::unexpected_event(event.snapshot(), cm_event_type::connect_request);
        all.emplace_back(event.take_id(), o).id.accept();
    }
    if (o.count != 0) {
        std::puts("receiving data transfers");
        for (connection& c : all)
            c.wait_for_receives();
        std::puts("sending replies");
        for (const connection& c : all)
            c.send_all();
        for (connection& c : all)
            c.wait_for_sends();
        std::puts("data transfers complete");
    }
}

/// The id of an event. The event ends, since the id does if it does not come to a connection.
rdmaxx::cm_id take(std::vector<rdmaxx::cm_id>& resolving, rdmaxx::cm_event event) {
    const auto id = std::find(resolving.begin(), resolving.end(), event.id());
    std::move(event).ack();
    return std::move(*id);
}

/// Handles events until the server has answered on all ids.
void find_server(rdmaxx::event_channel& channel, std::vector<rdmaxx::cm_id>& resolving, std::list<connection>& all,
                 const options& o) {
    for (unsigned found = 0; found < o.connections;) {
        rdmaxx::cm_event event = next(channel, o.patience);
        switch (event.type()) {
        case cm_event_type::addr_resolved: event.id().resolve_route(seconds(2)); break;
        case cm_event_type::route_resolved: all.emplace_back(take(resolving, std::move(event)), o).id.connect(); break;
        case cm_event_type::established: {
            const auto is_of = [&](const connection& c) {
                return c.id == event.id();
            };
            std::find_if(all.begin(), all.end(), is_of)->set_peer(event.ud_param());
            ++found;
            break;
        }
        default: throw rdmaxx::unexpected_event(event.snapshot(), cm_event_type::established);
        }
    }
}

void run_client(const options& o) {
    std::puts("udaddy: starting client");
    const rdmaxx::address source = o.source != nullptr ? rdmaxx::address(o.source, 0) : rdmaxx::address();
    const rdmaxx::addrinfo peer(o.server, port, {.ps = o.ps, .type = rdmaxx::qp_type::ud, .source = source});
    rdmaxx::event_channel channel;
    std::vector<rdmaxx::cm_id> resolving;
    std::list<connection> all;

    std::puts("udaddy: connecting");
    for (unsigned i = 0; i < o.connections; ++i) {
        const rdmaxx::cm_id& id = resolving.emplace_back(channel, o.ps);
        if (o.tos)
            id.set_tos(*o.tos);
        id.resolve_addr(peer.front().source(), peer.front().destination(), seconds(2));
    }
    find_server(channel, resolving, all, o);

    if (o.count != 0) {
        std::puts("initiating data transfers");
        for (const connection& c : all)
            c.send_all();
        std::puts("receiving data transfers");
        for (connection& c : all) {
            c.wait_for_sends();
            c.wait_for_receives();
        }
        std::puts("data transfers complete");
    }
}

constexpr const char* usage = R"(udaddy [-b address] [options]             server
udaddy -s address [-b address] [options]  client
  -s address      to send to
  -b address      to listen on (default: every IPv4 address; -b :: is every address), or to send from
  -P udp|ipoib    port space (default: udp)
  -c connections  (default: 1)
  -C count        datagrams over each connection (default: 10)
  -S size         bytes of a datagram (default: 100)
  -t tos          type of service, of a client
  -w seconds      to wait for the next event or datagram (default: 60)
)";

unsigned number(const char* text, unsigned least, unsigned most) {
    unsigned value = 0;
    const char* const last = text + std::strlen(text);
    const auto [end, error] = std::from_chars(text, last, value);
    if (error != std::errc() || end != last || value < least || value > most)
        throw std::invalid_argument(std::string("out of range, or no number: ") + text);
    return value;
}

rdmaxx::port_space port_space(const std::string& name) {
    if (name != "udp" && name != "ipoib")
        throw std::invalid_argument("no port space of datagrams: " + name);
    return name == "ipoib" ? rdmaxx::port_space::ipoib : rdmaxx::port_space::udp;
}

} // namespace

int main(int argc, char** argv) try {
    options o;
    for (int letter = 0; (letter = ::getopt(argc, argv, "s:b:P:c:C:S:t:w:")) != -1;)
        switch (letter) {
        case 's': o.server = optarg; break;
        case 'b': o.source = optarg; break;
        case 'P': o.ps = port_space(optarg); break;
        case 'c': o.connections = number(optarg, 1, 10'000); break;
        case 'C': o.count = number(optarg, 0, 100'000); break;
        case 'S': o.size = number(optarg, 1, 1U << 16); break;
        case 't': o.tos = static_cast<std::uint8_t>(number(optarg, 0, 255)); break;
        case 'w': o.patience = seconds(number(optarg, 1, 1'000'000)); break;
        default: return std::fputs(usage, stderr), 1;
        }
    o.server != nullptr ? run_client(o) : run_server(o);
    std::puts("test complete\nreturn status 0");
} catch (const std::invalid_argument& e) {
    return std::fprintf(stderr, "udaddy: %s\n%s", e.what(), usage), 1;
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "udaddy: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "udaddy: %s\n", e.what()), 1;
}
