"""Arrivals: reports queues with new messages to listeners, such as held pulls.

Known in Java as `NotifyMessageArrivingListener`.
The store lists the queues with new entries; at the end of each poll, the listeners are
called once with all these queues. Under SYNC_FLUSH messages are not visible at once: a
queue is reported when its new message becomes visible. After a start, messages that
slaves have not confirmed are also reported when they become visible. Code that stores
messages outside of a request calls `flush` itself.
"""

from collections.abc import Mapping

from rmq.plugin.registrations import ArrivalListener
from rmq.store.message_store import MessageStore
from rmq.store.queues.consume_queues import QueueKey


class Arrivals:
    """Touched queues that are not reported yet."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._listeners: tuple[ArrivalListener, ...] = ()
        self._touched: dict[QueueKey, int] = {}

    def listen(self, listeners: tuple[ArrivalListener, ...]) -> None:
        """Add listeners."""
        self._listeners += listeners

    def expect_stored(self) -> None:
        """Let `flush` report the messages that are stored and not visible yet."""
        confirm_offset = self._store.positions.visible
        if confirm_offset < self._store.log.end_offset:
            self._touched |= {
                (queue.topic, queue.queue_id): queue.next_offset
                for queue in self._store.queues
                if queue.end_physical > confirm_offset
            }

    def flush(self) -> None:
        """Report the queues whose new messages are visible; other queues wait."""
        touched: Mapping[QueueKey, int] = self._store.writes.end_batch()
        if self._touched:
            touched = {**self._touched, **touched}
        if not touched:
            return
        if self._store.positions.visible_limit is not None:
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
