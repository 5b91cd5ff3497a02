// Messages to and fro over many reliable connections, whose receives come from one shared receive queue. They are set
// up by hand, without librdmacm: the peers tell each other their queue pairs over TCP. Speaks to ibv_srq_pingpong of
// rdma-core, in both roles, and takes its options:
//
//     srq_pingpong [options]          server
//     srq_pingpong [options] host     client
//
// What it does better than the C program: it finds the GID by itself where the port is Ethernet (RoCE has no other
// way), says what is missing when a queue pair is refused, loses no wake-up with -e, and has nothing to clean up.
#include <rdmaxx/verbs.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <getopt.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

using rdmaxx::access;
using rdmaxx::qp_attr;
using rdmaxx::qp_state;

namespace {

struct options {
    const char* host = nullptr; // none: server
    const char* port = "18515";
    const char* device = nullptr; // none: the first
    std::uint8_t ib_port = 1;
    std::uint32_t size = 4096;
    rdmaxx::mtu mtu = rdmaxx::mtu::bytes_1024;
    std::uint32_t rx_depth = 500;
    std::uint32_t iters = 1000;
    std::uint8_t sl = 0;
    int gid_index = -1; // of RoCE: the first that routes
    bool events = false;
    bool check = false;
    bool on_demand = false;
    std::uint32_t num_qp = 16;
};

[[noreturn]] void usage(const char* name) {
    std::fprintf(stderr,
                 "%s [options] [host]      without a host: a server\n"
                 "  -p port (18515)  -d device (first)  -i port of it (1)  -g GID index  -l service level (0)\n"
                 "  -s size (4096)   -m path MTU (1024) -r receives (500)  -n exchanges (1000)\n"
                 "  -e sleep for completion events      -c check what arrives\n"
                 "  -q queue pairs (16)                 -o on-demand paging\n",
                 name);
    std::exit(1);
}

options parse(int argc, char** argv) {
    options o;
    const auto number = [&](long least, long most) {
        char* end = nullptr;
        const long value = std::strtol(optarg, &end, 0);
        if (end == optarg || *end != '\0' || value < least || value > most)
            usage(argv[0]);
        return value;
    };
    constexpr option longer[] = {
        {"port", required_argument, nullptr, 'p'},
        {"ib-dev", required_argument, nullptr, 'd'},
        {"ib-port", required_argument, nullptr, 'i'},
        {"size", required_argument, nullptr, 's'},
        {"mtu", required_argument, nullptr, 'm'},
        {"num-qp", required_argument, nullptr, 'q'},
        {"rx-depth", required_argument, nullptr, 'r'},
        {"iters", required_argument, nullptr, 'n'},
        {"sl", required_argument, nullptr, 'l'},
        {"events", no_argument, nullptr, 'e'},
        {"gid-idx", required_argument, nullptr, 'g'},
        {"odp", no_argument, nullptr, 'o'},
        {"chk", no_argument, nullptr, 'c'},
        {},
    };
    for (int c = 0; (c = ::getopt_long(argc, argv, "p:d:i:s:m:r:n:l:g:q:eoc", longer, nullptr)) != -1;)
        switch (c) {
        case 'p': o.port = optarg; break;
        case 'd': o.device = optarg; break;
        case 'i': o.ib_port = static_cast<std::uint8_t>(number(1, 255)); break;
        case 's': o.size = static_cast<std::uint32_t>(number(1, 1 << 30)); break;
        case 'm': {
            const long bytes = number(256, 4096);
            int code = IBV_MTU_256;
            while (128L << code < bytes)
                ++code;
            o.mtu = static_cast<rdmaxx::mtu>(code);
            break;
        }
        case 'r': o.rx_depth = static_cast<std::uint32_t>(number(1, 1 << 20)); break;
        case 'n': o.iters = static_cast<std::uint32_t>(number(1, 1 << 30)); break;
        case 'l': o.sl = static_cast<std::uint8_t>(number(0, 15)); break;
        case 'g': o.gid_index = static_cast<int>(number(0, 255)); break;
        case 'e': o.events = true; break;
        case 'c': o.check = true; break;
        case 'o': o.on_demand = true; break;
        case 'q': o.num_qp = static_cast<std::uint32_t>(number(1, 256)); break;
        default: usage(argv[0]);
        }
    if (optind < argc)
        o.host = argv[optind++];
    if (optind < argc || o.rx_depth < o.num_qp) // a receive for each queue pair at least
        usage(argv[0]);
    return o;
}

// ---- What the peers tell each other, in the text that the C program uses.

struct destination {
    static constexpr std::size_t wire_size = sizeof "0000:000000:000000:00000000000000000000000000000000";

