#!/usr/bin/env python3
"""CMake's find_package(rdmaxx CONFIG) against an installed tree: staged, with spaces, moved; headers elsewhere."""

import pathlib

import consumer

# What find_package says of a request, for VERSION = MAJOR.MINOR.PATCH.
MAJOR, MINOR, PATCH = map(int, consumer.VERSION.split("."))
ACCEPTED = {
    f"{MAJOR}.{MINOR}": True,
    f"{MAJOR}.{MINOR}.{PATCH}": True,
    f"{MAJOR}.{MINOR}.{PATCH};EXACT": True,
    f"{MAJOR}.{MINOR}.{PATCH + 1}": False,
    f"{MAJOR}.{MINOR + 1}": False,
    f"{MAJOR + 1}.{MINOR}": False,
    f"{MAJOR}.{MINOR}...{MAJOR}.{MINOR + 2}": True,
    f"{MAJOR}.{MINOR}...{MAJOR}.{MINOR}.{PATCH}": True,
    f"0...<{MAJOR}.{MINOR}.{PATCH}": False,
    f"{MAJOR}.{MINOR + 1}...{MAJOR + 1}.0": False,
}
REQUESTS = """
cmake_minimum_required(VERSION 3.19) # ranges
project(requests CXX)
foreach(request IN LISTS REQUESTS)
    string(REPLACE "_" ";" words "${request}")
    find_package(rdmaxx ${words} CONFIG QUIET)
    message(STATUS "request ${request}: ${rdmaxx_FOUND}")
    unset(rdmaxx_DIR CACHE)
endforeach()
find_package(rdmaxx CONFIG ${REQUIRED})
message(STATUS "rdmaxx_FOUND: ${rdmaxx_FOUND}")
"""

consumer.need("cmake")
with consumer.workspace() as folder:
    work = pathlib.Path(folder)

    # Staged with DESTDIR, and used in the stage: that is a tree which was moved.
    consumer.install_rdmaxx(work, "/opt/a prefix", destdir=work / "stage")
    tree = work / "stage/opt/a prefix"
    project = consumer.copy_project("find_package", work / "project")
    consumer.check_program(consumer.cmake_build(project, f"-DCMAKE_PREFIX_PATH={tree}"))

    # And once more. The user's own choice of a later standard stays.
    tree = tree.rename(work / "moved")
    project = consumer.copy_project("find_package", work / "another project")
    options = (f"-DCMAKE_PREFIX_PATH={tree}", "-DCMAKE_CXX_STANDARD=23", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    consumer.run("cmake", "-G", "Ninja", "-S", project, "-B", project / "build", *options)
    commands = (project / "build/compile_commands.json").read_text(encoding="utf-8")
    consumer.check("CMAKE_CXX_STANDARD=23 is kept", "++23" in commands or "++2b" in commands)
    consumer.check("headers of the moved tree", f"{tree}/include" in commands)

    # Headers at an absolute path outside the prefix.
    consumer.install_rdmaxx(work, work / "b", "--includedir", work / "our headers")
    project = consumer.copy_project("find_package", work / "third project")
    consumer.check_program(consumer.cmake_build(project, f"-DCMAKE_PREFIX_PATH={work}/b"))

    # Versions.
    requests = work / "requests"
    requests.mkdir()
    (requests / "CMakeLists.txt").write_text(REQUESTS, encoding="utf-8")
    words = ";".join(request.replace(";", "_") for request in ACCEPTED)
    cmake = ("cmake", "-G", "Ninja", "-S", requests, f"-DCMAKE_PREFIX_PATH={tree}")
    output = consumer.run(*cmake, "-B", work / "asked", f"-DREQUESTS={words}")
    for request, accepted in ACCEPTED.items():
        request = request.replace(";", "_")
        consumer.check(f"find_package(rdmaxx {request})", f"request {request}: {int(accepted)}\n" in output)

    # Without rdma-core it is not found, and says what is missing.
    none = {"PKG_CONFIG_LIBDIR": work / "nothing"}
    output = consumer.run(*cmake, "-B", work / "without", **none)
    consumer.check("not found", "rdmaxx_FOUND: 0" in output)
    output = consumer.run(*cmake, "-B", work / "required", "-DREQUIRED=REQUIRED", status=1, **none)
    consumer.check("the reason", "librdmacm >= 1.3.39" in " ".join(output.split()))
