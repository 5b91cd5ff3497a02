// rping, a ping-pong test: both roles, and on the wire that of rdma-core's librdmacm/examples/rping.c.
//
// One ping: the client tells where its text lies, in a message of 16 bytes (address, rkey, length). The
// server reads the text by RDMA and says "go ahead". The client tells where the answer may go, the server
// writes the text there by RDMA and says "go ahead" again. Of the server's messages only the arrival counts.
//
// What it does better than the C program: it is one thread. Each client of a server has all that it uses to
// itself, so that one that misbehaves or vanishes ends alone, and not the server with it. A server takes
// pings of any size and stops cleanly on a signal. A client whose server leaves it has failed.
#include <rdmaxx/rdmaxx.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <list>
#include <stdexcept>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/signalfd.h>

namespace {

using rdmaxx::access;
using rdmaxx::cm_event_type;
using rdmaxx::wc_opcode;

constexpr unsigned least_size = 23, most_size = 64 * 1024 - 1; // room for "rdma-ping-2147483647: "

struct options {
    bool server = false, client = false, persistent = false, verbose = false, validate = false, debug = false;
    const char *address = nullptr, *source = nullptr, *port = "7174";
    unsigned count = 0, size = 64; // a count of 0 has no end
};

void wait_for_any(std::span<pollfd> fds) {
    if (::poll(fds.data(), fds.size(), -1) < 0)
        throw std::system_error(errno, std::system_category(), "poll");
}

/// One end of a connection: what both roles need. Nothing of it is shared with another one.
struct connection {
    /// @param bound an id that has a device: its route is resolved, or it came with a request
    connection(rdmaxx::cm_id bound, const options& opts)
        : o(opts), id(std::move(bound)), completions(id.verbs()), cq(id.verbs(), 8, completions),
          incoming(id.pd(), message), outgoing(id.pd(), offer), qp(id.create_qp(rdmaxx::qp_init_attr(cq, 4))) {
        cq.request_notify();
        qp.post_recv(incoming); // before connect and accept: the peer may send at once
    }

    void send(const rdmaxx::remote_buffer& buffer) {
        buffer.to_bytes(offer);
        qp.post_send(outgoing);
    }

    /// When `completions` is readable: hands on what has completed and, where that is a receive, the message.
    template <class Handler>
    void progress(Handler completed) {
        if (!completions.try_get_cq_event())
            return;
        cq.request_notify(); // before polling: what comes after raises the next event
        std::array<rdmaxx::wc, 8> done;
        for (auto some = cq.poll(done); !some.empty(); some = cq.poll(done))
            for (const rdmaxx::wc& wc : some) {
                if (o.debug)
                    std::printf("%s\n", wc.ok() ? to_string(*wc.opcode()) : to_string(wc.status()));
                if (wc.status() == rdmaxx::wc_status::wr_flush_err)
                    continue; // the connection has ended: an event tells why
                if (!wc.ok())
                    throw std::runtime_error(std::string("a request failed: ") + to_string(wc.status()));
                completed(*wc.opcode(), wc.is_recv() ? take(wc) : rdmaxx::remote_buffer());
            }
    }

    /// A message. The peer sends the next one only after an answer to it, so one receive is enough.
    rdmaxx::remote_buffer take(const rdmaxx::wc& wc) {
        if (wc.byte_len() != message.size())
            throw std::runtime_error("not rping: a message of " + std::to_string(*wc.byte_len()) + " bytes");
        const auto buffer = rdmaxx::remote_buffer::from_bytes(message);
        qp.post_recv(incoming);
        return buffer;
    }

    const options& o;
    rdmaxx::cm_id id; // before what is made from its device
    rdmaxx::comp_channel completions;
    rdmaxx::cq cq;
    std::array<std::byte, rdmaxx::remote_buffer::wire_size> message{}, offer{};
    rdmaxx::mr incoming, outgoing;
    rdmaxx::qp_ref qp;
};

/// A client as the server has it: each completion is a step of a ping.
struct served_client : connection {
    served_client(rdmaxx::cm_id request, const options& opts)
        : connection(std::move(request), opts), // over iWARP, what is read arrives as a write of the peer's
          memory(id.pd(), text, access::local_write | access::remote_write) {
        id.accept();
    }

