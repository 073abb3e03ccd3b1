"""IndexCheck: compares one index file with its own chains and with the log.

Layout (big-endian):

    header, 40 bytes   begin and end store time, begin and end physical offset, used
                       slots, entry count starting at 1
    slots, 4 bytes     newest entry of a chain
    entries, 20 bytes  i32 key hash, i64 physical offset, i32 seconds since the begin
                       time, i32 the entry before it in the chain

The file does not contain the number of slots: the default is a quarter of the entries.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmq.tools.survey import Block, Column, Damage

HEADER = struct.Struct(">qqqqii")
ENTRY = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("age", ">i4"), ("prior", ">i4")])
SLOT_SIZE = 4


@dataclass(slots=True)
class IndexHeader:
    """The first 40 bytes."""

    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    count: int = 1


@dataclass(slots=True)
class IndexCheck:
    """One file; call `match` with each block of the log, then `finish`."""

    path: Path
    header: IndexHeader
    slots: NDArray[np.int32]
    entries: NDArray[np.void]
    problem: str = ""
    _offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _order: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _store_ms: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def entry_count(self) -> int:
        """Entries in use."""
        return len(self.entries)

    def prepare(self) -> None:
        """Sort the entries by physical offset."""
        offsets = self.entries["offset"].astype(np.int64)
        self._order = np.argsort(offsets, kind="stable")
        self._offsets = offsets[self._order]
        self._store_ms = np.full(len(offsets), -1, np.int64)

    def match(self, block: Block) -> None:
        """Collect the store times of the records of entries."""
        if not len(self._offsets):
            return
        starts = block[:, Column.OFFSET]
        low = np.searchsorted(self._offsets, starts[0])
        high = np.searchsorted(self._offsets, starts[-1], side="right")
        wanted = self._offsets[low:high]
        if not len(wanted):
            return
        rows = np.searchsorted(starts, wanted)
        found = starts[rows] == wanted
        places = np.arange(low, high)[found]
        assert len(places) <= len(wanted), self.path
        self._store_ms[places] = block[rows[found], Column.STORE_MS]

    def finish(
        self, start_offset: int, end_offset: int, *, is_live: bool
    ) -> list[Damage]:
        """Return the damages of the file."""
        assert start_offset <= end_offset, self.path
        if self.problem:
            return [Damage(str(self.path), 0, self.problem)]
        damages = self._broken_chains()
        offsets, times = self._offsets, self._store_ms
        age = np.clip((times - self.header.begin_ms) // 1000, 0, (1 << 31) - 1)
        if self.header.begin_ms <= 0:
            age[:] = 0
        wrong = (times < 0) | (age != self.entries["age"][self._order])
        wrong &= offsets >= start_offset
        if is_live:
            wrong &= offsets < end_offset
        for place in np.flatnonzero(wrong).tolist():
            number = int(self._order[place]) + 1
            reason = f"entry {number} points to {offsets[place]} of the log, where "
            reason += "there is no record of its time"
            damages.append(Damage(str(self.path), self._position(number), reason))
        return damages

    def _broken_chains(self) -> list[Damage]:
        """Find chains that leave their slot or do not go from new to old entries."""
        count = len(self.slots)
        hashes = self.entries["hash"].astype(np.int64)
        prior = self.entries["prior"].astype(np.int64)
        numbers = np.arange(1, len(hashes) + 1)
        wrong = (hashes < 0) | (prior < 0) | (prior >= numbers)
        linked = np.flatnonzero(~wrong & (prior > 0))
        same = hashes[linked] % count == hashes[prior[linked] - 1] % count
        wrong[linked[~same]] = True
        damages = [
            Damage(str(self.path), self._position(n + 1), f"entry {n + 1} has no chain")
            for n in np.flatnonzero(wrong).tolist()
        ]
        heads = self.slots.astype(np.int64)
        used = np.flatnonzero((heads > 0) & (heads <= len(hashes)))
        astray = used[hashes[heads[used] - 1] % count != used]
        bad = np.union1d(astray, np.flatnonzero((heads < 0) | (heads > len(hashes))))
        # a zeroed slot loses a chain: no query reaches its entries
        reached = np.zeros(len(hashes) + 1, np.bool_)
        reached[prior[(prior > 0) & (prior < numbers)]] = True
        reached[heads[used]] = True
        lost = np.flatnonzero(~reached[1:])
        damages += [
            Damage(str(self.path), HEADER.size + slot * SLOT_SIZE, "slot is wrong")
            for slot in bad.tolist()
        ]
        damages += [
            Damage(str(self.path), self._position(n + 1), f"no slot leads to {n + 1}")
            for n in lost.tolist()
        ]
        return damages

    def _position(self, number: int) -> int:
        return HEADER.size + len(self.slots) * SLOT_SIZE + number * ENTRY.itemsize


def view_index(path: Path, slot_count: int = 0) -> IndexCheck:
    """Read an index file; `problem` is the reason if it is not valid."""
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, "u1")
    none = IndexCheck(path, IndexHeader(), np.zeros(0, "i4"), np.zeros(0, ENTRY))
    if len(data) < HEADER.size + SLOT_SIZE + ENTRY.itemsize:
        none.problem = f"{len(data)} bytes are too few for an index file"
        return none
    header = IndexHeader(*HEADER.unpack(data[: HEADER.size].tobytes()))
    none.header = header
    slots = slot_count or (len(data) - HEADER.size) // (SLOT_SIZE + 4 * ENTRY.itemsize)
    rest = len(data) - HEADER.size - slots * SLOT_SIZE
    if rest % ENTRY.itemsize or not 0 <= header.count <= rest // ENTRY.itemsize:
        none.problem = (
            f"{header.count} entries and {slots} slots do not fit {len(data)} bytes; "
            "give maxHashSlotNum if it is not a quarter of maxIndexNum"
        )
        return none
    at = HEADER.size + slots * SLOT_SIZE
    check = IndexCheck(
        path,
        header,
        data[HEADER.size : at].view(">i4"),
        data[at:].view(ENTRY)[1 : max(1, header.count)],
    )
    check.prepare()
    return check
