#!/usr/bin/env python3
"""Checks the checks: a small library without a fault passes each, and with one fault the check that is for it fails.

    self_check.py RDMA FAMILY COMMAND...        see check.py
"""

import os
import sys
import tempfile

sys.dont_write_bytecode = True  # the source folder stays clean
import check

VERSION = """#ifndef RDMAXX_VERSION_HPP
#define RDMAXX_VERSION_HPP
#define RDMAXX_VERSION_MAJOR 1
#define RDMAXX_VERSION_MINOR 2
#define RDMAXX_VERSION_PATCH 3
#define RDMAXX_VERSION 1002003
#define RDMAXX_VERSION_STRING "1.2.3"
#endif
"""
GUARDED = "#ifndef RDMAXX_SOME_HPP\n#define RDMAXX_SOME_HPP\n%s\n#endif\n"
GOOD = """#include <cstddef>
#include <system_error>
#include <infiniband/verbs.h>
namespace rdmaxx {
[[nodiscard]] inline std::size_t size_of(std::size_t count, std::error_code& ec) noexcept {
    ec.clear();
    return count;
}
inline void gone(std::error_code& ec) = delete;
}"""

# The check, a fault to put into the header, and how the check complains.
FAULTS = [
    ("alone", "inline std::size_t f() { return 1; }", "alone and twice"),
    ("alone", "inline int f(int unused) { return 1; }", "alone and twice"),
    ("alone", "#include <stdexcept>\ninline void f() { throw std::runtime_error(\"\"); }", "first, in C++23"),
    ("alone", "#include <typeinfo>\ninline auto f(int& i) { return typeid(i).name(); }", "first, in C++23"),
    ("combinations", "inline void f() { throw 1; }", "All headers, in C++20, without exceptions"),
    ("combinations", "#ifdef RDMAXX_VERSION\nonly before version.hpp\n#endif", "All headers, from last"),
    ("forms", "namespace std { struct error_code; }\nint f(int a, std::error_code& ec);", "f takes a std::error_code&"),
    ("forms", "#include <system_error>\nstruct s { int g(std::error_code& ec) const { ec.clear(); return 1; } };",
     "g takes a std::error_code&"),
    ("macros", "#define HELPER 1", "left defined: HELPER"),
    ("std", "#include <memory>", "includes <memory>"),
    ("std", "#    include <chrono>", "includes <chrono>"),
    ("std", "#include \"some.inc\"", "by way of another header"),
    ("symbols", "namespace rdmaxx { int strong() { return 1; } }", "strong or local"),
    ("symbols", "namespace rdmaxx { int counter = 0; }", "strong or local"),
    ("symbols", "namespace rdmaxx { static int here() { return 1; }\ninline int f() { return here(); } }", None),
    ("symbols", "namespace rdmaxx { template <class T> int f() { return 1; }\ntemplate <> int f<int>() { return 2; } }",
     "strong or local"),
    ("names", "namespace rdmaxx {\nclass kill {};\n}", "ambiguous after using namespace rdmaxx: kill"),
    ("names", "namespace rdmaxx {\n/// After `using namespace rdmaxx` it is `rdmaxx::nice`.\nclass nice {};\nclass kill {};\n}",
     "rdmaxx: kill"),
    ("plain", "inline int f(double d) { return (int)d; }", "warning"),
]


def write(folder, name, text):
    with open(os.path.join(folder, "rdmaxx", name), "w", encoding="utf-8") as file:
        file.write(text)


def complaint_of(name, *arguments):
    try:
        check.CHECKS[name](*arguments)
    except check.CheckFailed as failed:
        return str(failed)
    return None


def main():
    rdma, family, *command = sys.argv[1:]
    failures = []

    def expect(what, wanted, said):
        if (wanted is None) != (said is None) or (wanted is not None and wanted not in said):
            failures.append("%s: expected %r, and it said %r" % (what, wanted, said))

    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        os.mkdir(folder + "/rdmaxx")

        def arguments(name):
            extra = {"alone": ["rdmaxx/some.hpp"], "plain": [rdma]}.get(name, [])
            return [folder] + ([] if name == "forms" else extra + [family] + command)

        write(folder, "version.hpp", VERSION)
        write(folder, "some.hpp", GUARDED % GOOD)
        names = ["rdmaxx/some.hpp", "rdmaxx/version.hpp"]
        for name in check.CHECKS:
            if name != "lists":
                expect("%s without a fault" % name, None, complaint_of(name, *arguments(name)))
        expect("lists", None, complaint_of("lists", folder, "1.2.3", *names))
        expect("another version", "version.hpp: 1.2.3", complaint_of("lists", folder, "1.2.4", *names))
        expect("a header that is not listed", "not in", complaint_of("lists", folder, "1.2.3", names[0]))
        expect("a list with too much", "not there", complaint_of("lists", folder, "1.2.3", "rdmaxx/a.hpp", *names))

        write(folder, "some.hpp", GOOD)
        expect("without a guard", "alone and twice", complaint_of("alone", *arguments("alone")))

        write(folder, "some.inc", "#include <mutex>\n")
        for name, fault, wanted in FAULTS:
            # A fault of the kind "uses what it does not include" must not find it in the good part.
            good = "" if name in ("alone", "combinations") else GOOD + "\n"
            write(folder, "some.hpp", GUARDED % (good + fault))
            said = complaint_of(name, *arguments(name))
            if wanted is None:
                # Only seen where the compiler emits functions that are not called.
                wanted = "strong or local" if family == "gcc" else None
            expect("%s with `%s`" % (name, fault), wanted, said)

    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
