"""SIGTERM and SIGHUP end a command cleanly, as Ctrl-C does.

A command that runs until a signal then commits, leaves its group and closes its
producer. The exit code is 128 plus the number of the signal. The handlers are set
before the command is imported, because for process 1 the kernel ignores signals without
a handler. Servers handle signals in `rmq.node.signals`.
"""

import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

from rmq.core.exit_codes import SHELL_BASE

END_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T")
_cancels: list[Callable[[], object]] = []
"""The function that cancels the coroutine of `run_until_ended`, while it runs."""


@contextmanager
def handle_end_signals() -> Iterator[None]:
    """Exit with the code of a signal; signals that are ignored, for example by nohup,
    stay ignored.
    """
    received: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if not _cancels:
            sys.exit(SHELL_BASE + number)
        _cancels[-1]()

    numbers = [each for each in END_SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
    saved = [(each, signal.signal(each, on_signal)) for each in numbers]
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt != signal.SIG_IGN:
        saved.append((signal.SIGINT, interrupt))
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in saved:
            signal.signal(number, handler)
        if received:
            sys.exit(SHELL_BASE + received[0])


def run_until_ended(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; cancel it at Ctrl-C and at the signals above.

    KeyboardInterrupt if it was cancelled. A second signal cancels its end, too.
    """
    # imported on use: many commands have no event loop
    import asyncio

    async def run() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        _cancels.append(lambda: loop.call_soon_threadsafe(task.cancel))
        try:
            return await work
        finally:
            _cancels.pop()

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
