"""Compiled sends: `SendPath` serves a queue after a first plain message in Python.

The Python handler serves the first message, which creates topic, folder and file, and
then registers the queue. A change of the topic removes its queues. Without the broker's
write permission no queue is registered. A timed message waits in the timer's queue, and
its own queue may not exist yet: `SendPath` then serves only timed messages for it.
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
from rmq_plugins.send.store_once import StoreOnce


class NativeSends:
    """The queues of the compiled handlers, which serve all send codes."""

    def __init__(
        self,
        broker: BrokerContext,
        *,
        facts: dict[str, str],
        added: str,
        keys: UniqueKeys,
        special_properties: frozenset[str],
        once: StoreOnce,
    ) -> None:
        """Python serves `special_properties`, unless their interceptor is compiled."""
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
        self._once = once
        broker.topics.on_change.append(self._remove_topic)

    def _remove_topic(self, name: str, _topic: TopicConfig | None) -> None:
        self.table.unregister(name)

    def config_changed(self, keys: Collection[str]) -> None:
        """Pass all sends to the Python handler after a change that concerns topics."""
        if not {"brokerPermission", "rmq.onceWindowMs"}.isdisjoint(keys):
            self.table.unregister_all()

    def register_queue(self, name: str, config: TopicConfig, queue_id: int) -> None:
        """Let the compiled handlers serve later messages for this queue.

        Called for each message that the compiled handlers decline.
        """
        assert queue_id >= 0, f"no queue was chosen for {name}"
        if self.table.has_queue(name, queue_id) or queue_id >= config.write_queue_nums:
            return
        queue = self._queues.get(name, queue_id)
        if (
            (queue is not None and queue.is_batch)
            or config.is_compacted
            or name in self._mappings
            or not self._config.broker_permission & PERM_WRITE
            or is_retry_topic(name)
            or is_dlq_topic(name)
        ):
            return
        self.table.once = self._once.table
        self.table.register(
            name,
            added_flags(config),
            config.write_queue_nums,
            queue,
            once_window_ms=self._once.window_ms(name),
        )
