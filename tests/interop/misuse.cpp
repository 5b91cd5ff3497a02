// A C program's mistakes, for the trace to find.
//
//     misuse address N      acks one CM event N times
//     misuse address cq     acks a completion event that never came
#include <cstdlib>
#include <cstring>

#include <rdma/rdma_cma.h>

int main(int argc, char** argv) {
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_addrinfo* peer = nullptr;
    rdma_cm_event* event = nullptr;
    if (argc != 3 || channel == nullptr || rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_getaddrinfo(argv[1], "7", nullptr, &peer) != 0 ||
        rdma_resolve_addr(id, nullptr, peer->ai_dst_addr, 2000) != 0 || rdma_get_cm_event(channel, &event) != 0)
        return 2;
    if (std::strcmp(argv[2], "cq") == 0)
        ibv_ack_cq_events(ibv_create_cq(id->verbs, 1, nullptr, nullptr, 0), 1);
    for (int i = 0; i < std::atoi(argv[2]); ++i)
        rdma_ack_cm_event(event);
    return 0;
}
