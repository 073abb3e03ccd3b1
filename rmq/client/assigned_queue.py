"""AssignedQueue: one queue of this consumer, with its fetched and committed offsets.

The queue is the lease of its messages: after `revoke`, acknowledgements of these
messages have no effect. In an ordered group the queue hands out its messages one after
another, while this member has a valid lock.
"""

from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol

from rmq._fastpath.client.codec import PullResult, PullTemplate
from rmq._fastpath.client.messages import ReceivedMessage
from rmq._fastpath.client.process_queue import FetchBuffer, Lease, ProcessQueue
from rmq.client.core.routes import MessageQueue
from rmq.client.fetch_queue import FetchHandler, FetchQueue
from rmq.client.namespaces import unwrap
from rmq.client.options import ConsumerGroup
from rmq.client.subscription import Subscription
from rmq.outgoing.connection import Connection, steady_ms
from rmq.outgoing.wire import Completion
from rmq.protocol.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq.protocol.topics import plain_topic

HOLD_MS: Final = 15_000
PULL_TIMEOUT_MS: Final = 30_000
"""Time limit of a pull. A broker that holds a pull for 15 s may answer after 20 s.
"""

LOCK_VALID_MS: Final = 30_000
"""Time for which a member uses the lock of a queue after the broker has granted or
renewed the lock.
"""

NO_LOCK_MS: Final = 1 << 50


class Redeliver(Protocol):
    """Function that lets the broker deliver a message again, or move the message to the
    dead-letter queue.
    """

    def __call__(
        self,
        queue: "AssignedQueue",
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> Coroutine[Any, Any, None]:
        """Return when the broker, or this consumer, has accepted the message."""


class QueueContext(NamedTuple):
    """The values that all queues of a consumer share."""

    handler: FetchHandler
    buffer: FetchBuffer
    group: ConsumerGroup
    redeliver: Redeliver


class AssignedQueue(Lease, FetchQueue):
    """One assigned queue; the base class `Lease` has `ack`."""

    def __init__(
        self,
        context: QueueContext,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
    ) -> None:
        FetchQueue.__init__(self, context.handler, queue, subscription)
        self.buffer = context.buffer
        self.state = ProcessQueue(offset)
        self.max_offset = offset
        self.committed: int | None = None
        self.last_consume_ms = 0
        self.locked_until_ms = NO_LOCK_MS
        self.is_busy = False
        """Whether a handler works on a message of this queue; only in ordered groups.
        """

        self._context = context
        self._suspended_until_ms = 0
        self._ready: deque[ReceivedMessage] = deque()
        """Fetched messages that the program has not received; only in ordered groups.
        """

        self._template = PullTemplate(
            context.group.name,
            subscription.topic,
            queue.queue_id,
            expression=subscription.expression,
            kind=subscription.kind,
            version=subscription.version,
        )

    # -- pulls

    def has_room(self, share: int) -> bool:
        """Whether the queue holds fewer messages than `share`. In an unordered group
        its newest message must also be near its first unacknowledged message.
        """
        if self.state.count >= share:
            return False
        return self._context.group.ordered or not self.state.is_far_ahead

    def _send_request(
        self, connection: Connection, waiter: Completion, count: int
    ) -> None:
        connection.pull(
            self._template,
            waiter,
            PULL_TIMEOUT_MS,
            offset=self.state.next_offset,
            count=count,
            hold_ms=HOLD_MS,
            sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION,
        )

    def record_answer(self, answer: PullResult) -> None:
        """Record the facts about the queue in an answer."""
        self.broker_id = answer.suggested_broker_id
        self.max_offset = max(self.max_offset, answer.max_offset)

    def program_topic(self, topic: str) -> str:
        """Return the topic that programs know, also for a retry topic of POP."""
        group = self._context.group
        return unwrap(group.namespace, plain_topic(topic, group.name))

    def seek(self, offset: int) -> None:
        """Drop the fetched messages, and continue at another offset."""
        self.state.reset(offset)
        self._ready.clear()
        self.epoch += 1
        self.is_pulling = False

    def revoke(self) -> None:
        """Give up the queue: acknowledgements of its messages no longer count."""
        self.is_revoked = True
        self._ready.clear()

    def nack(
        self, message: ReceivedMessage, delay_s: float | None, *, dead_letter: bool
    ) -> Coroutine[Any, Any, None]:
        """Let the broker deliver a message again later."""
        return self._context.redeliver(self, message, delay_s, dead_letter=dead_letter)

    # -- ordered groups

    @property
    def can_hand_out(self) -> bool:
        """Whether a fetched message waits and no handler works on this queue; lock and
        pause are not checked.
        """
        return bool(self._ready) and not self.is_busy and not self.is_revoked

    def unavailable_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds of the pause that are left; 0 without a valid lock;
        None if messages can be handed out.
        """
        if now_ms < self._suspended_until_ms or now_ms > self.locked_until_ms:
            return max(self._suspended_until_ms - now_ms, 0)
        return None

    def add_ready(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Append fetched messages; return whether they can be handed out next."""
        was_idle = not self._ready and not self.is_busy
        self._ready.extend(messages)
        return was_idle

    def hand_out(self, count: int) -> list[ReceivedMessage]:
        """Return the next messages; the queue is busy until `release`."""
        self.is_busy = True
        ready = self._ready
        return [ready.popleft() for _ in range(min(count, len(ready)))]

    def put_first(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put messages back, before all other messages of the queue."""
        self._ready.extendleft(reversed(messages))

    def release(self) -> None:
        """Record that no handler works on messages of this queue."""
        self.is_busy = False

    def suspend(self, pause_s: float) -> None:
        """Hand out no messages for a time."""
        self._suspended_until_ms = steady_ms() + int(pause_s * 1_000)

    def renew_lock(self, now_ms: int) -> None:
        """Record that the broker has locked the queue for this member."""
        self.locked_until_ms = now_ms + LOCK_VALID_MS

    # -- offsets

    @property
    def has_progress(self) -> bool:
        """Whether the offset to commit differs from the committed offset."""
        return self.state.commit_offset != self.committed

    @property
    def lag(self) -> int:
        """Number of unconsumed messages, as far as the last pull has reported the end
        of the queue.
        """
        return max(self.max_offset - self.state.commit_offset, 0)

    def record_commit(self, offset: int) -> None:
        """Record the committed offset."""
        self.committed = offset

    def record_consumption(self, now_ms: int) -> None:
        """Record that messages were consumed since the last commit."""
        self.last_consume_ms = now_ms
