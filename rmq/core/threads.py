"""Blocking work in threads other than the trio thread."""

import errno
import os
from collections.abc import Callable
from typing import Final, TypeVar

import trio

T = TypeVar("T")

_NO_THREAD: Final = ("can't start new thread",)


async def in_thread(
    work: Callable[..., T],
    *arguments: object,
    limiter: trio.CapacityLimiter | None = None,
) -> T:
    """Call `work` in a worker thread.

    OSError if there is no memory for the thread (then nothing was done), or if the work
    itself had too little memory.
    """
    try:
        return await trio.to_thread.run_sync(work, *arguments, limiter=limiter)
    except MemoryError as error:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
    except RuntimeError as error:
        if error.args != _NO_THREAD:
            raise
        raise OSError(errno.EAGAIN, "no thread could be started") from error
