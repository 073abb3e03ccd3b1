"""ConnectionSlots: a limit of open connections that silent peers cannot use up.

If all slots are taken, a new connection gets the slot of the connection that has waited
longest for its peer.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class ConnectionSlots:
    """The connections of a server, each by the scope that ends it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[trio.CancelScope, None] = {}
        """Connections that wait for their peers, the longest wait first."""

        self._busy = 0
        """Connections whose requests this server answers now."""

    def acquire(self, scope: trio.CancelScope) -> bool:
        """Give a connection a slot; False if all other connections are busy."""
        if len(self._waiting) + self._busy >= self._limit:
            if not self._waiting:
                return False
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.cancel()
        self._waiting[scope] = None
        return True

    def release(self, scope: trio.CancelScope) -> None:
        """Return a slot; another connection may have it already."""
        self._waiting.pop(scope, None)

    @contextmanager
    def protect_slot(self, scope: trio.CancelScope) -> Iterator[None]:
        """Protect a connection while this server works for it.

        After this work, its wait for the peer begins again.
        """
        self._waiting.pop(scope, None)
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._waiting[scope] = None
