// expect: deleted (member )?function
//
// The sockaddr is inside the address.
#include <rdmaxx/address.hpp>

std::size_t control(const sockaddr*& out) {
    static const rdmaxx::address peer("192.0.2.9", 7471);
    out = peer.data();
    return peer.size();
}

#ifdef MUST_NOT_COMPILE
const sockaddr* f() {
    return rdmaxx::address("192.0.2.9", 7471).data(); // bad
}

const sockaddr* g(rdmaxx::address peer) {
    return peer.with_port(1).data(); // bad
}
#endif
