// Latency and bandwidth of send, RDMA write, RDMA read and atomics, by both ways of posting requests: what perftest's
// ib_send_lat, ib_write_bw and their kin measure, in one program and one table.
//
//     perf [-p port]                          server, for one client after the other
//     perf [options] host[:port]              client
//         -n rounds (1000)  -s bytes (8)  -w bytes for bandwidth (65536)  -e the operations: send,write,read,atomic
//         -I most bytes that are sent inline (236, where the device takes as many: perftest's default)
//         --plot file.svg                     the latencies' percentiles, as a picture
//
// Latency is half of a round trip for send and write (two sides that answer each other), as perftest has it, and the
// whole of one for read and atomics, in which only the device takes part at the other end.
#include <rdmaxx/rdmaxx.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <getopt.h>

using namespace std::chrono_literals;
using rdmaxx::send_ops;
using rdmaxx::send_wr;

namespace {

using clock = std::chrono::steady_clock;

constexpr std::uint32_t depth = 64;
constexpr std::uint32_t most_inline = 236;
constexpr std::size_t memory_size = std::size_t{1} << 20;
constexpr send_ops ops = send_ops::send | send_ops::rdma_write | send_ops::rdma_read | send_ops::atomic_fetch_and_add;
constexpr rdmaxx::access all = rdmaxx::access::local_write | rdmaxx::access::remote_write |
                               rdmaxx::access::remote_read | rdmaxx::access::remote_atomic;

/// What the client asks the server to play. Every run starts with one, sent; the server's answer is its memory.
struct run {
    char operation = 0; // 's'end and 'w'rite are answered; for others the server only waits for the next; 'q'uit
    std::uint32_t size = 0;
    std::uint32_t rounds = 0;
    std::uint32_t most_inline = 0;
};

/// One end: a connection with its memory: pages for messages, and what the peers write and read.
class end {
public:
    end(rdmaxx::cm_id& id, rdmaxx::pd_ref domain)
        : memory_(memory_size), cq_(id.verbs(), static_cast<int>(4 * depth)), mr_(domain, memory_, all) {
        rdmaxx::qp_init_attr attr(cq_, depth);
        attr.max_inline_data(most_inline);
        attr.max_inline_data(rdmaxx::qp::probe_max_inline_data(domain, attr));
        // Both ways of posting on one queue pair.
        extended_ = rdmaxx::qp_ex_ref<ops>(id.create_qp_ex(domain, rdmaxx::qp_init_attr_ex(attr).send_ops_flags(ops)));
        qp_ = extended_;
        granted_inline_ = attr.raw().cap.max_inline_data;
        receive();
        receive(); // one more than is under way: it is posted again when the answer has left
    }

    void receive() { qp_.post_recv(mr_.sge(page * (posted_++ % 2), page), receive_id); }

    /// Waits for the next message, and makes room for another.
    template <class Value>
    Value next() {
        wait(receive_id);
        Value value;
        std::memcpy(&value, memory_.data() + page * (posted_ % 2), sizeof value); // of the two the older one
        receive();
        return value;
    }
    template <class Value>
    void tell(const Value& value) {
        std::memcpy(memory_.data() + 2 * page, &value, sizeof value);
        qp_.post_send(mr_.sge(2 * page, sizeof value), send_id);
        wait(send_id);
    }

    /// Of what is sent and written from now on.
    void inline_up_to(std::uint32_t bytes) { inline_ = std::min(bytes, granted_inline_); }

    /// Posts one request of an operation.
    void post(char operation, bool extended, std::uint32_t size, const rdmaxx::remote_buffer& peer) {
        const rdmaxx::sge from = mr_.sge(data, size);
        const bool inlined = size <= inline_ && (operation == 's' || operation == 'w');
        const auto wr = [&] {
            switch (operation) {
            case 's': return send_wr::send(from);
            case 'w': return send_wr::rdma_write(from, peer);
            case 'r': return send_wr::rdma_read(from, peer);
            default: return send_wr::atomic_fetch_and_add(from, peer, 1);
            }
        };
        if (!extended) {
            send_wr request = wr().wr_id(send_id).signaled();
            return qp_.post_send(inlined ? request.inlined() : request);
        }
        const rdmaxx::inline_data bytes(memory_.data() + data, size);
        auto batch = extended_.start();
        auto next = batch.wr(send_id);
        next.signaled();
        switch (operation) {
        case 's': inlined ? next.send(bytes) : next.send(from); break;
        case 'w': inlined ? next.rdma_write(bytes, peer) : next.rdma_write(from, peer); break;
        case 'r': next.rdma_read(from, peer); break;
        default: next.atomic_fetch_and_add(from, peer, 1); break;
        }
        batch.complete();
    }

