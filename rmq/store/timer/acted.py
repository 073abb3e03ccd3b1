"""ActedRecords: the timed messages that acting masters have delivered.

A slave acts while its master is away. Later the master copies the progress of the
slave. The progress covers no units that roll, and no records of topics that wait for
the master.
"""

from array import array
from collections.abc import Iterable

from rmq._fastpath.bytes.hashing import java_hash
from rmq.core.offsets import PhysicalOffset
from rmq.store.timer.checkpoint import ClockReturn, add_return
from rmq.store.timer.log import ROLLS, TimerLog, TimerUnit


class ActedRecords:
    """The progress of acting masters: on a slave, its own."""

    def __init__(self) -> None:
        self.parts: tuple[ClockReturn, ...] = ()
        self._left_topics: set[int] = set()

    def leave_topic(self, topic: str) -> None:
        """Let the records of a topic wait for the master."""
        self._left_topics.add(java_hash(topic))

    def add(self, parts: Iterable[ClockReturn]) -> None:
        """Add the progress of an acting master."""
        for each in parts:
            self.parts = add_return(self.parts, each)

    def has_record(self, offset: PhysicalOffset, slot_ms: int, topic_hash: int) -> bool:
        """Whether a record of the timer's queue is delivered."""
        return topic_hash not in self._left_topics and any(
            each.is_delivered(offset, slot_ms) for each in self.parts
        )

    def has_unit(self, unit: TimerUnit) -> bool:
        """Whether the record of a unit is delivered."""
        return not unit.bits & ROLLS and self.has_record(
            PhysicalOffset(unit.offset), unit.slot_ms, unit.topic_hash
        )

    def remove_from(
        self, positions: "array[int]", slot_ms: int, log: TimerLog
    ) -> "array[int]":
        """Return the positions of a slot's units that are not delivered."""
        if not any(slot_ms < each.read_ms for each in self.parts):
            return positions
        units = ((each, log.unit_at(each)) for each in positions)
        kept = (each for each, unit in units if unit and not self.has_unit(unit))
        return array("q", kept)
