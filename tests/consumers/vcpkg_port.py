#!/usr/bin/env python3
"""The vcpkg port: its manifest by vcpkg's schema, portfile in a harness, package by vcpkg's rules, a consumer."""

import json
import pathlib
import re
import shutil

import consumer
import static
from consumer import check

PORT = consumer.SOURCE / "packaging/vcpkg"
MANIFEST = json.loads((PORT / "vcpkg.json").read_text(encoding="utf-8"))

# vcpkg's schema, and the order in which `vcpkg format-manifest` writes.
FIELDS = (
    "name version version-semver version-date version-string port-version maintainers summary description homepage "
    "documentation license supports dependencies default-features features"
).split()
IDENTIFIER = r"[a-z0-9]+(-[a-z0-9]+)*"
PORT_NAME = rf"(?!(prn|aux|nul|con|lpt[1-9]|com[1-9]|core|default)$){IDENTIFIER}(\.{IDENTIFIER})*"
RELAXED_VERSION = r"\d+(\.\d+)*(-[0-9a-zA-Z.-]+)?(\+[0-9a-zA-Z.-]+)?"
PLATFORM = r"!?\(?[a-z0-9]+\)?( *[&|,] *!?\(?[a-z0-9]+\)?)*"
DEPENDENCY_FIELDS = {"name", "features", "host", "default-features", "platform", "version>="}


def check_manifest():
    check("order and names of the fields", list(MANIFEST) == [field for field in FIELDS if field in MANIFEST])
    check("name", re.fullmatch(PORT_NAME, MANIFEST["name"]) and MANIFEST["name"] == "rdmaxx")
    check("one version", len([field for field in MANIFEST if re.match("version", field)]) == 1)
    check("version", re.fullmatch(RELAXED_VERSION, MANIFEST["version"]) and MANIFEST["version"] == consumer.VERSION)
    check("description", len(MANIFEST["description"]) > 20)
    check("licence", MANIFEST["license"] == "MIT")
    check("supports", re.fullmatch(PLATFORM, MANIFEST["supports"]) and MANIFEST["supports"] == "linux")

    check("no features", not {"features", "default-features"} & set(MANIFEST))

    names = {}
    for dependency in MANIFEST["dependencies"]:
        if isinstance(dependency, str):
            dependency = {"name": dependency}
        check(f"{dependency}", re.fullmatch(PORT_NAME, dependency["name"]) and set(dependency) <= DEPENDENCY_FIELDS)
        names[dependency["name"]] = dependency.get("host", False)
    check("order of dependencies", list(names) == sorted(names))
    # What the portfile calls comes with the host's tools.
    check("dependencies", names == {"rdma-core": False, "vcpkg-cmake-config": True, "vcpkg-tool-meson": True})

    formatted = json.dumps(MANIFEST, indent=2, ensure_ascii=False) + "\n"
    check("format", (PORT / "vcpkg.json").read_text(encoding="utf-8") == formatted)


def check_package(package):
    """What vcpkg looks at after a build."""
    files = consumer.files_in(package)
    folders = {path.relative_to(package) for path in package.rglob("*") if path.is_dir()}
    check("headers", {file.relative_to("include") for file in files if file.parts[0] == "include"} == consumer.HEADERS)
    check("only rdmaxx directly in include", {path.name for path in (package / "include").iterdir()} == {"rdmaxx"})
    check("copyright", (package / "share/rdmaxx/copyright").read_bytes() == (consumer.SOURCE / "LICENSE").read_bytes())
    check("usage", (package / "share/rdmaxx/usage").read_bytes() == (PORT / "usage").read_bytes())
    check("no debug, bin, cmake, lib/cmake, tools", not {"debug", "bin", "cmake", "lib/cmake"} & set(map(str, folders)))
    check("no file beside the folders", not [file for file in files if len(file.parts) == 1])
    check("no empty folder", not [folder for folder in folders if not any((package / folder).iterdir())])
    check("CMake's files", {str(file.parent) for file in files if file.suffix == ".cmake"} == {"share/rdmaxx"})
    for file in files:
        text = (package / file).read_text(encoding="utf-8")
        # The root contains packages, buildtrees and installed.
        check(f"absolute path in {file}", str(package.parent.parent) not in text)
        if file.suffix == ".pc":
            has_libraries = re.search(r"^Libs.*: *\S", text, re.M)
            check(f"private fields in {file}, of a static triplet", ".private" not in text)
            check(f"place of {file}", str(file.parent) == ("lib/pkgconfig" if has_libraries else "share/pkgconfig"))


def run_port(root, port, folder, version):
    """Builds a port, and installs it: vcpkg's install is a copy of the package."""
    consumer.run(
        "cmake",
        f"-DPORT={port}",
        f"-DVERSION={version}",
        f"-DPORT_DIR={folder}",
        f"-DSOURCE={consumer.SOURCE}",
        f"-DROOT={root}",
        "-P",
        consumer.HERE / "vcpkg/harness.cmake",
    )
    package = root / "packages" / port
    shutil.copytree(package, root / "installed", dirs_exist_ok=True)
    return package


def main():
    check_manifest()
    consumer.need("cmake")

    # vcpkg itself does not work in a path with spaces.
    with consumer.workspace("rdmaxx-vcpkg-") as folder:
        root = pathlib.Path(folder)
        run_port(root, "rdma-core", consumer.HERE / "vcpkg/rdma-core", "0")
        check_package(run_port(root, "rdmaxx", PORT, MANIFEST["version"]))
        shutil.rmtree(root / "packages")
        shutil.rmtree(root / "buildtrees")

        # In a static triplet, which has nothing but archives, nobody need ask for static linking or for drivers.
        # What the port tells its users to write is what they have here.
        project = consumer.copy_project("find_package", root / "project")
        told = (PORT / "usage").read_text(encoding="utf-8")
        written = (project / "program/CMakeLists.txt").read_text(encoding="utf-8").replace("(app", "(main")
        for line in ("find_package(rdmaxx CONFIG REQUIRED)\n", "target_link_libraries(main PRIVATE rdmaxx::rdmaxx)\n"):
            check(f"usage: {line}", line in told and line in written)
        program = consumer.cmake_build(project, f"-DCMAKE_PREFIX_PATH={root}/installed")
        consumer.check_program(static.check_static(program))
        commands = consumer.run("ninja", "-C", project / "build", "-t", "commands")
        check("rdma-core from vcpkg", f"{root}/installed/lib/libibverbs.a" in commands)

        consumer.equal("exit status on real verbs", static.statuses_on_verbs([program]), [0])


if __name__ == "__main__":
    main()
