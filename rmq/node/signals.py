"""Signals: SIGTERM and SIGINT stop a node, SIGHUP reads its file again."""

import logging
import os
import signal
import sys
from collections.abc import Callable

import trio

from rmq.node.node import Node

logger = logging.getLogger("rmq.node")

FORCED_EXIT_CODE = 1


async def until_signalled(
    node: Node,
    scope: trio.CancelScope,
    on_hangup: Callable[[], None],
    on_stop: Callable[[], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Stop in order at the first SIGTERM or SIGINT, at once at the second.

    SIGHUP calls `on_hangup`; `on_stop` is called when the stop begins.
    Report that the node is ready only after this has started: a supervisor may answer
    with a signal.
    """
    wanted = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    with trio.open_signal_receiver(*wanted) as signals:
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
