// ucmatose: any number of connections on one event channel, messages over each of them, and the move of all to another
// channel (-m). Both roles, and on the wire that of rdma-core's librdmacm/examples/cmatose.c.
//
// The server waits until all connections are there, sends its messages over each and awaits as many; the client awaits
// the server's, then sends its own. The server ends the connections.
//
// What it does better than the C program: a failed connection, a failed message or a peer that falls silent ends the
// program with words that tell which; it sleeps where the other one polls; and all that was made ends with it.
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

struct options {
    const char *server = nullptr, *source = nullptr, *port = "7471";
    rdmaxx::port_space ps = rdmaxx::port_space::tcp;
    unsigned connections = 1, count = 10, size = 100;
    std::optional<std::uint8_t> tos, ack_timeout;
    bool migrate = false;
    seconds patience{60};
};

/// One connection, and all that it uses.
struct connection {
    /// @param bound an id that has a device: its route is resolved, or it came with a request
    connection(rdmaxx::cm_id bound, const options& opts)
        : o(opts), id(std::move(bound)), completions(id.verbs()), send_cq(id.verbs(), depth(), completions),
          recv_cq(id.verbs(), depth(), completions), message(id.pd(), o.size),
          qp(id.create_qp(rdmaxx::qp_init_attr(send_cq, recv_cq, o.count + 1))) {
        for (unsigned i = 0; i < o.count; ++i) // before connect and accept: the peer may send at once
            qp.post_recv(message);
    }

    [[nodiscard]] int depth() const { return static_cast<int>(o.count) + 1; }

    void send_all() const {
        for (unsigned i = 0; i < o.count; ++i)
            qp.post_send(message);
    }

    /// Waits for as many completions as there are messages.
    void wait_for_all(const rdmaxx::cq& cq) {
        std::array<rdmaxx::wc, 8> done;
        for (std::size_t left = o.count; left != 0;) {
            const auto some = completions.wait_for(cq, std::span(done).first(std::min(left, done.size())), o.patience);
            if (some.empty())
                throw std::runtime_error(id.peer_address().to_string() + " is silent, with " + std::to_string(left) +
                                         " messages to go");
            for (const rdmaxx::wc& wc : some)
                wc.check();
            left -= some.size();
        }
    }

    const options& o;
    rdmaxx::cm_id id; // before what is made from its device
    rdmaxx::comp_channel completions;
    rdmaxx::cq send_cq, recv_cq;
    rdmaxx::registered_buffer message; // of all of them: nobody reads any
    rdmaxx::qp_ref qp;
};

/// What both roles have: a channel, and the connections of which it tells.
class connections {
public:
    explicit connections(const options& opts) : o(opts) {}

    /// Handles events until all connections are established.
    void connect() {
        for (unsigned established = 0; established < o.connections;) {
            // A server's first client may take its time.
            rdmaxx::cm_event event = next(listener && all.empty() ? seconds::max() : o.patience);
            switch (event.type()) {
            case cm_event_type::addr_resolved: event.id().resolve_route(seconds(2)); break;
            case cm_event_type::route_resolved:
                all.emplace_back(take(std::move(event)), o)
                    .id.connect({.responder_resources = 1, .initiator_depth = 1, .retry_count = 5});
                break;
            case cm_event_type::connect_request: // one too many is rejected
                if (all.size() < o.connections)
                    all.emplace_back(event.take_id(), o).id.accept();
                break;
            case cm_event_type::established: ++established; break;
            default: throw rdmaxx::unexpected_event(event.snapshot(), cm_event_type::established);
            }
        }
    }

    /// Handles events until all connections have ended. Each end is answered with the own one.
    void disconnect() {
        for (unsigned ended = 0; ended < o.connections;) {
            const rdmaxx::cm_event event = next(o.patience);
            if (event.type() != cm_event_type::disconnected)
                continue; // a request that comes too late, or the timewait_exit of another connection
            find(event.id())->id.disconnect();
            ++ended;
        }
    }

    /// Moves all ids to a new channel. The old one ends.
    void migrate() {
        std::puts("migrating to new event channel");
        rdmaxx::event_channel other;
        if (listener)
            listener.migrate(other);
        for (connection& c : all)
            c.id.migrate(other);
        channel = std::move(other);
    }

    const options& o;
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener;               // the server's
    std::vector<rdmaxx::cm_id> resolving; // the client's, until their routes are known
    std::list<connection> all;

private:
    [[nodiscard]] rdmaxx::cm_event next(seconds patience) {
        rdmaxx::cm_event event = channel.get_cm_event_for(patience);
        if (!event)
            throw std::runtime_error("nothing happened for " + std::to_string(patience.count()) + " s");
        return event;
    }

