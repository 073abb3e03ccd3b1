from collections.abc import Callable
from typing import Any, Self, final

from rmq._fastpath.reactor.native import NativeHandler

REASONS: tuple[str, ...]

@final
class Heartbeat:
    def __new__(cls, key: bytes, body: bytes, value: object) -> Self: ...

@final
class HeartbeatPath(NativeHandler):
    def __init__(
        self,
        on_beats: Callable[[list[Any]], object],
        fields: dict[str, str],
        version: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    def register(
        self, token: int, body: bytes, value: object, *, version: int, language: int
    ) -> None: ...
    def unregister(self, token: int) -> None: ...
    def unregister_all(self) -> None: ...
