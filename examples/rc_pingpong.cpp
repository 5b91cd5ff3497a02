// Messages to and fro over a reliable connection that is set up by hand, without librdmacm: the peers tell each other
// their queue pairs over TCP. Speaks to ibv_rc_pingpong of rdma-core, in both roles, and takes its options:
//
//     rc_pingpong [options]          server
//     rc_pingpong [options] host     client
//
// What it does better than the C program: it finds the GID by itself where the port is Ethernet (RoCE has no other
// way), says what is missing when a queue pair is refused, loses no wake-up with -e, and has nothing to clean up.
#include <rdmaxx/verbs.hpp>
#include <rdmaxx/verbs/buf.hpp>
#include <rdmaxx/verbs/iova_mr.hpp>
#include <rdmaxx/verbs/td.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
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
    bool implicit = false;
    bool prefetch = false;
    bool timestamps = false;
    bool device_memory = false;
    bool new_send = false;
    bool unprotected = false;
};

[[noreturn]] void usage(const char* name) {
    std::fprintf(stderr,
                 "%s [options] [host]      without a host: a server\n"
                 "  -p port (18515)  -d device (first)  -i port of it (1)  -g GID index  -l service level (0)\n"
                 "  -s size (4096)   -m path MTU (1024) -r receives (500)  -n exchanges (1000)\n"
                 "  -e sleep for completion events      -c check what arrives\n"
                 "  -o on-demand paging -O of all memory -P prefetched      -t time stamps of the device\n"
                 "  -j device memory    -N the newer way to post sends\n"
                 "  -U memory that a confidential machine's host can read\n",
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
        {"rx-depth", required_argument, nullptr, 'r'},
        {"iters", required_argument, nullptr, 'n'},
        {"sl", required_argument, nullptr, 'l'},
        {"events", no_argument, nullptr, 'e'},
        {"gid-idx", required_argument, nullptr, 'g'},
        {"odp", no_argument, nullptr, 'o'},
        {"iodp", no_argument, nullptr, 'O'},
        {"prefetch", no_argument, nullptr, 'P'},
        {"ts", no_argument, nullptr, 't'},
        {"chk", no_argument, nullptr, 'c'},
        {"dm", no_argument, nullptr, 'j'},
        {"new_send", no_argument, nullptr, 'N'},
        {"allow-cc-unprotected", no_argument, nullptr, 'U'},
        {},
    };
    for (int c = 0; (c = ::getopt_long(argc, argv, "p:d:i:s:m:r:n:l:g:eoOPtcjNU", longer, nullptr)) != -1;)
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
        case 'O': o.on_demand = o.implicit = true; break;
        case 'P': o.prefetch = true; break;
        case 't': o.timestamps = true; break;
        case 'U': o.unprotected = true; break;
        case 'j': o.device_memory = true; break;
        case 'N': o.new_send = true; break;
        default: usage(argv[0]);
        }
    if (optind < argc)
        o.host = argv[optind++];
    if (optind < argc)
        usage(argv[0]);
    if (o.prefetch && !o.on_demand)
        throw std::runtime_error("-P is for memory with on-demand paging: -o or -O");
    if (o.device_memory + o.on_demand + o.unprotected > 1)
        throw std::runtime_error("-j, -U, and -o or -O, are three kinds of memory: one at a time");
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

