from collections.abc import Awaitable, Callable
from typing import Any, Protocol, final

from rmq._fastpath.client_messages import Delivery, SendResult
from rmq._fastpath.client_packing import Packed
from rmq.outgoing.wire import Waiter

class _Waiting(Protocol):
    """Who waits for room."""

    def done(self) -> bool:
        """Whether it has been given up."""

    def set_result(self, value: None, /) -> None:
        """Let it go on."""

@final
class Budget:
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

@final
class OpenDeliveries:
    """What `enqueue` has taken and what has not ended; each has its room.

    `on_failure` gets the error of each that fails, `on_idle` is called when none is
    left.
    """

    def __init__(
        self,
        budget: Budget,
        new_waiter: Callable[[], Waiter],
        on_failure: Callable[[Any], object],
        on_idle: Callable[[], object],
    ) -> None: ...
    @property
    def count(self) -> int:
        """Deliveries that have not ended."""

    def begin(self, packed: Packed) -> Delivery:
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

async def send_packed(
    sender: Any,  # noqa: ANN401 - a `rmq.client.sending.Sender`
    budget: Budget,
    packed: Packed,
    room: Callable[[int], Awaitable[None]],
    timeout_ms: int,
) -> SendResult:
    """Send a message to any queue; `room` waits for some if the budget has none.

    The first attempt is made here if it can be made at once, without the calls that
    look for routes and connections: it is nearly always the only one.
    """
