"""FilterTable: the SQL92 selector of each group for each topic.

File: `config/consumerFilter.json`. A selector is in use while its group is online.
After that it stays in the table for `filterDataCleanTimeSpan`: a group that returns
with the same version continues to use it.  After a load every group is offline until
its first heartbeat.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import field

from rmq.broker.quota import NamedQuota, peer_at
from rmq.config.broker import BrokerConfig
from rmq.config.json_table import JsonTable, encode_in_turns
from rmq.core.clock import Clock
from rmq.filters.bloom import bloom_positions, bloom_shape
from rmq.filters.sql import SelectorError, compile_selector
from rmq.filters.tags import is_tag_type
from rmq.protocol import fastjson
from rmq.protocol.bodies import Body
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.encoded_members import (
    FILE_LINE,
    PER_TURN,
    EncodedMembers,
    LargeObject,
)
from rmq.protocol.headers import I32, I64

MAX_FILTERS = 100_000
"""Maximum number of selectors: heartbeats add them, so any client can fill this table.
"""

DEAD_SINCE_LOAD_MS = 30_000
"""A load sets the time at which each group went offline to this long before the
load.
"""


class BloomFilterData(Body, kw_only=True):
    """Bits of `group#topic` in the bitmaps that Java may store."""

    bit_num: I32 = 0
    bit_pos: list[I32] = field(default_factory=list)


class ConsumerFilterData(Body, kw_only=True, gc=False):
    """A group's selector for a topic; it is dead if `dead_time` >= `born_time`."""

    consumer_group: str = ""
    topic: str = ""
    expression: str = ""
    expression_type: str = "SQL92"
    born_time: I64 = 0
    dead_time: I64 = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: I64 = 0

    @property
    def is_dead(self) -> bool:
        """Whether the group is offline, or has another subscription now."""
        return self.dead_time >= self.born_time


class TopicFilters(Body, kw_only=True):
    """The selectors of one topic by group."""

    topic: str = ""
    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)


class FilterWrapper(Body, kw_only=True):
    """The whole file."""

    filter_data_by_topic: dict[str, TopicFilters] = field(default_factory=dict)


_Groups = EncodedMembers[ConsumerFilterData]
"""The texts of the selectors of one topic, by group."""


