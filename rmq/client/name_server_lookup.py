"""NameServerLookup: the addresses of a client's name servers, which may change.

`rmq/core/address.py` has the forms of a source. If all are `host:port`, the client
never waits here.
"""

from collections.abc import Sequence

import anyio.to_thread

from rmq.core.address import is_lookup
from rmq.core.errors import ConnectFailed
from rmq.outgoing.address_lookup import PERIOD_S, RETRY_S, look_up_all
from rmq.outgoing.connection import steady_ms


class NameServerLookup:
    """The sources of a client's name server addresses, and the time of the next
    lookup.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self.sources = tuple(sources)
        self._is_wanted = any(map(is_lookup, sources))
        self._due_ms = 0
        self.failure: ConnectFailed | None = None
        """The error of the last lookup; None if the lookup found addresses."""

    @property
    def is_due(self) -> bool:
        """Whether the addresses must be looked up now."""
        return self._is_wanted and steady_ms() >= self._due_ms

    async def find(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return the current addresses, or `known` if the lookup fails."""
        self._due_ms = steady_ms() + int(RETRY_S * 1_000)
        try:
            found = await anyio.to_thread.run_sync(
                look_up_all, self.sources, abandon_on_cancel=True
            )
        except ConnectFailed as error:
            self.failure = error
            return known
        self.failure = None
        self._due_ms = steady_ms() + int(PERIOD_S * 1_000)
        return found
