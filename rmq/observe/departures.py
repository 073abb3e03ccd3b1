"""Departures: for each group, the client that left last, with the time and the kind of
its departure.
"""

from typing import TYPE_CHECKING, Final

from rmq.core.clock import Clock
from rmq.remoting.connection import Connection

if TYPE_CHECKING:
    from rmq.observe.reasons import Departure

MAX_GROUPS: Final = 1_000
"""Maximum number of groups with a client that left, about 300 bytes each.

Above it the oldest is removed.
"""


class Departures:
    """The last departure of each group since the start of this process."""

    def __init__(self, clock: Clock) -> None:
        self._now_ms = clock.now_ms
        self._last: dict[str, Departure] = {}

    def add(
        self, group: str, client_id: str, connection: Connection, is_clean: bool
    ) -> None:
        """Record that a client left: a callback of `ConsumerTable`."""
        # imported on use: a start has no departures
        from rmq.observe.reasons import Departure

        self._last.pop(group, None)
        if len(self._last) >= MAX_GROUPS:
            del self._last[next(iter(self._last))]
        client = f"{client_id} at {connection.remote_address}"
        self._last[group] = Departure(client, self._now_ms(), is_clean)

    def last_departure(self, group: str) -> "Departure | None":
        """Return the last departure from a group; None if no client left it."""
        return self._last.get(group)
