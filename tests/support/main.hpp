// What a test program may want to do before Catch2 runs.
#ifndef RDMAXX_TESTS_SUPPORT_MAIN_HPP
#define RDMAXX_TESTS_SUPPORT_MAIN_HPP

namespace rdmaxx_test {

/// Each test program defines it. Returns 0 to go on, or the program's exit status: 77 says that the tests cannot run
/// here (no device), having printed why. (Catch2 itself would exit with 4 when all tests skip.)
int before_tests();

} // namespace rdmaxx_test

#endif