/// What is asked for and the device has not is told before anything is made.
void check(const rdmaxx::device_attr_ex& device, const options& o) {
    using rdmaxx::odp_transport_caps;
    constexpr odp_transport_caps both = odp_transport_caps::send | odp_transport_caps::recv;
    if (o.on_demand && (device.rc_odp() & both) != both)
        throw std::runtime_error("the device has no on-demand paging for sends and receives");
    if (o.implicit && !has(device.odp(), rdmaxx::odp_general_caps::support_implicit))
        throw std::runtime_error("the device has no on-demand paging of all memory");
    if (o.timestamps && device.completion_timestamp_mask == 0)
        throw std::runtime_error("the device has no time stamps of completions");
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

// ---- The memory: the process's, the device's, or the driver's for -U. Templates, for what older headers lack.

template <class Attr = rdmaxx::parent_domain_attr>
rdmaxx::pd unprotected_pd(const rdmaxx::context& device) {
    if constexpr (requires(Attr attr) { attr.allow_cc_unprotected_alloc(); } && RDMAXX_HAS_BUF)
        return rdmaxx::parent_domain(Attr(rdmaxx::pd(device)).allow_cc_unprotected_alloc());
    else
        throw std::runtime_error("-U needs to be compiled with rdma-core 64");
}

class message_memory {
public:
    message_memory(const rdmaxx::pd& pd, const options& o) {
        if (o.unprotected)
            of_driver(pd, o);
        else
            of_process(pd, o);
        std::fill(bytes_.begin(), bytes_.end(), std::byte{0x7b});
        if (o.device_memory) {
            on_device_ = rdmaxx::dm(pd.context(), o.size);
            on_device_.memcpy_to_dm(0, bytes_);
            region_ = rdmaxx::iova_mr::reg_dm_mr(pd, on_device_, 0, o.size, access::local_write);
            sge = region_.sge();
        }
    }

    rdmaxx::sge sge;

    void fill_pages(std::byte with) const {
        for (std::size_t at = 0; at < bytes_.size(); at += page)
            bytes_[at] = with;
        if (on_device_)
            on_device_.memcpy_to_dm(0, bytes_);
    }
    void check_pages(std::byte expected) const {
        if (on_device_)
            on_device_.memcpy_from_dm(bytes_, 0);
        for (std::size_t at = 0; at < bytes_.size(); at += page)
            if (bytes_[at] != expected)
                throw std::runtime_error("wrong data in page " + std::to_string(at / page));
    }

private:
    void of_process(const rdmaxx::pd& pd, const options& o) {
        if (o.implicit) {
            heap_.resize(o.size);
            bytes_ = heap_;
            region_ = rdmaxx::iova_mr::reg_implicit(pd);
            sge = region_.sge_of(bytes_);
        } else {
            buffer_ = rdmaxx::registered_buffer(pd, o.size,
                                                access::local_write | (o.on_demand ? access::on_demand : access::none));
            bytes_ = buffer_.bytes();
            sge = buffer_.sge();
        }
    }
    template <class Buf = rdmaxx::buf>
    void of_driver(const rdmaxx::pd& pd, const options& o) {
        if constexpr (std::is_constructible_v<Buf, const rdmaxx::pd&, std::size_t>) {
            const Buf made(pd, o.size); // its region keeps it
            bytes_ = made.bytes();
            driver_mr_ = made.reg_mr();
            sge = driver_mr_.sge();
        }
    }

    std::vector<std::byte> heap_;
    rdmaxx::registered_buffer buffer_;
    rdmaxx::dm on_device_;
    rdmaxx::iova_mr region_;
    rdmaxx::mr driver_mr_;
    std::span<std::byte> bytes_;
};

/// What -t prints: how many ticks of the device's clock lie between receives.
class ticks {
public:
    explicit ticks(std::uint64_t mask) : mask_(mask) {}
    void add(std::uint64_t now) {
        if (received_++ > 0) {
            const std::uint64_t delta = (now - last_) & mask_;
            most_ = std::max(most_, delta);
            least_ = std::min(least_, delta);
            sum_ += delta;
        }
        last_ = now;
    }
    void print() const {
        if (received_ > 1)
            std::printf("ticks of the device's clock between receives: most %llu, least %llu, average %.2f\n",
                        static_cast<unsigned long long>(most_), static_cast<unsigned long long>(least_),
                        static_cast<double>(sum_) / static_cast<double>(received_ - 1));
    }

private:
    std::uint64_t mask_;
    std::uint64_t received_ = 0;
    std::uint64_t last_ = 0;
    std::uint64_t most_ = 0;
    std::uint64_t least_ = UINT64_MAX;
    std::uint64_t sum_ = 0;
};

} // namespace

