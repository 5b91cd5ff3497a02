// expect: a_const_range_can_only_be_read
//
// Memory that the program may not write is not registered for others, or for the device, to write.
#include <rdmaxx/verbs/mr.hpp>

#include <cstddef>
#include <span>
#include <vector>

using rdmaxx::access; // hides access(2)

void control(rdmaxx::pd& pd, std::span<const std::byte> view, const std::vector<int>& numbers,
             std::span<std::byte> writable) {
    const rdmaxx::mr local(pd, view);
    const rdmaxx::mr remote(pd, numbers, access::remote_read | access::zero_based);
    const rdmaxx::mr written(pd, writable, access::local_write | access::remote_write);
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::pd& pd, std::span<const std::byte> view, const std::vector<int>& numbers) {
    static const char text[] = "constant";
    std::error_code ec;
    rdmaxx::mr a(pd, view, access::local_write);                              // bad
    rdmaxx::mr b(pd, numbers, access::local_write | access::remote_write);    // bad
    rdmaxx::mr c(pd, numbers, access::remote_write);                          // bad
    rdmaxx::mr d(pd, view, access::remote_atomic);                            // bad
    rdmaxx::mr e(pd, text, access::remote_read | access::local_write);        // bad
    static_cast<void>(rdmaxx::mr::create(pd, view, access::local_write, ec)); // bad
}
#endif
