#!/usr/bin/env python3
"""pkg-config and Meson against an installed tree: staged, moved, with spaces; headers elsewhere; in /usr."""

import pathlib

import consumer

OTHER_FILES = {
    "pkgconfig/rdmaxx.pc",
    "cmake/rdmaxx/rdmaxx-config.cmake",
    "cmake/rdmaxx/rdmaxx-config-version.cmake",
    "cmake/rdmaxx/rdmaxx-rdma-core.cmake",
}

# Without a space in the path: pkg-config 0.29 and the sysroot of pkgconf cannot do with one.
with consumer.workspace("rdmaxx-consumer-") as folder:
    work = pathlib.Path(folder)

    # Staged with DESTDIR, and used in the stage: that is a tree which was moved.
    stage = work / "stage"
    consumer.install_rdmaxx(work, "/opt/rdmaxx", destdir=stage)
    consumer.equal("installed beside the prefix", [path.name for path in stage.iterdir()], ["opt"])
    tree = stage / "opt/rdmaxx"
    consumer.equal("headers", consumer.files_in(tree / "include"), consumer.HEADERS)
    consumer.equal("other files", {str(path) for path in consumer.files_in(tree / "share")}, OTHER_FILES)
    consumer.equal("pkg-config --modversion", consumer.pkg_config(tree, "--modversion"), [consumer.VERSION])
    flags = consumer.pkg_config(tree, "--cflags", "--libs")
    consumer.check_program(consumer.compile_program(work / "staged app", *flags))

    # And once more.
    tree = tree.rename(work / "moved")
    project = consumer.copy_project("meson", work / "project")
    consumer.check_program(consumer.meson_build(project, PKG_CONFIG_PATH=tree / "share/pkgconfig"))

    # In /usr the compiler looks anyhow, and -I/usr/include breaks the C++ library's own includes: pkg-config must know.
    root = work / "root"
    consumer.install_rdmaxx(work, "/usr", destdir=root)
    flags = consumer.pkg_config(root / "usr", "--cflags-only-I")
    consumer.equal("-I of /usr", [flag for flag in flags if flag.endswith("/include")], [])
    sysroot = {"PKG_CONFIG_SYSROOT_DIR": root, "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": 1}
    flags = consumer.pkg_config(root / "usr", "--cflags-only-I", **sysroot)
    consumer.check("-I in a sysroot", f"-I{root}/usr/include" in flags)

with consumer.workspace() as folder:
    work = pathlib.Path(folder)

    consumer.install_rdmaxx(work, work / "a prefix")
    project = consumer.copy_project("meson", work / "project")
    consumer.check_program(consumer.meson_build(project, PKG_CONFIG_PATH=work / "a prefix/share/pkgconfig"))

    # Headers at an absolute path outside the prefix.
    headers = work / "our headers"
    consumer.install_rdmaxx(work, work / "b", "--includedir", headers)
    consumer.equal("headers elsewhere", consumer.files_in(headers), consumer.HEADERS)
    flags = consumer.pkg_config(work / "b", "--cflags", "--libs")
    consumer.check("-I of headers elsewhere", f"-I{headers}" in flags)
    consumer.check_program(consumer.compile_program(work / "elsewhere app", *flags))
