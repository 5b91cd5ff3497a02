// rstream: a stream over RDMA (rsocket), back and forth, and how fast it was. Both roles, and on the wire that of
// rdma-core's librdmacm/examples/rstream.c.
//
// The client sends 16 bytes and gets 16 back; then, in each iteration, it sends so many transfers of so many bytes, and
// gets as many. Without sizes of the user's own, a series of them: one connection for latencies, one for bandwidths.
//
// What it does better than the C program: what fails, also data that is not right and a peer that leaves, ends the
// program with words and the status 1; and the sockets end with it.
#include <rdmaxx/cm/rsocket.hpp>
#include <rdmaxx/rdmaxx.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace {

struct options {
    const char *server = nullptr, *source = nullptr, *port = "7471";
    unsigned buffer_size = 1U << 19, inline_size = 64, keepalive = 0;
    unsigned iterations = 1, count = 1000, size = 1000;
    bool custom = false, all_sizes = false; // sizes of the user's own; more of them in the series
    bool blocking = false, async = false, verify = false;
};

/// One connection, from either side.
class stream {
public:
    stream(rdmaxx::rsocket connected, const options& opts) : o(opts), socket(std::move(connected)) {
        socket.set_nonblocking(!o.blocking);
    }

    /// Both sides are ready.
    void greet() {
        buffer.resize(16);
        exchange();
    }

    /// Transfers, and a line about them.
    void run(const std::string& name, unsigned iterations, unsigned count, unsigned size) {
        greet();
        buffer.resize(size);
        const auto start = std::chrono::steady_clock::now();
        for (unsigned i = 0; i < iterations; ++i)
            exchange(count);
        const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
        const std::uint64_t transfers = std::uint64_t{2} * iterations * count;
        const std::uint64_t bytes = transfers * size;
        std::printf("%-10s%-8s%-8s%-8s%-8s%8.2fs%10.2f%11.2f\n", name.c_str(), binary(size).c_str(),
                    decimal(count).c_str(), decimal(iterations).c_str(), binary(bytes).c_str(), us.count() / 1e6,
                    static_cast<double>(bytes) * 8 / (1000 * us.count()), us.count() / static_cast<double>(transfers));
    }

    void end() { socket.shutdown(SHUT_RDWR); }

    /// A number of bytes: 1000, 1.5k, 64k, 3.8m.
    static std::string binary(std::uint64_t n) {
        const char* unit = "";
        std::uint64_t base = 1;
        for (const char* const larger : {"k", "m", "g"})
            if (n / base >= 1024) {
                base *= 1024;
                unit = larger;
            }
        const std::uint64_t tenths = n / base < 10 ? n % base * 10 / base : 0;
        return std::to_string(n / base) + (tenths != 0 ? "." + std::to_string(tenths) : "") + unit;
    }
    /// A number of times: 100, 10k, 1m.
    static std::string decimal(std::uint64_t n) {
        const char* unit = "";
        for (const char* const larger : {"k", "m", "b"})
            if (n >= 1000) {
                n /= 1000;
                unit = larger;
            }
        return std::to_string(n) + unit;
    }

private:
    void exchange(unsigned count = 1) {
        for (const bool sends : {o.server != nullptr, o.server == nullptr}) // the client first
            for (unsigned i = 0; i < count; ++i)
                sends ? send() : receive();
    }

    void send() {
        if (o.verify)
            for (std::byte& b : buffer)
                b = std::byte(sent++);
        transfer("rsend", POLLOUT,
                 [this](std::span<std::byte> rest, std::error_code& ec) { return socket.send(rest, flags(), ec); });
    }

    void receive() {
        transfer("rrecv", POLLIN, [this](std::span<std::byte> rest, std::error_code& ec) {
            const std::size_t size = socket.recv(rest, flags(), ec);
            if (size == 0 && !ec)
                throw std::runtime_error("the peer has closed the connection");
            return size;
        });
        if (o.verify)
            for (const std::byte b : buffer)
                if (b != std::byte(received++))
                    throw std::runtime_error("data verification failed at byte " + std::to_string(received - 1));
    }

    /// The whole buffer, in as many calls as it takes.
    template <class Call>
    void transfer(const char* name, short event, Call call) {
        for (std::span<std::byte> rest(buffer); !rest.empty();) {
            if (o.async) {
                pollfd fds[] = {{socket.native_handle(), event, 0}};
                static_cast<void>(rdmaxx::rpoll(fds, std::chrono::hours::max()));
            }
            std::error_code ec;
            const std::size_t size = call(rest, ec);
            if (ec && ec != std::errc::resource_unavailable_try_again)
                throw std::system_error(ec, name);
            rest = rest.subspan(size);
        }
    }

    [[nodiscard]] int flags() const { return o.blocking ? MSG_WAITALL : MSG_DONTWAIT; }

    const options& o;
    rdmaxx::rsocket socket;
    std::vector<std::byte> buffer;
    std::uint64_t sent = 0, received = 0; // bytes, when they are verified
};

enum class favour { none, latency, bandwidth };

/// Before a connection is made: its queues are, then.
void set_options(rdmaxx::rsocket& socket, favour what, const options& o) {
    socket.setsockopt(SOL_SOCKET, SO_SNDBUF, static_cast<int>(o.buffer_size));
    socket.setsockopt(SOL_SOCKET, SO_RCVBUF, static_cast<int>(o.buffer_size));
    socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);
    if (what != favour::none) // small transfers are copied into the request, or none are
        socket.setsockopt(SOL_RDMA, RDMA_INLINE, what == favour::latency ? static_cast<int>(o.inline_size) : 0);
    if (o.keepalive != 0) {
        socket.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1);
        socket.setsockopt(IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(o.keepalive));
    }
}

