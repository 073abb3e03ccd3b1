"""RouteAnswers: a cache of the bodies of route answers, each valid until a change.

Clients ask for the same routes every 30 s and routes hardly change, so that each text
is made once per topic and per address at which clients reach this process (in an
answer, the address that the caller used replaces a guessed broker address).  With
acting masters, a group without a master shows the member with the least id as master.
An answer for a zone contains the brokers of that zone, and those without a master,
which readers still need.
"""

from collections.abc import Callable

from rmq.namesrv.config import NamesrvConfig
from rmq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from rmq.namesrv.registration import MASTER_ID
from rmq.namesrv.routes import RouteTable
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.flags import PERM_WRITE
from rmq.remoting.connection import Connection

MAX_BODIES = 20_000
"""Most cached bodies; when there are more, all are dropped."""

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
        self._count = 0
        routes.topics.on_change.append(self.forget)
        routes.on_broker_change.append(self.forget_all)

    def forget(self, topic: str) -> None:
        """Drop the answers about a topic."""
        self._count -= len(self._bodies.pop(topic, ()))

    def forget_all(self) -> None:
        """Drop every answer."""
        self._bodies.clear()
        self._count = 0

    def body(self, topic: str, connection: Connection) -> bytes | None:
        """Return the body for a caller; None if no broker has the topic."""
        host = connection.local_address
        known = self._bodies.get(topic)
        if known is not None and host in known:
            return known[host]
        route = self._told_to(topic, connection)
        if route is None:
            return None
        if self._count >= MAX_BODIES:
            self.forget_all()
        body = route.encode()
        assert self._count >= 0, "more was forgotten than was kept"
        self._bodies.setdefault(topic, {})[host] = body
        self._count += 1
        return body

    def body_in_zone(
        self, topic: str, connection: Connection, zone: str
    ) -> bytes | None:
        """Return the body with the brokers that a caller in this zone should use."""
        route = self._told_to(topic, connection)
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

    def _told_to(self, topic: str, connection: Connection) -> TopicRouteData | None:
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


def _show_acting_masters(topic: str, route: TopicRouteData) -> None:
    """Show the least id as master where the queues are only readable."""
    if topic.startswith(SYNC_MEMBER_PREFIX):
        return
    readable = {q.broker_name for q in route.queue_datas if not q.perm & PERM_WRITE}
    for broker in route.broker_datas:
        addresses = broker.broker_addrs
        is_acting = broker.enable_acting_master and broker.broker_name in readable
        if addresses and MASTER_ID not in addresses and is_acting:
            addresses[MASTER_ID] = addresses.pop(min(addresses))
