"""Damaged logs in groups of real processes: each row has to lose nothing.

A group of two brokers with a controller takes messages.  All brokers are killed, the
log of one of them is damaged, and it starts before the other one, together with it, or
after it.  The row is good if the group serves within 60 s, everything acknowledged is
on both brokers, and the damaged one has logged what it did.

    python lab/damage.py [--seeds 3] [--row bit-slave-first] [--kinds rmq,Java]
"""

import argparse
import itertools
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import walk_log
from tests.interop import wire
from tests.interop.groups import QUEUES, TOPIC, Group, Load, rmq_controller
from tests.interop.processes import serving

SERVES_S = 60.0
FILE_SIZE = 1 << 16
MESSAGES = 800
HEAD_START_S = 3.0
"""How long one of them runs before the other one starts."""

FIELDS = (*range(12), *range(28, 36), *range(84, 90))
"""Bytes of a record that a check covers: sizes, magic, CRC, own offset, body."""


UNCHECKED = (*range(16, 20), *range(40, 64), *range(72, 76))
"""Bytes that no check of the format covers: flag, born, store and host, times."""


class Row(NamedTuple):
    """What is damaged, on which broker, and which one starts first."""

    damage: str
    victim: str
    order: str
    flush: str = "ASYNC_FLUSH"

    @property
    def name(self) -> str:
        """Return the name by which a person chooses it."""
        flush = "" if self.flush == "ASYNC_FLUSH" else "-sync"
        return f"{self.damage}-{self.victim}-{self.order}{flush}"


def flip_bit(folder: Path, chance: random.Random) -> str:
    """Flip a bit in a record of the last log file."""
    path = max(each for each in folder.iterdir() if any(each.read_bytes()))
    size = path.stat().st_size
    file = MappedFile(str(path), size, base_offset=int(path.name), writable=False)
    _, _, records = walk_log(file, 0, size, check_crc=False)
    file.close()
    record = chance.choice(records)
    at = record.physical_offset - int(path.name) + chance.choice(FIELDS)
    change(path, at, lambda data: bytes([data[0] ^ 1 << chance.randrange(8)]), 1)
    return f"a bit at {at} of {path.name}"


def flip_field(folder: Path, chance: random.Random) -> str:
    """Flip a bit of an old record where the format has no checksum."""
    path = min(folder.iterdir())
    size = path.stat().st_size
    file = MappedFile(str(path), size, base_offset=int(path.name), writable=False)
    _, _, records = walk_log(file, 0, size, check_crc=False)
    file.close()
    record = chance.choice(records[:-1])
    at = record.physical_offset - int(path.name) + chance.choice(UNCHECKED)
    change(path, at, lambda data: bytes([data[0] ^ 1 << chance.randrange(8)]), 1)
    return f"an unchecked bit at {at} of {path.name}"


