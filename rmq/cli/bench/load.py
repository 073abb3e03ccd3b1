"""Load for `rmq bench`: windows of sends or pulls on separate connections.

A worker has one connection. The callback of an answer sends the next request: no task,
retry or buffer adds to the latency.
"""

import asyncio
import os
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from rmq._fastpath.client.codec import PullResult, PullTemplate, SendTemplate
from rmq._fastpath.client.messages import SendResult, SendStatus
from rmq.cli.terminal.progress import Progress
from rmq.cli.tool_settings import ToolSettings
from rmq.client.admin import Queue
from rmq.core.errors import RmqError
from rmq.outgoing.connection import Connection, steady_ms
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PULL_SUBSCRIPTION
from rmq.protocol.properties import encode_properties

GROUP: Final = "rmq-bench"
TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1
RECORD_COUNT: Final = 32
"""Number of messages of one pull: the default of clients."""


class SendJob(NamedTuple):
    """One send job: queue, body, connection; several jobs may share a connection."""

    connection: object
    topic: str
    queue: Queue
    body: bytes


class PullJob(NamedTuple):
    """One pull job: queue, first and end offset, connection."""

    connection: object
    topic: str
    queue: Queue
    begin: int
    end: int


class Run:
    """Counters of all workers, and the limits that end the run."""

    def __init__(self, seconds: float, messages: int | None) -> None:
        self.latencies_ms: list[float] = []
        self.refused: Counter[str] = Counter()
        self.done = self.open = 0
        self.failure: BaseException | None = None
        self.ended = asyncio.Event()
        self._seconds = seconds
        self._left = self._limit = sys.maxsize if messages is None else messages
        self._began = self.last = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """The time from the first request to the last answer."""
        return self.last - self._began

    def reserve_request(self) -> bool:
        """Count one more request; False if the run is over."""
        is_over = self.elapsed_s >= self._seconds or self.done >= self._limit
        if is_over or self._left <= 0:
            return False
        self._left -= 1
        return True

    def record_answer(self, asked_at: float, count: int) -> None:
        """Record an answer for `count` messages."""
        self.last = now = time.perf_counter()
        self.latencies_ms.append(1_000 * (now - asked_at))
        self.done += count

    def finish_request(self, error: BaseException | None = None) -> None:
        """Record the end of a request; an error ends the run."""
        self.open -= 1
        self.failure = self.failure or error
        if self.open == 0 or error is not None:
            self.ended.set()

    async def watch(self, progress: Progress) -> None:
        """Wait for the end; RmqError after `TIMEOUT_S` without an answer."""
        while self.open and self.failure is None:
            try:
                await asyncio.wait_for(self.ended.wait(), POLL_S)
            except TimeoutError:
                if time.perf_counter() - self.last > TIMEOUT_S:
                    raise RmqError(f"no answer for {TIMEOUT_S:.0f} s") from None
            progress.update(self.done)
        if self.failure is not None:
            raise self.failure


class Worker(ABC):
    """Sends requests over one connection until the run is over."""

    window = 1

    def __init__(self, run: Run, connection: Connection) -> None:
        self.run = run
        self.connection = connection

    def begin(self) -> None:
        """Send the first requests, as many as the window has."""
        for _ in range(self.window):
            self.send_next()

    def send_next(self) -> None:
        """Send one more request if the run is not over."""
        if self._has_more() and self.run.reserve_request():
            self.run.open += 1
            self._send_request(_Waiter(self), steady_ms() + int(1_000 * TIMEOUT_S))

    def on_answer(self, answer: object, asked_at: float) -> None:
        """Count an answer and send the next request."""
        count = self._count_messages(answer)
        self.run.record_answer(asked_at, count)
        self.send_next()
        self.run.finish_request()

    def _has_more(self) -> bool:
        return True

    def _count_refusal(self, code: int, remark: str | None) -> int:
        self.run.refused[f"code {code}: {remark}"] += 1
        return 0

    @abstractmethod
    def _send_request(self, waiter: "_Waiter", deadline_ms: int) -> None:
        """Send a request."""

    @abstractmethod
    def _count_messages(self, answer: object) -> int:
        """Return the number of messages that an answer confirms."""


class _Waiter:
    """A request without an answer; the connection sees it as a future."""

    __slots__ = ("_asked_at", "_worker")

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._asked_at = time.perf_counter()

    def done(self) -> bool:
        """Whether the future is cancelled: never."""
        return False

    def set_result(self, answer: object) -> None:
        """Pass the answer to the worker."""
        self._worker.on_answer(answer, self._asked_at)

    def set_exception(self, error: BaseException) -> None:
        """End the run with the error."""
        self._worker.run.finish_request(error)


class SendWorker(Worker):
    """Sends the same body to one queue."""

    def __init__(
        self, run: Run, connection: Connection, job: "SendJob", window: int
    ) -> None:
        super().__init__(run, connection)
        self.window = window
        queue = job.queue
        self._template = SendTemplate(GROUP, job.topic, queue.queue_id, queue)
        self._body = job.body
        self._prefix = os.urandom(10).hex().upper()
        self._sent = 0

    def _send_request(self, waiter: _Waiter, deadline_ms: int) -> None:
        self._sent += 1
        msg_id = f"{self._prefix}{self._sent:012X}"
        properties = encode_properties({"UNIQ_KEY": msg_id, "WAIT": "true"}).encode()
        self.connection.send(
            self._template, properties, self._body, waiter, deadline_ms, msg_id
        )

    def _count_messages(self, answer: object) -> int:
        if isinstance(answer, SendResult):
            status = answer.status
            if status is SendStatus.SEND_OK:
                return 1
            return self._count_refusal(status, status.name)
        assert isinstance(answer, Command)
        return self._count_refusal(answer.code, answer.remark)


class PullWorker(Worker):
    """Reads one queue, one pull after another."""

    def __init__(self, run: Run, connection: Connection, job: "PullJob") -> None:
        super().__init__(run, connection)
        self._template = PullTemplate(GROUP, job.topic, job.queue.queue_id)
        self._offset, self._end = job.begin, job.end

    def _has_more(self) -> bool:
        return self._offset < self._end

    def _send_request(self, waiter: _Waiter, deadline_ms: int) -> None:
        self.connection.pull(
            self._template,
            waiter,
            deadline_ms - steady_ms(),
            offset=self._offset,
            count=RECORD_COUNT,
            hold_ms=0,
            sys_flag=PULL_SUBSCRIPTION,
        )

    def _count_messages(self, answer: object) -> int:
        assert isinstance(answer, PullResult)
        before = self._offset
        if answer.code != ResponseCode.SUCCESS:
            self._offset = self._end
            return self._count_refusal(answer.code, answer.remark)
        self._offset = max(before, answer.next_offset)
        return self._offset - before


async def measure(
    settings: ToolSettings,
    jobs: Sequence[SendJob | PullJob],
    window: int,
    seconds: float,
    messages: int | None,
) -> Run:
    """Run all jobs until the time or the number of messages is reached."""
    async with AsyncExitStack() as stack:
        connections: dict[object, Connection] = {}
        for job in jobs:
            if job.connection not in connections:
                client = await stack.enter_async_context(settings.async_client())
                opened = await client.connect(job.queue.address, is_broker=False)
                connections[job.connection] = opened
        run = Run(seconds, messages)
        for job in jobs:
            connection = connections[job.connection]
            if isinstance(job, SendJob):
                SendWorker(run, connection, job, window).begin()
            else:
                PullWorker(run, connection, job).begin()
        with Progress("messages", messages) as progress:
            await run.watch(progress)
    return run
