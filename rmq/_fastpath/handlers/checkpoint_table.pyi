from collections.abc import Callable
from typing import Self, final

from rmq._fastpath.log.queue_tail import TailSet

@final
class PopQueue:
    topic: str
    group: str
    queue_id: int
    next_offset: int
    count: int
    is_gone: bool
    def __new__(
        cls,
        topic: str,
        group: str,
        queue_id: int,
        next_offset: int,
        *,
        is_gone: bool = False,
    ) -> Self: ...
    first_open: int
    def drop_ended(self, stable_end: int) -> bool: ...
    def count_open(self) -> int: ...

@final
class Checkpoint:
    queue: PopQueue
    start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    retries: int
    log_end: int
    stored_end: int
    suspend: bool
    is_adopted: bool
    is_written: bool
    is_done: bool
    open: int
    acked: list[int] | None
    count: int
    def __init__(
        self,
        queue: PopQueue,
        start: int,
        pop_ms: int,
        invisible_ms: int,
        revive_queue: int,
        offsets: tuple[int, ...],
        log_end: int,
        *,
        bits: int | None = None,
        suspend: bool = False,
        retries: int = 0,
        is_written: bool = False,
        is_adopted: bool = False,
    ) -> None: ...
    offsets: tuple[int, ...]
    due_ms: int
    is_acked: bool
    def open_offsets(self) -> list[int]: ...
    def clear(self, offset: int) -> bool: ...

@final
class CheckpointTable:
    limit: int
    queue_limit: int
    stay_ms: int
    stable_end: int
    is_buffered: bool
    wake_ms: int
    queues: dict[tuple[str, str, int], PopQueue]
    count: int
    def __new__(
        cls,
        tails: TailSet,
        *,
        on_acks: Callable[[list[tuple[Checkpoint, int]]], object],
        on_touched: Callable[[list[PopQueue]], object],
        on_wake: Callable[[int], object],
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        batch_limit: int = 2_048,
    ) -> Self: ...
    is_over_limit: bool
    def find(
        self, topic: str, group: str, queue_id: int, start: int, pop_ms: int
    ) -> Checkpoint | None: ...
    def all(self) -> list[Checkpoint]: ...
    def add(self, checkpoint: Checkpoint) -> None: ...
    def add_young(self, checkpoint: Checkpoint) -> None: ...
    def hold_offset(self, checkpoint: Checkpoint) -> None: ...
    def end(self, checkpoint: Checkpoint) -> None: ...
    def delay_due(self, at_ms: int, checkpoint: Checkpoint) -> None: ...
    def take_due(self, now_ms: int) -> Checkpoint | None: ...
    def take_young(self, now_ms: int) -> Checkpoint | None: ...
    def next_due_ms(self) -> int | None: ...
    def next_young_ms(self) -> int | None: ...
    def unregister_all(self) -> None: ...
