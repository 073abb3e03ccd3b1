"""QueueEnds: the end of each queue at the last clean shutdown, `config/queueEnds.json`.

Layout: {"logEnd": offset, "queueEnds": {topic: {queue id: next offset}}}.
Java has no such file and ignores it. The ends are lower bounds as long as the log is
not shorter. A queue with a smaller end has lost files, which the end of the log alone
would not prove. The deletion of a topic removes the file. Crash contract: absent, or
complete; see `rmq/core/files.py`.
"""

from pathlib import Path

import msgspec

from rmq.core.errors import RemoteProtocolError
from rmq.core.files import replace_file
from rmq.protocol import fastjson
from rmq.store.queues.consume_queues import ConsumeQueues

NAME = "queueEnds.json"


class QueueEnds(msgspec.Struct):
    """The ends at the last clean shutdown."""

    log_end: int = 0
    ends: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> "QueueEnds":
        """Read the file; no ends if it is absent or cannot be read."""
        try:
            value = fastjson.load_json((folder / NAME).read_bytes())
            ends = {
                (topic, int(queue_id)): int(end)
                for topic, queues in value["queueEnds"].items()
                for queue_id, end in queues.items()
            }
            return cls(int(value["logEnd"]), ends)
        except FileNotFoundError:
            return cls()
        except (RemoteProtocolError, KeyError, TypeError, ValueError, AttributeError):
            return cls()

    @staticmethod
    def save(folder: Path, queues: ConsumeQueues, log_end: int) -> None:
        """Write the ends of all queues, which are already durable."""
        assert log_end >= 0, log_end
        table: dict[str, dict[str, int]] = {}
        for queue in queues:
            table.setdefault(queue.topic, {})[str(queue.queue_id)] = queue.next_offset
        data = fastjson.dump_json({"logEnd": log_end, "queueEnds": table})
        replace_file(folder / NAME, data)

    @staticmethod
    def remove_file(folder: Path) -> None:
        """Remove the file: a queue may now have a smaller end."""
        (folder / NAME).unlink(missing_ok=True)

    def valid_ends(self, log_end: int) -> dict[tuple[str, int], int]:
        """Return the ends if they hold for a log with this end."""
        return self.ends if log_end >= self.log_end else {}

    def lagging_queues(
        self, queues: ConsumeQueues, log_end: int
    ) -> list[tuple[str, int, int]]:
        """Return (topic, queue id, end of its last record) of queues that lost entries.

        The end is -1 if the queue has no files.
        """
        found = []
        for (topic, queue_id), end in self.valid_ends(log_end).items():
            queue = queues.get(topic, queue_id)
            if queue is None:
                if end:
                    found.append((topic, queue_id, -1))
            elif queue.next_offset < end:
                found.append((topic, queue_id, queue.end_physical))
        return found
