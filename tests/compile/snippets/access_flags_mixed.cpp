// expect-gcc: no match for 'operator\||cannot convert|no matching function
// expect-clang: invalid operands|no viable conversion|cannot initialize|no matching
//
// Flags of one kind, and no numbers among them.
#include <rdmaxx/verbs/qp.hpp>

#include <cstddef>
#include <span>

using rdmaxx::access; // as a type it would be hidden by access(2)

void control(rdmaxx::pd& pd, std::span<std::byte> memory) {
    const rdmaxx::mr mr(pd, memory, access::local_write | access::remote_read);
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::pd& pd, std::span<std::byte> memory) {
    rdmaxx::mr a(pd, memory, IBV_ACCESS_LOCAL_WRITE);              // bad
    rdmaxx::mr b(pd, memory, 1);                                   // bad
    auto mixed = access::local_write | IBV_ACCESS_REMOTE_READ;     // bad
    auto other = access::local_write | rdmaxx::wc_flags::with_imm; // bad
    rdmaxx::qp_attr attr(IBV_QPS_INIT);                            // bad
}
#endif
