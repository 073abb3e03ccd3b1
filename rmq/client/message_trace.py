"""MessageTrace: a hook that records sends and deliveries in the topic of traces.

Known in Java as `TraceDispatcher`. It writes the traces that Java's clients write with
`enableMsgTrace`, so `mqadmin queryMsgTraceById` and the dashboard show the producer and
the consumers of a message. Lines end with 0x02, their fields with 0x01::

        Pub SENT_MS REGION GROUP TOPIC ID TAGS KEYS BROKER SIZE COST_MS KIND
            OFFSET_ID OK
        SubBefore BEGUN_MS REGION GROUP REQUEST ID FAILURES KEYS
        SubAfter REQUEST ID COST_MS OK KEYS OUTCOME ENDED_MS GROUP

A message of the topic has up to 100 lines; its keys are the ids and keys in them. A
separate producer sends the lines. While no broker accepts them, at most `MAX_WAITING`
lines wait; `dropped` counts later lines. Failed sends have no line, as in Java's
clients. KIND always has the value of a plain message.
"""

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import anyio

from rmq._fastpath.client.messages import ReceivedMessage, SendResult, SendStatus
from rmq.client.client import Client
from rmq.client.errors import ClientError
from rmq.client.hooks import AfterSend, Outcome
from rmq.client.lifecycle import LIFE, Lifecycle
from rmq.client.message import Message
from rmq.client.producer import Producer
from rmq.core.errors import PeerError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import date_ms
from rmq.protocol import properties as names
from rmq.protocol.hosts import host_text
from rmq.protocol.topics import TRACE_TOPIC

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

GROUP: Final = "_INNER_TRACE_PRODUCER"
MAX_LINES: Final = 100
MAX_KEYS_BYTES: Final = 16_000
"""Maximum bytes of the keys of one message: its properties may have about 32,000 bytes.
"""

MAX_WAITING: Final = 10_000
CLOSE_S: Final = 5.0
REGION: Final = "DefaultRegion"
PLAIN: Final = 0

NONE: Final = "null"
"""Java's text for missing tags and keys; Java's reader needs keys at the end of a line.
"""

SUCCESS: Final = 0
EXCEPTION: Final = 2
"""Indexes in Java's `ConsumeReturnType`."""


class TraceLine(NamedTuple):
    """A line, and the keys for searches."""

    text: str
    keys: tuple[str, ...]


