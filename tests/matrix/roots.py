"""Folders with packages of a Debian suite, and running a command in one.

The packages are downloaded by apt with a state of its own and only unpacked: no maintainer script runs, nothing of the
machine changes, and no privilege is needed. What a script would have done and a compiler, Meson or the rig needs is
done here by hand. The archive's address is that of the machine's own apt sources.

A folder is made once and stays in the cache: ${XDG_CACHE_HOME:-~/.cache}/rdmaxx-matrix. Remove that to get the present
packages anew.
"""

import concurrent.futures
import contextlib
import fcntl
import glob
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

SUITES = ("bullseye", "bookworm", "trixie", "forky")  # the first has the oldest rdma-core, the last the newest

# What every root needs to run a command: Debian's essential packages are nobody's dependency.
BASE = """bash coreutils dash diffutils findutils grep gzip hostname libc-bin mawk ncurses-base perl-base sed tar
    util-linux base-files base-passwd""".split()

# A world: what builds and runs the tests, with the suite's own kernel.
WORLD = BASE + """g++ meson ninja-build pkg-config catch2 libasio-dev libboost-dev librdmacm-dev libibverbs-dev
    rdmacm-utils ibverbs-utils ibverbs-providers iproute2 kmod linux-image-amd64""".split()
CLANG = {"trixie": "19", "forky": "21"}  # in the worlds; bookworm's compilers are among the tools

# The compilers of bookworm, the native one, libc++, musl, 32 bits, aarch64; no rdma-core: that comes from HEADERS.
TOOLS = BASE + """g++-11 g++-12 clang-14 clang-16 clang-19 libc++-19-dev libc++abi-19-dev g++-12-multilib musl-dev
    g++-12-aarch64-linux-gnu qemu-user-static meson ninja-build pkg-config catch2 libasio-dev
    libboost1.81-dev""".split()

# rdma-core alone, without what it depends on: the C headers, and the libraries to link with.
HEADERS = """librdmacm-dev libibverbs-dev librdmacm1 libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200
    libnl-3-dev libnl-route-3-dev linux-libc-dev""".split()

# Left out when unpacking: what only costs time and space.
EXCLUDED = [
    "./usr/share/doc/*", "./usr/share/man/*", "./usr/share/info/*", "./usr/share/locale/*",
    "./usr/bin/qemu-[b-z]*-static", "./usr/bin/qemu-a[lr]*-static",
    *(f"*/lib/modules/*/kernel/{folder}/*" for folder in (
        "sound", "drivers/ata", "drivers/gpu", "drivers/hid", "drivers/hwmon", "drivers/iio", "drivers/input",
        "drivers/md", "drivers/media", "drivers/mtd", "drivers/net/wireless", "drivers/platform", "drivers/scsi",
        "drivers/staging", "drivers/target", "drivers/usb", "drivers/video", "net/bluetooth", "net/mac80211")),
]


RECIPE = 1  # to be counted up when something else here changes what is in a root


class Unavailable(Exception):
    """The suite cannot be had here: no fault of what is tested."""


def cache():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "rdmaxx-matrix"


def run(command, **options):
    """The command's output; raises CalledProcessError with it."""
    return subprocess.run(command, check=True, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options).stdout


# ---- apt

