"""AskedQueue: a queue that a puller asks for messages, by pulls or by POP."""

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.core.routes import MessageQueue
from rmq.client.subscription import Subscription
from rmq.outgoing.connection import Connection

if TYPE_CHECKING:
    from rmq.client.puller import Puller


class AskedQueue(ABC):
    """`epoch` changes when fetched messages become worthless, as after a seek."""

    def __init__(
        self, puller: "Puller", queue: MessageQueue, subscription: Subscription
    ) -> None:
        self.puller = puller
        self.queue = queue
        self.subscription = subscription
        self.buffer: deque[ReceivedMessage] = deque()
        """What is fetched and not handed out; only in ordered groups."""

        self.epoch = 0
        self.broker_id = 0
        self.last_pull_ms = 0
        self.is_pulling = False
        self.is_paused = False
        self.is_revoked = False
        self.is_busy = False
        """A handler works on one of its messages; only in ordered groups."""

    @abstractmethod
    def has_room(self, share: int) -> bool:
        """Whether more may be fetched; `share` messages are its part of the room."""

    @abstractmethod
    def ask(self, connection: Connection) -> None:
        """Send the request; the puller learns of the answer, or of the failure."""
