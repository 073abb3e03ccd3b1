from collections.abc import Callable
from typing import Any, Self, final

from rmq._fastpath.reactor.native import NativeHandler

REASONS: tuple[str, ...]

@final
class Heartbeat:
    """The registered heartbeat of a connection."""

    def __new__(cls, key: bytes, body: bytes, value: object) -> Self: ...

@final
class HeartbeatPath(NativeHandler):
    """Serves request 34 HEART_BEAT."""

    def __init__(
        self,
        on_beats: Callable[[list[Any]], object],
        fields: dict[str, str],
        version: int,
    ) -> None:
        """`on_beats` gets the list of the values registered with the poll's heartbeats.

        `fields` are the ext fields of every answer.
        """

    def __len__(self) -> int: ...
    def register(
        self, token: int, body: bytes, value: object, *, version: int, language: int
    ) -> None:
        """Serve this heartbeat of a connection, and no other one of it.

        `value` is for `on_beats`. Version and language are from the header.

        Above 65,536 heartbeats, or 32 MiB, it evicts others. It ignores one of more
        than 16 KiB.
        """

    def unregister(self, token: int) -> None:
        """Leave the next heartbeat of a connection to Python."""

    def unregister_all(self) -> None:
        """Leave all heartbeats to Python until they are registered again."""
