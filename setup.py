"""Builds the compiled modules of rmq/_fastpath; everything else is in pyproject.toml.

One process for each core translates a module to C and compiles it; the dearest come
first. What is built in place is kept in build/, so that only changed modules are built
again. Elsewhere than on Linux only the modules of the client are built. RMQ_TRACE=1
gives the checked build: bounds checks, line tracing for coverage, and the events of
`io_trace.h`. RMQ_ASAN=1 gives the one that `make asan` runs: it watches every access to
memory that was taken from malloc or the stack. Both show the compiler's warnings.
"""

import gc
import multiprocessing
import os
import queue
import sys
import time
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

TRACE = os.environ.get("RMQ_TRACE") == "1"
ASAN = os.environ.get("RMQ_ASAN") == "1"
FLAVOUR = "asan" if ASAN else "trace" if TRACE else "plain"
SANITIZER = ["-fsanitize=address", "-fno-omit-frame-pointer", "-g"] if ASAN else []

PORTABLE = {
    "bytes.checksum", "bytes.hashing", "bytes.json_dialect", "bytes.properties",
    "bytes.selector", "bytes.unique_keys", "client.codec", "client.messages",
    "client.packing", "client.process_queue", "client.sending", "log.decode",
    "log.layout", "reactor.header_scan", "reactor.native",
}  # fmt: skip
"""What the Python client needs. The others serve brokers, which need Linux."""

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
    "emit_code_comments": TRACE,
}

FASTPATH = Path("rmq/_fastpath")
HEADERS = FASTPATH / "bytes"

SHARED = "rmq._fastpath._cython_shared"
"""Cython's own code that is the same in every module: views of memory, functions,
conversions. Cython writes its C file to the build folder, and it is compiled once."""

AT_O2 = {
    "_cython_shared", "client.codec", "client.messages", "client.process_queue",
    "handlers.pull_table", "log.index_file", "log.layout",
    "log.mapped_file", "log.queue_file", "log.queue_tail", "log.timer_units",
    "log.watermark",
}  # fmt: skip
"""Modules that `-O2` compiles sooner, and that are as fast with it in bench/micro (at
most 3 % slower). The others have `-O3`: hot ones, and those that would gain nothing."""

if FLAVOUR == "plain":
    # debug information takes a third of the compiler's time, warnings take a twentieth
    COMPILE_ARGS = ["-O3", "-g0", "-w", "-std=gnu11"]
else:
    COMPILE_ARGS = [
        "-O1",
        "-Wall",
        "-std=gnu11",
        # of code that Cython wrote: its temporaries are not const, and others
        "-Wno-discarded-qualifiers",
        "-Wno-maybe-uninitialized",
        "-Wno-unused-but-set-variable",
        *SANITIZER,
    ]
MACROS = [("CYTHON_TRACE_NOGIL", "1"), ("RMQ_IO_TRACE", "1")] if TRACE else []

SHARED_COST, FIXED_COST = 60_000, 6_000
"""CPU time of the shared module, and of a module without code; the unit is the time
that a byte of source takes."""


def module_of(source: Path) -> str:
    """Return the name of a module below `rmq._fastpath`."""
    return ".".join(source.relative_to(FASTPATH).with_suffix("").parts)


def extension(name: str, source: Path) -> Extension:
    """Describe how a module is compiled."""
    args = list(COMPILE_ARGS)
    if FLAVOUR == "plain" and module_of(source) in AT_O2:
        args[0] = "-O2"
    return Extension(
        name,
        [str(source)],
        depends=[str(path) for path in sorted(HEADERS.glob("*.h"))],
        include_dirs=[str(HEADERS)],
        extra_compile_args=args,
        extra_link_args=SANITIZER,
        define_macros=MACROS,
    )


EXTENSIONS = [
    extension(SHARED, FASTPATH / "_cython_shared.c"),
    *(
        extension(f"rmq._fastpath.{module_of(source)}", source)
        for source in sorted(FASTPATH.glob("*/*.pyx"))
        if sys.platform == "linux" or module_of(source) in PORTABLE
    ),
]


