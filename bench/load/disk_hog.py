"""Keeps a disk busy: reads or writes a file past the page cache, at a steady rate.

Prints what it reached as JSON: when its time is over, or at SIGTERM.

    python bench/load/disk_hog.py read|write FILE [--mb-per-s 500] [--seconds 60]
                                  [--file-mib 2048]
"""

import argparse
import json
import mmap
import os
import signal
import time
from pathlib import Path

PART = 1 << 20
"""Bytes of one read or write."""


def make_file(path: Path, mib: int) -> None:
    """Write a file of this size, so that reads find blocks on the disk."""
    data = os.urandom(PART)
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(data)
        os.fsync(file.fileno())


def keep_busy(path: Path, kind: str, bytes_per_s: float, seconds: float) -> dict:
    """Go through the file again and again; the rate that was reached."""
    size = path.stat().st_size
    flags = os.O_RDONLY if kind == "read" else os.O_WRONLY
    page = mmap.mmap(-1, PART)  # direct transfers need whole pages
    work = os.preadv if kind == "read" else os.pwritev
    descriptor = os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC)
    is_over = False

    def end(*_: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)
    began, done = time.monotonic(), 0
    while not is_over and (now := time.monotonic()) - began < seconds:
        early = done / bytes_per_s - (now - began)
        if early > 0:
            time.sleep(min(early, 0.1))
            continue
        done += work(descriptor, [page], done % size)
    os.close(descriptor)
    taken = time.monotonic() - began
    return {"kind": kind, "mb_per_s": done / taken / 1e6, "seconds": taken}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["read", "write"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--mb-per-s", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--file-mib", type=int, default=2048)
    options = parser.parse_args()
    if options.mb_per_s <= 0 or not 0 < options.file_mib <= 65_536:
        parser.error("the rate and the size are above 0, the size is 65536 MiB at most")
    make_file(options.file, options.file_mib)
    print("busy", flush=True)
    reached = keep_busy(
        options.file, options.kind, options.mb_per_s * 1e6, options.seconds
    )
    print(json.dumps(reached), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
