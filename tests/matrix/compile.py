"""Compiling the public headers: with each suite's rdma-core and compilers, and at the levels that no suite has."""

import concurrent.futures
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys

import roots

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent

sys.path.append(str(SOURCE / "tests/api"))
import enumerators  # pylint: disable=wrong-import-position

STANDARDS = {20: "c++20", 23: "c++2b", 26: "c++2c"}  # as the oldest compilers spell them

# What the suites' rdma-core has, as RDMAXX_HAS_... says it: (LINUX_VERBS, ESTABLISH, RESOLVE_ADDRINFO).
FEATURES = {"bullseye": (1, 1, 0), "bookworm": (1, 1, 0), "trixie": (1, 1, 0), "forky": (1, 1, 1)}
FREEBSD_FEATURES = (0, 0, 0)


def headers_of(what):
    text = (SOURCE / "include/meson.build").read_text(encoding="utf-8")
    return re.findall(r"'(.*?)'", re.search(rf"^rdmaxx_{what}_headers = \[(.*?)^\]", text, re.M | re.S)[1])


def strict_arguments(family):
    text = (SOURCE / "tests/meson.build").read_text(encoding="utf-8")
    arguments = re.findall(r"'(-.*?)'", re.search(r"^strict_args = .*?\((.*?)^\)", text, re.M | re.S)[1])
    return [argument for argument in arguments
            if family == "clang" or argument not in ("-Wconsumed", "-Wthread-safety")]


class Failed(Exception):
    """Something is wrong with what is tested."""


class Compiler:
    """A compiler of a root: its command, and the standards that it knows."""

    def __init__(self, root, command, arguments=(), standards=(20, 23)):
        self.root = root
        self.command = [command, *arguments]
        self.family = "clang" if "clang" in command else "gcc"
        self.standards = standards
        number = re.search(r"\d+$", command)[0]
        self.label = f"{'clang' if self.family == 'clang' else 'g++'} {number}"
        if "-stdlib=libc++" in arguments:
            self.label += " with libc++"


def tool_compilers(root, *names):
    """Bookworm's compilers, all or some."""
    found = [Compiler(root, "g++-11"), Compiler(root, "g++-12"), Compiler(root, "clang++-14"),
             Compiler(root, "clang++-16"), Compiler(root, "clang++-19", standards=(20, 23, 26)),
             Compiler(root, "clang++-19", ["-stdlib=libc++"])]
    if not names:
        return found
    return [next(compiler for compiler in found if compiler.label == name) for name in names]


def world_compilers(root):
    gcc = next(re.fullmatch(r"g\+\+-\d+", name)[0] for name in root.versions if re.fullmatch(r"g\+\+-\d+", name))
    clang = f"clang++-{roots.CLANG[root.suite]}"
    return [Compiler(root, gcc, standards=(20, 23, 26)), Compiler(root, clang, standards=(20, 23, 26)),
            Compiler(root, clang, ["-stdlib=libc++"], standards=(20, 23, 26))]


