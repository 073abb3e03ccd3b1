"""TimerView: reads the files of the timer.

Formats: `rmq/store/timer/log.py`, `wheel.py`, `checkpoint.py`. A unit
waits if its slot is not before the checkpoint's `read_ms`. Other units are history;
Java leaves such units also at places where a shorter log now has other records.
"""

from pathlib import Path

import numpy as np

from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import walk_log
from rmq.protocol.topics import TIMER_TOPIC
from rmq.store.timer.checkpoint import TimerCheckpoint
from rmq.store.timer.log import (
    FILLER_SIZE,
    NO_UNIT,
    RECALLS,
    UNIT_SIZE,
    TimerUnit,
    whole_units,
)
from rmq.tools.store_files import StoreFiles, segment_paths
from rmq.tools.survey import Damage

_SLOT = np.dtype(
    [("number", ">i8"), ("first", ">i8"), ("last", ">i8"), ("rest", ">i8")]
)


class TimerView:
    """The units of a store by their position, and the slots of its wheel."""

    def __init__(self, store: StoreFiles) -> None:
        self._wheel = store.root / "timerwheel"
        is_stopped = not (store.abort.exists() or store.is_in_use)
        self._has_wheel = is_stopped and self._wheel.exists()
        self.paths = segment_paths(store.root / "timerlog")
        self.units: dict[int, TimerUnit] = {}
        for path in self.paths:
            data = path.read_bytes()
            count = max(0, len(data) - FILLER_SIZE) // UNIT_SIZE
            units = list(whole_units(data[: count * UNIT_SIZE]))
            for place, unit in enumerate(units):
                self.units[int(path.name) + place * UNIT_SIZE] = unit
            if len(units) < count:
                break
        checkpoint = TimerCheckpoint.load(store.config / "timercheck")
        self.read_ms = 0 if checkpoint is None else checkpoint.read_ms

    def waiting_units(self) -> dict[int, TimerUnit]:
        """Return the units whose time has not come, without units that recall a
        message.
        """
        return {
            position: unit
            for position, unit in self.units.items()
            if unit.slot_ms >= self.read_ms and not unit.bits & RECALLS
        }

    def next_due_ms(self) -> int | None:
        """Return the earliest time of a waiting unit."""
        return min(
            (unit.slot_ms for unit in self.waiting_units().values()), default=None
        )

    def find_damages(self, files: list[MappedFile], end: int | None) -> list[Damage]:
        """Return the problems of waiting units; `end` is the end of a log in use."""
        found = []
        for position, unit in self.waiting_units().items():
            reason = self._why_unlinked(position, unit) or _record(unit, files, end)
            if reason:
                found.append(Damage(str(self._path_of(position)), position, reason))
        return found + self._wheel_damages()

    def _path_of(self, position: int) -> Path:
        return max(path for path in self.paths if int(path.name) <= position)

    def _why_unlinked(self, position: int, unit: TimerUnit) -> str:
        """Return why a unit does not follow the previous unit of its slot."""
        if unit.previous == NO_UNIT or unit.previous < int(self.paths[0].name):
            return ""
        before = self.units.get(unit.previous)
        if before is None or unit.previous >= position:
            return (
                f"it names a previous unit at {unit.previous}, where there is no unit"
            )
        if before.slot_ms != unit.slot_ms:
            return f"the unit before it, at {unit.previous}, has another time"
        return ""

    def _wheel_damages(self) -> list[Damage]:
        """Return future times whose newest unit no slot of the wheel names.

        The counts of a wheel are valid only after a clean shutdown.
        """
        if not self._has_wheel:
            return []
        newest: dict[int, int] = {}
        for position, unit in self.units.items():
            if unit.slot_ms >= self.read_ms:
                newest[unit.slot_ms] = position
        known = set(np.fromfile(self._wheel, _SLOT)["last"].tolist())
        return [
            Damage(
                str(self._wheel),
                0,
                f"no slot names the unit at {position}, the newest unit of {slot_ms}",
            )
            for slot_ms, position in newest.items()
            if position not in known
        ]


def _record(unit: TimerUnit, files: list[MappedFile], end: int | None) -> str:
    """Return the reason why the log does not have this message of the timer."""
    if end is not None and unit.offset + unit.size > end:
        return ""
    for file in files:
        position = unit.offset - file.base_offset
        if 0 <= position < file.size:
            _, _, records = walk_log(
                file, position, file.size, check_crc=False, limit=1
            )
            if records and (records[0].size, records[0].topic) == (
                unit.size,
                TIMER_TOPIC.encode(),
            ):
                return ""
    return f"no message of {unit.size} bytes waits at {unit.offset} of the log"
