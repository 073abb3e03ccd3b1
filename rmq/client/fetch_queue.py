"""FetchQueue: a queue whose messages a consumer fetches, by pulls or by POP."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

from rmq.client.core.routes import MessageQueue
from rmq.client.subscription import Subscription
from rmq.outgoing.connection import Connection, steady_ms
from rmq.outgoing.wire import Completion


class FetchHandler(Protocol):
    """Handles the end of each request; `Puller` and `Popper` implement it."""

    def on_answer(self, queue: Any, epoch: int, answer: Any) -> None:  # noqa: ANN401 - by kind of queue
        """Handle an answer with any code."""

    def on_failure(self, queue: Any, epoch: int, error: BaseException) -> None:  # noqa: ANN401 - as above
        """Handle a lost connection or a missing answer."""


class FetchQueue(ABC):
    """One queue, with at most one request in flight.

    `epoch` changes when the queue drops its fetched messages, for example after a seek.
    """

    def __init__(
        self, handler: FetchHandler, queue: MessageQueue, subscription: Subscription
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self.epoch = 0
        self.broker_id = 0
        self.last_pull_ms = 0
        self.is_pulling = False
        self.is_paused = False
        self.is_revoked = False
        self._handler = handler

    @property
    def may_fetch(self) -> bool:
        """Whether the state of the queue allows a request."""
        return not (self.is_pulling or self.is_revoked or self.is_paused)

    def pause(self) -> None:
        """Send no requests until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Allow requests again."""
        self.is_paused = False

    @abstractmethod
    def has_room(self, share: int) -> bool:
        """Whether more messages may be fetched; `share` is the limit of messages of a
        queue.
        """

    def fetch(self, connection: Connection, count: int) -> None:
        """Request up to `count` messages; the handler gets the answer."""
        self.is_pulling = True
        self.last_pull_ms = steady_ms()
        self._send_request(connection, _Waiter(self._handler, self), count)

    @abstractmethod
    def _send_request(
        self, connection: Connection, waiter: Completion, count: int
    ) -> None:
        """Write the request."""

    def end_request(self, epoch: int) -> bool:
        """Record the end of a request; False if the queue has another epoch by now."""
        if self.is_revoked or epoch != self.epoch:
            return False
        self.is_pulling = False
        return True


class _Waiter:
    """Passes the end of a request to the handler.

    A request is never withdrawn, because a POP makes messages invisible.
    """

    __slots__ = ("_epoch", "_handler", "_queue")

    def __init__(self, handler: FetchHandler, queue: FetchQueue) -> None:
        self._handler = handler
        self._queue = queue
        self._epoch = queue.epoch

    def done(self) -> bool:
        """Return False: no task waits here that could be cancelled."""
        return False

    def set_result(self, answer: object) -> None:
        """Pass the answer to the handler."""
        self._handler.on_answer(self._queue, self._epoch, answer)

    def set_exception(self, error: BaseException) -> None:
        """Pass the failure to the handler."""
        self._handler.on_failure(self._queue, self._epoch, error)
