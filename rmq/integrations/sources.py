"""Sources: the topics that a channel reads for a queue.

A `PopSource` reads a durable queue as a group: it waits for a notification, then pops
as many messages as the channel may have. It sends no POP that waits, because such a POP
could receive messages while the worker stops. A `PullSource` reads for a queue of this
process from a cursor, and needs no acks.

`begin_next` begins the next request of a source, if there is none. A source pauses
after a refusal, and after POPs without a message that a notification had announced.
"""

import logging
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from rmq._fastpath.client.codec import PullResult, PullTemplate
from rmq._fastpath.client.messages import ReceivedMessage, decode_messages
from rmq.client.core.leases import Lease
from rmq.client.core.pop import PopResult
from rmq.core.logs import Foreign, SparseLog
from rmq.integrations.settling import Settler
from rmq.integrations.task_link import Callback, TaskLink
from rmq.outgoing.connection import date_ms
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.compression import open_body
from rmq.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rmq.protocol.properties import POP_CK, UNIQ_KEY

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

HOLD_MS: Final = 15_000
LATEST_ANSWER_S: Final = HOLD_MS / 1_000 + 10
"""The connection is dead if a request has no answer in this time."""

MAX_MESSAGES: Final = 32
"""Maximum number of messages of one POP or pull; brokers refuse more."""

GATHER_S: Final = 0.01
"""Pause between two POPs while less than half of the prefetch is free: a POP for each
single task would cost more than the tasks.
"""

FIRST_PAUSE_S: Final = 0.005
LONGEST_PAUSE_S: Final = 2.0
READER_GROUP: Final = "rmq-tasks-reader"
"""The group in pulls for queues of a process; it commits no offsets."""

_EMPTY: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.POLLING_FULL,
    ResponseCode.POLLING_TIMEOUT,
)
_PULLED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class Reader(Protocol):
    """The channel that reads."""

    link: TaskLink
    settler: Settler
    visibility_s: float

    @property
    def prefetch_count(self) -> int:
        """The limit of unacknowledged messages; 0 for no limit."""

    def count_free(self) -> int:
        """Return the number of messages that may be requested now."""

    def take_popped(
        self, source: "PopSource", message: ReceivedMessage, lease: Lease
    ) -> None:
        """Deliver a popped message, or settle it."""

    def take_pulled(self, source: "Source", messages: list[ReceivedMessage]) -> None:
        """Deliver pulled messages, or drop them."""


class Source:
    """A topic that is read for a queue.

    `tags` are the tags to read, empty for all; the routing key must match one of the
    `patterns`, if there are any.
    """

    def __init__(
        self,
        reader: Reader,
        queue: str,
        topic: str,
        tags: frozenset[str] = frozenset(),
        patterns: Sequence[str] = (),
    ) -> None:
        self.queue = queue
        self.topic = topic
        self.tags = tags
        self.asked = 0
        """Maximum number of messages in the answer to the current request."""

        self.is_busy = False
        self.pause_until_s = 0.0
        self._is_answered = False
        """Whether the answer has arrived, and waits for the owner."""

        self._reader = reader
        self._expression = " || ".join(sorted(tags)) or "*"
        self._patterns = [re.compile(each) for each in patterns]
        self._begun_s = 0.0
        self._failures = 0

    def begin_next(self, now_s: float) -> None:
        """Begin the next request, if it is time."""
        raise NotImplementedError

    def on_lost(self) -> None:
        """Forget the request under way, unless its answer waits for the owner."""
        self.pause_until_s = 0.0
        if not (self._is_answered and self._reader.link.has_arrived):
            self._end()

    def is_overdue(self, now_s: float) -> bool:
        """Whether the connection is dead, because an answer is overdue."""
        return self.is_busy and now_s > self._begun_s + LATEST_ANSWER_S

    def matches(self, routing_key: str, tag: str) -> bool:
        """Whether a message is for this queue. Brokers compare only hashes of tags."""
        if self.tags and tag not in self.tags:
            return False
        return not self._patterns or any(p.match(routing_key) for p in self._patterns)

    def _begin(self, now_s: float, asked: int, begin: Callable[[], None]) -> None:
        """Begin a request; PeerError without a connection, and then the state does not
        change.

        Another thread that loses the connection waits for the lock.
        """
        with self._reader.link.lock:
            begin()
            self.is_busy, self.asked, self._begun_s = True, asked, now_s

    def _receive(self, callback: Callback, answer: object) -> None:
        """Let the owner handle an answer."""
        self._is_answered = True
        self._reader.link.call_soon(callback, answer)

    def _end(self) -> None:
        self._is_answered = self.is_busy = False
        self.asked = 0

    def _pause(self) -> None:
        """Pause; each pause in a row is twice as long."""
        pause_s = min(FIRST_PAUSE_S * 2**self._failures, LONGEST_PAUSE_S)
        self.pause_until_s = time.monotonic() + pause_s
        self._failures = min(self._failures + 1, 16)

    def _on_refusal(self, code: int, remark: str | None) -> None:
        logger.warning(
            "cannot read topic %s for queue %s: the broker answers %d: %s",
            self.topic, self.queue, code, Foreign(remark or ""),
        )  # fmt: skip
        self._pause()

    def _decode(self, body: bytes) -> list[ReceivedMessage]:
        return decode_messages(
            body,
            self.topic,
            None,
            inflate=open_body,
            queue_of=lambda number: number,
            on_damage=lambda reason, _: logger.warning(
                "topic %s: a message is skipped: %s", self.topic, Foreign(reason)
            ),
        )


