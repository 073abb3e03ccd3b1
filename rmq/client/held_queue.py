"""HeldQueue: a queue that is assigned to a consumer, with what is known of it.

It is the lease of its messages: after `revoke` no acknowledgement counts.
"""

from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from rmq._fastpath.client_codec import PullTemplate
from rmq._fastpath.client_messages import ReceivedMessage
from rmq.client.core.process_queue import ProcessQueue
from rmq.client.core.routes import MessageQueue
from rmq.client.subscription import Subscription

if TYPE_CHECKING:
    from rmq.client.puller import Puller


class HeldQueue:
    """`epoch` changes when fetched messages become worthless, as after a seek."""

    def __init__(
        self,
        puller: "Puller",
        queue: MessageQueue,
        subscription: Subscription,
        group: str,
        offset: int,
    ) -> None:
        self.puller = puller
        self.queue = queue
        self.subscription = subscription
        self.state = ProcessQueue(offset)
        self.template = PullTemplate(
            group,
            subscription.topic,
            queue.queue_id,
            expression=subscription.expression,
            kind=subscription.kind,
            version=subscription.version,
        )
        self.buffer: deque[ReceivedMessage] = deque()
        self.epoch = 0
        self.broker_id = 0
        self.max_offset = offset
        self.committed: int | None = None
        self.rests_until_ms = 0
        self.locked_until_ms = 0
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self.is_pulling = False
        self.is_paused = False
        self.is_revoked = False
        self.is_busy = False
        """A handler works on one of its messages; only in ordered groups."""

    def ack(self, message: ReceivedMessage) -> bool:
        """Mark a message consumed; False if the queue is no longer ours."""
        if self.is_revoked or not self.state.ack(message):
            return False
        puller = self.puller
        puller.count -= 1
        puller.bytes -= message.size
        if puller.blocked:
            puller.freed(self)
        return True

    def nack(
        self, message: ReceivedMessage, delay_s: float | None, *, dead_letter: bool
    ) -> Coroutine[Any, Any, None]:
        """Have a message delivered again later."""
        return self.puller.give_back(self, message, delay_s, dead_letter=dead_letter)

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
