#!/usr/bin/env python3
"""Checks the check: each file in self_check is wrong in one way, and snippet.py must say so.

    self_check.py FAMILY COMPILER ARGUMENTS...
"""

import os
import sys

sys.dont_write_bytecode = True  # the source folder stays clean
import snippet

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "self_check")

# Each file, and how the complaint begins; None: nothing is wrong with it.
CASES = {
    "good.cpp": None,
    "control_fails.cpp": "the control does not compile",
    "control_warns.cpp": "the control does not compile",
    "bad_variant_compiles.cpp": "it compiles, and must not",
    "other_diagnostic.cpp": "no error matches",
    "quoted_source.cpp": "no error matches",
    "one_line_compiles.cpp": "line 10 is not reported",
    "one_line_for_another_reason.cpp": "line 10 is reported for another reason",
    "unmarked_line.cpp": "line 10 is reported, and not marked",
    "no_expectation.cpp": "no expect line",
}


def main():
    family, *command = sys.argv[1:]
    failures = 0
    if sorted(CASES) != sorted(os.listdir(FOLDER)):
        print("self_check has other files than those that are checked")
        failures += 1
    for name, complaint in CASES.items():
        try:
            snippet.check(os.path.join(FOLDER, name), family, command)
            said = None
        except snippet.CheckFailed as failed:
            said = str(failed)
        if said != complaint and not (said and complaint and said.startswith(complaint)):
            print("%s: expected %r, and it said %r" % (name, complaint, said))
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
