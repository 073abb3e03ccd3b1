"""Settler: acks, renewals, and messages that are given back, of one transport.

Threads of a pool may settle messages, too: each method has the lock of the link while
it changes leases or begins requests. No method waits for an answer. Without a
connection, acks, copies and dead letters wait here for the next `flush`. Without a
connection, messages that are given back become visible after their timeout.

A copy or a dead letter without an answer is sent again, and may be stored twice.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from rmq._fastpath.client.messages import SendResult
from rmq.client.core.leases import AckRequest, Arrival, Lease, Leases
from rmq.client.core.pop import change_request
from rmq.core.errors import PeerError
from rmq.core.logs import Foreign, SparseLog
from rmq.integrations.task_link import TaskLink
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import ChangeInvisibleTimeResponseHeader
from rmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

RETURN_MS: Final = 50
"""Time after which a message that is given back is visible again."""

DEAD_LETTER: Final = -1
REQUEUES: Final = "REQUEUES"
"""Property: the number of times that the message was requeued, each time as a new
message.
"""


class Origin(NamedTuple):
    """The source of a delivered message, and the facts that a copy needs."""

    topic: str
    group: str
    queue_id: int
    physical_offset: int
    body: bytes
    properties: dict[str, str]
    deliveries: int


class Copy(NamedTuple):
    """A message to store again; `tag` is settled afterwards."""

    tag: str
    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]


class Settler:
    """The messages that one transport holds."""

    def __init__(self, link: TaskLink, visibility_s: float) -> None:
        self.leases = Leases(visibility_s)
        self.origins: dict[str, Origin] = {}
        self.renewed_s = time.monotonic()
        self.is_batching = False
        """Whether an event loop calls `flush` in each of its turns."""

        self.pops_under_way = 0
        """POPs whose messages may still come."""

        self.pops_answered = 0
        """The POPs among them whose answer waits for the owner."""

        self._link = link
        self._copies: deque[Copy] = deque()
        self._sending: dict[str, Copy] = {}
        self._dead: deque[str] = deque()
        self._moving: dict[str, None] = {}
        self._changing = 0

    def add(self, lease: Lease, origin: Origin) -> Arrival:
        """Add a popped message; one that was settled before is acknowledged again."""
        with self._link.lock:
            arrival = self.leases.add(lease)
            if arrival is Arrival.NEW:
                self.origins[lease.tag] = origin
            return arrival

    # -- the end of a message

    def acknowledge(self, tag: str) -> None:
        """Settle a message; a tag that is not known is ignored."""
        with self._link.lock:
            self._settle(tag)
        if not self.is_batching:
            self.flush()

    def _settle(self, tag: str) -> None:
        self.origins.pop(tag, None)
        self.leases.settle(tag)

    def store_again(self, tag: str, queue_id: int, properties: dict[str, str]) -> None:
        """Store a copy of a message in a queue of its topic, then settle the message.

        If the process ends between these steps, both messages remain.
        """
        origin = self.origins.get(tag)
        if origin is None:
            return
        self._copies.append(Copy(tag, origin.topic, queue_id, origin.body, properties))
        if not self.is_batching:
            self.flush()

    def requeue(self, tag: str) -> None:
        """Let another worker have a message at once, with the same priority."""
        origin = self.origins.get(tag)
        if origin is not None:
            properties = {**origin.properties, REQUEUES: str(origin.deliveries + 1)}
            self.store_again(tag, origin.queue_id, properties)

    def move_to_dead_letters(self, tag: str) -> None:
        """Let the broker move a message to the dead letters of its group."""
        self._dead.append(tag)
        if not self.is_batching:
            self.flush()

    def _begin_move(self, tag: str) -> None:
        origin = self.origins.get(tag)
        if origin is None:
            return
        header = ConsumerSendMsgBackRequestHeader(
            offset=origin.physical_offset,
            group=origin.group,
            delay_level=DEAD_LETTER,
            origin_topic=origin.topic,
            max_reconsume_times=0,
        )
        command = Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        self._moving[tag] = None
        self._link.begin(command, partial(self._on_moved, tag))

    def _on_moved(self, tag: str, answer: Command) -> None:
        self._moving.pop(tag, None)
        if answer.code == ResponseCode.SUCCESS:
            self._settle(tag)
            return
        logger.warning(
            "cannot move a message to the dead letters: %d: %s",
            answer.code, Foreign(answer.remark),
        )  # fmt: skip
        self.release([tag])

    def give_back(self, tags: Iterable[str]) -> None:
        """Make messages visible to other workers soon."""
        leases = self.release(tags)
        if not leases or not self._link.is_open:
            return
        try:
            with self._link.lock:
                for lease in leases:
                    if not lease.is_changing:
                        self._change_time(lease, RETURN_MS, self._given_back)
                self._link.flush()
        except PeerError:
            logger.info(
                "%d messages were not settled, and the broker delivers them "
                "again after their timeout",
                len(leases),
            )

    def release(self, tags: Iterable[str]) -> list[Lease]:
        """Remove messages without an ack: the broker delivers them again."""
        tags = list(tags)
        with self._link.lock:
            for tag in tags:
                self.origins.pop(tag, None)
            return self.leases.release(tags)

    def _given_back(self, _lease: Lease, _now_s: float, _answer: Command) -> None:
        self._changing -= 1

    # -- requests

    def begin_requests(self) -> None:
        """Begin to send copies, dead letters and acks; PeerError without a connection.

        `flush` of the link sends them, together with other requests.
        """
        link = self._link
        with link.lock:
            while self._copies:
                copy = self._copies.popleft()
                self._sending[copy.tag] = copy
                link.begin_send(*copy[1:], partial(self._on_stored, copy))
            while self._dead:
                self._begin_move(self._dead.popleft())
            for request in self.leases.take_acks(link.broker, time.monotonic()):
                link.begin(request.command, partial(self._on_acked, request))

    def flush(self) -> None:
        """Send copies, dead letters and acks, if there is a connection."""
        if not self._link.is_open:
            return
        try:
            with self._link.lock:
                self.begin_requests()
                self._link.flush()
        except PeerError as error:
            logger.info("acks wait for a connection: %s", Foreign(error))

    def _on_stored(self, copy: Copy, answer: SendResult | Command) -> None:
        self._sending.pop(copy.tag, None)
        if isinstance(answer, SendResult):
            self._settle(copy.tag)
            return
        logger.warning(
            "cannot requeue a message of topic %s: %d: %s",
            copy.topic, answer.code, Foreign(answer.remark),
        )  # fmt: skip
        self.release([copy.tag])

    def _on_acked(self, request: AckRequest, answer: Command) -> None:
        self.leases.confirm(request)
        if answer.code != ResponseCode.SUCCESS:
            logger.warning(
                "the broker refuses acks: %d: %s", answer.code, Foreign(answer.remark)
            )

    def renew(self) -> None:
        """Renew the leases that need it."""
        self.renewed_s = now_s = time.monotonic()
        link = self._link
        if not link.is_open:
            return
        try:
            with link.lock:
                for lease in self.leases.begin_renewals(now_s):
                    self._change_time(lease, self._visibility_ms, self._on_renewed)
                link.flush()
        except PeerError as error:
            logger.info("leases wait for a connection: %s", Foreign(error))

    @property
    def _visibility_ms(self) -> int:
        return int(self.leases.visibility_s * 1_000)

    def _change_time(
        self,
        lease: Lease,
        invisible_ms: int,
        callback: Callable[[Lease, float, Command], None],
    ) -> None:
        self._changing += 1
        self._link.begin(
            change_request(lease.handle, lease.topic, lease.group, invisible_ms),
            partial(callback, lease, time.monotonic()),
        )

    def _on_renewed(self, lease: Lease, begun_s: float, answer: Command) -> None:
        self._changing -= 1
        header = None
        if answer.code == ResponseCode.SUCCESS:
            header = answer.header(ChangeInvisibleTimeResponseHeader)
        else:
            logger.warning(
                "the broker refuses to renew a message of topic %s: %d: %s",
                lease.topic, answer.code, Foreign(answer.remark),
            )  # fmt: skip
        self.leases.end_renewal(lease, header, begun_s)

    def on_lost(self) -> None:
        """Keep unanswered requests for the next connection."""
        self._changing = 0
        self.pops_under_way = self.pops_answered
        self._copies.extendleft(self._sending.values())
        self._sending.clear()
        self._dead.extend(self._moving)
        self._moving.clear()
        self.leases.on_connection_lost()

    @property
    def is_waiting(self) -> bool:
        """Whether answers are missing."""
        is_sending = self._copies or self._sending or self._dead or self._moving
        is_busy = self._changing or self.pops_under_way or is_sending
        return bool(is_busy) or self.leases.owes_acks