    /// Polls until as many requests of that kind have completed.
    void wait(std::uint64_t wr_id, std::uint32_t count = 1) {
        const auto completed = [&]() -> std::uint32_t& {
            return wr_id == send_id ? sent_ : received_;
        };
        while (completed() < count) {
            for (const rdmaxx::wc& completion : cq_.poll(room_)) {
                if (!completion.ok())
                    throw std::runtime_error(std::string("a request failed: ") + to_string(completion.status()));
                ++(completion.wr_id() == send_id ? sent_ : received_);
            }
        }
        completed() -= count;
    }

    /// The last byte of what a peer writes here: it changes with each round.
    void set_last(std::uint32_t size, std::uint8_t value) { last(size) = value; }
    void wait_for_last(std::uint32_t size, std::uint8_t value) {
        while (__atomic_load_n(&last(size), __ATOMIC_ACQUIRE) != value)
            ;
    }
    /// And of what it writes there: the same place of the other half.
    void set_outgoing(std::uint32_t size, std::uint8_t value) {
        memory_[data + size - 1] = static_cast<std::byte>(value);
    }

    [[nodiscard]] rdmaxx::remote_buffer incoming() const { return mr_.remote().part(memory_size / 2, memory_size / 2); }

    static constexpr std::uint64_t receive_id = 1;
    static constexpr std::uint64_t send_id = 2;

private:
    static constexpr std::size_t page = 4096; // two to receive in, one to tell from, then what is sent and written
    static constexpr std::size_t data = 3 * page;

    std::uint8_t& last(std::uint32_t size) {
        return reinterpret_cast<std::uint8_t&>(memory_[memory_size / 2 + size - 1]);
    }

    std::vector<std::byte> memory_;
    rdmaxx::cq cq_;
    rdmaxx::mr mr_;
    rdmaxx::qp_ref qp_;
    rdmaxx::qp_ex_ref<ops> extended_;
    std::array<rdmaxx::wc, 16> room_;
    std::uint32_t granted_inline_ = 0;
    std::uint32_t inline_ = 0;
    std::size_t posted_ = 0;
    std::uint32_t sent_ = 0;
    std::uint32_t received_ = 0;
};

// ---- Server

void serve(end& local) {
    local.tell(local.incoming());
    const auto peer = local.next<rdmaxx::remote_buffer>();
    for (run next = local.next<run>(); next.operation != 'q'; next = local.next<run>()) {
        if (next.operation != 's' && next.operation != 'w')
            continue;
        local.set_last(next.size, 0);
        local.inline_up_to(next.most_inline);
        local.tell(next); // go
        for (std::uint32_t i = 1; i <= next.rounds; ++i) {
            if (next.operation == 's') {
                local.wait(end::receive_id);
            } else {
                local.wait_for_last(next.size, static_cast<std::uint8_t>(i % 255 + 1));
                local.set_outgoing(next.size, static_cast<std::uint8_t>(i % 255 + 1));
            }
            local.post(next.operation, false, next.size, peer);
            if (next.operation == 's')
                local.receive();
            local.wait(end::send_id);
        }
    }
}

int server(std::uint16_t port) {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener(channel);
    listener.bind_addr(rdmaxx::address("::", port));
    listener.listen();
    for (;;) {
        rdmaxx::cm_event event = channel.get_cm_event();
        if (event.type() != rdmaxx::cm_event_type::connect_request)
            continue;
        rdmaxx::cm_id id = event.take_id();
        std::move(event).ack();
        try {
            end local(id, id.pd());
            id.accept();
            channel.expect_and_ack(id, rdmaxx::cm_event_type::established);
            serve(local);
            channel.expect_and_ack(id, rdmaxx::cm_event_type::disconnected, clock::now() + 10s);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "perf: %s\n", e.what()); // that client's; the next may do better
        }
    }
}

// ---- Client

struct result {
    std::string name;
    std::vector<double> latencies; // microseconds, sorted
    double megabytes_per_second = 0;

    [[nodiscard]] double percentile(double p) const {
        return latencies[std::min(latencies.size() - 1,
                                  static_cast<std::size_t>(p / 100 * static_cast<double>(latencies.size())))];
    }
};