class Units:
    """The translation units, in a folder of one check's own."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        headers = headers_of("public")
        includes = "".join(f"#include <{name}>\n" for name in headers)
        self.all = self.write("all.cpp", includes + includes + "int main() {}\n")
        self.alone = [self.write(f"alone_{re.sub('[/.]', '_', name)}.cpp", f"#include <{name}>\n#include <{name}>\n")
                      for name in headers]
        self.adapters = [self.write(f"{pathlib.Path(name).stem}.cpp", f"#include <{name}>\n#include <{name}>\n")
                         for name in headers_of("adapter")]
        self.members = self.write("members.cpp", includes + instantiations())
        self.features = HERE / "features.cpp"
        self.c_only = self.write("c_only.cpp", "#include <rdma/rdma_cma.h>\n#include <rdma/rdma_verbs.h>\n")
        self.warning = self.write("warning.cpp", includes + "int narrowed(long long wide) { return wide; }\n")

    def reduced(self):
        """To be included before everything else: takes from a Linux rdma-core what FreeBSD lacks."""
        names = [line for line in (HERE / "freebsd/absent").read_text().split("\n") if line and line[0] != "#"]
        return self.write("reduced.hpp", "".join(
            [*(f"#define {name} absent_{name}\n" for name in names),
             "#include <netinet/if_ether.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n",
             *(f"#undef {name}\n" for name in [*names, "ibv_reg_mr", "ibv_reg_mr_iova", "RAI_DNS", "RAI_SA",
                                               "IBV_DEVICE_CC_DMA_BOUNCE"])]))

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


# What stands for the parameters of handles that are templates themselves.
ARGUMENTS = {"Fields": "wc_fields::byte_len", "Ops": "send_ops::send", "Type": "qp_type::rc"}


def instantiations():
    """Every member of the class templates that handles inherit their operations from."""
    pattern = re.compile(r"class (?:\w+\(\w+\) |RDMAXX_\w+ )?\w+ (?:final )?: public (detail::\w+<.*>) \{")
    bases = {}
    for header in sorted((SOURCE / "include").rglob("*.hpp")):
        conditions = []
        for line in header.read_text(encoding="utf-8").splitlines():
            if re.match(r"#\s*if", line):
                conditions.append(line)
            elif re.match(r"#\s*endif", line):
                conditions.pop()
            elif found := pattern.match(line):
                base = re.sub(r"\b(" + "|".join(ARGUMENTS) + r")\b", lambda name: ARGUMENTS[name[0]], found[1])
                bases[base] = [condition for condition in conditions if "RDMAXX_HAS_" in condition]
    if len(bases) < 10:
        raise RuntimeError("the handles' base classes are no longer found in the headers")
    text = "namespace rdmaxx::inline v0 {\n"
    for base, conditions in bases.items():
        lines = [*conditions, f"template class {base};", *("#endif" for _ in conditions)]
        text += "".join(f"{line}\n" for line in lines)
    return text + "}\n"


class Check:
    """Compiles that belong together. A compile with the same inputs is not repeated while the folder stays."""

    def __init__(self, folder, headers):
        self.headers = headers
        self.units = Units(folder / "units")
        self.done = folder / "done"
        self.done.mkdir(parents=True, exist_ok=True)
        self.jobs = []
        self.notes = []
        inputs = sorted([*(SOURCE / "include").rglob("*.hpp"), *HERE.rglob("*.hpp"), *HERE.rglob("*.h"),
                         *HERE.glob("*.cpp"), *(SOURCE / "examples").glob("*.cpp")])
        self.inputs = hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in inputs)).hexdigest()

    def add(self, compiler, unit, standard=20, arguments=(), refused=None, optimize=None):
        """A compile; `refused` is what the compiler's message must say where it must fail. Some warnings come only with
        optimization."""
        mode = ["-fsyntax-only"]
        if optimize is not None:
            mode = [f"-O{optimize}", "-D_GLIBCXX_ASSERTIONS=1", "-c", "-o", "/dev/null"]
        command = [*compiler.command, f"-std={STANDARDS[standard]}", *mode, f"-I{SOURCE}/include",
                   *strict_arguments(compiler.family), *arguments, unit]
        self.jobs.append((compiler, unit, standard, command, refused))

    def add_header_unit(self, compiler):
        """rdmaxx.hpp as a header unit, and a program that imports it."""
        program = HERE / "header_unit.cpp"
        common = f"{shlex.join(compiler.command)} -std=c++20 -I{SOURCE}/include"
        if compiler.family == "gcc":
            first = f"{common} -fmodules-ts -x c++-system-header rdmaxx/rdmaxx.hpp"
            second = f"{common} -fmodules-ts -o program {program}"
        else:
            first = f"{common} -xc++-user-header -fmodule-header=user {SOURCE}/include/rdmaxx/rdmaxx.hpp -o rdmaxx.pcm"
            second = f"{common} -Wno-experimental-header-units -fmodule-file=rdmaxx.pcm -o program {program}"
        script = f"cd $(mktemp -d) && {first} && {second} -lrdmacm -libverbs"
        self.jobs.append((compiler, program, 20, ["sh", "-c", script], None))

    def can_compile(self, compiler, standard, arguments=()):
        """Whether the C headers alone get through."""
        command = [*compiler.command, f"-std={STANDARDS[standard]}", "-fsyntax-only", *arguments, self.units.c_only]
        return self.execute(compiler.root, command).returncode == 0

    def execute(self, root, command):
        folders = [SOURCE, self.units.folder, *([self.headers.path] if self.headers is not root else [])]
        return subprocess.run(root.enter(command, read=folders), text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, what):
        """Runs the compiles: the row of the table. Raises Failed with what was wrong."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            failures = [failure for failure in pool.map(self.run_one, self.jobs) if failure]
        if failures:
            raise Failed("\n\n".join(failures[:4] + [f"{len(failures)} compiles failed"]))
        compilers = dict.fromkeys(job[0].label for job in self.jobs)
        return {"suite": self.headers.suite, "rdma_core": self.headers.rdma_core, "kernel": "",
                "compilers": ", ".join(compilers),
                "what": "; ".join([f"{what}: {len(self.jobs)} compiles", *dict.fromkeys(self.notes)])}

    def run_one(self, job):
        compiler, unit, standard, command, refused = job
        key = [self.inputs, unit.read_text(encoding="utf-8"), compiler.root.path.name, refused, *map(str, command)]
        stamp = self.done / hashlib.sha256(repr(key).encode()).hexdigest()
        if stamp.exists():
            return None
        result = self.execute(compiler.root, command)
        what = f"{compiler.label}, C++{standard}, {unit.name}: {' '.join(map(str, command))}"
        if refused is None and result.returncode != 0:
            return f"{what}\n{shortened(result.stdout)}"
        if refused is not None and (result.returncode == 0 or not re.search(refused, result.stdout)):
            return f"{what}\nshould be refused with {refused!r}\n{shortened(result.stdout)}"
        stamp.touch()
        return None

    # ---- what is compiled where

    def add_headers(self, compilers, arguments=(), features=None, alone=True):
        """All headers with each compiler and standard; each alone with the first compiler."""
        units = self.units
        for compiler in compilers:
            # Strict warnings are on: this control fails.
            self.add(compiler, units.warning, arguments=arguments, refused="conversion")
            if features:
                self.add(compiler, units.features, arguments=[*arguments, *expected(features)])
            for standard in compiler.standards:
                # "invalid bitwise operation between different enumeration types" in verbs.h: clang 18 to 20.
                if standard == 26 and not self.can_compile(compiler, standard, arguments):
                    self.notes.append(f"{compiler.label} refuses the C headers in C++26")
                    continue
                self.add(compiler, units.all, standard, arguments=arguments)
        for unit in units.alone if alone else []:
            self.add(compilers[0], unit, arguments=arguments)

    def add_uses(self, compilers, arguments=()):
        """Every member of the templates, and what users write, as it is compiled for release."""
        for compiler in compilers:
            self.add(compiler, self.units.members, arguments=arguments, optimize=2)
            for optimize in (1, 2, 3) if compiler.family == "gcc" else (2,):
                self.add(compiler, HERE / "users.cpp", arguments=arguments, optimize=optimize)

    def add_enumerators(self, compiler, arguments=()):
        """The values of C's enumerators, as these headers have them."""
        text, faults, _ = enumerators.program(self.headers.path / "usr/include")
        if faults:
            raise Failed("\n".join(faults))
        self.add(compiler, self.units.write("enumerators.cpp", text), arguments=arguments)

    def add_examples(self, compilers, arguments=()):
        for compiler in compilers:
            for unit in [*self.units.adapters, *sorted((SOURCE / "examples").glob("*.cpp"))]:
                # clang 14 has no coroutines with the GNU library.
                if compiler.label != "clang 14" or "co_await" not in unit.read_text(encoding="utf-8"):
                    self.add(compiler, unit, arguments=arguments)


