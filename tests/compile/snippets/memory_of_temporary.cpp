// expect-gcc: no matching function
// expect-clang: no matching (constructor|function)
// expect-gcc: not_a_temporary
// expect-clang: not_a_temporary
//
// The memory is the caller's, and must outlive its registration: a container that ends with the statement
// does not.
#include <rdmaxx/verbs/mr.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

std::span<std::byte> pool();

void control(rdmaxx::pd& pd, std::vector<std::byte>& buffer) {
    const rdmaxx::mr a(pd, buffer);
    const rdmaxx::mr b(pd, pool()); // a view may be a temporary
    const rdmaxx::mr c(pd, std::span(buffer).first(1));
}

#ifdef MUST_NOT_COMPILE
const std::vector<std::byte> constant();

void f(rdmaxx::pd& pd, std::vector<std::byte>& buffer) {
    std::error_code ec;
    rdmaxx::mr a(pd, std::vector<std::byte>(4096));                                                     // bad
    rdmaxx::mr b(pd, std::move(buffer), rdmaxx::access::local_write);                                   // bad
    rdmaxx::mr c(pd, constant());                                                                       // bad
    rdmaxx::mr d = rdmaxx::mr::create(pd, std::vector<std::byte>(64), rdmaxx::access::local_write, ec); // bad
}
#endif
