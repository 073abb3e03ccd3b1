"""Sender: sends many messages at once with a `Producer`, for `rmq send`.

The queues are looked up first, and an error there ends the command.
"""

import asyncio
import itertools
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import IO, Final, NamedTuple, Protocol

import anyio

from rmq._fastpath.client.messages import SendResult
from rmq.cli.consume.stream import mute_client_log
from rmq.cli.end_signals import run_until_ended
from rmq.cli.send import MAX_BODY_BYTES
from rmq.cli.tool_settings import ToolSettings
from rmq.client import Message, MessageQueue, Producer, SendFailed, SendRefused
from rmq.client.admin import AdminClient
from rmq.core.errors import RmqError
from rmq.outgoing.refused import AnswerRefused

GROUP: Final = "rmq-send"
WINDOW: Final = 256
"""Maximum number of unanswered sends: enough to hide the round trip to the broker."""

INTERRUPTED_WAIT_S: Final = 3.0
"""Time that answers are awaited after Ctrl-C: a new topic takes a second or two."""

MINUTE_MS: Final = 60_000
LEVELS_MS: Final = (
    1_000, 5_000, 10_000, 30_000, *(MINUTE_MS * minutes for minutes in range(1, 11)),
    20 * MINUTE_MS, 30 * MINUTE_MS, 60 * MINUTE_MS, 120 * MINUTE_MS,
)  # fmt: skip
"""The default of messageDelayLevel."""

Bodies = Iterable[bytes | None]
"""The bodies to send; None before a read that may take long."""


class SendOptions(NamedTuple):
    """Options of all messages; `wait_ms` is the delay, `rate` messages a second."""

    topic: str
    queue_id: int | None
    tag: str
    keys: tuple[str, ...]
    properties: dict[str, str]
    wait_ms: int | None
    rate: float | None

    def message(self, body: bytes) -> Message:
        """Return a message; ValueError if it cannot be sent."""
        return Message(
            self.topic, body, tags=self.tag, keys=self.keys, properties=self.properties
        )


class Printer(Protocol):
    """Output of the command."""

    is_interrupted: bool
    unanswered: int

    def print_result(self, result: SendResult, took_s: float) -> None:
        """Print a stored message."""

    def refuse(self, error: AnswerRefused) -> None:
        """Count a refused message."""

    def show_progress(self) -> None:
        """Update the progress line."""


class Sender:
    """Sends the messages of one command."""

    def __init__(
        self,
        settings: ToolSettings,
        admin: AdminClient,
        wanted: SendOptions,
        printer: Printer,
    ) -> None:
        self._settings = settings
        self._wanted = wanted
        self._printer = printer
        self._queues = self._select_queues(admin)
        self._level, self._delay = _delay_level(wanted.wait_ms)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed: asyncio.Event
        self._input: asyncio.Event
        self._failure: Exception | None = None

    def _select_queues(
        self, admin: AdminClient
    ) -> "itertools.cycle[MessageQueue] | None":
        """Return a cycle of the queues with the given id; None without an id."""
        topic, number = self._wanted.topic, self._wanted.queue_id
        queues = [
            MessageQueue(topic, each.broker, each.queue_id)
            for each in admin.writable_queues(topic)
            if number in (None, each.queue_id)
        ]
        if not queues:
            which = "" if number is None else f" {number}"
            raise RmqError(f"{topic} has no writable queue{which}")
        return None if number is None else itertools.cycle(queues)

    def run(self, bodies: Bodies, source: IO[bytes] | None) -> None:
        """Send all bodies; after Ctrl-C or a signal wait for answers and stop.

        `source` is the input of the bodies if a read may block.
        """
        mute_client_log()
        run_until_ended(self._run(bodies, source))

    async def _run(self, bodies: Bodies, source: IO[bytes] | None) -> None:
        self._changed, self._input = asyncio.Event(), asyncio.Event()
        timeout_ms = int(1_000 * self._settings.timeout_s)
        async with (
            self._settings.async_client() as client,
            Producer(
                client,
                group=GROUP,
                attempts=1,
                timeout_ms=timeout_ms,
                max_message_bytes=MAX_BODY_BYTES,
                compress_over=None,
            ) as producer,
        ):
            try:
                await self._send_all(producer, bodies, source)
                await self._wait_until(0)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.uncancel():
                    raise
                self._printer.is_interrupted = True
                with anyio.move_on_after(INTERRUPTED_WAIT_S):
                    await self._wait_until(0)
            finally:
                self._printer.unanswered = len(self._tasks)
                for each in self._tasks:
                    each.cancel()
            if self._failure is not None:
                raise self._failure

    async def _send_all(
        self, producer: Producer, bodies: Bodies, source: IO[bytes] | None
    ) -> None:
        began, number, rate = time.monotonic(), 0, self._wanted.rate
        for body in bodies:
            if body is None:
                await self._until_readable(source)
                if self._failure is not None:
                    return
                continue
            if rate is not None:
                await asyncio.sleep(began + number / rate - time.monotonic())
            await self._wait_until(WINDOW - 1)
            if self._failure is not None:
                return
            number += 1
            task = asyncio.create_task(self._send(producer, body))
            self._tasks.add(task)
            task.add_done_callback(self._on_done)

    async def _send(self, producer: Producer, body: bytes) -> None:
        wanted = self._wanted
        began = time.perf_counter()
        try:
            result = await producer.send(
                wanted.message(body),
                queue=next(self._queues) if self._queues is not None else None,
                delay=self._delay,
                delay_level=self._level,
            )
        except SendRefused as error:
            self._printer.refuse(AnswerRefused(error.address, error.code, error.remark))
        except ValueError as error:
            raise RmqError(str(error)) from error
        except SendFailed as error:
            cause = error.__cause__
            raise cause if isinstance(cause, RmqError) else error from None
        else:
            self._printer.print_result(result, time.perf_counter() - began)
        self._printer.show_progress()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and self._failure is None:
            self._failure = error
            self._input.set()

    async def _until_readable(self, source: IO[bytes] | None) -> None:
        """Wait for input or a failure; a file is always readable."""
        if source is None:
            return
        self._input.clear()
        loop = asyncio.get_running_loop()
        try:
            descriptor = source.fileno()
            loop.add_reader(descriptor, self._input.set)
        except (OSError, ValueError):  # a file, or bytes of a test
            return
        try:
            if self._failure is None:
                await self._input.wait()
        finally:
            loop.remove_reader(descriptor)

    async def _wait_until(self, limit: int) -> None:
        """Wait until at most `limit` sends are unanswered, or one has failed."""
        while len(self._tasks) > limit and self._failure is None:
            self._changed.clear()
            await self._changed.wait()


def _delay_level(wait_ms: int | None) -> tuple[int | None, timedelta | None]:
    """Return the level of a delay, because all brokers serve levels; without such a
    level return the delay.
    """
    if not wait_ms:
        return None, None
    if wait_ms in LEVELS_MS:
        return LEVELS_MS.index(wait_ms) + 1, None
    return None, timedelta(milliseconds=wait_ms)
