from collections.abc import Callable
from typing import Any, Final, final

from rmq._fastpath.client.messages import SendResult
from rmq.protocol.command import Command

ANSWER_TO_COMMAND: Final[int]
ANSWER_TO_SEND: Final[int]
ANSWER_TO_PULL: Final[int]

@final
class SendTemplate:
    group: str
    topic: str
    queue_id: int
    queue: Any
    is_batch: bool
    flag: int

    def __init__(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue: object,
        *,
        is_batch: bool = False,
        flag: int = 0,
    ) -> None: ...

@final
class PullTemplate:
    group: str
    topic: str
    queue_id: int
    expression: str
    kind: str
    version: int

    def __init__(
        self,
        group: str,
        topic: str,
        queue_id: int,
        *,
        expression: str = "*",
        kind: str = "TAG",
        version: int = 0,
    ) -> None: ...

@final
class PullResult:
    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    remark: str | None
    body: bytes

@final
class ClientCodec:
    next_deadline_ms: int
    answers: int
    late_answers: int

    def __init__(
        self,
        decode: Callable[[bytes], Command],
        encode: Callable[[Command], bytes],
        *,
        max_frame_size: int = ...,
    ) -> None: ...
    def send(
        self,
        template: SendTemplate,
        properties: bytes,
        body: bytes,
        waiter: object,
        deadline_ms: int,
        msg_ids: str | list[str],
        *,
        born_ms: int,
        sys_flag: int = 0,
    ) -> int: ...
    def pull(
        self,
        template: PullTemplate,
        waiter: object,
        deadline_ms: int,
        *,
        offset: int,
        count: int,
        hold_ms: int,
        sys_flag: int,
    ) -> int: ...
    def request(
        self,
        command: Command,
        waiter: object,
        deadline_ms: int,
        *,
        kind: int = ...,
        queue: object = None,
        msg_ids: str | list[str] | None = None,
    ) -> int: ...
    def respond(self, command: Command) -> None: ...
    def take_output(self) -> bytes: ...
    has_output: bool
    pending_count: int
    def cancel(self, number: int) -> None: ...
    def expire(self, now_ms: int) -> list[Any]: ...
    def close(self) -> list[Any]: ...
    def feed(
        self, data: bytes
    ) -> list[tuple[Any, SendResult | list[SendResult] | PullResult | Command]]: ...
