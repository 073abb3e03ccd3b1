"""RouteWaiters: enqueued messages whose topic has no route or connection yet.

The first of a topic goes the long way, with all attempts; the others wait for it, then
they leave at once, or share its failure. So there is one task for each topic, however
many messages were enqueued meanwhile.
"""

from collections import deque
from collections.abc import Awaitable, Callable

from rmq._fastpath.client.messages import Delivery
from rmq.client.errors import SendFailed


class RouteWaiters:
    """`deliver` goes the long way, `send_now` sends at once or adds it here again."""

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
        """Take a message; the first of a topic starts the task."""
        topic = delivery.packed.topic
        waiting = self._waiting.get(topic)
        if waiting is not None:
            waiting.append(delivery)
            return
        self._waiting[topic] = deque([delivery])
        self._spawn(self._open, topic)

    async def _open(self, topic: str) -> None:
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
                        each.set_exception(_unsent(topic, error))
        finally:
            del self._waiting[topic]
            for each in waiting:  # the client was closed
                each.set_exception(_unsent(topic, None))


def _unsent(topic: str, error: BaseException | None) -> SendFailed:
    """Return the failure of a message that waited for another one."""
    reason = "the client was closed" if error is None else f"one before failed: {error}"
    failure = SendFailed(f"nothing was sent to topic {topic}: {reason}", topic, None, 0)
    failure.__cause__ = error
    return failure
