"""TurnTaker: a task with much work lets other tasks run after each turn of 0.3 ms."""

from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Final, TypeVar

import trio

TURN_S: Final = 0.0003

Found = TypeVar("Found")


class TurnTaker:
    """The turns of one task; the first one begins now."""

    def __init__(self, next_turn: Callable[[], Awaitable[None]]) -> None:
        """`next_turn` returns in the next turn of the task."""
        self._next_turn = next_turn
        self._began = trio.current_time()

    async def __call__(self) -> None:
        """Let other tasks run if this turn is over."""
        if trio.current_time() - self._began >= TURN_S:
            await self._next_turn()
            self._began = trio.current_time()

    async def run_all(self, steps: Generator[None, None, Found]) -> Found:
        """Run the steps of a generator, and return its result."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: Found = stop.value
                return result
            await self()

    async def run_each(self, steps: Iterable[None]) -> None:
        """Run the steps of an iterator."""
        for _ in steps:
            await self()
