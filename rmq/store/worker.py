"""Worker: one thread at a time for one kind of blocking work.

Blocking calls never run on the trio thread, and always complete: a cancelled caller
waits until the call returns.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import closing

import trio

from rmq.core.errors import LogFailed, StoreError
from rmq.core.threads import in_thread

logger = logging.getLogger(__name__)

RETRY_S = 10.0
"""Pause after work that failed for lack of space, memory or descriptors."""


class Worker:
    """Runs calls in a thread, one after the other."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, work: Callable[[], object]) -> None:
        """Call `work`; its errors go to the caller."""
        await in_thread(work, limiter=self._limiter)

    async def try_run(
        self, what: str, work: Callable[[], object], *, here: bool = False
    ) -> bool:
        """Call `work`; if it fails, pause and return False: the caller tries again.

        Only an error of the log itself ends the broker. Other work may have failed for
        lack of space, memory or descriptors, which may be free later. With `here` the
        call is made on the trio thread, before other tasks run.
        """
        steps = (work for _ in range(1))
        return await self.try_run_all(what, steps, here=here)

    async def try_run_all(
        self, what: str, steps: Generator[Callable[[], object]], *, here: bool = False
    ) -> bool:
        """Like `try_run`, for work in steps.

        Code between steps runs on the trio thread; an error closes the generator.
        """
        try:
            with closing(steps):
                for step in steps:
                    if here:
                        step()
                        await trio.lowlevel.checkpoint()
                    else:
                        await self.run(step)
        except LogFailed:
            raise
        except (OSError, StoreError) as error:
            logger.error("%s failed, will try again: %s", what, error)
            await trio.sleep(RETRY_S)
            return False
        return True
