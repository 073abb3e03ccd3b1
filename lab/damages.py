"""What is damaged in the laboratory of damage: a log, queues, tables, a state.

Each function damages the files of a process that does not run, and returns what it did.
"""

import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import WalkedRecord, walk_log
from tests.interop.groups import TOPIC
from tests.simulation.damage import STATE

FIELDS = (*range(12), *range(28, 36), *range(84, 90))
"""Bytes of a record that a check covers: sizes, magic, CRC, own offset, body."""

UNCHECKED = (*range(16, 20), *range(40, 64), *range(72, 76))
"""Bytes that no check of the format covers: flag, born, store and host, times."""

OWN_OFFSET = range(28, 36)
"""Bytes of a record with its own offset in the log."""

ENTRY_SIZE = 20
ENTRY_PLACE, ENTRY_TAGS = range(12), range(12, 20)
"""Bytes of a queue entry: offset and size of its record; its tags code."""

OFFSETS = "consumerOffset.json"
TAGGED = "Tagged"


class Damage(NamedTuple):
    """What happens to the files in a folder, and what somebody has to report."""

    make: Callable[[Path, random.Random], str]
    reports: tuple[str, ...]
    """Texts of which a log line, or the output of a command, has to have one."""


def change(path: Path, at: int, make: Callable[[bytes], bytes], size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        data = file.read(size)
        file.seek(at)
        file.write(make(data))


def flip(path: Path, at: int, chance: random.Random) -> str:
    bit = 1 << chance.randrange(8)
    change(path, at, lambda data: bytes([data[0] ^ bit]), 1)
    return f"bit {bit:#x} at {at} of {path.name}"


# -- the log


def log_files(store: Path) -> list[Path]:
    """Return the files of the log that have bytes."""
    paths = sorted((store / "commitlog").iterdir())
    return [path for path in paths if any(path.read_bytes())]


def records_of(path: Path) -> list[WalkedRecord]:
    size = path.stat().st_size
    file = MappedFile(str(path), size, base_offset=int(path.name), writable=False)
    _, _, records = walk_log(file, 0, size, check_crc=False)
    file.close()
    return records


def flip_in_record(
    choose: Callable[[list[Path]], Path], places: Iterable[int]
) -> Callable[[Path, random.Random], str]:
    """Return a function that flips a bit at one of these places of a record."""

    def make(store: Path, chance: random.Random) -> str:
        path = choose(log_files(store))
        record = chance.choice(records_of(path))
        at = record.physical_offset - int(path.name) + chance.choice([*places])
        return flip(path, at, chance)

    return make


def zero_page(store: Path, chance: random.Random) -> str:
    """Fill a page of the last log file with zeros."""
    path = log_files(store)[-1]
    used = len(path.read_bytes().rstrip(b"\0"))
    at = chance.randrange(max(1, used // 4096)) * 4096
    change(path, at, lambda data: bytes(len(data)), 4096)
    return f"zeros at {at} of {path.name}"


def unlink_file(
    choose: Callable[[list[Path]], Path],
) -> Callable[[Path, random.Random], str]:
    """Return a function that removes a file of the log."""

    def make(store: Path, _chance: random.Random) -> str:
        paths = log_files(store)
        path = choose(paths)
        path.unlink()
        return f"{path.name} of {len(paths)} files is gone"

    return make


def shorten(store: Path, chance: random.Random) -> str:
    """End the last file early, as a file system does that lost its length."""
    path = log_files(store)[-1]
    size = chance.randrange(1, path.stat().st_size)
    os.truncate(path, size)
    return f"{path.name} has {size} bytes"


def first(paths: list[Path]) -> Path:
    return paths[0]


def middle(paths: list[Path]) -> Path:
    return paths[len(paths) // 2]


def last(paths: list[Path]) -> Path:
    return paths[-1]


# -- queues


def flip_in_entry(
    topic: str, places: range, *, is_last: bool
) -> Callable[[Path, random.Random], str]:
    """Return a function that flips a bit of an entry of one queue."""

    def make(store: Path, chance: random.Random) -> str:
        queue = chance.choice(sorted((store / "consumequeue" / topic).iterdir()))
        path = max(queue.iterdir())
        count = -(-len(path.read_bytes().rstrip(b"\0")) // ENTRY_SIZE)
        number = count - 1 if is_last else chance.randrange(count)
        at = number * ENTRY_SIZE + chance.choice(places)
        return f"queue {queue.name}: {flip(path, at, chance)} of {count} entries"

    return make


# -- tables


def tear(*endings: str, is_empty: bool = False) -> Callable[..., str]:
    """Return a function that cuts versions of the consumer offsets."""

    def make(store: Path, chance: random.Random) -> str:
        sizes = []
        for ending in endings:
            path = store / "config" / f"{OFFSETS}{ending}"
            size = 0 if is_empty else chance.randrange(1, path.stat().st_size)
            os.truncate(path, size)
            sizes.append(f"{path.name} has {size} bytes")
        return ", ".join(sizes)

    return make


# -- the state of a controller; `older` has copies of an earlier time


def replace_state(*names: str) -> Callable[..., str]:
    """Return a function that replaces files of the state by older copies."""

    def make(folder: Path, _chance: random.Random) -> str:
        for name in names:
            (folder / name).write_bytes((folder / "older" / name).read_bytes())
        return f"{' and '.join(names)}: an older copy"

    return make


def unlink_state(*names: str) -> Callable[..., str]:
    def make(folder: Path, _chance: random.Random) -> str:
        for name in names:
            (folder / name).unlink()
        return f"{' and '.join(names)}: removed"

    return make


def shorten_state(folder: Path, chance: random.Random) -> str:
    path = folder / STATE[0]
    os.truncate(path, chance.randrange(path.stat().st_size))
    return f"{path.name} has {path.stat().st_size} bytes"


def flip_in_set(folder: Path, chance: random.Random) -> str:
    """Flip a bit of an id in the sync state set."""
    path = folder / STATE[0]
    name = b'"sync_set":'
    data = path.read_bytes()
    begin = data.index(b"[", data.index(name))
    ids = [
        at
        for at in range(begin, data.index(b"]", begin))
        if data[at : at + 1].isdigit()
    ]
    return flip(path, chance.choice(ids), chance)


HEALED = "Healed with", "this log is truncated there", "have the bytes of"
"""What a broker logs that has ended its damage."""

AGAIN = ("was wrong and was made again", "one of them is damaged")
DOUBT = ("doubtful",)
OLDER = ("used the backup",)

DAMAGES: dict[str, Damage] = {
    "bit": Damage(flip_in_record(last, FIELDS), HEALED),
    "field": Damage(flip_in_record(first, UNCHECKED), HEALED),
    "old": Damage(flip_in_record(first, FIELDS), HEALED),
    "zeros": Damage(zero_page, HEALED),
    "first": Damage(unlink_file(first), HEALED),
    "middle": Damage(unlink_file(middle), HEALED),
    "last": Damage(unlink_file(last), HEALED),
    "short": Damage(shorten, HEALED),
    "own-offset": Damage(flip_in_record(first, OWN_OFFSET), ("/commitlog/",)),
    "entry": Damage(flip_in_entry(TOPIC, ENTRY_PLACE, is_last=True), AGAIN),
    "tags": Damage(flip_in_entry(TAGGED, ENTRY_TAGS, is_last=False), AGAIN),
    "table": Damage(tear(""), OLDER),
    "tables": Damage(tear("", ".bak"), OLDER),
    "table-empty": Damage(tear("", is_empty=True), OLDER),
    "tables-empty": Damage(tear("", ".bak", is_empty=True), OLDER),
    "copy-old": Damage(replace_state(STATE[0]), DOUBT),
    "copies-old": Damage(replace_state(*STATE), DOUBT),
    "copy-gone": Damage(unlink_state(STATE[0]), DOUBT),
    "copies-gone": Damage(unlink_state(*STATE), DOUBT),
    "copy-short": Damage(shorten_state, DOUBT),
    "copy-bit": Damage(flip_in_set, DOUBT),
}
TABLES = "table", "tables", "table-empty", "tables-empty"
