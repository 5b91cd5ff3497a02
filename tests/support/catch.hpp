// Catch2 version 2 or 3, whichever is installed.
#ifndef RDMAXX_TESTS_SUPPORT_CATCH_HPP
#define RDMAXX_TESTS_SUPPORT_CATCH_HPP

#if __has_include(<catch2/catch_all.hpp>)
#    include <catch2/catch_all.hpp>
#else
#    include <catch2/catch.hpp>
#endif

#endif
