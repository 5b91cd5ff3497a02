"""What the tests of consumer projects share: a fresh folder each, commands, and the program that every project builds.

Nothing is downloaded. A tool that is missing makes the test skip (exit status 77).
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
VERSION = re.search(
    r'RDMAXX_VERSION_STRING "(.*)"', (SOURCE / "include/rdmaxx/version.hpp").read_text(encoding="utf-8")
).group(1)
HEADERS = {path.relative_to(SOURCE / "include") for path in (SOURCE / "include").rglob("*.hpp")}
NO_DEVICE = 3  # what the program returns

_parser = argparse.ArgumentParser()
_parser.add_argument("--cxx", default="c++", help="the compiler")
CXX = _parser.parse_args().cxx

# What would find another rdmaxx, or put files elsewhere.
_FOREIGN = re.compile(
    r"DESTDIR|CPATH|CPLUS_INCLUDE_PATH|LIBRARY_PATH|C(XX|PP)?FLAGS|LDFLAGS|PKG_CONFIG.*|CMAKE_.*|MESON.*|GIT_.*"
)
ENVIRONMENT = {name: value for name, value in os.environ.items() if not _FOREIGN.fullmatch(name)} | {"CXX": CXX}


def fail(message):
    print(f"FAILED: {message}")
    sys.exit(1)


def equal(what, actual, expected):
    if actual != expected:
        fail(f"{what}: {actual!r}, expected {expected!r}")


def check(what, good):
    if not good:
        fail(what)


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            print(f"{tool} is not installed")
            sys.exit(77)


def workspace(name="rdmaxx consumer "):
    """A fresh folder, for `with`. Its path has a space in it, unless another name is given."""
    return tempfile.TemporaryDirectory(prefix=name)


def run(*command, cwd=None, status=0, **environment):
    """The command's output. Another exit status than the one expected is the test's failure."""
    command = [str(word) for word in command]
    print("$", shlex.join(command), flush=True)
    environment = {name: str(value) for name, value in environment.items()}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=ENVIRONMENT | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != status:
        print(done.stdout)
        fail(f"exit status {done.returncode}, expected {status}")
    return done.stdout


def meson_version():
    return tuple(int(part) for part in run("meson", "--version").split(".")[:2])


def copy_rdmaxx(to):
    """rdmaxx as a project has it in a folder of its own. Without tests and examples: nobody may ask for them."""
    to.mkdir(parents=True)
    for name in ("include", "packaging"):
        shutil.copytree(SOURCE / name, to / name)
    for name in ("meson.build", "meson_options.txt", "LICENSE"):
        shutil.copy(SOURCE / name, to)
    return to


def publish_rdmaxx(work):
    """A repository with rdmaxx's release. What makes git find it where rdmaxx is said to be: variables."""
    repository = copy_rdmaxx(work / "repository")
    settings = work / "gitconfig"
    settings.write_text(
        f'[url "file://{repository}"]\n    insteadOf = https://github.com/OWNER/rdmaxx.git\n'
        "[user]\n    name = consumer\n    email = consumer@localhost\n",
        encoding="utf-8",
    )
    git = {"GIT_CONFIG_GLOBAL": settings, "GIT_CONFIG_NOSYSTEM": 1}
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "."], ["tag", f"v{VERSION}"]):
        run("git", "-C", repository, *command, **git)
    return git


def install_rdmaxx(work, prefix, *options, destdir=None):
    """meson install, from a build that is removed: what is installed depends on nothing else."""
    build = work / "build of rdmaxx"
    run("meson", "setup", build, SOURCE, "--prefix", prefix, "-Dtests=disabled", "-Dexamples=disabled", *options)
    environment = {"DESTDIR": destdir} if destdir else {}
    run("meson", "install", "-C", build, **environment)
    shutil.rmtree(build)


def copy_project(name, to):
    """The user's project of that name, with the program."""
    shutil.copytree(HERE / name, to)
    shutil.copy(HERE / "program.cpp", to / "main.cpp")
    return to


def found_version(output):
    match = re.search(r"found rdmaxx (\S+)", output)
    return match.group(1) if match else None


def meson_build(project, *options, **environment):
    """Builds a Meson project; its program."""
    build = project / "build"
    output = run("meson", "setup", build, project, "--wrap-mode", "nodownload", *options, **environment)
    equal("dependency().version()", found_version(output), VERSION)
    run("ninja", "-C", build)
    return build / "app"


def cmake_build(project, *options, **environment):
    """Builds a CMake project; its program."""
    build = project / "build"
    output = run("cmake", "-G", "Ninja", "-S", project, "-B", build, *options, **environment)
    equal("version in CMake", found_version(output), VERSION)
    run("ninja", "-C", build)
    return build / "app"


def pkg_config(tree, *options, **environment):
    """What pkg-config says of the rdmaxx that is installed in a tree, as words."""
    output = run("pkg-config", *options, "rdmaxx", PKG_CONFIG_PATH=tree / "share/pkgconfig", **environment)
    return shlex.split(output)


def compile_program(to, *flags):
    """The program, by hand."""
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
    run(*shlex.split(CXX), "-std=c++20", *warnings, HERE / "program.cpp", *flags, "-o", to)
    return to


def check_program(program):
    """Runs it: it finds this machine's devices, or fails as it must without any."""
    devices = pathlib.Path("/sys/class/infiniband")
    has_device = devices.is_dir() and any(devices.iterdir())
    output = run(program, status=0 if has_device else NO_DEVICE).splitlines()
    equal("the program's version", output[0], f"rdmaxx {VERSION}")
    if has_device:
        check("devices found", all(line.startswith("device ") for line in output[1:]))
    else:
        equal("the program's error", output[1], "rdma_create_event_channel: No such device")


def files_in(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()}
