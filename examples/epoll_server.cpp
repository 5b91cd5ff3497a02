// A thousand connections in one thread: one event channel, one completion channel, one epoll(7) set with edge triggers.
//
//     epoll_server address:port                  sends back what it receives, until SIGINT or SIGTERM
//     epoll_server address:port connections      so many clients at once, each with a message; then they all leave
//
// An edge trigger tells once that something has arrived. So each descriptor is read until it has nothing more, by
// try_get_cm_event() and try_get_cq_event(), and completions are polled after the next event has been asked for.
#include <rdmaxx/rdmaxx.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace {

using rdmaxx::cm_event_type;
using namespace std::chrono_literals;

constexpr std::size_t message_size = 64;
constexpr unsigned most_connections = 2000;

const int stop_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

extern "C" void stop(int) {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(stop_fd, &one, sizeof one)); // what a signal handler may do
}

struct connection {
    rdmaxx::cm_id id; // empty: free
    std::size_t number = 0;
};

/// What a server and its clients have in common. They differ in what they do about an event and a message.
class endpoint {
public:
    /// @param bound an id that has a device: one for all connections
    endpoint(rdmaxx::event_channel& events, const rdmaxx::cm_id& bound, unsigned most)
        : channel(events), device(bound), pd(device), completions(device),
          cq(device, static_cast<int>(4 * most), completions), // and the rest of connections that have ended
          buffers(most * message_size), memory(pd, buffers), connections(most) {
        for (std::size_t i = 0; i < most; ++i)
            connections[i].number = i;
    }
    virtual ~endpoint() = default;
    endpoint(const endpoint&) = delete;
    endpoint& operator=(const endpoint&) = delete;

    virtual void on_event(rdmaxx::cm_event event) = 0;
    virtual void on_completion(connection& of, const rdmaxx::wc& wc) = 0;

    void run() {
        const int set = ::epoll_create1(EPOLL_CLOEXEC);
        for (const int fd : {channel.fd(), completions.fd(), stop_fd}) {
            epoll_event wanted{EPOLLIN | EPOLLET, {.fd = fd}};
            if (::epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted) != 0)
                throw std::system_error(errno, std::system_category(), "epoll_ctl");
        }
        cq.request_notify();
        for (bool stopped = false; !stopped && !finished;) {
            std::array<epoll_event, 3> ready{};
            const int count = ::epoll_wait(set, ready.data(), ready.size(), -1); // -1 for a signal
            for (const epoll_event& each : std::span(ready).first(static_cast<std::size_t>(std::max(count, 0))))
                if (each.data.fd == channel.fd())
                    drain_events();
                else if (each.data.fd == completions.fd())
                    drain_completions();
                else
                    stopped = true;
        }
        ::close(set);
    }

protected:
    void prepare(connection& with) {
        with.id.set_user_context(&with);
        with.id.create_qp(pd, rdmaxx::qp_init_attr(cq, 1));
        receive(with); // before connect and accept: the peer may send at once
    }
    void receive(const connection& from) const { from.id.qp().post_recv(buffer(from), from.number); }
    void send(const connection& to, std::size_t size) const { to.id.qp().post_send(buffer(to, size), to.number); }
    rdmaxx::sge buffer(const connection& of, std::size_t size = message_size) const {
        return memory.sge(of.number * message_size, size);
    }

    rdmaxx::event_channel& channel;
    rdmaxx::context device;
    rdmaxx::pd pd;
    rdmaxx::comp_channel completions;
    rdmaxx::cq cq;
    std::vector<std::byte> buffers; // one message for each connection
    rdmaxx::mr memory;
    std::vector<connection> connections;
    bool finished = false;

private:
    void drain_events() {
        while (rdmaxx::cm_event event = channel.try_get_cm_event())
            on_event(std::move(event));
    }

    void drain_completions() {
        rdmaxx::cq_event events; // one ack for all
        while (rdmaxx::cq_event event = completions.try_get_cq_event())
            events += std::move(event);
        cq.request_notify(); // before polling: what comes after raises the next event
        std::array<rdmaxx::wc, 64> done;
        for (auto some = cq.poll(done); !some.empty(); some = cq.poll(done))
            for (const rdmaxx::wc& wc : some)
                // A queue pair that was destroyed may have left something behind.
                if (connection& of = connections[wc.wr_id()]; wc.ok() && of.id && of.id.qp().qp_num() == wc.qp_num())
                    on_completion(of, wc);
    }
};

