"""PoppedQueue: a queue that a consumer pops, or all queues of a broker (number -1).

The broker shares its messages among all members that pop it. Each popped message has a
lease of its own: nobody else in the group sees it until the lease is given back, or its
time is over.
"""

import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.core.pop import Place
from rmq.client.core.routes import MessageQueue
from rmq.client.fetch_queue import AskedQueue
from rmq.client.subscription import Subscription
from rmq.outgoing.connection import Connection, steady_ms
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import PopMessageRequestHeader

if TYPE_CHECKING:
    from rmq.client.popper import Popper

ANY_QUEUE: Final = -1
MAX_POPPED: Final = 32
"""Of one POP; brokers refuse more."""

MAX_OPEN: Final = 96
"""Popped and not acknowledged; Java's `popThresholdForQueue`."""

HOLD_MS: Final = 15_000
POP_TIMEOUT_MS: Final = 30_000


class PoppedQueue(AskedQueue):
    """See above; `open_count` messages of it are not acknowledged."""

    def __init__(
        self, popper: "Popper", queue: MessageQueue, subscription: Subscription
    ) -> None:
        super().__init__(popper.puller, queue, subscription)
        self.popper = popper
        self.open_count = 0

    def has_room(self, share: int) -> bool:
        """Whether another POP may be sent: not all of it can be consumed in time."""
        return self.open_count < min(MAX_OPEN, share)

    def ask(self, connection: Connection) -> None:
        """Pop."""
        popper, subscription = self.popper, self.subscription
        header = PopMessageRequestHeader(
            consumer_group=popper.group,
            topic=subscription.topic,
            queue_id=self.queue.queue_id,
            max_msg_nums=min(self.puller.limits.fetch, MAX_POPPED),
            invisible_time=popper.invisible_ms,
            poll_time=HOLD_MS,
            born_time=time.time_ns() // 1_000_000,
            init_mode=popper.init_mode,
            exp_type=subscription.kind,
            exp=subscription.expression,
        )
        request = Command.request(RequestCode.POP_MESSAGE, header)
        connection.start(request, _Answer(self), POP_TIMEOUT_MS)


class _Answer:
    """The waiter of a POP."""

    __slots__ = ("_popped",)

    def __init__(self, popped: PoppedQueue) -> None:
        self._popped = popped

    def done(self) -> bool:
        """Never given up: what is popped would stay invisible."""
        return False

    def set_result(self, answer: Command) -> None:
        """Take the answer."""
        self._popped.popper.answered(self._popped, answer)

    def set_exception(self, error: BaseException) -> None:
        """Learn that there will be none."""
        self._popped.puller.failed(self._popped, self._popped.epoch, error)


class PopLease:
    """The lease of a message; `is_changing` while its broker is asked for time."""

    __slots__ = (
        "expires_ms", "is_changing", "is_consumed", "is_settled", "place", "popped",
        "size",
    )  # fmt: skip

    def __init__(
        self, popped: PoppedQueue, place: Place, size: int, expires_ms: int
    ) -> None:
        self.popped = popped
        self.place = place
        self.size = size
        self.expires_ms = expires_ms
        self.is_changing = self.is_consumed = self.is_settled = False

    @property
    def is_revoked(self) -> bool:
        """Whether the message is no longer ours."""
        return self.is_settled or steady_ms() >= self.expires_ms

    def ack(self, _: ReceivedMessage) -> bool:
        """Mark it consumed; False if its time was over, or it was settled before."""
        if self.is_revoked:
            return False
        self.is_consumed = True
        self.popped.popper.settle(self)
        self.popped.popper.acknowledge(self)
        return True

    def nack(
        self, message: ReceivedMessage, delay_s: float | None, *, dead_letter: bool
    ) -> Coroutine[Any, Any, None]:
        """Have it delivered again later."""
        return self.popped.popper.give_back(
            self, message, delay_s, dead_letter=dead_letter
        )
