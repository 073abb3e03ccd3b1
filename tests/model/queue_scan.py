"""A pull over queue entries, one entry after the other."""

from collections.abc import Sequence
from typing import NamedTuple

FILLER_SIZE = 0x7FFFFFFF


class Entry(NamedTuple):
    """One queue entry."""

    offset: int
    size: int
    tags_code: int

    def encode(self) -> bytes:
        return (
            self.offset.to_bytes(8, "big", signed=True)
            + self.size.to_bytes(4, "big")
            + self.tags_code.to_bytes(8, "big", signed=True)
        )


class ModelScan(NamedTuple):
    """What a scan must find."""

    taken: list[Entry]
    examined: int
    removed: int
    stop: str

    @property
    def runs(self) -> list[tuple[int, int]]:
        runs: list[tuple[int, int]] = []
        for entry in self.taken:
            if runs and sum(runs[-1]) == entry.offset:
                runs[-1] = (runs[-1][0], runs[-1][1] + entry.size)
            else:
                runs.append((entry.offset, entry.size))
        return runs


def scan(
    entries: Sequence[Entry],
    *,
    tag_codes: tuple[int, ...] | None,
    max_messages: int,
    max_bytes: int,
    max_examined: int,
    confirm_offset: int,
    min_physical_offset: int,
) -> ModelScan:
    taken: list[Entry] = []
    examined = removed = 0
    for entry in entries:
        if examined >= max_examined:
            return ModelScan(taken, examined, removed, "SCAN_LIMIT")
        if entry.size == 0:
            break
        if entry.size == FILLER_SIZE or entry.offset < min_physical_offset:
            removed += 1
        elif entry.offset + entry.size > confirm_offset:
            break
        else:
            total = sum(e.size for e in taken) + entry.size
            if taken and (len(taken) >= max_messages or total > max_bytes):
                return ModelScan(taken, examined, removed, "SCAN_FULL")
            if tag_codes is None or entry.tags_code in tag_codes:
                taken.append(entry)
        examined += 1
    return ModelScan(taken, examined, removed, "SCAN_END")
