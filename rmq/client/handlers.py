"""HandlerPool: tasks that call the handler of a program for each message.

Known in Java as `ConsumeMessageConcurrentlyService`, for ordered groups
`ConsumeMessageOrderlyService`. When the handler returns, the message is acknowledged;
when it raises, the message comes again later. The pool cancels a handler that takes
longer than `consume_timeout_s`, and sends its message back. One task watches all
workers, because a timer for each message would need more CPU than the message.

When the workers themselves are cancelled, their messages are neither consumed nor
failed: the consumer hands them out again.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import anyio

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.assigned_queue import AssignedQueue
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

WATCH_INTERVAL_S: Final = 1.0

Handler = Callable[[Any], Awaitable[object] | object]
"""Function of the program that gets a message or, with `batch`, a list of messages."""


class MessageSource(Protocol):
    """The consumer, as its workers see it."""

    async def next_messages(self, count: int) -> list[ReceivedMessage]:
        """Return messages of one queue; an empty list at the end."""

    def release(self, message: ReceivedMessage) -> None:
        """Let the queue of a message hand out the next message; for ordered groups."""

    def return_messages(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand out unconsumed messages again."""


class _Worker:
    """A worker task; `begun_ms` is the start time of its handler, 0 between two calls.

    `messages` are the messages of the current call, neither acknowledged nor sent back.
    """

    def __init__(self) -> None:
        self.begun_ms = 0
        self.scope = anyio.CancelScope()
        self.messages: list[ReceivedMessage] = []


class HandlerPool:
    """The tasks of one `run`; `concurrency` is their number."""

    def __init__(
        self,
        source: MessageSource,
        handler: Handler,
        *,
        concurrency: int,
        batch: int,
        timeout_s: float,
    ) -> None:
        self.concurrency = concurrency
        self.succeeded_count = self.failed_count = 0
        self._source = source
        self._handler = handler
        self._batch = batch
        self._timeout_ms = int(timeout_s * 1_000)
        self._workers: list[_Worker] = []

    async def run(self) -> None:
        """Call the handler until the source ends."""
        async with anyio.create_task_group() as watch:
            watch.start_soon(self._watch)
            async with anyio.create_task_group() as tasks:
                for _ in range(self.concurrency):
                    tasks.start_soon(self._run_worker)
            watch.cancel_scope.cancel()

    def cancel(self) -> None:
        """Cancel the handlers that run."""
        for worker in self._workers:
            worker.scope.cancel()

    async def call(self, messages: list[ReceivedMessage]) -> None:
        """Call the handler with a list, or with one message if it takes no lists."""
        found = self._handler([*messages] if self._batch > 1 else messages[0])
        if inspect.isawaitable(found):
            await found

    async def _watch(self) -> None:
        """Cancel handlers that take too long."""
        while True:
            await anyio.sleep(min(WATCH_INTERVAL_S, self._timeout_ms / 2_000))
            late_ms = steady_ms() - self._timeout_ms
            for worker in self._workers:
                if 0 < worker.begun_ms < late_ms:
                    worker.scope.cancel()

    async def _run_worker(self) -> None:
        worker = _Worker()
        self._workers.append(worker)
        try:
            while await self._work_until_late(worker):
                pass
        finally:
            if worker.messages:  # the worker is cancelled: its messages did not fail
                self._source.return_messages(worker.messages)

    async def _work_until_late(self, worker: _Worker) -> bool:
        """Handle messages until one takes too long; False at the end of the source."""
        worker.scope = anyio.CancelScope()
        with worker.scope:
            while messages := await self._source.next_messages(self._batch):
                worker.messages = messages
                worker.begun_ms = steady_ms()
                await self._handle(messages)
                worker.begun_ms = 0
                worker.messages = []
            return False
        worker.begun_ms = 0
        if worker.messages:
            logger.warning(
                "the handler of %s took more than %g s, or was stopped",
                Foreign(worker.messages[0].msg_id),
                self._timeout_ms / 1_000,
            )
            await self._send_back(worker.messages)
            worker.messages = []
        return True

    async def _handle(self, messages: list[ReceivedMessage]) -> None:
        try:
            await self.call(messages)
        except Exception:
            logger.exception("the handler failed for %s", messages[0].msg_id)
            await self._send_back(messages)
        else:
            self.succeeded_count += len(messages)
            for message in messages:
                message.ack()
            self._source.release(messages[0])

    async def _send_back(self, messages: list[ReceivedMessage]) -> None:
        """Send messages back for redelivery; each is removed from the list, so that
        none is sent back twice.
        """
        first = messages[0]
        self.failed_count += len(messages)
        while messages:
            await messages[-1].nack()
            messages.pop()
        self._source.release(first)


def assigned_queue_of(message: ReceivedMessage) -> AssignedQueue:
    """Return the assigned queue of a message."""
    assert isinstance(message.lease, AssignedQueue)
    return message.lease
