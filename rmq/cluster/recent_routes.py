"""RecentRoutes: routes of topics, as name servers reported them a short time ago.

Requests for one topic wait for the same answer of a name server. Without an answer the
last known route stays, and the next request after ASK_AGAIN_S asks again.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import trio

from rmq.core.errors import PeerError
from rmq.protocol.bodies.route import TopicRouteData

MAX_ROUTES: Final = 1_000
"""Maximum number of cached routes; clients and stored messages choose the names."""

LIMIT_S: Final = 2.0
"""Time limit of one query; clients wait 3 s for an answer that needs it."""

ASK_AGAIN_S: Final = 1.0
"""Minimum time between two queries for a topic without a route."""


class _Known(NamedTuple):
    """A cached route, or None; the name servers are queried again at `until`."""

    since: float
    until: float
    route: TopicRouteData | None


_UNKNOWN: Final = _Known(-math.inf, -math.inf, None)


class RecentRoutes:
    """The routes that a broker has looked up."""

    def __init__(self, fetch: Callable[[str], Awaitable[TopicRouteData]]) -> None:
        """`fetch` returns the route of a topic, or raises PeerError."""
        self._fetch = fetch
        self._known: dict[str, _Known] = {}
        self._queries: dict[str, trio.Event] = {}

    async def get(self, topic: str, age_s: float) -> TopicRouteData | None:
        """Return a route that is not older than `age_s` if name servers answer.

        None if no route is known.
        """
        known = self._known.get(topic, _UNKNOWN)
        now = trio.current_time()
        if now < known.until or now - known.since < age_s:
            return known.route
        running = self._queries.get(topic)
        if running is None:
            await self._query(topic)
        else:
            await running.wait()
        return self._known.get(topic, _UNKNOWN).route

    def forget_route(self, topic: str) -> None:
        """Query the route again at the next request."""
        self._known.pop(topic, None)

    async def _query(self, topic: str) -> None:
        done = self._queries[topic] = trio.Event()
        found = None
        try:
            with trio.move_on_after(LIMIT_S):
                found = await self._fetch(topic)
        except PeerError:
            pass
        finally:
            del self._queries[topic]
            done.set()
        now = trio.current_time()
        known = self._known.pop(topic, _UNKNOWN)
        if len(self._known) >= MAX_ROUTES:
            del self._known[next(iter(self._known))]
        if found is None:
            known = known._replace(until=now + ASK_AGAIN_S)
        else:
            known = _Known(now, now, found)
        self._known[topic] = known
