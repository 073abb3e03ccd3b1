"""Pulls in flight: the ranges of a bundle are cut into windows, answers come in order.

One thread, one connection.  The offset of the next window of a queue is known before an
answer comes, so many windows are asked for at once; a short answer asks for the rest of
its window.  The width of windows follows what the broker gives in one answer.  Nothing
is received while the caller does not ask for more, so TCP stops the broker.
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
from rmq_spark.live.client import ClientSettings, read_addresses
from rmq_spark.live.plan import Bounds, Bundle, MessageQueue, QueueRange, checked

RETRIES: Final = 10
"""Failures without an answer between them, 20 s with their pauses."""

MAX_HELD_BYTES: Final = 8 << 20
"""Answers that wait for earlier ones; beyond it only the first window is asked for."""

AGAIN: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which a pull is repeated."""

MOVED: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED})
EVERYTHING: Final = "*"
_SIZE_AND_OFFSET: Final = struct.Struct(">i16xq")
"""Of a record: its size, and behind 16 bytes its queue offset."""

_log: Final = logging.getLogger(__name__)


class PullSettings(NamedTuple):
    """How to pull; pickled for the workers."""

    live: ClientSettings
    group: str
    expression: str
    kind: str
    batch_size: int
    in_flight: int
    fails_on_loss: bool

    @property
    def is_filtered(self) -> bool:
        """Whether offsets may be missing for a good reason."""
        return self.expression != EVERYTHING


class PulledRecords(NamedTuple):
    """Records of a queue; without a filter those of [start, end)."""

    queue: MessageQueue
    start: int
    end: int
    body: bytes


@dataclass(slots=True, eq=False)
class _Remainder:
    """What is not asked for yet of a queue: [at, end)."""

    queue: MessageQueue
    template: PullTemplate
    at: int
    end: int


