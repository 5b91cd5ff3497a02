// Memory that is lent: a server grants each client a memory window on one board. The client draws a ticket from it by
// compare and swap, writes its line there, and says that it is done. Then, or after two seconds, the server takes the
// window back, and what the client tries once more is refused.
//
//     lease address:port              lends its board to one client after the other
//     lease address:port name         draws a ticket, and signs with a name
//     lease address:port name keep    the same, but does not say that it is done
//
// The board itself is registered without remote access: nobody reaches it but by a window, and so long as it is bound.
#include <rdmaxx/rdmaxx.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>

namespace {

using rdmaxx::access;
using rdmaxx::cm_event_type;
using rdmaxx::send_wr;
using namespace std::chrono_literals;

struct board {
    static constexpr std::size_t line_size = 32;

    alignas(8) std::uint64_t next = 0; // the next ticket
    std::array<std::array<char, line_size>, 16> lines{};

    static std::size_t line_at(std::uint64_t ticket) {
        return offsetof(board, lines) + ticket % std::tuple_size_v<decltype(lines)> * line_size;
    }
};

/// One end of a connection, which does one thing after the other.
class end {
public:
    /// @param bound an id that has a device; its events come on this end's own channel from here on
    end(rdmaxx::cm_id bound, const rdmaxx::pd& domain)
        : completions(domain.context()), sends(domain.context(), 4, completions),
          receives(domain.context(), 4, completions), memory(domain, buffer), id(std::move(bound)),
          qp(id.create_qp(domain, rdmaxx::qp_init_attr(sends, receives, 2))) {
        id.migrate(channel);
        for (int i = 0; i < 2; ++i) // before the handshake ends: the peer may send at once
            qp.post_recv(memory.sge(incoming, rdmaxx::remote_buffer::wire_size));
    }

    void expect(cm_event_type type) { channel.expect_and_ack(id, type, std::chrono::steady_clock::now() + 20s); }

    /// Posts a request, and waits for what becomes of it. (From a peer that is gone nothing comes for half a minute.)
    rdmaxx::wc complete(send_wr request) {
        qp.post_send(request.signaled());
        std::array<rdmaxx::wc, 1> done{};
        if (completions.wait_for(sends, done, 10s).empty())
            throw std::runtime_error("the peer does not answer");
        return done[0];
    }
    void send(rdmaxx::sge_list pieces) { complete(send_wr::send(pieces)).check(); }

    /// The peer's next message; empty if none came in time.
    template <class Duration>
    std::optional<rdmaxx::wc> receive(Duration patience) {
        std::array<rdmaxx::wc, 1> done{};
        if (completions.wait_for(receives, done, patience).empty())
            return std::nullopt;
        done[0].check();
        return done[0];
    }

    static constexpr std::size_t incoming = 64;

    alignas(8) std::array<std::byte, 128> buffer{}; // what goes out, and from `incoming` on what comes in
    rdmaxx::event_channel channel;
    rdmaxx::comp_channel completions;
    rdmaxx::cq sends, receives;
    rdmaxx::mr memory;
    rdmaxx::cm_id id; // ends before the memory that its receives are posted with
    rdmaxx::qp_ref qp;
};

void lend(rdmaxx::cm_id request, const rdmaxx::pd& domain, const rdmaxx::mr& region) {
    end client(std::move(request), domain);
    client.id.accept();
    client.expect(cm_event_type::established);

    const rdmaxx::mw window(domain, rdmaxx::mw_type::type_2);
    const rdmaxx::rkey key = inc_rkey(window.rkey());
    const rdmaxx::mw_bind_info all(region, 0, sizeof(board), access::remote_write | access::remote_atomic);
    client.complete(send_wr::bind_mw(window, key, all)).check();
    all.remote(key).to_bytes(std::span(client.buffer).first<rdmaxx::remote_buffer::wire_size>());
    client.send(client.memory.sge(0, rdmaxx::remote_buffer::wire_size));

    std::puts(client.receive(2s) ? "the client is done" : "the client's time is over");
    client.complete(send_wr::local_inv(key)).check(); // from here on nobody reaches the board by that key
    if (client.channel.try_get_cm_event())            // it has left without a word
        return;
    client.send({}); // a message without bytes
    client.expect(cm_event_type::disconnected);
}

[[noreturn]] void serve(const rdmaxx::address& at) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener(channel);
    listener.bind_addr(at);
    listener.listen();
    const rdmaxx::context device(listener);
    const rdmaxx::pd domain(device);
    board shared;
    const rdmaxx::mr region(domain, std::span(&shared, 1), access::local_write | access::mw_bind);
    for (;;) {
        rdmaxx::cm_event event = channel.get_cm_event();
        if (event.type() != cm_event_type::connect_request)
            continue;
        try {
            lend(event.take_id(), domain, region);
        } catch (const std::exception& e) { // one client's trouble is not the server's
            std::fprintf(stderr, "lease: %s\n", e.what());
        }
        if (shared.next != 0)
            std::printf("ticket %llu: %.31s\n", static_cast<unsigned long long>(shared.next - 1),
                        shared.lines[(shared.next - 1) % shared.lines.size()].data());
    }
}

void sign(const rdmaxx::address& server, std::string_view name, bool keeps) {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    rdmaxx::resolve(channel, id, server, 2s);
    const rdmaxx::context device(id);
    const rdmaxx::pd domain(device);
    end self(std::move(id), domain);
    self.id.connect();
    self.expect(cm_event_type::established);
    if (!self.receive(20s))
        return void(std::puts("the server lends nothing"));
    const auto lease = rdmaxx::remote_buffer::from_bytes(
        std::span(self.buffer).subspan<end::incoming, rdmaxx::remote_buffer::wire_size>());

    // Whoever finds the number that he expects has it for himself.
    const rdmaxx::sge found = self.memory.sge(0, sizeof(std::uint64_t));
    const rdmaxx::remote_buffer next = lease.part(offsetof(board, next), sizeof(std::uint64_t));
    std::uint64_t ticket = 0;
    for (std::uint64_t seen = 0;; ticket = seen) {
        self.complete(send_wr::atomic_cmp_and_swp(found, next, ticket, ticket + 1)).check();
        std::memcpy(&seen, self.buffer.data(), sizeof seen);
        if (seen == ticket)
            break;
    }
    std::memset(self.buffer.data(), 0, board::line_size);
    std::memcpy(self.buffer.data(), name.data(), std::min(name.size(), board::line_size - 1));
    const rdmaxx::sge line = self.memory.sge(0, board::line_size);
    const rdmaxx::remote_buffer place = lease.part(board::line_at(ticket), board::line_size);
    self.complete(send_wr::rdma_write(line, place)).check();
    std::printf("ticket %llu\n", static_cast<unsigned long long>(ticket));

    if (!keeps)
        self.send({});
    if (self.receive(20s)) {
        const rdmaxx::wc refused = self.complete(send_wr::rdma_write(line, place));
        std::printf("once more: %s: %s\n", to_string(refused.status()), refused.code().message().c_str());
    }
    self.id.disconnect();
}

} // namespace

int main(int argc, char** argv) try {
    const auto address = rdmaxx::address::parse(argc > 1 ? argv[1] : "");
    if (argc == 2)
        serve(address);
    sign(address, argv[2], argc > 3);
} catch (const std::exception& e) {
    return std::fprintf(stderr, "lease: %s\n", e.what()), 1;
}
