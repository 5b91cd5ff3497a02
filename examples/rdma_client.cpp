// rdma_client: connects to rdma_server, sends a message of 16 bytes and receives one. On the wire that of rdma-core's
// librdmacm/examples/rdma_client.c. Every call blocks until its answer is there: sync_id.
//
// What it does better than the C program: whatever fails, all that was made ends, in an order that C gets right only by
// hand; the error says what failed and why; a completion that failed is no success; and a server that does not answer
// does not keep the client.
#include <rdmaxx/rdmaxx.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include <unistd.h>

namespace {

constexpr const char* usage = R"(rdma_client [-s address] [-p port]
  -s address  to connect to (default: 127.0.0.1)
  -p port     (default: 7471)
)";

void wait_for_one(rdmaxx::comp_channel& completions, const rdmaxx::cq& cq) {
    std::array<rdmaxx::wc, 1> done;
    if (completions.wait_for(cq, done, std::chrono::seconds(60)).empty())
        throw std::runtime_error("the server has been silent for a minute");
    done.front().check();
}

void ask(const char* address, const char* port) {
    const rdmaxx::addrinfo peer(address, port);
    auto server = rdmaxx::sync_id::create_ep(peer.front());

    const rdmaxx::registered_buffer received(server.pd(), 16);
    const rdmaxx::registered_buffer sent(server.pd(), 16);
    rdmaxx::comp_channel completions(server.verbs());
    const rdmaxx::cq cq(server.verbs(), 2, completions);
    const rdmaxx::qp_ref qp = server.create_qp(rdmaxx::qp_init_attr(cq, 1));

    qp.post_recv(received); // before connect: the server may answer at once
    server.connect();
    qp.post_send(sent);
    wait_for_one(completions, cq); // the send and the receive, in whatever order they complete
    wait_for_one(completions, cq);
    server.disconnect();
}

} // namespace

int main(int argc, char** argv) try {
    const char* address = "127.0.0.1";
    const char* port = "7471";
    for (int letter = 0; (letter = ::getopt(argc, argv, "s:p:")) != -1;)
        switch (letter) {
        case 's': address = optarg; break;
        case 'p': port = optarg; break;
        default: return std::fputs(usage, stderr), 1;
        }
    std::puts("rdma_client: start");
    ask(address, port);
    std::puts("rdma_client: end 0");
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "rdma_client: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "rdma_client: %s\n", e.what()), 1;
}