def expected(features):
    names = ("LINUX_VERBS", "ESTABLISH", "RESOLVE_ADDRINFO")
    return [f"-DEXPECTED_{name}={value}" for name, value in zip(names, features)]


def include_of(headers):
    return [f"-isystem{headers.path}/usr/include"]


def suite(name, folder, whole=False):
    """A suite's rdma-core with its own compilers; before trixie, with bookworm's."""
    alone = whole or name in (roots.SUITES[0], roots.SUITES[-1])
    if name in roots.CLANG:
        headers = roots.world(name)
        compilers = world_compilers(headers)
        check = Check(folder, headers)
        check.add_headers(compilers, features=FEATURES[name], alone=alone)
        check.add_uses(compilers)
        check.add_enumerators(compilers[0])
        check.add_examples(compilers[:2])
        for compiler in compilers[:2]:
            check.add_header_unit(compiler)
        return check.run("the headers, as header units too, and the examples")
    headers = roots.headers(name)
    compilers = tool_compilers(roots.tools())
    arguments = include_of(headers)
    check = Check(folder, headers)
    check.add_headers(compilers, arguments, FEATURES[name], alone)
    check.add_enumerators(compilers[0], arguments)
    if name == "bookworm":
        check.add_uses(compilers, arguments)
        check.add_examples(tool_compilers(compilers[0].root, "g++ 11", "clang 14"), arguments)
    return check.run("the headers and the examples" if name == "bookworm" else "the headers")


