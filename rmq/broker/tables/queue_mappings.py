"""QueueMappings: which topics of this broker are static, and the parts of their queues.

File: `config/topicQueueMapping.json`.  A mapping in the table is replaced, never
changed in place.  See `rmq/protocol/bodies/queue_mapping.py`.
"""

from pathlib import Path
from typing import Any, Final

import msgspec

from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.queue_mapping import (
    TopicQueueMappingDetail,
    TopicQueueMappingSerializeWrapper,
    wrong_mapping,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.topics import validate_topic

MAX_QUEUES: Final = 65_536
"""Limit of the ids of logical and physical queues of a topic, as in `updateTopic`."""

MAX_PARTS: Final = 250_000
"""Limit of parts of all mappings, about 200 bytes each: a request can have many."""

Mappings = dict[str, TopicQueueMappingDetail]


class QueueMappings(JsonTable):
    """Known in Java as `TopicQueueMappingManager`."""

    def __init__(self, folder: Path, clock: Clock, broker_name: str) -> None:
        super().__init__(folder / "topicQueueMapping.json", clock)
        self._broker_name = broker_name
        self._mappings: Final[Mappings] = {}
        self.get = self._mappings.get
        """Return the mapping of a topic or None; every send calls it."""

    def _read(self, value: dict[str, Any]) -> None:
        wrapper = TopicQueueMappingSerializeWrapper.from_value(value)
        for name, mapping in wrapper.topic_queue_mapping_info_map.items():
            validate_topic(name)
            self._check_mapping(name, mapping)
        self.data_version = wrapper.data_version
        self._mappings.update(wrapper.topic_queue_mapping_info_map)

    def _content(self) -> TopicQueueMappingSerializeWrapper:
        return TopicQueueMappingSerializeWrapper(
            data_version=self.data_version,
            topic_queue_mapping_info_map=self._mappings,
        )

    def __contains__(self, name: object) -> bool:
        """Return whether a topic is static here."""
        return name in self._mappings

    def __len__(self) -> int:
        """Return the number of static topics."""
        return len(self._mappings)

    def all(self) -> Mappings:
        """Return the mappings by topic."""
        return dict(self._mappings)

    def put(self, mapping: TopicQueueMappingDetail, *, force: bool = False) -> None:
        """Add or replace a mapping; a queue that the new mapping lacks keeps its parts.

        RequestRejected if it is for another broker, or if there are too many parts.
        RequestRejected if it contradicts the current mapping, unless `force` is set.
        """
        old = self._mappings.get(mapping.topic)
        self._check_mapping(mapping.topic, mapping)
        wrong = wrong_mapping(None if force else old, mapping)
        if wrong is not None:
            raise _error(wrong)
        if old is not None:
            mapping.hosted_queues = {**old.hosted_queues, **mapping.hosted_queues}
        parts = sum(map(_parts_of, self._mappings.values())) + _parts_of(mapping)
        if parts - (_parts_of(old) if old is not None else 0) > MAX_PARTS:
            raise _error(f"static topics would have more than {MAX_PARTS} parts")
        self._mappings[mapping.topic] = mapping
        self.touch()

    def _check_mapping(self, name: str, mapping: TopicQueueMappingDetail) -> None:
        """Refuse a mapping for another topic or broker, or with an illegal queue id."""
        if mapping.topic != name:
            raise _error(f"the mapping of topic {name} names topic {mapping.topic}")
        if mapping.bname != self._broker_name:
            raise _error(
                f"the mapping of topic {name} belongs to broker {mapping.bname}, not "
                f"to {self._broker_name}"
            )
        ids = {*mapping.hosted_queues, mapping.total_queues}
        for parts in mapping.hosted_queues.values():
            ids |= {part.queue_id for part in parts}
        if min(ids) < 0 or max(ids) > MAX_QUEUES:
            raise _error(
                f"the mapping of topic {name} has queue {max(ids, key=abs)}, allowed "
                f"are 0 to {MAX_QUEUES}"
            )

    def drop(self, name: str, queue_ids: set[int], *, first_part: bool) -> None:
        """Remove the first part of logical queues, or the queues."""
        old = self._mappings[name]
        hosted = {
            queue_id: parts[1:] if first_part and queue_id in queue_ids else parts
            for queue_id, parts in old.hosted_queues.items()
            if first_part or queue_id not in queue_ids
        }
        self._mappings[name] = msgspec.structs.replace(old, hosted_queues=hosted)
        self.touch()

    def delete(self, name: str) -> None:
        """Remove the mapping of a topic, if there is one."""
        if self._mappings.pop(name, None) is not None:
            self.touch()

    def copy(self, version: DataVersion, mappings: Mappings) -> set[str]:
        """Replace all mappings by the master's table; return the topics with a changed
        mapping.
        """
        if version == self.data_version:
            return set()
        for name, mapping in mappings.items():
            validate_topic(name)
            self._check_mapping(name, mapping)
        names = mappings.keys() | self._mappings.keys()
        changed = {n for n in names if mappings.get(n) != self._mappings.get(n)}
        self._mappings.clear()
        self._mappings.update(mappings)
        self.adopt_version(version)
        return changed


def _parts_of(mapping: TopicQueueMappingDetail) -> int:
    return sum(map(len, mapping.hosted_queues.values()))


def _error(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
