"""Compiled sends: after a plain message in Python, `SendPath` serves the queue's next.

A queue is added to it after the Python handler has served a first message, and so has
created topic, folder and file; a topic that changes is removed, and no queue is added
while the broker has no write permission.
"""

from collections.abc import Collection

from rmq.native import SendTable, UniqueKeys
from rmq.plugin import BrokerContext
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import WIRE_VERSION
from rmq.protocol.flags import PERM_WRITE
from rmq.protocol.topics import is_dlq_topic, is_retry_topic
from rmq_plugins.send.checks import added_flags

TOPIC_LIMIT = 8192
"""Most queues at a time; when there are more, all are removed and added again."""


class NativeSends:
    """The table behind the compiled handlers of both send codes."""

    def __init__(
        self,
        broker: BrokerContext,
        *,
        facts: dict[str, str],
        added: str,
        keys: UniqueKeys,
        specials: frozenset[str],
    ) -> None:
        self._store = broker.store
        self.table = SendTable(
            broker.store.log,
            now_ms=broker.clock.now_ms,
            on_failure=broker.store.writes.write_failed,
            store_host=broker.store_host,
            facts=facts,
            added=added.encode(),
            keys=keys,
            specials=specials,
            waits_for_disk=broker.store_config.is_sync_flush,
            max_body_size=broker.store_config.max_message_size,
            version=WIRE_VERSION,
        )
        self._shown: dict[str, set[int]] = {}
        self._config = broker.config
        broker.topics.on_change.append(self._forget)

    def _forget(self, name: str, _topic: TopicConfig | None) -> None:
        if self._shown.pop(name, None) is not None:
            self.table.forget(name)

    def config_changed(self, keys: Collection[str]) -> None:
        """Leave all sends to the Python handler if the broker's permission changed."""
        if "brokerPermission" in keys:
            self._forget_all()

    def _forget_all(self) -> None:
        self._shown.clear()
        self.table.forget_all()

    def show(self, config: TopicConfig, queue_id: int) -> None:
        """Let the compiled handler serve later messages for this queue.

        Called again for each message that is declined for another reason.
        """
        name = config.topic_name
        assert name is not None, "a topic in the table has a name"
        assert queue_id >= 0, f"no queue was chosen for {name}"
        shown = self._shown.get(name)
        if shown is not None and queue_id in shown:
            return
        queue = self._store.queues.get(name, queue_id)
        if (
            queue is None
            or not self._config.broker_permission & PERM_WRITE
            or is_retry_topic(name)
            or is_dlq_topic(name)
        ):
            return
        if shown is None:
            if len(self._shown) == TOPIC_LIMIT:
                self._forget_all()
            shown = self._shown[name] = set()
        shown.add(queue_id)
        flags = added_flags(config)
        self.table.learn(name, config.write_queue_nums, flags, queue)
