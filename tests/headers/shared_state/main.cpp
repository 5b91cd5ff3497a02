// Two translation units of a program, two shared libraries with hidden visibility that it is linked with, and a third
// one that it loads: each has the headers' code, and all have one set of hooks, categories and exception types.
#include "part.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace {

int failures = 0;

void expect(bool is, const char* what, const part& a, const part& b) {
    if (is)
        return;
    std::printf("%s and %s: %s\n", a.name, b.name, what);
    ++failures;
}

int heard = 0;

void failure_heard(const rdmaxx::destroy_failure&) noexcept {
    ++heard;
}
rdmaxx::hang_action hang_heard(const rdmaxx::hang_report&) noexcept {
    ++heard;
    return rdmaxx::hang_action::keep_waiting;
}

void compare(const part& a, const part& b) {
    expect(a.reject_category() == b.reject_category(), "two reject categories", a, b);
    expect(a.sidr_category() == b.sidr_category(), "two SIDR categories", a, b);
    expect(a.addrinfo_category() == b.addrinfo_category(), "two addrinfo categories", a, b);
    expect(a.wc_category() == b.wc_category(), "two categories of completions", a, b);
    expect(a.hang_report_after_ns == b.hang_report_after_ns, "two times for hang reports", a, b);

    heard = 0;
    a.set_destroy_failure_hook(failure_heard);
    b.report_destroy_failure();
    expect(heard == 1, "two destroy-failure hooks", a, b);
    a.set_destroy_failure_hook(nullptr);

    heard = 0;
    a.set_hang_hook(hang_heard);
    b.report_hang();
    expect(heard == 1, "two hang hooks", a, b);
    a.set_hang_hook(nullptr);

    for (const char* which : {"error", "post_error", "unexpected_event"})
        expect(std::strcmp(b.name_of_caught(a.throw_one, which), which) == 0, which, a, b);
}

} // namespace

/// Destroyed after what main() was the first to use.
struct at_exit {
    std::error_code code;

    explicit at_exit(std::error_code of) noexcept : code(of) {}
    ~at_exit() {
        if (code != std::errc::connection_refused) {
            std::printf("a category is gone before the codes are\n");
            std::fflush(stdout);
            std::_Exit(1);
        }
    }
};
at_exit last(std::make_error_code(std::errc::connection_refused));

int main(int, char** argv) {
    void* plugin = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
        std::printf("%s\n", ::dlerror());
        return 1;
    }
    using entry = const part* (*)() noexcept;
    const auto part_of_plugin = reinterpret_cast<entry>(::dlsym(plugin, "part_plugin"));
    if (part_of_plugin == nullptr) {
        std::printf("%s\n", ::dlerror());
        return 1;
    }
    const part* parts[] = {part_main(), part_second(), part_one(), part_two(), part_of_plugin()};
    for (const part* a : parts)
        for (const part* b : parts)
            compare(*a, *b);
    last.code = std::error_code(8, rdmaxx::reject_category());
    return failures == 0 ? 0 : 1;
}