    void progress() {
        connection::progress([this](wc_opcode what, const rdmaxx::remote_buffer& buffer) {
            if (what == wc_opcode::recv && !to_be_written) { // the client's two buffers come in turn
                size = buffer.length;
                qp.post_send(rdmaxx::send_wr::rdma_read(memory.sge(0, size), buffer).signaled());
            } else if (what == wc_opcode::recv) {
                qp.post_send(rdmaxx::send_wr::rdma_write(memory.sge(0, size), buffer).signaled());
            } else if (what != wc_opcode::send) {
                to_be_written = what == wc_opcode::rdma_read;
                if (to_be_written && o.verbose)
                    std::printf("server ping data: %.*s\n", static_cast<int>(size), text.data());
                send({}); // go ahead
            }
        });
    }

    std::array<char, most_size> text{};
    rdmaxx::mr memory;
    std::size_t size = 0;       // of the text
    bool to_be_written = false; // it was read
};

/// Readable when a signal to stop has come.
int stop_descriptor() {
    sigset_t signals{};
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    return ::signalfd(-1, &signals, SFD_CLOEXEC);
}

/// Serves until a signal; if not persistent, until its one client has gone.
int run_server(const options& o) {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener(channel);
    const rdmaxx::addrinfo local(o.address, o.port, {.flags = rdmaxx::addrinfo_flags::passive});
    listener.bind_addr(local.front().source());
    listener.listen();

    std::list<served_client> clients;
    bool was_used = false;
    bool failed = false;
    // What fails for one client is told, and is of no concern to the others.
    const auto attempt = [&](rdmaxx::cm_id_ref client, auto action) {
        const std::string peer = client.peer_address().to_string();
        try {
            action();
            return true;
        } catch (const std::exception& e) {
            std::fprintf(stderr, "rping: client %s: %s\n", peer.c_str(), e.what());
            failed = true;
            return false;
        }
    };
    const auto handle = [&](rdmaxx::cm_event event) {
        if (o.debug)
            std::printf("%s\n", to_string(event.type()));
        if (event.type() == cm_event_type::connect_request) {
            if (!std::exchange(was_used, true) || o.persistent) // an id that is not taken is rejected
                attempt(event.request(), [&] { clients.emplace_back(event.take_id(), o); });
        } else if (event.id() == listener) {
            throw std::runtime_error(std::string("the listener has ended: ") + to_string(event.type()));
        } else if (event.type() != cm_event_type::established) { // disconnected, or never connected
            failed |= event.type() != cm_event_type::disconnected;
            const rdmaxx::cm_id_ref gone = event.id();
            std::move(event).ack(); // an event ends before its id
            clients.remove_if([&](const served_client& client) { return client.id == gone; });
        }
    };

    for (const int stop = stop_descriptor(); o.persistent || !was_used || !clients.empty();) {
        std::vector<pollfd> fds{{stop, POLLIN, 0}, {channel.fd(), POLLIN, 0}};
        for (const served_client& client : clients)
            fds.push_back({client.completions.fd(), POLLIN, 0});
        wait_for_any(fds);
        if (fds[0].revents != 0)
            return 0;
        auto fd = fds.cbegin() + 2;
        clients.remove_if([&](served_client& client) {
            return (fd++)->revents != 0 && !attempt(client.id, [&] { client.progress(); });
        });
        while (rdmaxx::cm_event event = channel.try_get_cm_event())
            handle(std::move(event));
    }
    return failed ? 1 : 0;
}

/// The ping's number, then the characters from A to z over and over, each ping starting one further.
void compose(std::span<char> text, unsigned ping) {
    const int head = std::snprintf(text.data(), text.size(), "rdma-ping-%u: ", ping);
    for (char& c : text.subspan(static_cast<std::size_t>(head)))
        c = static_cast<char>('A' + ping++ % ('z' - 'A' + 1));
    text.back() = '\0';
}

int run_client(const options& o) {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id bound(channel);
    if (o.source != nullptr)
        bound.bind_addr({o.source, 0});
    const rdmaxx::addrinfo peer(o.address, o.port);
    rdmaxx::resolve(channel, bound, peer.front().destination(), std::chrono::seconds(2));

    connection server(std::move(bound), o);
    std::vector<char> text(o.size);
    std::vector<char> echo(o.size);
    const rdmaxx::mr text_memory(server.id.pd(), text, access::remote_read);
    const rdmaxx::mr echo_memory(server.id.pd(), echo, access::local_write | access::remote_write);
    server.id.connect({.responder_resources = 1, .initiator_depth = 1}); // it reads one text at a time
    channel.expect_and_ack(server.id, cm_event_type::established);

    // Tells the server of a buffer, and waits until it has read or written it.
    const auto offer = [&](const rdmaxx::mr& memory) {
        server.send(memory.remote());
        for (bool answered = false; !answered;) {
            pollfd fds[] = {{server.completions.fd(), POLLIN, 0}, {channel.fd(), POLLIN, 0}};
            wait_for_any(fds);
            if (fds[0].revents != 0)
                server.progress([&](wc_opcode what, const auto&) { answered |= what == wc_opcode::recv; });
            else if (const rdmaxx::cm_event event = channel.try_get_cm_event())
                throw std::runtime_error(std::string("no answer: ") + to_string(event.type()));
        }
    };
    for (unsigned ping = 0; o.count == 0 || ping < o.count; ++ping) {
        compose(text, ping);
        offer(text_memory);
        offer(echo_memory);
        if (o.validate && echo != text)
            throw std::runtime_error("data mismatch in ping " + std::to_string(ping));
        if (o.verbose)
            std::printf("ping data: %.*s\n", static_cast<int>(echo.size()), echo.data());
    }
    server.id.disconnect();
    return 0;
}

constexpr const char* usage = R"(rping -s [-vVdP] [-a address] [-p port]
rping -c [-vVd] [-S size] [-C count] [-I address] -a address [-p port]
  -s, -c      server, client
  -a address  to listen on (default: every IPv4 address; -a :: is every address), or to connect to
  -I address  to connect from
  -p port     (default: 7174)
  -C count    pings (default: without end)
  -S size     bytes of a ping, 23 to 65535 (default: 64)
  -P          the server stays, and serves any number of clients at once
  -v, -V      show the pings' data, compare them with what comes back
  -d          show completions and the server's events
)";

