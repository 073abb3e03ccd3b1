"""Lifecycle: a task group that is open between `__aenter__` and `__aexit__`.

An exception of the body leaves the block unchanged, not in an `ExceptionGroup`. A
cancellation passes through the task group, as anyio requires.

`start` and `aclose` are for frameworks that start and stop in different tasks. A
separate task then keeps the block open. These methods need asyncio, because trio has no
such tasks.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import anyio
import anyio.abc

from rmq.client.errors import ClientClosed

if TYPE_CHECKING:
    import asyncio


_Start = tuple[Callable[..., Coroutine[Any, Any, Any]], tuple[object, ...]]


class PublicNames:
    """Shows only `public_names` in `dir` and completion: other modules use the rest."""

    public_names: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> list[str]:
        inherited = (each for each in super().__dir__() if each.startswith("__"))
        return sorted({*inherited, *self.public_names})


LIFE: Final = frozenset({"aclose", "serve", "start"})


class Lifecycle(PublicNames, ABC):
    """Base of `Client`, `Producer` and `Consumer`; each opens once."""

    public_names = LIFE

    def __init__(self) -> None:
        self._tasks: anyio.abc.TaskGroup | None = None
        self._to_start: list[_Start] = []
        self._has_more: anyio.Event
        self._holder: asyncio.Task[None] | None = None
        self._stop: anyio.Event | None = None
        self._was_opened = self._is_entered = False

    @abstractmethod
    async def _open(self) -> None:
        """Open the object; this function may call `_spawn`."""

    @abstractmethod
    async def _close(self, error: BaseException | None, *, is_cancelled: bool) -> None:
        """Close the object."""

    def _spawn(
        self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object
    ) -> None:
        """Let `_start_tasks` start a function in a task; callbacks may call this,
        too.
        """
        assert self._tasks is not None, "open it first"
        self._to_start.append((function, args))
        self._has_more.set()

    async def _start_tasks(self) -> None:
        """Start the spawned functions in their order."""
        assert self._tasks is not None
        while True:
            await self._has_more.wait()
            self._has_more = anyio.Event()
            to_start, self._to_start = self._to_start, []
            for function, args in to_start:
                self._tasks.start_soon(function, *args)

    def spawn(
        self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object
    ) -> None:
        """Run an async function until it ends, or this object closes."""
        self._spawn(function, *args)

    async def __aenter__(self) -> Self:
        if self._was_opened:
            raise ClientClosed(
                f"this {type(self).__name__} was opened before: create another one"
            )
        self._was_opened = True
        self._has_more = anyio.Event()
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._start_tasks)
        is_open = False
        try:
            await self._open()
            is_open = self._is_entered = True
        finally:
            if not is_open:
                await Lifecycle.__aexit__(self, *sys.exc_info())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        assert self._tasks is not None
        is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        try:
            await self._close(error, is_cancelled=is_cancelled)
        finally:
            self._tasks.cancel_scope.cancel()
            if is_cancelled:
                await self._tasks.__aexit__(kind, error, trace)
            else:
                await self._tasks.__aexit__(None, None, None)
        return False

    @property
    def _state(self) -> str:
        """The state for `repr`."""
        if self._is_entered and self._tasks is not None:
            return "closed" if self._tasks.cancel_scope.cancel_called else "open"
        return "not open"

    async def serve(
        self, *, task_status: anyio.abc.TaskStatus[Self] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Stay open until cancelled: `await tasks.start(producer.serve)`."""
        async with self:
            task_status.started(self)
            await anyio.sleep_forever()

    async def start(self) -> Self:
        """Open the object in a separate task; for asyncio only."""
        import asyncio

        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop = anyio.Event()
        self._holder = asyncio.create_task(self._keep_open(started, self._stop))
        try:
            await started
        finally:
            if not self._is_entered:
                await asyncio.wait([self._holder])
                self._holder.exception()
        return self

    async def _keep_open(
        self, started: "asyncio.Future[None]", stop: anyio.Event
    ) -> None:
        try:
            async with self:
                started.set_result(None)
                await stop.wait()
        finally:
            error = sys.exc_info()[1]
            if error is not None and not started.done():
                started.set_exception(error)

    async def aclose(self) -> None:
        """Close the object after `start`."""
        if self._holder is not None and self._stop is not None:
            self._stop.set()
            await self._holder
