"""Building the tests in a suite's own root, running them there, and on its own kernel in the rig.

What runs by default is CORE, in one boot. A test that wants more of the rig than its time gets a boot of its own, and
runs with --whole only, as do the sanitizers' programs.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import roots
from compile import SOURCE, Failed, include_of, shortened

sys.path.insert(0, str(SOURCE / "tests/support"))
import totals  # noqa: E402  pylint: disable=wrong-import-position

RIG = SOURCE / "tests/rig/rig"
HERE = pathlib.Path(__file__).resolve().parent

# Suites of tests/meson.build, and which of their tests are left out unless all are asked for.
IN_ROOT = {"unit": "asan|tsan"}
ON_VERBS = {"live": "asan|tsan", "interop": "asan|tsan"}
# Of a program that takes a pattern, the tests that run unless all are asked for.
CORE = {"interop": "4096 bytes|IPv6, 64 bytes|rping: the same output|nothing is left",
        "interop_ pingpong": "paging|unprotected",
        "live_ plain": "[connection],[events],[completions],[data],[errors],[teardown],[flush]"}
PMEM = ["--pmem", "64"]  # for the flushes that these kernels' Soft-RoCE has
WHOLE_IN_ROOT = {"unit": "", "compile": ""}


class Test:  # pylint: disable=too-few-public-methods
    """One test of the build: its command without on_verbs, and the options for the rig that it was given."""

    def __init__(self, test):
        self.name = test["name"]
        self.suite = test["suite"][0].rpartition(":")[2]
        self.environment = test["env"]
        self.folder = test["workdir"]
        self.seconds = int(test["timeout"]) or 600
        self.depends = test["depends"]
        self.command = test["cmd"]
        self.options = []
        wrapper = [i for i, word in enumerate(self.command) if word.endswith("tests/support/on_verbs")]
        if wrapper:
            rest = self.command[wrapper[0] + 1:]
            end = rest.index("--")
            self.options, self.command = rest[:end], rest[end + 1:]
        while "--timeout" in self.options:
            at = self.options.index("--timeout")
            self.seconds = max(self.seconds, int(self.options[at + 1]))
            del self.options[at:at + 2]
        self.seconds *= 2  # what runs here shares the machine, and hangs seldom

    def is_iwarp(self):
        return "--transport" in self.options

    def script(self):
        words = [f"{name}={value}" for name, value in self.environment.items()] + self.command
        return f"cd {shlex.quote(str(self.folder))} && exec timeout {self.seconds} env {shlex.join(words)}"


class Build:
    """The build of the tests in a root."""

    def __init__(self, root, folder, setup=(), shares=(), wrapper=()):
        self.root = root
        self.folder = folder
        self.build = folder / "build"
        self.build.mkdir(parents=True, exist_ok=True)
        # Most of the time is the compiler's.
        self.setup = [*setup, "-Dtests=enabled", "--buildtype=plain"]
        self.shares = [SOURCE, *shares]
        self.wrapper = list(wrapper)

    def run(self, *command, env=None):
        return self.root.run(command, read=self.shares, write=[self.folder], env=env)

    def tests(self, suites):
        """The tests of the suites, built. `suites` says what to leave out."""
        try:
            if not (self.build / "build.ninja").exists():
                self.run("meson", "setup", self.build, SOURCE, *self.setup, env={"CXX": "g++"})
            self.run("ninja", "-C", self.build, "build.ninja")
            known = [Test(test) for test in json.loads(self.run("meson", "introspect", "--tests", self.build))]
            targets = json.loads(self.run("meson", "introspect", "--targets", self.build))
            files = {target["id"]: target["filename"] for target in targets}
            tests = [test for test in known if test.suite in suites
                     and not (suites[test.suite] and re.search(suites[test.suite], test.name))]
            wanted = sorted({os.path.relpath(file, self.build)
                             for test in tests for target in test.depends for file in files.get(target, [])})
            if wanted:
                self.run("ninja", "-C", self.build, *wanted)
        except subprocess.CalledProcessError as error:
            raise Failed(f"{self.root.suite}: {shlex.join(error.cmd[-6:])}\n{shortened(error.stdout, 60)}") from None
        for test in tests:
            test.command = self.wrapper + test.command
            test.folder = test.folder or self.build
        return tests

    def kernel(self):
        return next(path.name for path in self.root.path.glob("usr/lib/modules/*"))

    # ---- running

    def run_in_root(self, tests):
        return [self.judge(test, *self.outcome(self.root.enter(
            ["sh", "-c", test.script()], read=self.shares, write=[self.folder]))) for test in tests]

    @staticmethod
    def outcome(command):
        done = subprocess.run(command, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def boot(self, tests, options=(), shares=()):
        """The tests, one after the other, in one virtual machine."""
        results = self.folder / "results"
        results.mkdir(exist_ok=True)
        script = "".join(f"( {test.script()} ) >{results}/{i}.out 2>&1; echo $? >{results}/{i}.status\n"
                         for i, test in enumerate(tests))
        for old in results.iterdir():
            old.unlink()
        (results / "script").write_text(script, encoding="utf-8")
        seconds = 60 + sum(test.seconds for test in tests)
        command = [RIG, "--root", self.root.path, "--ro", SOURCE, "--rw", self.folder, "--chdir", "/", *options]
        for share in shares:
            command += ["--ro", share]
        status, said = self.outcome([*command, "--timeout", str(seconds), "--", "sh", results / "script"])
        if status != 0:
            raise Failed(f"{self.root.suite}: the rig's exit status is {status}\n{shortened(said, 60)}")
        return [self.judge(test, int((results / f"{i}.status").read_text()),
                           (results / f"{i}.out").read_text(encoding="utf-8", errors="replace"))
                for i, test in enumerate(tests)]

    def judge(self, test, status, output):
        """How many of the test's cases passed; raises Failed if one did not, or if the program could not run."""
        passed, failed, skipped = totals.count("OK" if status == 0 else "FAIL", output)
        if failed:
            end = "\n".join(output.splitlines()[-60:])
            raise Failed(f"{self.root.suite}, {test.name}: exit status {status}\n{end}")
        for reason in skipped:
            print(f"{self.root.suite}, {test.name}: skipped: {reason}")
        return passed

    def row(self, what):
        return {"suite": self.root.suite, "rdma_core": self.root.rdma_core, "kernel": "",
                "compilers": f"g++ {self.root.version('g[+][+]-[0-9]+').split('.')[0]}", "what": what}


