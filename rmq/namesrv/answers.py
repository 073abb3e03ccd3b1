"""RouteAnswers: a cache of the bodies of route answers, each valid until a change.

Known in Java as `ClientRequestProcessor`.
Clients request the same routes every 30 s, and routes change seldom. Each text is
encoded once per topic and per address at which clients reach this process. In an
answer, the address that the caller used replaces a guessed broker address. With acting
masters, a group without a master shows the member with the smallest id as master.
An answer for a zone contains the brokers of that zone, and groups without a master,
which readers still need.

A full cache discards the answers about a random topic for each new one. If clients
request more topics than fit into the cache, in turn, the cache still has most topics.
If it discarded the oldest answers or all answers, it would never have the requested
answer.
"""

import random
from collections.abc import Callable

from rmq.namesrv.config import NamesrvConfig
from rmq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from rmq.namesrv.registration import MASTER_ID
from rmq.namesrv.routes import RouteTable
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.flags import PERM_WRITE
from rmq.remoting.connection import Connection

MAX_BYTES = 128 * 1024 * 1024
"""Maximum bytes of all bodies, each with BODY_COST: 200,000 topics of small clusters.
"""

BODY_COST = 256
"""Bytes that a body takes in addition to its text."""

SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Prefix of topics by which brokers find the real members of their group."""

AddressFor = Callable[[str, Connection], str]


class RouteAnswers:
    """Bodies of the answers to 105."""

    def __init__(
        self,
        config: NamesrvConfig,
        routes: RouteTable,
        kv_config: KVConfig,
        address_for: AddressFor,
    ) -> None:
        self._config = config
        self._routes = routes
        self._kv = kv_config
        self._address_for = address_for
        self._bodies: dict[str, dict[str, bytes]] = {}
        self._topics: list[str] = []
        """The topics of `_bodies`, and some topics that were discarded."""
        self._size = 0
        routes.topics.on_change.append(self.discard_topic)
        routes.on_broker_change.append(self.forget_all)

    def discard_topic(self, topic: str) -> None:
        """Drop the answers about a topic."""
        self._size -= sum(map(_cost, self._bodies.pop(topic, {}).values()))

    def forget_all(self) -> None:
        """Drop every answer."""
        self._bodies.clear()
        self._topics.clear()
        self._size = 0

    def body_for(self, topic: str, connection: Connection) -> bytes | None:
        """Return the body for a caller; None if no broker has the topic."""
        host = connection.local_address
        known = self._bodies.get(topic)
        if known is not None and host in known:
            return known[host]
        route = self._find_route(topic, connection)
        if route is None:
            return None
        body = route.encode()
        self._keep(topic, host, body)
        return body

    def _keep(self, topic: str, host: str, body: bytes) -> None:
        """Cache a body; make room for it first."""
        while self._bodies and self._size + _cost(body) > MAX_BYTES:
            self._forget_some()
        if topic not in self._bodies:
            if len(self._topics) > 2 * len(self._bodies) + 16:
                self._topics = list(self._bodies)
            self._topics.append(topic)
        self._bodies.setdefault(topic, {})[host] = body
        self._size += _cost(body)

    def _forget_some(self) -> None:
        """Drop the answers about one topic, which may have been dropped before."""
        place = random.randrange(len(self._topics))
        self.discard_topic(self._topics[place])
        self._topics[place] = self._topics[-1]
        self._topics.pop()
        assert self._size >= 0, "more was forgotten than was kept"

    def body_in_zone(
        self, topic: str, connection: Connection, zone: str
    ) -> bytes | None:
        """Return the body with the brokers that a caller in this zone should use."""
        route = self._find_route(topic, connection)
        if route is None:
            return None
        wanted = {
            broker.broker_name
            for broker in route.broker_datas
            if MASTER_ID not in broker.broker_addrs
            or (broker.zone_name or "").lower() == zone.lower()
        }
        route.broker_datas = [b for b in route.broker_datas if b.broker_name in wanted]
        route.queue_datas = [q for q in route.queue_datas if q.broker_name in wanted]
        return route.encode()

    def _find_route(self, topic: str, connection: Connection) -> TopicRouteData | None:
        route = self._routes.route(topic)
        if route is None:
            return None
        for broker in route.broker_datas:
            broker.broker_addrs = {
                broker_id: self._address_for(address, connection)
                for broker_id, address in broker.broker_addrs.items()
            }
        if self._config.support_acting_master:
            _show_acting_masters(topic, route)
        if self._config.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_CONFIG, topic)
        return route


def _cost(body: bytes) -> int:
    return len(body) + BODY_COST


def _show_acting_masters(topic: str, route: TopicRouteData) -> None:
    """Show the member with the smallest id as master in groups without a master; their
    queues are only readable.
    """
    if topic.startswith(SYNC_MEMBER_PREFIX):
        return
    readable = {q.broker_name for q in route.queue_datas if not q.perm & PERM_WRITE}
    for broker in route.broker_datas:
        addresses = broker.broker_addrs
        is_acting = broker.enable_acting_master and broker.broker_name in readable
        if addresses and MASTER_ID not in addresses and is_acting:
            addresses[MASTER_ID] = addresses.pop(min(addresses))
