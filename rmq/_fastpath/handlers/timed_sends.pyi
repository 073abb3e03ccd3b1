from collections.abc import Callable
from typing import final

from rmq._fastpath.log.queue_tail import QueueTail

ADDRESS_NAMES: tuple[str, ...]

@final
class TimedSends:
    """The compiled form of the timer's interceptor."""

    max_delay_ms: int
    most_in_slot: int
    queue: QueueTail | None
    def __init__(
        self,
        *,
        count_of: Callable[[int], int],
        broker_name: bytes,
        precision_ms: int,
        max_delay_ms: int,
        most_in_slot: int,
    ) -> None:
        """`count_of(slot)` returns how many messages wait there.

        The two limits may change at any time.
        """

    def register(self, queue: QueueTail) -> None:
        """Register the timer's queue, and serve from now on."""
