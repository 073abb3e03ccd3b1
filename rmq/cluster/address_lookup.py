"""AddressLookup: the addresses of a broker's name servers or controllers, kept current.

`rmq/core/address.py` lists their sources.  While a lookup fails, the addresses stay.
"""

import logging
from collections.abc import Sequence

import trio

from rmq.core.address import is_lookup
from rmq.core.errors import ConnectFailed
from rmq.core.logs import Foreign
from rmq.outgoing.address_lookup import PERIOD_S, RETRY_S, look_up_all

logger = logging.getLogger(__name__)

START_WAIT_S = 5.0
"""Time limit of a start for DNS and address servers."""


class AddressLookup:
    """The sources of one kind of servers, and their current `addresses`."""

    def __init__(
        self, what: str, sources: Sequence[str], period_s: float = PERIOD_S
    ) -> None:
        """`what` is the kind of servers, in the plural, for the log."""
        self.is_wanted = any(map(is_lookup, sources))
        self.addresses = () if self.is_wanted else tuple(sources)
        self._what = what
        self._sources = tuple(sources)
        self._period_s = period_s
        self._has_failed = False
        self._due_s = -1.0

    @property
    def pause_s(self) -> float:
        """Seconds until the next lookup is due."""
        return max(0.0, self._due_s - trio.current_time())

    async def update(self) -> bool:
        """Look the addresses up; return whether they have changed.

        The log gets the first failure, and each change.
        """
        try:
            found = await trio.to_thread.run_sync(
                look_up_all, self._sources, abandon_on_cancel=True
            )
        except ConnectFailed as error:
            if not self._has_failed:
                logger.warning("%s: %s", self._what, Foreign(error))
            self._has_failed = True
            pause_s = min(self._period_s, RETRY_S)
            self._due_s = trio.current_time() + pause_s
            return False
        self._has_failed = False
        self._due_s = trio.current_time() + self._period_s
        if set(found) == set(self.addresses):
            return False
        logger.info("%s: %s", self._what, Foreign(", ".join(found)))
        self.addresses = found
        return True

    async def update_at_start(self) -> None:
        """Look the addresses up the first time; a start continues without them."""
        if self.is_wanted:
            with trio.move_on_after(START_WAIT_S) as scope:
                await self.update()
            if scope.cancelled_caught:
                logger.warning("%s: no answer in %g s", self._what, START_WAIT_S)

    async def update_if_due(self) -> bool:
        """Look the addresses up if a lookup is due; return whether they have
        changed.
        """
        return self.is_wanted and not self.pause_s and await self.update()
