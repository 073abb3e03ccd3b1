from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias, final

from rmq._fastpath.http2.call_paths import CallPath
from rmq._fastpath.http2.frames import Http2
from rmq._fastpath.reactor.held_replies import HeldReplies
from rmq._fastpath.reactor.native_table import NativeTable

class GrpcEvent(IntEnum):
    CALL = 0
    MESSAGE = 1
    HALF_CLOSED = 2
    ENDED = 3
    ROOM = 4
    RETURNED_CALL = 5

_Returned: TypeAlias = tuple[Callable[..., None], tuple[object, ...]]
_Event: TypeAlias = tuple[int, int, int, int, bytes | _Returned, bytes]

@final
class GrpcWire(Http2):
    calls: int
    skipped: int
    statuses: int
    has_events: bool
    def register(
        self, method: int, path: CallPath, natives: NativeTable, held: HeldReplies
    ) -> None: ...
    def take_event(self) -> _Event | None: ...
    def reply(
        self, token: int, stream_id: int, message: bytes, is_last: bool
    ) -> bool: ...
    def reply_all(self, token: int, stream_id: int, messages: list[bytes]) -> bool: ...
    def ask_handler(
        self, token: int, user: str, code: int, fields: dict[str, str]
    ) -> bytes | None: ...
    def end(self, token: int, stream_id: int, status: int, text: bytes) -> bool: ...
    def flush(self) -> bool: ...
    def late_size(self, token: int, stream_id: int) -> int: ...
    def want_room(self, token: int, stream_id: int) -> bool: ...
    def go_away(self, token: int, is_final: bool) -> bool: ...
    def stream_count(self, token: int) -> int: ...
