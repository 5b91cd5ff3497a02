#!/usr/bin/env python3
"""One version of rdmaxx, and one least version of rdma-core, wherever they are written down.

What the .pc file, find_package, FetchContent and the subproject report is compared by the tests that build with them.
"""

import re

import consumer


def everywhere(path, pattern):
    """What the pattern's first group matches in a file: at least once, and the same each time."""
    found = re.findall(pattern, (consumer.SOURCE / path).read_text(encoding="utf-8"), re.M)
    if not found:
        consumer.fail(f"{path} has no {pattern}")
    if len(set(found)) > 1:
        consumer.fail(f"{path} disagrees with itself: {found}")
    return found[0]


version = consumer.VERSION
header = "include/rdmaxx/version.hpp"
parts = [int(everywhere(header, rf"^#define RDMAXX_VERSION_{part} (\d+)$")) for part in ("MAJOR", "MINOR", "PATCH")]
consumer.equal("RDMAXX_VERSION_MAJOR ...", parts, [int(part) for part in version.split(".")])
number = parts[0] * 1_000_000 + parts[1] * 1_000 + parts[2]
consumer.equal("RDMAXX_VERSION", int(everywhere(header, r"^#define RDMAXX_VERSION (\d+)$")), number)

for path, pattern in {
    "meson.build": r"^  version: '(.*)',$",
    "packaging/rdmaxx.wrap": r"^revision = v(.*)$",
    "packaging/vcpkg/vcpkg.json": r'^  "version": "(.*)",$',
    "tests/consumers/fetch_content/CMakeLists.txt": r"GIT_TAG v(.*)$",
}.items():
    consumer.equal(path, everywhere(path, pattern), version)

# What is being prepared stands before the newest version.
changelog = (consumer.SOURCE / "CHANGELOG.md").read_text(encoding="utf-8")
headings = re.findall(r"^## \[(.*?)\]", changelog, re.M)
consumer.equal("CHANGELOG.md's headings", headings[:2], ["Unreleased", version])
consumer.check("CHANGELOG.md's date", re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M))

for library in ("librdmacm", "libibverbs"):
    least = everywhere("meson.build", rf"dependency\('{library}', version: '>= (.*?)'")
    for path in ("packaging/rdmaxx.pc.in", "packaging/cmake/rdmaxx-rdma-core.cmake"):
        consumer.equal(f"{library} in {path}", everywhere(path, rf"{library} ?>= ?([\d.]+\d)"), least)

print(f"rdmaxx {version}, everywhere")
