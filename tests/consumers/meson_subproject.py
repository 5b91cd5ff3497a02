#!/usr/bin/env python3
"""A Meson project with rdmaxx as a subproject: through packaging/rdmaxx.wrap, and as a folder in subprojects."""

import json
import pathlib
import shutil

import consumer


def check_parent(project, *options, **environment):
    """The parent builds and installs its own program, and nothing of rdmaxx's."""
    # Also says if we use what Meson has only after the version that we claim to work with.
    consumer.check_program(consumer.meson_build(project, "--fatal-meson-warnings", *options, **environment))

    targets = json.loads(consumer.run("meson", "introspect", "--targets", project / "build"))
    consumer.equal("targets", [target["name"] for target in targets], ["app"])

    stage = project / "stage"
    consumer.run("meson", "install", "-C", project / "build", DESTDIR=stage)
    consumer.equal("installed", [path.name for path in consumer.files_in(stage)], ["app"])


consumer.need("git")
with consumer.workspace() as folder:
    work = pathlib.Path(folder)

    git = consumer.publish_rdmaxx(work)
    wrapped = consumer.copy_project("meson", work / "wrapped")
    (wrapped / "subprojects").mkdir()
    shutil.copy(consumer.SOURCE / "packaging/rdmaxx.wrap", wrapped / "subprojects")
    consumer.run("meson", "subprojects", "download", cwd=wrapped, **git)
    check_parent(wrapped, **git)

    in_folder = consumer.copy_project("meson", work / "in folder")
    consumer.copy_rdmaxx(in_folder / "subprojects/rdmaxx")
    check_parent(in_folder)
