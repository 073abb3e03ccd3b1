"""FrameSender: sends frames to brokers until each one is acknowledged.

One thread uses one connection per broker.  At most `in_flight` frames have no answer.
A queue in a column has at most one frame in flight, which keeps its order.  `finish`
returns when every frame is acknowledged.
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
"""Number of attempts to reach a name server."""

MAX_TOPICS: Final = 10_000
"""Limit of topics whose routes are cached."""

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
"""Answers after which the sender retries, up to `retries` times."""

NEW_ROUTE: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)
"""Answers after which the sender retries once, with a new route."""

STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Answers of a broker that has the messages at least in memory."""

_log: Final = logging.getLogger(__name__)


class SendFailed(RmqError):
    """Rows are not acknowledged."""


class SendSettings(NamedTuple):
    """Servers, identity, group and retries; pickled for the workers."""

    name_servers: tuple[str, ...]
    identity: Identity
    group: str
    timeout_ms: int
    retries: int
    in_flight: int
    waits_for_disk: bool


class Routes:
    """The writable queues of topics; requested once, and again after failures."""

    def __init__(
        self, settings: SendSettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._client = AdminClient(settings.name_servers, settings.identity)
        self._known: dict[str, Sequence[Queue]] = {}
        self._stale: set[str] = set()
        self._sleep = sleep

    def queues_of(self, topic: str) -> Sequence[Queue]:
        """Return the queues, sorted by broker and id; SendFailed without a queue.

        A topic that had queues keeps them while no broker is registered for it.
        """
        if topic in self._known and topic not in self._stale:
            return self._known[topic]
        self._stale.discard(topic)
        found: Sequence[Queue] = ()
        refusal = "no broker has a writable queue of this topic"
        try:
            found = self._request_queues(topic)
        except AnswerRefused as error:
            refusal = str(error)
        if found:
            if len(self._known) >= MAX_TOPICS:
                self._known.clear()
            self._known[topic] = sorted(found, key=lambda q: (q.broker, q.queue_id))
        elif topic not in self._known:
            raise SendFailed(f"topic {topic}: {refusal}")
        return self._known[topic]

    def mark_stale(self, topic: str) -> None:
        """Request the route again at the next use."""
        self._stale.add(topic)

    def close(self) -> None:
        """Close the connections to name servers."""
        self._client.close()

    def _request_queues(self, topic: str) -> Sequence[Queue]:
        for attempt in range(1, ASK_LIMIT + 1):
            try:
                return self._client.writable_queues(topic)
            except FINAL:
                raise
            except PeerError as error:
                failure = error
                self._sleep(pause_s(attempt))
        raise SendFailed(f"no name server answers: {failure}") from failure


@dataclass(slots=True, eq=False)
class _PendingFrame:
    """A frame without an answer; `queue` is the last target."""

    frame: Frame
    attempts: int = 0
    has_new_route: bool = False
    queue: Queue | None = None


class FrameSender:
    """Sends the frames of one task; `rows` counts the acknowledged ones."""

    def __init__(
        self,
        settings: SendSettings,
        routes: Routes,
        *,
        first_queue: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`first_queue` is the start of the round robin, which differs between
        tasks.
        """
        self._settings = settings
        self._timeout_s = settings.timeout_ms / 1_000
        self._routes = routes
        self._turn = first_queue
        self._sleep = sleep
        self._links: dict[str, Link] = {}
        self._in_flight: dict[str, list[_PendingFrame]] = {}
        self._bound: set[Queue] = set()
        self._unsent: deque[_PendingFrame] = deque()
        self._pause_s = 0.0
        self._wait = b"" if settings.waits_for_disk else b"WAIT\x01false\x02"
        self.rows = 0

    def send(self, frame: Frame) -> None:
        """Send a frame when a slot is free; SendFailed if one has failed too often."""
        while self._count >= self._settings.in_flight or frame.queue in self._bound:
            self._take_answers()
        if frame.queue is not None:
            self._bound.add(frame.queue)
        self._unsent.append(_PendingFrame(frame))
        self._send_all()

    def finish(self) -> None:
        """Wait until all frames are acknowledged; SendFailed if one fails too often."""
        while self._count:
            self._take_answers()

    def close(self) -> None:
        """Close all connections, and discard frames without an answer."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._in_flight.clear()

    @property
    def _count(self) -> int:
        return sum(map(len, self._in_flight.values()))

    # -- sending

    def _send_all(self) -> None:
        """Send all unsent frames; each attempt counts."""
        while self._unsent:
            if self._pause_s:
                self._sleep(self._pause_s)
                self._pause_s = 0.0
            sending = self._unsent.popleft()
            queue = self._choose_queue(sending)
            if queue is None:
                continue
            try:
                self._write(queue, sending)
            except FINAL:
                raise
            except PeerError as error:
                self._schedule_resend(sending, str(error))
                self._drop_connection(queue.address, str(error))
            else:
                self._in_flight.setdefault(queue.address, []).append(sending)

    def _choose_queue(self, sending: _PendingFrame) -> Queue | None:
        """Return the target of the next attempt; None if its queue is unavailable."""
        wanted = sending.frame.queue
        queues = self._routes.queues_of(sending.frame.topic)
        if wanted is None:
            self._turn += 1
            sending.queue = queues[self._turn % len(queues)]
            return sending.queue
        for queue in queues:  # a failover may have changed the address
            if (queue.broker, queue.queue_id) == (wanted.broker, wanted.queue_id):
                sending.queue = queue
                return queue
        self._schedule_resend(
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
        """Wait for answers, and handle them."""
        waiting = [address for address, flying in self._in_flight.items() if flying]
        poll = select.poll()
        for address in waiting:
            poll.register(self._links[address], select.POLLIN)
        ready = {number for number, _ in poll.poll(self._settings.timeout_ms)}
        for address in waiting:
            if not ready:
                self._drop_connection(
                    address, f"no answer within {self._timeout_s:g} s"
                )
            elif self._links[address].fileno() in ready:
                self._take_from(address)
        self._send_all()

    def _take_from(self, address: str) -> None:
        try:
            answers = self._links[address].receive_answers(self._timeout_s)
        except PeerError as error:
            self._drop_connection(address, str(error))
            return
        for sending, answer in answers:
            if sending is not None:  # None: a request of the broker
                self._in_flight[address].remove(sending)
                self._handle_answer(sending, answer)

    def _drop_connection(self, address: str, reason: str) -> None:
        """Close a connection and resend its frames, with the same keys."""
        link = self._links.pop(address, None)
        if link is not None:
            link.close()
        for sending in self._in_flight.pop(address, ()):
            self._schedule_resend(sending, reason)

    def _handle_answer(
        self, sending: _PendingFrame, answer: SendResult | Command
    ) -> None:
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
            raise SendFailed(f"{_describe_rows(frame)} are not stored: {reason}")
        self._schedule_resend(sending, reason)

    def _schedule_resend(self, sending: _PendingFrame, reason: str) -> None:
        """Count an attempt and resend later; SendFailed after the last attempt."""
        sending.attempts += 1
        if sending.attempts > self._settings.retries:
            raise SendFailed(
                f"{_describe_rows(sending.frame)} were not acknowledged in "
                f"{sending.attempts} attempts: {reason}"
            )
        _log.info("%s failed, will retry: %s", _describe_rows(sending.frame), reason)
        self._routes.mark_stale(sending.frame.topic)
        self._pause_s = max(self._pause_s, pause_s(sending.attempts))
        self._unsent.append(sending)


def _describe_rows(frame: Frame) -> str:
    return (
        f"rows {frame.first_row} to {frame.last_row} of the task, for topic "
        f"{frame.topic},"
    )