    unsigned lid = 0;
    unsigned qpn = 0;
    unsigned psn = 0;
    ibv_gid gid{};

    std::array<char, wire_size> to_wire() const {
        std::array<char, wire_size> text{};
        int at = std::snprintf(text.data(), text.size(), "%04x:%06x:%06x:", lid, qpn, psn);
        for (const std::uint8_t byte : gid.raw)
            at += std::snprintf(text.data() + at, text.size() - static_cast<std::size_t>(at), "%02x", byte);
        return text;
    }
    static destination from_wire(const std::array<char, wire_size>& text) {
        destination d;
        int at = 0;
        if (text.back() != '\0' || std::sscanf(text.data(), "%x:%x:%x:%n", &d.lid, &d.qpn, &d.psn, &at) != 3)
            throw std::runtime_error("the peer's address is none");
        for (std::size_t i = 0; i < sizeof d.gid.raw; ++i) {
            unsigned byte = 0;
            std::sscanf(text.data() + at + 2 * i, "%2x", &byte);
            d.gid.raw[i] = static_cast<std::uint8_t>(byte);
        }
        return d;
    }
    void print(const char* whose) const {
        std::printf("  %s address: LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s\n", whose, lid, qpn, psn,
                    rdmaxx::gid(gid).to_string().c_str());
    }
};

class tcp {
public:
    explicit tcp(const options& o) {
        addrinfo hints{};
        hints.ai_socktype = SOCK_STREAM;
        hints.ai_flags = o.host == nullptr ? AI_PASSIVE : 0;
        addrinfo* found = nullptr;
        if (const int error = ::getaddrinfo(o.host, o.port, &hints, &found))
            throw std::runtime_error(::gai_strerror(error));
        for (const addrinfo* at = found; at != nullptr && fd_ < 0; at = at->ai_next)
            o.host != nullptr ? connect(*at) : accept(*at);
        ::freeaddrinfo(found);
        if (fd_ < 0)
            throw std::system_error(errno, std::system_category(), o.host != nullptr ? "connect" : "listen");
    }
    tcp(const tcp&) = delete;
    tcp& operator=(const tcp&) = delete;
    ~tcp() { ::close(fd_); }

