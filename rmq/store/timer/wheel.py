"""TimerWheel: which slots have units, and the file `timerwheel` for a Java broker.

A slot holds the units of one time; its number is the time divided by the precision.
The wheel is made from the timer log at each start, so that it is never stale.  A clean
shutdown writes the file for a Java broker, and a start removes it.

File: 1,209,600 slots of 32 bytes, big-endian; slot n is at place n modulo 1,209,600:

    0   i64  number of the slot; another one means that the slot is empty
    8   i64  position of its first unit in the timer log
    16  i64  position of its last unit
    24 i32 units, less twice the units that recall another message 28 i32 0
"""

import heapq
import os
import struct
from pathlib import Path
from typing import Final

import msgspec

from rmq.store.timer.log import NO_UNIT

SLOTS: Final = 2 * 7 * 86_400
FILE_SIZE: Final = SLOTS * 32

_SLOT: Final = struct.Struct(">qqqii")
assert _SLOT.size * SLOTS == FILE_SIZE, "a slot has 32 bytes"


class Slot(msgspec.Struct, gc=False):
    """The units of one time; `count` as in the file."""

    first: int
    last: int
    count: int
    recalls: int = 0
    """Number of units that recall another message; not in the file."""


class TimerWheel:
    """Slots in memory: about 150 bytes each, at most one for each second to come."""

    def __init__(self) -> None:
        self.slots: dict[int, Slot] = {}
        """The slots by number; `add_units` adds to them as well."""

        self._numbers: list[int] = []

    def __len__(self) -> int:
        """Return the number of slots with units."""
        return len(self.slots)

    def __contains__(self, number: int) -> bool:
        """Return whether the slot has units."""
        return number in self.slots

    def last_of(self, number: int) -> int:
        """Return the position of a slot's last unit, NO_UNIT without one."""
        slot = self.slots.get(number)
        return NO_UNIT if slot is None else slot.last

    def count_of(self, number: int) -> int:
        """Return the number of waiting messages of a slot."""
        slot = self.slots.get(number)
        return 0 if slot is None else slot.count

    def has_recalls(self, number: int) -> bool:
        """Return whether a unit of a slot recalls another."""
        slot = self.slots.get(number)
        return slot is not None and slot.recalls > 0

    def add(self, number: int, position: int, *, recalls: bool) -> None:
        """Add the unit at a position to its slot."""
        change = -1 if recalls else 1
        slot = self.slots.get(number)
        if slot is None:
            self.slots[number] = Slot(position, position, change, int(recalls))
            heapq.heappush(self._numbers, number)
            return
        assert position > slot.last, f"{position} is not after {slot.last}"
        slot.last = position
        slot.count += change
        slot.recalls += recalls

    def first_slot(self) -> int | None:
        """Return the number of the earliest slot with units."""
        return self._numbers[0] if self._numbers else None

    def slot_numbers(self) -> list[int]:
        """Return the numbers of all slots with units, in no order."""
        return list(self._numbers)

    def remove_first(self) -> None:
        """Remove the earliest slot: its messages are delivered."""
        del self.slots[heapq.heappop(self._numbers)]

    def oldest_position(self) -> int | None:
        """Return the position of the oldest unit that is still in a slot."""
        return min((slot.first for slot in self.slots.values()), default=None)

    def counts_between(self, bounds: list[int]) -> list[int]:
        """Return the number of waiting messages between each bound and the bound before
        it.
        """
        counts = [0] * len(bounds)
        for number, slot in self.slots.items():
            for place, bound in enumerate(bounds):
                if number <= bound:
                    counts[place] += slot.count
                    break
        return counts

    def save(self, path: Path) -> None:
        """Write the file, with holes for empty slots; it is durable at the return."""
        draft = path.with_name(path.name + ".tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o644)
        try:
            os.ftruncate(descriptor, FILE_SIZE)
            for number, slot in self.slots.items():
                data = _SLOT.pack(number, slot.first, slot.last, slot.count, 0)
                os.pwrite(descriptor, data, number % SLOTS * _SLOT.size)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        draft.replace(path)