int main(int argc, char** argv) try {
    const options o = parse(argc, argv);
    const rdmaxx::context device = open_device(o);
    const rdmaxx::device_attr_ex can = device.query_device_ex();
    check(can, o);
    const rdmaxx::port_attr port = device.query_port(o.ib_port);
    const rdmaxx::pd pd = o.unprotected ? unprotected_pd(device) : rdmaxx::pd(device);

    const message_memory memory(pd, o);
    if (o.check && o.host != nullptr)
        memory.fill_pages(std::byte{0});
    if (o.prefetch) {
        std::error_code ec;
        rdmaxx::advise_mr(pd, rdmaxx::mr_advice::prefetch_write, std::array{memory.sge}, true, ec);
        if (ec)
            std::fprintf(stderr, "not prefetched: %s\n", ec.message().c_str());
    }

    rdmaxx::comp_channel channel(device);
    rdmaxx::cq plain_cq;
    rdmaxx::cq_ex<rdmaxx::wc_fields::completion_timestamp> stamped;
    if (o.timestamps)
        stamped = decltype(stamped)(device, static_cast<int>(o.rx_depth + 1), channel);
    else
        plain_cq = rdmaxx::cq(device, static_cast<int>(o.rx_depth + 1), channel);
    const rdmaxx::cq_ref cq = o.timestamps ? rdmaxx::cq_ref(stamped) : rdmaxx::cq_ref(plain_cq);
    const rdmaxx::qp_init_attr attr = rdmaxx::qp_init_attr(cq, o.rx_depth).max_send_wr(1);
    rdmaxx::qp plain;
    rdmaxx::qp_ex<rdmaxx::send_ops::send> extended;
    if (o.new_send)
        extended = rdmaxx::qp_ex<rdmaxx::send_ops::send>(pd, attr);
    else
        plain = rdmaxx::qp(pd, attr);
    const rdmaxx::qp_ref qp = o.new_send ? rdmaxx::qp_ref(extended) : rdmaxx::qp_ref(plain);
    qp.modify(qp_attr(qp_state::init).pkey_index(0).port_num(o.ib_port).access_flags(access::none));

    std::uint32_t receives = 0;
    const auto post_receives = [&] {
        for (; receives < o.rx_depth; ++receives)
            qp.post_recv(memory.sge, receive_id);
    };
    const auto post_send = [&] {
        if (!o.new_send)
            return qp.post_send(memory.sge, send_id);
        auto batch = extended.start();
        batch.wr(send_id).signaled().send(memory.sge);
        batch.complete();
    };
    post_receives(); // before the peer knows where to send

    destination mine;
    std::optional<rdmaxx::gid_entry> own;
    mine.lid = port.lid;
    mine.qpn = qp.qp_num();
    mine.psn = std::random_device()() & 0xffffff;
    if (port.is_ethernet() || o.gid_index >= 0)
        own = find_gid(device, o);
    if (own)
        mine.gid = own->gid().raw();
    mine.print("local ");

    destination peer;
    {
        const tcp connection(o);
        std::array<char, destination::wire_size> text{};
        const auto tell = mine.to_wire();
        std::array<char, sizeof "done"> done{"done"};
        if (o.host != nullptr) {
            connection.send(tell.data(), tell.size());
            connection.receive(text.data(), text.size());
            connection.send(done.data(), done.size());
        }
        if (o.host == nullptr)
            connection.receive(text.data(), text.size());
        peer = destination::from_wire(text);
        connect(qp, o, mine, peer, own);
        if (o.host == nullptr) { // ready to receive before the client may send
            connection.send(tell.data(), tell.size());
            connection.receive(done.data(), done.size());
        }
    }
    peer.print("remote");

    // The client begins. Each answers when its last message has left and the peer's has come.
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t pending = receive_id;
    if (o.host != nullptr) {
        post_send();
        pending |= send_id;
    }
    std::uint32_t received = 0;
    std::uint32_t sent = 0;
    const auto completed = [&](std::uint64_t wr_id, rdmaxx::wc_status status) {
        if (status != rdmaxx::wc_status::success)
            throw std::runtime_error(std::string("a request failed: ") + to_string(status));
        if (wr_id == send_id) {
            ++sent;
        } else {
            ++received;
            if (--receives <= 1)
                post_receives();
        }
        pending &= ~wr_id;
        if (pending == 0 && sent < o.iters) {
            post_send();
            pending = send_id | receive_id;
        }
    };
    ticks clock(can.completion_timestamp_mask);
    const auto poll_stamped = [&] {
        bool any = false;
        for (const auto completion : stamped.poll()) {
            any = true;
            if (completion.ok() && completion.wr_id() == receive_id)
                clock.add(*completion.completion_timestamp());
            completed(completion.wr_id(), completion.status());
        }
        return any;
    };
    while (received < o.iters || sent < o.iters) {
        std::array<rdmaxx::wc, 2> room;
        if (!o.timestamps) {
            for (const rdmaxx::wc& completion : o.events ? channel.wait(cq, room) : cq.poll(room))
                completed(completion.wr_id(), completion.status());
        } else if (!poll_stamped() && o.events) {
            cq.request_notify();
            if (!poll_stamped()) // it may have come before that
                static_cast<void>(channel.get_cq_event());
        }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const double bytes = 2.0 * o.size * o.iters;
    std::printf("%.0f bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, took.count(), bytes * 8 / took.count() / 1e6);
    std::printf("%u iters in %.2f seconds = %.2f usec/iter\n", o.iters, took.count(), took.count() / o.iters * 1e6);

    clock.print();
    if (o.check && o.host == nullptr)
        memory.check_pages(std::byte{0});
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "rc_pingpong: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "rc_pingpong: %s\n", e.what()), 1;
}
