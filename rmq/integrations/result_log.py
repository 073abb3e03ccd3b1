"""ResultLog: results of tasks as messages of one topic, found by their keys.

The last message with a key counts. A result expires with its file of the log. The
index of keys is some milliseconds late.
"""

from typing import Final

from rmq._fastpath.client.messages import (
    ReceivedMessage,
    SendResult,
    decode_messages,
)
from rmq.integrations.task_link import Refused, TaskLink
from rmq.integrations.topics import Topics
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.compression import open_body
from rmq.protocol.headers.query import QueryMessageRequestHeader
from rmq.protocol.properties import KEYS

MAX_VERSIONS: Final = 32
"""Maximum number of messages of one key that `find` reads."""

FOREVER: Final = 1 << 62


class ResultLog:
    """The results in one topic with one queue."""

    def __init__(self, link: TaskLink, topics: Topics, topic: str) -> None:
        self.topic = topic
        self._link = link
        self._topics = topics

    def store(self, key: str, body: bytes, properties: dict[str, str]) -> int:
        """Store a message; return its offset. Refused if the broker refuses it."""
        self._topics.ensure(self.topic)
        answer = self._link.send(self.topic, 0, body, {KEYS: key, **properties})
        if not isinstance(answer, SendResult):
            what = f"cannot store the result {key}"
            raise Refused(self._link.address, answer, what, "")
        return answer.queue_offset

    def find(self, key: str) -> ReceivedMessage | None:
        """Return the last message with a key; None without one."""
        header = QueryMessageRequestHeader(
            topic=self.topic,
            key=key,
            max_num=MAX_VERSIONS,
            begin_timestamp=0,
            end_timestamp=FOREVER,
        )
        command = Command.request(RequestCode.QUERY_MESSAGE, header)
        answer = self._link.request(command)
        if answer.code != ResponseCode.SUCCESS:
            return None
        found = [
            each for each in decode_all(answer.body, self.topic) if key in each.keys
        ]
        return max(found, key=lambda each: each.queue_offset, default=None)


def decode_all(body: bytes, topic: str) -> list[ReceivedMessage]:
    """Return the messages of an answer; `queue` is the number of the queue."""
    return decode_messages(
        body, topic, None, inflate=open_body, queue_of=lambda number: number
    )
