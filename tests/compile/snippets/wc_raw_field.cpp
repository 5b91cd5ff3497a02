// expect-gcc: invalid use of|inaccessible|no match for|cannot convert
// expect-clang: reference to non-static member function|private|invalid operands|cannot cast|no viable
//
// The C fields of a completion that failed hold whatever was there: they are read through accessors that
// know.
#include <rdmaxx/verbs/wc.hpp>

bool control(const rdmaxx::wc& completion) {
    return completion.opcode() == rdmaxx::wc_opcode::recv || completion.raw().opcode == IBV_WC_RECV;
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::wc& completion) {
    bool a = completion.opcode == IBV_WC_RECV;         // bad
    bool b = completion.opcode() == IBV_WC_RECV;       // bad
    bool c = completion.ibv_wc::opcode == IBV_WC_RECV; // bad
    unsigned d = completion.byte_len + 1;              // bad
    unsigned e = completion.byte_len();                // bad
    unsigned g = completion.imm_data();                // bad
    ibv_wc& raw = completion;                          // bad
    ibv_wc* pointer = &completion;                     // bad
    static_cast<void>(raw);
}
#endif
