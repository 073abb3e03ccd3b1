"""PoppedQueue: a queue that a consumer pops, or all queues of a broker (id -1).

Known in Java as `PopProcessQueue`. The broker divides its messages among all members
that pop it. Each popped message has a lease. No other member sees the message until the
lease expires or is returned.
"""

import time
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, Protocol

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.core.pop import ReceiptHandle
from rmq.client.core.routes import MessageQueue
from rmq.client.fetch_queue import FetchHandler, FetchQueue
from rmq.client.subscription import Subscription
from rmq.outgoing.connection import Connection, steady_ms
from rmq.outgoing.wire import Completion
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import PopMessageRequestHeader

ANY_QUEUE: Final = -1
MAX_POPPED: Final = 32
"""Maximum number of messages of one POP; brokers refuse more."""

MAX_OPEN: Final = 96
"""Limit of popped messages of a queue without an ack; Java's `popThresholdForQueue`."""

HOLD_MS: Final = 15_000
POP_TIMEOUT_MS: Final = 30_000


class PopSettings(NamedTuple):
    """The fields that are equal in all POPs of a consumer; `group` is the name on the
    wire.
    """

    group: str
    invisible_ms: int
    init_mode: int


class PoppedQueue(FetchQueue):
    """A popped queue; `open_count` is the number of its unacknowledged messages."""

    def __init__(
        self,
        handler: FetchHandler,
        settings: PopSettings,
        queue: MessageQueue,
        subscription: Subscription,
    ) -> None:
        super().__init__(handler, queue, subscription)
        self.open_count = 0
        self._settings = settings

    def has_room(self, share: int) -> bool:
        """Whether another POP may be sent; leases of too many messages would expire."""
        return self.open_count < min(MAX_OPEN, share)

    def _send_request(
        self, connection: Connection, waiter: Completion, count: int
    ) -> None:
        settings = self._settings
        header = PopMessageRequestHeader(
            consumer_group=settings.group,
            topic=self.subscription.topic,
            queue_id=self.queue.queue_id,
            max_msg_nums=min(count, MAX_POPPED),
            invisible_time=settings.invisible_ms,
            poll_time=HOLD_MS,
            born_time=time.time_ns() // 1_000_000,
            init_mode=settings.init_mode,
            exp_type=self.subscription.kind,
            exp=self.subscription.expression,
        )
        request = Command.request(RequestCode.POP_MESSAGE, header)
        connection.start(request, waiter, POP_TIMEOUT_MS)


class LeaseOwner(Protocol):
    """Ends leases; the `Popper`."""

    def ack(self, lease: "PopLease") -> None:
        """Acknowledge a message at its broker."""

    def send_back(
        self,
        lease: "PopLease",
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> Coroutine[Any, Any, None]:
        """Let the broker deliver a message again."""


class PopLease:
    """The lease of a message; `is_changing` while the broker changes the invisible
    time.
    """

    __slots__ = (
        "expires_ms", "handle", "is_changing", "is_consumed", "is_ended", "owner",
        "queue", "size",
    )  # fmt: skip

    def __init__(
        self,
        owner: LeaseOwner,
        queue: PoppedQueue,
        handle: ReceiptHandle,
        size: int,
        expires_ms: int,
    ) -> None:
        self.owner = owner
        self.queue = queue
        self.handle = handle
        self.size = size
        self.expires_ms = expires_ms
        self.is_changing = self.is_consumed = self.is_ended = False

    @property
    def is_revoked(self) -> bool:
        """Whether another member may have the message now."""
        return self.is_ended or steady_ms() >= self.expires_ms

    def ack(self, _: ReceivedMessage) -> bool:
        """Mark the message consumed; False if the lease has expired or ended."""
        if self.is_revoked:
            return False
        self.is_consumed = True
        self.owner.ack(self)
        return True

    def nack(
        self, message: ReceivedMessage, delay_s: float | None, *, dead_letter: bool
    ) -> Coroutine[Any, Any, None]:
        """Let the broker deliver the message again later."""
        return self.owner.send_back(self, message, delay_s, dead_letter=dead_letter)
