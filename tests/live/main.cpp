#include "live.hpp"

#include "main.hpp"

int rdmaxx_test::before_tests() {
    return live::need_device();
}
