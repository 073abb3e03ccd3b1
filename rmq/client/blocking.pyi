from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Literal, Self

from rmq._fastpath.client.messages import ReceivedMessage, SendResult
from rmq.client.client import Client as AsyncClient
from rmq.client.compression import Compression
from rmq.client.core.allocate import Allocate
from rmq.client.core.routes import MessageQueue
from rmq.client.hooks import Hook
from rmq.client.message import Message
from rmq.client.offsets import OffsetStore
from rmq.client.rebalance import QueueCallback
from rmq.client.subscription import Sql, Start
from rmq.client.transaction import Checker
from rmq.outgoing.identity import Trust
from rmq.outgoing.signing import Credentials

AHEAD: Final[int]

class Delivery:
    """A message that `enqueue` has accepted."""

    def done(self) -> bool:
        """Whether the broker has answered, or all attempts have failed."""

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait for the result; raises TimeoutError or the error of the message."""

class _Blocking:
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def close(self) -> None:
        """Close it, as the end of the block does."""

class Client(_Blocking):
    """Connections, routes, heartbeats and hooks, as in `rmq.client.Client`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        client_id: str | None = None,
        tls: Trust | None = None,
        credentials: Credentials | None = None,
        namespace: str = "",
        hooks: Sequence[Hook | MessageTrace] = (),
        connect_timeout_ms: int = ...,
        route_interval_s: float = 30,
        heartbeat_interval_s: float = 30,
    ) -> None: ...

class MessageTrace(_Blocking):
    """A hook for message traces, as `rmq.client.MessageTrace` is."""

    def __init__(
        self,
        client: Client | AsyncClient | str | None = None,
        *,
        topic: str = ...,
        flush_interval_s: float = 1.0,
    ) -> None: ...

class Producer(_Blocking):
    """Sends messages, as `rmq.client.Producer` does."""

    def __init__(
        self,
        client: Client | AsyncClient | str | None = None,
        *,
        group: str = "rmq-python",
        timeout_ms: int = 3_000,
        attempts: int = 3,
        linger_ms: float | None = None,
        batch_bytes: int = ...,
        batch_messages: int = 1_000,
        max_pending: int = 10_000,
        max_pending_bytes: int = ...,
        max_message_bytes: int = ...,
        compress_over: int | None = 4_096,
        compression: Compression = "zlib",
        checker: Checker | None = None,
    ) -> None: ...
    def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        delay_level: int | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult: ...
    def send_many(
        self,
        messages: Iterable[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> list[SendResult]: ...
    def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None
    ) -> None: ...
    def enqueue(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> Delivery:
        """Accept a message, and wait only for room."""

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait for all enqueued messages; SendManyFailed if some have failed."""

    def request(
        self, message: Message, *, timeout_s: float = 3.0
    ) -> ReceivedMessage: ...
    def reply(
        self,
        to: ReceivedMessage,
        body: bytes,
        *,
        properties: dict[str, str] | None = None,
    ) -> None: ...
    def recall(self, topic: str, handle: str) -> str: ...

class Consumer(_Blocking):
    """Receives messages, as `rmq.client.Consumer` does."""

    def __init__(
        self,
        client: Client | AsyncClient | str | None,
        group: str,
        topics: str | Mapping[str, str | Sql] | None = None,
        *,
        ordered: bool = False,
        broadcast: bool = False,
        silent: bool = False,
        start: Start = "last",
        strategy: Literal["average", "circle"] | Allocate = "average",
        mode: Literal["auto", "pull", "pop"] = "auto",
        invisible_s: float = 60,
        fetch_messages: int = 256,
        buffer_messages: int = 10_000,
        buffer_bytes: int = ...,
        max_attempts: int | None = None,
        consume_timeout_s: float = 900,
        commit_interval_s: float = 5,
        shutdown_timeout_s: float = 10,
        offsets: OffsetStore | None = None,
        on_assigned: QueueCallback | None = None,
        on_revoked: QueueCallback | None = None,
    ) -> None: ...
    def __iter__(self) -> Iterator[ReceivedMessage]: ...
    def __next__(self) -> ReceivedMessage: ...
    def deliveries(self) -> Iterator[ReceivedMessage]:
        """Yield messages that only `ack()` and `nack()` end, in any thread."""

    def run(
        self, handler: Callable[[Any], object], *, concurrency: int = 20, batch: int = 1
    ) -> None:
        """Call a function in worker threads for each message, until `stop`."""

    def stop(self) -> None:
        """End `run` and the iterators; the messages in their hands are finished."""

    def assign(
        self, queues: Sequence[MessageQueue], expression: str | Sql = "*"
    ) -> None:
        """Consume these queues, and no others."""

    def fetch(
        self, max_messages: int = 256, timeout_s: float = 5.0
    ) -> list[ReceivedMessage]: ...
    def seek(
        self, queue: MessageQueue, to: int | datetime | Literal["first", "last"]
    ) -> None: ...
    def queues(self, topic: str) -> list[MessageQueue]: ...
    def pause(self, queues: Sequence[MessageQueue]) -> None: ...
    def resume(self, queues: Sequence[MessageQueue]) -> None: ...
    def position(self, queue: MessageQueue) -> int: ...
    def committed(self, queue: MessageQueue) -> int | None: ...
    def commit(self) -> None:
        """Commit the offset of the first unacknowledged message of each queue."""

    def lag(self) -> dict[MessageQueue, int]:
        """Return, for each assigned queue, how many messages are not consumed."""
