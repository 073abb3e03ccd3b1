from collections.abc import Callable
from typing import Any, Self, final

from rmq._fastpath.http2.call_paths import CallPath
from rmq._fastpath.http2.message_encoder import MessageEncoder
from rmq._fastpath.http2.renewal_table import RenewalTable

MAX_WAITING: int

@final
class WaitingCount:
    count: int

@final
class ReceiveView:
    received: int
    def __new__(
        cls,
        token: int,
        client_id: str,
        group: str,
        topic: str,
        tags: str,
        *,
        half_ms: int,
        is_padded: bool,
        owner: object,
        waiting: WaitingCount,
        on_return: Callable[[Any, bytes, int, int, int, bool], None],
    ) -> Self: ...

@final
class ReceiveCalls(CallPath):
    def __init__(
        self, code: int, encoder: MessageEncoder, renewals: RenewalTable
    ) -> None: ...
    def __len__(self) -> int: ...
    def add(self, view: ReceiveView) -> bool: ...
    def remove(self, view: ReceiveView) -> None: ...
    def stop(self, answer: bytes) -> None: ...
