from collections.abc import Callable, Collection, Coroutine, Generator
from datetime import datetime
from enum import IntEnum
from typing import Any, Protocol, final, type_check_only

from rmq._fastpath.client.packing import PackedMessage

class SendStatus(IntEnum):
    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12

class _Queue(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def broker(self) -> str: ...
    @property
    def queue_id(self) -> int: ...

@final
class SendResult:
    msg_id: str
    offset_msg_id: str
    queue: _Queue
    queue_offset: int
    transaction_id: str | None
    recall_handle: str | None

    def __init__(
        self,
        code: int,
        msg_id: str,
        offset_msg_id: str,
        queue: object,
        queue_offset: int,
        transaction_id: str | None = None,
        recall_handle: str | None = None,
    ) -> None: ...
    status: SendStatus

class _Waiter(Protocol):
    def done(self) -> bool: ...
    def set_result(self, value: None, /) -> None: ...
    def __await__(self) -> Generator[Any, Any]: ...

@final
class Delivery:
    packed: PackedMessage

    def __init__(
        self,
        packed: PackedMessage,
        on_end: Callable[[Delivery], object] | None,
        new_waiter: Callable[[], _Waiter],
    ) -> None: ...
    def done(self) -> bool: ...
    def result(self) -> SendResult: ...
    def exception(self) -> BaseException | None: ...
    def add_done_callback(self, function: Callable[[Delivery], object]) -> None: ...
    def set_result(self, result: SendResult) -> None: ...
    def set_exception(self, error: BaseException) -> None: ...
    def __await__(self) -> Generator[Any, Any, SendResult]: ...

def end_all(
    deliveries: list[Delivery], results: list[SendResult]
) -> tuple[int, int]: ...

@type_check_only
class Lease(Protocol):
    @property
    def is_revoked(self) -> bool: ...
    def ack(self, message: ReceivedMessage) -> bool: ...
    def nack(
        self, message: ReceivedMessage, delay_s: float | None, *, dead_letter: bool
    ) -> Coroutine[Any, Any, None]: ...

@final
class AckResult:
    def __init__(self, is_acked: bool) -> None: ...
    def __bool__(self) -> bool: ...
    def __await__(self) -> Generator[Any, Any, bool]: ...

@final
class ReceivedMessage:
    topic: str
    body: bytes
    queue: _Queue
    queue_offset: int
    physical_offset: int
    born_ms: int
    stored_ms: int
    size: int
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_offset: int
    tags: str
    lease: Lease
    local_attempts: int
    properties: dict[str, str]
    keys: tuple[str, ...]
    msg_id: str
    offset_msg_id: str
    attempt: int
    born_at: datetime
    stored_at: datetime
    born_host: str
    def ack(self) -> AckResult: ...
    def nack(
        self, delay_s: float | None = None, *, dead_letter: bool = False
    ) -> Coroutine[Any, Any, None]: ...

def decode_messages(
    data: bytes,
    topic: str,
    queue: object,
    lease: object = None,
    *,
    tags: Collection[str] | None = None,
    inflate: Callable[[bytes, int], bytes] | None = None,
    origin_of: Callable[[str], str] | None = None,
    queue_of: Callable[[int], object] | None = None,
    on_damage: Callable[[str, int], object] | None = None,
) -> list[ReceivedMessage]: ...
