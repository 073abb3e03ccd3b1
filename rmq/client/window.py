"""Window: requests that wait for their answers, on several links at once.

The caller limits their number by `pending`. Each request has a note of the caller,
which comes back with the answer.
"""

import selectors
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

from rmq.outgoing.link import Link
from rmq.protocol.command import Command


class Arrival(NamedTuple):
    """An answer with the note of its request, or a request of the server."""

    link: Link
    command: Command
    note: Any
    """None for a request of the server."""

    took_s: float


class _Open:
    """A request without an answer."""

    __slots__ = ("note", "started")

    def __init__(self, note: object) -> None:
        self.note = note
        self.started = time.perf_counter()


class Window:
    """Links, and the open requests of each."""

    def __init__(self) -> None:
        self._open: dict[Link, set[_Open]] = {}
        self._selector = selectors.DefaultSelector()
        self._arrived: list[Arrival] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._selector.close()

    def forget(self) -> None:
        """Drop all links with their open requests; the caller closes them."""
        for link in self._open:
            self._selector.unregister(link)
        self._open.clear()
        self._arrived.clear()

    @property
    def pending(self) -> int:
        """How many requests have no answer yet."""
        return sum(map(len, self._open.values()))

    def notes(self) -> list[Any]:
        """Return the notes of all requests without an answer."""
        return [each.note for waiting in self._open.values() for each in waiting]

    def send(self, link: Link, request: Command, note: object) -> None:
        """Queue a request for the next `arrivals`."""
        assert note is not None, "that is the mark of a request of the server"
        if link not in self._open:
            self._selector.register(link, selectors.EVENT_READ, link)
            self._open[link] = set()
        waiting = _Open(note)
        link.start(request, waiting)
        self._open[link].add(waiting)

    def arrivals(self, wait_s: float) -> list[Arrival]:
        """Send what is queued; return what arrives, after this time at the latest."""
        self.gather(0 if self._arrived else wait_s)
        found, self._arrived = self._arrived, []
        return found

    def gather(self, wait_s: float) -> None:
        """Send what is queued; keep what arrives for the next `arrivals`."""
        for link in self._open:
            link.flush()
        ready: list[Link] = [key.data for key, _ in self._selector.select(wait_s)]
        now = time.perf_counter()
        for link in ready:
            for waiting, command in link.arrived(0):
                note, took_s = None, 0.0
                if isinstance(waiting, _Open):
                    self._open[link].discard(waiting)
                    note, took_s = waiting.note, now - waiting.started
                self._arrived.append(Arrival(link, command, note, took_s))
