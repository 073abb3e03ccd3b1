from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, final

from typing_extensions import disjoint_base

from rmq._fastpath.client.messages import Delivery, SendResult
from rmq._fastpath.client.packing import PackedMessage
from rmq.outgoing.wire import Waiter

class _Waiting(Protocol):
    """A waiter for room."""

    def done(self) -> bool:
        """Whether it has been cancelled."""

    def set_result(self, value: None, /) -> None:
        """Wake its task."""

@final
class SendBudget:
    """A semaphore of messages and bytes: `try_acquire` or `wait`, then `release`."""

    def __init__(self, max_count: int, max_bytes: int) -> None: ...
    @property
    def count(self) -> int:
        """Messages in flight."""

    @property
    def bytes(self) -> int:
        """Their bytes."""

    def try_acquire(self, size: int, count: int = 1) -> bool:
        """Acquire room; False if it is full, or if other tasks wait."""

    def wait(self, waiter: _Waiting, size: int, count: int = 1) -> None:
        """Acquire room for the waiter in its turn; then it gets its result."""

    def release(self, size: int, count: int = 1) -> None:
        """Release room for the tasks that wait."""

    def serve(self) -> None:
        """Wake the waiters that have room now; also after a waiter was cancelled."""

class _Queue(Protocol):
    @property
    def broker(self) -> str: ...

@final
class RoundRobin:
    """Chooses one queue after another, starting at index `first` modulo their count.

    `next_index` is the index of the next queue. A changed route starts there, so that
    the change does not send twice in a row to one queue.
    """

    def __init__(self, queues: Sequence[_Queue], first: int) -> None: ...
    @property
    def next_index(self) -> int:
        """The index of the next queue."""

    def next(self, avoid: str | None = None) -> int:
        """Return the index of the next queue; if possible not on the broker `avoid`."""

@disjoint_base
class DirectSends:
    """The base of `Sender`: targets by topic, and open connections by address."""

    targets_by_topic: dict[str, Any]
    connections: dict[str, Any]

    def ready(self, topic: str) -> tuple[Any, Any] | None:
        """Return the next target and its open connection; None without one."""

    def deliver(
        self, delivery: Delivery, retry: Callable[[Delivery], None], timeout_ms: int
    ) -> bool:
        """Send an enqueued message at once; False without an open connection.

        After a failure `retry` makes the other attempts.
        """

@final
class Accumulator:
    """One batch that fills, and the time when it leaves at the latest."""

    def __init__(self, limits: tuple[int, int], linger_ms: float) -> None: ...
    @property
    def leaves_at_ms(self) -> float | None:
        """None while it is empty."""

    def add(
        self, item: object, size: int, now_ms: Callable[[], float]
    ) -> Sequence[list[Any]]:
        """Add a message; return the batches that leave now."""

    def withdraw(self, item: object, size: int) -> bool:
        """Remove a message; False if it has left."""

    def pop_due(self, now_ms: float) -> list[Any]:
        """Remove and return the batch if its time has come."""

    def pop(self) -> list[Any]:
        """Remove and return the batch, also if it is not full."""

@final
class PendingDeliveries:
    """The deliveries of `enqueue` that have not ended; each holds room in the budget.

    `on_failure` gets the error of each that fails. `on_idle` is called after the last
    one has ended.
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
        """Return the delivery of a message that holds its room."""

    def on_end(self, delivery: Delivery) -> None:
        """Count one delivery as ended; pass its error on."""

    def end_many(self, count: int, size: int) -> None:
        """Count deliveries as ended, and release their room."""

@final
class FirstAttempt:
    """The waiter of an enqueued message that was sent at once.

    It ends the delivery. After a failure `retry` makes the other attempts.
    """

    def __init__(
        self, delivery: Delivery, retry: Callable[[Delivery], None]
    ) -> None: ...
    def done(self) -> bool:
        """Return False: no task waits here that could be cancelled."""

    def set_result(self, answer: object) -> None:
        """End the delivery; after a refusal try again."""

    def set_exception(self, _error: BaseException) -> None:
        """Try again: there is no answer."""

@final
class EndCounter:
    """Counts ended messages; `on_first` is called for the first one after `reset`."""

    def __init__(self, on_first: Callable[[], object]) -> None: ...
    def reset(self) -> int:
        """Return how many messages have ended since the last call."""

@final
class ThreadDelivery:
    """A message that a thread has enqueued; `await_end` waits for its end."""

    def __init__(
        self,
        await_end: Callable[[ThreadDelivery, float | None], bool],
        ends: EndCounter,
    ) -> None: ...
    def done(self) -> bool:
        """Whether the broker has answered, or all attempts have failed."""

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait for the result; raises TimeoutError or the error of the message."""

    def end(self, inner: Delivery | BaseException) -> None:
        """End it with its delivery, or an error before the send; for the producer."""

async def send_packed(
    sender: DirectSends,
    budget: SendBudget,
    packed: PackedMessage,
    wait_for_room: Callable[[int], Awaitable[None]],
    timeout_ms: int,
) -> SendResult:
    """Send a message to any queue; `wait_for_room` waits if the budget has no room.

    The first attempt is nearly always the only one. It is made here, without the calls
    for routes and connections, if the connection is open.
    """
