"""Compiled POPs: `PopPath` serves the POPs after a first one in Python.

The Python handler makes every check of the first POP and then registers a view of
group, topic and filter. The view has the queues of the topic and of the group's retry
topics, with the group's positions. The handler registers the position in a queue when
it has popped the queue. A change of a topic or the group removes the view, and so does
a reset of the group's offset. A change of the configuration or of rights removes all
views.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from rmq.plugin import BrokerContext, QueueOffset
from rmq.plugin.native import NotificationPath, PopPath, PopQueue, PopTopic, PopView
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.headers.pop import (
    NotificationRequestHeader,
    PopMessageRequestHeader,
)
from rmq.protocol.topics import pop_retry_topic
from rmq_plugins.consume.filters import MessageFilter
from rmq_plugins.consume.pop.checkpoints import Checkpoints
from rmq_plugins.consume.view_counts import count_views

VIEW_LIMIT: Final = 16_384
"""Maximum number of views, whose filter clients choose.

Above it each new view evicts another.
"""

ViewKey = tuple[str, str, str, str]


class NativePops:
    """The views of the compiled handler of POPs."""

    def __init__(
        self,
        broker: BrokerContext,
        checkpoints: Checkpoints,
        path: PopPath,
        notices: NotificationPath,
    ) -> None:
        self._checkpoints = checkpoints
        self._config = broker.config
        self._messages = broker.messages
        self._offsets = broker.offsets
        self._poll_soon = broker.poll_soon
        self._queues = broker.queues
        self._topics = broker.topics
        self._views: dict[ViewKey, PopView] = {}
        self._by_name: dict[str, set[ViewKey]] = {}
        """Views by the names of groups, topics and retry topics."""

        self.path = path
        self.notices = notices
        self.table = path.table
        self._statistics = broker.statistics
        broker.statistics.sources.append(
            partial(count_views, self._views, self._count_served)
        )
        broker.statistics.uncounted.append(lambda: self.table.uncounted)
        broker.topics.on_change.append(self._remove_topic)
        broker.groups.on_change.append(self._remove_name)
        broker.offsets.on_reset.append(self._remove_name)
        broker.rights.on_change.append(self.remove_all)

    def find_view(
        self,
        header: PopMessageRequestHeader | NotificationRequestHeader,
        wanted: MessageFilter,
        retry_topics: Mapping[str, int],
        priority: int,
    ) -> PopView | None:
        """Return the view of POPs like this one; None if Python has to serve them."""
        config = self._config
        if (
            not self.path.is_used
            or header.order
            or wanted.predicate is not None
            or config.enable_pop_message_threshold
            or not self._checkpoints.is_buffered
        ):
            return None
        key = (
            header.consumer_group, header.topic, header.exp_type or "", header.exp or ""
        )  # fmt: skip
        view = self._views.get(key)
        if view is None or not view.is_current:
            view = self._add_view(key, wanted, retry_topics, priority)
        return view

    def _add_view(
        self,
        key: ViewKey,
        wanted: MessageFilter,
        retry_topics: Mapping[str, int],
        priority: int,
    ) -> PopView | None:
        group, topic, *_ = key
        own = self._build_topic(group, topic, wanted.tag_codes)
        if own is None or any(map(self._is_special, (topic, *retry_topics))):
            return None
        if self._offsets.live_queues(group, topic) is None:
            return None
        if key in self._views:
            self._remove_view(key)
        if len(self._views) >= VIEW_LIMIT:
            victim = self.table.pick_victim()
            assert victim is not None, "the table has the same views"
            self._remove_view(victim.key)
        retries = (
            self._build_topic(group, name, None, flag)
            for name, flag in retry_topics.items()
        )
        config = self._config
        view = PopView(
            key,
            own,
            tuple(filter(None, retries)),
            priority=priority,
            chance=config.pop_from_retry_probability,
            priority_chance=config.pop_from_retry_probability_for_priority,
            shows_retry_topic=config.pop_response_return_actual_retry_topic,
        )
        self.table.is_reversed = self._config.priority_order_asc
        self.table.add(view)
        self._views[key] = view
        for name in _names_of(key):
            self._by_name.setdefault(name, set()).add(key)
        return view

    def _build_topic(
        self,
        group: str,
        name: str,
        tag_codes: tuple[int, ...] | None,
        flag: int = 0,
    ) -> PopTopic | None:
        """Return a topic with all its queues; None if it does not exist."""
        config = self._topics.get(name)
        if config is None:
            return None
        topic = PopTopic(
            group,
            name,
            queue_count=config.read_queue_nums,
            tag_codes=tag_codes,
            committed=self._offsets.live_queues(group, name),
            flag=flag,
            tails=self._queues.tails,
        )
        for queue in self._queues.of_topic(name):
            if queue.queue_id < config.read_queue_nums:
                position = self._checkpoints.find_queue(name, group, queue.queue_id)
                topic.register(queue.queue_id, position, (queue, None))
        return topic

    def _is_special(self, topic: str) -> bool:
        """Whether the queues of a topic have entries that compiled code does not
        read.
        """
        is_batch = any(queue.is_batch for queue in self._queues.of_topic(topic))
        return is_batch or self._messages.is_compacted(topic)

    def register_queue(self, view: PopView, queue: PopQueue) -> None:
        """Let compiled POPs read a queue that a POP of the view has read."""
        topic = view.topic_of(queue.topic)
        if topic is None:
            return
        topic.committed = self._offsets.live_queues(queue.group, queue.topic)
        where = queue.topic, queue.queue_id
        source = self._messages.entries_at(*where, QueueOffset(queue.next_offset))
        topic.register(queue.queue_id, queue, source)

    # -- requests that wait in compiled code

    def wake_waiting(self, topic: str, group: str) -> None:
        """Let the next poll look for messages for the requests that wait."""
        for view in self._views_of(topic, group):
            self.path.wake(view)
        self._take_turn()

    def report_arrivals(self, topics: Iterable[str]) -> None:
        """Let the next poll look for the new messages of topics and retry topics."""
        for name in topics:
            for key in self._by_name.get(name, ()):
                self.path.report_arrival(self._views[key])
                self.notices.report_arrival(self._views[key])
        self._take_turn()

    def _take_turn(self) -> None:
        if self.path.held.wants_turn or self.notices.held.wants_turn:
            self._poll_soon()

    def count_all(self) -> int:
        """Return the number of POPs that wait in compiled code."""
        return self.path.held.waiting

    def count_pops(self, key: tuple[str, str, int]) -> int:
        """Return the number of POPs of a topic, group and queue that wait there."""
        topic, group, queue_id = key
        if not self.path.held.waiting:
            return 0
        views = self._views_of(topic, group)
        return sum(self.path.count_waiting(view, queue_id) for view in views)

    def set_others(self, count: int) -> None:
        """Set the number of requests that wait in Python."""
        self.path.held.others = count

    def count_notices(self, topic: str, group: str) -> int:
        """Return the number of notifications that wait in compiled code."""
        return sum(map(self.notices.count_waiting, self._views_of(topic, group)))

    def _views_of(self, topic: str, group: str) -> list[PopView]:
        keys = min(self._by_name.get(topic, ()), self._by_name.get(group, ()), key=len)
        return [self._views[key] for key in keys if key[:2] == (group, topic)]

    def remove_all(self) -> None:
        """Remove all views: the next POPs go to the Python handler."""
        for key in list(self._views):
            self._remove_view(key)

    def _remove_view(self, key: ViewKey) -> None:
        view = self._views.pop(key)
        self._count_served(view)
        self.table.remove(view)
        for name in _names_of(key):
            self._by_name[name].discard(key)
            if not self._by_name[name]:
                del self._by_name[name]

    def _count_served(self, view: PopView) -> None:
        for topic, queue_id, reads, messages, *more in view.take_served():
            self.table.uncounted -= messages
            self._statistics.count_get(
                view.key[0], topic, queue_id, reads, messages, *more
            )

    def _remove_topic(self, name: str, _topic: TopicConfig | None) -> None:
        self._remove_name(name)

    def _remove_name(self, name: str) -> None:
        for key in list(self._by_name.get(name, ())):
            self._remove_view(key)


def _names_of(key: ViewKey) -> set[str]:
    """Return the group and the topics whose changes remove a view."""
    group, topic, *_ = key
    retries = (pop_retry_topic(topic, group, version) for version in (1, 2))
    return {group, topic, *retries}
