from collections.abc import Callable
from typing import final

from rmq._fastpath.handlers.diversion import Diversion
from rmq._fastpath.log.queue_tail import QueueTail

@final
class TimedSends(Diversion):
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
    ) -> None: ...
    def register(self, queue: QueueTail) -> None: ...