def archive():
    """The address of Debian's archive in the machine's own sources."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Unavailable("no apt-get or no dpkg-deb on this machine")
    sources = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"])
    releases = "|".join(["(?:old)*stable", "testing", "unstable", "sid", *SUITES])
    found = re.search(rf"^(\S+) (?:{releases})$", sources, re.M)
    if not found:
        raise Unavailable("apt on this machine has no source of Debian packages")
    return found[1]


class Apt:
    """apt for another suite, with its state in a folder of its own; the machine's proxies and keys."""

    def __init__(self, folder, suite, architectures):
        self.suite = suite
        for name in ("lists/partial", "archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        keys = [file for file in glob.glob("/usr/share/keyrings/debian-archive-keyring.*")
                if file.endswith((".gpg", ".pgp", ".asc"))]
        signed = f"[signed-by={keys[0]}] " if keys else ""
        (folder / "sources.list").write_text(f"deb {signed}{archive()} {suite} main\n", encoding="utf-8")
        self.archives = folder / "archives"
        self.options = []
        for option in [
            f"Dir::State={folder}", f"Dir::State::lists={folder}/lists", f"Dir::State::status={folder}/status",
            f"Dir::State::extended_states={folder}/extended", f"Dir::Cache={folder}",
            f"Dir::Cache::archives={self.archives}", f"Dir::Etc::SourceList={folder}/sources.list",
            "Dir::Etc::SourceParts=/dev/null", "Dir::Etc::Preferences=/dev/null",
            "Dir::Etc::PreferencesParts=/dev/null", "APT::Sandbox::User=", "APT::Update::Post-Invoke=",
            "APT::Update::Post-Invoke-Success=", "Acquire::Languages=none", "Acquire::Retries=2",
            "Acquire::http::Timeout=30", "Acquire::https::Timeout=30", "APT::Install-Recommends=0",
            "Acquire::Check-Valid-Until=0",  # a mirror that stands still is good enough
            f"APT::Architecture={architectures[0]}", *(f"APT::Architectures::={name}" for name in architectures),
        ]:
            self.options += ["-o", option]
        self.get("update", "--error-on=any")

    def get(self, *arguments):
        try:
            run(["apt-get", *self.options, "-y", "-q", *arguments], cwd=self.archives)
        except subprocess.CalledProcessError as error:
            reasons = [line for line in error.stdout.splitlines() if line.startswith("E:")]
            raise Unavailable(f"{self.suite}: {' '.join(reasons) or error.stdout.strip()}") from None

    def download(self, packages, with_dependencies):
        """The files of the packages."""
        if with_dependencies:
            self.get("install", "--download-only", *packages)
        else:
            # Newer suites say in some names that the package was built with a 64-bit time_t.
            known = set(run(["apt-cache", *self.options, "pkgnames"]).split())
            self.get("download", *(f"{name}t64" if f"{name}t64" in known else name for name in packages))
        return sorted(self.archives.glob("*.deb"))


# ---- roots

class Root:
    """A folder with unpacked packages, locked against removal as long as this object lives."""

    def __init__(self, name, suite, packages, with_dependencies=True, architectures=("amd64",)):
        recipe = repr((RECIPE, suite, packages, architectures, EXCLUDED)).encode()
        self.suite = suite
        self.path = cache() / "roots" / f"{name}-{hashlib.sha256(recipe).hexdigest()[:8]}"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = open(f"{self.path}.lock", "w", encoding="utf-8")  # pylint: disable=consider-using-with
        # Alone only to make it: several processes, each with several roots, would wait for each other.
        fcntl.flock(self.lock, fcntl.LOCK_SH)
        if not self.path.exists():
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            if not self.path.exists():
                remove_others(self.path, name)
                self.make(packages, with_dependencies, architectures)
            fcntl.flock(self.lock, fcntl.LOCK_SH)
        self.versions = dict(line.split() for line in (self.path / "packages").read_text().splitlines())

    def make(self, packages, with_dependencies, architectures):
        print(f"getting packages of {self.suite}", file=sys.stderr, flush=True)
        making = self.path.with_name(self.path.name + ".making")
        shutil.rmtree(making, ignore_errors=True)
        apt = making / "apt"
        root = making / "root"
        apt.mkdir(parents=True)
        for folder in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            (root / "usr" / folder).mkdir(parents=True)
            (root / folder).symlink_to(f"usr/{folder}")
        files = Apt(apt, self.suite, architectures).download(packages, with_dependencies)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda file: unpack(file, root), files))
        finish(root)
        names = [file.name.split("_") for file in files]
        (root / "packages").write_text("".join(sorted(
            f"{name} {urllib.parse.unquote(version)}\n" for name, version, _ in names)), encoding="utf-8")
        root.rename(self.path)
        shutil.rmtree(making, ignore_errors=True)
        for modules in self.path.glob("usr/lib/modules/*"):
            self.run(["depmod", modules.name])

    def version(self, package):
        """The upstream part of a package's version, without what Debian adds; the longest name that fits."""
        names = sorted((name for name in self.versions if re.fullmatch(package, name)), key=len)
        return re.sub(r"^\d+:|[-~+].*$", "", self.versions[names[-1]]) if names else ""

    @property
    def rdma_core(self):
        return self.version("librdmacm-dev")

    def enter(self, command, read=(), write=(), chdir="/", env=None):
        """The command line that runs a command in the root, which sees the folders under their own names."""
        settings = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LC_ALL": "C.UTF-8", **(env or {})}
        shares = [f"ro:{pathlib.Path(path).resolve()}" for path in read]
        shares += [f"rw:{pathlib.Path(path).resolve()}" for path in write]
        return [*namespace(), "sh", "-c", ENTER, "enter", str(self.path), str(len(shares)), *shares,
                "/usr/bin/env", "-i", "-C", str(chdir), *(f"{name}={value}" for name, value in settings.items()),
                *map(str, command)]

    def run(self, command, **options):
        return run(self.enter(command, **options))


