"""Arrivals: reports the queues with new messages to those who wait for them.

The store lists the queues with new entries; listeners are called once per poll with
all of them.  Where messages are not visible at once (under SYNC_FLUSH, and with a
transient store pool) a queue is reported when the watermark of what readers may see has
passed its new message.  Work outside a request calls `flush` itself.
"""

import os
from collections.abc import Callable, Mapping

import trio

from rmq.store.message_store import MessageStore

QueueKey = tuple[str, int]
ArrivalListener = Callable[[Mapping[QueueKey, int]], None]


class Arrivals:
    """Touched queues that are not reported yet."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._listeners: tuple[ArrivalListener, ...] = ()
        self._touched: dict[QueueKey, int] = {}

    def listen(self, listeners: tuple[ArrivalListener, ...]) -> None:
        """Add listeners."""
        self._listeners += listeners

    def flush(self) -> None:
        """Report the queues whose new messages are visible; the others wait."""
        touched = self._touched
        for queue in self._store.writes.end_batch():
            touched[queue.topic, queue.queue_id] = queue.next_offset
        if not touched:
            return
        if self._store.durability.confirm is not None:
            visible = {
                key: offset
                for key, offset in touched.items()
                if self._store.reads.max_offset(*key) >= offset
            }
            self._touched = {k: o for k, o in touched.items() if k not in visible}
            touched = visible
        else:
            self._touched = {}
        if touched:
            for listener in self._listeners:
                listener(touched)

    async def follow_visible(self) -> None:
        """Report again each time the visible watermark has moved.

        Only for a watermark that the reactor does not watch: the reactor ends a poll
        at each move of its own one.
        """
        watermark = self._store.durability.confirm
        assert watermark is not None, "everything is visible at once"
        descriptor = watermark.subscribe()
        try:
            while True:
                await trio.lowlevel.wait_readable(descriptor)
                try:
                    os.eventfd_read(descriptor)
                except BlockingIOError:
                    continue
                self.flush()
        finally:
            watermark.unsubscribe(descriptor)
