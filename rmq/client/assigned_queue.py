"""HeldQueue: a queue that is assigned to a consumer, with what is known of it.

It is the lease of its messages: after `revoke` no acknowledgement counts.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from rmq._fastpath.client.codec import Pulled, PullTemplate
from rmq._fastpath.client.messages import ReceivedMessage
from rmq._fastpath.client.process_queue import Lease, ProcessQueue
from rmq.client.core.routes import MessageQueue
from rmq.client.fetch_queue import AskedQueue
from rmq.client.namespaces import unwrap
from rmq.client.subscription import Subscription
from rmq.outgoing.connection import Connection
from rmq.protocol.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq.protocol.topics import plain_topic

if TYPE_CHECKING:
    from rmq.client.puller import Puller


HOLD_MS: Final = 15_000
PULL_TIMEOUT_MS: Final = 30_000
"""A hold of 15 s may be answered after 20."""


class HeldQueue(Lease, AskedQueue):
    """See above; `Lease` has `ack`."""

    puller: "Puller"

    def __init__(
        self,
        puller: "Puller",
        queue: MessageQueue,
        subscription: Subscription,
        group: str,
        offset: int,
    ) -> None:
        AskedQueue.__init__(self, puller, queue, subscription)
        self.group = group
        self.state = ProcessQueue(offset)
        self.template = PullTemplate(
            group,
            subscription.topic,
            queue.queue_id,
            expression=subscription.expression,
            kind=subscription.kind,
            version=subscription.version,
        )
        self.max_offset = offset
        self.committed: int | None = None
        self.rests_until_ms = 0
        self.locked_until_ms = 0
        self.last_consume_ms = 0

    def has_room(self, share: int) -> bool:
        """Whether it has less than its share, and no message that waits too long."""
        if self.state.count >= share:
            return False
        return self.puller.ordered or not self.state.is_far_ahead

    def ask(self, connection: Connection) -> None:
        """Pull."""
        connection.pull(
            self.template,
            _Answer(self),
            PULL_TIMEOUT_MS,
            offset=self.state.next_offset,
            count=self.puller.limits.fetch,
            hold_ms=HOLD_MS,
            sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION,
        )

    def nack(
        self, message: ReceivedMessage, delay_s: float | None, *, dead_letter: bool
    ) -> Coroutine[Any, Any, None]:
        """Have a message delivered again later."""
        return self.puller.give_back(self, message, delay_s, dead_letter=dead_letter)

    def origin_of(self, topic: str) -> str:
        """Return the topic that a program knows, also for one of POP's retries."""
        return unwrap(self.puller.client.namespace, plain_topic(topic, self.group))

    def reset(self, offset: int) -> None:
        """Forget what is fetched, and go on at an offset."""
        self.puller.forget(self)
        self.state.reset(offset)
        self.buffer.clear()
        self.epoch += 1
        self.is_pulling = False

    def revoke(self) -> None:
        """Stop: messages that are handed out can no longer be acknowledged."""
        self.is_revoked = True
        self.puller.forget(self)
        self.buffer.clear()


class _Answer:
    """The waiter of a pull."""

    __slots__ = ("_epoch", "_held")

    def __init__(self, held: HeldQueue) -> None:
        self._held = held
        self._epoch = held.epoch

    def done(self) -> bool:
        """Never given up."""
        return False

    def set_result(self, answer: Pulled) -> None:
        """Take the answer."""
        self._held.puller.answered(self._held, self._epoch, answer)

    def set_exception(self, error: BaseException) -> None:
        """Learn that there will be none."""
        self._held.puller.failed(self._held, self._epoch, error)