class MessageTrace(Lifecycle):
    """A hook that writes traces; open it before the client that has it as a hook.

    Args:
        client (Client | str | None, default None): an open `Client` without this hook,
            or the addresses of name servers; without it the client reads NAMESRV_ADDR.
        topic (str, default 'RMQ_SYS_TRACE_TOPIC'): the topic of the traces.
        flush_interval_s (float, seconds, default 1.0): time for which lines are
            collected in one message.
    """

    public_names = LIFE | {"dropped", "topic"}

    def __init__(
        self,
        client: Client | str | None = None,
        *,
        topic: str = TRACE_TOPIC,
        flush_interval_s: float = 1.0,
    ) -> None:
        super().__init__()
        self.topic = topic
        self.dropped = 0
        self._producer = Producer(client, group=GROUP)
        self._flush_interval_s = flush_interval_s
        self._waiting: deque[TraceLine] = deque()
        self._begun: anyio.Event
        self._full: anyio.Event

    async def _open(self) -> None:
        self._begun, self._full = anyio.Event(), anyio.Event()
        await self._producer.__aenter__()
        self._spawn(self._run)

    async def _close(self, error: BaseException | None, *, is_cancelled: bool) -> None:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._send_all()
        kind, trace = (
            (None, None) if error is None else (type(error), error.__traceback__)
        )
        await self._producer.__aexit__(kind, error, trace)

    # -- called by the client

    def before_send(
        self, group: str, messages: Sequence[Message]
    ) -> tuple[Mapping[str, str], AfterSend]:
        """Record when a send began; add a line for each stored message."""
        begun_ms = date_ms()

        def add_lines(outcome: Outcome) -> None:
            if outcome is not None and not isinstance(outcome, BaseException):
                cost_ms = (date_ms() - begun_ms) // len(messages)
                for message, result in zip(messages, outcome, strict=True):
                    if message.topic != self.topic:
                        line = _send_line(group, message, result, begun_ms, cost_ms)
                        self._add([line])

        return {}, add_lines

    def after_receive(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Add lines for the messages that the program gets, with the outcome
        *consumed*.
        """
        with self.around_handler(group, messages):
            pass

    @contextmanager
    def around_handler(
        self, group: str, messages: Sequence[ReceivedMessage]
    ) -> Iterator[None]:
        """Add lines when a handler begins and ends."""
        traced = [each for each in messages if self._is_traced(each)]
        request, begun_ms = os.urandom(16).hex().upper(), date_ms()
        self._add(_before_line(group, each, request, begun_ms) for each in traced)
        outcome = EXCEPTION
        try:
            yield
            outcome = SUCCESS
        finally:
            cost_ms = (date_ms() - begun_ms) // len(messages)
            self._add(
                _after_line(group, each, request, cost_ms, outcome) for each in traced
            )

    def _is_traced(self, message: ReceivedMessage) -> bool:
        is_wanted = message.properties.get(names.TRACE_ON) != "false"
        return is_wanted and message.topic != self.topic

    # -- lines

    def _add(self, lines: Iterable[TraceLine]) -> None:
        for line in lines:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append(line)
            else:
                self.dropped += 1
        if self._waiting:
            self._begun.set()
        if len(self._waiting) >= MAX_LINES:
            self._full.set()

    async def _run(self) -> None:
        """Send lines when a message is full, or after the interval."""
        while True:
            await self._begun.wait()
            with anyio.move_on_after(self._flush_interval_s):
                await self._full.wait()
            self._begun, self._full = anyio.Event(), anyio.Event()
            await self._send_all()

    async def _send_all(self) -> None:
        while self._waiting:
            try:
                await self._producer.send(self._next_message())
            except (ClientError, PeerError, ValueError) as error:
                logger.warning(
                    "cannot send message traces, some are lost: %s", Foreign(error)
                )

    def _next_message(self) -> Message:
        lines: list[TraceLine] = []
        keys: dict[str, None] = {}
        size = 0
        while self._waiting and len(lines) < MAX_LINES and size < MAX_KEYS_BYTES:
            line = self._waiting.popleft()
            lines.append(line)
            size += sum(len(key.encode()) + 1 for key in line.keys if key not in keys)
            keys.update(dict.fromkeys(line.keys))
        body = "".join(each.text for each in lines).encode()
        return Message(self.topic, body, keys=list(keys))


def _make_line(keys: tuple[str, ...], msg_id: str, *fields: object) -> TraceLine:
    return TraceLine("\x01".join(map(str, fields)) + "\x02", (msg_id, *keys))


def _send_line(
    group: str, message: Message, result: SendResult, begun_ms: int, cost_ms: int
) -> TraceLine:
    keys = tuple(message.keys)
    broker = _broker_address(result.offset_msg_id)
    is_ok = result.status is SendStatus.SEND_OK
    return _make_line(
        keys, result.msg_id, "Pub", begun_ms, REGION, group, message.topic,
        result.msg_id, message.tags or NONE, " ".join(keys) or NONE, broker,
        len(message.body), cost_ms, PLAIN, result.offset_msg_id, _java_text(is_ok),
    )  # fmt: skip


def _before_line(
    group: str, message: ReceivedMessage, request: str, begun_ms: int
) -> TraceLine:
    region = message.properties.get(names.MSG_REGION, REGION)
    return _make_line(
        message.keys, message.msg_id, "SubBefore", begun_ms, region, group, request,
        message.msg_id, message.reconsume_times, " ".join(message.keys) or NONE,
    )  # fmt: skip


def _after_line(
    group: str, message: ReceivedMessage, request: str, cost_ms: int, outcome: int
) -> TraceLine:
    return _make_line(
        message.keys, message.msg_id, "SubAfter", request, message.msg_id, cost_ms,
        _java_text(outcome == SUCCESS), " ".join(message.keys) or NONE, outcome,
        date_ms(), group,
    )  # fmt: skip


def _java_text(is_true: bool) -> str:
    return "true" if is_true else "false"


def _broker_address(offset_msg_id: str) -> str:
    """Return the address in the id of a record: host, port and physical offset."""
    return host_text(bytes.fromhex(offset_msg_id[:-16])) if offset_msg_id else ""
