"""Events: the lite topics that a client pops next.

Each client has a set of queues that may have messages for the client, in the order of
the events. The group limits the size of the set. This module has no I/O and no clock:
times are arguments. Known in Java as `ClientEventSet`.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

WAIT_MS: Final = 35_000
"""Age of the last POP after which a client is away: a POP waits for at most 30 s."""

IDLE_MS: Final = 10_000
"""Age of the last POP after which a client with events is blocked."""

LOW_WATER: Final = 0.2
"""Share of the limit of a set below which a full dispatch begins."""


class ClientEvents(msgspec.Struct, eq=False):
    """The pending events of one client."""

    group: str
    limit: int
    polled_ms: int
    consumed_ms: int
    queues: dict[str, None] = msgspec.field(default_factory=dict)

    def offer(self, queue: str) -> bool:
        """Add a queue; False if the set is full."""
        if len(self.queues) >= self.limit:
            return False
        self.queues[queue] = None
        return True

    def take_oldest(self, now_ms: int) -> str | None:
        """Remove and return the queue of the oldest event."""
        self.polled_ms = now_ms
        queue = next(iter(self.queues), None)
        if queue is not None:
            del self.queues[queue]
            self.consumed_ms = now_ms
        return queue

    def is_blocked(self, now_ms: int) -> bool:
        """Whether the client is away, or does not pop its events."""
        idle_ms = now_ms - self.polled_ms
        return idle_ms > WAIT_MS or (bool(self.queues) and idle_ms > IDLE_MS)

    @property
    def has_room(self) -> bool:
        """Whether the set is nearly empty."""
        return len(self.queues) < LOW_WATER * self.limit


class Events:
    """The sets of all clients."""

    def __init__(self) -> None:
        self._of_client: dict[str, ClientEvents] = {}

    def __len__(self) -> int:
        """Return the number of clients with a set."""
        return len(self._of_client)

    def get(self, client_id: str) -> ClientEvents | None:
        """Return the set of a client."""
        return self._of_client.get(client_id)

    def open(self, client_id: str, group: str, most: int, now_ms: int) -> ClientEvents:
        """Return the set of a client; create it if necessary."""
        events = self._of_client.get(client_id)
        if events is None:
            events = ClientEvents(group, most, now_ms, now_ms)
            self._of_client[client_id] = events
        return events

    def drop(self, client_id: str) -> list[str]:
        """Remove a client; return its events."""
        events = self._of_client.pop(client_id, None)
        return [] if events is None else list(events.queues)

    def shift_times(self, step_ms: int) -> None:
        """Move the times of the last POPs, because the clock was set."""
        for events in self._of_client.values():
            events.polled_ms += step_ms
            events.consumed_ms += step_ms

    def items(self) -> Iterator[tuple[str, ClientEvents]]:
        """Yield the client ids and sets that exist at the first step."""
        yield from list(self._of_client.items())
