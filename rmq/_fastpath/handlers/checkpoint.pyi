from typing import Self, final

__pyx_capi__: dict[str, object]

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
