#!/usr/bin/env python3
"""Writes the pages "From C to rdmaxx" out of the tables that tests/api checks: `c_calls.py OUTPUT`.

Each function gets a page of its own, since the site's search finds those; the headers' comments link to them.
"""

import pathlib
import sys

HEAD = """/**
@page from_c From C to rdmaxx

A call is named as in C, without its prefix and without the object that it acts on. The raw C structs work everywhere on
the data path, and every type has `native_handle()`, `adopt()` and `release()`: a C program can move over one call at a
time.

| C | rdmaxx |
|---|---|
"""


def main():
    calls = []
    for table in sorted((pathlib.Path(__file__).parent.parent / "tests/api").glob("*.tsv")):
        lines = [line for line in table.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
        calls += [line.split("\t")[:2] for line in lines]
    page = [HEAD]
    page += [f'| @subpage c_{call} "{call}" | {here} |\n' for call, here in calls]
    page.append("*/\n")
    page += [f"\n/**\n@page c_{call} {call}\n\nIn rdmaxx: {here}\n*/\n" for call, here in calls]
    pathlib.Path(sys.argv[1]).write_text("".join(page), encoding="utf-8")


main()
