#!/usr/bin/env python3
"""Checks that a piece of code does not compile, and for the right reason.

    snippet.py SNIPPET FAMILY COMPILER ARGUMENTS...
    snippet.py --compiles FILE FAMILY COMPILER ARGUMENTS...     only that it does, without a warning, as its head says

FAMILY is gcc or clang. A snippet is compiled twice: as it is, which must pass without a warning (the control:
else any typing error would do as a reason to fail), and with -DMUST_NOT_COMPILE, which must fail as its first
lines say:

    // expect: REGEX            some error, or a note under it, matches; may be repeated: each must be found
    // expect-gcc: REGEX        the same for one compiler, in place of expect
    // expect-clang: REGEX
    // flags: ARGUMENTS         for both compilations; also flags-gcc, flags-clang
    // needs: code              the diagnostic only comes when code is generated

A line of the snippet that ends in `// bad` must be reported by an error of its own which matches one of these, and
when there are such lines no other line of the snippet may be reported.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field

# What a diagnostic begins with; "in" and "required" lead to one that g++ places inside a header.
DIAGNOSTIC = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: +(?P<kind>(?:fatal )?error:|warning:|note:|in '|required from)", re.M
)
KEYS = ("expect", "flags", "needs")


class CheckFailed(Exception):
    """What is wrong, in a sentence, and what the compiler said."""


@dataclass
class Snippet:
    path: str
    expect: list = field(default_factory=list)
    flags: list = field(default_factory=list)
    needs_code: bool = False
    bad_lines: list = field(default_factory=list)

    @staticmethod
    def read(path, family):
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        snippet = Snippet(path)
        values = {key: [] for key in KEYS}
        specific = {key: [] for key in KEYS}
        for line in lines:
            if not line.startswith("//"):
                break
            head = re.match(r"// (%s)(?:-(gcc|clang))?: (.*)$" % "|".join(KEYS), line)
            if head is None:
                continue
            key, only, value = head.groups()
            if only is None:
                values[key].append(value)
            elif only == family:
                specific[key].append(value)
        snippet.expect = [re.compile(text) for text in specific["expect"] or values["expect"]]
        snippet.flags = [flag for text in values["flags"] + specific["flags"] for flag in text.split()]
        snippet.needs_code = values["needs"] + specific["needs"] == ["code"]
        snippet.bad_lines = [number for number, line in enumerate(lines, 1) if line.endswith("// bad")]
        return snippet


def compile_once(command, snippet, family, defines):
    command = list(command) + snippet.flags + defines
    # Without the quoted source lines, in which a regex could find what the compiler never said.
    if family == "gcc":
        command += ["-fno-diagnostics-show-caret", "-fdiagnostics-color=never"]
    else:
        command += ["-fno-caret-diagnostics", "-fno-color-diagnostics", "-ferror-limit=0"]
    command += ["-c", "-o", os.devnull] if snippet.needs_code else ["-fsyntax-only"]
    command += [snippet.path]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    return result.returncode, result.stderr


def errors_of(output):
    """The places, (file, line), and the text of each error; the text reaches over the notes that explain it."""
    found = []
    places = []
    for mark in DIAGNOSTIC.finditer(output):
        place = (os.path.realpath(mark["file"]), int(mark["line"]))
        if mark["kind"] != "note:":
            places.append(place)
            if mark["kind"].endswith(":"):
                found.append((mark["kind"], mark.start(), places))
                places = []
    ends = [start for _, start, _ in found[1:]] + [len(output)]
    return [(places, output[start:end]) for (kind, start, places), end in zip(found, ends) if kind != "warning:"]


def check_control(snippet, family, command):
    status, output = compile_once(command, snippet, family, [])
    if status != 0 or output:
        raise CheckFailed("the control does not compile without a warning:\n" + output)


def check(path, family, command):
    snippet = Snippet.read(path, family)
    if not snippet.expect:
        raise CheckFailed("no expect line: any failure would do")

    check_control(snippet, family, command)
    status, output = compile_once(command, snippet, family, ["-DMUST_NOT_COMPILE"])
    if status == 0:
        raise CheckFailed("it compiles, and must not\n" + output)
    errors = errors_of(output)
    for expected in snippet.expect:
        if not any(expected.search(text) for _, text in errors):
            raise CheckFailed("no error matches `%s`:\n%s" % (expected.pattern, output))

    here = os.path.realpath(path)
    own = [(line, text) for places, text in errors for file, line in places if file == here]
    for bad in snippet.bad_lines:
        texts = [text for line, text in own if line == bad]
        if not texts:
            raise CheckFailed("line %d is not reported:\n%s" % (bad, output))
        if not any(expected.search(text) for expected in snippet.expect for text in texts):
            raise CheckFailed("line %d is reported for another reason:\n%s" % (bad, "".join(texts)))
    if snippet.bad_lines:
        for line, text in own:
            if line not in snippet.bad_lines:
                raise CheckFailed("line %d is reported, and not marked as bad:\n%s" % (line, text))


def main():
    arguments = sys.argv[1:]
    compiles = arguments[0] == "--compiles"
    path, family, *command = arguments[1:] if compiles else arguments
    try:
        if compiles:
            check_control(Snippet.read(path, family), family, command)
        else:
            check(path, family, command)
    except CheckFailed as failed:
        print("%s: %s" % (path, failed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
