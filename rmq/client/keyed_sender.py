"""KeyedSender: a task for each queue that has messages with keys; see `core/lanes`."""

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
    """Lanes by queue; one that is empty is forgotten."""

    def __init__(
        self, limits: BatchLimits, send: Send, spawn: Callable[..., None]
    ) -> None:
        self._limits = limits
        self._send = send
        self._spawn = spawn
        self._lanes: dict[MessageQueue, OrderedSendQueue[Item]] = {}

    def add(self, queue: MessageQueue, key: str, item: Item) -> OrderedSendQueue[Item]:
        """Add a message to the lane of its queue."""
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = OrderedSendQueue(self._limits)
            self._spawn(self._drive, queue, lane)
        lane.add(KeyedMessage(key, item, item[0].size, item[0].alone))
        return lane

    async def _drive(self, queue: MessageQueue, lane: OrderedSendQueue[Item]) -> None:
        """Send what waits in a lane until it is empty."""
        while batch := lane.next():
            waiters = [each.item[1] for each in batch]
            try:
                results = await self._send([each.item[0] for each in batch], queue)
            except (ClientError, PeerError) as error:
                waiters += [waiter for _, waiter in lane.failed()]
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_exception(error)
                continue
            lane.succeeded()
            for waiter, result in zip(waiters, results, strict=True):
                if not waiter.done():
                    waiter.set_result(result)
        del self._lanes[queue]
