"""Events: arrivals and departures of clients, new problems, and administrative changes.

For `rmq tail`: the newest `MAX_EVENTS`, each with a number that only grows.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from rmq.observe.client_names import language_name
from rmq.remoting.changes import Change
from rmq.remoting.connection import Connection

if TYPE_CHECKING:
    from rmq.observe.broker_view import BrokerView
    from rmq.observe.findings import Problem

MAX_EVENTS: Final = 1_000
"""Maximum number of events, about 300 bytes each."""

MAX_TEXT: Final = 300


class Event(msgspec.Struct, frozen=True):
    """Something that happened; `place` is a group, a user or the broker."""

    number: int
    at_ms: int
    kind: Literal["came", "left", "problem", "admin"]
    subject: str
    message: str


class Events:
    """The newest events; belongs to the trio thread."""

    _broker: "BrokerView"

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.last = 0
        """The number of the newest event."""

    def attach(self, broker: "BrokerView") -> None:
        """Begin to listen to this broker."""
        self._broker = broker
        broker.consumers.on_join.append(self._on_join)
        broker.consumers.on_leave.append(self._on_leave)
        broker.audit.on_add.append(self._on_change)

    def events_after(self, number: int) -> list[Event]:
        """Return the events after a number that are still in memory."""
        newer = min(len(self._events), max(0, self.last - number))
        return [self._events[at] for at in range(-newer, 0)]

    def add_problem(self, problem: "Problem") -> None:
        """Add a new problem."""
        self._add("problem", problem.subject, problem.message)

    def _on_join(self, group: str, client_id: str, connection: Connection) -> None:
        member = self._broker.consumers.members(group).get(connection)
        language = f" ({language_name(member.language)})" if member else ""
        host = connection.source_host
        self._add("came", group, f"{client_id} came from {host}{language}")

    def _on_leave(
        self, group: str, client_id: str, connection: Connection, is_clean: bool
    ) -> None:
        how = (
            "left after a clean shutdown"
            if is_clean
            else "left, its connection was lost"
        )
        rest = len(self._broker.consumers.members(group))
        last = "" if rest else "; no client is left"
        host = connection.source_host
        self._add("left", group, f"{client_id} at {host} {how}{last}")

    def _on_change(self, change: Change) -> None:
        text = f"{change.action} {change.subject}"
        if change.change:
            text += f": {change.change}"
        self._add("admin", change.user or change.source, text)

    def _add(
        self, kind: Literal["came", "left", "problem", "admin"], place: str, say: str
    ) -> None:
        self.last += 1
        now_ms = self._broker.clock.now_ms()
        self._events.append(
            Event(self.last, now_ms, kind, place[:MAX_TEXT], say[:MAX_TEXT])
        )
