"""Builds the compiled modules of rmq/_fastpath; everything else is in pyproject.toml.

RMQ_TRACE=1 gives the checked build: bounds checks, line tracing for coverage, and the
events of `io_trace.h`. RMQ_ASAN=1 gives the one that `make asan` runs: it watches every
access to memory that was taken from malloc or the stack.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

TRACE = os.environ.get("RMQ_TRACE") == "1"
ASAN = os.environ.get("RMQ_ASAN") == "1"
JOBS = os.cpu_count() or 1
SANITIZER = ["-fsanitize=address", "-fno-omit-frame-pointer", "-g"] if ASAN else []

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": TRACE,
    "wraparound": False,
    "initializedcheck": TRACE,
    "cdivision": True,
    "linetrace": TRACE,
    "embedsignature": True,
    "auto_pickle": False,
    "autotestdict": False,
}

extensions = [
    Extension(
        f"rmq._fastpath.{source.stem}",
        [str(source)],
        depends=[str(path) for path in sorted(source.parent.glob("*.h"))],
        extra_compile_args=[
            "-O1" if TRACE or ASAN else "-O3",
            "-std=gnu11",
            *SANITIZER,
        ],
        extra_link_args=SANITIZER,
        define_macros=[("CYTHON_TRACE_NOGIL", "1"), ("RMQ_IO_TRACE", "1")]
        if TRACE
        else [],
    )
    for source in sorted(Path("rmq/_fastpath").glob("*.pyx"))
]

setup(
    ext_modules=cythonize(extensions, compiler_directives=DIRECTIVES, nthreads=JOBS),
    options={"build_ext": {"parallel": JOBS}},
)
