from collections.abc import Callable
from typing import NamedTuple, Self, final

class ReturnedPull(NamedTuple):
    token: int
    frame: bytes
    left_ms: int
    tested_offset: int

class HeldPullCounts(NamedTuple):
    waiting: int
    held: int
    refused: int
    woken: int
    expired: int
    dropped: int
    returned: int

__pyx_capi__: dict[str, object]

@final
class HeldPulls:
    others: int
    waiting: int
    calls: int
    held: int
    refused: int
    woken: int
    expired: int
    dropped: int
    returned: int
    wants_turn: bool
    def __new__(cls, on_work: Callable[[], object]) -> Self: ...
    def set_limits(
        self,
        *,
        total: int,
        per_connection: int,
        per_view: int,
        suspend_ms: int,
        short_poll_ms: int = 0,
    ) -> None: ...
    def drop_connection(self, token: int) -> None: ...
    def next_deadline(self, now_ms: int) -> int: ...
    def end_all(self) -> None: ...
    def take_returned(self) -> list[ReturnedPull]: ...
    def counts(self) -> HeldPullCounts: ...
