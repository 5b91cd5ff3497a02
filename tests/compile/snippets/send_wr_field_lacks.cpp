// expect-gcc: no matching function|is private
// expect-clang: no matching function|too (many|few) arguments|private (member|constructor)
//
// A field that an operation does not have cannot be set.
#include <rdmaxx/verbs/wr.hpp>

void control(const rdmaxx::sge& piece, const rdmaxx::remote_buffer& peer) {
    rdmaxx::send_wr requests[] = {
        rdmaxx::send_wr::send(piece).signaled(),
        rdmaxx::send_wr::send_with_imm(piece, 7),
        rdmaxx::send_wr::rdma_write(piece, peer),
        rdmaxx::send_wr::rdma_write_with_imm(piece, peer, 7),
        rdmaxx::send_wr::rdma_read(piece, peer),
        rdmaxx::send_wr::atomic_cmp_and_swp(piece, peer, 0, 1),
        rdmaxx::send_wr::atomic_fetch_and_add(piece, peer, 1),
    };
    static_cast<void>(requests);
}

#ifdef MUST_NOT_COMPILE
void f(const rdmaxx::sge& piece, const rdmaxx::remote_buffer& peer) {
    auto a = rdmaxx::send_wr::send(piece, peer);                       // bad
    auto b = rdmaxx::send_wr::send(piece, 7U);                         // bad
    auto c = rdmaxx::send_wr::send_with_imm(piece);                    // bad
    auto d = rdmaxx::send_wr::rdma_write(piece);                       // bad
    auto e = rdmaxx::send_wr::rdma_write(piece, peer, 7U);             // bad
    auto g = rdmaxx::send_wr::rdma_read(piece, peer, 7U);              // bad
    auto h = rdmaxx::send_wr::atomic_fetch_and_add(piece, peer, 1, 2); // bad
    auto i = rdmaxx::send_wr::send(piece).with_imm(7);                 // bad
    auto j = rdmaxx::send_wr::send(piece).with_remote(peer);           // bad
    rdmaxx::send_wr k(IBV_WR_SEND, std::span(&piece, 1));              // bad
}
#endif
