#!/usr/bin/env python3
"""The enumerators of verbs.h: each has the same value in rdmaxx, and its own name from to_string().

Fails when the headers declare one that tests/api/enumerators.tsv, or the enum class that it names there, does not have.
With --write it prints the program that compares them, and compiles nothing.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

TABLE = pathlib.Path(__file__).with_suffix(".tsv")
MACROS = "IBV_"  # what the table calls them
# Reserved bits and ranges: no values of ours.
NO_VALUE = {"IBV_WQ_FLAGS_RESERVED", "IBV_ACCESS_OPTIONAL_RANGE"}
# Whose to_string() is more than names: "2.5 Gb/s".
NO_NAMES = {"rate"}


def declared(include):
    """(enum, enumerator), (MACROS, macro): what the C headers have, in their order."""
    found = []
    for name in ("verbs.h", "verbs_api.h"):
        text = (include / "infiniband" / name).read_text(encoding="utf-8")
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
        for enum in re.finditer(r"\benum\s*(\w*)\s*\{(.*?)\}", text, flags=re.S):
            names = re.findall(r"(?:^|,)\s*(\w+)", enum[2])
            found += [(enum[1] or names[0], each) for each in names]
        found += [(MACROS, each) for each in re.findall(r"^\s*#\s*define\s+(IBV_\w+)\s", text, flags=re.M)]
    return found


def rows():
    table = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and line[0] != "#":
            enum, prefix, here, names = [*line.split("\t"), ""][:4]
            table.setdefault(enum, []).append((prefix, here, names.split()))
    return table


def renamed(name, names):
    for pair in names:
        pattern, _, replacement = pair.partition("=")
        if re.fullmatch(pattern, name):
            return re.sub(pattern, replacement, name)
    return name


def program(include):
    """What compares the values, and what is wrong before that."""
    table = rows()
    found = declared(include)
    faults = []
    lines = []
    if len(found) < 350:
        faults.append(f"only {len(found)} enumerators were found: the check does not read the headers any more")
    for enum, c in found:
        row = max((row for row in table.get(enum, []) if c.startswith(row[0])), key=lambda row: len(row[0]), default=None)
        if row is None:
            faults.append(f"{c} of {enum} is not in the table")
            continue
        prefix, here, names = row
        name = c.removeprefix(prefix).lower()
        if re.fullmatch(r"\w+", here) and all("=" in pair for pair in names): # an enum class
            if c not in NO_VALUE:
                ours = renamed(name, names)
                lines.append(f'static_assert(same(rdmaxx::{here}::{ours}, {c}), "{c}");\n')
                if here not in NO_NAMES:
                    lines.append(f'static_assert(named(rdmaxx::{here}::{ours}, "{ours.rstrip("_")}"), "{c}: its name");\n')
        elif name not in names:
            faults.append(f"{c} is none of those that {here} stands for")
    text = ("#include <rdmaxx/rdmaxx.hpp>\n#include <rdmaxx/verbs/comp_cntr.hpp>\n#include <rdmaxx/verbs/counters.hpp>\n"
            "#include <rdmaxx/verbs/dmah.hpp>\n#include <rdmaxx/verbs/flow.hpp>\n"
            "template <class Ours, class Theirs>\nconsteval bool same(Ours ours, Theirs theirs) {\n"
            "    return static_cast<unsigned long long>(ours) == static_cast<unsigned long long>(theirs);\n}\n"
            "template <class Ours>\nconsteval bool named([[maybe_unused]] Ours ours, [[maybe_unused]] std::string_view name) {\n"
            "    if constexpr (requires { to_string(ours); }) // not of sets of flags\n"
            "        return to_string(ours) == name;\n    else\n        return true;\n}\n")
    compared = sum("same(" in line for line in lines)
    return text + "".join(lines) + "int main() {}\n", faults, f"{len(found)} enumerators, {compared} compared"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--include", type=pathlib.Path, default="/usr/include", help="where the C headers are")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("compiler", nargs="*", default=["c++"])
    options = parser.parse_args()
    text, faults, summary = program(options.include)
    if options.write:
        print(text, end="")
        return 0
    print(summary)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "enumerators.cpp"
        source.write_text(text, encoding="utf-8")
        include = pathlib.Path(__file__).resolve().parents[2] / "include"
        result = subprocess.run([*options.compiler, "-std=c++20", "-fsyntax-only", f"-I{include}",
                                 f"-isystem{options.include}" if options.include != pathlib.Path("/usr/include") else "-w",
                                 source], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        faults += [line for line in result.stdout.splitlines() if "error" in line]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