class FilterTable(JsonTable):
    """Known in Java as `ConsumerFilterManager`."""

    def __init__(self, folder: Path, clock: Clock, config: BrokerConfig) -> None:
        super().__init__(folder / "consumerFilter.json", clock)
        self._shape = bloom_shape(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self._keep_ms = config.filter_data_clean_time_span_ms
        self._filters: dict[tuple[str, str], ConsumerFilterData] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._dead: dict[tuple[str, str], None] = {}
        """Dead selectors, in the order of their deaths."""

        self._groups_of: dict[str, _Groups] = {}
        self._long: set[str] = set()
        """Topics with more changed selectors than one turn encodes."""

        self._texts: LargeObject[tuple[str, _Groups]] = LargeObject(
            _encode_topic, _encode_topic
        )
        self._large = {"filterDataByTopic": self._texts}
        self._quota = NamedQuota(MAX_FILTERS, "selectors", "unsubscribe some first")
        self.on_change: list[Callable[[str], None]] = []
        """Callbacks that get a group after one of its selectors has changed."""

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return the selector of a group, dead or alive."""
        return self._filters.get((topic, group))

    def load(self) -> None:
        """Read the file; the quota counts its selectors for no peer."""
        super().load()
        self._quota.add("", len(self._filters))

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], client: str = ""
    ) -> None:
        """Apply a heartbeat; selectors of topics that it does not contain become dead.

        A new selector is not added if the table, or the quota of `client`, has no room.
        """
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic or "")
            if not is_tag_type(subscription.expression_type):
                self._register_one(group, subscription, peer_at(client))
        self._mark_dead(group, topics)

    def unregister(self, group: str) -> None:
        """Mark the selectors of a group without members as dead."""
        self._mark_dead(group, set())

    def _register_one(self, group: str, wanted: SubscriptionData, peer: str) -> None:
        topic, expression = wanted.topic or "", wanted.sub_string or ""
        key = topic, group
        known = self._filters.get(key)
        if known is not None and wanted.sub_version <= known.client_version:
            if wanted.sub_version == known.client_version and known.is_dead:
                known.dead_time = 0
                self._put(key, known)
                self.touch()
            return
        if known is None and not self._quota.has_room(peer):
            return
        try:
            compile_selector(expression)
        except SelectorError:
            if known is not None:
                self._remove_filter(key)
                self.touch()
            return
        if known is not None and known.expression == expression:
            known.client_version, known.dead_time = wanted.sub_version, 0
            self._put(key, known)
        else:
            positions = bloom_positions(f"{group}#{topic}", self._shape)
            data = ConsumerFilterData(
                consumer_group=group,
                topic=topic,
                expression=expression,
                expression_type=wanted.expression_type,
                born_time=self._clock.now_ms(),
                bloom_filter_data=BloomFilterData(
                    bit_num=self._shape.bits, bit_pos=positions
                ),
                client_version=wanted.sub_version,
            )
            if known is None:
                self._quota.add_entry(_name(key), peer)
            self._put(key, data)
        self.touch()

    def _mark_dead(self, group: str, topics: set[str]) -> None:
        for topic in self._topics_of.get(group, set()) - topics:
            known = self._filters[topic, group]
            if not known.is_dead:
                known.dead_time = max(known.born_time, self._clock.now_ms())
                assert known.is_dead, f"{group} still wants {topic}"
                self._put((topic, group), known)
                self.touch()

    def _read(self, value: dict[str, Any]) -> None:
        long_ago = self._clock.now_ms() - DEAD_SINCE_LOAD_MS
        for topic, filters in FilterWrapper.from_value(
            value
        ).filter_data_by_topic.items():
            for group, known in filters.group_filter_data.items():
                if not known.dead_time:
                    known.dead_time = max(long_ago, known.born_time)
                self._put((topic, group), known)
        self._dead = dict.fromkeys(
            sorted(self._dead, key=lambda key: self._filters[key].dead_time)
        )

    def _put(self, key: tuple[str, str], data: ConsumerFilterData) -> None:
        """Add a selector, or encode a changed selector again."""
        topic, group = key
        self._filters[key] = data
        self._report_change(group)
        self._topics_of.setdefault(group, set()).add(topic)
        self._dead.pop(key, None)
        if data.is_dead:
            self._dead[key] = None
        groups = self._groups_of.setdefault(topic, EncodedMembers(line=_GROUP_LINE))
        groups.put(group, data)
        self._texts.put(topic, (topic, groups))
        if groups.stale_count > PER_TURN:
            self._long.add(topic)

    def _report_change(self, group: str) -> None:
        for callback in self.on_change:
            callback(group)

    def _remove_filter(self, key: tuple[str, str]) -> None:
        if self._filters.pop(key, None) is None:
            return
        self._quota.remove_entry(_name(key))
        self._dead.pop(key, None)
        topic, group = key
        self._report_change(group)
        self._topics_of[group].discard(topic)
        if not self._topics_of[group]:
            del self._topics_of[group]
        groups = self._groups_of[topic]
        groups.remove(group)
        if not groups.is_empty:
            self._texts.put(topic, (topic, groups))
        else:
            del self._groups_of[topic]
            self._texts.remove(topic)

    async def _encode(self) -> None:
        """Encode for the file, without selectors that have been dead for long."""
        latest = self._clock.now_ms() - self._keep_ms
        while self._dead:
            key = next(iter(self._dead))
            if self._filters[key].dead_time > latest:
                break
            self._remove_filter(key)
        while self._long:
            groups = self._groups_of.get(self._long.pop())
            if groups is not None:
                await encode_in_turns(groups)
        await super()._encode()

    def _content(self) -> FilterWrapper:
        return FilterWrapper()


_GROUP_LINE = FILE_LINE + b"\t\t"


def _encode_topic(value: tuple[str, _Groups]) -> bytes:
    """Encode the selectors of a topic as in files."""
    topic, groups = value
    text = fastjson.dumps_part(TopicFilters(topic=topic), FILE_LINE)
    return b"".join(groups.fill(text, "groupFilterData"))


def _name(key: tuple[str, str]) -> str:
    """Return the name of an entry, topic and group, for the quota."""
    return "@".join(key)
