"""OffsetTable: how far each group has come in each queue.

Kept in `config/consumerOffset.json`, saved every few seconds: a crash makes consumers
read the last moments again.  Entries of unknown groups and topics stay: other parts of
a Java store keep their progress here.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rmq.clock import Clock
from rmq.errors import RequestRejected
from rmq.json_table import JsonTable

SEPARATOR = "@"
MAX_ENTRIES = 1_000_000
"""Pairs of topic and group; a commit can add one."""

MAX_OFFSETS = 4_000_000
"""Queues of all pairs together: strangers can commit too."""


class OffsetTable(JsonTable):
    """Known in Java as `ConsumerOffsetManager`."""

    def __init__(self, folder: Path, clock: Clock, version_step: int) -> None:
        super().__init__(folder / "consumerOffset.json", clock)
        self._offsets: dict[str, dict[int, int]] = {}
        self._resets: dict[tuple[str, str, int], int] = {}
        self.on_reset: list[Callable[[str], None]] = []
        self._version_step = version_step
        self._commits = 0
        self._count = 0

    def _read(self, value: dict[str, Any]) -> None:
        try:
            table = {
                key: {int(queue_id): int(offset) for queue_id, offset in queues.items()}
                for key, queues in (value.get("offsetTable") or {}).items()
            }
            version = value.get("dataVersion") or {}
            self.data_version = type(self.data_version).from_value(version)
        except (AttributeError, TypeError, ValueError) as error:
            raise RequestRejected(1, f"offsetTable: {error}") from error
        self._offsets.update(table)
        self._count = sum(map(len, self._offsets.values()))

    def _content(self) -> dict[str, object]:
        return {
            "dataVersion": self.data_version,
            "offsetTable": {
                key: {str(queue_id): offset for queue_id, offset in queues.items()}
                for key, queues in self._offsets.items()
            },
        }

    def commit(
        self, client: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Store an offset; going backwards is allowed, `client` is for the log."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._offsets.get(key)
        if queues is None:
            if len(self._offsets) >= MAX_ENTRIES:
                raise RequestRejected(
                    1, f"{client}: {MAX_ENTRIES} pairs of topic and group have offsets"
                )
            queues = self._offsets[key] = {}
        if queue_id not in queues:
            if self._count >= MAX_OFFSETS:
                raise RequestRejected(
                    1, f"{client}: {MAX_OFFSETS} queues have offsets of some group"
                )
            self._count += 1
        queues[queue_id] = offset
        self.changed.set()
        self._commits += 1
        if self._commits % self._version_step == 0:
            self.touch()

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset that the group's consumers must take over.

        Until one of them pulls and is told, their own commits do not count.
        """
        self.commit("a reset", group, topic, queue_id, offset)
        self._resets[group, topic, queue_id] = offset
        for listener in self.on_reset:
            listener(group)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a reset waits for a pull."""
        return bool(self._resets) and (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a reset once, to tell a consumer."""
        if not self._resets:
            return None
        return self._resets.pop((group, topic, queue_id), None)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset, -1 if there is none."""
        queues = self._offsets.get(f"{topic}{SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets by queue id."""
        return dict(self._offsets.get(f"{topic}{SEPARATOR}{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""
        return [topic for topic, name in self._pairs() if name == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in a topic."""
        return [group for name, group in self._pairs() if name == topic]

    def clone(self, source: str, target: str, topic: str) -> bool:
        """Give one group the offsets of another; False if that has none."""
        queues = self.queues(source, topic)
        for queue_id, offset in queues.items():
            self.commit("a clone", target, topic, queue_id, offset)
        return bool(queues)

    def all(self) -> dict[str, dict[int, int]]:
        """Return every offset by `topic@group` and queue id."""
        return {key: dict(queues) for key, queues in self._offsets.items()}

    def pairs(self, limit: int) -> list[tuple[str, str]]:
        """Return topic and group of up to `limit` entries."""
        return list(islice(self._pairs(), limit))

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for key in self._offsets:
            topic, _, group = key.partition(SEPARATOR)
            yield topic, group

    def remove_topic(self, topic: str) -> None:
        """Forget the offsets of a topic."""
        self._resets = {k: v for k, v in self._resets.items() if k[1] != topic}
        self._remove(lambda key: key.partition(SEPARATOR)[0] == topic)

    def remove_group(self, group: str) -> None:
        """Forget the offsets of a group."""
        self._resets = {k: v for k, v in self._resets.items() if k[0] != group}
        self._remove(lambda key: key.partition(SEPARATOR)[2] == group)

    def _remove(self, is_meant: Any) -> None:  # noqa: ANN401 - a predicate on keys
        keys = [key for key in self._offsets if is_meant(key)]
        for key in keys:
            self._count -= len(self._offsets.pop(key))
        if keys:
            self.touch()