rdmaxx::rsocket listen(const options& o) {
    const rdmaxx::addrinfo local(o.source, o.port, {.flags = rdmaxx::addrinfo_flags::passive});
    const rdmaxx::address address = local.front().source();
    rdmaxx::rsocket listener(address.family());
    listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1);
    listener.bind(address);
    listener.listen(1);
    return listener;
}

rdmaxx::rsocket connect(favour what, const options& o) {
    const rdmaxx::addrinfo peer(o.server, o.port);
    const rdmaxx::address address = peer.front().destination();
    rdmaxx::rsocket socket(address.family());
    set_options(socket, what, o);
    if (o.source != nullptr)
        socket.bind({o.source, 0});
    socket.connect(address);
    return socket;
}

/// How often, so that it takes a while at any size.
unsigned times(unsigned size) {
    return size >= 1U << 20 ? 100 : size >= 1U << 16 ? 1000 : size >= 1U << 10 ? 10'000 : 100'000;
}

/// 64 bytes, 4k, 64k, 1m; of all, each power of two from there to 4m, and each one and a half of one.
std::vector<unsigned> sizes(bool all) {
    if (!all)
        return {1U << 6, 1U << 12, 1U << 16, 1U << 20};
    std::vector<unsigned> result{1U << 6};
    for (unsigned size = 1U << 7; size <= 1U << 22; size *= 2) {
        result.push_back(size);
        result.push_back(size + size / 2);
    }
    return result;
}

void run(const options& o) {
    rdmaxx::rsocket listener = o.server == nullptr ? listen(o) : rdmaxx::rsocket();
    const auto next_stream = [&](favour what) {
        if (listener) // what a listener has set, its connections have
            set_options(listener, what, o);
        return stream(listener ? listener.accept() : connect(what, o), o);
    };
    std::puts("name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer");
    if (o.custom) {
        stream s = next_stream(favour::none);
        s.run("custom", o.iterations, o.count, o.size);
        return s.end();
    }
    for (const favour what : {favour::latency, favour::bandwidth}) {
        stream s = next_stream(what);
        for (const unsigned size : sizes(o.all_sizes)) {
            const bool latency = what == favour::latency;
            s.run(stream::binary(size) + (latency ? "_lat" : "_bw"), latency ? times(size) : 1,
                  latency ? 1 : times(size), size);
        }
        s.end();
    }
}

constexpr const char* usage = R"(rstream [-b address] [-p port] [options]             server
rstream -s address [-b address] [-p port] [options]  client
  -s address     to connect to
  -b address     to listen on (default: every IPv4 address; -b :: is every address), or to connect from
  -p port        (default: 7471)
  -I iterations  (default: 1)
  -C count       transfers each way in an iteration (default: 1000)
  -S size        bytes of a transfer (default: 1000); all: a series of many sizes
                 without any of these three: a series of a few sizes
  -B size        of the network buffers (default: 524288)
  -i size        bytes that a request may carry itself when latency counts (default: 64)
  -k seconds     of silence after which the peer is asked for a sign of life
  -T option      b, blocking      calls that block
                 n, nonblocking   calls that do not, again and again (default)
                 a, async         calls that do not, after rpoll
                 v, verify        verify data; both sides need it
)";

unsigned number(const char* text, unsigned least, unsigned most) {
    unsigned value = 0;
    const char* const last = text + std::strlen(text);
    const auto [end, error] = std::from_chars(text, last, value);
    if (error != std::errc() || end != last || value < least || value > most)
        throw std::invalid_argument(std::string("out of range, or no number: ") + text);
    return value;
}

void set_test_option(options& o, std::string_view name) {
    if (name == "b" || name == "blocking")
        o.blocking = true;
    else if (name == "n" || name == "nonblocking")
        o.blocking = false;
    else if (name == "a" || name == "async")
        o.async = true;
    else if (name == "v" || name == "verify")
        o.verify = true;
    else
        throw std::invalid_argument("no test option: " + std::string(name));
}

} // namespace

int main(int argc, char** argv) try {
    options o;
    constexpr unsigned most = 1U << 30;
    for (int letter = 0; (letter = ::getopt(argc, argv, "s:b:p:I:C:S:B:i:k:T:")) != -1;) {
        o.custom = o.custom || letter == 'I' || letter == 'C' || (letter == 'S' && optarg != std::string_view("all"));
        switch (letter) {
        case 's': o.server = optarg; break;
        case 'b': o.source = optarg; break;
        case 'p': o.port = optarg; break;
        case 'I': o.iterations = number(optarg, 1, most); break;
        case 'C': o.count = number(optarg, 1, most); break;
        case 'S':
            if (optarg != std::string_view("all"))
                o.size = number(optarg, 1, most);
            else
                o.all_sizes = true;
            break;
        case 'B': o.buffer_size = number(optarg, 1, most); break;
        case 'i': o.inline_size = number(optarg, 0, most); break;
        case 'k': o.keepalive = number(optarg, 1, most); break;
        case 'T': set_test_option(o, optarg); break;
        default: return std::fputs(usage, stderr), 1;
        }
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    run(o);
} catch (const std::invalid_argument& e) {
    return std::fprintf(stderr, "rstream: %s\n%s", e.what(), usage), 1;
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "rstream: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "rstream: %s\n", e.what()), 1;
}
