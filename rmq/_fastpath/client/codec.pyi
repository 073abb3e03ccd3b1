from collections.abc import Callable
from typing import Any, Final, final

from rmq._fastpath.client.messages import SendResult
from rmq.protocol.command import Command

ANSWER_TO_COMMAND: Final[int]
ANSWER_TO_SEND: Final[int]
ANSWER_TO_PULL: Final[int]

@final
class SendTemplate:
    """The fields that all sends of a group to a queue share, with the queue."""

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
    """The fields that all pulls of a group from a queue share."""

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
    """The answer to a pull; `body` has the records."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    remark: str | None
    body: bytes

@final
class ClientCodec:
    """The bytes of one connection of a client. Belongs to the connection's thread."""

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
    ) -> int:
        """Write a send; return its number. Without a waiter it is oneway.

        The waiter gets a SendResult, a list of them for a batch, or the Command of a
        refusal.
        """

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
    ) -> int:
        """Write a pull; return its number. The waiter gets a PullResult."""

    def request(
        self,
        command: Command,
        waiter: object,
        deadline_ms: int,
        *,
        kind: int = ...,
        queue: object = None,
        msg_ids: str | list[str] | None = None,
    ) -> int:
        """Write any request; return its number. Without a waiter it is oneway."""

    def respond(self, command: Command) -> None:
        """Write the answer to a request of the server."""

    def take_output(self) -> bytes:
        """Remove and return the bytes to send."""

    @property
    def has_output(self) -> bool:
        """Whether `take_output` would return anything."""

    @property
    def pending_count(self) -> int:
        """How many requests wait for their answers."""

    def cancel(self, number: int) -> None:
        """End a request; the codec drops its answer."""

    def expire(self, now_ms: int) -> list[Any]:
        """End the requests whose deadline has passed; return their waiters."""

    def close(self) -> list[Any]:
        """End all requests; return their waiters."""

    def feed(
        self, data: bytes
    ) -> list[tuple[Any, SendResult | list[SendResult] | PullResult | Command]]:
        """Read received bytes; return pairs of a waiter and its answer.

        A request of the server has None in place of a waiter. After a
        RemoteProtocolError the stream cannot be used.
        """
