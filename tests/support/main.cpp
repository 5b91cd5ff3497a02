// The main of every Catch2 program here: the same for both versions of Catch2.
#if !__has_include(<catch2/catch_all.hpp>)
#    define CATCH_CONFIG_RUNNER // version 2: this file compiles it
#endif
#include "catch.hpp"

#include "main.hpp"

int main(int argc, char** argv) {
    if (const int skip = rdmaxx_test::before_tests(); skip != 0)
        return skip;
    return Catch::Session().run(argc, argv);
}