class server : public endpoint {
public:
    server(rdmaxx::event_channel& events, const rdmaxx::cm_id& listener)
        : endpoint(events, listener, most_connections) {
        for (connection& each : connections)
            unused_.push_back(&each);
    }

    void report() const {
        std::printf("%u connections, at most %u at once; %u messages\n", served_, most_at_once_, messages_);
    }

private:
    void on_event(rdmaxx::cm_event event) override try {
        switch (event.type()) {
        case cm_event_type::connect_request:
            if (!unused_.empty()) // otherwise the end of the event tells the client no
                accept(event.take_id());
            return;
        case cm_event_type::established: ++served_; return;
        case cm_event_type::timewait_exit: return;
        default: // disconnected, or never connected
            if (auto* gone = event.id().user_context<connection>()) {
                std::move(event).ack(); // an event ends before its id
                leave(*gone);
            }
        }
    } catch (const rdmaxx::error& e) { // one client's trouble is not the server's
        std::fprintf(stderr, "epoll_server: %s\n", e.what());
    }

    void accept(rdmaxx::cm_id id) {
        connection& added = *unused_.back();
        unused_.pop_back();
        most_at_once_ = std::max(most_at_once_, static_cast<unsigned>(connections.size() - unused_.size()));
        added.id = std::move(id);
        try {
            prepare(added);
            added.id.accept();
        } catch (const rdmaxx::error&) {
            leave(added);
            throw;
        }
    }

    void leave(connection& gone) {
        gone.id = rdmaxx::cm_id();
        unused_.push_back(&gone);
    }

    void on_completion(connection& of, const rdmaxx::wc& wc) override {
        if (!wc.is_recv())
            return receive(of);
        ++messages_;
        send(of, *wc.byte_len());
    }

    std::vector<connection*> unused_;
    unsigned served_ = 0, most_at_once_ = 0, messages_ = 0;
};

class clients : public endpoint {
public:
    clients(rdmaxx::event_channel& events, const rdmaxx::cm_id& bound, const rdmaxx::address& peer, unsigned count)
        : endpoint(events, bound, count), peer_(peer) {
        for (unsigned i = 0; i < 32; ++i) // handshakes at a time
            begin();
    }

    void report() const {
        const auto elapsed = std::chrono::steady_clock::now() - start_;
        std::printf("%zu connections at once, %u answers, %lld ms\n", begun_, answers_,
                    static_cast<long long>(elapsed / 1ms));
    }

private:
    void begin() {
        if (begun_ == connections.size())
            return;
        connection& added = connections[begun_++];
        added.id = rdmaxx::cm_id(channel);
        added.id.set_user_context(&added);
        added.id.resolve_addr(peer_, 2s);
    }

    void on_event(rdmaxx::cm_event event) override {
        connection& of = *event.id().user_context<connection>();
        switch (event.type()) {
        case cm_event_type::addr_resolved: return of.id.resolve_route(2s);
        case cm_event_type::route_resolved: prepare(of); return of.id.connect();
        case cm_event_type::established: send(of, message_size); return begin();
        default: throw std::runtime_error(event.snapshot().to_string());
        }
    }

    void on_completion(connection&, const rdmaxx::wc& wc) override {
        answers_ += wc.is_recv() ? 1U : 0U;
        finished = answers_ == connections.size();
    }

    rdmaxx::address peer_;
    std::size_t begun_ = 0;
    unsigned answers_ = 0;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace

int main(int argc, char** argv) try {
    std::signal(SIGINT, stop);
    std::signal(SIGTERM, stop);
    const auto address = rdmaxx::address::parse(argc > 1 ? argv[1] : "");
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    if (argc > 2) {
        rdmaxx::resolve(channel, id, address, 2s);
        clients all(channel, id, address, static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)));
        all.run();
        all.report();
    } else {
        id.bind_addr(address);
        id.listen(most_connections);
        std::fprintf(stderr, "listening on %s\n", id.local_address().to_string().c_str());
        server one(channel, id);
        one.run();
        one.report();
    }
} catch (const std::exception& e) {
    return std::fprintf(stderr, "epoll_server: %s\n", e.what()), 1;
}
