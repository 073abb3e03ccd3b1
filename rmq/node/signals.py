"""Signals: SIGTERM and SIGINT stop a node, SIGHUP reads its file again.

Before the node is ready SIGTERM and SIGINT end the process at once: for the next start
this is a crash like any other. A start may take minutes, and blocks the event loop.
"""

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import trio

from rmq.core.exit_codes import SHELL_BASE
from rmq.node.node import Node

logger = logging.getLogger("rmq.node")

FORCED_EXIT_CODE = 1
_STOPS = signal.SIGTERM, signal.SIGINT
_is_ready = False


@contextmanager
def end_at_once() -> Iterator[None]:
    """Let signals end the process while no task receives them."""
    saved = {number: signal.getsignal(number) for number in _STOPS}
    for number, handler in saved.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _end_process)
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)


def _end_process(number: int, _frame: object) -> None:
    if _is_ready:
        os._exit(FORCED_EXIT_CODE)
    text = "rmq: stopped before it was ready; the next start checks the log\n"
    os.write(sys.stderr.fileno(), text.encode())
    os._exit(SHELL_BASE + number)


@contextmanager
def receive_signals() -> Iterator[AsyncIterator[int]]:
    """Receive SIGTERM, SIGINT and SIGHUP from now on: the server is ready."""
    global _is_ready
    with trio.open_signal_receiver(*_STOPS, signal.SIGHUP) as signals:
        _is_ready = True
        yield signals


async def until_signalled(
    node: Node,
    scope: trio.CancelScope,
    on_hangup: Callable[[], None],
    on_stop: Callable[[], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Shut down cleanly at the first SIGTERM or SIGINT, stop at once at the second.

    SIGHUP calls `on_hangup`; `on_stop` is called when the stop begins.
    Report that the node is ready only after this has started: a supervisor may answer
    with a signal.
    """
    with receive_signals() as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP:
                on_hangup()
                continue
            logger.info("%s: stopping", signal.Signals(number).name)
            on_stop()
            if node.broker is None:
                scope.cancel()
            else:
                node.stop()
            break
        async for number in signals:
            if number == signal.SIGHUP:
                continue
            sys.stderr.write("stopped at once; the next start checks the log\n")
            sys.stderr.flush()
            os._exit(FORCED_EXIT_CODE)
