// rdma_server: takes one connection, receives a message of 16 bytes and sends one back; rdma_client is its peer. On the
// wire that of rdma-core's librdmacm/examples/rdma_server.c. Every call blocks until its answer is there: sync_id.
//
// What it does better than the C program: whatever fails, all that was made ends, in an order that C gets right only by
// hand; the error says what failed and why; a completion that failed is no success; and a client that connects and
// says nothing does not keep the server.
#include <rdmaxx/rdmaxx.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include <unistd.h>

namespace {

constexpr const char* usage = R"(rdma_server [-s address] [-p port]
  -s address  to listen on (default: every IPv4 address; -s :: is every address)
  -p port     (default: 7471)
)";

void wait_for_one(rdmaxx::comp_channel& completions, const rdmaxx::cq& cq) {
    std::array<rdmaxx::wc, 1> done;
    if (completions.wait_for(cq, done, std::chrono::seconds(60)).empty())
        throw std::runtime_error("the client has been silent for a minute");
    done.front().check();
}

void serve(const char* address, const char* port) {
    const rdmaxx::addrinfo local(address, port, {.flags = rdmaxx::addrinfo_flags::passive});
    auto listener = rdmaxx::sync_id::create_ep(local.front());
    listener.listen();
    rdmaxx::sync_id client = listener.get_request();

    const rdmaxx::registered_buffer received(client.pd(), 16);
    const rdmaxx::registered_buffer sent(client.pd(), 16);
    rdmaxx::comp_channel completions(client.verbs());
    const rdmaxx::cq cq(client.verbs(), 2, completions);
    const rdmaxx::qp_ref qp = client.create_qp(rdmaxx::qp_init_attr(cq, 1));

    qp.post_recv(received); // before accept: the client may send at once
    client.accept();
    wait_for_one(completions, cq);
    qp.post_send(sent);
    wait_for_one(completions, cq);
    client.disconnect();
}

} // namespace

int main(int argc, char** argv) try {
    const char* address = "0.0.0.0";
    const char* port = "7471";
    for (int letter = 0; (letter = ::getopt(argc, argv, "s:p:")) != -1;)
        switch (letter) {
        case 's': address = optarg; break;
        case 'p': port = optarg; break;
        default: return std::fputs(usage, stderr), 1;
        }
    std::puts("rdma_server: start");
    serve(address, port);
    std::puts("rdma_server: end 0");
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "rdma_server: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "rdma_server: %s\n", e.what()), 1;
}
