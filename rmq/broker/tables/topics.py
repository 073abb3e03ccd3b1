"""TopicTable: the topics and their settings.

With light message queues it is Java's `LmqTopicConfigManager`.
File: `config/topics.json`, and a `TopicJournal` with the latest changes.  A
configuration in the table is replaced, never changed in place, so that its encoded text
can be cached.  Every name is validated, also names from the file.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from rmq.broker.quota import NamedQuota, peer_at
from rmq.broker.tables.journal import TopicChange, TopicJournal
from rmq.config.broker import BrokerConfig
from rmq.config.json_table import JsonTable, T, encode_in_turns
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.core.threads import in_thread
from rmq.protocol import topics as names
from rmq.protocol.bodies.topics import TopicConfig, TopicConfigSerializeWrapper
from rmq.protocol.encoded_members import LargeObject
from rmq.protocol.flags import PERM_INHERIT, PERM_READ_WRITE

MAX_TOPICS = 200_000
"""Limit of topics: a send can create a topic, so any client can fill this table."""

MAX_RESTORED_QUEUES: Final = 65_536
"""Maximum number of queues that a restored topic gets: the limit of name servers.

A foreign store may have any queue id.
"""

ChangeListener = Callable[[str, TopicConfig | None], None]
"""Function that gets the name and the new configuration, None if the topic was deleted.
"""


class TopicTable(JsonTable):
    """Known in Java as `TopicConfigManager`."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        config: BrokerConfig,
        *,
        has_lmq: bool = False,
    ) -> None:
        """`has_lmq`: every light message queue exists, without an entry in the file."""
        super().__init__(folder / "topics.json", clock)
        self._config = config
        self._has_lmq = has_lmq
        self._topics: Final[dict[str, TopicConfig]] = {}
        self._texts: LargeObject[TopicConfig] = LargeObject()
        self._large = {"topicConfigTable": self._texts}
        self._quota = NamedQuota(MAX_TOPICS, "topics", "delete some first", clock)
        self._own = {topic.topic_name for topic in self._system_topics()}
        self.on_change: list[ChangeListener] = []
        self.get = self._get_or_lmq if has_lmq else self._topics.get
        """Return a topic or None; a method would take twice as long in every send.

        It is bound to the dictionary, which is never replaced.
        """

        self._journal = TopicJournal(folder)
        self._is_loaded = False
        self._saved = self._in_snapshot = 0
        """Counters of the version in the file, and of the version that a save is
        writing.
        """

        self._unsaved: dict[str, int] = {}
        """Counters of the changes that may not be in the file, by topic."""

        self._synced = 0
        """Counter up to which file and journal together are durable."""

        self._not_journaled = 0
        """Counter of the last change that the journal could not take."""

        self._syncing = trio.Lock()

    def _get_or_lmq(self, name: str) -> TopicConfig | None:
        """Return a topic, also the topic of a light message queue."""
        topic = self._topics.get(name)
        if topic is None and names.is_lmq(name) and names.is_queue_topic(name):
            return _topic(name, 1)
        return topic

    def load(self) -> None:
        """Read the file, and add later changes and the topics that every broker has."""
        super().load()
        self._saved = self._in_snapshot = self.data_version.counter
        self._repeat_changes()
        self._is_loaded = True
        for topic in self._system_topics():
            if topic.topic_name not in self._topics:
                self._put(topic.topic_name or "", topic)
                self.touch()
        self._quota.add("", len(self._topics))

    def _repeat_changes(self) -> None:
        """Apply the changes of the journal that are not in the file."""
        for change in self._journal.changes_after(self._saved):
            if change.topic is not None:
                self._put(change.topic.topic_name or "", change.topic)
            elif change.deleted in self._topics:
                self._remove(change.deleted)
            self.data_version = msgspec.structs.replace(
                self.data_version, counter=change.counter
            )
        if self.data_version.counter != self._saved:
            self.touch()

    def snapshot(self) -> list[bytes]:
        """Return the text to save in pieces, see `JsonTable`."""
        self._journal.begin_save()
        self._in_snapshot = self.data_version.counter
        self._unsaved = {n: c for n, c in self._unsaved.items() if c > self._saved}
        return super().snapshot()

    def write(self, pieces: Iterable[bytes]) -> None:
        """Save a text, see `JsonTable`."""
        super().write(pieces)
        before, self._saved = self._saved, self._in_snapshot
        self._journal.end_save(before)

    async def wait_saved(self, answer: T) -> T:
        """Return the answer to a change when the disk has its line of the journal.

        This costs the same with any number of topics; the file follows later.
        RequestRejected if neither can be written.
        """
        counter = self.data_version.counter
        async with self._syncing:
            if self._not_journaled > self._saved:
                return await super().wait_saved(answer)
            if max(self._synced, self._saved) >= counter:
                return answer
            reached = self.data_version.counter
            try:
                with trio.CancelScope(shield=True):
                    await in_thread(self._journal.sync)
            except OSError:
                return await super().wait_saved(answer)
            self._synced = reached
        return answer

    def _read(self, value: dict[str, Any]) -> None:
        wrapper = TopicConfigSerializeWrapper.from_value(value)
        for name in wrapper.topic_config_table:
            if name not in self._own:
                names.validate_topic(name)
        self.data_version = wrapper.data_version
        for name, topic in wrapper.topic_config_table.items():
            self._put(name, topic)

    def _put(self, name: str, topic: TopicConfig) -> None:
        self._topics[name] = topic
        self._texts.put(name, topic)

    def _remove(self, name: str) -> None:
        del self._topics[name]
        self._texts.remove(name)

    def _content(self) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(data_version=self.data_version)

    def _system_topics(self) -> list[TopicConfig]:
        config = self._config
        cluster, broker = config.broker_cluster_name, config.broker_name
        topics = [
            _topic(names.SELF_TEST_TOPIC, 1),
            _topic(names.BENCHMARK_TOPIC, 1024),
            _topic(cluster, 16, _permission_for(config.cluster_topic_enable)),
            _topic(broker, 1, _permission_for(config.broker_topic_enable)),
            _topic(names.OFFSET_MOVED_TOPIC, 1),
            _topic(names.SCHEDULE_TOPIC, 18),
            _topic(names.reply_topic(cluster), 1),
            _topic(names.revive_topic(cluster), 8),
            _topic(f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
            _topic(names.TRANS_HALF_TOPIC, 1),
            _topic(names.TRANS_OP_HALF_TOPIC, 1),
            _topic(names.ROCKSDB_TRANS_HALF_TOPIC, 1),
            _topic(names.ROCKSDB_TRANS_OP_HALF_TOPIC, 1),
            _topic(names.TIMER_TOPIC, 1),
        ]
        if config.auto_create_topic_enable:
            perm = PERM_READ_WRITE | PERM_INHERIT
            queues = config.default_topic_queue_nums
            topics.append(_topic(names.DEFAULT_TOPIC, queues, perm))
        if config.trace_topic_enable:
            topics.append(_topic(config.trace_topic_name, 1))
        return topics

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self._topics)

    def all(self) -> dict[str, TopicConfig]:
        """Return every topic by name."""
        return dict(self._topics)

    async def encode_all(self, limit: int) -> list[list[bytes]]:
        """Return all topics as members of JSON objects of up to `limit` topics each.

        See `EncodedMembers`.
        """
        await encode_in_turns(self._texts.in_request)
        return self._texts.in_request.text_parts(limit)

    def is_system(self, name: str) -> bool:
        """Return whether users may neither create nor delete the topic."""
        return name in self._own or names.is_system_topic(name)

    def update(
        self, topic: TopicConfig, client: str = "", *, always: bool = False
    ) -> bool:
        """Add or replace a topic; False if it is the same already, unless `always`.

        RequestRejected if there are too many topics, in all or of the client's host.
        `client` is the address of the client, empty for this broker and its tools.
        """
        name = topic.topic_name
        names.validate_topic(name)
        assert name is not None
        if self._has_lmq and names.is_lmq(name):
            return False
        if self._topics.get(name) == topic and not always:
            return False
        if name not in self._topics:
            self._quota.add_entry(name, peer_at(client))
        self._put(name, topic)
        self.touch()
        self._unsaved[name] = self.data_version.counter
        self._publish_change(name, topic)
        return True

    def is_unsaved(self, name: str) -> bool:
        """Return whether a power cut now could lose the last change of the topic."""
        return self._unsaved.get(name, 0) > max(self._saved, self._synced)

    def delete(self, name: str) -> bool:
        """Remove a topic; False if it does not exist."""
        if name not in self._topics:
            return False
        self._quota.remove_entry(name)
        self._remove(name)
        self.touch()
        self._unsaved.pop(name, None)
        self._publish_change(name, None)
        return True

    def copy(self, body: bytes) -> list[str]:
        """Replace all topics by the master's table in `body`; return the names of
        removed topics.

        RequestRejected if the table is not valid.
        """
        wrapper = TopicConfigSerializeWrapper.decode(body)
        theirs = wrapper.topic_config_table
        for name in theirs:
            if name not in self._own:
                names.validate_topic(name)
        if wrapper.data_version == self.data_version:
            return []
        gone = [name for name in self._topics if name not in theirs]
        gone = [name for name in gone if not self.is_system(name)]
        changed = {n: t for n, t in theirs.items() if self._topics.get(n) != t}
        for name in gone:
            self._quota.remove_entry(name)
            self._remove(name)
        for name, topic in changed.items():
            if name not in self._topics:
                self._quota.add_entry(name)
            self._put(name, topic)
        self._journal.clear()
        self._unsaved.clear()
        self.adopt_version(wrapper.data_version)
        for name in (*gone, *changed):
            for listener in self.on_change:
                listener(name, self._topics.get(name))
        return gone

    def _publish_change(self, name: str, topic: TopicConfig | None) -> None:
        """Write a change to the journal, and notify the callbacks."""
        if self._is_loaded:
            deleted = name if topic is None else None
            counter = self.data_version.counter
            change = TopicChange(counter=counter, topic=topic, deleted=deleted)
            if not self._journal.add(change):
                self._not_journaled = counter
        for listener in self.on_change:
            listener(name, topic)

    def ensure(
        self, name: str, *, queues: int, perm: int, sys_flag: int = 0, client: str = ""
    ) -> TopicConfig:
        """Return a topic that the broker needs; create it if it does not exist.

        `client` is the address of the client that causes this, see `update`.
        """
        topic = self._topics.get(name)
        if topic is None:
            topic = _topic(name, queues, perm)
            topic = msgspec.structs.replace(topic, topic_sys_flag=sys_flag)
            self.update(topic, client)
        return topic

    def add_queues(self, name: str, queues: int) -> None:
        """Raise the number of queues of an existing topic to at least `queues`."""
        topic = self._topics.get(name)
        if topic is not None:
            wider = msgspec.structs.replace(
                topic,
                read_queue_nums=max(topic.read_queue_nums, queues),
                write_queue_nums=max(topic.write_queue_nums, queues),
            )
            self.update(wider)

    def restore(self, name: str, queue_id: int) -> None:
        """Add a topic that has messages in the log, if the table lacks it.

        The last master may have created it shortly before its end.
        """
        is_other = names.is_lmq(name) or names.is_system_topic(name)
        if self._topics.get(name) is None and not is_other:
            queues = min(queue_id + 1, MAX_RESTORED_QUEUES)
            with suppress(RequestRejected):  # a topic beyond the limit has no route
                self.ensure(name, queues=queues, perm=PERM_READ_WRITE)

    def create_for_send(
        self, name: str, default_topic: str, default_queue_nums: int, client: str
    ) -> TopicConfig | None:
        """Create a topic like the default one; None if PERM_INHERIT forbids it."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        default = self._topics.get(default_topic)
        if default is None or not default.perm & PERM_INHERIT:
            return None
        is_standard = default_topic == names.DEFAULT_TOPIC
        if is_standard and not self._config.auto_create_topic_enable:
            return None
        queues = max(0, min(default_queue_nums, default.write_queue_nums))
        topic = msgspec.structs.replace(
            _topic(name, queues, default.perm & ~PERM_INHERIT),
            topic_filter_type=default.topic_filter_type,
        )
        self.update(topic, client)
        return topic


def _topic(name: str, queues: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
    return TopicConfig(
        topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
    )


def _permission_for(is_enabled: bool) -> int:
    return PERM_INHERIT | (PERM_READ_WRITE if is_enabled else 0)
