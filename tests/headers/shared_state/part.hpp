// One part of a process that uses rdmaxx: a translation unit of the program, or a shared library.
#ifndef RDMAXX_TESTS_HEADERS_PART_HPP
#define RDMAXX_TESTS_HEADERS_PART_HPP

#include <rdmaxx/rdmaxx.hpp>

/// What every part can do, each with its own copy of the headers' code.
struct part {
    const char* name;

    // What must be the same object in all of them.
    const std::error_category* (*reject_category)() noexcept;
    const std::error_category* (*sidr_category)() noexcept;
    const std::error_category* (*addrinfo_category)() noexcept;
    const std::error_category* (*wc_category)() noexcept;

    // Hooks: set here, heard there.
    void (*set_destroy_failure_hook)(rdmaxx::destroy_failure_hook hook) noexcept;
    void (*report_destroy_failure)() noexcept;
    void (*set_hang_hook)(rdmaxx::hang_hook hook) noexcept;
    void (*report_hang)() noexcept;
    const std::int64_t* hang_report_after_ns;

    // Exceptions: thrown here, caught there by type. `which` is the name of the type.
    void (*throw_one)(const char* which);
    const char* (*name_of_caught)(void (*throw_one)(const char* which), const char* which);
};

#define PART_EXPORT extern "C" __attribute__((visibility("default")))

PART_EXPORT const part* part_main() noexcept;
PART_EXPORT const part* part_second() noexcept;
PART_EXPORT const part* part_one() noexcept;
PART_EXPORT const part* part_two() noexcept;
PART_EXPORT const part* part_plugin() noexcept;

#endif