class BuildModules(build_ext):
    """Builds several modules at a time, and shows how many are ready."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.cython_directives = DIRECTIVES
        self.cython_c_in_temp = True
        self.shared_utility_qualified_name = SHARED
        kept = Path("build", f"{FLAVOUR}-{sys.implementation.cache_tag}")
        self.build_temp = str(kept / "c")
        if self.inplace or self.editable_mode:
            self.build_lib = str(kept / "lib")

    def build_extensions(self) -> None:
        self.check_extensions_list(self.extensions)
        modules = sorted(self.extensions, key=cost_of, reverse=True)
        workers_count = usable_cpus()
        progress = Progress(list(map(cost_of, modules)), workers_count)
        # forked processes have this command with its compiler; Cython holds the GIL
        context = multiprocessing.get_context("fork")
        numbers, ready = context.SimpleQueue(), context.Queue()
        workers = [
            context.Process(target=self._work, args=(modules, numbers, ready))
            for _ in range(workers_count)
        ]
        for number in (*range(len(modules)), *(None for _ in workers)):
            numbers.put(number)
        for worker in workers:
            worker.start()
        while progress.ready < progress.count:
            try:
                progress.add(*ready.get(timeout=1))
            except queue.Empty:
                progress.show()
                if any(worker.exitcode for worker in workers):
                    for worker in workers:
                        worker.terminate()
                    raise SystemExit("a module could not be compiled") from None

    def _work(self, modules, numbers, ready) -> None:
        # collections take a third of Cython's time, and this process ends soon
        gc.disable()
        for number in iter(numbers.get, None):
            started = time.monotonic()
            self.build_extension(modules[number])
            ready.put((number, time.monotonic() - started))


def usable_cpus() -> int:
    """Return how many processors this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cost_of(module: Extension) -> int:
    """About the CPU time to compile it."""
    if module.name == SHARED:
        return SHARED_COST
    return FIXED_COST + Path(module.sources[0]).stat().st_size


class Progress:
    """One line that changes on a terminal; elsewhere a line every four seconds."""

    WIDTH = 15
    INTERVAL_S = 4
    SILENT_S = 2
    """Nothing is shown before: then nothing had to be compiled."""

    MAX_RISE = 1.1
    """Of the time left, over the least that was shown."""

    def __init__(self, costs: list[int], workers: int, clock=time.monotonic) -> None:
        self.count = len(costs)
        self.ready = 0
        self._costs = costs
        self._workers = workers
        self._clock = clock
        self._done = 0
        self._worked_s = 0.0
        self._least_s = sys.maxsize
        self._started = self._shown = clock()

    def add(self, number: int, took_s: float) -> None:
        """Count a module that is ready."""
        self.ready += 1
        self._done += self._costs[number]
        self._worked_s += took_s
        self.show()

    def show(self) -> None:
        """Write the line, if it is time to."""
        now = self._clock()
        is_end = self.ready == self.count
        if now - self._started < self.SILENT_S:
            return
        if sys.stderr.isatty():
            line = f"\r{self.line()}"
            print(line, end="\n" if is_end else "", file=sys.stderr, flush=True)
        elif is_end or now - self._shown >= self.INTERVAL_S:
            print(self.line(), file=sys.stderr, flush=True)
            self._shown = now

    def line(self) -> str:
        """Return the line of this moment."""
        passed_s = self._clock() - self._started
        filled = int(self.WIDTH * self._done / sum(self._costs))
        bar = "#" * filled + "." * (self.WIDTH - filled)
        end = ""
        if self.ready == self.count:
            end = f"{passed_s:.0f} s"
        elif self.ready:
            end = f"{self._estimate(passed_s)} s left"
        name = f"compiling {self.count} modules, this once"
        return f"  {name:<34}[{bar}]  {self.ready:2} of {self.count}  {end:>10}"

    def _estimate(self, passed_s: float) -> int:
        """Return the seconds left if the rest is as fast as what is ready."""
        whole_s = self._worked_s * sum(self._costs) / self._done / self._workers
        left_s = max(1, round(whole_s - passed_s))
        left_s = min(left_s, int(self._least_s * self.MAX_RISE))
        self._least_s = min(left_s, self._least_s)
        return left_s


if __name__ == "__main__":
    setup(ext_modules=EXTENSIONS, cmdclass={"build_ext": BuildModules})
