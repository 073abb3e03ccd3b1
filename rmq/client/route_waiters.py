"""RouteWaiters: enqueued messages whose topic has no route or connection yet.

One task for each topic sends the first message with all attempts. The other messages
wait for it. Then they leave at once, or fail with the same error.
"""

from collections import deque
from collections.abc import Awaitable, Callable

from rmq._fastpath.client.messages import Delivery
from rmq.client.errors import SendFailed


class RouteWaiters:
    """`deliver` makes all attempts; `send_now` sends at once, or calls `add` again."""

    def __init__(
        self,
        deliver: Callable[[Delivery], Awaitable[None]],
        send_now: Callable[[Delivery], None],
        spawn: Callable[..., object],
    ) -> None:
        self._deliver = deliver
        self._send_now = send_now
        self._spawn = spawn
        self._waiting: dict[str, deque[Delivery]] = {}

    def add(self, delivery: Delivery) -> None:
        """Add a message; the first of a topic starts the task."""
        topic = delivery.packed.topic
        waiting = self._waiting.get(topic)
        if waiting is not None:
            waiting.append(delivery)
            return
        self._waiting[topic] = deque([delivery])
        self._spawn(self._send_topic, topic)

    async def _send_topic(self, topic: str) -> None:
        waiting = self._waiting[topic]
        try:
            while waiting:
                first = waiting.popleft()
                others = len(waiting)
                await self._deliver(first)
                error = first.error()
                for _ in range(others):
                    each = waiting.popleft()
                    if error is None:
                        self._send_now(each)
                    else:
                        each.set_exception(_error_of(topic, error))
        finally:
            del self._waiting[topic]
            for each in waiting:  # the client was closed
                each.set_exception(_error_of(topic, None))


def _error_of(topic: str, error: BaseException | None) -> SendFailed:
    """Return the error of a message that waited for another one."""
    reason = "the client was closed" if error is None else f"one before failed: {error}"
    failure = SendFailed(f"nothing was sent to topic {topic}: {reason}", topic, None, 0)
    failure.__cause__ = error
    return failure
