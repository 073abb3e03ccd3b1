"""LocalCommits: offsets that consumers committed at a slave, until its master has them.

While the master is away consumers read from a slave, and commit there. When the master
is back it has older offsets: a consumer that starts now would get these messages again.
So after each copy of the master's offsets the slave commits its larger offsets at the
master. A Java master accepts them, too; a Java slave forwards nothing.
File: `config/commitsHere.json`, {"commitsHere": {topic@group: {queue id: offset}}},
saved every few seconds: a slave may restart while its master is away.
"""

import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from rmq.cluster.directory import Ask
from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.core.logs import Foreign
from rmq.core.offsets import QueueOffset
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.encoded_members import LargeObject
from rmq.protocol.headers import I32, I64

logger = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 3_000
FORWARD_LIMIT = 10_000
"""Number of offsets that are sent after one copy; further offsets wait for the next
copy.
"""


class LocalCommits(JsonTable):
    """Offsets that the master may not have.

    Each offset is in the table of offsets, too, so the limits of that table are enough.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder / "commitsHere.json", clock)
        self._offsets: dict[str, dict[int, int]] = {}
        self._texts: LargeObject[dict[int, int]] = LargeObject()
        self._large = {"commitsHere": self._texts}

    def _read(self, value: dict[str, Any]) -> None:
        try:
            found = msgspec.convert(
                value.get("commitsHere") or {}, dict[str, dict[I32, I64]], strict=False
            )
        except msgspec.ValidationError as error:
            raise RequestRejected(1, f"commitsHere: {error}") from error
        for key, queues in found.items():
            self._offsets[key] = queues
            self._texts.put(key, queues)

    def remove_all(self) -> None:
        """Forget all commits, and remove the file: a master needs neither."""
        self.remove_keys(list(self._offsets))
        self._path.unlink(missing_ok=True)

    def _content(self) -> dict[str, object]:
        return {"commitsHere": {}}

    def record(self, key: str, queue_id: int, offset: QueueOffset) -> None:
        """Remember a consumer's commit in a queue of `key`, "topic@group"."""
        queues = self._offsets.setdefault(key, {})
        queues[queue_id] = offset
        self._texts.put(key, queues)
        self.changed.set()

    def drop_up_to(self, key: str, queue_id: int, offset: QueueOffset) -> bool:
        """Forget a commit that is not larger than the master's `offset`.

        Return whether a larger commit remains.
        """
        queues = self._offsets.get(key)
        if queues is None or queue_id not in queues:
            return False
        if queues[queue_id] > offset:
            return True
        self._remove_commit(key, queue_id)
        return False

    def _remove_commit(self, key: str, queue_id: int) -> None:
        queues = self._offsets[key]
        del queues[queue_id]
        self._texts.put(key, queues)
        if not queues:
            del self._offsets[key]
            self._texts.remove(key)
        self.changed.set()

    def remove_keys(self, keys: list[str]) -> None:
        """Forget pairs of topic and group that have no offsets any more."""
        for key in keys:
            for queue_id in list(self._offsets.get(key, ())):
                self._remove_commit(key, queue_id)

    def _all_commits(self) -> Iterator[tuple[str, int, int]]:
        for key, queues in self._offsets.items():
            for queue_id, offset in queues.items():
                yield key, queue_id, offset

    async def forward_commits(self, ask: Ask, master: str) -> None:
        """Send the commits to the master, right after the slave has copied the master's
        offsets.

        PeerError if the master does not answer; a later call then sends the other
        offsets.
        """
        given, refusal = 0, ""
        for key, queue_id, offset in list(islice(self._all_commits(), FORWARD_LIMIT)):
            topic, _, group = key.partition("@")
            fields = {
                "consumerGroup": group,
                "topic": topic,
                "queueId": str(queue_id),
                "commitOffset": str(offset),
            }
            request = Command(int(RequestCode.UPDATE_CONSUMER_OFFSET), fields)
            answer = await ask(master, request, ASK_TIMEOUT_MS)
            self.drop_up_to(key, queue_id, QueueOffset(offset))
            if answer.code == ResponseCode.SUCCESS:
                given += 1
            else:
                refusal = f"{key} queue {queue_id}: {answer.code} {answer.remark}"
        if given:
            logger.warning(
                "sent %d offsets that consumers committed here to the master %s",
                given,
                Foreign(master),
            )
        if refusal:
            logger.warning(
                "the master %s refused offsets: %s", master, Foreign(refusal)
            )
