"""Compiled `CONSUMER_SEND_MSG_BACK`: `SendBackPath` serves it after a first message.

The Python handler makes every check of a group's first message. Then it registers the
group, and the queue from which the message came. A change of the group, or of its retry
topic or dead-letter topic, removes the group. A change of the broker's permission
removes all groups.
"""

import random
from collections import Counter
from typing import Final

from rmq.plugin import BrokerContext
from rmq.plugin.native import SendBackPath
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import WIRE_VERSION
from rmq.protocol.records import StoredMessage
from rmq.protocol.topics import DLQ_PREFIX, RETRY_PREFIX, dlq_topic

MAX_SOURCES: Final = 8_192
"""Maximum number of queues; above it, all queues and groups are registered again."""


class NativeSendBack:
    """The groups and queues of the compiled handler."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._queues = broker.queues
        self._statistics = broker.statistics
        self._path: SendBackPath | None = None

    def create_path(self) -> SendBackPath:
        """Return the compiled handler; `send_table` of the broker comes first."""
        self._path = self._broker.put.send_back_path(
            choose_queue=choose_queue, on_stored=self._count, version=WIRE_VERSION
        )
        self._broker.topics.on_change.append(self._remove_topic)
        self._broker.groups.on_change.append(self._path.unregister_group)
        return self._path

    def register(
        self,
        name: str,
        group: SubscriptionGroupConfig,
        retry: TopicConfig,
        record: StoredMessage,
    ) -> None:
        """Let compiled code serve later messages of a group and of a record's queue."""
        path = self._path
        source = self._queues.get(record.topic, record.queue_id)
        if path is None or source is None or source.is_batch:
            return
        if len(path) >= MAX_SOURCES:
            path.unregister_all()
        path.register_source(source)
        dead = self._queues.get(dlq_topic(name), 0)
        path.register_group(
            name,
            retry.topic_name or "",
            queue_count=retry_queue_count(group, retry),
            limit=group.retry_max_times,
            dead_letters=None if dead is None or dead.is_batch else dead,
        )

    def remove_all(self) -> None:
        """Leave the next message of each group to Python."""
        if self._path is not None:
            self._path.unregister_all()

    def _remove_topic(self, name: str, _topic: TopicConfig | None) -> None:
        assert self._path is not None, "create_path() has made it"
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if name.startswith(prefix):
                self._path.unregister_group(name.removeprefix(prefix))

    def _count(self, messages: list[tuple[str, str, bool]]) -> None:
        for (group, topic, is_dead), times in Counter(messages).items():
            self._statistics.count_send_back(group, topic, is_dead=is_dead, times=times)


def retry_queue_count(group: SubscriptionGroupConfig, retry: TopicConfig) -> int:
    """Return the number of used queues of the retry topic; the group's number may be
    larger.
    """
    queues = min(group.retry_queue_nums, retry.read_queue_nums, retry.write_queue_nums)
    return max(1, queues)


def choose_queue(count: int) -> int:
    """Return the id of a random queue, below `count`."""
    return random.randrange(count) if count > 1 else 0
