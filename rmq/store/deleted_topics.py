"""DeletedTopics: which records belong to a topic that was deleted,
`config/deletedTopics.json`.

Layout: {"deletedTopics": {topic: end of the log when it was deleted}}.
Java knows no such file and leaves it alone; its own starts may bring such queues back.
Records of the topic before that offset get no queue entries in recovery; a topic made
again begins behind it.  An entry is dropped once the log starts behind it.
Crash contract: see `rmq/files.py`; a deletion that was answered is in the file.
"""

from pathlib import Path

from rmq.errors import RemoteProtocolError
from rmq.files import replace_file
from rmq.protocol import fastjson

NAME = "deletedTopics.json"


class DeletedTopics:
    """The end of the log at the deletion, by topic; `ends` is for reading."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self.ends: dict[str, int] = {}

    def load(self) -> None:
        """Read the file; one that is absent or unreadable knows nothing."""
        try:
            value = fastjson.loads(self._path.read_bytes())
            self.ends = {
                str(topic): int(end) for topic, end in value["deletedTopics"].items()
            }
        except FileNotFoundError:
            return
        except (RemoteProtocolError, KeyError, TypeError, ValueError, AttributeError):
            return

    def add(self, topics: set[str], *, end: int, start: int) -> None:
        """Note deletions at the log's `end`; forget those before its `start`."""
        assert start <= end, self._path
        known = {**self.ends, **dict.fromkeys(topics, end)}
        self.ends = {topic: at for topic, at in known.items() if at > start}
        replace_file(self._path, fastjson.dumps({"deletedTopics": self.ends}))
