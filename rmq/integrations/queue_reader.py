"""QueueReader: the messages of durable queues for a worker without kombu.

One thread reads and renews. Any thread may settle messages.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.core.leases import Arrival, Lease
from rmq.integrations.names import Names
from rmq.integrations.settling import Origin, Settler
from rmq.integrations.sources import PopSource
from rmq.integrations.task_link import RECONNECT_S, TaskLink
from rmq.integrations.topics import Topics
from rmq.protocol.properties import KEYS

WAIT_S: Final = 1.0
END_S: Final = 2.0
"""Time limit of `close` for the answers to acks."""


class QueueMessage(NamedTuple):
    """A message of a queue; `tag` settles it."""

    tag: str
    queue: str
    message: ReceivedMessage

    @property
    def deliveries(self) -> int:
        """Number of earlier deliveries of the message."""
        return self.message.reconsume_times


class QueueReader:
    """Reads queues over a separate link.

    Args:
        link (TaskLink): a new link.
        names (Names): the names of topics and groups.
        queues (Sequence[str]): the queues to read.
        prefetch_count (int): the limit of messages that are held.
        visibility_s (float): seconds until another worker gets the messages of a dead
            worker.
        queue_count (int): the number of queues of a topic, one for each priority.
    """

    def __init__(
        self,
        link: TaskLink,
        names: Names,
        queues: Sequence[str],
        *,
        prefetch_count: int,
        visibility_s: float = 60.0,
        queue_count: int = 1,
    ) -> None:
        self.link = link
        self.prefetch_count = prefetch_count
        self.visibility_s = visibility_s
        self.settler = Settler(link, visibility_s)
        link.events = self
        self._ready: deque[QueueMessage] = deque()
        self._last_tag = 0
        self._sources: list[PopSource] = []
        topics = Topics(link, may_create=True)
        with ExitStack() as undo:
            undo.callback(link.close)  # after an error there is no reader to close
            link.connect()
            for queue in queues:
                topic = names.topic(queue)
                topics.ensure(topic, queue_count)
                self._sources.append(PopSource(self, queue, topic, names.group(queue)))
            undo.pop_all()

    def __len__(self) -> int:
        return len(self.settler.leases)

    @property
    def holds_messages(self) -> bool:
        """Whether messages are held, or a POP under way may bring some."""
        # a POP ends after its messages are held
        return bool(self.settler.pops_under_way or len(self))

    def on_connected(self) -> None:
        """Continue with the next request."""

    def on_lost(self) -> None:
        """Forget the requests under way; messages stay leased."""
        self.settler.on_lost()
        for source in self._sources:
            source.on_lost()

    # -- functions that sources call

    def count_free(self) -> int:
        """Return the number of messages that may be requested now."""
        asked = sum(source.asked for source in self._sources)
        return self.prefetch_count - len(self) - asked

    def take_popped(
        self, source: PopSource, message: ReceivedMessage, lease: Lease
    ) -> None:
        """Keep a message for `receive`."""
        self._last_tag += 1
        lease.tag = tag = str(self._last_tag)
        queue_id: Any = message.queue
        known = message.properties
        origin = Origin(
            source.topic,
            source.group,
            queue_id,
            message.physical_offset,
            message.body,
            {KEYS: known[KEYS]} if KEYS in known else {},
            message.reconsume_times,
        )
        if self.settler.add(lease, origin) is Arrival.NEW:
            self._ready.append(QueueMessage(tag, source.queue, message))

    def take_pulled(self, source: object, messages: list[ReceivedMessage]) -> None:
        """There are no pulls."""
        raise AssertionError("durable queues are popped")

    # -- messages

    def receive(self, timeout_s: float) -> QueueMessage | None:
        """Return the next message; None without one in time.

        PeerError if the broker is away for too long.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            wait_s = self._begin_requests()
            if self._ready:
                return self._ready.popleft()
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return None
            if self.link.is_open:
                self.link.receive(min(left_s, wait_s))
            else:
                time.sleep(min(left_s, RECONNECT_S))

    def _begin_requests(self) -> float:
        """Handle answers, send acks and requests; return the maximum time to wait."""
        if not self.link.recover():
            return RECONNECT_S
        self.link.run_callbacks()
        now_s = time.monotonic()
        if now_s > self.settler.renewed_s + self.visibility_s / 3:
            self.settler.renew()
        self.settler.flush()
        wait_s = WAIT_S
        for source in self._sources:
            if source.is_overdue(now_s):
                self.link.drop()
                return 0.0
            source.begin_next(now_s)
            if not source.is_busy and source.pause_until_s > now_s:
                wait_s = min(wait_s, source.pause_until_s - now_s)
        self.link.flush()
        return wait_s

    def ack(self, tag: str) -> None:
        """Acknowledge a message."""
        self.settler.acknowledge(tag)

    def move_to_dead_letters(self, tag: str) -> None:
        """Move a message to the dead letters of its queue."""
        self.settler.move_to_dead_letters(tag)

    def give_back(self, tags: Iterable[str]) -> None:
        """Make messages visible to other workers soon."""
        self.settler.give_back(tags)

    def close(self) -> None:
        """Make undelivered messages visible again, wait for answers, and disconnect."""
        end_s = time.monotonic() + END_S
        while self.link.is_open:
            self.settler.give_back([each.tag for each in self._ready])
            self._ready.clear()
            self.settler.flush()
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not self.settler.is_waiting:
                break
            self.link.receive(left_s)
            self.link.run_callbacks()
        self.link.close()