    /// The id of a client's event. The event ends, since the id does if it does not come to a connection.
    [[nodiscard]] rdmaxx::cm_id take(rdmaxx::cm_event event) {
        const auto id = std::find(resolving.begin(), resolving.end(), event.id());
        std::move(event).ack();
        return std::move(*id);
    }
    [[nodiscard]] std::list<connection>::iterator find(rdmaxx::cm_id_ref id) {
        return std::find_if(all.begin(), all.end(), [id](const connection& c) { return c.id == id; });
    }
};

void run_server(const options& o) {
    std::puts("cmatose: starting server");
    const rdmaxx::addrinfo local(o.source, o.port, {.flags = rdmaxx::addrinfo_flags::passive, .ps = o.ps});
    connections server(o);
    server.listener = rdmaxx::cm_id(server.channel, o.ps);
    server.listener.bind_addr(local.front().source());
    server.listener.listen(static_cast<int>(o.connections)); // they may all come at once
    server.connect();

    if (o.count != 0) {
        std::puts("initiating data transfers");
        for (const connection& c : server.all)
            c.send_all();
        std::puts("completing sends");
        for (connection& c : server.all)
            c.wait_for_all(c.send_cq);
        std::puts("receiving data transfers");
        for (connection& c : server.all)
            c.wait_for_all(c.recv_cq);
        std::puts("data transfers complete");
    }
    if (o.migrate)
        server.migrate();
    std::puts("cmatose: disconnecting");
    for (connection& c : server.all)
        c.id.disconnect();
    server.disconnect();
    std::puts("disconnected");
}

void run_client(const options& o) {
    std::puts("cmatose: starting client");
    const rdmaxx::address source = o.source != nullptr ? rdmaxx::address(o.source, 0) : rdmaxx::address();
    const rdmaxx::addrinfo peer(o.server, o.port, {.ps = o.ps, .source = source});
    connections client(o);
    std::puts("cmatose: connecting");
    for (unsigned i = 0; i < o.connections; ++i) {
        const rdmaxx::cm_id& id = client.resolving.emplace_back(client.channel, o.ps);
        if (o.tos)
            id.set_tos(*o.tos);
        if (o.ack_timeout)
            id.set_ack_timeout(*o.ack_timeout);
        id.resolve_addr(peer.front().source(), peer.front().destination(), seconds(2));
    }
    client.connect();

    if (o.count != 0) {
        std::puts("receiving data transfers");
        for (connection& c : client.all)
            c.wait_for_all(c.recv_cq);
        std::puts("sending replies");
        for (const connection& c : client.all)
            c.send_all(); // unwatched: the server may disconnect while the last acknowledgements are under way
        std::puts("data transfers complete");
    }
    if (o.migrate)
        client.migrate();
    client.disconnect();
}

constexpr const char* usage = R"(ucmatose [-b address] [-p port] [options]             server
ucmatose -s address [-b address] [-p port] [options]  client
  -s address      to connect to
  -b address      to listen on (default: every IPv4 address; -b :: is every address), or to connect from
  -p port         (default: 7471)
  -P tcp|ib       port space (default: tcp)
  -c connections  (default: 1)
  -C count        messages over each connection (default: 10)
  -S size         bytes of a message (default: 100)
  -m              move the ids to another event channel when the messages are through
  -t tos          type of service, of a client
  -a timeout      of a lost packet, of a client: 4.096 us * 2^timeout
  -w seconds      to wait for the next event or message (default: 60)
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
    if (name != "tcp" && name != "ib")
        throw std::invalid_argument("no port space for connections: " + name);
    return name == "ib" ? rdmaxx::port_space::ib : rdmaxx::port_space::tcp;
}

} // namespace

int main(int argc, char** argv) try {
    options o;
    for (int letter = 0; (letter = ::getopt(argc, argv, "s:b:p:P:c:C:S:mt:a:w:")) != -1;)
        switch (letter) {
        case 's': o.server = optarg; break;
        case 'b': o.source = optarg; break;
        case 'p': o.port = optarg; break;
        case 'P': o.ps = port_space(optarg); break;
        case 'c': o.connections = number(optarg, 1, 100'000); break;
        case 'C': o.count = number(optarg, 0, 1'000'000); break;
        case 'S': o.size = number(optarg, 1, 1U << 30); break;
        case 'm': o.migrate = true; break;
        case 't': o.tos = static_cast<std::uint8_t>(number(optarg, 0, 255)); break;
        case 'a': o.ack_timeout = static_cast<std::uint8_t>(number(optarg, 0, 31)); break;
        case 'w': o.patience = seconds(number(optarg, 1, 1'000'000)); break;
        default: return std::fputs(usage, stderr), 1;
        }
    o.server != nullptr ? run_client(o) : run_server(o);
    std::puts("test complete\nreturn status 0");
} catch (const std::invalid_argument& e) {
    return std::fprintf(stderr, "ucmatose: %s\n%s", e.what(), usage), 1;
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "ucmatose: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "ucmatose: %s\n", e.what()), 1;
}
