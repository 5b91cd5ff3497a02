// cmtime: how long each step of a connection's life takes, for many connections that take it together. Both roles, on
// the wire that of rdma-core's librdmacm/examples/cmtime.c, and the table that this had before rdma-core 50.
//
// What it does better than the C program: one thread does what takes three there, and sleeps where the other one spins;
// a queue pair ends with its connection (there each one stays until the process ends); a client whose connection
// failed has failed; and a server stops cleanly on a signal.
#include <rdmaxx/rdmaxx.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace {

using rdmaxx::cm_event_type;
using std::chrono::steady_clock;

struct options {
    const char *server = nullptr, *source = nullptr, *port = "7471";
    unsigned connections = 100, retries = 2;
    std::chrono::milliseconds timeout{2000};
};

/// A queue pair with all that librdmacm makes for a C program that names no CQ: the id keeps it.
void make_queue_pair(rdmaxx::cm_id& id) {
    rdmaxx::comp_channel send_channel(id.verbs());
    rdmaxx::comp_channel recv_channel(id.verbs());
    const rdmaxx::cq send_cq(id.verbs(), 1, send_channel);
    const rdmaxx::cq recv_cq(id.verbs(), 1, recv_channel);
    id.create_qp(rdmaxx::qp_init_attr(send_cq, recv_cq, 1));
}

// ---- The client.

enum step { create_id, bind_addr, resolve_addr, resolve_route, create_qp, connect, disconnect, destroy, steps };

constexpr std::array<const char*, steps> names{"create id", "bind addr", "resolve addr", "resolve route",
                                               "create qp", "connect",   "disconnect",   "destroy"};

/// One step: from the first call to the last answer.
struct span_of_time {
    steady_clock::time_point start, end;

    void begin() { start = steady_clock::now(); }
    void finish() { end = steady_clock::now(); }
    [[nodiscard]] double us() const { return std::chrono::duration<double, std::micro>(end - start).count(); }
};

struct connection {
    rdmaxx::cm_id id;
    std::array<span_of_time, steps> took;
    unsigned retries = 0;
};

class client {
public:
    explicit client(const options& opts) : o(opts), all(o.connections) {}

    void run() {
        const rdmaxx::address source = o.source != nullptr ? rdmaxx::address(o.source, 0) : rdmaxx::address();
        const rdmaxx::addrinfo peer(o.server, o.port, {.source = source});
        const rdmaxx::address from = peer.front().source();
        const rdmaxx::address to = peer.front().destination();
        const rdmaxx::conn_param param{.responder_resources = 1,
                                       .initiator_depth = 1,
                                       .retry_count = static_cast<std::uint8_t>(o.retries),
                                       .rnr_retry_count = 0};

        take(create_id, "creating id", cm_event_type::none, [&](connection& c) {
            c.id = rdmaxx::cm_id(channel);
            c.id.set_user_context(&c);
        });
        if (source)
            take(bind_addr, "binding source address", cm_event_type::none,
                 [&](const connection& c) { c.id.bind_addr(source); });
        take(resolve_addr, "resolving address", cm_event_type::addr_resolved,
             [&](const connection& c) { c.id.resolve_addr(from, to, o.timeout); });
        take(resolve_route, "resolving route", cm_event_type::route_resolved,
             [&](const connection& c) { c.id.resolve_route(o.timeout); });
        take(create_qp, "creating qp", cm_event_type::none, [](connection& c) { make_queue_pair(c.id); });
        take(connect, "connecting", cm_event_type::established, [&](connection& c) { c.id.connect(param); });
        take(disconnect, "disconnecting", cm_event_type::disconnected, [](connection& c) { c.id.disconnect(); });
        take(destroy, "destroying id", cm_event_type::none, [](connection& c) { c.id.close(); });
    }

    void print() const {
        std::puts("step              total ms     max ms     min us  us / conn");
        for (std::size_t s = create_id; s < steps; ++s) {
            if (s == bind_addr && o.source == nullptr)
                continue;
            const auto less = [s](const connection& a, const connection& b) {
                return a.took[s].us() < b.took[s].us();
            };
            const auto [least, most] = std::minmax_element(all.begin(), all.end(), less);
            std::printf("%-13s: %11.2f%11.2f%11.2f%11.2f\n", names[s], whole[s].us() / 1000, most->took[s].us() / 1000,
                        least->took[s].us(), whole[s].us() / o.connections);
        }
    }

private:
    /// All connections take a step: the action for each, meanwhile and afterwards the answers, where it has any.
    template <class Action>
    void take(step s, const char* words, cm_event_type answer, Action action) {
        std::puts(words);
        whole[s].begin();
        std::size_t begun = 0;
        std::size_t finished = 0;
        while (finished < all.size()) {
            if (begun < all.size()) {
                connection& c = all[begun++];
                c.retries = o.retries;
                c.took[s].begin();
                action(c);
                if (answer == cm_event_type::none) {
                    c.took[s].finish();
                    ++finished;
                    continue;
                }
            }
            const rdmaxx::cm_event event = begun < all.size() ? channel.try_get_cm_event() : channel.get_cm_event();
            if (!event)
                continue;
            connection& c = *event.id().user_context<connection>();
            if (event.type() == answer) {
                c.took[s].finish();
                ++finished;
            } else if (event.type() == cm_event_type::addr_error || event.type() == cm_event_type::route_error) {
                if (c.retries-- == 0)
                    throw rdmaxx::unexpected_event(event.snapshot(), answer);
                action(c);
            } else if (event.type() != cm_event_type::timewait_exit) { // the end of a disconnect's aftermath
                throw rdmaxx::unexpected_event(event.snapshot(), answer);
            }
        }
        whole[s].finish();
    }