def freebsd(folder, whole=False):
    """FreeBSD's level of the interface: on stand-ins for its headers, and on the newest rdma-core cut down to it."""
    root, headers = roots.tools(), roots.headers("forky")
    check = Check(folder, headers)
    compilers = tool_compilers(root, "clang 19 with libc++", "g++ 12")  # its own compiler and library first
    arguments = [f"-isystem{HERE}/freebsd", "-include", HERE / "freebsd/prelude.hpp"]
    check.add_headers(compilers, arguments, FREEBSD_FEATURES, whole)
    if whole:
        check.add_uses(compilers, arguments)
    for compiler in compilers:
        arguments = [*include_of(headers), "-include", check.units.reduced()]
        check.add(compiler, check.units.members, arguments=arguments)
        check.add(compiler, check.units.features, arguments=[*arguments, *expected(FREEBSD_FEATURES)])
        # What is said to be absent is.
        call = check.units.write("call.cpp", "#include <rdma/rdma_cma.h>\n"
                                             "int f(rdma_cm_id* id) { return rdma_establish(id); }\n")
        check.add(compiler, call, arguments=arguments, refused="undeclared identifier|not declared")
    return check.run("FreeBSD's level of the interface") | {"suite": "FreeBSD", "rdma_core": "14 (headers)"}


def musl(folder, whole=False):
    """musl's C library headers, with libc++."""
    root, headers = roots.tools(), roots.headers("forky")
    check = Check(folder, headers)
    compiler = Compiler(root, "clang++-19", ["--target=x86_64-linux-musl", "-nostdlibinc", "-D_LIBCPP_HAS_MUSL_LIBC"])
    compiler.label = "clang 19 with libc++"
    arguments = ["-isystem/usr/lib/llvm-19/include/c++/v1", "-isystem/usr/include/x86_64-linux-musl",
                 *include_of(headers), f"-isystem{headers.path}/usr/include/x86_64-linux-gnu"]
    check.add_headers([compiler], arguments, alone=whole)
    if whole:
        check.add_uses([compiler], arguments)
    # The order that this is about: the C library's own header after verbs.h.
    for name, includes, refused in (("verbs_first", "#include <infiniband/verbs.h>\n", "redefinition of 'ethhdr'"),
                                    ("rdmaxx_first", "#include <rdmaxx/verbs.hpp>\n", None)):
        unit = check.units.write(f"{name}.cpp", includes + "#include <netinet/if_ether.h>\n#include <net/ethernet.h>\n")
        check.add(compiler, unit, arguments=arguments, refused=refused)
    return check.run("musl's headers") | {"suite": f"musl {root.version('musl-dev')}"}


def thirty_two_bits(folder, whole=False):
    """x86 with 32 bits, where long and pointers are shorter."""
    root = roots.tools()
    for name in ("bookworm", "forky"):
        headers = roots.headers(name)
        check = Check(folder / name, headers)
        compilers, arguments = tool_compilers(root, "g++ 12", "clang 19"), [*include_of(headers), "-m32"]
        check.add_headers(compilers, arguments, FEATURES[name], whole)
        check.add(compilers[0], check.units.members, arguments=arguments)
        if whole:
            check.add_uses(compilers, arguments)
        outcome = check.run("32-bit x86")
    return outcome | {"suite": "bookworm, forky"}


def shortened(text, lines=25):
    found = text.splitlines()
    return "\n".join(found[:lines] + (["..."] if len(found) > lines else []))
