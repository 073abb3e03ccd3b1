"""Load: windows of sends or pulls on connections of their own, for `rmq bench`.

A worker has one connection. It asks again as soon as an answer is there, in the
callback of that answer: between two requests is no task, no retry and no buffer.
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
"""Messages that one pull asks for, as clients do."""


class SendJob(NamedTuple):
    """What is sent where, and over which connection."""

    place: object
    topic: str
    queue: Queue
    body: bytes


class PullJob(NamedTuple):
    """What is read from where, and over which connection."""

    place: object
    topic: str
    queue: Queue
    begin: int
    end: int


class Run:
    """What all workers have done, and whether they go on."""

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
    def seconds(self) -> float:
        """From the first request to the last answer."""
        return self.last - self._began

    def may_ask(self) -> bool:
        """Whether one more request is wanted; it counts as asked."""
        is_over = self.seconds >= self._seconds or self.done >= self._limit
        if is_over or self._left <= 0:
            return False
        self._left -= 1
        return True

    def answered(self, asked_at: float, count: int) -> None:
        """Note an answer that stands for so many messages."""
        self.last = now = time.perf_counter()
        self.latencies_ms.append(1_000 * (now - asked_at))
        self.done += count

    def closed(self, error: BaseException | None = None) -> None:
        """Note that a request is over; with an error the run is."""
        self.open -= 1
        self.failure = self.failure or error
        if self.open == 0 or error is not None:
            self.ended.set()

    async def watch(self, progress: Progress) -> None:
        """Wait for the end; RmqError if answers stay away."""
        while self.open and self.failure is None:
            try:
                await asyncio.wait_for(self.ended.wait(), POLL_S)
            except TimeoutError:
                if time.perf_counter() - self.last > TIMEOUT_S:
                    raise RmqError(f"no answer for {TIMEOUT_S:.0f} s") from None
            progress.show(self.done)
        if self.failure is not None:
            raise self.failure


class Worker(ABC):
    """A connection with what it does; `ask` makes the next request if one is wanted."""

    window = 1

    def __init__(self, run: Run, connection: Connection) -> None:
        self.run = run
        self.connection = connection

    def begin(self) -> None:
        """Fill the window."""
        for _ in range(self.window):
            self.ask()

    def ask(self) -> None:
        """Make the next request."""
        if self._has_more() and self.run.may_ask():
            self.run.open += 1
            self._ask(_Waiter(self), steady_ms() + int(1_000 * TIMEOUT_S))

    def take(self, answer: object, asked_at: float) -> None:
        """Count an answer, and ask again."""
        count = self._count(answer)
        self.run.answered(asked_at, count)
        self.ask()
        self.run.closed()

    def _has_more(self) -> bool:
        return True

    def _refused(self, code: int, remark: str | None) -> int:
        self.run.refused[f"code {code}: {remark}"] += 1
        return 0

    @abstractmethod
    def _ask(self, waiter: "_Waiter", deadline_ms: int) -> None:
        """Send a request."""

    @abstractmethod
    def _count(self, answer: object) -> int:
        """Return how many messages an answer stands for."""


class _Waiter:
    """A request without an answer; the waiter of its connection."""

    __slots__ = ("_asked_at", "_worker")

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._asked_at = time.perf_counter()

    def done(self) -> bool:
        """Never given up."""
        return False

    def set_result(self, answer: object) -> None:
        """Take the answer."""
        self._worker.take(answer, self._asked_at)

    def set_exception(self, error: BaseException) -> None:
        """Learn that there will be none."""
        self._worker.run.closed(error)


class SendWorker(Worker):
    """Sends one body to one queue."""

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

    def _ask(self, waiter: _Waiter, deadline_ms: int) -> None:
        self._sent += 1
        msg_id = f"{self._prefix}{self._sent:012X}"
        properties = encode_properties({"UNIQ_KEY": msg_id, "WAIT": "true"}).encode()
        self.connection.send(
            self._template, properties, self._body, waiter, deadline_ms, msg_id
        )

    def _count(self, answer: object) -> int:
        if isinstance(answer, SendResult):
            status = answer.status
            if status is SendStatus.SEND_OK:
                return 1
            return self._refused(status, status.name)
        assert isinstance(answer, Command)
        return self._refused(answer.code, answer.remark)


class PullWorker(Worker):
    """Reads one queue, one pull after another as clients do."""

    def __init__(self, run: Run, connection: Connection, job: "PullJob") -> None:
        super().__init__(run, connection)
        self._template = PullTemplate(GROUP, job.topic, job.queue.queue_id)
        self._offset, self._end = job.begin, job.end

    def _has_more(self) -> bool:
        return self._offset < self._end

    def _ask(self, waiter: _Waiter, deadline_ms: int) -> None:
        self.connection.pull(
            self._template,
            waiter,
            deadline_ms - steady_ms(),
            offset=self._offset,
            count=RECORD_COUNT,
            hold_ms=0,
            sys_flag=PULL_SUBSCRIPTION,
        )

    def _count(self, answer: object) -> int:
        assert isinstance(answer, PullResult)
        before = self._offset
        if answer.code != ResponseCode.SUCCESS:
            self._offset = self._end
            return self._refused(answer.code, answer.remark)
        self._offset = max(before, answer.next_offset)
        return self._offset - before


async def measure(
    settings: ToolSettings,
    jobs: Sequence[SendJob | PullJob],
    window: int,
    seconds: float,
    messages: int | None,
) -> Run:
    """Do all jobs until the time has passed or all messages are done."""
    async with AsyncExitStack() as stack:
        connections: dict[object, Connection] = {}
        for job in jobs:
            if job.place not in connections:
                client = await stack.enter_async_context(settings.client())
                opened = await client.connection(job.queue.address, is_broker=False)
                connections[job.place] = opened
        run = Run(seconds, messages)
        for job in jobs:
            connection = connections[job.place]
            if isinstance(job, SendJob):
                SendWorker(run, connection, job, window).begin()
            else:
                PullWorker(run, connection, job).begin()
        with Progress("messages", messages) as progress:
            await run.watch(progress)
    return run
