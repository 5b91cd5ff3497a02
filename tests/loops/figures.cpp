// What a channel with many ids and what an idle connection cost, in C and with rdmaxx, in the same run on real verbs.
//
//     tests/rig/rig --timeout 1800 -- BUILD/tests/loops/loops_figures [CONNECTIONS IDS...]
//
// By default 1000 connections, and 10, 100, 1000 and 4000 ids. The tests run it with few of both.
//
// An event: every id on one channel resolves an address and then the route, and when the kernel has all the events, the
// time is taken in which one thread gets and acks them. C and rdmaxx take turns, and the fastest round of each counts:
// what else the machine does makes the others slower.
//
// An idle connection: the memory of a server with so many of them, less what it had before. They share a PD, a CQ and
// the memory for messages; each has an id, and a queue pair with one receive posted. Heap is what malloc has handed
// out, and the check at the end is about that; resident is what the kernel says, with the queues that it shares.
#include <rdmaxx/rdmaxx.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using nanoseconds = std::chrono::duration<double, std::nano>;

constexpr int timeout_ms = 10000;

rdmaxx::address local_address(std::uint16_t port = 0) {
    const char* const text = std::getenv("RIG_ADDR4"); // NOLINT(concurrency-mt-unsafe)
    if (text == nullptr)
        throw std::runtime_error("to be run by the rig: RIG_ADDR4 is not set");
    return {text, port};
}

/// For calls of C, which return 0 or a pointer.
void need(bool good, const char* call) {
    if (!good)
        throw std::system_error(errno, std::system_category(), call);
}

void wait_readable(int fd) {
    pollfd on{fd, POLLIN, 0};
    if (::poll(&on, 1, timeout_ms) != 1)
        throw std::runtime_error("no event");
}

// ---------------------------------------------------------------------------------------------------------------
// Events.

/// How long it took for each event; nothing if it had to wait for one.
using taken = std::optional<double>;

template <class TryGetAndAck>
taken drain(int fd, std::size_t count, TryGetAndAck one) {
    bool waited = false;
    const auto start = steady_clock::now();
    for (std::size_t got = 0; got < count;)
        if (one())
            ++got;
        else {
            waited = true;
            wait_readable(fd);
        }
    const nanoseconds elapsed = steady_clock::now() - start;
    return waited ? std::nullopt : taken(elapsed.count() / static_cast<double>(count));
}

/// Until the kernel has resolved so many: its work is done behind one's back.
void settle(std::size_t count, unsigned tries) {
    std::this_thread::sleep_for((20ms + count * 100us) * (1U << tries));
}

struct round {
    taken address;
    taken route;
};

