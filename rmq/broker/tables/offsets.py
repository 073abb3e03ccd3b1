"""OffsetTable: the committed offsets of each group in each queue.

With light message queues it is Java's `LmqConsumerOffsetManager`.
File: `config/consumerOffset.json`; with `enableLmq` `config/lmqConsumerOffset.json`.
It is saved every few seconds: after a crash, consumers read the messages of the last
seconds again. Entries of unknown groups and topics stay, because other parts of a Java
store save their progress here. Names with a separator are no groups, so lists of groups
do not contain them: see `broadcast_group`.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq.broker.quota import NamedQuota, Quota, peer_at
from rmq.cluster.local_commits import LocalCommits
from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.core.files import replace_file
from rmq.core.offsets import QueueOffset
from rmq.protocol.bodies.queues import LmqOffsetSerializeWrapper
from rmq.protocol.encoded_members import FILE_LINE, LargeObject
from rmq.protocol.headers import I32, I64
from rmq.protocol.topics import broadcast_group, is_lmq

FILE = "consumerOffset.json"
LMQ_FILE = "lmqConsumerOffset.json"
SEPARATOR = "@"
MAX_ENTRIES = 1_000_000
"""Maximum number of pairs of topic and group; a commit can add one."""

MAX_OFFSETS = 4_000_000
"""Maximum number of queues of all pairs together; any client can commit."""

_ADVICE = "delete groups or topics that are not used any more"


class OffsetTable(JsonTable):
    """Known in Java as `ConsumerOffsetManager`."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        version_step: int,
        *,
        has_lmq: bool = False,
        local_commits: LocalCommits | None = None,
    ) -> None:
        """`has_lmq`: the table has another file, as in Java, and groups of light
        message queues have one offset in each topic.
        """
        super().__init__(folder / (LMQ_FILE if has_lmq else FILE), clock)
        self.has_lmq = has_lmq
        self._plain_path = folder / FILE
        self._offsets: dict[str, dict[int, int]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        self._groups_of: dict[str, list[str]] = {}
        self._texts: LargeObject[dict[int, int]] = LargeObject(
            _encode_for_file, _encode
        )
        self._lmq_texts: LargeObject[dict[int, int]] = LargeObject(
            _encode_single, _encode_single
        )
        self._large = {"offsetTable": self._texts}
        if has_lmq:
            self._large["lmqOffsetTable"] = self._lmq_texts
        self._resets: dict[tuple[str, str, int], int] = {}
        self.on_reset: list[Callable[[str], None]] = []
        self.pop_progress: Callable[[str, str, int], int] | None = None
        """Returns the offset of the next message that a group pops, or -1."""

        self.commit_table = CommitTable(self._commit_all)
        self._version_step = version_step
        self.local_commits = local_commits
        """The commits at this slave that its master may not have; None on a master."""

        self._commits = 0
        self._quota = NamedQuota(
            MAX_ENTRIES, "pairs of topic and group with offsets", _ADVICE
        )
        self._queue_quota = Quota(MAX_OFFSETS, "queues with offsets of groups", _ADVICE)

    def load(self) -> None:
        """Read the file of light message queues; if it is missing, the other file."""
        if self.has_lmq and not self._path.exists() and self._plain_path.exists():
            replace_file(self._path, self._plain_path.read_bytes())
        super().load()

    def _texts_of(self, key: str) -> LargeObject[dict[int, int]]:
        """Return the object of the file that has the text of a pair."""
        is_one = self.has_lmq and is_lmq(key.partition(SEPARATOR)[2])
        return self._lmq_texts if is_one else self._texts

    def _queue_of(self, group: str, queue_id: int) -> int:
        """Return the id of the queue in the table."""
        return 0 if self.has_lmq and is_lmq(group) else queue_id

    def _read(self, value: dict[str, Any]) -> None:
        try:
            table = msgspec.convert(
                value.get("offsetTable") or {}, _OffsetsByKey, strict=False
            )
            only = msgspec.convert(
                value.get("lmqOffsetTable") or {}, dict[str, I64], strict=False
            )
            version = value.get("dataVersion") or {}
            self.data_version = type(self.data_version).from_value(version)
        except msgspec.ValidationError as error:
            raise RequestRejected(1, f"offsetTable: {error}") from error
        table |= {key: {0: offset} for key, offset in only.items()}
        for key, queues in table.items():
            self._add(key, queues)
            self._texts_of(key).put(key, queues)
        self._quota.add("", len(table))
        self._queue_quota.add("", sum(map(len, table.values())))

    def _add(self, key: str, queues: dict[int, int]) -> None:
        """Add a pair of topic and group."""
        topic, _, group = key.partition(SEPARATOR)
        self._offsets[key] = queues
        self._topics_of.setdefault(group, {})[topic] = None
        self._groups_of.setdefault(topic, []).append(group)

    def _content(self) -> dict[str, object]:
        empty: dict[str, object] = {name: {} for name in self._large}
        return {"dataVersion": self.data_version, **empty}

    def commit(
        self, client: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Set an offset, which may be lower than before; `client` is for the log."""
        key = f"{topic}{SEPARATOR}{group}"
        queue_id = self._queue_of(group, queue_id)
        self._set(client, key, queue_id, offset)
        if self.local_commits is not None:
            self.local_commits.record(key, queue_id, QueueOffset(offset))

    def _set(self, client: str, key: str, queue_id: int, offset: int) -> None:
        queues = self._offsets.get(key)
        if queues is None or queue_id not in queues:
            queues = self._make_room(key, peer_at(client))
        queues[queue_id] = offset
        self._texts_of(key).put(key, queues)
        self.changed.set()
        self._commits += 1
        if self._commits % self._version_step == 0:
            self.touch()

    def _commit_all(self, commits: list[tuple[str, str, int, int]]) -> None:
        """Set offsets from compiled handlers; a full table drops new pairs."""
        for group, topic, queue_id, offset in commits:
            with suppress(RequestRejected):
                self.commit("a pull", group, topic, queue_id, offset)

    def _make_room(self, key: str, peer: str) -> dict[int, int]:
        """Return the offsets of a pair; RequestRejected without room for a queue."""
        queues = self._offsets.get(key)
        if queues is not None:
            self._queue_quota.reserve(self._quota.creator_of(key))
            return queues
        self._queue_quota.check_room(peer)
        self._quota.add_entry(key, peer)
        self._queue_quota.add(peer, 1)
        queues = {}
        self._add(key, queues)
        return queues

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset that the group's consumers must use.

        Until a consumer of the group has received this offset by a pull, commits of the
        group have no effect.
        """
        self.commit("a reset", group, topic, queue_id, offset)
        self._resets[group, topic, queue_id] = offset
        self.commit_table.unregister_all()
        for listener in self.on_reset:
            listener(group)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a reset waits for a pull."""
        return bool(self._resets) and (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return and remove the offset of a reset, to send it to a consumer."""
        if not self._resets:
            return None
        return self._resets.pop((group, topic, queue_id), None)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset, -1 if there is none."""
        queues = self._offsets.get(f"{topic}{SEPARATOR}{group}")
        if queues is None:
            return -1
        return queues.get(self._queue_of(group, queue_id), -1)

    def next_offset_of(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset of the next message for a group, -1 if it has no offset.

        This is the committed offset, or for a group that pops the offset after the last
        popped message. The group may not have acked all messages before.
        """
        committed = self.query(group, topic, queue_id)
        if self.pop_progress is None:
            return committed
        return max(committed, self.pop_progress(group, topic, queue_id))

    def live_queues(self, group: str, topic: str) -> dict[int, int] | None:
        """Return the table's own offsets by queue id, for compiled code.

        Each commit changes the returned table, until the topic or the group is removed.
        None without an offset, and for a group with only one offset in the topic.
        """
        if self.has_lmq and is_lmq(group):
            return None
        return self._offsets.get(f"{topic}{SEPARATOR}{group}")

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets by queue id."""
        return dict(self._offsets.get(f"{topic}{SEPARATOR}{group}", {}))

    def group_names(self) -> list[str]:
        """Return the groups that have offsets."""
        return [group for group in self._topics_of if SEPARATOR not in group]

    def has_offset(self, group: str, topic: str) -> bool:
        """Return whether a group has offsets in a topic."""
        return f"{topic}{SEPARATOR}{group}" in self._offsets

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""
        return list(self._topics_of.get(group, ()))

    def topic_count(self, group: str) -> int:
        """Return the number of topics in which a group has offsets."""
        return len(self._topics_of.get(group, ()))

    def group_count(self, topic: str) -> int:
        """Return the number of groups with offsets in a topic."""
        return len(self._groups_of.get(topic, ()))

    def topics_by_group(self) -> dict[str, list[str]]:
        """Return the topics in which each group has offsets."""
        return {group: list(topics) for group, topics in self._topics_of.items()}

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in a topic."""
        return [
            group for group in self._groups_of.get(topic, ()) if SEPARATOR not in group
        ]

    def clone(self, source: str, target: str, topic: str) -> bool:
        """Copy the offsets of one group to another; False if there are none."""
        queues = self.queues(source, topic)
        for queue_id, offset in queues.items():
            self.commit("a clone", target, topic, queue_id, offset)
        return bool(queues)

    def raise_to(self, body: bytes) -> None:
        """Raise offsets to the larger ones of a slave that acted as the master.

        Nothing changes if the slave's table is older than this one. RequestRejected if
        the body is not valid.
        """
        document = LmqOffsetSerializeWrapper.decode(body)
        if document.data_version.counter < self.data_version.counter:
            return
        for key, queues in document.all_offsets().items():
            ours = self._offsets.get(key, {})
            for queue_id, offset in queues.items():
                if offset > ours.get(queue_id, -1):
                    self._set("the acting master", key, queue_id, offset)

    def copy(self, body: bytes, local_commits: LocalCommits | None = None) -> None:
        """Copy the master's offsets from `body`; RequestRejected if the body is not
        valid.

        A larger offset that was committed here stays: consumers used this slave while
        the master was away.  On a new master, `local_commits` has such commits.
        Offsets that the master lacks stay, too, as in Java.
        """
        document = LmqOffsetSerializeWrapper.decode(body)
        here = self.local_commits if local_commits is None else local_commits
        has_changed = False
        for key, queues in document.all_offsets().items():
            ours = self._offsets.get(key, {})
            for queue_id, offset in queues.items():
                if here is not None and here.drop_up_to(
                    key, queue_id, QueueOffset(offset)
                ):
                    continue
                if ours.get(queue_id, -1) == offset:
                    continue
                self._set("the master", key, queue_id, offset)
                has_changed = True
        if has_changed:
            self.commit_table.unregister_all()
            self.adopt_version(document.data_version)

    def clip(self, end_of: Callable[[str, int], int | None]) -> int:
        """Lower offsets that are beyond the end of their queue; return their number.

        The log has lost its last messages. New messages get the same offsets, and a
        group with a larger offset would skip them. `end_of` returns None for a queue
        that does not exist.
        """
        count = 0
        for key, queues in self._offsets.items():
            topic, _, _ = key.partition(SEPARATOR)
            beyond = {
                queue_id: end
                for queue_id, offset in queues.items()
                if (end := end_of(topic, queue_id)) is not None and offset > end
            }
            if beyond:
                queues |= beyond
                self._texts_of(key).put(key, queues)
                if self.local_commits is not None:
                    self.local_commits.remove_keys([key])
                count += len(beyond)
        if count:
            self.commit_table.unregister_all()
            self.touch()
        return count

    def all(self) -> dict[str, dict[int, int]]:
        """Return every offset by `topic@group` and queue id."""
        return {key: dict(queues) for key, queues in self._offsets.items()}

    @property
    def pair_count(self) -> int:
        """The number of pairs of topic and group."""
        return len(self._offsets)

    def pairs(self, limit: int) -> list[tuple[str, str]]:
        """Return topic and group of up to `limit` entries."""
        return list(islice(self._pairs(), limit))

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for key in self._offsets:
            topic, _, group = key.partition(SEPARATOR)
            if SEPARATOR not in group:
                yield topic, group

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets of a topic."""
        self._resets = {k: v for k, v in self._resets.items() if k[1] != topic}
        self._remove([(topic, group) for group in self._groups_of.get(topic, ())])

    def remove_group(self, group: str) -> None:
        """Remove the offsets of a group."""
        self._resets = {k: v for k, v in self._resets.items() if k[0] != group}
        self._remove(
            [
                (topic, name)
                for name in (group, broadcast_group(group))
                for topic in self.topics_of(name)
            ]
        )

    def _remove(self, pairs: list[tuple[str, str]]) -> None:
        self.commit_table.unregister_all()
        if self.local_commits is not None:
            self.local_commits.remove_keys(
                [f"{topic}{SEPARATOR}{group}" for topic, group in pairs]
            )
        for topic, group in pairs:
            key = f"{topic}{SEPARATOR}{group}"
            queues = self._offsets.pop(key)
            self._queue_quota.give_back(self._quota.creator_of(key), len(queues))
            self._quota.remove_entry(key)
            del self._topics_of[group][topic]
            if not self._topics_of[group]:
                del self._topics_of[group]
            self._groups_of[topic].remove(group)
            if not self._groups_of[topic]:
                del self._groups_of[topic]
            self._texts_of(key).remove(key)
        if pairs:
            self.touch()


_OffsetsByKey = dict[str, dict[I32, I64]]

_write_object = msgspec.json.Encoder().encode


def _encode_single(queues: dict[int, int]) -> bytes:
    """Encode the single offset of a group of light message queues."""
    return b"%d" % queues.get(0, max(queues.values()))


def _encode(queues: dict[int, int]) -> bytes:
    """Encode the offsets of queues for an answer, sorted by queue id."""
    return _write_object(dict(sorted(queues.items())))


def _encode_for_file(queues: dict[int, int]) -> bytes:
    """Encode the offsets of queues for the file: one line per queue, sorted as text."""
    if not queues:
        return b"{}"
    inner = FILE_LINE + b"\t"
    lines = sorted(b'"%d":%d' % pair for pair in queues.items())
    return b"{" + inner + (b"," + inner).join(lines) + FILE_LINE + b"}"