struct options {
    std::uint32_t rounds = 1000;
    std::uint32_t size = 8;
    std::uint32_t wide = 65536;
    std::uint32_t most_inline = ::most_inline;
    std::string operations = "swra";
    std::string plot;
    std::uint16_t port = 18515;
};

/// From post to post, a round trip each, as perftest has it: the peer answers sends and writes; of reads and atomics
/// the completion is the answer.
std::vector<double> latencies(end& local, const rdmaxx::remote_buffer& peer, char operation, bool extended,
                              const options& o) {
    const bool answered = operation == 's' || operation == 'w';
    const std::uint32_t size = operation == 'a' ? 8 : o.size;
    local.set_last(size, 0);
    local.inline_up_to(o.most_inline);
    local.tell(run{operation, size, o.rounds, o.most_inline});
    if (answered)
        static_cast<void>(local.next<run>());
    std::vector<double> took;
    took.reserve(o.rounds);
    auto before = clock::now();
    for (std::uint32_t i = 1; i <= o.rounds; ++i) {
        const auto value = static_cast<std::uint8_t>(i % 255 + 1);
        if (operation == 'w')
            local.set_outgoing(size, value);
        local.post(operation, extended, size, peer);
        if (operation == 'w')
            local.wait_for_last(size, value);
        if (operation == 's')
            local.wait(end::receive_id);
        if (!answered)
            local.wait(end::send_id);
        if (operation == 's')
            local.receive();
        if (answered)
            local.wait(end::send_id);
        const auto now = clock::now();
        const std::chrono::duration<double, std::micro> round = now - before;
        before = now;
        took.push_back(answered ? round.count() / 2 : round.count());
    }
    std::sort(took.begin(), took.end());
    return took;
}

/// Of writes, reads and atomics: as many under way as the queue holds. (A send needs the peer's receives in time.)
double bandwidth(end& local, const rdmaxx::remote_buffer& peer, char operation, bool extended, const options& o) {
    const std::uint32_t size = operation == 'a' ? 8 : o.wide;
    std::uint32_t posted = 0;
    std::uint32_t done = 0;
    const auto start = clock::now();
    while (done < o.rounds) {
        for (; posted < o.rounds && posted - done < depth; ++posted)
            local.post(operation, extended, size, peer);
        local.wait(end::send_id);
        ++done;
    }
    const std::chrono::duration<double, std::micro> took = clock::now() - start;
    return static_cast<double>(size) * o.rounds / took.count();
}

void print(const std::vector<result>& results) {
    std::printf("%-24s %9s %9s %9s %9s %9s %9s %12s\n", "microseconds", "min", "median", "average", "99%", "99.9%",
                "max", "MB/s");
    for (const result& r : results) {
        double sum = 0;
        for (const double one : r.latencies)
            sum += one;
        std::printf("%-24s %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f", r.name.c_str(), r.latencies.front(), r.percentile(50),
                    sum / static_cast<double>(r.latencies.size()), r.percentile(99), r.percentile(99.9),
                    r.latencies.back());
        if (r.megabytes_per_second > 0)
            std::printf(" %12.2f", r.megabytes_per_second);
        std::printf("\n");
    }
}

