// Sends back what it receives, to any number of clients, in one thread: events of connections and of
// completions are waited for in one poll(2).
//
//     echo_server address:port        an address of an RDMA device of this machine
#include <rdmaxx/rdmaxx.hpp>

#include <array>
#include <cstdio>
#include <memory>
#include <unordered_map>

#include <poll.h>

struct client {
    rdmaxx::cm_id id;
    std::array<std::byte, 4096> buffer{};
    rdmaxx::mr memory;
};

int main(int argc, char** argv) try {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener(channel);
    listener.bind_addr(rdmaxx::address::parse(argc > 1 ? argv[1] : ""));
    listener.listen();
    std::fprintf(stderr, "listening on %s\n", listener.local_address().to_string().c_str());

    const rdmaxx::context device(listener);
    const rdmaxx::pd pd(device);
    rdmaxx::comp_channel completions(device);
    const rdmaxx::cq cq(device, 1024, completions);
    cq.request_notify();
    std::unordered_map<std::uint32_t, std::unique_ptr<client>> clients; // by queue pair number

    pollfd fds[] = {{channel.fd(), POLLIN, 0}, {completions.fd(), POLLIN, 0}};
    while (::poll(fds, 2, -1) > 0) {
        while (rdmaxx::cm_event event = channel.try_get_cm_event())
            try {
                if (event.type() == rdmaxx::cm_event_type::connect_request) {
                    auto added = std::make_unique<client>();
                    added->id = event.take_id();
                    added->memory = rdmaxx::mr(pd, added->buffer);
                    added->id.create_qp(pd, rdmaxx::qp_init_attr(cq, 2)).post_recv(added->memory);
                    added->id.accept(); // after the receive: the client may send at once
                    clients.emplace(added->id.qp().qp_num(), std::move(added));
                } else if (event.type() != rdmaxx::cm_event_type::established) { // disconnected, or never connected
                    const rdmaxx::qp_ref qp = event.id().qp();
                    const std::uint32_t gone = qp ? qp.qp_num() : 0; // none: the listener's device was removed
                    std::move(event).ack();                          // an event ends before its id
                    clients.erase(gone);
                }
            } catch (const rdmaxx::error& e) { // one client's trouble is not the server's
                std::fprintf(stderr, "echo_server: %s\n", e.what());
            }
        while (completions.try_get_cq_event())
            cq.request_notify(); // before polling: what comes after raises the next event
        std::array<rdmaxx::wc, 16> done;
        for (auto some = cq.poll(done); !some.empty(); some = cq.poll(done))
            for (const rdmaxx::wc& wc : some)
                if (const auto found = clients.find(wc.qp_num()); found != clients.end() && wc.ok()) {
                    const auto& [id, buffer, memory] = *found->second;
                    wc.is_recv() ? id.qp().post_send(memory.sge(0, *wc.byte_len())) : id.qp().post_recv(memory);
                }
    }
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "echo_server: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
}
