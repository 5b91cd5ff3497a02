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
WHOLE_IN_ROOT = {"unit": "", "compile": ""}


class Test:
    """One test of the build: its command without on_verbs, and the options for the rig that it was given."""

    def __init__(self, test):
        self.name = test["name"]
        self.suite = test["suite"][0].rpartition(":")[2]
        self.environment = test["env"]
        self.folder = test["workdir"]
        self.seconds = int(test["timeout"]) or 600
        self.depends = test["depends"]
        self.command = test["cmd"]
        self.on_verbs = f"{SOURCE}/tests/support/on_verbs" in self.command
        self.options = []
        if self.on_verbs:
            rest = self.command[self.command.index(f"{SOURCE}/tests/support/on_verbs") + 1:]
            end = rest.index("--")
            self.options, self.command = rest[:end], rest[end + 1:]
        while "--timeout" in self.options:
            at = self.options.index("--timeout")
            self.seconds = max(self.seconds, int(self.options[at + 1]))
            del self.options[at:at + 2]

    def script(self):
        words = [f"{name}={value}" for name, value in self.environment.items()] + self.command
        folder = f"cd {shlex.quote(self.folder)} && " if self.folder else ""
        return f"{folder}exec timeout {self.seconds} env {shlex.join(words)}"


class World:
    """The build of the tests in a suite's root."""

    def __init__(self, suite, folder):
        self.root = roots.world(suite)
        self.folder = folder
        self.build = folder / "build"
        self.build.mkdir(parents=True, exist_ok=True)

    def run(self, *command, env=None):
        return self.root.run(command, read=[SOURCE], write=[self.folder], env=env)

    def tests(self, suites):
        """The tests of the suites, built. `suites` says what to leave out."""
        try:
            if not (self.build / "build.ninja").exists():
                self.run("meson", "setup", self.build, SOURCE, "-Dtests=enabled", env={"CXX": "g++"})
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
        return tests

    def kernel(self):
        return next(path.name for path in self.root.path.glob("usr/lib/modules/*"))

    # ---- running

    def run_in_root(self, tests):
        return [self.judge(test, *self.outcome(self.root.enter(
            ["sh", "-c", test.script()], read=[SOURCE], write=[self.folder]))) for test in tests]

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
        """How many of the test's cases passed; raises Failed if one did not."""
        verdict = {0: "OK", 77: "SKIP"}.get(status, "FAIL")
        passed, failed, skipped = totals.count(verdict, output)
        if failed:
            raise Failed(f"{self.root.suite}, {test.name}: exit status {status}\n" + "\n".join(output.splitlines()[-60:]))
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
    world = World(suite, folder)
    tests = world.tests(WHOLE_IN_ROOT if whole else IN_ROOT)
    if not tests:
        raise Failed("there are no such tests")
    return world.row(f"tests that passed: {count_by_suite(tests, world.run_in_root(tests))}")


def on_kernel(suite, folder, whole=False):
    """The tests on real verbs, on the suite's kernel."""
    if os.environ.get("RDMAXX_NO_VM"):
        raise roots.Unavailable("tests on real verbs were switched off (--no-vm)")
    check = subprocess.run([RIG, "--check"], text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if check.returncode != 0:
        raise roots.Unavailable(check.stdout.strip().splitlines()[-1])

    world = World(suite, folder)
    tests = world.tests(dict.fromkeys(ON_VERBS, "") if whole else ON_VERBS)
    plain = [test for test in tests if not test.options]
    others = [test for test in tests if test.options and whole]
    if not plain:
        raise Failed("there are no such tests")
    # Last, since the first of them puts other libraries in place of the root's.
    extra, shares = foreign_programs(suite, folder)
    passed = world.boot(plain + extra, shares=shares)
    for test in others:
        passed += world.boot([test], test.options)
    ran = plain + extra + others
    return world.row(f"tests that passed: {count_by_suite(ran, passed)}") | {"kernel": world.kernel()}


# ---- programs and libraries of different ages

OLDEST, NEWEST = roots.SUITES[0], roots.SUITES[-1]
PROGRAMS = ("echo_server", "echo_client", "rping")


def compile_programs(headers, libraries, folder):
    """The examples, with one suite's headers and linked with another one's libraries; unoptimized, so that nothing
    of what they do not call is dropped but by the linker's need."""
    root = roots.tools()
    folder.mkdir(parents=True, exist_ok=True)
    path = f"{libraries.path}/usr/lib/x86_64-linux-gnu"
    for name in PROGRAMS:
        root.run(["g++-12", "-std=c++20", "-O0", f"-I{SOURCE}/include", *include_of(headers), "-o", folder / name,
                  f"{SOURCE}/examples/{name}.cpp", f"-L{path}", f"-Wl,-rpath-link,{path}", "-lrdmacm", "-libverbs"],
                 read=[SOURCE, headers.path, libraries.path], write=[folder])


def foreign_programs(suite, folder):
    """What else a world's boot runs: programs that were built with headers of another age than the library they meet.
    Returns tests, and folders that the guest has to see."""
    def test(name, command):
        return Test({"name": name, "suite": ["ages"], "env": {}, "workdir": None, "timeout": 120, "depends": [],
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


def link(folder):
    """Built with the newest headers, a program that calls nothing new links with the oldest library, and vice versa."""
    root, oldest, newest = roots.tools(), roots.headers(OLDEST), roots.headers(NEWEST)
    try:
        compile_programs(newest, oldest, folder / "newest-oldest")
        compile_programs(oldest, newest, folder / "oldest-newest")
    except subprocess.CalledProcessError as error:
        raise Failed(shortened(error.stdout)) from None
    # What does call something new does not.
    unit = folder / "new.cpp"
    unit.write_text("#include <rdma/rdma_cma.h>\nint main() { return rdma_write_cm_event(0, RDMA_CM_EVENT_USER, 0, 0); }\n",
                    encoding="utf-8")
    path = f"{oldest.path}/usr/lib/x86_64-linux-gnu"
    try:
        root.run(["g++-12", *include_of(newest), "-o", "/dev/null", unit, f"-L{path}", f"-Wl,-rpath-link,{path}", "-lrdmacm"],
                 read=[newest.path, oldest.path, folder])
    except subprocess.CalledProcessError as error:
        if "undefined reference to `rdma_write_cm_event" in error.stdout:
            return {"suite": f"{OLDEST}, {NEWEST}", "rdma_core": f"{oldest.rdma_core}, {newest.rdma_core}", "kernel": "",
                    "compilers": "g++ 12", "what": "headers of one linked with the library of the other"}
        raise Failed(shortened(error.stdout)) from None
    raise Failed("a new function was found in the old library")
