"""Places: connections that a server keeps at once.

If all places are taken, a newcomer gets that of the connection which has waited longest
for its peer, so that silent peers keep nobody out.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Places:
    """The connections of a server, each by the scope that ends it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[trio.CancelScope, None] = {}
        """Connections that wait for their peers, the longest wait first."""

        self._busy = 0
        """Connections that are being answered."""

    def take(self, scope: trio.CancelScope) -> bool:
        """Give a connection a place; False if this server keeps all others busy."""
        if len(self._waiting) + self._busy >= self._limit:
            if not self._waiting:
                return False
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.cancel()
        self._waiting[scope] = None
        return True

    def leave(self, scope: trio.CancelScope) -> None:
        """Give a place back; it may be somebody else's already."""
        self._waiting.pop(scope, None)

    @contextmanager
    def kept(self, scope: trio.CancelScope) -> Iterator[None]:
        """Protect a connection that waits for this process; its wait begins after."""
        self._waiting.pop(scope, None)
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._waiting[scope] = None
