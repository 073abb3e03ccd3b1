"""Portal: a thread with an event loop, in which the blocking client works.

Each process has one portal, which starts at the first use. It runs asyncio, or uvloop
if that is installed. A call adds itself to a list. The first call of the list wakes the
loop, so that many calls cost one wake-up. The caller waits on a lock, which costs a
third of a `concurrent.futures` future. Ctrl-C, or any other exception in the waiting
thread, cancels the call. A call runs in a copy of the context of its caller, for hooks.
"""

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from rmq.core.errors import RmqError

T = TypeVar("T")
CANCEL_LIMIT_S: Final = 5.0


class WrongThread(RmqError):
    """A blocking call came from the thread of the portal itself."""


class _Call:
    """A coroutine, its result, and the lock that its caller waits on."""

    __slots__ = ("context", "coroutine", "error", "lock", "result", "task")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.context = contextvars.copy_context()
        self.lock = threading.Lock()
        self.lock.acquire()
        self.result: Any = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run the coroutine, and wake the caller."""
        try:
            self.result = await self.coroutine
        except BaseException as error:  # the caller raises any error
            self.error = error
        finally:
            self.lock.release()


class Portal:
    """A thread with an event loop; any other thread may use `call`."""

    def __init__(self) -> None:
        self._process_id = os.getpid()
        self._calls: list[_Call] = []
        self._is_woken = False
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = _new_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rmq-client", daemon=True
        )
        self._thread.start()

    @property
    def is_usable(self) -> bool:
        """Whether its thread is in this process."""
        return self._process_id == os.getpid()

    def call(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:  # noqa: ANN401 - of any function
        """Run an async function in the portal's loop; return its result."""
        if threading.get_ident() == self._thread.ident:
            raise WrongThread("a handler must not block: use rmq.client in it")
        call = _Call(function(*args))
        with self._lock:
            self._calls.append(call)
            is_first, self._is_woken = not self._is_woken, True
        if is_first:
            self._loop.call_soon_threadsafe(self._start_calls)
        try:
            call.lock.acquire()
        except BaseException:
            self._loop.call_soon_threadsafe(self._cancel, call)
            call.lock.acquire(timeout=CANCEL_LIMIT_S)
            raise
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in the portal's loop soon, without a wait."""
        self._loop.call_soon_threadsafe(function)

    def _cancel(self, call: _Call) -> None:
        if call.task is not None:
            call.task.cancel()

    def _start_calls(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
            self._is_woken = False
        for call in calls:
            call.task = self._loop.create_task(call.run(), context=call.context)
            self._tasks.add(call.task)
            call.task.add_done_callback(self._tasks.discard)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


_portal: Portal | None = None
_portal_lock = threading.Lock()


def get_portal() -> Portal:
    """Return the portal of this process."""
    global _portal
    with _portal_lock:
        if _portal is None or not _portal.is_usable:
            _portal = Portal()
        return _portal
