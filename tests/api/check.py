#!/usr/bin/env python3
"""The tables C call -> rdmaxx: complete, true, and the README's.

Fails when the installed headers declare a function that the tables lack, when an entry names no test that proves it or
one that does not run, or when a table of README.md is another one. With --write it makes README.md's tables instead.
"""

import argparse
import pathlib
import re
import sys

END = "<!-- end -->\n"
LITERAL = r'"(?:[^"\\]|\\.)*"'
# Its name, in one piece or several, and its tags.
TEST_CASE = re.compile(rf"\bTEST_CASE(?:_METHOD)?\(\s*(?:[\w:]+,\s*)?({LITERAL}(?:\s+{LITERAL})*)"
                       rf"(?:\s*,\s*({LITERAL}))?")


class Library:
    def __init__(self, name, table, headers, prefix, proofs):
        self.name = name
        self.table = table
        self.headers = headers
        self.function = re.compile(rf"\b({prefix}[a-z_0-9]+)\s*\([^;()]*\)\s*;")
        self.proofs = proofs  # folders of tests: on real verbs, and on the fake where no software device gets so far

    @property
    def begin(self):
        return f"<!-- C calls of {self.name}: made by tests/api/check.py -->\n"


LIBRARIES = [
    Library("librdmacm", "c_calls.tsv", ["rdma/rdma_cma.h", "rdma/rdma_verbs.h", "rdma/rsocket.h"],
            "(?:rdma_|repoll_|r)", ["live"]),
    # Names with an underscore in front are what inline functions and macros stand for.
    Library("libibverbs", "verbs_calls.tsv", ["infiniband/verbs.h"],
            "(?:ibv_|verbs_|mbps_|mult_)", ["live", "unit"]),
]


def declared(header, function):
    """The functions that a C header declares or defines."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.M | re.S)
    text = text.replace('extern "C" {', "")
    # A body is of no interest, and calls other functions.
    while (shorter := re.sub(r"\{[^{}]*\}", ";", text)) != text:
        text = shorter
    return set(function.findall(text))


def tests(folder):
    """The names of the test cases in the sources that are built there, without those that run on demand only."""
    built = (folder / "meson.build").read_text(encoding="utf-8")
    names = set()
    for source in folder.glob("*.cpp"):
        if f"'{source.name}'" not in built:
            continue
        for case in TEST_CASE.finditer(source.read_text(encoding="utf-8")):
            if not re.search(r"\[[.!]", case[2] or ""):
                names.add("".join(part[1:-1] for part in re.findall(LITERAL, case[1])).replace('\\"', '"'))
    return names


def rows(path):
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]


def check(library, root, include, readme):
    """What is wrong, and the counts."""
    table = rows(root / "tests/api" / library.table)
    faults = []
    known = {call for call, _, _ in table}
    for name in library.headers:
        functions = declared((include / name).read_text(encoding="utf-8"), library.function)
        if len(functions) < 15:
            faults.append(f"{name}: only {len(functions)} functions were found: the check does not read it any more")
        faults += [f"{name} declares {function}, which is not in the table" for function in functions - known]

    found = {folder: tests(root / "tests" / folder) for folder in library.proofs}
    for folder, names in found.items():
        if len(names) < 100:
            faults.append(f"tests/{folder}: only {len(names)} tests were found: the check does not read them any more")
    counts = dict.fromkeys(library.proofs, 0) | {"not needed": 0}
    for call, here, test in table:
        where = next((folder for folder in library.proofs if test in found[folder]), None)
        if here.startswith("not needed"):
            counts["not needed"] += 1
        elif where is not None:
            counts[where] += 1
        else:
            faults.append(f'{call}: no test is called "{test}"' if test else f"{call}: no test proves it")
    if shown(library, root) not in readme:
        faults.append(f"README.md's table is not the one of tests/api/{library.table}: run tests/api/check.py --write .")
    return faults, f"{library.name}: {len(known)} C calls, " + ", ".join(f"{n} {what}" for what, n in counts.items())


def shown(library, root):
    """As README.md has it."""
    table = rows(root / "tests/api" / library.table)
    lines = "".join(f"| `{call}` | {here} |\n" for call, here, _ in table)
    return library.begin + "| C | rdmaxx |\n|---|---|\n" + lines + END


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("include", type=pathlib.Path, nargs="?", default="/usr/include")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    path = options.root / "README.md"
    readme = path.read_text(encoding="utf-8")
    if options.write:
        for library in LIBRARIES:
            begin = readme.index(library.begin)
            end = readme.index(END, begin) + len(END)
            readme = readme[:begin] + shown(library, options.root) + readme[end:]
        path.write_text(readme, encoding="utf-8")
        return 0

    faults = []
    for library in LIBRARIES:
        found, summary = check(library, options.root, options.include, readme)
        faults += found
        print(summary)
    for fault in sorted(faults):
        print(fault)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
