"""MessageTrace: a hook that writes what happens to messages to the topic of traces.

As Java's clients with `enableMsgTrace` do, so that `mqadmin queryMsgTraceById` and the
dashboard show who has sent and who has consumed a message. Lines end with 0x02, their
fields with 0x01:

    Pub SENT_MS REGION GROUP TOPIC ID TAGS KEYS BROKER SIZE COST_MS KIND OFFSET_ID OK
    SubBefore BEGUN_MS REGION GROUP REQUEST ID FAILURES KEYS
    SubAfter REQUEST ID COST_MS OK KEYS OUTCOME ENDED_MS GROUP

A message of the topic has up to 100 lines; its keys are the ids and keys in them. The
lines go through a producer of their own. While no broker takes them, they wait, at most
`MAX_WAITING`; later ones are counted in `dropped`. Failed sends leave no line, as by
Java's clients; KIND is always that of a plain message.
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
from rmq.client.lifecycle import Lifecycle
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
"""A message may have about 32,000 bytes of properties."""

MAX_WAITING: Final = 10_000
CLOSE_S: Final = 5.0
REGION: Final = "DefaultRegion"
PLAIN: Final = 0

NONE: Final = "null"
"""What Java writes for no tags and no keys; its reader needs keys at a line's end."""

SUCCESS: Final = 0
EXCEPTION: Final = 2
"""Places in Java's `ConsumeReturnType`."""


class Line(NamedTuple):
    """A line, and by what it is to be found."""

    text: str
    keys: tuple[str, ...]


class MessageTrace(Lifecycle):
    """See above; open it before the client that has it as a hook.

    `client` is an open `Client` without this hook, or what `Client` takes as addresses.
    """

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
        self._waiting: deque[Line] = deque()
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

    # -- what happens

    def before_send(
        self, group: str, messages: Sequence[Message]
    ) -> tuple[Mapping[str, str], AfterSend]:
        """Remember when a send began; write a line for each message it has stored."""
        begun_ms = date_ms()

        def after(outcome: Outcome) -> None:
            if outcome is not None and not isinstance(outcome, BaseException):
                cost_ms = (date_ms() - begun_ms) // len(messages)
                for message, result in zip(messages, outcome, strict=True):
                    if message.topic != self.topic:
                        line = _sent(group, message, result, begun_ms, cost_ms)
                        self._add([line])

        return {}, after

    def received(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Write that messages are handed out; they count as consumed at once."""
        with self.processing(group, messages):
            pass

    @contextmanager
    def processing(
        self, group: str, messages: Sequence[ReceivedMessage]
    ) -> Iterator[None]:
        """Write when a handler begins and ends."""
        traced = [each for each in messages if self._is_traced(each)]
        request, begun_ms = os.urandom(16).hex().upper(), date_ms()
        self._add(_begun(group, each, request, begun_ms) for each in traced)
        outcome = EXCEPTION
        try:
            yield
            outcome = SUCCESS
        finally:
            cost_ms = (date_ms() - begun_ms) // len(messages)
            self._add(_ended(group, each, request, cost_ms, outcome) for each in traced)

    def _is_traced(self, message: ReceivedMessage) -> bool:
        is_wanted = message.properties.get(names.TRACE_ON) != "false"
        return is_wanted and message.topic != self.topic

    # -- lines

    def _add(self, lines: Iterable[Line]) -> None:
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
        """Send lines when there are enough for a message, or have waited."""
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
                logger.warning("lines of message traces are lost: %s", Foreign(error))

    def _next_message(self) -> Message:
        lines: list[Line] = []
        keys: dict[str, None] = {}
        size = 0
        while self._waiting and len(lines) < MAX_LINES and size < MAX_KEYS_BYTES:
            line = self._waiting.popleft()
            lines.append(line)
            size += sum(len(key.encode()) + 1 for key in line.keys if key not in keys)
            keys.update(dict.fromkeys(line.keys))
        body = "".join(each.text for each in lines).encode()
        return Message(self.topic, body, keys=list(keys))


def _line(keys: tuple[str, ...], msg_id: str, *fields: object) -> Line:
    return Line("\x01".join(map(str, fields)) + "\x02", (msg_id, *keys))


def _sent(
    group: str, message: Message, result: SendResult, begun_ms: int, cost_ms: int
) -> Line:
    keys = tuple(message.keys)
    broker = _broker(result.offset_msg_id)
    is_ok = result.status is SendStatus.SEND_OK
    return _line(
        keys, result.msg_id, "Pub", begun_ms, REGION, group, message.topic,
        result.msg_id, message.tags or NONE, " ".join(keys) or NONE, broker,
        len(message.body), cost_ms, PLAIN, result.offset_msg_id, _java(is_ok),
    )  # fmt: skip


def _begun(group: str, message: ReceivedMessage, request: str, begun_ms: int) -> Line:
    region = message.properties.get(names.MSG_REGION, REGION)
    return _line(
        message.keys, message.msg_id, "SubBefore", begun_ms, region, group, request,
        message.msg_id, message.reconsume_times, " ".join(message.keys) or NONE,
    )  # fmt: skip


def _ended(
    group: str, message: ReceivedMessage, request: str, cost_ms: int, outcome: int
) -> Line:
    return _line(
        message.keys, message.msg_id, "SubAfter", request, message.msg_id, cost_ms,
        _java(outcome == SUCCESS), " ".join(message.keys) or NONE, outcome, date_ms(),
        group,
    )  # fmt: skip


def _java(is_true: bool) -> str:
    return "true" if is_true else "false"


def _broker(offset_msg_id: str) -> str:
    """Return the address in the id of a record: host, port, and place in the log."""
    return host_text(bytes.fromhex(offset_msg_id[:-16])) if offset_msg_id else ""