    void send(const void* data, std::size_t size) const {
        if (::send(fd_, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
            throw std::runtime_error("the peer is gone");
    }
    void receive(void* data, std::size_t size) const {
        if (::recv(fd_, data, size, MSG_WAITALL) != static_cast<ssize_t>(size))
            throw std::runtime_error("the peer is gone");
    }

private:
    void connect(const addrinfo& at) {
        fd_ = ::socket(at.ai_family, at.ai_socktype, at.ai_protocol);
        if (fd_ >= 0 && ::connect(fd_, at.ai_addr, at.ai_addrlen) != 0)
            ::close(std::exchange(fd_, -1));
    }
    void accept(const addrinfo& at) {
        const int listener = ::socket(at.ai_family, at.ai_socktype, at.ai_protocol);
        const int on = 1;
        ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(listener, at.ai_addr, at.ai_addrlen) == 0 && ::listen(listener, 1) == 0)
            fd_ = ::accept(listener, nullptr, nullptr);
        ::close(listener);
    }

    int fd_ = -1;
};

// ---- The queue pair

rdmaxx::context open_device(const options& o) {
    const rdmaxx::device_list devices;
    const rdmaxx::device_ref device = o.device != nullptr ? devices.find(o.device)
                                      : devices.empty()   ? rdmaxx::device_ref()
                                                          : devices.front();
    if (!device)
        throw std::runtime_error("there is no such RDMA device");
    return rdmaxx::context(device);
}

/// RoCE: the row of the GID table that is asked for, or the first one of RoCE v2 that is not link-local.
std::optional<rdmaxx::gid_entry> find_gid(const rdmaxx::context& device, const options& o) {
    std::optional<rdmaxx::gid_entry> found;
    for (const rdmaxx::gid_entry& row : device.query_gid_table()) {
        if (row.port_num() != o.ib_port)
            continue;
        if (o.gid_index >= 0 ? row.index() == static_cast<unsigned>(o.gid_index)
                             : row.type() == rdmaxx::gid_type::roce_v2 && row.gid().raw().raw[0] != 0xfe)
            return row;
        if (o.gid_index < 0 && !found)
            found = row;
    }
    if (o.gid_index >= 0)
        throw std::runtime_error("the port has no such GID");
    return found;
}

void connect(const rdmaxx::qp_ref& qp, const options& o, const destination& mine, const destination& peer,
             const std::optional<rdmaxx::gid_entry>& own) {
    const rdmaxx::gid to(peer.gid);
    ibv_ah_attr path = own && to ? rdmaxx::ah_attr_to(*own, to) : ibv_ah_attr{};
    path.dlid = static_cast<std::uint16_t>(peer.lid);
    path.sl = o.sl;
    path.port_num = o.ib_port;
    qp.modify(qp_attr(qp_state::rtr)
                  .ah_attr(path)
                  .path_mtu(o.mtu)
                  .dest_qp_num(peer.qpn)
                  .rq_psn(peer.psn)
                  .max_dest_rd_atomic(1)
                  .min_rnr_timer(12));
    qp.modify(qp_attr(qp_state::rts).timeout(14).retry_cnt(7).rnr_retry(7).sq_psn(mine.psn).max_rd_atomic(1));
}

enum : std::uint64_t { receive_id = 1, send_id = 2 };
constexpr std::size_t page = 4096; // whose first byte is checked, and 0

} // namespace

int main(int argc, char** argv) try {
    const options o = parse(argc, argv);
    const rdmaxx::context device = open_device(o);
    using rdmaxx::odp_transport_caps;
    constexpr odp_transport_caps needed =
        odp_transport_caps::send | odp_transport_caps::recv | odp_transport_caps::srq_recv;
    if (o.on_demand && (device.query_device_ex().rc_odp() & needed) != needed)
        throw std::runtime_error("the device has no on-demand paging for sends and shared receives");
    const rdmaxx::port_attr port = device.query_port(o.ib_port);
    const rdmaxx::pd pd(device);

    const rdmaxx::registered_buffer buffer(pd, o.size,
                                           access::local_write | (o.on_demand ? access::on_demand : access::none));
    std::memset(buffer.bytes().data(), 0x7b, o.size);
    if (o.check && o.host != nullptr)
        for (std::size_t at = 0; at < o.size; at += page)
            buffer.bytes()[at] = std::byte{0};
    const rdmaxx::sge memory = buffer.sge();

    rdmaxx::comp_channel channel(device);
    const rdmaxx::cq cq(device, static_cast<int>(o.rx_depth + o.num_qp), channel);
    const rdmaxx::srq srq(pd, {.max_wr = o.rx_depth});
    const rdmaxx::qp_init_attr attr = rdmaxx::qp_init_attr(cq, 1).srq(srq);
    std::vector<rdmaxx::qp> qps;
    for (std::uint32_t i = 0; i < o.num_qp; ++i) {
        qps.emplace_back(pd, attr);
        qps[i].modify(qp_attr(qp_state::init).pkey_index(0).port_num(o.ib_port).access_flags(access::none));
    }

    std::uint32_t receives = 0;
    const auto post_receives = [&] {
        for (; receives < o.rx_depth; ++receives)
            srq.post_recv(memory, receive_id);
    };
    post_receives(); // before the peer knows where to send

    std::optional<rdmaxx::gid_entry> row;
    if (port.is_ethernet() || o.gid_index >= 0)
        row = find_gid(device, o);
    // As the C program does, the peers tell each other 256 of them, whatever they use.
    std::array<destination, 256> mine{};
    std::array<destination, 256> peers{};
    std::random_device random;
    for (std::uint32_t i = 0; i < o.num_qp; ++i) {
        mine[i].lid = port.lid;
        mine[i].qpn = qps[i].qp_num();
        mine[i].psn = random() & 0xffffff;
        if (row)
            mine[i].gid = row->gid().raw();
        mine[i].print("local ");
    }

    {
        const tcp connection(o);
        std::array<char, sizeof "done"> done{"done"};
        const auto tell = [&] {
            for (const destination& d : mine) {
                const auto text = d.to_wire();
                connection.send(text.data(), text.size());
            }
        };
        const auto hear = [&] {
            for (destination& d : peers) {
                std::array<char, destination::wire_size> text{};
                connection.receive(text.data(), text.size());
                d = destination::from_wire(text);
            }
        };
        if (o.host != nullptr) {
            tell();
            hear();
            connection.send(done.data(), done.size());
        } else {
            hear();
        }
        for (std::uint32_t i = 0; i < o.num_qp; ++i)
            connect(qps[i], o, mine[i], peers[i], row);
        if (o.host == nullptr) { // ready to receive before the client may send
            tell();
            connection.receive(done.data(), done.size());
        }
    }
    for (std::uint32_t i = 0; i < o.num_qp; ++i)
        peers[i].print("remote");

    // The client begins. Each answers when its last message has left and the peer's has come.
    const auto start = std::chrono::steady_clock::now();
    struct player {
        rdmaxx::qp_ref qp;
        std::uint64_t pending = receive_id;
    };
    std::unordered_map<std::uint32_t, player> players; // by the number that a completion has
    for (const rdmaxx::qp& qp : qps) {
        player& p = players[qp.qp_num()] = {qp};
        if (o.host != nullptr) {
            qp.post_send(memory, send_id);
            p.pending |= send_id;
        }
    }
    std::uint32_t received = 0;
    std::uint32_t sent = 0;
    while (received < o.iters || sent < o.iters) {
        std::array<rdmaxx::wc, 16> room;
        for (const rdmaxx::wc& completion : o.events ? channel.wait(cq, room) : cq.poll(room)) {
            if (!completion.ok())
                throw std::runtime_error(std::string("a request failed: ") + to_string(completion.status()));
            if (completion.wr_id() == send_id) {
                ++sent;
            } else {
                ++received;
                if (--receives <= o.num_qp)
                    post_receives();
            }
            player& p = players.at(completion.qp_num());
            p.pending &= ~completion.wr_id();
            if (p.pending == 0 && sent < o.iters) {
                p.qp.post_send(memory, send_id);
                p.pending = send_id | receive_id;
            }
        }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const double bytes = 2.0 * o.size * o.iters;
    std::printf("%.0f bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, took.count(), bytes * 8 / took.count() / 1e6);
    std::printf("%u iters in %.2f seconds = %.2f usec/iter\n", o.iters, took.count(), took.count() / o.iters * 1e6);

    if (o.check && o.host == nullptr)
        for (std::size_t at = 0; at < o.size; at += page)
            if (buffer.bytes()[at] != std::byte{0})
                throw std::runtime_error("wrong data in page " + std::to_string(at / page));
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "srq_pingpong: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "srq_pingpong: %s\n", e.what()), 1;
}