    const options& o;
    rdmaxx::event_channel channel;
    std::vector<connection> all;
    std::array<span_of_time, steps> whole;
};

// ---- The server.

/// Readable when a signal to stop has come.
int stop_descriptor() {
    sigset_t signals{};
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    return ::signalfd(-1, &signals, SFD_CLOEXEC);
}

/// Accepts and ends connections until a signal comes.
void run_server(const options& o) {
    const rdmaxx::addrinfo local(o.source, o.port, {.flags = rdmaxx::addrinfo_flags::passive});
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener(channel);
    listener.bind_addr(local.front().source());
    listener.listen(1024);

    std::unordered_map<rdmaxx::cm_id_ref, rdmaxx::cm_id> clients;
    std::vector<rdmaxx::cm_id> gone; // destroyed when no client waits for an answer
    const auto handle = [&](rdmaxx::cm_event event) {
        if (event.type() == cm_event_type::connect_request) {
            rdmaxx::cm_id id = event.take_id(); // it is rejected if it ends before accept
            make_queue_pair(id);
            id.accept();
            clients.emplace(id, std::move(id));
        } else if (event.id() == listener) {
            throw std::runtime_error(std::string("the listener has ended: ") + to_string(event.type()));
        } else if (event.type() != cm_event_type::established) { // disconnected, or never connected
            const rdmaxx::cm_event_type type = event.type();
            auto client = clients.extract(event.id());
            std::move(event).ack(); // an event ends before its id
            if (client && type == cm_event_type::disconnected)
                client.mapped().disconnect();
            if (client)
                gone.push_back(std::move(client.mapped()));
        }
    };
    pollfd fds[] = {{stop_descriptor(), POLLIN, 0}, {channel.fd(), POLLIN, 0}};
    while (::poll(fds, 2, -1) > 0 && fds[0].revents == 0) {
        while (rdmaxx::cm_event event = channel.try_get_cm_event())
            try {
                handle(std::move(event));
            } catch (const rdmaxx::error& e) { // one client's trouble is not the server's
                std::fprintf(stderr, "cmtime: %s\n", e.what());
            }
        gone.clear();
    }
}

constexpr const char* usage = R"(cmtime [-b address] [-p port]                        server
cmtime -s address [-b address] [-p port] [options]  client
  -s address      to connect to
  -b address      to listen on (default: every IPv4 address; -b :: is every address), or to connect from
  -p port         (default: 7471)
  -c connections  (default: 100)
  -r retries      of resolving, and of each packet, 0 to 7 (default: 2)
  -t ms           to resolve address and route, each (default: 2000)
)";

unsigned number(const char* text, unsigned least, unsigned most) {
    unsigned value = 0;
    const char* const last = text + std::strlen(text);
    const auto [end, error] = std::from_chars(text, last, value);
    if (error != std::errc() || end != last || value < least || value > most)
        throw std::invalid_argument(std::string("out of range, or no number: ") + text);
    return value;
}

} // namespace

int main(int argc, char** argv) try {
    options o;
    for (int letter = 0; (letter = ::getopt(argc, argv, "s:b:p:c:r:t:")) != -1;)
        switch (letter) {
        case 's': o.server = optarg; break;
        case 'b': o.source = optarg; break;
        case 'p': o.port = optarg; break;
        case 'c': o.connections = number(optarg, 1, 100'000); break;
        case 'r': o.retries = number(optarg, 0, 7); break;
        case 't': o.timeout = std::chrono::milliseconds(number(optarg, 1, 1'000'000)); break;
        default: return std::fputs(usage, stderr), 1;
        }
    if (o.server == nullptr)
        return run_server(o), 0;
    client timed(o);
    timed.run();
    timed.print();
} catch (const std::invalid_argument& e) {
    return std::fprintf(stderr, "cmtime: %s\n%s", e.what(), usage), 1;
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "cmtime: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "cmtime: %s\n", e.what()), 1;
}
