"""Compiled pulls: `PullPath` serves the pulls after a first one in Python.

The Python handler makes every check of the first pull and then registers a view of
group, topic and subscription. If this pull has to wait, it waits in the compiled path.
A change of the topic, group or subscription removes the view, and so does a reset of
the group's offset. A change of the configuration or of rights removes all views, so
that Python checks the held pulls again.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from rmq.plugin import BrokerContext, QueueOffset
from rmq.plugin.native import PullPath, PullTable, PullView
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import WIRE_VERSION
from rmq.protocol.command import Command
from rmq.protocol.flags import PULL_SUBSCRIPTION
from rmq.protocol.frames import encode
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq_plugins.consume.pull.broadcast import BroadcastOffsets
from rmq_plugins.consume.pull.checks import PullPlan
from rmq_plugins.consume.view_counts import count_views

VIEW_LIMIT = 65_536
"""Maximum number of views, about a KiB each; above it each new view evicts another."""

MAX_INSTRUCTIONS: Final = 256
"""Limit of the selector of a view: 32 bytes each. Python runs longer ones."""

ViewKey = tuple[str, str, str | None, bool]
"""Group, topic, expression of the request, and whether the expression is SQL92."""


class NativePulls:
    """The views of the compiled handler, which serves both pull codes."""

    def __init__(
        self,
        broker: BrokerContext,
        on_work: Callable[[], object],
        broadcasts: BroadcastOffsets,
    ) -> None:
        self._broadcasts = broadcasts
        broadcasts.on_proxy = self._remove_group
        self._messages = broker.messages
        self._queues = broker.queues
        self._topics = broker.topics
        self._mappings = broker.queue_mappings
        self._consumers = broker.consumers
        self._filters = broker.filters
        self._statistics = broker.statistics
        self.table: PullTable = broker.messages.pull_table(
            version=WIRE_VERSION, commits=broker.offsets.commit_table, on_work=on_work
        )
        self._counted = 0
        """Number of the messages from `table` that `broker.statistics` has counted."""

        broker.statistics.uncounted.append(lambda: self.table.messages - self._counted)
        self.path = PullPath(self.table)
        self._views: dict[ViewKey, PullView] = {}
        broker.statistics.sources.append(
            partial(count_views, self._views, self._count_served)
        )
        self._by_topic: dict[str, set[ViewKey]] = {}
        self._by_group: dict[str, set[ViewKey]] = {}
        broker.topics.on_change.append(self._remove_topic)
        broker.groups.on_change.append(self._remove_group)
        broker.consumers.on_change.append(self._remove_group)
        broker.filters.on_change.append(self._remove_group)
        broker.offsets.on_reset.append(self._remove_group)
        broker.rights.on_change.append(self.remove_all)

    def register_view(
        self, header: PullMessageRequestHeader, plan: PullPlan
    ) -> PullView | None:
        """Let the compiled path serve pulls like this one; None if it cannot.

        The pull found messages or the end of its queue. The method runs for each pull
        that the compiled path declines.
        """
        selector = plan.filter.selector
        if plan.filter.predicate is not None and (
            selector is None or selector.size > MAX_INSTRUCTIONS
        ):
            return None
        if header.topic in self._mappings:
            return None
        if self._messages.is_compacted(header.topic):
            return None
        if self._broadcasts.has_proxies(header.consumer_group, header.topic):
            return None
        expression, sub_version = None, 0
        if header.sys_flag & PULL_SUBSCRIPTION:
            expression = header.subscription or ""
        else:
            subscription = self._consumers.subscription(
                header.consumer_group, header.topic
            )
            if subscription is None or subscription.sub_version < header.sub_version:
                return None
            sub_version = subscription.sub_version
            if selector is not None:
                known = self._filters.get(header.topic, header.consumer_group)
                assert known is not None, "the pull was checked"
                sub_version = min(sub_version, known.client_version)
        is_sql = expression is not None and selector is not None
        key = header.consumer_group, header.topic, expression, is_sql
        queue_key = header.topic, header.queue_id
        queue = self._queues.get(*queue_key)
        if queue is not None and queue.is_batch:
            return None
        view = self._views.get(key)
        if view is None:
            view = self._add_view(key, plan, sub_version)
        if view is None or queue is None:
            return None
        offset = QueueOffset(header.queue_offset)
        source = self._messages.entries_at(*queue_key, offset)
        view.register(queue, None if source is None else source[1])
        return view

    def hold_pull(
        self, view: PullView, request: Command, header: PullMessageRequestHeader,
        token: int,
    ) -> bool:  # fmt: skip
        """Hold a pull at the end of its queue in the compiled path; False if full."""
        return self.path.hold_pull(
            view,
            token,
            encode(request),
            opaque=request.opaque,
            serialize_type=request.serialize_type,
            queue_id=header.queue_id,
            offset=header.queue_offset,
            max_messages=header.max_msg_nums,
            max_bytes=header.max_msg_bytes or 0,
            suspend_ms=header.suspend_timeout_millis,
        )

    def _add_view(
        self, key: ViewKey, plan: PullPlan, sub_version: int
    ) -> PullView | None:
        group, topic, expression, _ = key
        config = self._topics.get(topic)
        if config is None:
            return None
        if len(self._views) >= VIEW_LIMIT:
            view = self.table.pick_victim()
            assert view is not None, "the table has the same views"
            is_sql = view.expression is not None and view.selector is not None
            self._remove_view((view.group, view.topic, view.expression, is_sql))
        view = self._views[key] = PullView(
            group,
            topic,
            expression,
            sub_version=sub_version,
            tag_codes=plan.filter.tag_codes,
            selector=plan.filter.selector,
            flags={
                "topicSysFlag": str(plan.topic_sys_flag),
                "groupSysFlag": str(plan.group_sys_flag),
            },
        )
        self.table.add(view)
        self._by_topic.setdefault(topic, set()).add(key)
        self._by_group.setdefault(group, set()).add(key)
        return view

    def remove_all(self) -> None:
        """Remove all views: the next pulls go to the Python handler."""
        for key in list(self._views):
            self._remove_view(key)

    def _remove_view(self, key: ViewKey) -> None:
        view = self._views.pop(key)
        self._count_served(view)
        self.table.remove(view)
        for keys, name in ((self._by_group, key[0]), (self._by_topic, key[1])):
            keys[name].discard(key)
            if not keys[name]:
                del keys[name]

    def _remove_topic(self, name: str, _topic: TopicConfig | None) -> None:
        for key in list(self._by_topic.get(name, ())):
            self._remove_view(key)

    def _remove_group(self, name: str) -> None:
        for key in list(self._by_group.get(name, ())):
            self._remove_view(key)

    def _count_served(self, view: PullView) -> None:
        for queue_id, *served in view.take_served():
            self._counted += served[1]
            self._statistics.count_get(view.group, view.topic, queue_id, *served)
            *_, next_offset, token = served
            self._broadcasts.record_served(
                view.group, view.topic, queue_id, next_offset, token
            )
