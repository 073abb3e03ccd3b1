"""RouteWaiters: enqueued messages whose topic has no route or connection.

One task for each topic sends the first message with all attempts. The other messages
wait for its result. After a success the task sends all of them at once. After an error
that waiting does not remove, all of them fail with this error. After any other error
the task tries the next message; each message has its own deadline.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from rmq._fastpath.client.messages import Delivery
from rmq.client.errors import NoRoute, SendFailed, SendRefused, is_lasting
from rmq.outgoing.connection import steady_ms


class Waiting(NamedTuple):
    """An enqueued message, its deadline, and whether a broker may have stored it.

    If `broker` is set, no other broker gets the message again.
    """

    delivery: Delivery
    deadline_ms: int
    may_be_stored: bool = False
    broker: str | None = None


class Deliver(Protocol):
    """Makes all attempts of a message, and ends its delivery."""

    async def __call__(self, waiting: Waiting) -> None:
        """Return when the delivery has ended."""


class RouteWaiters:
    """`deliver` makes all attempts; `send_now` sends at once, or calls `add` again."""

    def __init__(
        self,
        deliver: Deliver,
        send_now: Callable[[Waiting], None],
        spawn: Callable[..., object],
    ) -> None:
        self._deliver = deliver
        self._send_now = send_now
        self._spawn = spawn
        self._waiting: dict[str, deque[Waiting]] = {}

    def add(self, message: Waiting) -> None:
        """Add a message; the first of a topic starts the task."""
        topic = message.delivery.packed.topic
        waiting = self._waiting.get(topic)
        if waiting is not None:
            waiting.append(message)
            return
        self._waiting[topic] = deque([message])
        self._spawn(self._send_topic, topic)

    async def _send_topic(self, topic: str) -> None:
        waiting = self._waiting[topic]
        try:
            while waiting:
                first = waiting.popleft()
                others = len(waiting)
                await self._deliver(first)
                self._end_others(waiting, others, first.delivery.exception())
        finally:
            del self._waiting[topic]
            for each in waiting:  # the client was closed
                each.delivery.set_exception(_error_of(each, None))

    def _end_others(
        self,
        waiting: deque[Waiting],
        count: int,
        error: BaseException | None,
    ) -> None:
        """Send or fail the messages that waited; messages with time left may continue
        to wait.
        """
        is_sent = error is None or isinstance(error, SendRefused)
        cause = error.__cause__ if isinstance(error, SendFailed) else error
        is_over = cause is not None and (
            is_lasting(cause) or (isinstance(cause, NoRoute) and cause.is_unknown)
        )
        now_ms = steady_ms()
        for _ in range(count):
            each = waiting.popleft()
            if is_sent and not is_over:
                self._send_now(each)
            elif is_over or each.deadline_ms <= now_ms:
                each.delivery.set_exception(_error_of(each, error))
            else:
                waiting.append(each)


def _error_of(waiting: Waiting, error: BaseException | None) -> SendFailed:
    """Return the error of a message that waited for another one."""
    topic = waiting.delivery.packed.topic
    reason = (
        "the client was closed"
        if error is None
        else f"an earlier message failed: {error}"
    )
    failure = SendFailed(f"nothing was sent to topic {topic}: {reason}", topic, None, 0)
    failure.may_be_stored = waiting.may_be_stored
    failure.__cause__ = error
    return failure
