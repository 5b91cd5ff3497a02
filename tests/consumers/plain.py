#!/usr/bin/env python3
"""No build system: -I include -lrdmacm -libverbs."""

import consumer

with consumer.workspace() as work:
    program = consumer.compile_program(f"{work}/app", "-I", consumer.SOURCE / "include", "-lrdmacm", "-libverbs")
    consumer.check_program(program)
