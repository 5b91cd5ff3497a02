#!/usr/bin/env python3
"""What Doxygen reads of a header, in place of the header itself.

In the headers a comment goes for all declarations that follow it without an empty line: the form that throws, and the
one with an error code. Doxygen knows no such rule, so here the comment is repeated. Names are as users write them,
without the inline namespace, what no user calls is left out, and a C call is a link to its place in the table.

Of a page, in the place of a link to the README's table of C calls, one to the site's.
"""

import pathlib
import re
import sys

END_OF_DECLARATION = re.compile(r"[;}]\s*(//.*)?$")
C_CALL = re.compile(r"\bC calls?:\s*(?:///\s*)?")
MOVE = re.compile(r"(\w+)\(\1&&( other)?\) noexcept|\w+& operator=\(\w+&&( other)?\) noexcept")
MAN_PAGE = re.compile(r"\b([a-z]\w+)\(3\)")
SHOWN = re.compile(r"(class|struct) (\w+_ops|owner|ref|parent|id_info|id_owner|io_object|basic_\w+|connection_options)\b")
TABLES = pathlib.Path(__file__).parent.parent / "tests/api"
C_CALLS = {line.split("\t")[0] for table in TABLES.glob("*.tsv") for line in table.read_text("utf-8").splitlines()}


def link(man_page):
    call = man_page[1]
    return f'@ref c_{call} "{call}(3)"' if call in C_CALLS else man_page[0]


def rendered(comment):
    """A comment, with its C call as a paragraph of its own."""
    indent = comment[0][: len(comment[0]) - len(comment[0].lstrip())]
    text = "\n".join(comment)
    text = C_CALL.sub(f"\n{indent}/// @par C call\n{indent}/// ", text)
    return MAN_PAGE.sub(link, text).split("\n")


def filter_page(text):
    return re.sub(r"\([./]*README\.md#from-c-to-rdmaxx\)", "(@ref from_c)", text)


def public_lines(lines):
    """Without what is private or protected."""
    hidden = None  # the indentation of the class whose private part this is
    for line in lines:
        here = line[: len(line) - len(line.lstrip())]
        if hidden is not None and here == hidden and line.strip().startswith(("};", "public:")):
            hidden = None
        if line.strip() in ("private:", "protected:"):
            hidden = here
        yield line if hidden is None else ""
        if hidden is None and line.strip().startswith("class ") and line.endswith("{"):
            hidden = here


def named_lines(lines):
    """Of namespace detail, only what users meet as a part of something else."""
    inside, chunk = False, []
    for line in lines:
        if not inside or line.startswith(("#", "} // namespace")):
            inside = inside and not line.startswith("} // namespace")
            yield line
        elif not chunk and not line.strip():
            yield line
        else:
            chunk.append(line)
            if line and line[0] not in " /" and (line[0] == "}" or line.endswith(";")):
                shown = any(SHOWN.match(each) for each in chunk)
                yield from (each if shown else "" for each in chunk)
                chunk = []
        if re.match(r"namespace (rdmaxx::)?detail \{$", line):
            inside = True


def filter_header(text):
    lines = public_lines(named_lines(text.replace("rdmaxx::inline v0", "rdmaxx").split("\n")))
    out = []
    comment = []  # that of the present paragraph
    indent = ""  # and of its declarations
    complete = False  # the comment was read
    between = True  # no declaration has begun, or the last one has ended
    for line in lines:
        text = line.strip()
        here = line[: len(line) - len(line.lstrip())]
        if text.startswith("///") and not text.startswith("///<"):
            if complete or not comment:
                comment, complete, indent, between = [], False, here, True
            comment.append(line)
            continue
        if not text:
            if comment and not complete:
                out.extend(rendered(comment))
            comment, complete, between = [], False, True
        elif re.search(r"= delete;", text):
            if between:
                line = ""
        elif MOVE.match(text) and not (comment and here == indent):
            out.append(f"{here}/// Leaves the other one empty.")
        elif comment and here == indent and not text.startswith(("//", "#", "{", "}", ":")):
            if between or text.startswith("template <"):
                out.extend(rendered(comment))
            complete, between = True, False
        if comment and (here == indent and END_OF_DECLARATION.search(text) or here > indent and text.endswith("{}")):
            between = True
        out.append(line)
    return "\n".join(out)


def main():
    source = pathlib.Path(sys.argv[1])
    render = filter_page if source.suffix == ".md" else filter_header
    sys.stdout.write(render(source.read_text(encoding="utf-8")))


main()
