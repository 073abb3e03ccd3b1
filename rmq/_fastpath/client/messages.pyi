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
    """A message that `enqueue` has taken; its result comes later.

    Await it, or ask `done` and `result`; nothing is lost if you do neither. `packed` is
    the message; `ended`, if it is not None, learns of the end before all others.
    """

    packed: PackedMessage

    def __init__(
        self,
        packed: PackedMessage,
        ended: Callable[[Delivery], object] | None,
        new_waiter: Callable[[], _Waiter],
    ) -> None: ...
    def done(self) -> bool:
        """Whether the broker has answered, or the message has failed for good."""

    def result(self) -> SendResult:
        """Return the result, or raise the failure; only when done."""

    def error(self) -> BaseException | None:
        """Return the failure, if there is one."""

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Call a function with this delivery when it is done, or now if it is."""

    def set_result(self, result: SendResult) -> None:
        """End it; for the producer."""

    def set_exception(self, error: BaseException) -> None:
        """End it with a failure; for the producer."""

    def __await__(self) -> Generator[Any, Any, SendResult]:
        """Wait for the result."""

def end_all(deliveries: list[Delivery], results: list[SendResult]) -> tuple[int, int]:
    """End deliveries that left together, with their results; `ended` is not called.

    Return how many have an `ended`, and the bytes of these.
    """

@type_check_only
class Lease(Protocol):
    """What has handed a message out."""

    @property
    def is_revoked(self) -> bool: ...
    def ack(self, message: ReceivedMessage) -> bool: ...
    def nack(
        self, message: ReceivedMessage, delay_s: float | None, *, dead_letter: bool
    ) -> Coroutine[Any, Any, None]: ...

@final
class ReceivedMessage:
    """A message from a broker. `lease` is what `ack` and `nack` are passed to."""

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
        """All properties by name; the dictionary is this message's own."""

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
        """Have it delivered again later, or put into the dead-letter queue."""

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

    `tags` are those that are wanted, None for all. `inflate` gets a compressed body and
    the flag that names its compression. `origin_of` gives the topic of a message of a
    retry topic, from the name that the message has with it. `queue_of` gives the queue
    of a message by its number, where messages of several queues come together.
    """
