from collections.abc import Callable, Iterable
from typing import final

from rmq._fastpath.http2.call_paths import CallPath

@final
class SendCalls(CallPath):
    def __init__(
        self,
        code: int,
        *,
        now_ms: Callable[[], int],
        largest_body: int,
        reserved_names: Iterable[str],
    ) -> None: ...
    def register(self, topic: str, queue_count: int, kinds: Iterable[int]) -> None: ...
    def take_turn(self) -> int: ...
    def unregister(self, topic: str) -> None: ...
