#!/usr/bin/env python3
"""Every class that stands for a C object says what several threads may do with it, and threads.cpp does that.

    threads_check.py ROOT
"""

import pathlib
import re
import sys

NOT_ON_THE_FAKE = {
    "rsocket": "tests/live has two threads at the ends of one",
    "rwq_ind_table": "it does not change, and the fake has no queue pair that uses one",
    "buf": "newer than the library that the fake stands for",
    "comp_cntr": "the same",
    "dmah": "the same",
}
CLASS = re.compile(
    r"((?:^///.*\n)+)"  # its comment
    r"(?:class|struct)\s+(?:\[\[nodiscard\]\]\s+)?(?:RDMAXX_\w+(?:\(\w+\))?\s+)?(\w+)[^;{]*\{",
    re.M,
)

root = pathlib.Path(sys.argv[1])
tests = (root / "tests/loops/threads.cpp").read_text(encoding="utf-8")
shown = set()
for name in re.findall(r'"threads: ([\w, ]+):', tests):
    shown |= set(re.split(r", | and ", name))

claims = set()  # of more than one thread at a time
silent = []
for header in sorted((root / "include/rdmaxx").glob("[cv]*/*.hpp")):
    text = header.read_text(encoding="utf-8")
    text = re.sub(r"^namespace detail \{.*?^\} // namespace detail", "", text, flags=re.M | re.S)
    for comment, name in CLASS.findall(text):
        comment = re.sub(r"\s*\n///\s*", " ", comment)
        if re.search(r"[Aa]ny number of threads|\bconcurrently\b|\banother (one|thread)\b", comment):
            claims.add(name)
        elif "C call" in comment and not re.search(r"\bthread\b", comment):
            silent.append("%s: %s says nothing about threads" % (header.relative_to(root), name))

wrong = silent
wrong += ["no test in threads.cpp is named after %s" % name for name in sorted(claims - shown - NOT_ON_THE_FAKE.keys())]
wrong += ["threads.cpp has a test of %s, which says nothing about several" % name for name in sorted(shown - claims)]
if wrong:
    sys.exit("\n".join(wrong))
if not claims:
    sys.exit("found no class at all")
print("%d classes: %s" % (len(claims), ", ".join(sorted(claims))))
