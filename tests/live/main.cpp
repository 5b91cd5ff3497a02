#include "live.hpp"

#include "main.hpp"

int rdmaxx_test::before_tests() {
    live::role::play_if_asked();
    return live::need_device();
}