ENTER = """
set -e
root=$1 count=$2
shift 2
mount -t tmpfs tmpfs "$root/tmp"
for name in dev proc sys; do
    mkdir -p "$root/$name"
    mount --rbind "/$name" "$root/$name"
done
while [ "$count" -gt 0 ]; do
    folder=${1#*:}
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
    case $1 in ro:*) mount -o remount,bind,ro "$root$folder" 2>/dev/null || : ;; esac
    shift
    count=$((count - 1))
done
exec chroot "$root" "$@"
"""


def namespace():
    """A mount namespace: root's own, or a user's that is root inside."""
    for command in (["unshare", "-m"], ["unshare", "-r", "-m"]):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            run([*command, "mount", "--bind", "/", "/"])
            return command
    raise Unavailable("another root folder cannot be entered here: neither as root nor by a user namespace")


def remove_others(path, name):
    """Roots of an earlier recipe, unless somebody uses them."""
    for lock in path.parent.glob(f"{name}-*.lock"):
        other = lock.with_suffix("")
        if other == path:
            continue
        with open(lock, "w", encoding="utf-8") as file:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other, ignore_errors=True)
                lock.unlink()


def unpack(file, root):
    excludes = [f"--exclude={pattern}" for pattern in EXCLUDED]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as source:
        tar = subprocess.run(["tar", "-x", "-C", root, "--keep-directory-symlink", "--no-same-owner", *excludes],
                             stdin=source.stdout, check=False)
    if source.returncode != 0 or tar.returncode != 0:
        raise Unavailable(f"cannot unpack {file.name}")


def finish(root):
    """What maintainer scripts would have done."""
    def link(name, target):
        path = root / name
        if not path.exists() and not path.is_symlink():
            path.symlink_to(target)

    for folder in ("dev", "proc", "sys", "tmp", "run", "etc", "var/tmp"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    link("usr/bin/sh", "dash")
    link("usr/bin/awk", "mawk")
    if (root / "usr/include/x86_64-linux-gnu/asm").exists():
        link("usr/include/asm", "x86_64-linux-gnu/asm")  # for -m32; gcc-multilib has it, and excludes cross compilers
    for name in ("passwd", "group"):
        master = root / f"usr/share/base-passwd/{name}.master"
        if master.exists():
            shutil.copy(master, root / "etc" / name)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n", encoding="utf-8")


def world(suite):
    """A suite's own compilers, tools, libraries and kernel."""
    return Root(f"{suite}-world", suite, WORLD + [f"clang-{CLANG[suite]}", f"libc++-{CLANG[suite]}-dev"])


def tools():
    """Bookworm's compilers without rdma-core."""
    return Root("bookworm-tools", "bookworm", TOOLS)


def headers(suite, architecture="amd64"):
    """A suite's rdma-core, to be pointed at."""
    return Root(f"{suite}-headers-{architecture}", suite, HEADERS, with_dependencies=False,
                architectures=(architecture,))
