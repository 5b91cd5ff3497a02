#!/usr/bin/env python3
"""The table C call -> rdmaxx: complete, true, and the README's.

Fails when the installed headers declare a function that c_calls.tsv lacks, when an entry names a test that no source of
tests/live has (or, with --proof, names none), or when README.md's table is another one. `check.py ROOT INCLUDEDIR`; with --write it makes README.md's
table instead of comparing it.
"""

import argparse
import pathlib
import re
import sys

HEADERS = ["rdma/rdma_cma.h", "rdma/rdma_verbs.h", "rdma/rsocket.h"]
BEGIN = "<!-- C calls of librdmacm: made by tests/api/check.py -->\n"
END = "<!-- end -->\n"


def declared(header):
    """The functions that a C header declares or defines."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.M | re.S)
    text = text.replace('extern "C" {', "")
    # A body is of no interest, and calls other functions.
    while (shorter := re.sub(r"\{[^{}]*\}", ";", text)) != text:
        text = shorter
    return set(re.findall(r"\b((?:rdma_|repoll_|r)[a-z_]+)\s*\([^;()]*\)\s*;", text))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("include", type=pathlib.Path, nargs="?", default="/usr/include")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--proof", action="store_true")
    options = parser.parse_args()

    table = [line.split("\t") for line in (options.root / "tests/api/c_calls.tsv").read_text().splitlines()
             if line and not line.startswith("#")]
    rows = "".join(f"| `{call}` | {here} |\n" for call, here, _ in table)
    made = BEGIN + "| C | rdmaxx |\n|---|---|\n" + rows + END

    readme = options.root / "README.md"
    text = readme.read_text(encoding="utf-8")
    if options.write:
        readme.write_text(text[:text.index(BEGIN)] + made + text[text.index(END) + len(END):], encoding="utf-8")
        return 0

    faults = []
    known = {call for call, _, _ in table}
    for name in HEADERS:
        functions = declared((options.include / name).read_text(encoding="utf-8"))
        if len(functions) < 15:
            faults.append(f"{name}: only {len(functions)} functions were found: the check does not read it any more")
        faults += [f"{name} declares {function}, which is not in the table" for function in functions - known]

    tests = "".join(path.read_text(encoding="utf-8") for path in (options.root / "tests/live").glob("*.cpp"))
    faults += [f"{call}: no live test is called \"{test}\"" for call, here, test in table
               if not here.startswith("not needed") and (f'"{test}"' not in tests if test else options.proof)]
    if made not in text:
        faults.append("README.md's table is not the one of tests/api/c_calls.tsv: run tests/api/check.py --write .")
    for fault in sorted(faults):
        print(fault)
    print(f"{len(known)} C calls, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
