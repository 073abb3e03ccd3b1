"""Compiled sends: after a plain message in Python, `SendPath` serves the queue's next.

A queue is added to it after the Python handler has served a first message, and so has
created topic, folder and file; a topic that changes is removed, and no queue is added
while the broker has no write permission. After a message with a time, which waits
elsewhere, the queue may not exist yet: then only such messages are served.
"""

from collections.abc import Collection

from rmq.plugin import BrokerContext
from rmq.plugin.native import UniqueKeys
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import WIRE_VERSION
from rmq.protocol.flags import PERM_WRITE
from rmq.protocol.properties import INNER_MULTI_DISPATCH
from rmq.protocol.topics import is_dlq_topic, is_retry_topic
from rmq_plugins.send.checks import added_flags


class NativeSends:
    """The table behind the compiled handlers of both send codes."""

    def __init__(
        self,
        broker: BrokerContext,
        *,
        facts: dict[str, str],
        added: str,
        keys: UniqueKeys,
        special_properties: frozenset[str],
    ) -> None:
        """`special_properties` are for Python unless an interceptor is compiled."""
        light = broker.store_config.dispatches_lmq
        mark = f"{INNER_MULTI_DISPATCH}\x01".encode()
        self._queues = broker.queues
        self._mappings = broker.queue_mappings
        self.table = broker.put.send_table(
            now_ms=broker.clock.now_ms,
            store_host=broker.store_host,
            facts=facts,
            added=added.encode(),
            keys=keys,
            declined_properties=(
                special_properties | ({INNER_MULTI_DISPATCH} if light else set())
            ),
            declined_text=mark if light else b"",
            version=WIRE_VERSION,
        )
        self._config = broker.config
        broker.topics.on_change.append(self._remove_topic)

    def _remove_topic(self, name: str, _topic: TopicConfig | None) -> None:
        self.table.unregister(name)

    def config_changed(self, keys: Collection[str]) -> None:
        """Leave all sends to the Python handler if the broker's permission changed."""
        if "brokerPermission" in keys:
            self.table.unregister_all()

    def register_queue(self, name: str, config: TopicConfig, queue_id: int) -> None:
        """Let the compiled handler serve later messages for this queue.

        Called again for each message that is declined for another reason.
        """
        assert queue_id >= 0, f"no queue was chosen for {name}"
        if self.table.has_queue(name, queue_id) or queue_id >= config.write_queue_nums:
            return
        queue = self._queues.get(name, queue_id)
        if (
            (queue is not None and queue.is_batch)
            or name in self._mappings
            or not self._config.broker_permission & PERM_WRITE
            or is_retry_topic(name)
            or is_dlq_topic(name)
        ):
            return
        self.table.register(name, added_flags(config), config.write_queue_nums, queue)
