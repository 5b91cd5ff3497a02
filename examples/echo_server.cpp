// Sends back what it receives, to any number of clients, in one thread: events of connections and of
// completions are waited for in one poll(2).
//
//     echo_server address [port]        an address of an RDMA device of this machine; default: port 7471
#include <rdmaxx/rdmaxx.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include <poll.h>

namespace {

struct client {
    rdmaxx::cm_id id;
    std::array<std::byte, 4096> buffer{};
    rdmaxx::mr memory;

    client(rdmaxx::cm_id request, const rdmaxx::pd& pd, const rdmaxx::cq& cq)
        : id(std::move(request)), memory(pd, buffer) {
        id.create_qp(pd, rdmaxx::qp_init_attr(cq, 2)).post_recv(memory); // before accept: it may send at once
        id.accept();
    }

    void completed(const rdmaxx::wc& wc) const {
        if (wc.is_recv())
            id.qp().post_send(memory.sge(0, *wc.byte_len()));
        else if (wc.ok())
            id.qp().post_recv(memory);
    }
};

} // namespace

int main(int argc, char** argv) try {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id listener(channel);
    listener.bind_addr(
        {argc > 1 ? argv[1] : "", static_cast<std::uint16_t>(argc > 2 ? std::atoi(argv[2]) : 7471)});
    listener.listen();
    std::printf("listening on %s\n", listener.local_address().to_string().c_str());
    std::fflush(stdout);

    const rdmaxx::context device(listener);
    const rdmaxx::pd pd(device);
    rdmaxx::comp_channel completions(device);
    const rdmaxx::cq cq(device, 1024, completions);
    cq.request_notify();
    std::unordered_map<std::uint32_t, std::unique_ptr<client>> clients; // by queue pair number
    std::array<rdmaxx::wc, 16> done;

    for (pollfd ready[] = {{channel.fd(), POLLIN, 0}, {completions.fd(), POLLIN, 0}};
         ::poll(ready, 2, -1) > 0;) {
        while (rdmaxx::cm_event event = channel.try_get_cm_event()) {
            if (event.type() == rdmaxx::cm_event_type::connect_request) {
                auto added = std::make_unique<client>(event.take_id(), pd, cq);
                clients.emplace(added->id.qp().qp_num(), std::move(added));
            } else if (event.id() == listener) { // its device was removed
                return 1;
            } else if (event.type() !=
                       rdmaxx::cm_event_type::established) { // disconnected, or never connected
                const std::uint32_t gone = event.id().qp().qp_num();
                std::move(event).ack(); // an event ends before its id
                clients.erase(gone);
            }
        }
        if (!completions.try_get_cq_event())
            continue;
        cq.request_notify(); // before polling: what comes after raises the next event
        for (auto some = cq.poll(done); !some.empty(); some = cq.poll(done))
            for (const rdmaxx::wc& wc : some)
                if (const auto found = clients.find(wc.qp_num()); found != clients.end())
                    found->second->completed(wc);
    }
} catch (const rdmaxx::error& e) {
    std::fprintf(stderr, "echo_server: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str());
    return 1;
}