unsigned number(std::string_view text, unsigned least, unsigned most) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error != std::errc() || end != text.end() || value < least || value > most)
        throw std::invalid_argument("out of range, or no number: " + std::string(text));
    return value;
}

} // namespace

int main(int argc, char** argv) try {
    options o;
    for (int letter = 0; (letter = ::getopt(argc, argv, "sca:I:p:C:S:PvVdh")) != -1;)
        switch (letter) {
        case 's': o.server = true; break;
        case 'c': o.client = true; break;
        case 'a': o.address = optarg; break;
        case 'I': o.source = optarg; break;
        case 'p': o.port = optarg; break;
        case 'C': o.count = number(optarg, 0, INT32_MAX); break;
        case 'S': o.size = number(optarg, least_size, most_size); break;
        case 'P': o.persistent = true; break;
        case 'v': o.verbose = true; break;
        case 'V': o.validate = true; break;
        case 'd': o.debug = true; break;
        case 'h': return std::fputs(usage, stdout), 0;
        default: return std::fputs(usage, stderr), EINVAL; // as the C program does
        }
    if (o.server == o.client || (o.client && o.address == nullptr) || optind != argc)
        return std::fputs(usage, stderr), EINVAL;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    return o.server ? run_server(o) : run_client(o);
} catch (const std::invalid_argument& e) {
    return std::fprintf(stderr, "rping: %s\n%s", e.what(), usage), EINVAL;
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "rping: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "rping: %s\n", e.what()), 1;
}
