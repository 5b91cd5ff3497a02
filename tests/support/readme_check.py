#!/usr/bin/env python3
"""The README's program is examples/echo_client.cpp, what README and pages link to is there, and each example has a line
in examples/README.md."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
readme = (root / "README.md").read_text(encoding="utf-8")
example = (root / "examples/echo_client.cpp").read_text(encoding="utf-8")

blocks = re.findall(r"^```cpp\n(.*?)^```$", readme, re.M | re.S)
if not blocks:
    sys.exit("README.md has no C++ program")
if blocks[0] != example[example.index("#include"):]:
    sys.exit("README.md's program differs from examples/echo_client.cpp (after its head comment)")

links = 0
for page in [root / "README.md", root / "CHANGELOG.md", *root.glob(".github/*.md"), *root.glob("docs/**/*.md"),
             *root.glob("examples/*.md")]:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        if not re.match(r"https?:", target):
            links += 1
            if not (page.parent / target).exists():
                sys.exit(f"{page.relative_to(root)} links to {target}, which is not there")
if links < 40:
    sys.exit(f"only {links} links were found: the check does not read them any more")

headers = "".join(path.read_text(encoding="utf-8") for path in root.glob("include/**/*.hpp"))
unnamed = {name for name in re.findall(r"define (RDMAXX_HAS_\w+)", headers) if f"`{name}`" not in readme}
if unnamed:
    sys.exit(f"README.md does not name {sorted(unnamed)}")

setup = (root / "tests/support/setup.sh").read_text(encoding="utf-8")
packages = " ".join(re.findall(r"_packages=\(([^)]*)\)", setup)).replace('"$boost_package"', "libboost-dev").split()
needed = readme[readme.index("Other distributions need"):].split("\n\n")[0]
unnamed = [name for name in packages if not re.search(rf"(?<![-\w]){re.escape(name)}(?![-\w])", needed)]
if unnamed or len(packages) < 20:
    sys.exit(f"README.md does not tell other distributions of {unnamed}")

lines = (root / "examples/README.md").read_text(encoding="utf-8")
listed = re.findall(r"^\| \[([^]]+)\]\(\1\) \| \S.* \|$", lines, re.M)
there = [path.name for path in (root / "examples").iterdir() if path.suffix in (".cpp", ".sh")]
if sorted(listed) != sorted(there):
    differ = sorted(set(listed) ^ set(there)) or "a line is there twice"
    sys.exit(f"examples/README.md does not have one line for each example: {differ}")
print("README.md shows examples/echo_client.cpp as it is")
