"""TopicReader: reads the messages of a topic as they come, for `rmq consume`.

A `Consumer` fetches them, as a member of a group or without one. Queues and start
offsets are looked up first, and an error there ends the command. Later the reader waits
for a broker that stops.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

import anyio
import click

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.cli.consume import BROWSE_GROUP
from rmq.cli.end_signals import run_until_ended
from rmq.cli.failures import explain_no_topic
from rmq.cli.terminal.text import escape_controls
from rmq.cli.tool_settings import ToolSettings
from rmq.client import Client, Consumer, MessageQueue
from rmq.client.admin import AdminClient, Queue
from rmq.client.subscription import Sql, Start
from rmq.core.errors import PeerError, RmqError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.topics import is_retry_topic, validate_topic

NEWEST_COUNT: Final = 10
FETCH_MESSAGES: Final = 32
AHEAD_MESSAGES: Final = 1_000
TOPIC_POLL_S: Final = 0.2
"""Interval of checks for a topic that does not exist yet."""

POLL_S: Final = 0.05
"""Pause between two checks for the end, while no message comes."""

Write = Callable[[ReceivedMessage], None]
Take = Callable[[ReceivedMessage], bool]
"""Function that handles a message; True if no further message is needed."""


class Choice(NamedTuple):
    """Queues, filter, start and end of the reading."""

    topic: str
    expression: str | Sql
    group: str | None
    begin: str | int | None
    """Start: `first`, `last` or a time in milliseconds; None for the newest messages.
    """

    queue_id: int | None
    offset: int | None
    stops_at_end: bool


class TopicReader:
    """Reads a topic for one command."""

    def __init__(
        self, settings: ToolSettings, admin: AdminClient, choice: Choice
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._topic = choice.topic
        self._expression = choice.expression
        self._choice = choice
        self._is_away = False
        self._ends: dict[MessageQueue, int] = {}
        """End offset of each queue at the start of the reader, if the reader stops
        there.
        """

    def run(self, write: Write, count: int | None) -> None:
        """Write messages until the count, the end or a signal; then commit."""
        mute_client_log()
        with suppress(KeyboardInterrupt):
            if not self._choice.stops_at_end and wait_for_topic(
                self._admin, self._topic
            ):
                begin = self._choice.begin or "first"
                self._choice = self._choice._replace(begin=begin)
            run_until_ended(self._run(_LimitedWriter(write, count)))

    async def _run(self, write: "_LimitedWriter") -> None:
        group = self._choice.group
        queues = self._queues(self._topic)
        places = [] if group else [self._queue_start(each) for each in queues]
        async with (
            self._settings.async_client() as client,
            self._create_consumer(client) as consumer,
        ):
            if group:
                await self._consume_in_group(consumer, write)
            else:
                await self._browse_queues(consumer, places, write)

    def _create_consumer(self, client: Client) -> Consumer:
        group = self._choice.group
        return _StreamConsumer(
            self,
            client,
            group or BROWSE_GROUP,
            {self._topic: self._expression} if group else None,
            silent=group is None,
            start=_group_start(self._choice.begin),
            fetch_messages=FETCH_MESSAGES,
            buffer_messages=AHEAD_MESSAGES,
            on_assigned=self._record_ends if self._choice.stops_at_end else None,
        )

    # -- brokers that go away

    def on_unreachable(self, consumer: Consumer, error: BaseException) -> None:
        """Report that the reader waits; raise an error if the reader must stop at the
        end.
        """
        if self._choice.stops_at_end and isinstance(error, Exception):
            consumer.puller.fail(error)
        elif not self._is_away:
            self._is_away = True
            _print_notice(f"{error}; waiting until the broker is back")

    def on_reachable(self) -> None:
        """Report that all brokers are connected again."""
        if self._is_away:
            self._is_away = False
            _print_notice("connected again")

    # -- reading

    async def _read(
        self, consumer: Consumer, take: Take, ends: dict[MessageQueue, int] | None
    ) -> None:
        """Read until `take` returns True, or up to `ends` if given.

        A message is consumed when `take` has returned.
        """
        pause_s = None if ends is None else POLL_S
        while ends is None or not await _has_reached(consumer, ends):
            batch: list[ReceivedMessage] = []
            with anyio.move_on_after(pause_s):
                batch = await consumer.next_messages(FETCH_MESSAGES)
            if consumer.puller.failure is not None:
                raise consumer.puller.failure
            for message in batch:
                is_last = take(message)
                message.ack()
                if is_last:
                    return

    async def _consume_in_group(
        self, consumer: Consumer, write: "_LimitedWriter"
    ) -> None:
        """Read as a member of the group; commit the written messages."""
        try:
            ends = self._ends if self._choice.stops_at_end else None
            await self._read(consumer, write, ends)
        finally:
            await consumer.commit()
            texts = [
                f"queue {each.queue_id} up to {await consumer.position(each)}"
                for each in consumer.assignment()
                if not is_retry_topic(each.topic)
            ]
            click.echo(f"committed {', '.join(texts) or 'nothing'}", err=True)
        if consumer.puller.failure is not None:
            raise consumer.puller.failure

    async def _browse_queues(
        self,
        consumer: Consumer,
        places: Sequence["_QueueStart"],
        write: "_LimitedWriter",
    ) -> None:
        """Read without a group: the newest messages first, or from a given start."""
        await consumer.queues(self._topic)
        consumer.assign([each.queue for each in places], self._expression)
        for each in places:
            await consumer.seek(each.queue, each.newest)
        starts = {each.queue: each.start for each in places if each.newest < each.start}
        newest: list[ReceivedMessage] = []
        later: list[ReceivedMessage] = []

        def keep(message: ReceivedMessage) -> bool:
            start = starts.get(cast("MessageQueue", message.queue), 0)
            (newest if message.queue_offset < start else later).append(message)
            return len(later) >= AHEAD_MESSAGES

        if starts:
            await self._read(consumer, keep, starts)
            newest.sort(key=lambda message: message.stored_ms)
        for message in [*newest[-NEWEST_COUNT:], *later]:
            if write(message):
                return
        ends = self._ends if self._choice.stops_at_end else None
        await self._read(consumer, write, ends)

    # -- places

    def _queues(self, topic: str) -> list[Queue]:
        queues = [
            each
            for each in self._admin.queues(topic)
            if self._choice.queue_id in (None, each.queue_id)
        ]
        if not queues:
            raise RmqError(f"topic {topic} has no such readable queue")
        return queues

    def _queue_start(self, queue: Queue) -> "_QueueStart":
        name = MessageQueue(self._topic, queue.broker, queue.queue_id)
        start = newest = self._start_offset(queue)
        if self._choice.begin is None and self._choice.offset is None:
            low = self._admin.offset(RequestCode.GET_MIN_OFFSET, self._topic, queue)
            newest = max(low, start - NEWEST_COUNT)
        if self._choice.stops_at_end:
            self._ends[name] = self._end_offset(self._topic, queue)
        return _QueueStart(name, start, newest)

    def _start_offset(self, queue: Queue) -> int:
        """Return the chosen start offset; by default the end of the queue."""
        choice = self._choice
        if choice.offset is not None:
            return choice.offset
        if choice.begin is None or choice.begin == "last":
            return self._end_offset(self._topic, queue)
        if choice.begin == "first":
            return self._admin.offset(RequestCode.GET_MIN_OFFSET, self._topic, queue)
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return self._admin.offset(code, self._topic, queue, timestamp=choice.begin)

    def _end_offset(self, topic: str, queue: Queue) -> int:
        return self._admin.offset(RequestCode.GET_MAX_OFFSET, topic, queue)

    async def _record_ends(self, queues: Sequence[MessageQueue]) -> None:
        """Record the end offsets of newly assigned queues."""
        for topic in {each.topic for each in queues}:
            known = {(each.broker, each.queue_id): each for each in self._queues(topic)}
            for each in queues:
                queue = known.get((each.broker, each.queue_id))
                if each.topic == topic and queue is not None:
                    self._ends[each] = self._end_offset(topic, queue)


class _StreamConsumer(Consumer):
    """Reports lost brokers to its reader; a refusal ends the reader."""

    def __init__(self, reader: TopicReader, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - those of Consumer
        super().__init__(*arguments, **options)
        self._reader = reader

    def on_refused(self, error: RmqError) -> None:
        """Fail with the error."""
        self.puller.fail(error)

    def on_unreachable(self, error: BaseException) -> None:
        """Report a broker that cannot be reached."""
        self._reader.on_unreachable(self, error)

    def on_reachable(self) -> None:
        """Report that all brokers are connected."""
        self._reader.on_reachable()


class _QueueStart(NamedTuple):
    """A queue, its start offset, and the offset of the first of the newest messages
    before it.
    """

    queue: MessageQueue
    start: int
    newest: int


class _LimitedWriter:
    """Writes at most a given number of messages."""

    def __init__(self, write: Write, count: int | None) -> None:
        self._write = write
        self._left = count

    def __call__(self, message: ReceivedMessage) -> bool:
        """Write a message; True if it was the last one."""
        self._write(message)
        if self._left is not None:
            self._left -= 1
        return self._left == 0


async def _has_reached(consumer: Consumer, ends: dict[MessageQueue, int]) -> bool:
    """Whether the assigned queues are consumed up to these ends."""
    for queue in consumer.assignment():
        if await consumer.position(queue) < ends.get(queue, 0):
            return False
    return True


def _group_start(begin: str | int | None) -> Start:
    """Return the start of a group without committed offsets."""
    if isinstance(begin, int):
        return datetime.fromtimestamp(begin / 1_000, UTC)
    return "last" if begin == "last" else "first"


def wait_for_topic(admin: AdminClient, topic: str) -> bool:
    """Wait until brokers have a topic; True if they did not have it at first.

    RmqError if no topic can have this name.
    """
    is_waiting = False
    while True:
        try:
            admin.route(topic)
        except AnswerRefused as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
        except PeerError:
            if not is_waiting:
                raise
        else:
            return is_waiting
        if not is_waiting:
            is_waiting = True
            check_topic_name(topic)
            failure = explain_no_topic(topic, admin)
            hint = failure.why.partition("; ")[2]
            text = f"{failure.what}, {hint}" if hint else failure.what
            _print_notice(f"{text}; waiting for topic {topic}")
        time.sleep(TOPIC_POLL_S)


def check_topic_name(topic: str) -> None:
    """Raise an RmqError if no topic can have this name."""
    try:
        validate_topic(topic)
    except RmqError as error:
        name = escape_controls(topic)
        raise RmqError(f"{name} is not a valid topic: {error}") from error


def mute_client_log() -> None:
    """Discard log lines of the client: commands print errors themselves."""
    log = logging.getLogger("rmq.client")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def _print_notice(sentence: str) -> None:
    click.echo(f"rmq: {sentence}", err=True)
