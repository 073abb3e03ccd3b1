"""Handlers: a pool of tasks that call a function for each message.

Returning acknowledges, raising means again later. A function that takes longer than
`consume_timeout_s` is cancelled, and its message is given back: one scope for a worker,
and one task that looks at all of them, because a time limit for each message would cost
more than the message. When the workers themselves are cancelled, their messages are
neither consumed nor failed: the consumer hands them out again.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import anyio

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.assigned_queue import HeldQueue
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

LOOK_INTERVAL_S: Final = 1.0

Handler = Callable[[Any], Awaitable[object] | object]
"""Gets a message, or with `batch` a list of them."""


class Source(Protocol):
    """Where the workers get messages from."""

    async def next_batch(self, count: int) -> list[ReceivedMessage]:
        """Return messages of one queue; none at the end."""

    def released(self, message: ReceivedMessage) -> None:
        """Let the queue of a message go on."""

    def take_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand messages out again that nobody has consumed."""


class _Worker:
    """One task; `begun_ms` is when its handler began, 0 between two.

    `messages` are those that it has in hand: neither acknowledged nor given back.
    """

    def __init__(self) -> None:
        self.begun_ms = 0
        self.scope = anyio.CancelScope()
        self.messages: list[ReceivedMessage] = []


class Handlers:
    """See above."""

    def __init__(
        self, source: Source, handler: Handler, batch: int, timeout_s: float
    ) -> None:
        self._source = source
        self._handler = handler
        self._batch = batch
        self._timeout_ms = int(timeout_s * 1_000)
        self._workers: list[_Worker] = []
        self.succeeded = self.failed = 0

    async def run(self, concurrency: int) -> None:
        """Call the handler until the source ends."""
        async with anyio.create_task_group() as watch:
            watch.start_soon(self._watch)
            async with anyio.create_task_group() as tasks:
                for _ in range(concurrency):
                    tasks.start_soon(self._work)
            watch.cancel_scope.cancel()

    def cancel(self) -> None:
        """Cancel the handlers that run."""
        for worker in self._workers:
            worker.scope.cancel()

    async def _watch(self) -> None:
        """Cancel handlers that take too long."""
        while True:
            await anyio.sleep(min(LOOK_INTERVAL_S, self._timeout_ms / 2_000))
            late_ms = steady_ms() - self._timeout_ms
            for worker in self._workers:
                if 0 < worker.begun_ms < late_ms:
                    worker.scope.cancel()

    async def _work(self) -> None:
        worker = _Worker()
        self._workers.append(worker)
        try:
            while await self._work_until_late(worker):
                pass
        finally:
            if worker.messages:  # it is cancelled: no failure of the messages
                self._source.take_back(worker.messages)

    async def _work_until_late(self, worker: _Worker) -> bool:
        """Handle messages until one takes too long; False at the end of the source."""
        worker.scope = anyio.CancelScope()
        with worker.scope:
            while messages := await self._source.next_batch(self._batch):
                worker.messages = messages
                worker.begun_ms = steady_ms()
                await self._handle(messages)
                worker.begun_ms = 0
                worker.messages = []
            return False
        worker.begun_ms = 0
        if worker.messages:
            logger.warning(
                "the handler of %s took over %g s, or was stopped",
                Foreign(worker.messages[0].msg_id),
                self._timeout_ms / 1_000,
            )
            await self._give_back(worker.messages)
            worker.messages = []
        return True

    async def _handle(self, messages: list[ReceivedMessage]) -> None:
        try:
            found = self._handler([*messages] if self._batch > 1 else messages[0])
            if inspect.isawaitable(found):
                await found
        except Exception:
            logger.exception("the handler failed for %s", messages[0].msg_id)
            await self._give_back(messages)
        else:
            self.succeeded += len(messages)
            for message in messages:
                message.ack()
            self._source.released(messages[0])

    async def _give_back(self, messages: list[ReceivedMessage]) -> None:
        first = messages[0]
        self.failed += len(messages)
        while messages:
            await messages[-1].nack()
            messages.pop()
        self._source.released(first)


def lease_of(message: ReceivedMessage) -> HeldQueue:
    """Return the queue that a message came from."""
    assert isinstance(message.lease, HeldQueue)
    return message.lease
