from collections.abc import Callable, Collection, Coroutine, Generator
from datetime import datetime
from enum import IntEnum
from typing import Any, Protocol, final, type_check_only

from rmq._fastpath.client.packing import PackedMessage

class SendStatus(IntEnum):
    """Which copies the broker has waited for; the message is stored with any."""

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
    """A stored message: its ids and its place."""

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
    @property
    def status(self) -> SendStatus:
        """Which copies the broker has waited for; the message is stored with any."""

class _Waiter(Protocol):
    def done(self) -> bool: ...
    def set_result(self, value: None, /) -> None: ...
    def __await__(self) -> Generator[Any, Any]: ...

@final
class Delivery:
    """A message that `enqueue` has accepted; its result comes later.

    Await it, or use `done` and `result`; the message is sent in any case. `packed` is
    the message. `on_end`, if it is not None, is called first when the delivery ends.
    """

    packed: PackedMessage

    def __init__(
        self,
        packed: PackedMessage,
        on_end: Callable[[Delivery], object] | None,
        new_waiter: Callable[[], _Waiter],
    ) -> None: ...
    def done(self) -> bool:
        """Whether the broker has answered, or all attempts have failed."""

    def result(self) -> SendResult:
        """Return the result or raise the error; RuntimeError before the end."""

    def error(self) -> BaseException | None:
        """Return the error; None without one."""

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Call a function with this delivery at its end, or now if it has on_end."""

    def set_result(self, result: SendResult) -> None:
        """End it with a result; for the producer."""

    def set_exception(self, error: BaseException) -> None:
        """End it with an error; for the producer."""

    def __await__(self) -> Generator[Any, Any, SendResult]:
        """Wait for the result."""

def end_all(deliveries: list[Delivery], results: list[SendResult]) -> tuple[int, int]:
    """End the deliveries of one batch with their results, without calling `on_end`.

    Return the count and the bytes of those that have an `on_end`.
    """

@type_check_only
class Lease(Protocol):
    """The right of this consumer to a message."""

    @property
    def is_revoked(self) -> bool: ...
    def ack(self, message: ReceivedMessage) -> bool: ...
    def nack(
        self, message: ReceivedMessage, delay_s: float | None, *, dead_letter: bool
    ) -> Coroutine[Any, Any, None]: ...

@final
class ReceivedMessage:
    """A message from a broker; `lease` handles its `ack` and `nack`."""

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
    @property
    def properties(self) -> dict[str, str]:
        """All properties by name, in a dictionary of this message alone."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys for look-ups, one after another."""

    @property
    def msg_id(self) -> str:
        """The id that the producer gave it; without one, `offset_msg_id`."""

    @property
    def offset_msg_id(self) -> str:
        """The id by which the broker finds the record."""

    @property
    def attempt(self) -> int:
        """1 at the first delivery; one more after each failure."""

    @property
    def born_at(self) -> datetime:
        """When the producer sent it, by the producer's clock."""

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it."""

    @property
    def born_host(self) -> str:
        """The address of the producer, `ip:port`."""

    def ack(self) -> bool:
        """Mark it consumed; False if its queue now belongs to another consumer."""

    def nack(
        self, delay_s: float | None = None, *, dead_letter: bool = False
    ) -> Coroutine[Any, Any, None]:
        """Have it delivered again later, or move it to the dead-letter queue."""

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
) -> list[ReceivedMessage]:
    """Return the messages in the body of an answer; ValueError if it is damaged.

    Messages with other tags than `tags` are left out; None takes all. `inflate` gets a
    compressed body and the flags with its compression. `origin_of` maps the property
    RETRY_TOPIC to the topic of a message. `queue_of` maps the queue id of a message to
    its queue, for answers with messages of several queues.
    """
