"""Waiting times of sends while the disk of the broker is busy with another program.

Finds the highest rate of 4 connections with 64 requests in flight, then sends at half
of it: on a quiet disk, beside a program that reads 500 MB/s of that disk, and beside
one that writes as much. A new broker for each of these. The limits: p99 is at most
three times the quiet one, and no answer takes over 50 ms. Prints a table and writes
JSON to bench/results/. Exit code 1 if a limit is missed.

    python lab/busy_disk.py [--seconds 60] [--mb-per-s 500] [--modes ASYNC_FLUSH,…]
                              [--set KEY=VALUE]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import run
from lab import side_by_side

MODES = ("ASYNC_FLUSH", "SYNC_FLUSH")
DISKS = ("quiet", "read", "write")
LOAD = run.PROFILES["send-4x64"]
P99_LIMIT = 3.0
SLOWEST_LIMIT_MS = 50
SEARCH_S = 3.0
END_LIMIT_S = 30
COLUMNS = (
    "mode", "disk", "MB/s of the other", "messages/s", "p50 µs", "p99 µs", "x quiet",
    "p99.9 µs", "slowest ms", "within limits",
)  # fmt: skip


@contextmanager
def busy(kind: str, folder: Path, options: argparse.Namespace) -> Iterator[dict]:
    """A program that keeps the disk busy; what it reached is there at the end."""
    reached: dict = {}
    command = [sys.executable, str(ROOT / "bench/load/disk_hog.py"), kind]
    command += [str(folder / "hog"), "--mb-per-s", str(options.mb_per_s)]
    command += ["--file-mib", str(options.file_mib)]
    command += ["--seconds", str(options.seconds + END_LIMIT_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as hog:
        try:
            if hog.stdout.readline() != "busy\n":
                raise SystemExit(f"nothing keeps the disk of {folder} busy")
            yield reached
        finally:
            hog.terminate()
            output, _ = hog.communicate(timeout=END_LIMIT_S)
    reached |= json.loads(output)


@contextmanager
def broker(folder: Path, mode: str, settings: list[str]) -> Iterator[run.Server]:
    """A new broker on the disk of `folder`."""
    with tempfile.TemporaryDirectory(prefix="rmq-", dir=folder) as name:
        command = run.broker_command(
            Path(name) / "store", [f"flushDiskType={mode}", *settings]
        )
        ready = r"ready broker=\S+ address=\S+:(\d+)"
        with run.serving(command, ready, "stderr", None) as server:
            run.play(server, [*LOAD, "--warm-up=1"], 0.1, None)
            yield server


def measure_mode(folder: Path, mode: str, options: argparse.Namespace) -> dict:
    """Figures by what the disk does."""
    with broker(folder, mode, options.set) as server:
        rate = run.play(server, LOAD, SEARCH_S, None)["rate"] / 2
    found = {}
    for disk in DISKS:
        hog = nullcontext({}) if disk == "quiet" else busy(disk, folder, options)
        with broker(folder, mode, options.set) as server, hog as reached:
            found[disk] = run.play(
                server, [*LOAD, f"--rate={rate:.0f}"], options.seconds, None
            )
        found[disk]["other_mb_per_s"] = reached.get("mb_per_s", 0.0)
        print(f"{mode}, {disk}: p99 {found[disk]['p99_us']:,.0f} µs", flush=True)
    return found


def is_fine(figures: dict, quiet: dict) -> bool:
    """Whether a busy disk keeps the limits."""
    is_near = figures["p99_us"] <= P99_LIMIT * quiet["p99_us"]
    return is_near and figures["max_us"] <= SLOWEST_LIMIT_MS * 1_000


def rows(modes: dict) -> Iterator[tuple[str, ...]]:
    """A row for each mode and each state of the disk."""
    for mode, disks in modes.items():
        quiet = disks["quiet"]
        for disk, f in disks.items():
            yield (
                mode,
                disk,
                f"{f['other_mb_per_s']:.0f}",
                f"{f['rate']:,.0f}",
                f"{f['p50_us']:,.0f}",
                f"{f['p99_us']:,.0f}",
                f"{f['p99_us'] / quiet['p99_us']:.1f}",
                f"{f['p999_us']:,.0f}",
                f"{f['max_us'] / 1_000:,.1f}",
                "" if disk == "quiet" else ("yes" if is_fine(f, quiet) else "NO"),
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of each row")
    parser.add_argument("--mb-per-s", type=float, default=500)
    parser.add_argument("--file-mib", type=int, default=2048)
    parser.add_argument(
        "--modes", type=lambda text: text.split(","), default=list(MODES)
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--directory", help="on which disk the stores go")
    options = parser.parse_args()
    if not 0 < options.seconds <= 600 or set(options.modes) - set(MODES):
        parser.error(f"seconds are 0…600, modes are {', '.join(MODES)}")
    run.build()
    with tempfile.TemporaryDirectory(
        prefix="rmq-busy-disk-", dir=options.directory
    ) as name:
        modes = {
            mode: measure_mode(Path(name), mode, options) for mode in options.modes
        }
    path = run.write_result("busy-disk", modes)
    title = "Sends beside a busy disk"
    print(f"\n{side_by_side.table_text(title, COLUMNS, list(rows(modes)))}")
    print(f"written to {path.relative_to(ROOT)}")
    return int(
        not all(
            is_fine(disks[disk], disks["quiet"])
            for disks in modes.values()
            for disk in DISKS[1:]
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
