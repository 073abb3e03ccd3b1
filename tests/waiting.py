"""Waiting in tests for what other tasks, threads and processes do."""

import inspect
import os
import time
from collections.abc import Awaitable, Callable

import trio

PATIENCE = float(os.environ.get("RMQ_TEST_PATIENCE", "1"))
"""Factor of the limits of `wait_until`; a machine with other work needs more."""


async def until(
    condition: Callable[[], object] | Callable[[], Awaitable[object]],
    limit_s: float = 20,
) -> None:
    """Let other tasks and threads run until a condition holds, in real time.

    The condition may be an async function.  The task never sleeps, so that a mock clock
    does not jump.  AssertionError after the limit.
    """
    end = time.monotonic() + limit_s
    while True:
        held = condition()
        if await held if inspect.isawaitable(held) else held:
            return
        assert time.monotonic() < end, "it did not come true in time"
        await trio.lowlevel.checkpoint()
        time.sleep(0.0005)  # noqa: ASYNC251 - threads and sockets need a moment


def wait_until(
    condition: Callable[[], object],
    what: str = "it did not happen in time",
    limit_s: float = 45,
) -> None:
    """Block until a condition holds; AssertionError with `what` after the limit."""
    end = time.monotonic() + limit_s * PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)