/// Latency over percentile: the right half of the picture is the slowest hundredth.
void plot(const std::vector<result>& results, const std::string& file) {
    std::FILE* out = std::fopen(file.c_str(), "w");
    if (out == nullptr)
        throw std::system_error(errno, std::system_category(), file);
    constexpr std::array<double, 9> percentiles = {0, 25, 50, 75, 90, 95, 99, 99.9, 100};
    constexpr std::array<const char*, 8> colours = {"#1b6ca8", "#5fa8d3", "#c1440e", "#f08a4b",
                                                    "#2d6a4f", "#74c69d", "#6a4c93", "#b8a1d9"};
    constexpr int left = 70;
    constexpr int top = 30;
    constexpr int step = 70;
    constexpr int height = 320;
    double most = 0;
    for (const result& r : results)
        most = std::max(most, r.percentile(99.9));
    const auto x = [&](std::size_t i) {
        return left + step * static_cast<int>(i);
    };
    const auto y = [&](double value) {
        return top + height * (1 - std::min(value, most) / most);
    };
    std::fprintf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"420\" font-family=\"sans-serif\" "
                 "font-size=\"12\">\n<rect width=\"900\" height=\"420\" fill=\"white\"/>\n"
                 "<text x=\"%d\" y=\"18\">Latency in microseconds, by percentile</text>\n",
                 left);
    for (int i = 0; i <= 4; ++i) {
        const double value = most * i / 4;
        std::fprintf(out,
                     "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                     "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f</text>\n",
                     left, x(percentiles.size() - 1), y(value), y(value), left - 8, y(value) + 4, value);
    }
    for (std::size_t i = 0; i < percentiles.size(); ++i)
        std::fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%g%%</text>\n", x(i), top + height + 20,
                     percentiles[i]);
    for (std::size_t k = 0; k < results.size(); ++k) {
        const char* colour = colours[k % colours.size()];
        std::fprintf(out, R"(<polyline fill="none" stroke="%s" stroke-width="2" points=")", colour);
        for (std::size_t i = 0; i < percentiles.size(); ++i)
            std::fprintf(out, "%d,%.1f ", x(i), y(results[k].percentile(percentiles[i])));
        std::fprintf(out, "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", x(percentiles.size() - 1) + 20,
                     top + 14 + 18 * static_cast<int>(k), colour, results[k].name.c_str());
    }
    std::fprintf(out, "</svg>\n");
    std::fclose(out);
}

int client(const std::string& where, const options& o) {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    const bool has_port = where.rfind(':') != std::string::npos && where.find(':') == where.rfind(':');
    rdmaxx::resolve(channel, id,
                    has_port ? rdmaxx::address::parse(where.c_str()) : rdmaxx::address(where.c_str(), o.port), 2s);
    end local(id, id.pd());
    id.connect();
    channel.expect_and_ack(id, rdmaxx::cm_event_type::established);
    const auto peer = local.next<rdmaxx::remote_buffer>();
    local.tell(local.incoming());

    std::vector<result> results;
    for (const char operation : o.operations)
        for (const bool extended : {false, true}) {
            const char* name = operation == 's'   ? "send"
                               : operation == 'w' ? "write"
                               : operation == 'r' ? "read"
                                                  : "atomic";
            result r;
            r.name = std::string(name) + (extended ? ", ibv_wr_complete" : ", ibv_post_send");
            r.latencies = latencies(local, peer, operation, extended, o);
            if (operation != 's')
                r.megabytes_per_second = bandwidth(local, peer, operation, extended, o);
            results.push_back(r);
        }
    local.tell(run{'q'});
    id.disconnect();
    print(results);
    if (!o.plot.empty())
        plot(results, o.plot);
    return 0;
}

[[noreturn]] void usage() {
    std::fprintf(
        stderr,
        "perf [-p port]                 server\n"
        "perf [-p port] [-n rounds] [-s bytes] [-w bytes] [-I bytes] [-e send,write,read,atomic] [--plot file.svg] "
        "host[:port]\n");
    std::exit(1);
}

} // namespace

int main(int argc, char** argv) try {
    options o;
    const auto number = [](long most, long least = 1) {
        char* end = nullptr;
        const long value = std::strtol(optarg, &end, 0);
        if (*end != '\0' || value < least || value > most)
            usage();
        return static_cast<std::uint32_t>(value);
    };
    constexpr option longer[] = {{"plot", required_argument, nullptr, 'P'}, {nullptr, 0, nullptr, 0}};
    for (int c = 0; (c = ::getopt_long(argc, argv, "p:n:s:w:I:e:", longer, nullptr)) != -1;)
        switch (c) {
        case 'p': o.port = static_cast<std::uint16_t>(number(65535)); break;
        case 'n': o.rounds = number(100'000'000); break;
        case 's': o.size = number(4096); break;
        case 'w': o.wide = number(memory_size / 4); break;
        case 'I': o.most_inline = number(most_inline, 0); break;
        case 'e':
            o.operations.clear();
            for (std::string_view rest = optarg; !rest.empty();) {
                const std::string_view one = rest.substr(0, rest.find(','));
                if (one != "send" && one != "write" && one != "read" && one != "atomic")
                    usage();
                o.operations += one[0];
                rest.remove_prefix(std::min(rest.size(), one.size() + 1));
            }
            break;
        case 'P': o.plot = optarg; break;
        default: usage();
        }
    if (optind + 1 < argc)
        usage();
    return optind < argc ? client(argv[optind], o) : server(o.port);
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "perf: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "perf: %s\n", e.what()), 1;
}