class PopSource(Source):
    """A topic that is popped as a group."""

    def __init__(
        self,
        reader: Reader,
        queue: str,
        topic: str,
        group: str,
        tags: frozenset[str] = frozenset(),
        patterns: Sequence[str] = (),
    ) -> None:
        super().__init__(reader, queue, topic, tags, patterns)
        self.group = group
        self._is_hot = True
        """Whether there may be messages now."""

        self._is_notified = False
        """Whether a notification announced the messages of the next POP."""

    def on_lost(self) -> None:
        """Forget the request under way; look for messages at once."""
        super().on_lost()
        self._is_hot = True

    def begin_next(self, now_s: float) -> None:
        """Pop as many messages as the channel may have; without messages wait for a
        notification.
        """
        if self.is_busy or now_s < self.pause_until_s:
            return
        free = self._reader.count_free()
        if free <= 0:
            return
        if not self._is_hot:
            self._begin(now_s, 0, self._begin_notification)
            return
        is_little = free < self._reader.prefetch_count // 2
        if is_little and now_s < self._begun_s + GATHER_S:
            self.pause_until_s = self._begun_s + GATHER_S
            return
        count = min(free, MAX_MESSAGES)
        self._begin(now_s, count, partial(self._begin_pop, count))

    def pop_one(self) -> bool:
        """Pop one message, and wait for the answer; return whether there was a
        message.
        """
        self._begun_s = time.monotonic()
        return self._deliver_all(self._reader.link.request(self._pop(1)))[0] > 0

    def _begin_pop(self, count: int) -> None:
        self._reader.link.begin(self._pop(count), self._receive_popped)
        self._reader.settler.pops_under_way += 1

    def _receive_popped(self, answer: Command) -> None:
        """Let the owner handle the answer to a POP."""
        self._reader.settler.pops_answered += 1
        self._receive(self._on_popped, answer)

    def _begin_notification(self) -> None:
        header = NotificationRequestHeader(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=-1,
            poll_time=HOLD_MS,
            born_time=date_ms(),
            exp_type="TAG",
            exp=self._expression,
        )
        command = Command.request(RequestCode.NOTIFICATION, header)
        received = partial(self._receive, self._on_notification)
        self._reader.link.begin(command, received)

    def _pop(self, count: int) -> Command:
        header = PopMessageRequestHeader(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=-1,
            max_msg_nums=count,
            invisible_time=int(self._reader.visibility_s * 1_000),
            poll_time=0,
            born_time=date_ms(),
            init_mode=0,
            exp_type="TAG",
            exp=self._expression,
        )
        return Command.request(RequestCode.POP_MESSAGE, header)

    def _on_notification(self, answer: Command) -> None:
        self._end()
        if answer.code == ResponseCode.SUCCESS:
            header = answer.header(NotificationResponseHeader)
            self._is_hot = self._is_notified = header.has_msg
            if header.polling_full:
                self._pause()
        else:
            self._on_refusal(answer.code, answer.remark)

    def _on_popped(self, answer: Command) -> None:
        self._end()
        was_notified, self._is_notified = self._is_notified, False
        count, rest = self._deliver_all(answer)
        settler = self._reader.settler
        with self._reader.link.lock:
            settler.pops_under_way -= 1
            settler.pops_answered -= 1
        self._is_hot = count > 0 and rest > 0
        if count:
            self._failures = 0
        elif was_notified:
            self._pause()

    def _deliver_all(self, answer: Command) -> tuple[int, int]:
        """Pass on the messages of an answer.

        Returns their number, and the number of messages that remain at the broker; a
        notification reports later messages.
        """
        if answer.code in _EMPTY:
            return 0, 0
        if answer.code != ResponseCode.SUCCESS:
            self._on_refusal(answer.code, answer.remark)
            return 0, 0
        reader = self._reader
        header = answer.header(PopMessageResponseHeader)
        result = PopResult(header, reader.link.broker)
        messages = self._decode(answer.body)
        expires_s = self._begun_s + reader.visibility_s
        for message in messages:
            is_retry = message.reconsume_times > 0
            queue_id: Any = message.queue
            try:
                handle = result.handle_of(
                    queue_id,
                    message.queue_offset,
                    is_retry=is_retry,
                    checkpoint=message.properties.get(POP_CK) if is_retry else None,
                )
            except ValueError as error:
                logger.warning(
                    "topic %s: the message at offset %d is skipped: %s",
                    self.topic, message.queue_offset, Foreign(error),
                )  # fmt: skip
                continue
            msg_id = message.properties.get(UNIQ_KEY) or message.offset_msg_id
            lease = Lease("", msg_id, self.topic, self.group, handle, expires_s)
            reader.take_popped(self, message, lease)
        return len(messages), header.rest_num


