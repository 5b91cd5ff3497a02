// Connects to echo_server, sends one message and prints what comes back.
//
//     echo_client address:port [message]
#include <rdmaxx/rdmaxx.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>

using namespace std::chrono_literals;

int main(int argc, char** argv) try {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    rdmaxx::resolve(channel, id, rdmaxx::address::parse(argc > 1 ? argv[1] : ""), 2s);

    rdmaxx::comp_channel completions(id.verbs());
    rdmaxx::cq cq(id.verbs(), 4, completions);
    std::array<char, 256> out{};
    std::array<char, 256> in{};
    rdmaxx::mr send(id.pd(), out);
    rdmaxx::mr receive(id.pd(), in);
    rdmaxx::qp_ref qp = id.create_qp(rdmaxx::qp_init_attr(cq, 2));

    qp.post_recv(receive); // before connect: the server may answer at once
    id.connect();
    channel.expect_and_ack(id, rdmaxx::cm_event_type::established);

    std::strncpy(out.data(), argc > 2 ? argv[2] : "hello over RDMA", out.size() - 1);
    qp.post_send(send.sge(0, std::strlen(out.data())));
    for (bool echoed = false; !echoed;) {
        std::array<rdmaxx::wc, 2> done;
        for (const rdmaxx::wc& wc : completions.wait(cq, done)) {
            if (!wc.ok())
                return std::fprintf(stderr, "echo_client: %s\n", to_string(wc.status())), 1;
            echoed = echoed || wc.is_recv();
        }
    }
    std::printf("echoed: %s\n", in.data());
    id.disconnect();
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "echo_client: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
}
