// expect-gcc: cannot convert|could not convert|no match|invalid operands|narrowing|comparison|conversion from
// expect-clang: cannot (convert|initialize)|no viable conversion|invalid operands|no matching (function|conversion)
//
// The local key, the remote key and numbers do not become one another, nor do memory here and at the peer.
#include <rdmaxx/verbs/wr.hpp>

bool control(const rdmaxx::mr& mr, std::uint32_t number) {
    const rdmaxx::remote_buffer peer{0, mr.rkey(), 8};
    static_cast<void>(rdmaxx::sge::unchecked(nullptr, 8, mr.lkey()));
    static_cast<void>(rdmaxx::send_wr::rdma_write(mr.sge(), peer).wr_id(1));
    return peer.rkey == rdmaxx::rkey{number} && value(mr.lkey()) == number;
}

#ifdef MUST_NOT_COMPILE
void f(const rdmaxx::mr& mr, std::uint32_t number) {
    const rdmaxx::remote_buffer local{0, mr.lkey(), 8};                       // bad
    const rdmaxx::remote_buffer of_number{0, number, 8};                      // bad
    static_cast<void>(rdmaxx::sge::unchecked(nullptr, 8, mr.rkey()));         // bad
    static_cast<void>(rdmaxx::sge::unchecked(nullptr, 8, number));            // bad
    static_cast<void>(rdmaxx::sge::unchecked(nullptr, mr.lkey(), mr.lkey())); // bad
    bool same = mr.lkey() == mr.rkey();                                       // bad
    std::uint32_t plain = mr.rkey();                                          // bad
    const rdmaxx::remote_buffer peer;
    const rdmaxx::remote_buffer here = mr.sge();                            // bad
    const rdmaxx::sge there = peer;                                         // bad
    static_cast<void>(rdmaxx::send_wr::send(peer));                         // bad
    static_cast<void>(rdmaxx::recv_wr(peer));                               // bad
    static_cast<void>(rdmaxx::send_wr::rdma_write(peer, mr.sge()));         // bad
    static_cast<void>(rdmaxx::send_wr::rdma_read(mr.sge(), mr));            // bad
    static_cast<void>(rdmaxx::send_wr::local_inv(mr.lkey()));               // bad
    static_cast<void>(rdmaxx::send_wr::send_with_inv(mr.sge(), mr.lkey())); // bad
}
#endif
