"""Frames on their way: routes, windows, and what follows each answer.

One thread, a connection to each broker.  At most `in_flight` frames have no answer; a
queue that rows are bound to has one of them, so that its order holds.  `finish` returns
when every frame is acknowledged.
"""

import logging
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmq._fastpath.client.codec import SendTemplate
from rmq._fastpath.client.messages import SendResult
from rmq.client.admin import AdminClient, Queue
from rmq.core.errors import PeerError, RmqError
from rmq.outgoing.identity import Identity
from rmq.outgoing.link import Link
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq_spark.backoff import FINAL, pause_s
from rmq_spark.sink.frames import Frame

ASK_LIMIT: Final = 10
"""How often a name server that cannot be reached is asked."""

MAX_TOPICS: Final = 10_000
"""Topics whose routes are kept."""

AGAIN: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.GO_AWAY,
        ResponseCode.FLOW_CONTROL,
    }
)
"""Answers after which a frame is sent again, up to `retries` times."""

NEW_ROUTE: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)
"""Answers after which a frame is sent again once, by a new route."""

STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Answers that say that the broker has the messages, whatever disk and slave do."""

_log: Final = logging.getLogger(__name__)


class SendFailed(RmqError):
    """Rows were not acknowledged."""


class SendSettings(NamedTuple):
    """How to send; pickled for the workers."""

    name_servers: tuple[str, ...]
    identity: Identity
    group: str
    timeout_ms: int
    retries: int
    in_flight: int
    waits_for_disk: bool


class Routes:
    """The writable queues of topics, asked once and again after failures."""

    def __init__(
        self, settings: SendSettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._client = AdminClient(settings.name_servers, settings.identity)
        self._known: dict[str, Sequence[Queue]] = {}
        self._doubted: set[str] = set()
        self._sleep = sleep

    def queues_of(self, topic: str) -> Sequence[Queue]:
        """Return the queues by broker and number; SendFailed if there are none.

        A topic that had queues keeps them while no broker is registered for it.
        """
        if topic in self._known and topic not in self._doubted:
            return self._known[topic]
        self._doubted.discard(topic)
        found: Sequence[Queue] = ()
        refusal = "no broker takes messages of it"
        try:
            found = self._ask(topic)
        except AnswerRefused as error:
            refusal = str(error)
        if found:
            if len(self._known) >= MAX_TOPICS:
                self._known.clear()
            self._known[topic] = sorted(found, key=lambda q: (q.broker, q.queue_id))
        elif topic not in self._known:
            raise SendFailed(f"topic {topic}: {refusal}")
        return self._known[topic]

    def doubt(self, topic: str) -> None:
        """Ask again at the next use."""
        self._doubted.add(topic)

    def close(self) -> None:
        """End the connections to name servers."""
        self._client.close()

    def _ask(self, topic: str) -> Sequence[Queue]:
        for attempt in range(1, ASK_LIMIT + 1):
            try:
                return self._client.writable_queues(topic)
            except FINAL:
                raise
            except PeerError as error:
                failure = error
                self._sleep(pause_s(attempt))
        raise SendFailed(f"no name server can be asked: {failure}") from failure


@dataclass(slots=True, eq=False)
class _PendingFrame:
    """A frame without an answer; `queue` is where it was sent last."""

    frame: Frame
    attempts: int = 0
    has_new_route: bool = False
    queue: Queue | None = None


class FrameSender:
    """Sends the frames of one task. `rows` are those that are acknowledged."""

    def __init__(
        self,
        settings: SendSettings,
        routes: Routes,
        *,
        first_queue: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`first_queue`: where the turns begin; tasks begin at different queues."""
        self._settings = settings
        self._timeout_s = settings.timeout_ms / 1_000
        self._routes = routes
        self._turn = first_queue
        self._sleep = sleep
        self._links: dict[str, Link] = {}
        self._flying: dict[str, list[_PendingFrame]] = {}
        self._bound: set[Queue] = set()
        self._todo: deque[_PendingFrame] = deque()
        self._pause_s = 0.0
        self._wait = b"" if settings.waits_for_disk else b"WAIT\x01false\x02"
        self.rows = 0

    def send(self, frame: Frame) -> None:
        """Send a frame; waits for room, not for its answer. SendFailed: give up."""
        while self._count >= self._settings.in_flight or frame.queue in self._bound:
            self._take_answers()
        if frame.queue is not None:
            self._bound.add(frame.queue)
        self._todo.append(_PendingFrame(frame))
        self._send_all()

    def finish(self) -> None:
        """Wait until all frames are acknowledged; SendFailed if one is not."""
        while self._count:
            self._take_answers()

    def close(self) -> None:
        """End all connections, and forget what has no answer."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._flying.clear()

    @property
    def _count(self) -> int:
        return sum(map(len, self._flying.values()))

    # -- sending

    def _send_all(self) -> None:
        """Send what is to be sent, also again; each attempt counts."""
        while self._todo:
            if self._pause_s:
                self._sleep(self._pause_s)
                self._pause_s = 0.0
            sending = self._todo.popleft()
            queue = self._choose(sending)
            if queue is None:
                continue
            try:
                self._write(queue, sending)
            except FINAL:
                raise
            except PeerError as error:
                self._again(sending, str(error))
                self._lose(queue.address, str(error))
            else:
                self._flying.setdefault(queue.address, []).append(sending)

    def _choose(self, sending: _PendingFrame) -> Queue | None:
        """Return where to send next; None, and a pause, if that is away."""
        wanted = sending.frame.queue
        queues = self._routes.queues_of(sending.frame.topic)
        if wanted is None:
            self._turn += 1
            sending.queue = queues[self._turn % len(queues)]
            return sending.queue
        for queue in queues:  # the address may be another one after a failover
            if (queue.broker, queue.queue_id) == (wanted.broker, wanted.queue_id):
                sending.queue = queue
                return queue
        self._again(
            sending,
            f"broker {wanted.broker} has no queue {wanted.queue_id} of this topic",
        )
        return None

    def _write(self, queue: Queue, sending: _PendingFrame) -> None:
        frame = sending.frame
        link = self._links.get(queue.address)
        if link is None:
            link = Link(queue.address, self._timeout_s, self._settings.identity)
            self._links[queue.address] = link
        template = SendTemplate(
            self._settings.group,
            frame.topic,
            queue.queue_id,
            None,
            is_batch=frame.is_batch,
            flag=frame.flag,
        )
        properties = frame.properties + self._wait
        link.send(template, properties, frame.body, sending, sys_flag=frame.sys_flag)
        link.flush()

    # -- answers

    def _take_answers(self) -> None:
        """Wait for answers, and do what follows from them."""
        waiting = [address for address, flying in self._flying.items() if flying]
        poll = select.poll()
        for address in waiting:
            poll.register(self._links[address], select.POLLIN)
        ready = {number for number, _ in poll.poll(self._settings.timeout_ms)}
        for address in waiting:
            if not ready:
                self._lose(address, f"no answer within {self._timeout_s:g} s")
            elif self._links[address].fileno() in ready:
                self._take_from(address)
        self._send_all()

    def _take_from(self, address: str) -> None:
        try:
            answers = self._links[address].answers(self._timeout_s)
        except PeerError as error:
            self._lose(address, str(error))
            return
        for sending, answer in answers:
            if sending is not None:  # else the broker asks something
                self._flying[address].remove(sending)
                self._settle(sending, answer)

    def _lose(self, address: str, reason: str) -> None:
        """Send all again that had no answer: it may be stored twice, with one key."""
        link = self._links.pop(address, None)
        if link is not None:
            link.close()
        for sending in self._flying.pop(address, ()):
            self._again(sending, reason)

    def _settle(self, sending: _PendingFrame, answer: SendResult | Command) -> None:
        frame = sending.frame
        code = answer.code if isinstance(answer, Command) else int(answer.status)
        if code == 0 or (code in STORED and not self._settings.waits_for_disk):
            self.rows += frame.rows
            if frame.queue is not None:
                self._bound.discard(frame.queue)
            return
        assert sending.queue is not None
        remark = (answer.remark if isinstance(answer, Command) else None) or ""
        reason = str(AnswerRefused(sending.queue.address, code, remark))
        if code in NEW_ROUTE and not sending.has_new_route:
            sending.has_new_route = True
        elif code not in AGAIN:
            raise SendFailed(f"{_rows(frame)} are not stored: {reason}")
        self._again(sending, reason)

    def _again(self, sending: _PendingFrame, reason: str) -> None:
        """Count an attempt, and send again after a pause; SendFailed after the last."""
        sending.attempts += 1
        if sending.attempts > self._settings.retries:
            raise SendFailed(
                f"{_rows(sending.frame)} were not acknowledged in {sending.attempts} "
                f"attempts: {reason}"
            )
        _log.info("%s are sent again: %s", _rows(sending.frame), reason)
        self._routes.doubt(sending.frame.topic)
        self._pause_s = max(self._pause_s, pause_s(sending.attempts))
        self._todo.append(sending)


def _rows(frame: Frame) -> str:
    return (
        f"rows {frame.first_row} to {frame.last_row} of the task, for topic "
        f"{frame.topic},"
    )
