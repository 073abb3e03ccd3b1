from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, final

from typing_extensions import disjoint_base

from rmq._fastpath.client.messages import Delivery, SendResult
from rmq._fastpath.client.packing import PackedMessage
from rmq.outgoing.wire import Waiter

class _Waiting(Protocol):
    """Who waits for room."""

    def done(self) -> bool:
        """Whether it has been given up."""

    def set_result(self, value: None, /) -> None:
        """Let it go on."""

@final
class SendBudget:
    """Counts; `take` or `wait` before, `give` after."""

    def __init__(self, max_count: int, max_bytes: int) -> None: ...
    @property
    def count(self) -> int:
        """Messages under way."""

    @property
    def bytes(self) -> int:
        """Their bytes."""

    def take(self, size: int, count: int = 1) -> bool:
        """Take room if it is there, and if nobody waits for it."""

    def wait(self, waiter: _Waiting, size: int, count: int = 1) -> None:
        """Have room taken for the waiter when it is its turn."""

    def give(self, size: int, count: int = 1) -> None:
        """Give room back; those that wait get it."""

    def serve(self) -> None:
        """Let go on who has room now; also after a waiter was given up."""

class _Queue(Protocol):
    @property
    def broker(self) -> str: ...

@final
class RoundRobin:
    """One queue after another, from the place `first` on, of any size.

    `following` is the place of the next one: what the choice of a changed route begins
    with, so that the change itself sends nothing to one queue twice.
    """

    def __init__(self, queues: Sequence[_Queue], first: int) -> None: ...
    @property
    def following(self) -> int:
        """The place of the next one."""

    def next(self, avoid: str | None = None) -> int:
        """Return the place of the next queue; not on the broker `avoid` if possible."""

@disjoint_base
class DirectSends:
    """The base of `Sender`: by topic its targets, by address the open connections."""

    publishings: dict[str, Any]
    connections: dict[str, Any]

    def ready(self, topic: str) -> tuple[Any, Any] | None:
        """Return the next target and its connection if it can be sent to at once."""

    def deliver(
        self, delivery: Delivery, go_on: Callable[[Delivery], None], timeout_ms: int
    ) -> bool:
        """Send an enqueued message at once; False if that cannot be.

        After a failure `go_on` makes the other attempts.
        """

@final
class Accumulator:
    """One batch that fills, and the moment at which it leaves at the latest."""

    def __init__(self, limits: tuple[int, int], linger_ms: float) -> None: ...
    @property
    def leaves_at_ms(self) -> float | None:
        """None while it is empty."""

    def add(
        self, item: object, size: int, now_ms: Callable[[], float]
    ) -> Sequence[list[Any]]:
        """Add a message; return the batches that leave now."""

    def withdraw(self, item: object, size: int) -> bool:
        """Take a message out again; False if it has left."""

    def due(self, now_ms: float) -> list[Any]:
        """Return the batch if its time has come."""

    def take(self) -> list[Any]:
        """Return what is there, as at a flush."""

@final
class PendingDeliveries:
    """What `enqueue` has taken and what has not ended; each has its room.

    `on_failure` gets the error of each that fails, `on_idle` is called when none is
    left.
    """

    def __init__(
        self,
        budget: SendBudget,
        new_waiter: Callable[[], Waiter],
        on_failure: Callable[[Any], object],
        on_idle: Callable[[], object],
    ) -> None: ...
    @property
    def count(self) -> int:
        """Deliveries that have not ended."""

    def begin(self, packed: PackedMessage) -> Delivery:
        """Return the delivery of a message that has its room."""

    def ended(self, delivery: Delivery) -> None:
        """Learn that one has ended."""

    def settle(self, count: int, size: int) -> None:
        """Count deliveries that have ended, and give their room back."""

@final
class FirstAttempt:
    """The waiter of an enqueued message that was sent at once.

    It ends the delivery; after a failure `go_on` makes the other attempts.
    """

    def __init__(
        self, delivery: Delivery, go_on: Callable[[Delivery], None]
    ) -> None: ...
    def done(self) -> bool:
        """Never given up."""

    def set_result(self, answer: object) -> None:
        """Take the answer."""

    def set_exception(self, _error: BaseException) -> None:
        """Learn that there is none."""

@final
class EndCounter:
    """Counts what has ended; `first` is called for the first since the last `take`."""

    def __init__(self, first: Callable[[], object]) -> None: ...
    def take(self) -> int:
        """Return how many have ended since the last call."""

@final
class ThreadDelivery:
    """A message that a thread has enqueued; `await_end` waits for its end."""

    def __init__(
        self,
        await_end: Callable[[ThreadDelivery, float | None], bool],
        ends: EndCounter,
    ) -> None: ...
    def done(self) -> bool:
        """Whether the broker has answered, or the message has failed for good."""

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait for the result; TimeoutError, or the failure of the message."""

    def end(self, inner: Delivery | BaseException) -> None:
        """Take the result, or a failure before it was sent; for the producer."""

async def send_packed(
    sender: DirectSends,
    budget: SendBudget,
    packed: PackedMessage,
    room: Callable[[int], Awaitable[None]],
    timeout_ms: int,
) -> SendResult:
    """Send a message to any queue; `room` waits for some if the budget has none.

    The first attempt is made here if it can be made at once, without the calls that
    look for routes and connections: it is nearly always the only one.
    """