round events_in_c(std::size_t count, unsigned tries) {
    rdma_event_channel* const channel = ::rdma_create_event_channel();
    need(channel != nullptr, "rdma_create_event_channel");
    need(::fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    std::vector<rdma_cm_id*> ids(count);
    for (rdma_cm_id*& id : ids)
        need(::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    const auto get = [&](rdma_cm_event_type type) {
        rdma_cm_event* event = nullptr;
        if (::rdma_get_cm_event(channel, &event) != 0)
            return need(errno == EAGAIN, "rdma_get_cm_event"), false;
        if (event->event != type)
            throw std::runtime_error(::rdma_event_str(event->event));
        return ::rdma_ack_cm_event(event) == 0;
    };
    round result;
    rdmaxx::address to = local_address(1);
    for (rdma_cm_id* const id : ids)
        need(::rdma_resolve_addr(id, nullptr, const_cast<sockaddr*>(to.data()), timeout_ms) == 0, "rdma_resolve_addr");
    settle(count, tries);
    result.address = drain(channel->fd, count, [&] { return get(RDMA_CM_EVENT_ADDR_RESOLVED); });
    for (rdma_cm_id* const id : ids)
        need(::rdma_resolve_route(id, timeout_ms) == 0, "rdma_resolve_route");
    settle(count, tries);
    result.route = drain(channel->fd, count, [&] { return get(RDMA_CM_EVENT_ROUTE_RESOLVED); });
    for (rdma_cm_id* const id : ids)
        ::rdma_destroy_id(id);
    ::rdma_destroy_event_channel(channel);
    return result;
}

round events_in_rdmaxx(std::size_t count, unsigned tries) {
    rdmaxx::event_channel channel;
    std::vector<rdmaxx::cm_id> ids;
    for (std::size_t i = 0; i < count; ++i)
        ids.emplace_back(channel);
    const auto get = [&](rdmaxx::cm_event_type type) {
        const rdmaxx::cm_event event = channel.try_get_cm_event();
        if (event && event.type() != type)
            throw std::runtime_error(to_string(event.type()));
        return static_cast<bool>(event);
    };
    round result;
    for (rdmaxx::cm_id& id : ids)
        id.resolve_addr(local_address(1), std::chrono::milliseconds(timeout_ms));
    settle(count, tries);
    result.address = drain(channel.fd(), count, [&] { return get(rdmaxx::cm_event_type::addr_resolved); });
    for (rdmaxx::cm_id& id : ids)
        id.resolve_route(std::chrono::milliseconds(timeout_ms));
    settle(count, tries);
    result.route = drain(channel.fd(), count, [&] { return get(rdmaxx::cm_event_type::route_resolved); });
    return result;
}

void time_of_events(const std::vector<std::size_t>& numbers) {
    // The first of a device opens it, and the last closes it: that is no cost of an event.
    const rdmaxx::event_channel channel;
    rdmaxx::cm_id keeps_open(channel);
    keeps_open.bind_addr(local_address());

    std::printf("ns for an event, got and acked\n"
                "   ids | addr_resolved: C  rdmaxx | route_resolved: C  rdmaxx | rounds\n");
    for (const std::size_t count : numbers) {
        constexpr double never = std::numeric_limits<double>::infinity();
        struct fastest {
            double address = never, route = never;
            void take(const round& from) {
                address = std::min(address, *from.address);
                route = std::min(route, *from.route);
            }
        } c, cpp;
        const auto rounds = static_cast<unsigned>(std::clamp<std::size_t>(10000 / count, 10, 100));
        unsigned tries = 0;
        for (unsigned done = 0; done < rounds;) {
            const round in_c = events_in_c(count, tries);
            const round in_cpp = events_in_rdmaxx(count, tries);
            if (!in_c.address || !in_c.route || !in_cpp.address || !in_cpp.route) {
                if (++tries == 8)
                    throw std::runtime_error("the kernel does not get ready with its events");
                continue;
            }
            c.take(in_c);
            cpp.take(in_cpp);
            ++done;
        }
        std::printf("%6zu | %16.0f  %6.0f | %17.0f  %6.0f | %u\n", count, c.address, cpp.address, c.route, cpp.route,
                    rounds);
        std::fflush(stdout);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Memory.

struct memory {
    long heap = 0;
    long resident = 0;
};

memory in_use() {
    memory result{static_cast<long>(::mallinfo2().uordblks + ::mallinfo2().hblkhd), 0};
    std::ifstream mapped("/proc/self/smaps_rollup"); // exact, which VmRSS is not
    for (std::string line; std::getline(mapped, line);)
        if (line.starts_with("Rss:"))
            result.resident = 1024 * std::stol(line.substr(4));
    return result;
}

constexpr std::size_t message_size = 64;

/// Calls `listening` with the port, and `idle` when all are connected. In either language.
using told = std::function<void(std::uint16_t)>;

void serve_in_c(std::size_t count, const told& listening, const std::function<void()>& idle) {
    rdma_event_channel* const channel = ::rdma_create_event_channel();
    need(channel != nullptr, "rdma_create_event_channel");
    rdma_cm_id* listener = nullptr;
    need(::rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    rdmaxx::address at = local_address();
    need(::rdma_bind_addr(listener, const_cast<sockaddr*>(at.data())) == 0, "rdma_bind_addr");
    need(::rdma_listen(listener, static_cast<int>(count)) == 0, "rdma_listen");
    ibv_pd* const pd = ::ibv_alloc_pd(listener->verbs);
    need(pd != nullptr, "ibv_alloc_pd");
    ibv_cq* const cq = ::ibv_create_cq(listener->verbs, static_cast<int>(2 * count), nullptr, nullptr, 0);
    need(cq != nullptr, "ibv_create_cq");
    std::vector<char> buffers(count * message_size);
    ibv_mr* const mr = ::ibv_reg_mr(pd, buffers.data(), buffers.size(), IBV_ACCESS_LOCAL_WRITE);
    need(mr != nullptr, "ibv_reg_mr");
    std::vector<rdma_cm_id*> ids;
    ids.reserve(count);
    listening(::ntohs(::rdma_get_src_port(listener)));
    for (std::size_t established = 0; established < count;) {
        rdma_cm_event* event = nullptr;
        need(::rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            rdma_cm_id* const id = event->id;
            ibv_qp_init_attr attr{};
            attr.qp_type = IBV_QPT_RC;
            attr.send_cq = attr.recv_cq = cq;
            attr.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
            need(::rdma_create_qp(id, pd, &attr) == 0, "rdma_create_qp");
            ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffers.data()) + ids.size() * message_size, message_size,
                        mr->lkey};
            ibv_recv_wr wr{};
            wr.sg_list = &sge;
            wr.num_sge = 1;
            ibv_recv_wr* bad = nullptr;
            need(::ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");
            rdma_conn_param param{};
            param.rnr_retry_count = 7;
            need(::rdma_accept(id, &param) == 0, "rdma_accept");
            ids.push_back(id);
        } else if (event->event == RDMA_CM_EVENT_ESTABLISHED)
            ++established;
        else
            throw std::runtime_error(::rdma_event_str(event->event));
        ::rdma_ack_cm_event(event);
    }
    idle();
    for (rdma_cm_id* const id : ids) {
        ::rdma_destroy_qp(id);
        ::rdma_destroy_id(id);
    }
    ::ibv_dereg_mr(mr);
    ::ibv_destroy_cq(cq);
    ::ibv_dealloc_pd(pd);
    ::rdma_destroy_id(listener);
    ::rdma_destroy_event_channel(channel);
}

void serve_in_rdmaxx(std::size_t count, const told& listening, const std::function<void()>& idle) {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener(channel);
    listener.bind_addr(local_address());
    listener.listen(static_cast<int>(count));
    const rdmaxx::pd pd(listener.verbs());
    const rdmaxx::cq cq(listener.verbs(), static_cast<int>(2 * count));
    std::vector<char> buffers(count * message_size);
    const rdmaxx::mr mr(pd, buffers);
    std::vector<rdmaxx::cm_id> ids;
    ids.reserve(count);
    listening(listener.local_address().port());
    for (std::size_t established = 0; established < count;) {
        rdmaxx::cm_event event = channel.get_cm_event();
        if (event.type() == rdmaxx::cm_event_type::connect_request) {
            rdmaxx::cm_id id = event.take_id();
            const rdmaxx::qp_ref qp = id.create_qp(pd, rdmaxx::qp_init_attr(cq, 1));
            qp.post_recv(mr.sge(ids.size() * message_size, message_size));
            id.accept();
            ids.push_back(std::move(id));
        } else if (event.type() == rdmaxx::cm_event_type::established)
            ++established;
        else
            throw std::runtime_error(event.snapshot().to_string());
    }
    idle();
}

/// The other side: connects so many, and keeps them until `end` is readable.
void connect_all(std::size_t count, std::uint16_t port, int end) {
    rdmaxx::event_channel channel;
    const rdmaxx::address peer = local_address(port);
    rdmaxx::cm_id first(channel);
    rdmaxx::resolve(channel, first, peer, 10s);
    const rdmaxx::pd pd(first.verbs());
    const rdmaxx::cq cq(first.verbs(), static_cast<int>(2 * count));
    std::vector<rdmaxx::cm_id> ids;
    for (std::size_t i = 0; i < count; ++i) {
        rdmaxx::cm_id id = i == 0 ? std::move(first) : rdmaxx::cm_id(channel);
        if (i != 0)
            rdmaxx::resolve(channel, id, peer, 10s);
        id.create_qp(pd, rdmaxx::qp_init_attr(cq, 1));
        id.connect();
        channel.expect_and_ack(id, rdmaxx::cm_event_type::established);
        ids.push_back(std::move(id));
    }
    char byte = 0;
    static_cast<void>(!::read(end, &byte, 1));
}

/// A body in a process of its own, whose heap is its own, too.
pid_t in_process(const std::function<void()>& body) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    need(child >= 0, "fork");
    if (child > 0)
        return child;
    int status = 0;
    try {
        body();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "loops_figures: %s\n", e.what());
        status = 1;
    }
    std::fflush(stdout);
    ::_exit(status);
}

void need_success(pid_t child) {
    int status = 0;
    need(::waitpid(child, &status, 0) == child, "waitpid");
    if (status != 0)
        throw std::runtime_error("a process has failed");
}

template <class T>
void tell(int fd, const T& value) {
    need(::write(fd, &value, sizeof value) == static_cast<ssize_t>(sizeof value), "write");
}

template <class T>
T hear(int fd) {
    T value{};
    need(::read(fd, &value, sizeof value) == static_cast<ssize_t>(sizeof value), "read");
    return value;
}

using server = void(std::size_t, const told&, const std::function<void()>&);

/// For each connection of the server's.
memory memory_of_connections(server& serve, std::size_t count) {
    std::array<int, 2> from{};
    std::array<int, 2> end{};
    need(::pipe2(from.data(), O_CLOEXEC) == 0 && ::pipe2(end.data(), O_CLOEXEC) == 0, "pipe2");
    const pid_t serving = in_process([&] {
        memory before;
        serve(
            count,
            [&](std::uint16_t port) {
                before = in_use();
                tell(from[1], port);
            },
            [&] {
                const memory after = in_use();
                tell(from[1], memory{after.heap - before.heap, after.resident - before.resident});
            });
    });
    ::close(from[1]); // so that its end is heard of
    const auto port = hear<std::uint16_t>(from[0]);
    const pid_t connecting = in_process([&] {
        ::close(end[1]);
        connect_all(count, port, end[0]);
    });
    const auto all = hear<memory>(from[0]);
    for (const int fd : {from[0], end[0], end[1]})
        ::close(fd);
    need_success(serving);
    need_success(connecting);
    const auto each = static_cast<long>(count);
    return {all.heap / each, all.resident / each};
}

bool memory_is_bounded(std::size_t count) {
    const memory c = memory_of_connections(serve_in_c, count);
    const memory cpp = memory_of_connections(serve_in_rdmaxx, count);
    std::printf("bytes for an idle connection, of %zu\n"
                "              C  rdmaxx\n"
                "heap     %6ld  %6ld\n"
                "resident %6ld  %6ld\n",
                count, c.heap, cpp.heap, c.resident, cpp.resident);
    if (cpp.heap <= c.heap + 256)
        return true;
    std::fprintf(stderr, "loops_figures: rdmaxx takes more than 256 bytes of heap for a connection\n");
    return false;
}

} // namespace

int main(int argc, char** argv) try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const std::size_t connections = arguments.empty() ? 1000 : std::stoul(arguments[0]);
    std::vector<std::size_t> ids{10, 100, 1000, 4000};
    if (arguments.size() > 1) {
        ids.clear();
        for (auto each = arguments.begin() + 1; each != arguments.end(); ++each)
            ids.push_back(std::stoul(*each));
    }
    const bool bounded =
        memory_is_bounded(connections); // first: it forks, which is best done before any device is open
    time_of_events(ids);
    return bounded ? 0 : 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "loops_figures: %s\n", e.what()), 1;
}
