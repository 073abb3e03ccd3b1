"""SharedRetries: one task repeats a call until it succeeds, for all callers that wait
for it.

While a broker is away, thousands of sends wait for the same look-up. Each send waits
until its own deadline. The task ends with the last caller, or at an error that lasts.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

import anyio

from rmq.client.core.retries import back_off_ms
from rmq.client.errors import ClientError, NoRoute, is_lasting
from rmq.core.errors import PeerError, RmqError, copy_error
from rmq.outgoing.connection import steady_ms

T = TypeVar("T")

UNKNOWN_TOPIC_MS: Final = 1_000
"""Time that a topic may be unknown: another program may be creating it."""


class _Running:
    """A call that is repeated, and the number of its callers."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.waiting = 0
        self.has_succeeded = False
        self.result: Any = None
        self.failure: RmqError | None = None


class SharedRetries:
    """The repeated calls of one client; `spawn` starts a task that ends with the
    client.
    """

    def __init__(self, spawn: Callable[..., None]) -> None:
        self._spawn = spawn
        self._running: dict[Hashable, _Running] = {}

    async def call(
        self, key: Hashable, function: Callable[[], Awaitable[T]], deadline_ms: int
    ) -> T:
        """Return the result of a function; concurrent calls with the same key share the
        result.

        Raises the last failure at the deadline; TimeoutError if there was no failure.
        """
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = _Running()
            self._spawn(self._run, key, running, function)
        running.waiting += 1
        try:
            with anyio.move_on_after((deadline_ms - steady_ms()) / 1_000):
                await running.ended.wait()
        finally:
            running.waiting -= 1
        if running.has_succeeded:
            result: T = running.result
            return result
        if running.failure is None:
            raise TimeoutError("no answer came in time")
        raise copy_error(running.failure)

    async def _run(
        self, key: Hashable, running: _Running, function: Callable[[], Awaitable[Any]]
    ) -> None:
        begun_ms, attempts = steady_ms(), 0
        try:
            while running.waiting:
                attempts += 1
                try:
                    running.result = await function()
                except RmqError as error:
                    running.failure = error
                    if _ends_retries(error, steady_ms() - begun_ms):
                        return
                else:
                    running.has_succeeded = True
                    return
                await anyio.sleep(back_off_ms(attempts, None) / 1_000)
        finally:
            del self._running[key]
            running.ended.set()


def _ends_retries(error: RmqError, after_ms: int) -> bool:
    if not isinstance(error, ClientError | PeerError):
        return True
    is_unknown = isinstance(error, NoRoute) and error.is_unknown
    return is_lasting(error) or (is_unknown and after_ms >= UNKNOWN_TOPIC_MS)
