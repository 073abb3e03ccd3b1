"""Puller: pulls the ranges of a bundle, with many pulls in flight.

One thread uses one connection.  The puller splits ranges into windows, and requests
many windows at once, because it knows their offsets in advance.  After a short answer
it requests the remainder of the window.  The width of windows adapts to the size of
answers. The puller receives only while the caller iterates; while it does not, TCP
stops the broker.
"""

import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmq._fastpath.client.codec import PullResult, PullTemplate
from rmq.client.admin import AdminClient
from rmq.core.errors import ConnectFailed, InvokeTimeout, PeerError, RemoteProtocolError
from rmq.outgoing.link import Link
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import ResponseCode
from rmq_spark.backoff import FINAL, pause_s
from rmq_spark.live.client import (
    EVERYTHING,
    TOOLS_GROUP,
    ClientSettings,
    read_addresses,
)
from rmq_spark.live.plan import Bounds, Bundle, MessageQueue, QueueRange, check_position

RETRIES: Final = 10
"""Number of consecutive failures before the task fails: about 20 s with the pauses."""

MAX_HELD_BYTES: Final = 8 << 20
"""Limit of answers that wait for earlier answers, in bytes; above it no window is
requested.
"""

AGAIN: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which the puller retries."""

MOVED: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED})
_SIZE_AND_OFFSET: Final = struct.Struct(">i16xq")
"""Record layout: i32 size, 16 other bytes, i64 queue offset."""

_log: Final = logging.getLogger(__name__)


class PullSettings(NamedTuple):
    """Group, filter and limits of pulls; pickled for the workers."""

    live: ClientSettings
    group: str = TOOLS_GROUP
    expression: str = EVERYTHING
    kind: str = "TAG"
    batch_size: int = 1_024
    in_flight: int = 64
    fails_on_loss: bool = True

    @property
    def is_filtered(self) -> bool:
        """Whether a filter may leave out offsets."""
        return self.expression != EVERYTHING


class PulledRecords(NamedTuple):
    """Records of a queue; without a filter all of [start, end)."""

    queue: MessageQueue
    start: int
    end: int
    body: bytes


@dataclass(slots=True, eq=False)
class _Remainder:
    """The offsets of a queue that are not requested yet: [at, end)."""

    queue: MessageQueue
    template: PullTemplate
    at: int
    end: int


@dataclass(slots=True, eq=False)
class _Window:
    """A requested range of a queue; [at, end) has not arrived yet."""

    queue: MessageQueue
    template: PullTemplate
    at: int
    end: int
    answers: deque[PulledRecords] = field(default_factory=deque)


class Puller:
    """Pulls the ranges of one bundle."""

    def __init__(
        self,
        settings: PullSettings,
        bundle: Bundle,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._timeout_s = settings.live.timeout_ms / 1_000
        self._bundle = bundle
        self._now = now
        self._sleep = sleep
        self._link: Link | None = None
        self._is_slave = False
        self._remainders = deque(map(self._create_remainder, bundle.ranges))
        self._width = settings.batch_size
        self._limit = 1
        """Windows in flight: 1 until the first answer shows the size of answers."""
        self._open: deque[_Window] = deque()
        self._in_flight: set[_Window] = set()
        self._held_bytes = 0
        self._failures = 0
        self._answered_at = now()

    def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def pull_records(self) -> Iterator[PulledRecords]:
        """Yield pulled records; records of one queue in the order of their offsets."""
        while True:
            self._request_more()
            if not self._open:
                return
            first = self._open[0]
            while first.answers:
                answer = first.answers.popleft()
                self._held_bytes -= len(answer.body)
                yield answer
            if first.at >= first.end:
                self._open.popleft()
            else:
                self._receive()

    # -- windows

    def _request_more(self) -> None:
        while len(self._in_flight) < self._limit and self._remainders:
            if self._in_flight and self._held_bytes >= MAX_HELD_BYTES:
                return
            window = self._next_window()
            self._open.append(window)
            self._in_flight.add(window)
            if self._link is not None:
                self._request(window)

    def _next_window(self) -> _Window:
        rest = self._remainders[0]
        start, rest.at = rest.at, min(rest.end, rest.at + self._width)
        if rest.at == rest.end:
            self._remainders.popleft()
        return _Window(rest.queue, rest.template, start, rest.at)

    def _create_remainder(self, part: QueueRange) -> _Remainder:
        template = PullTemplate(
            self._settings.group,
            part.queue.topic,
            part.queue.queue_id,
            expression=self._settings.expression,
            kind=self._settings.kind,
        )
        return _Remainder(part.queue, template, part.start, part.end)

    def _request(self, window: _Window) -> None:
        assert self._link is not None
        count = min(window.end - window.at, self._settings.batch_size)
        self._link.pull(window.template, window, offset=window.at, count=count)

    # -- answers

    def _receive(self) -> None:
        """Wait for answers; connect first if necessary."""
        try:
            if self._link is None:
                self._connect()
            assert self._link is not None
            answers = self._link.receive_answers(self._timeout_s)
            if not answers and self._now() - self._answered_at >= self._timeout_s:
                raise InvokeTimeout(f"{self._link.address} did not answer in time")
        except PeerError as error:
            self.close()
            self._count_failure(error)
            return
        for window, pulled in answers:
            self._answered_at = self._now()
            if isinstance(window, _Window):
                self._apply_answer(window, pulled)

    def _connect(self) -> None:
        """Look up the broker, connect, and request all open windows again."""
        live = self._settings.live
        topic = self._bundle.ranges[0].queue.topic
        with AdminClient(live.name_servers, live.identity) as admin:
            try:
                route = admin.route(topic)
            except AnswerRefused as error:
                raise ConnectFailed(f"topic {topic} has no route: {error}") from error
        found = read_addresses(route, reads_slave=live.reads_slave)
        if self._bundle.broker not in found:
            raise ConnectFailed(f"broker {self._bundle.broker} is not registered")
        address, self._is_slave = found[self._bundle.broker]
        self._link = Link(address, self._timeout_s, live.identity)
        self._answered_at = self._now()
        for window in self._open:
            if window in self._in_flight:
                self._request(window)

    def _count_failure(self, error: Exception) -> None:
        """Count a failure and pause; raises the error after too many failures."""
        self._failures += 1
        if self._failures > RETRIES or isinstance(error, FINAL):
            raise error
        _log.info(
            "pulls from broker %s failed, retrying: %s", self._bundle.broker, error
        )
        self._sleep(pause_s(self._failures))

    def _apply_answer(self, window: _Window, pulled: PullResult) -> None:
        """Handle an answer, and request the remainder of the window."""
        if pulled.code == ResponseCode.SUCCESS:
            self._failures = 0
            self._store_records(window, pulled)
        elif pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            self._skip_gap(window, pulled)
        elif pulled.code in MOVED:
            self._handle_moved(window, pulled)
        elif pulled.code in AGAIN:
            self._count_failure(self._refused_error(pulled))
        else:
            raise self._refused_error(pulled)
        if window.at >= window.end:
            self._in_flight.discard(window)
        elif self._link is not None:
            self._request(window)

    def _refused_error(self, pulled: PullResult) -> AnswerRefused:
        assert self._link is not None
        return AnswerRefused(self._link.address, pulled.code, pulled.remark or "")

    def _store_records(self, window: _Window, pulled: PullResult) -> None:
        start, end, body = window.at, pulled.next_offset, pulled.body
        if end <= start or (end > window.end and not self._settings.is_filtered):
            raise RemoteProtocolError(
                f"{window.queue}: a pull of {start} to {window.end} was answered with "
                f"an end of {end}"
            )
        if end > window.end:
            end, body = window.end, _records_before(body, window.end)
        window.at = end
        window.answers.append(PulledRecords(window.queue, start, end, body))
        self._held_bytes += len(body)
        is_short = end < window.end
        self._width = end - start if is_short else 2 * self._width
        self._width = min(self._width, self._settings.batch_size)
        self._limit = self._settings.in_flight

    def _skip_gap(self, window: _Window, pulled: PullResult) -> None:
        """Skip offsets without messages: they were filtered out, or removed."""
        if pulled.next_offset <= window.at:
            raise RemoteProtocolError(
                f"{window.queue}: there is no message at {window.at}, and the broker "
                "sent no next offset"
            )
        if not self._settings.is_filtered:
            bounds = Bounds(pulled.next_offset, max(pulled.max_offset, window.end))
            self._handle_loss(window, bounds)
        self._failures = 0
        window.at = min(pulled.next_offset, window.end)

    def _handle_moved(self, window: _Window, pulled: PullResult) -> None:
        """Handle an offset outside of the queue, or a reset of the group."""
        bounds = Bounds(pulled.min_offset, pulled.max_offset)
        is_there = bounds.first <= window.at < bounds.end
        if is_there or (self._is_slave and window.at >= bounds.end):  # retry
            self._count_failure(self._refused_error(pulled))
        else:
            self._handle_loss(window, bounds)

    def _handle_loss(self, window: _Window, bounds: Bounds) -> None:
        """Continue at the next message; LostData if a loss is an error."""
        fails, is_removed = self._settings.fails_on_loss, window.at < bounds.first
        wanted = window.at if is_removed else window.end
        position, text = check_position(wanted, bounds, window.queue, fails=fails)
        _log.warning("%s", text)
        window.at = min(position, window.end) if is_removed else window.end


def _records_before(body: bytes, end: int) -> bytes:
    """Return the records of a body that come before a queue offset."""
    at = 0
    while at < len(body):
        size, offset = _SIZE_AND_OFFSET.unpack_from(body, at)
        if offset >= end or size <= 0:
            break
        at += size
    return body[:at]
