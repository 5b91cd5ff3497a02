// expect-gcc: is not a constant expression|call to non-'constexpr' function|narrowing conversion
// expect-clang: is not a constant expression|cannot be narrowed
//
// A length that 32 bits cannot say is not cut to what they can.
#include <rdmaxx/verbs/wr.hpp>

#include <cstddef>
#include <cstdint>

void control(const rdmaxx::mr& mr, std::size_t size, std::uint32_t length, int (&numbers)[4]) {
    static_cast<void>(mr.sge(0, size));
    static_cast<void>(rdmaxx::sge::unchecked(numbers, sizeof numbers, mr.lkey()));
    static_cast<void>(rdmaxx::sge::unchecked(numbers, 8, mr.lkey()));
    static_cast<void>(rdmaxx::sge::unchecked(numbers, length, mr.lkey()));
    static_cast<void>(rdmaxx::sge::unchecked(numbers, 0xffffffff, mr.lkey()));
    static_cast<void>(rdmaxx::remote_buffer{0, mr.rkey(), length});
}

#ifdef MUST_NOT_COMPILE
void f(const rdmaxx::mr& mr, std::size_t size, int number) {
    static_cast<void>(rdmaxx::sge::unchecked(nullptr, size, mr.lkey()));        // bad
    static_cast<void>(rdmaxx::sge::unchecked(nullptr, mr.length(), mr.lkey())); // bad
    static_cast<void>(rdmaxx::sge::unchecked(nullptr, number, mr.lkey()));      // bad
    static_cast<void>(rdmaxx::sge::unchecked(nullptr, 0x100000000, mr.lkey())); // bad
    static_cast<void>(rdmaxx::remote_buffer{0, mr.rkey(), mr.length()});        // bad
}
#endif
