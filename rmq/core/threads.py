"""Blocking work in threads other than the trio thread."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import trio

LONG_TEXT: Final = 1024 * 1024
"""Size from which on `bytes.join` lets other threads run; it takes a millisecond."""

T = TypeVar("T")

_NO_THREAD: Final = ("can't start new thread",)


async def in_thread(
    work: Callable[..., T],
    *arguments: object,
    limiter: trio.CapacityLimiter | None = None,
) -> T:
    """Call `work` in a worker thread.

    OSError if there was no memory for the thread (then the work was not called), or if
    the work had too little memory.
    """
    try:
        return await trio.to_thread.run_sync(work, *arguments, limiter=limiter)
    except MemoryError as error:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
    except RuntimeError as error:
        if error.args != _NO_THREAD:
            raise
        raise OSError(errno.EAGAIN, "no thread could be started") from error


async def join_text(pieces: list[bytes]) -> bytes:
    """Return the joined pieces of a text; a worker thread joins a long text."""
    if sum(map(len, pieces)) >= LONG_TEXT:
        with suppress(OSError):  # there is no thread for it
            return await in_thread(b"".join, pieces)
    return b"".join(pieces)
