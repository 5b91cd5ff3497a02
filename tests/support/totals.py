#!/usr/bin/env python3
"""Totals of a `meson test` run: what ran, by suite, and what was skipped and why.

Reads meson-logs/testlog.json. A program may run many tests: Catch2's and TAP's own counts are added up. The last line
reads `N passed, N failed, N skipped`. Exit status 1 if anything failed, if nothing ran, or, with --fail-on-skip, if
anything was skipped.
"""

import argparse
import json
import re
import sys
from collections import defaultdict

CATCH_ALL = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)", re.M)
CATCH_SOME = re.compile(r"^test cases: +(\d+) \|(?: +(\d+) passed)?(?: \|)?(?: +(\d+) failed)?", re.M)
TAP_OK = re.compile(r"^ok\b(?!.*# *skip)", re.M | re.I)
TAP_NOT_OK = re.compile(r"^not ok\b", re.M)
TAP_SKIP = re.compile(r"^ok\b.*# *skip *(.*)$", re.M | re.I)


def count(result, output):
    """(passed, failed, [reasons for skips]) of one program."""
    reasons = TAP_SKIP.findall(output)
    if result == "SKIP":
        lines = output.strip().splitlines()
        return 0, 0, [lines[-1] if lines else "no reason given"]
    if match := CATCH_ALL.findall(output):
        passed, failed = sum(map(int, match)), 0
    elif match := CATCH_SOME.search(output):
        passed, failed = int(match.group(2) or 0), int(match.group(3) or 0)
    else:
        passed, failed = len(TAP_OK.findall(output)), len(TAP_NOT_OK.findall(output))
    good = result in ("OK", "EXPECTEDFAIL")
    if good and failed == 0 and passed == 0 and not reasons:
        passed = 1
    if not good and failed == 0:
        failed = 1
    return passed, failed, reasons


def suite_of(test):
    """Meson names a test `project:suite / name`; newer versions have a key for it as well."""
    head, slash, _ = test["name"].partition(" / ")
    return head.rpartition(":")[2] if slash else "none"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fail-on-skip", action="store_true")
    parser.add_argument("log")
    options = parser.parse_args()

    suites = defaultdict(lambda: [0, 0, 0, 0.0])
    skips = []
    failures = []
    with open(options.log, encoding="utf-8", errors="replace") as log:
        for line in log:
            test = json.loads(line)
            suite = suite_of(test)
            passed, failed, reasons = count(test["result"], test.get("stdout", ""))
            row = suites[suite]
            row[0] += passed
            row[1] += failed
            row[2] += len(reasons)
            row[3] += test["duration"]
            skips += [(test["name"], reason) for reason in reasons]
            if failed:
                failures.append((test["name"], test["result"]))

    print(f"\n{'suite':12}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for name, (passed, failed, skipped, seconds) in sorted(suites.items()):
        print(f"{name:12}{passed:8}{failed:8}{skipped:9}{seconds:9.1f}")
    for name, reason in skips:
        print(f"skipped: {name}: {reason}")
    for name, result in failures:
        print(f"failed: {name}: {result}")

    passed, failed, skipped = (sum(row[i] for row in suites.values()) for i in range(3))
    if options.fail_on_skip:
        failed, skipped = failed + skipped, 0
    if passed + failed + skipped == 0:
        print("no test ran")
    print(f"\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or passed + skipped == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