def zero_page(folder: Path, chance: random.Random) -> str:
    """Fill a page of the last log file with zeros."""
    path = max(each for each in folder.iterdir() if any(each.read_bytes()))
    used = len(path.read_bytes().rstrip(b"\0"))
    at = chance.randrange(max(1, used // 4096)) * 4096
    change(path, at, lambda data: bytes(len(data)), 4096)
    return f"zeros at {at} of {path.name}"


def unlink_one(choose: Callable[[list[Path]], Path]) -> Callable[..., str]:
    """Return a function that removes a file of the log."""

    def unlink(folder: Path, _chance: random.Random) -> str:
        paths = sorted(each for each in folder.iterdir() if any(each.read_bytes()))
        path = choose(paths)
        path.unlink()
        return f"{path.name} of {len(paths)} files is gone"

    return unlink


def shorten(folder: Path, chance: random.Random) -> str:
    """End the last file early, as a file system does that lost its length."""
    path = max(each for each in folder.iterdir() if any(each.read_bytes()))
    size = chance.randrange(1, path.stat().st_size)
    os.truncate(path, size)
    return f"{path.name} has {size} bytes"


def change(path: Path, at: int, make: Callable[[bytes], bytes], size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        data = file.read(size)
        file.seek(at)
        file.write(make(data))


DAMAGES: dict[str, Callable[[Path, random.Random], str]] = {
    "bit": flip_bit,
    "field": flip_field,
    "zeros": zero_page,
    "first": unlink_one(lambda paths: paths[0]),
    "middle": unlink_one(lambda paths: paths[len(paths) // 2]),
    "last": unlink_one(lambda paths: paths[-1]),
    "short": shorten,
}

ROWS = [
    *(
        Row(damage, victim, order)
        for damage, victim, order in itertools.product(
            ("bit", "last"), ("master", "slave"), ("first", "together", "last")
        )
    ),
    *(Row(damage, "master", "first") for damage in ("zeros", "first", "middle")),
    Row("short", "slave", "first"),
    Row("field", "master", "first"),
    *(Row("bit", victim, "first", "SYNC_FLUSH") for victim in ("master", "slave")),
    Row("last", "master", "together", "SYNC_FLUSH"),
]


DONE = "Healed with", "this log is truncated there", "have the bytes of"
"""What a broker logs that has ended its damage."""


class Result(NamedTuple):
    """What came of a row."""

    damage: str
    served_s: float
    faults: list[str]


def run_row(row: Row, seed: int, kinds: tuple[str, str] = ("rmq", "rmq")) -> Result:
    """Run a row once; the victim is a broker of rmq."""
    chance = random.Random(f"{row} {seed}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = stack.enter_context(serving("namesrv", "--set", "listenPort=0"))
        addresses, _ = stack.enter_context(rmq_controller(folder / "controller"))
        group = Group(
            folder, names.namesrv, addresses, dict(zip("ab", kinds, strict=True))
        )
        group.add_settings(
            mappedFileSizeCommitLog=FILE_SIZE,
            maxMessageSize=8192,
            flushDiskType=row.flush,
        )
        stack.callback(group.close)
        group.start_all()
        with Load(group) as load:
            load.await_acknowledged(MESSAGES)
            master = group.master() or "a"
            victim = master if row.victim == "master" else "ba"["ab".index(master)]
            other = "ba"["ab".index(victim)]
            for name in (victim, other):
                group.kill(name)
            done = DAMAGES[row.damage](group.store(victim) / "commitlog", chance)
            began = time.monotonic()
            start_in_order(group, row.order, victim, other)
            count = load.count()
            while load.count() == count and time.monotonic() - began < SERVES_S:
                time.sleep(0.05)
            served_s = time.monotonic() - began
            group.await_all()
            load.finish()
            faults = []
            if row.damage == "field":
                faults += await_equal(group, victim, other)
            faults += [
                f"{name}: {fault}"
                for name in (victim, other)
                for fault in load.faults(group.address(name))
            ]
        if served_s >= SERVES_S:
            faults.append(f"not served within {SERVES_S:g} s")
        log = "".join(group.lines(victim))
        if not any(text in log for text in DONE):
            faults.append(f"the victim has logged nothing: {log[-400:]}")
        return Result(done, served_s, faults)


def await_equal(group: Group, victim: str, other: str) -> list[str]:
    """Read the victim's old messages until its first file is as the other one's."""
    paths = [
        min((group.store(each) / "commitlog").iterdir()) for each in (victim, other)
    ]
    until_s = time.monotonic() + SERVES_S
    while paths[0].read_bytes() != paths[1].read_bytes():
        with suppress(AssertionError):  # the answer is an error until it has healed
            wire.pull(group.address(victim), TOPIC, queues=QUEUES)
        if time.monotonic() > until_s:
            return [f"{paths[0]} has not healed within {SERVES_S:g} s"]
        time.sleep(0.2)
    return []


def start_in_order(group: Group, order: str, victim: str, other: str) -> None:
    """Start both; a broker is ready only when its log is whole."""
    if order == "last":
        group.start(other, victim)
        return
    names = [victim, other]
    threads = [threading.Thread(target=group.start, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
        time.sleep(0.0 if order == "together" else HEAD_START_S)
    for thread in threads:
        thread.join()


def chosen_rows(name: str | None) -> Iterator[Row]:
    found = [row for row in ROWS if name in (None, row.name)]
    if not found:
        raise SystemExit(f"rows: {', '.join(row.name for row in ROWS)}")
    yield from found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--row")
    parser.add_argument("--kinds", default="rmq,rmq", help="of the first and the other")
    chosen = parser.parse_args()
    first, other = chosen.kinds.split(",")
    bad = 0
    for row in chosen_rows(chosen.row):
        for seed in range(chosen.seed, chosen.seed + chosen.seeds):
            result = run_row(row, seed, (first, other))
            bad += bool(result.faults)
            state = "; ".join(result.faults[:3]) or "good"
            print(
                f"{row.name:28} {seed}  served after {result.served_s:4.1f} s  "
                f"{result.damage}: {state}",
                flush=True,
            )
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