class PullSource(Source):
    """A topic that is pulled from a cursor, `cursors[topic]`."""

    def __init__(
        self,
        reader: Reader,
        queue: str,
        topic: str,
        cursors: dict[str, int],
        tags: frozenset[str] = frozenset(),
        patterns: Sequence[str] = (),
    ) -> None:
        super().__init__(reader, queue, topic, tags, patterns)
        self._cursors = cursors
        self._template = PullTemplate(
            READER_GROUP, topic, 0, expression=self._expression
        )

    def begin_next(self, now_s: float) -> None:
        """Pull; the broker holds the request until there is a message."""
        if self.is_busy or now_s < self.pause_until_s:
            return
        free = self._reader.count_free()
        if free <= 0:
            return
        count = min(free, MAX_MESSAGES)
        begin = partial(
            self._reader.link.begin_pull,
            self._template,
            partial(self._receive, self._on_pulled),
            offset=self._cursors[self.topic],
            count=count,
            hold_ms=HOLD_MS,
        )
        self._begin(now_s, count, begin)

    def pull_all(self) -> None:
        """Take the messages that are there, and wait for the answers."""
        while True:
            answer = self._reader.link.pull(
                self._template, offset=self._cursors[self.topic], count=MAX_MESSAGES
            )
            if not self._deliver_all(answer) or answer.code != ResponseCode.SUCCESS:
                return

    def _on_pulled(self, answer: PullResult | Command) -> None:
        self._end()
        if self._deliver_all(answer):
            self._failures = 0

    def _deliver_all(self, answer: PullResult | Command) -> bool:
        """Pass on the messages of an answer; False if the broker refuses the pull."""
        if isinstance(answer, Command) or answer.code not in _PULLED:
            self._on_refusal(answer.code, answer.remark)
            return False
        self._cursors[self.topic] = answer.next_offset
        if answer.code == ResponseCode.SUCCESS:
            self._reader.take_pulled(self, self._decode(answer.body))
        return True
