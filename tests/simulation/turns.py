"""Time, order and threads of a simulation: all follow from its seed.

Time is that of trio's clock, which jumps to the next deadline when nothing is left to
do.  Tasks run in an order that the seed shuffles.  Work for a thread is done at one
moment, some time after it was asked for; a thread that waits at gates all its life is a
real one, which runs only while the simulation waits for it.
"""

import contextlib
import ctypes
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import outcome
import trio
from trio._core import _run
from trio.testing import MockClock

WALL_NS = 1_795_262_400_000_000_000
"""Noon of 2026-11-21, UTC."""
WAITS = 1
"""State of a thread, as in `outside.c`."""

THREADS = 256
LONG_LIVED = {"flush_on_demand.<locals>.flush", "Durability.write"}
"""What waits at gates."""

QUICK_S = 0.0001, 0.002
SLOW_S = 0.02, 0.3
SLOW = 0.01, 0.01, 0.3
"""Shares of work that takes long: a seed has one of them."""


class Clock:
    """Trio's clock that jumps, of which the process knows the time."""

    def __init__(self, library: ctypes.CDLL, on_jump: Callable[[], None]) -> None:
        self.trio = MockClock(autojump_threshold=0)
        self._library, self._now_s = library, 0.0
        self._on_jump = on_jump
        self.trio.current_time = lambda: self._now_s
        self.trio._autojump = self._jump

    def _jump(self) -> None:
        next_s = _run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        if self._now_s < next_s < float("inf"):
            self._on_jump()
            self._now_s = next_s
            self._library.outside_now(ctypes.c_int64(int(next_s * 1e9)))


class Threads:
    """The threads of all nodes."""

    def __init__(
        self, library: ctypes.CDLL, chance: random.Random, slow: float
    ) -> None:
        self._library, self._chance, self._slow = library, chance, slow
        self._wakes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waiting: dict[int, trio.Event] = {}
        self._free = list(range(THREADS))[::-1]
        library.outside_wakes(self._wakes)

    async def run(self) -> None:
        """Wake what waits at a gate, until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._wakes)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wakes)
            for number, woken in self._waiting.items():
                if self._library.outside_is_woken(number):
                    woken.set()

    async def run_sync(
        self,
        work: Callable[..., Any],
        *arguments: object,
        limiter: trio.CapacityLimiter | None = None,
        **_: object,
    ) -> Any:
        """What `trio.to_thread.run_sync` does."""
        with trio.CancelScope(shield=True):
            if limiter is not None:
                borrower = object()
                await limiter.acquire_on_behalf_of(borrower)
            try:
                if getattr(work, "__qualname__", "") in LONG_LIVED:
                    return await self._run_long(work)
                is_before = self._chance.random() < 0.5
                if is_before:
                    await self._pass()
                result = outcome.capture(work, *arguments)
                if not is_before:
                    await self._pass()
                return result.unwrap()
            finally:
                if limiter is not None:
                    limiter.release_on_behalf_of(borrower)

    async def _pass(self) -> None:
        is_slow = self._chance.random() < self._slow
        await trio.sleep(self._chance.uniform(*(SLOW_S if is_slow else QUICK_S)))

    async def _run_long(self, work: Callable[[], object]) -> object:
        """Have a real thread run in turns."""
        number = self._free.pop()
        library, results = self._library, []

        def live() -> None:
            library.outside_enter(number)
            results.append(outcome.capture(work))
            library.outside_leave()

        library.outside_prepare(number)
        thread = threading.Thread(target=live)
        thread.start()
        while library.outside_step(number) == WAITS:
            woken = self._waiting[number] = trio.Event()
            deadline = library.outside_deadline(number)
            limit_s = float("inf") if deadline < 0 else deadline / 1e9
            if not library.outside_is_woken(number):
                with trio.move_on_at(limit_s):
                    await woken.wait()
            await self._pass()
        self._waiting.pop(number, None)
        thread.join()
        self._free.append(number)
        return results[0].unwrap()


def run(
    main: Callable[[], Any],
    library: ctypes.CDLL,
    seed: int,
    on_jump: Callable[[], None] = lambda: None,
) -> Any:
    """Run a simulation as its seed orders; `on_jump` is called when all tasks wait."""
    library.outside_begin(
        ctypes.c_int64(WALL_NS), ctypes.c_uint64(random.Random(seed).getrandbits(60))
    )
    random.seed(seed)
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True
    _run._r.seed(seed)
    slow = random.Random(f"slow {seed}").choice(SLOW)
    threads = Threads(library, random.Random(f"threads {seed}"), slow)

    async def inside() -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run)
            try:
                return await main()
            finally:
                nursery.cancel_scope.cancel()

    own, trio.to_thread.run_sync = trio.to_thread.run_sync, threads.run_sync
    try:
        return trio.run(inside, clock=Clock(library, on_jump).trio)
    finally:
        trio.to_thread.run_sync = own
