"""QueueOrder: the last POP of a queue that a group consumes in order.

The POP blocks the queue until each of its messages is acked or visible again.
Known in Java as `OrderInfo`. `pop/orders.py` has the orders of all queues, Java's
`ConsumerOrderInfoManager`.
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
        """Return the first offset that is not acked, or the offset after the last."""
        offsets = self.offsets()
        for place, offset in enumerate(offsets):
            if not self.acked >> place & 1:
                return offset
        return offsets[-1] + 1 if offsets else NOT_POPPED

    def blocked_until_ms(self, default_invisible_ms: int) -> int:
        """Return the time until which the queue is blocked; 0 if all messages are
        acked.
        """
        latest = 0
        for place, offset in enumerate(self.offsets()):
            if not self.acked >> place & 1:
                invisible_ms = self.invisible_ms
                if invisible_ms is None:
                    invisible_ms = default_invisible_ms
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
        """Return the order of a POP, with the earlier POPs of each offset counted."""
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
        """Record an ack; return the group's next offset, NOT_POPPED or ANOTHER_POP."""
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
        """Hide a message until a time; False if this POP does not have it."""
        if self.pop_ms != pop_ms or offset not in self.offsets():
            return False
        self.visible_ms[offset] = until_ms
        return True

    def shift_times(self, step_ms: int) -> None:
        """Move the times by the step of a clock that was set, so that messages are
        hidden as long as before.

        The time of the POP stays: the handles of clients have it.
        """
        self.visible_ms = {
            offset: until_ms + step_ms for offset, until_ms in self.visible_ms.items()
        }
        if self.invisible_ms is not None:
            self.invisible_ms += step_ms
        self.last_ms += step_ms

    def suspend(self, pop_ms: int, until_ms: int) -> bool:
        """Hide all messages of this POP until a time; False for another POP.

        The POP does not count as an attempt: the consumer gave the messages back and
        did not fail.
        """
        if self.pop_ms != pop_ms:
            return False
        self.counts = {offset: max(0, n - 1) for offset, n in self.counts.items()}
        self.visible_ms.clear()
        self.invisible_ms = until_ms - pop_ms
        return True
