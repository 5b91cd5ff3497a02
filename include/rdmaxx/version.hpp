// The version of rdmaxx, for the preprocessor. meson.build, the CMake package and the pkg-config file say the same.
#ifndef RDMAXX_VERSION_HPP
#define RDMAXX_VERSION_HPP

#define RDMAXX_VERSION_MAJOR 0
#define RDMAXX_VERSION_MINOR 1
#define RDMAXX_VERSION_PATCH 0

/// MAJOR * 1'000'000 + MINOR * 1'000 + PATCH, for comparisons in #if.
#define RDMAXX_VERSION 1000

#define RDMAXX_VERSION_STRING "0.1.0"

#endif
