#!/usr/bin/env python3
"""Counts the instructions of one call, in C and with rdmaxx, and fails where rdmaxx costs more on the data path.

    instructions.py FAMILY PROGRAM          PROGRAM is calls.cpp, built by that compiler with optimisation

Each function of calls.cpp makes one call in a loop, on a fake whose calls do nothing. Valgrind's callgrind counts the
whole function twice, with different numbers of rounds: the difference is what a round costs, to the instruction. That
includes the loop and the C library's side, which are the same in all columns.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

FORMS = ("throwing", "ec", "try", "raw", "short")
TITLES = {"throwing": "throwing", "ec": "error_code", "try": "try_", "raw": "of ibv_wc", "short": "short form"}

# The function's name without its form, and whether a round must cost no more than in C; else it is for information.
CALLS = [
    ("post_send", True),
    ("post_send_made", True),
    ("post_chain_16", True),
    ("batch_16", True),
    ("post_recv", True),
    ("poll_1", True),
    ("poll_16", True),
    ("poll_range_16", True),
    ("poll_16_local", True),
    ("request_notify", True),
    ("get_ack", False),
]
# How many more are allowed where it is not the call that costs them.
ALLOWED = {
    # g++ has one register too few, and loads a constant in each round: the request is wanted after the call as well,
    # by the error that names which of a chain failed.
    ("gcc", "throwing_post_send_made"): 1,
    ("gcc", "short_post_send_made"): 1,
    # A range-for over a std::span: in C over a span it is one more, too.
    ("gcc", "throwing_poll_16"): 1,
    ("gcc", "ec_poll_16"): 1,
    ("gcc", "raw_poll_16"): 1,
    # The error_code is looked at, which must be cleared.
    ("clang", "ec_poll_range_16"): 2,
}


def counts(program, rounds, folder):
    out = os.path.join(folder, "callgrind.%d" % rounds)
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out, program, str(rounds)],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        sys.exit("%s failed:\n%s%s" % (program, run.stdout, run.stderr))
    table = subprocess.run(
        ["callgrind_annotate", "--inclusive=yes", "--threshold=100", out], capture_output=True, text=True, check=True
    ).stdout
    found = {}
    for line in table.splitlines():
        # "  12,345 (1.23%)  file.cpp:function [program]"; the percentage came with Valgrind 3.16
        match = re.match(r" *([\d,]+) .*?:(\w+)(?:\([^\[]*\))? ", line)
        if match is not None:
            found.setdefault(match[2], int(match[1].replace(",", "")))
    return found


def main():
    family, program = sys.argv[1:]
    if shutil.which("valgrind") is None or shutil.which("callgrind_annotate") is None:
        print("valgrind is not installed")
        return 77
    few, many = 1000, 3000
    with tempfile.TemporaryDirectory() as folder:
        at_few = counts(program, few, folder)
        at_many = counts(program, many, folder)
    cost = {name: (at_many[name] - total) / (many - few) for name, total in at_few.items() if name in at_many}

    failures = []
    print("Instructions of a round, %s -O2" % family)
    print("%-16s %8s" % ("", "C"), *("%10s" % TITLES[form] for form in FORMS))
    for call, promised in CALLS:
        in_c = cost.get("c_" + call)
        if in_c is None or in_c <= 0:
            sys.exit("c_%s was not counted" % call)
        line = "%-16s %8.0f" % (call, in_c)
        forms = 0
        for form in FORMS:
            name = "%s_%s" % (form, call)
            if name not in cost:
                line += "%11s" % ""
                continue
            forms += 1
            line += "%11.0f" % cost[name]
            if promised and cost[name] > in_c + ALLOWED.get((family, name), 0):
                failures.append("%s: %.0f instructions, in C %.0f" % (name, cost[name], in_c))
        print(line)
        if forms == 0:
            sys.exit("no form of %s was counted" % call)
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
