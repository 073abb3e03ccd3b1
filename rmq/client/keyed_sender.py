"""KeyedSender: one task for each queue that has messages with keys.

`rmq.client.core.ordered_sends` keeps their order.
"""

from collections.abc import Awaitable, Callable

from rmq._fastpath.client.messages import SendResult
from rmq._fastpath.client.packing import PackedMessage
from rmq.client.core.batches import BatchLimits
from rmq.client.core.ordered_sends import KeyedMessage, OrderedSendQueue
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientError
from rmq.core.errors import PeerError
from rmq.outgoing.wire import Completion

Item = tuple[PackedMessage, Completion]
Send = Callable[[list[PackedMessage], MessageQueue], Awaitable[list[SendResult]]]


class KeyedSender:
    """The tasks of one producer; an empty `OrderedSendQueue` is removed."""

    def __init__(
        self, limits: BatchLimits, send: Send, spawn: Callable[..., None]
    ) -> None:
        self._limits = limits
        self._send = send
        self._spawn = spawn
        self._queues: dict[MessageQueue, OrderedSendQueue[Item]] = {}

    def add(self, queue: MessageQueue, key: str, item: Item) -> OrderedSendQueue[Item]:
        """Add a message after the other messages of its queue."""
        waiting = self._queues.get(queue)
        if waiting is None:
            waiting = self._queues[queue] = OrderedSendQueue(self._limits)
            self._spawn(self._send_all, queue, waiting)
        waiting.add(KeyedMessage(key, item, item[0].size, item[0].alone))
        return waiting

    async def _send_all(
        self, queue: MessageQueue, waiting: OrderedSendQueue[Item]
    ) -> None:
        """Send the messages of a queue until no message waits."""
        while batch := waiting.next():
            waiters = [each.item[1] for each in batch]
            try:
                results = await self._send([each.item[0] for each in batch], queue)
            except (ClientError, PeerError) as error:
                waiters += [waiter for _, waiter in waiting.record_failure()]
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_exception(error)
                continue
            waiting.record_success()
            for waiter, result in zip(waiters, results, strict=True):
                if not waiter.done():
                    waiter.set_result(result)
        del self._queues[queue]
