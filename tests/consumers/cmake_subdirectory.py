#!/usr/bin/env python3
"""CMake projects that have rdmaxx's source: add_subdirectory and FetchContent."""

import pathlib

import consumer


def check(project, *options, **environment):
    """It builds, and installs its own program and nothing of rdmaxx's."""
    consumer.check_program(consumer.cmake_build(project, *options, **environment))
    stage = project / "stage"
    consumer.run("cmake", "--install", project / "build", "--prefix", stage)
    consumer.equal("installed", [path.name for path in consumer.files_in(stage)], ["app"])


consumer.need("cmake", "git")
with consumer.workspace() as folder:
    work = pathlib.Path(folder)

    project = consumer.copy_project("add_subdirectory", work / "add_subdirectory")
    consumer.copy_rdmaxx(project / "third_party/rdmaxx")
    check(project)

    # FetchContent gets the release, or is told of a copy.
    project = consumer.copy_project("fetch_content", work / "fetched")
    check(project, **consumer.publish_rdmaxx(work))
    project = consumer.copy_project("fetch_content", work / "fetch_content")
    source = consumer.copy_rdmaxx(work / "rdmaxx's source")
    check(project, f"-DFETCHCONTENT_SOURCE_DIR_RDMAXX={source}")
