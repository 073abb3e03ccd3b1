"""QueueOrder: the last POP of a queue that a group consumes in order.

The queue gives no more messages while some of that POP are neither acked nor visible
again.  Known in Java as `OrderInfo`.
"""

from typing import Final, Self

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.headers import I32, I64

NOT_POPPED: Final = -1
ANOTHER_POP: Final = -2


class QueueOrder(Body, kw_only=True):
    """Offsets, acks and times, with Java's names in `consumerOrderInfo.json`."""

    attempt_id: str | None = field(default=None, name="a")
    acked: I64 = field(default=0, name="cm")
    invisible_ms: I64 | None = field(default=None, name="i")
    last_ms: I64 = field(default=0, name="l")
    diffs: list[I64] = field(default_factory=list, name="o")
    counts: dict[I64, I32] = field(default_factory=dict, name="oc")
    visible_ms: dict[I64, I64] = field(default_factory=dict, name="ot")
    pop_ms: I64 = field(default=0, name="popTime")

    def offsets(self) -> list[int]:
        """Return the popped offsets."""
        first = self.diffs[0] if self.diffs else 0
        return [first + diff if i else diff for i, diff in enumerate(self.diffs)]

    def next_offset(self) -> int:
        """Return the first offset that is not acked, or the one after the last."""
        offsets = self.offsets()
        for place, offset in enumerate(offsets):
            if not self.acked >> place & 1:
                return offset
        return offsets[-1] + 1 if offsets else NOT_POPPED

    def blocked_until_ms(self, asking_invisible_ms: int) -> int:
        """Return when the next POP may have messages; 0 if nothing blocks."""
        latest = 0
        for place, offset in enumerate(self.offsets()):
            if not self.acked >> place & 1:
                invisible_ms = self.invisible_ms
                if invisible_ms is None:
                    invisible_ms = asking_invisible_ms
                until = self.visible_ms.get(offset, self.pop_ms + invisible_ms)
                latest = max(latest, until)
        return latest

    @classmethod
    def from_pop(
        cls,
        offsets: list[int],
        before: "QueueOrder | None",
        *,
        attempt_id: str | None,
        invisible_ms: int,
        last_ms: int,
        pop_ms: int,
    ) -> Self:
        """Note a POP after the one before, with how often each offset was popped."""
        counts: dict[int, int] = {}
        if before is not None:
            is_same = attempt_id is not None and before.attempt_id == attempt_id
            known = set(before.offsets())
            counts = {
                offset: before.counts.get(offset, 0) + (not is_same)
                for offset in offsets
                if offset in known
            }
        first = offsets[0]
        return cls(
            attempt_id=attempt_id,
            invisible_ms=invisible_ms,
            last_ms=last_ms,
            diffs=[first, *(offset - first for offset in offsets[1:])],
            counts={offset: count for offset, count in counts.items() if count},
            pop_ms=pop_ms,
        )

    def ack(self, offset: int, pop_ms: int) -> int:
        """Note an ack; return the group's next offset, or why there is none."""
        if not self.diffs:
            return NOT_POPPED
        if self.pop_ms != pop_ms:
            return ANOTHER_POP
        offsets = self.offsets()
        if offset not in offsets:
            return NOT_POPPED
        self.acked |= 1 << offsets.index(offset)
        return self.next_offset()

    def extend(self, offset: int, pop_ms: int, until_ms: int) -> bool:
        """Hide a message of this POP until a time; False if it is none."""
        if self.pop_ms != pop_ms or offset not in self.offsets():
            return False
        self.visible_ms[offset] = until_ms
        return True

    def suspend(self, pop_ms: int, until_ms: int) -> bool:
        """Hide all of this POP until a time, without a count; False if it is another.

        A consumer gives them back, and did not fail.
        """
        if self.pop_ms != pop_ms:
            return False
        self.counts = {offset: max(0, n - 1) for offset, n in self.counts.items()}
        self.visible_ms.clear()
        self.invisible_ms = until_ms - pop_ms
        return True
