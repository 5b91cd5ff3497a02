#!/usr/bin/env python3
"""What holds of the headers as text and as translation units of their own.

    check.py lists INCLUDE VERSION HEADER...        every header is in include/meson.build, and the versions agree
    check.py forms INCLUDE                          no form with a std::error_code& is declared without noexcept
    check.py alone INCLUDE HEADER FAMILY COMMAND... compiles alone and first, twice, in both standards, without
                                                    exceptions and RTTI
    check.py combinations INCLUDE FAMILY COMMAND... every header, in both orders
    check.py macros INCLUDE FAMILY COMMAND...       no macro but RDMAXX_... is left defined
    check.py std INCLUDE FAMILY COMMAND...          the expensive headers of the C++ library are not included
    check.py symbols INCLUDE FAMILY COMMAND...      no strong or file-local symbol, so that any number of files may include
    check.py names INCLUDE FAMILY COMMAND...    which types are ambiguous after `using namespace rdmaxx`: their comments
                                                    say so
    check.py plain INCLUDE RDMA FAMILY COMMAND...   no warning on our lines where rdma-core (in the folder RDMA) is
                                                    included by -I and not as system headers

INCLUDE is the folder that holds rdmaxx/, FAMILY is gcc or clang, COMMAND the compiler with the strict warnings.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

# The adapters are included by name, by who has the other library, and what that costs, anyway.
ADAPTER = re.compile(r"rdmaxx/(detail/)?(boost_)?asio\w*\.hpp")
# Each would be a good part of what all of rdmaxx costs a user to compile.
EXPENSIVE = ("chrono", "functional", "iostream", "memory", "mutex", "ranges", "regex")
NEWEST = "-std=c++2b"
LEAN = ["-fno-exceptions", "-fno-rtti"]


class CheckFailed(Exception):
    pass


class CheckSkipped(Exception):
    pass


def headers_in(include):
    return sorted(os.path.relpath(path, include) for path in glob.glob(include + "/rdmaxx/**/*.hpp", recursive=True))


def public_headers_in(include):
    return [h for h in headers_in(include) if not h.startswith("rdmaxx/detail/") and not ADAPTER.match(h)]


def includes(headers):
    return "".join("#include <%s>\n" % header for header in headers)


def run(command, source):
    """Gives a compiler a translation unit on its standard input."""
    return subprocess.run(
        command + ["-x", "c++", "-"],
        input=source,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )


def compile_or_fail(what, command, source):
    result = run(command + ["-fsyntax-only"], source)
    missing = re.search(r"fatal error: '?((?:asio|boost)/\S+?)'?(?: file not found|: No such file)", result.stderr)
    if missing is not None:
        raise CheckSkipped("%s is not installed" % missing[1])
    if result.returncode != 0 or result.stderr:
        raise CheckFailed("%s does not compile without a warning:\n%s" % (what, result.stderr))


# ---- The text.


def lists(include, version, *listed):
    found = headers_in(include)
    missing = sorted(set(found) - set(listed))
    if missing:
        raise CheckFailed("not in include/meson.build, and so not installed: " + ", ".join(missing))
    gone = sorted(set(listed) - set(found))
    if gone:
        raise CheckFailed("in include/meson.build, but not there: " + ", ".join(gone))

    with open(include + "/rdmaxx/version.hpp", encoding="utf-8") as file:
        macros = dict(re.findall(r"^#define RDMAXX_(VERSION\w*) +\"?([\w.]+)\"?$", file.read(), re.M))
    parts = [macros.get("VERSION_" + part, "") for part in ("MAJOR", "MINOR", "PATCH")]
    number = str(sum(int(part) * factor for part, factor in zip(parts, (1000000, 1000, 1))))
    for what, says, should in (
        ("the parts of", ".".join(parts), version),
        ("RDMAXX_VERSION_STRING of", macros.get("VERSION_STRING"), version),
        ("RDMAXX_VERSION of", macros.get("VERSION"), number),
    ):
        if says != should:
            raise CheckFailed("%s version.hpp: %s, where the project's version makes it %s" % (what, says, should))


def forms(include):
    # Declared in the headers' own layout: what follows the parameter list is on the same line or the next.
    declaration = re.compile(r"(\w+)\((?:[^()]|\([^()]*\))*\bstd::error_code& \w+\)(?P<after>[^;{]*)")
    for header in headers_in(include):
        if ADAPTER.match(header):
            continue
        with open(os.path.join(include, header), encoding="utf-8") as file:
            text = re.sub(r"//.*", "", file.read())
        for match in declaration.finditer(text):
            # These call back into the program, which may throw.
            if not re.search("noexcept|= delete", match["after"]) and not re.match("drain|log_async_events", match[1]):
                line = text.count("\n", 0, match.start()) + 1
                raise CheckFailed("%s:%d: %s takes a std::error_code& and is not noexcept" % (header, line, match[1]))


# ---- Translation units.


def alone(include, header, family, *command):
    command = list(command) + ["-I" + include]
    twice = includes([header, header])
    compile_or_fail(header + ", alone and twice,", command, twice)
    if ADAPTER.match(header):
        return  # what it adapts to has its own rules for building without exceptions
    others = [other for other in public_headers_in(include) if other != header]
    compile_or_fail(
        header + ", first, in C++23, without exceptions and RTTI,",
        command + [NEWEST] + LEAN,
        twice + includes(others),
    )


def combinations(include, family, *command):
    command = list(command) + ["-I" + include]
    headers = public_headers_in(include)
    compile_or_fail("All headers, in C++20, without exceptions and RTTI,", command + LEAN, includes(headers))
    compile_or_fail("All headers, from last to first, in C++23,", command + [NEWEST], includes(reversed(headers)))


def macros(include, family, *command):
    # -dD leaves the definitions where they are, between the marks that say which file they are in.
    result = run(list(command) + ["-I" + include, "-E", "-dD"], includes(public_headers_in(include)))
    if result.returncode != 0:
        raise CheckFailed(result.stderr)
    where = ""
    ours = {}
    for line in result.stdout.splitlines():
        mark = re.match(r'# \d+ "(.*?)"', line)
        if mark is not None:
            where = mark[1]
        change = re.match(r"#(define|undef) (\w+)", line)
        if change is not None and "/rdmaxx/" in where and where.startswith(include):
            if change[1] == "undef":
                ours.pop(change[2], None)
            else:
                ours[change[2]] = os.path.relpath(where, include)
    leaked = {name: header for name, header in ours.items() if not name.startswith("RDMAXX_")}
    if leaked:
        raise CheckFailed("left defined: " + ", ".join("%s (%s)" % item for item in sorted(leaked.items())))
    if len(ours) < len(public_headers_in(include)):
        raise CheckFailed("not even the include guards were found: is this looking at the right output?")


def std_headers_of(include, command, source):
    """The headers of the C++ library that a translation unit pulls in, by the name that users include."""
    result = run(list(command) + ["-I" + include, "-M"], source)
    if result.returncode != 0:
        raise CheckFailed(result.stderr)
    return {name for name in re.findall(r"/c\+\+/(?:v?\d+/)?([a-z_]+)(?=\s)", result.stdout)}


def std(include, family, *command):
    named = set()
    for header in headers_in(include):
        if ADAPTER.match(header) or os.path.basename(header) == "stop.hpp":
            continue
        with open(os.path.join(include, header), encoding="utf-8") as file:
            own = set(re.findall(r"^ *# *include <([a-z_]+)>", file.read(), re.M))
        for name in sorted(own.intersection(EXPENSIVE)):
            raise CheckFailed("%s includes <%s>" % (header, name))
        named |= own
    everyday = [h for h in public_headers_in(include) if os.path.basename(h) != "stop.hpp"]
    reached = std_headers_of(include, command, includes(everyday))
    # What the C++ library's own headers include is its affair; the same names without ours tell what that is.
    by_themselves = std_headers_of(include, command, includes(sorted(named)))
    added = (reached - by_themselves).intersection(EXPENSIVE)
    if added:
        raise CheckFailed("included by way of another header: " + ", ".join(sorted(added)))
    print("named by rdmaxx:", *sorted(named))
    print("pulled in by those, of the expensive ones:", *(sorted(reached.intersection(EXPENSIVE)) or ["none"]))


def symbols(include, family, *command):
    command = list(command) + ["-I" + include, "-O0"]
    if family == "gcc":
        command.append("-fkeep-inline-functions")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.o")
        result = run(command + ["-c", "-o", path], includes(public_headers_in(include)))
        if result.returncode != 0:
            raise CheckFailed(result.stderr)
        table = subprocess.run(["nm", "-C", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    ours = [line.split(" ", 2)[1:] for line in table.splitlines() if "rdmaxx::" in line]
    # Weak (V, W) and unique (u) symbols are merged by the linker; n is a group that such a symbol is in. What is
    # made for a type that has no name, as some of C's enums, cannot but be local.
    wrong = [name for kind, name in ours if kind not in "VWvwun" and "._anon" not in name]
    if wrong:
        raise CheckFailed("strong or local to the file: " + ", ".join(wrong[:10]))
    if family == "gcc" and not ours:
        raise CheckFailed("no symbols at all: is this looking at the right output?")


# What programs include beside: their names are global.
BESIDE = ("cerrno", "cmath", "cstdio", "cstdlib", "cstring", "ctime", "error.h", "fcntl.h", "netdb.h", "poll.h",
          "pthread.h", "sched.h", "signal.h", "sys/epoll.h", "sys/mman.h", "sys/socket.h", "sys/stat.h", "sys/uio.h",
          "unistd.h")


def names(include, family, *command):
    declared = re.compile(r"^(?:class|struct|union|enum class) (?:\[\[\w+\]\] |RDMAXX_\w+(?:\(\w+\))? )*(\w+)", re.M)
    note = re.compile(r"After `using namespace rdmaxx`.*?`rdmaxx::(\w+)`", re.S)
    types, noted = set(), set()
    for header in public_headers_in(include):
        with open(os.path.join(include, header), encoding="utf-8") as file:
            text = file.read()
        types.update(declared.findall(text))
        noted.update(note.findall(text))
    beside = "".join("#if __has_include(<%s>)\n#include <%s>\n#endif\n" % (name, name) for name in BESIDE)
    uses = "".join("void use_%s() { %s* used; }\n" % (name, name) for name in sorted(types))
    source = includes(public_headers_in(include)) + beside + "using namespace rdmaxx;\n" + uses
    limit = "-fmax-errors=0" if family == "gcc" else "-ferror-limit=0"
    said = run(list(command) + ["-I" + include, "-fsyntax-only", "-w", limit], source).stderr
    ambiguous = set(re.findall(r"reference to '(\w+)' is ambiguous", said))
    if ambiguous - noted:  # not every system has all names
        raise CheckFailed("ambiguous after using namespace rdmaxx: " + ", ".join(sorted(ambiguous - noted)))
    print("ambiguous after using namespace rdmaxx:", *sorted(ambiguous), "of", len(types))


def plain(include, rdma, family, *command):
    with tempfile.TemporaryDirectory() as folder:
        # The default folders are system folders, whatever -I says: links to them are not.
        for name in ("infiniband", "rdma"):
            os.symlink(os.path.join(rdma, name), os.path.join(folder, name))
        command = [arg for arg in command if arg != "-Werror" and not arg.startswith("-isystem")]
        result = run(command + ["-I" + include, "-I" + folder, "-fsyntax-only"], includes(public_headers_in(include)))
    if result.returncode != 0:
        raise CheckFailed(result.stderr)
    warnings = re.findall(r"^(\S+?):\d+:\d+: warning: .*$", result.stderr, re.M)
    print("%d warnings in rdma-core's headers" % len([file for file in warnings if not file.startswith(include)]))
    ours = re.findall(r"^%s/rdmaxx/\S+?:\d+:\d+: warning: .*$" % re.escape(include), result.stderr, re.M)
    if ours:
        raise CheckFailed("\n".join(ours))


CHECKS = {f.__name__: f for f in (lists, forms, alone, combinations, macros, std, symbols, names, plain)}


def main():
    name, include, *arguments = sys.argv[1:]
    try:
        CHECKS[name](os.path.realpath(include), *arguments)
    except CheckFailed as failed:
        print(failed)
        return 1
    except CheckSkipped as skipped:
        print(skipped)
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
