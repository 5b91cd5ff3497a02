#!/usr/bin/env python3
"""How long a file takes to compile that includes rdmaxx. No test: a table for people.

    compile_time.py [INCLUDE [COMPILER...]]         default: this repository's include, g++ and clang++

Median of seven, of a file that includes the header and does nothing, without code generation.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time

C = "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n"
FILES = [
    ("nothing", ""),
    ("C headers", C),
    ("C headers, <system_error>, <span>", C + "#include <system_error>\n#include <span>\n"),
    ("the same, <mutex>", C + "#include <system_error>\n#include <span>\n#include <mutex>\n"),
    ("the same, <chrono>", C + "#include <system_error>\n#include <span>\n#include <mutex>\n#include <chrono>\n"),
    ("rdmaxx/error.hpp", "#include <rdmaxx/error.hpp>\n"),
    ("rdmaxx/verbs/cq.hpp", "#include <rdmaxx/verbs/cq.hpp>\n"),
    ("rdmaxx/verbs.hpp", "#include <rdmaxx/verbs.hpp>\n"),
    ("rdmaxx/cm.hpp", "#include <rdmaxx/cm.hpp>\n"),
    ("rdmaxx/rdmaxx.hpp", "#include <rdmaxx/rdmaxx.hpp>\n"),
    ("rdmaxx/rdmaxx.hpp, cm/stop.hpp", "#include <rdmaxx/rdmaxx.hpp>\n#include <rdmaxx/cm/stop.hpp>\n"),
]
TIMES = 7


def milliseconds(command, source):
    start = time.monotonic()
    subprocess.run(command, input=source, text=True, check=True)
    return (time.monotonic() - start) * 1000


def main():
    arguments = sys.argv[1:]
    here = os.path.dirname(os.path.abspath(__file__))
    include = arguments[0] if arguments else os.path.join(here, "..", "..", "include")
    compilers = arguments[1:] or [name for name in ("g++", "clang++") if shutil.which(name)]
    print("%-36s" % "ms, median of %d" % TIMES, *("%10s" % os.path.basename(name) for name in compilers))
    for title, source in FILES:
        line = "%-36s" % title
        for compiler in compilers:
            command = [compiler, "-std=c++20", "-I" + include, "-fsyntax-only", "-x", "c++", "-"]
            milliseconds(command, source)  # warms the page cache
            line += "%11.0f" % statistics.median(milliseconds(command, source) for _ in range(TIMES))
        print(line, flush=True)


if __name__ == "__main__":
    main()
