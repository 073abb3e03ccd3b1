"""DeletedTopics: which records belong to deleted topics, `config/deletedTopics.json`.

Layout: {"deletedTopics": {topic: end}, "before": {topic: end}}. The end is the end of
the log when the topic was deleted. `before` has the end of its previous deletion. Java
has no such file and ignores it; a start of Java may create such queues again. Recovery
makes no queue entries for records of the topic before that end. If the topic is created
again, its new records are after that end. A topic is removed from the file when the log
starts after its end.
Crash contract: see `rmq/core/files.py`; an acknowledged deletion is in the file. A
deletion in the file may be incomplete: if queues of the topic got entries later,
recovery revokes the deletion.
"""

import threading
from pathlib import Path

from rmq.core.errors import RemoteProtocolError
from rmq.core.files import replace_file
from rmq.core.offsets import PhysicalOffset
from rmq.protocol import fastjson

NAME = "deletedTopics.json"


class DeletedTopics:
    """The end of the log at the deletion of each topic; callers read `ends`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self.ends: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._writing = threading.Lock()

    def load(self) -> None:
        """Read the file; no topics if it is absent or cannot be read."""
        try:
            value = fastjson.load_json(self._path.read_bytes())
            self.ends, self._before = (
                {str(topic): int(end) for topic, end in ends.items()}
                for ends in (value["deletedTopics"], value.get("before", {}))
            )
        except FileNotFoundError:
            return
        except (RemoteProtocolError, KeyError, TypeError, ValueError, AttributeError):
            return

    def add(
        self, topics: set[str], *, end: PhysicalOffset, start: PhysicalOffset
    ) -> None:
        """Add deletions at the log's `end`; drop deletions before the log's `start`.

        It blocks; any thread may call it. OSError if the file cannot be written; then
        nothing changes.
        """
        assert start <= end, self._path
        with self._writing:
            known = {**self.ends, **dict.fromkeys(topics, end)}
            again = {topic: self.ends[topic] for topic in topics & self.ends.keys()}
            self._save(
                {topic: at for topic, at in known.items() if at > start},
                {**self._before, **again},
            )

    def revoke(self, topics: set[str]) -> None:
        """Remove the last deletion of each of `topics`; it blocks."""
        with self._writing:
            known = {
                topic: at for topic, at in self.ends.items() if topic not in topics
            }
            known |= {
                topic: at for topic, at in self._before.items() if topic in topics
            }
            kept = self._before.keys() - topics
            self._save(known, {topic: self._before[topic] for topic in kept})

    def lower(self, end: PhysicalOffset) -> None:
        """Lower the recorded ends to the log's new `end`; it blocks."""
        with self._writing:
            if any(at > end for at in self.ends.values()):
                self._save(
                    {topic: min(at, end) for topic, at in self.ends.items()},
                    {topic: min(at, end) for topic, at in self._before.items()},
                )

    def _save(self, ends: dict[str, int], before: dict[str, int]) -> None:
        before = {topic: at for topic, at in before.items() if topic in ends}
        value = {"deletedTopics": ends} | ({"before": before} if before else {})
        replace_file(self._path, fastjson.dump_json(value))
        self.ends, self._before = ends, before