def count_by_suite(tests, passed):
    """"unit 120, live 50": the cases that passed."""
    sums = {}
    for test, number in zip(tests, passed):
        sums[test.suite] = sums.get(test.suite, 0) + number
    return ", ".join(f"{suite} {number}" for suite, number in sums.items())


def in_root(suite, folder, whole=False):
    """The unit tests in the suite's root, on the fake."""
    world = Build(roots.world(suite), folder)
    tests = world.tests(WHOLE_IN_ROOT if whole else IN_ROOT)
    if not tests:
        raise Failed("there are no such tests")
    return world.row(f"tests that passed: {count_by_suite(tests, world.run_in_root(tests))}")


def need_rig():
    if os.environ.get("RDMAXX_NO_VM"):
        raise roots.Unavailable("tests on real verbs were switched off (--no-vm)")
    check = subprocess.run([RIG, "--check"], text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if check.returncode != 0:
        raise roots.Unavailable(check.stdout.strip().splitlines()[-1])


def on_kernel(suite, folder, whole=False):
    """The tests on real verbs, on the suite's kernel."""
    need_rig()
    world = Build(roots.world(suite), folder)
    # The rig builds siw for kernels that the machine's own apt has.
    tests = [test for test in world.tests(dict.fromkeys(ON_VERBS, "") if whole else ON_VERBS) if not test.is_iwarp()]
    plain = [test for test in tests if not test.options]
    if not whole:
        for test in plain:
            test.command += [CORE[test.name]] if test.name in CORE else []
    others = [test for test in tests if test.options and whole]
    if not plain:
        raise Failed("there are no such tests")
    # Last, since the first of them puts other libraries in place of the root's.
    extra, shares = foreign_programs(suite, folder)
    passed = world.boot(plain + extra, PMEM, shares)
    for test in others:
        passed += world.boot([test], [*PMEM, *test.options])
    ran = plain + extra + others
    return world.row(f"tests that passed: {count_by_suite(ran, passed)}") | {"kernel": world.kernel()}


def aarch64(folder, whole=False):  # pylint: disable=unused-argument
    """The unit tests, compiled for 64-bit Arm and run by qemu's user emulation."""
    root, headers = roots.tools(), roots.headers("bookworm", "arm64")
    folder.mkdir(parents=True, exist_ok=True)
    cross = folder / "cross.ini"
    cross.write_text(f"""[binaries]
cpp = 'aarch64-linux-gnu-g++-12'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64-static', '-L', '/usr/aarch64-linux-gnu']
[properties]
sys_root = '{headers.path}'
pkg_config_libdir = '{headers.path}/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
""", encoding="utf-8")
    build = Build(root, folder, ["--cross-file", cross], [headers.path],
                  ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"])
    tests = build.tests(IN_ROOT)
    for test in tests:
        test.environment["RDMAXX_TEST_SECONDS"] = "900"
    return {"suite": "bookworm, aarch64", "rdma_core": headers.rdma_core, "kernel": "", "compilers": "g++ 12",
            "what": f"tests that passed: {count_by_suite(tests, build.run_in_root(tests))}"}


# ---- programs and libraries of different ages

OLDEST, NEWEST = roots.SUITES[0], roots.SUITES[-1]
PROGRAMS = ("echo_server", "echo_client", "rping")
LINK = ["-Wl,--allow-shlib-undefined"]  # a newer libibverbs needs a newer C library than bookworm's


def compile_programs(headers, libraries, folder):
    """The examples, with one suite's headers and linked with another one's libraries; unoptimized, so that nothing
    of what they do not call is dropped but by the linker's need."""
    root = roots.tools()
    folder.mkdir(parents=True, exist_ok=True)
    path = f"{libraries.path}/usr/lib/x86_64-linux-gnu"
    for name in PROGRAMS:
        root.run(["g++-12", "-std=c++20", "-O0", f"-I{SOURCE}/include", *include_of(headers), "-o", folder / name,
                  f"{SOURCE}/examples/{name}.cpp", f"-L{path}", f"-Wl,-rpath-link,{path}", *LINK,
                  "-lrdmacm", "-libverbs"],
                 read=[SOURCE, headers.path, libraries.path], write=[folder])


def foreign_programs(suite, folder):
    """What else a world's boot runs: programs that were built with headers of another age than the library they meet.
    Returns tests, and folders that the guest has to see."""
    def test(name, command):
        return Test({"name": name, "suite": ["ages"], "env": {}, "workdir": "/", "timeout": 120, "depends": [],
                     "cmd": ["sh", "-c", command]})

    oldest, newest = roots.headers(OLDEST), roots.headers(NEWEST)
    programs = folder / "programs"
    smoke = f"exec bash {HERE}/smoke.sh {programs}"
    if suite == NEWEST:
        compile_programs(oldest, oldest, programs)
        return [test(f"built with {oldest.rdma_core}, run on {newest.rdma_core}", smoke)], []
    compile_programs(newest, oldest, programs)
    libraries = f"{oldest.path}/usr/lib/x86_64-linux-gnu"
    replace = f"cp -a {libraries}/. /usr/lib/x86_64-linux-gnu/ && "
    return [test(f"built with {newest.rdma_core}, run on {oldest.rdma_core}", replace + smoke)], [oldest.path]


def link(folder, whole=False):  # pylint: disable=unused-argument
    """Built with the newest headers, a program that calls nothing new links with the oldest library, and vice versa."""
    root, oldest, newest = roots.tools(), roots.headers(OLDEST), roots.headers(NEWEST)
    try:
        compile_programs(newest, oldest, folder / "newest-oldest")
        compile_programs(oldest, newest, folder / "oldest-newest")
    except subprocess.CalledProcessError as error:
        raise Failed(shortened(error.stdout)) from None
    # What does call something new does not.
    unit = folder / "new.cpp"
    unit.write_text("#include <rdma/rdma_cma.h>\n"
                    "int main() { return rdma_write_cm_event(0, RDMA_CM_EVENT_USER, 0, 0); }\n", encoding="utf-8")
    path = f"{oldest.path}/usr/lib/x86_64-linux-gnu"
    try:
        root.run(["g++-12", *include_of(newest), "-o", "/dev/null", unit, f"-L{path}", f"-Wl,-rpath-link,{path}",
                  *LINK, "-lrdmacm"], read=[newest.path, oldest.path, folder])
    except subprocess.CalledProcessError as error:
        if "undefined reference to `rdma_write_cm_event" in error.stdout:
            return {"suite": f"{OLDEST}, {NEWEST}", "rdma_core": f"{oldest.rdma_core}, {newest.rdma_core}",
                    "kernel": "", "compilers": "g++ 12",
                    "what": f"{2 * len(PROGRAMS)} programs: headers of one linked with the library of the other"}
        raise Failed(shortened(error.stdout)) from None
    raise Failed("a new function was found in the old library")
