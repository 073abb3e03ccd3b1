"""RouteQueries: asks the name servers for routes, in tasks of the plugin's service."""

from collections.abc import Callable
from typing import Final

import trio

from rmq.plugin import BrokerContext, RmqError
from rmq.protocol.bodies.route import TopicRouteData

MAX_WAITING: Final = 1_000
"""Maximum number of queries that wait for name servers; each is a small object and a
task.
"""

OnRoute = Callable[[TopicRouteData | None], object]


class RouteQueries:
    """The queries of all calls. An error ends the service, which then starts again."""

    def __init__(self, broker: BrokerContext) -> None:
        self._name_servers = broker.name_servers
        self._waiting = 0
        self._send, self._receive = trio.open_memory_channel[tuple[str, OnRoute]](
            MAX_WAITING
        )

    def request_route(self, topic: str, on_route: OnRoute) -> bool:
        """Call `on_route` later with the route, or with None if there is no route.

        Returns whether there was room for the query.
        """
        if self._waiting >= MAX_WAITING:
            return False
        self._waiting += 1
        self._send.send_nowait((topic, on_route))
        return True

    async def run(self) -> None:
        """Answer queries until cancelled."""
        async with trio.open_nursery() as nursery:
            async for topic, on_route in self._receive:
                nursery.start_soon(self._answer_query, topic, on_route)

    async def _answer_query(self, topic: str, on_route: OnRoute) -> None:
        route = None
        try:
            route = await self._name_servers.directory.route(topic)
        except RmqError:
            pass  # topics of this broker are served without name servers
        finally:
            self._waiting -= 1
        on_route(route)
