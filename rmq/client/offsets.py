"""OffsetStore: the consumed offsets of a broadcast group, by default in a file.

The file has Java's form, `{"offsetTable":{{queue}:offset}}`, and Java's path,
`~/.rocketmq_offsets/<client id>/<group>/offsets.json`. Brokers have the offsets of
other groups; see `group_offsets`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import field

from rmq.client.core.routes import MessageQueue
from rmq.core.files import replace_file
from rmq.protocol import fastjson
from rmq.protocol.bodies import Body
from rmq.protocol.bodies.common import MessageQueue as QueueName
from rmq.protocol.headers import I64


class OffsetStore(Protocol):
    """Stores the offsets of a broadcast group; Java's interface has the same name."""

    def load(self) -> Mapping[MessageQueue, int]:
        """Return all stored offsets."""

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the stored offsets."""


class _Table(Body, kw_only=True):
    offset_table: dict[QueueName, I64] = field(default_factory=dict)


class FileOffsets:
    """Offsets in a file, which is replaced as a whole; `LocalFileOffsetStore`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def load(self) -> dict[MessageQueue, int]:
        """Return the offsets of the file; none without a file."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        table = _Table.decode(data).offset_table
        return {
            MessageQueue(each.topic, each.broker_name, each.queue_id): offset
            for each, offset in table.items()
        }

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the file."""
        names = {
            QueueName(topic=topic, broker_name=broker, queue_id=queue_id): offset
            for (topic, broker, queue_id), offset in offsets.items()
        }
        replace_file(self.path, fastjson.dump_json({"offsetTable": names}))


def java_path(client_id: str, group: str) -> Path:
    """Return the path where Java's clients store the offsets of a group."""
    return Path.home() / ".rocketmq_offsets" / client_id / group / "offsets.json"
