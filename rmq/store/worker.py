"""Worker: one thread at a time for one kind of blocking work.

What blocks never runs on the trio thread, and is not given up half done: a cancelled
caller waits until the call returns.
"""

import logging
from collections.abc import Callable

import trio

from rmq.errors import LogFailed, StoreError

logger = logging.getLogger(__name__)

RETRY_S = 10.0
"""Pause after work that failed for want of space, memory or descriptors."""


class Worker:
    """Runs calls in a thread, one after the other."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, work: Callable[[], object]) -> None:
        """Call `work`; its errors are the caller's."""
        await trio.to_thread.run_sync(work, limiter=self._limiter)

    async def attempt(
        self, what: str, work: Callable[[], object], *, here: bool = False
    ) -> bool:
        """Call `work`; False if it failed, after a pause: the caller tries again.

        Only an error of the log itself ends the broker; everything else may want
        space, memory or descriptors that come back.  With `here` the call is made on
        the trio thread, before anybody else has a turn.
        """
        try:
            if here:
                work()
                await trio.lowlevel.checkpoint()
            else:
                await self.run(work)
        except LogFailed:
            raise
        except (OSError, StoreError) as error:
            logger.error("%s failed and is tried again: %s", what, error)
            await trio.sleep(RETRY_S)
            return False
        return True
