"""Chords: the parts of a chord in the log, and which part calls the body.

The messages of a chord have its group as tag. These messages have the size of the
chord, a part for each finished task, and the call of the body. The first part with
which all tasks are there *completes* the chord, and its worker calls the body. The
order of the log decides, so exactly one part completes. If its worker dies before the
call, the broker delivers a task with a late ack again. The second part of this task
then calls the body.

A process keeps the state of each chord up to the last message that it has read, so the
next task reads only newer messages. The state has no results, because they may be
large. So the process that calls the body reads all parts again.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from rmq._fastpath.client.codec import PullResult, PullTemplate
from rmq.core.errors import RmqError
from rmq.integrations.forks import watch_forks
from rmq.integrations.result_log import ResultLog, decode_all
from rmq.integrations.sources import MAX_MESSAGES, READER_GROUP
from rmq.integrations.task_link import Refused, TaskLink
from rmq.integrations.topics import Topics
from rmq.protocol.codes import ResponseCode
from rmq.protocol.properties import TAGS

VISIBLE_S: Final = 10.0
"""Time limit until the messages before this process's part are visible: the broker
replicates them first.
"""

WAIT_S: Final = 0.01
MAX_CHORDS: Final = 100
"""Maximum number of chords whose state is kept; other chords are read from their start.
"""

_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)


class ChordPart(msgspec.Struct, array_like=True, tag="part"):
    """The result of one task of a chord's header."""

    index: int
    task_id: str
    state: str
    result: Any


class ChordSize(msgspec.Struct, array_like=True, tag="size"):
    """The number of tasks of a chord's header; stored before the last task is sent."""

    size: int


class ChordCall(msgspec.Struct, array_like=True, tag="call"):
    """The body was called."""


ChordMessage = ChordPart | ChordSize | ChordCall
_DECODER: Final = msgspec.json.Decoder(ChordMessage)


class ChordReading:
    """The state of a chord after the messages that one process has read, up to
    `next_offset`.
    """

    def __init__(self, start: int) -> None:
        self.lock = threading.Lock()
        self.next_offset = start
        self._completed_at: int | None = None
        self._completer = ""
        self._is_called = False
        self._size: int | None = None
        self._task_ids: set[str] = set()

    def add(self, offset: int, message: ChordMessage) -> None:
        """Add the next message."""
        self.next_offset = offset + 1
        if isinstance(message, ChordCall):
            self._is_called = True
        elif isinstance(message, ChordSize):
            self._size = message.size
        elif self._completed_at is None:
            self._task_ids.add(message.task_id)
            if self._size is not None and len(self._task_ids) >= self._size:
                self._completed_at, self._completer = offset, message.task_id
                self._task_ids.clear()

    def may_call(self, offset: int, task_id: str) -> bool:
        """Whether the part of a task at an offset calls the body.

        >>> reading = ChordReading(0)
        >>> parts = [ChordPart(0, each, "SUCCESS", 1) for each in "abb"]
        >>> for offset, message in enumerate([ChordSize(2), *parts]):
        ...     reading.add(offset, message)
        >>> reading.may_call(1, "a"), reading.may_call(2, "b"), reading.may_call(3, "b")
        (False, True, True)
        """
        if self._completed_at is None or offset < self._completed_at:
            return False
        is_again = task_id == self._completer and not self._is_called
        return offset == self._completed_at or is_again


class ChordLog:
    """The topic of all chords."""

    def __init__(self, link: TaskLink, topics: Topics, topic: str) -> None:
        self.topic = topic
        self._link = link
        self._topics = topics
        self._log = ResultLog(link, topics, topic)

    def end(self) -> int:
        """Return the offset at which the messages of the next chord begin."""
        self._topics.ensure(self.topic)
        return self._topics.end_of(self.topic)

    def store(self, group: str, message: ChordMessage) -> int:
        """Store a message of a chord; return its offset."""
        return self._log.store(group, _ENCODER.encode(message), {TAGS: group})

    def read(
        self, group: str, start: int, last: int
    ) -> Iterator[tuple[int, ChordMessage]]:
        """Yield the offsets and the messages of a chord up to an offset.

        RmqError if the message at `last` does not become visible.
        """
        template = PullTemplate(READER_GROUP, self.topic, 0, expression=group)
        at, end_s = start, time.monotonic() + VISIBLE_S
        while at <= last:
            answer = self._link.pull(template, offset=at, count=MAX_MESSAGES)
            if not isinstance(answer, PullResult):
                what = f"cannot read the parts of the chord {group}"
                raise Refused(self._link.address, answer, what, "")
            if answer.code == ResponseCode.SUCCESS:
                for message in decode_all(answer.body, self.topic):
                    if message.tags == group and at <= message.queue_offset <= last:
                        yield message.queue_offset, _DECODER.decode(message.body)
            if answer.next_offset > at:
                at, end_s = answer.next_offset, time.monotonic() + VISIBLE_S
            elif time.monotonic() < end_s:
                time.sleep(WAIT_S)
            else:
                raise RmqError(
                    f"the part at offset {last} of the chord {group} is not visible "
                    f"after {VISIBLE_S:.0f} s: the body is not called"
                )


class ChordReadings:
    """The states of the chords that one process reads; threads share them."""

    def __init__(self) -> None:
        self.on_fork()
        watch_forks(self)

    def on_fork(self) -> None:
        """Begin without readings."""
        self._lock = threading.Lock()
        self._readings: OrderedDict[tuple[str, int], ChordReading] = OrderedDict()

    def read(self, log: ChordLog, group: str, start: int, last: int) -> ChordReading:
        """Return the state of a chord, at least up to an offset.

        A frozen chord that is applied again has the same group and a later start.
        """
        with self._lock:
            reading = self._readings.pop((group, start), None) or ChordReading(start)
            self._readings[group, start] = reading
            if len(self._readings) > MAX_CHORDS:
                self._readings.popitem(last=False)
        with reading.lock:
            for offset, message in log.read(group, reading.next_offset, last):
                reading.add(offset, message)
            reading.next_offset = max(reading.next_offset, last + 1)
        return reading
