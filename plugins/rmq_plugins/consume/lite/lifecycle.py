"""LiteExpiry: deletes lite topics that get no new messages, or whose parent is deleted.

`lite.topic.expiration` of the parent topic is the limit in minutes. A lite topic is
deleted with its queue, the offsets of the groups and the subscriptions. The records of
the lite topic stay in the log as long as other records. A parent topic is deleted after
its lite topics. A lite group is always deleted with its offsets, also if the request
does not demand it. Known in Java as `LiteLifecycleManager`.
"""

from collections.abc import Coroutine
from typing import Final

import trio

from rmq.plugin import (
    BrokerContext,
    Command,
    Connection,
    Handler,
    Held,
    QueueOffset,
    Result,
)
from rmq_plugins.consume.lite.config import LiteConfig
from rmq_plugins.consume.lite.dispatch import LiteDispatch
from rmq_plugins.consume.lite.rules import expiration_minutes, is_lite
from rmq_plugins.consume.lite.tables import LiteTables

TURN_SIZE: Final = 50
"""Number of lite topics that the check reads in one turn."""

DELETION_BATCH: Final = 1_000
"""Number of lite topics that are deleted with one save."""

MINUTE_MS: Final = 60_000


class LiteExpiry:
    """Deletes lite topics."""

    def __init__(
        self,
        broker: BrokerContext,
        config: LiteConfig,
        tables: LiteTables,
        dispatch: LiteDispatch,
    ) -> None:
        self._clock = broker.clock
        self._started_ms = broker.clock.steady_ms()
        self._topics = broker.topics
        self._offsets = broker.offsets
        self._store = broker.store
        self._messages = broker.messages
        self._next_turn = broker.next_turn
        self._config = config
        self._rules, self._queues, self._subscriptions, self._orders = tables
        self._dispatch = dispatch

    async def run(self) -> None:
        """Delete expired lite topics, until cancelled."""
        while True:
            await trio.sleep(self._config.expiration_check_ms / 1_000)
            await self.expire()

    async def expire(self) -> None:
        """Delete the lite topics whose last message is too old."""
        least_ms = self._config.least_expiration_ms
        if self._clock.steady_ms() - self._started_ms < least_ms:
            return
        for parent in self._queues.parent_topics():
            topic = self._topics.get(parent)
            minutes = -1 if topic is None else expiration_minutes(topic)
            if minutes <= 0:
                continue
            limit_ms = max(minutes * MINUTE_MS, least_ms)
            expired = []
            for number, queue in enumerate(self._queues.queues_of(parent), 1):
                if self._silent_ms(queue) > limit_ms:
                    expired.append(queue)
                if number % TURN_SIZE == 0:
                    await self._next_turn()
            await self._delete(expired, limit_ms)

    def _silent_ms(self, queue: str) -> int:
        """Return the age of the last message; 0 for a queue without messages."""
        end = self._queues.end(queue)
        if end <= 0:
            return 0
        at_ms = self._messages.store_time_at(queue, 0, QueueOffset(end - 1))
        return self._clock.now_ms() - at_ms

    async def _delete(self, queues: list[str], limit_ms: int = -1) -> None:
        """Delete, in batches, the lite topics that are still older than the limit."""
        while queues:
            batch, queues = queues[:DELETION_BATCH], queues[DELETION_BATCH:]
            await trio.to_thread.run_sync(self._store.record_deletion(set(batch)))
            for queue in batch:
                if self._silent_ms(queue) > limit_ms:
                    await self._delete_one(queue)

    async def _delete_one(self, queue: str) -> None:
        for group in self._offsets.groups_of(queue):
            self._orders.drop(queue, group)
        for client_id in self._subscriptions.drop_queue(queue):
            self._dispatch.remove_event(client_id, queue)
        self._offsets.remove_topic(queue)
        self._queues.drop(queue)
        await trio.to_thread.run_sync(self._store.delete_topic(queue))

    def delete_topic(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Delete the lite topics of a parent topic, then the parent topic."""
        topic = self._topics.get(request.ext_fields.get("topic", ""))
        if topic is None or not is_lite(topic):
            return handler(request, connection)
        return self._delete_parent(topic.topic_name or "", handler, request, connection)

    async def _delete_parent(
        self, name: str, handler: Handler, request: Command, connection: Connection
    ) -> Command | Held | None:
        await self._delete(self._queues.queues_of(name))
        answer = handler(request, connection)
        return await answer if isinstance(answer, Coroutine) else answer

    def delete_group(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Delete a lite group together with its offsets."""
        if self._rules.bound_topic(request.ext_fields.get("groupName", "")) is not None:
            request.ext_fields["cleanOffset"] = "true"
        return handler(request, connection)