@dataclass(slots=True, eq=False)
class _Window:
    """A part of a queue that is asked for; [at, end) has not come yet."""

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
        self._rests = deque(map(self._rest, bundle.ranges))
        self._width = settings.batch_size
        self._limit = 1
        """Windows in flight: one until an answer has shown what a broker gives."""
        self._open: deque[_Window] = deque()
        self._flying: set[_Window] = set()
        self._held_bytes = 0
        self._failures = 0
        self._heard_at = now()

    def close(self) -> None:
        """End the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def answers(self) -> Iterator[PulledRecords]:
        """Yield what is pulled; the answers of a queue in the order of its offsets."""
        while True:
            self._ask_for_more()
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

    def _ask_for_more(self) -> None:
        while len(self._flying) < self._limit and self._rests:
            if self._flying and self._held_bytes >= MAX_HELD_BYTES:
                return
            window = self._next_window()
            self._open.append(window)
            self._flying.add(window)
            if self._link is not None:
                self._ask(window)

    def _next_window(self) -> _Window:
        rest = self._rests[0]
        start, rest.at = rest.at, min(rest.end, rest.at + self._width)
        if rest.at == rest.end:
            self._rests.popleft()
        return _Window(rest.queue, rest.template, start, rest.at)

    def _rest(self, part: QueueRange) -> _Remainder:
        template = PullTemplate(
            self._settings.group,
            part.queue.topic,
            part.queue.queue_id,
            expression=self._settings.expression,
            kind=self._settings.kind,
        )
        return _Remainder(part.queue, template, part.start, part.end)

    def _ask(self, window: _Window) -> None:
        assert self._link is not None
        count = min(window.end - window.at, self._settings.batch_size)
        self._link.pull(window.template, window, offset=window.at, count=count)

    # -- answers

    def _receive(self) -> None:
        """Wait for answers; connect first if there is no connection."""
        try:
            if self._link is None:
                self._connect()
            assert self._link is not None
            answers = self._link.answers(self._timeout_s)
            if not answers and self._now() - self._heard_at >= self._timeout_s:
                raise InvokeTimeout(f"{self._link.address} did not answer in time")
        except PeerError as error:
            self.close()
            self._fail(error)
            return
        for window, pulled in answers:
            self._heard_at = self._now()
            if isinstance(window, _Window):
                self._take(window, pulled)

    def _connect(self) -> None:
        """Ask for the broker's address, connect, and ask for all open windows."""
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
        self._heard_at = self._now()
        for window in self._open:
            if window in self._flying:
                self._ask(window)

    def _fail(self, error: Exception) -> None:
        """Count a failure and pause; raise the error after the last one."""
        self._failures += 1
        if self._failures > RETRIES or isinstance(error, FINAL):
            raise error
        _log.info("pulls of %s are repeated: %s", self._bundle.broker, error)
        self._sleep(pause_s(self._failures))

    def _take(self, window: _Window, pulled: PullResult) -> None:
        """Do what follows from an answer, and ask for the rest of the window."""
        if pulled.code == ResponseCode.SUCCESS:
            self._failures = 0
            self._keep(window, pulled)
        elif pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            self._pass_over(window, pulled)
        elif pulled.code in MOVED:
            self._move(window, pulled)
        elif pulled.code in AGAIN:
            self._fail(self._refused(pulled))
        else:
            raise self._refused(pulled)
        if window.at >= window.end:
            self._flying.discard(window)
        elif self._link is not None:
            self._ask(window)

    def _refused(self, pulled: PullResult) -> AnswerRefused:
        assert self._link is not None
        return AnswerRefused(self._link.address, pulled.code, pulled.remark or "")

    def _keep(self, window: _Window, pulled: PullResult) -> None:
        start, end, body = window.at, pulled.next_offset, pulled.body
        if end <= start or (end > window.end and not self._settings.is_filtered):
            raise RemoteProtocolError(
                f"{window.queue}: a pull of {start} to {window.end} was answered with "
                f"an end of {end}"
            )
        if end > window.end:
            end, body = window.end, _before(body, window.end)
        window.at = end
        window.answers.append(PulledRecords(window.queue, start, end, body))
        self._held_bytes += len(body)
        is_short = end < window.end
        self._width = end - start if is_short else 2 * self._width
        self._width = min(self._width, self._settings.batch_size)
        self._limit = self._settings.in_flight

    def _pass_over(self, window: _Window, pulled: PullResult) -> None:
        """There is nothing before the next offset: filtered, or removed."""
        if pulled.next_offset <= window.at:
            raise RemoteProtocolError(
                f"{window.queue}: nothing at {window.at}, and no next offset"
            )
        if not self._settings.is_filtered:
            bounds = Bounds(pulled.next_offset, max(pulled.max_offset, window.end))
            self._lose(window, bounds)
        self._failures = 0
        window.at = min(pulled.next_offset, window.end)

    def _move(self, window: _Window, pulled: PullResult) -> None:
        """The offset is not in the queue, or somebody has reset the group."""
        bounds = Bounds(pulled.min_offset, pulled.max_offset)
        is_there = bounds.first <= window.at < bounds.end
        if is_there or (self._is_slave and window.at >= bounds.end):  # it will come
            self._fail(self._refused(pulled))
        else:
            self._lose(window, bounds)

    def _lose(self, window: _Window, bounds: Bounds) -> None:
        """Go on where there are messages again; LostData if loss is an error."""
        fails, is_removed = self._settings.fails_on_loss, window.at < bounds.first
        wanted = window.at if is_removed else window.end
        position, text = checked(wanted, bounds, window.queue, fails=fails)
        _log.warning("%s", text)
        window.at = min(position, window.end) if is_removed else window.end


def _before(body: bytes, end: int) -> bytes:
    """The records of a body before a queue offset."""
    at = 0
    while at < len(body):
        size, offset = _SIZE_AND_OFFSET.unpack_from(body, at)
        if offset >= end or size <= 0:
            break
        at += size
    return body[:at]
