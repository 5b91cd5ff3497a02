#!/usr/bin/env python3
"""The README's program is examples/echo_client.cpp, which the other tests compile and run."""

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
print("README.md shows examples/echo_client.cpp as it is")
