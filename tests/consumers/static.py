#!/usr/bin/env python3
"""Static rdma-core: whether the program finds a device depends on the drivers that are linked. On real verbs."""

import pathlib
import subprocess
import sys

import consumer

FIND_DEVICE = """
for program; do
    echo "== $program"
    "$program"
    echo "status $?"
done
"""


def check_static(program):
    """The C libraries are in the program."""
    for line in consumer.run("readelf", "-d", program).splitlines():
        if "librdmacm" in line or "libibverbs" in line:
            consumer.fail(f"{program} is linked dynamically: {line}")
    return program


def statuses_on_verbs(programs):
    """Each program's exit status on real verbs. Skips where there are none."""
    command = [consumer.SOURCE / "tests/support/on_verbs", "--", "sh", "-c", FIND_DEVICE, "sh", *programs]
    done = subprocess.run(command, env=consumer.ENVIRONMENT, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("status ")]


def main():
    library_path = consumer.run("pkg-config", "--variable=libdir", "libibverbs").strip()
    if not pathlib.Path(library_path, "libibverbs.a").exists():
        print("rdma-core's archives are not installed")
        sys.exit(77)
    consumer.need("cmake", "readelf")

    with consumer.workspace() as folder:
        work = pathlib.Path(folder)
        consumer.install_rdmaxx(work, work / "tree")
        expected = {}

        # As rdma-core's manual has it, without anything of ours but the headers: a macro for the whole program.
        rdma_core = consumer.run("pkg-config", "--static", "--libs", "librdmacm", "libibverbs").split()
        by_hand = ["-I", consumer.SOURCE / "include", *rdma_core, "-static"]
        program = consumer.compile_program(work / "without drivers", *by_hand)
        expected[check_static(program)] = consumer.NO_DEVICE
        program = consumer.compile_program(work / "macro", "-DRDMA_STATIC_PROVIDERS=all", *by_hand)
        expected[check_static(program)] = 0

        # pkg-config, Meson and CMake bring the drivers.
        flags = consumer.pkg_config(work / "tree", "--static", "--cflags", "--libs")
        program = consumer.compile_program(work / "pkg-config", *flags, "-static")
        expected[check_static(program)] = 0

        project = consumer.copy_project("meson", work / "meson")
        meson_build = project / "meson.build"
        dynamic = meson_build.read_text(encoding="utf-8")
        static = dynamic.replace("dependency('rdmaxx')", "dependency('rdmaxx', static: true)")
        meson_build.write_text(static, encoding="utf-8")
        program = consumer.meson_build(project, PKG_CONFIG_PATH=work / "tree/share/pkgconfig")
        expected[check_static(program)] = 0

        if consumer.meson_version() >= (0, 63):  # which has prefer_static
            project = consumer.copy_project("meson", work / "meson subproject")
            consumer.copy_rdmaxx(project / "subprojects/rdmaxx")
            program = consumer.meson_build(project, "-Dprefer_static=true")
            expected[check_static(program)] = 0

        static = (f"-DCMAKE_PREFIX_PATH={work}/tree", "-Drdmaxx_USE_STATIC_LIBS=ON")
        project = consumer.copy_project("find_package", work / "cmake")
        program = consumer.cmake_build(project, *static)
        expected[check_static(program)] = 0

        # Only the drivers that are named: not the one of the virtual machine's device.
        project = consumer.copy_project("find_package", work / "cmake with other drivers")
        program = consumer.cmake_build(project, *static, "-Drdmaxx_STATIC_PROVIDERS=mlx5;efa")
        if "--host" not in consumer.ENVIRONMENT.get("RDMAXX_RIG_OPTIONS", ""):
            expected[check_static(program)] = consumer.NO_DEVICE

        for program in expected:
            consumer.check_program(program)
        statuses = statuses_on_verbs(expected)
        consumer.equal("exit statuses", dict(zip(expected, statuses)), expected)


if __name__ == "__main__":
    main()
