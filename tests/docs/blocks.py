#!/usr/bin/env python3
"""The C++ of README and pages, to be compiled: `blocks.py --list PAGE...` or `blocks.py --write FOLDER PAGE...`.

A block with a main() is a program, which is run as well. Any other one is a piece of a function, unless it begins with
what belongs outside of one; it may use the objects that FUNCTION has.
"""

import argparse
import pathlib
import re

HEAD = """#include <rdmaxx/rdmaxx.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <poll.h>

using namespace std::chrono_literals;
"""

FUNCTION = """
using namespace rdmaxx;
[[maybe_unused]] static void shown(
    [[maybe_unused]] event_channel& channel, [[maybe_unused]] cm_id& id, [[maybe_unused]] cm_event& event,
    [[maybe_unused]] const context& device, [[maybe_unused]] const pd& domain, [[maybe_unused]] const mr& memory,
    [[maybe_unused]] comp_channel& completions, [[maybe_unused]] const cq& queue, [[maybe_unused]] qp_ref qp,
    [[maybe_unused]] std::vector<cm_id>& clients) {{
{}}}
"""

OUTSIDE = re.compile(r"#|(struct|class|template|void|inline|static|asio::awaitable)\b")


def blocks(pages):
    """Page, line and text of each block of C++."""
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^```cpp\n(.*?)^```$", text, re.M | re.S):
            yield page, text.count("\n", 0, block.start(1)) + 1, block[1]


def is_program(text):
    return re.search(r"^int main\(", text, re.M) is not None


def located(page, line, text):
    """So that the compiler's messages name the page."""
    return f'#line {line} "{page.name}"\n{text}'


def snippets(found):
    """One file for all of them: includes first, and each in a namespace of its own."""
    includes, bodies = [], []
    for number, (page, line, text) in enumerate(found):
        includes += re.findall(r"^#include .*\n", text, re.M)
        body = located(page, line, re.sub(r"^#include .*$", "", text, flags=re.M))
        if not OUTSIDE.match(text):
            body = FUNCTION.format(body)
        bodies.append(f"\nnamespace snippet_{number} {{\n{body}}}\n")
    return HEAD + "".join(dict.fromkeys(includes)) + "".join(bodies)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="print a name for each program")
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER", help="write snippets.cpp and the programs")
    parser.add_argument("pages", type=pathlib.Path, nargs="+")
    options = parser.parse_args()

    found = list(blocks(options.pages))
    programs = [each for each in found if is_program(each[2])]
    if options.list:
        for number, (page, _, _) in enumerate(programs):
            print(f"{page.stem.lower()}_{number}")
    if options.write:
        pieces = [each for each in found if not is_program(each[2])]
        (options.write / "snippets.cpp").write_text(snippets(pieces), "utf-8")
        # For clang 14, Asio has no coroutines.
        (options.write / "plain_snippets.cpp").write_text(snippets(p for p in pieces if "asio" not in p[2]), "utf-8")
        for number, (page, line, text) in enumerate(programs):
            (options.write / f"{page.stem.lower()}_{number}.cpp").write_text(located(page, line, text), "utf-8")


main()
