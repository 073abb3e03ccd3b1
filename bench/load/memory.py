"""Memory as a load finds it: fresh pages, or pages that were used before.

The kernel takes the pages of a new log from memory that is free.  On a virtual machine
a page that nobody touched yet comes from the hypervisor, and costs many times what a
recycled one does.  `held` takes most of the free memory and touches all of it, then
gives a part back: what is written meanwhile gets pages that were used before.
`page_us` says what a page costs now.

    python bench/load/memory.py MIB_TOUCHED MIB_HELD     for `held`; ends with its input
"""

import argparse
import mmap
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14
PROBE_MIB = 256
PAGES_OF_A_MIB = 256
LEFT_MIB = 1024
"""Free memory that is never touched: other programs may need it."""
RECYCLED_MIB = 3072
"""Memory that the page cache has beside a holder, with what is never touched."""

RECYCLED_SHARE = 0.15
"""The same as a share of the machine, if that is more."""


def available_mib() -> int:
    """Memory that programs could get, of the machine or of this control group."""
    text = Path("/proc/meminfo").read_text()
    free = int(re.search(r"MemAvailable:\s+(\d+)", text)[1]) // 1024
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except OSError:
        return free
    return free if limit == "max" else min(free, (int(limit) - used) >> 20)


def amounts(available: int, total: int) -> tuple[int, int]:
    """MiB to touch, and how many of them to keep; (0, 0) if there is too little."""
    recycled = max(RECYCLED_MIB, int(total * RECYCLED_SHARE))
    touched, kept = available - LEFT_MIB, available - recycled
    return (touched, kept) if kept > 0 else (0, 0)


@contextmanager
def held() -> Iterator[bool]:
    """Hold memory until the block ends, so that pages are recycled; whether it is."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    touched, kept = amounts(available_mib(), total)
    if not kept:
        yield False
        return
    with subprocess.Popen(
        [sys.executable, __file__, str(touched), str(kept)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        is_held = holder.stdout.readline() == "held\n"
        try:
            yield is_held
            if is_held and holder.poll() is not None:
                raise SystemExit("the holder of memory ended before the rounds did")
        finally:
            holder.stdin.close()


def page_us(folder: str | None = None) -> float:
    """CPU us of a page of 4 KiB in a new file, written with 1 MiB at a time."""
    data = b"x" * (1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, PROBE_MIB << 20)
        began = time.thread_time()
        for number in range(PROBE_MIB):
            os.pwrite(file.fileno(), data, number << 20)
        used = time.thread_time() - began
    return used / (PROBE_MIB * PAGES_OF_A_MIB) * 1e6


def hold(touched: int, kept: int) -> None:
    """Touch memory, give a part of it back, and keep the rest while input is open."""
    Path("/proc/self/oom_score_adj").write_text("1000")  # the first that may be killed
    keeps = mmap.mmap(-1, kept << 20)
    keeps.madvise(POPULATE_WRITE)
    gives = mmap.mmap(-1, max(1, touched - kept) << 20)
    gives.madvise(POPULATE_WRITE)
    gives.close()
    print("held", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("touched", type=int)
    parser.add_argument("kept", type=int)
    options = parser.parse_args()
    hold(options.touched, options.kept)
