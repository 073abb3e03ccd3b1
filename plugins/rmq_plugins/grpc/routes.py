"""QueryRoute and QueryAssignment: the queues of a topic on all brokers.

Topics of this broker come from its own table, topics of other brokers from the name
servers. Other brokers are named by their registered addresses. A master that is cut off
from its group cannot know that another broker replaced it. In a group with a controller
the name servers decide which broker is the master.
"""

import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from rmq.access.actions import Action
from rmq.plugin import PERM_READ, PERM_WRITE, BrokerContext, GrpcCall
from rmq.protocol.bodies.route import QueueData, TopicRouteData
from rmq.protocol.topics import validate_topic
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.requests import group_of, topic_of
from rmq_plugins.grpc.route_queries import RouteQueries
from rmq_plugins.grpc.sends import kinds_of
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, Refused, status

MASTER: Final = 0
IPV4, IPV6, DOMAIN_NAME = 1, 2, 3
CACHE_MS: Final = 30_000
GROUP_CACHE_MS: Final = 5_000
"""Age of a cached route in a group with a controller, whose master may change."""

MAX_CACHED: Final = 1_000

_PERMISSIONS: Final = {0: 1, PERM_READ: 2, PERM_WRITE: 3, PERM_READ | PERM_WRITE: 4}
_READABLE: Final = (_PERMISSIONS[PERM_READ], _PERMISSIONS[PERM_READ | PERM_WRITE])


def endpoints_of(address: str, port: int | None = None) -> Any:
    """Return the endpoints of an address, "host:port"."""
    host, _, own = address.rpartition(":")
    plain = host.strip("[]")
    try:
        scheme = IPV6 if ipaddress.ip_address(plain).version == 6 else IPV4
    except ValueError:
        scheme = DOMAIN_NAME
    found = schema.Endpoints(scheme=scheme)
    found.addresses.add(host=plain, port=port or int(own))
    return found


class Routes:
    """Answers with routes; routes of other brokers are cached."""

    def __init__(self, broker: BrokerContext, queries: RouteQueries) -> None:
        self._broker = broker
        self._queries = queries
        self._steady_ms = broker.clock.steady_ms
        self._cache: dict[str, tuple[int, TopicRouteData]] = {}

    def query_route(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Answer with all queues of a topic."""
        topic = self._allowed_topic(session, request)
        validate_topic(topic)

        def on_route(route: TopicRouteData | None) -> None:
            queues = list(self._queues_of(call, topic, route))
            answer = schema.QueryRouteResponse(
                status=_route_status(topic, queues), message_queues=queues
            )
            call.send_answer(answer.SerializeToString())

        self._with_route(call, topic, on_route)

    def query_assignment(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Answer with the queues from which a push consumer receives.

        An ordered group gets all queues. Another group gets one entry for each broker,
        for any of its queues.
        """
        topic, group = self._allowed_topic(session, request), group_of(request.group)
        config = self._broker.groups.get(group)
        is_ordered = config is not None and config.consume_message_orderly

        def on_route(route: TopicRouteData | None) -> None:
            queues = list(self._queues_of(call, topic, route))
            shown = [each for each in queues if each.permission in _READABLE]
            if not is_ordered:
                brokers = {each.broker.name: each for each in shown}
                shown = list(brokers.values())
                for each in shown:
                    each.id = -1
            found = _route_status(topic, queues)
            if queues and not shown:
                found = status(Code.FORBIDDEN, f"topic {topic} is not readable")
            answer = schema.QueryAssignmentResponse(
                status=found,
                assignments=[schema.Assignment(message_queue=each) for each in shown],
            )
            call.send_answer(answer.SerializeToString())

        self._with_route(call, topic, on_route)

    def _allowed_topic(self, session: Session, request: Any) -> str:
        """Return the topic of a request; Refused without a right to it."""
        topic, caller = topic_of(request.topic), session.caller
        assert caller is not None, "a session has a caller"
        actions = Action.PUB, Action.SUB, Action.GET
        if not self._broker.rights.is_allowed(caller.user, caller, topic, *actions):
            raise Refused(Code.FORBIDDEN, f"{caller.user} has no right to {topic}")
        return topic

    # -- routes

    def _with_route(self, call: GrpcCall, topic: str, on_route: Any) -> None:
        """Call `on_route` with the route in the name servers, now or later."""
        expires_ms, route = self._cache.get(topic, (0, None))
        if route is not None and expires_ms > self._steady_ms():
            on_route(route)
            return

        def on_answer(route: TopicRouteData | None) -> None:
            if route is not None:
                if len(self._cache) >= MAX_CACHED:
                    self._cache.clear()
                age_ms = GROUP_CACHE_MS if self._is_of_group else CACHE_MS
                self._cache[topic] = self._steady_ms() + age_ms, route
            if call.is_open:
                call.run(on_route, route)

        if not self._queries.request_route(topic, on_answer):
            raise Refused(Code.TOO_MANY_REQUESTS, "the call asks for too many routes")

    @property
    def _is_of_group(self) -> bool:
        """Whether a controller and name servers outside of this process know the
        master.
        """
        broker = self._broker
        return broker.role.is_appointed and not broker.config.has_own_name_server

    def _is_replaced(self, address: str | None) -> bool:
        """Whether the name servers have another address for the master of this group.

        A new master registers its own address there when it starts.
        """
        return self._is_of_group and address not in (None, self._broker.address)

    def _queues_of(
        self, call: GrpcCall, topic: str, route: TopicRouteData | None
    ) -> Iterator[Any]:
        """Yield the queues of a topic, the own ones first."""
        own = self._broker.topics.get(topic)
        name = self._broker.config.broker_name
        kinds = kinds_of({} if own is None else own.attributes)
        known = () if route is None else route.broker_datas
        addresses = {each.broker_name: each.broker_addrs for each in known}
        is_shown = (
            own is not None
            and self._broker.role.is_master
            and not self._is_replaced(addresses.get(name, {}).get(MASTER))
        )
        if own is not None and is_shown:
            data = QueueData(
                broker_name=name,
                read_queue_nums=own.read_queue_nums,
                write_queue_nums=own.write_queue_nums,
                perm=own.perm & self._broker.config.broker_permission,
            )
            port = int(call.connection.local_address.rpartition(":")[2])
            broker = schema.Broker(
                name=name, endpoints=endpoints_of(self._broker.address, port)
            )
            yield from _queues(topic, data, broker, kinds)
        if route is None:
            return
        for data in route.queue_datas:
            address = addresses.get(data.broker_name, {}).get(MASTER)
            if address is None or (data.broker_name == name and is_shown):
                continue
            broker = schema.Broker(
                name=data.broker_name or "", endpoints=endpoints_of(address)
            )
            yield from _queues(topic, data, broker, kinds)


def _queues(
    topic: str, data: QueueData, broker: Any, kinds: list[int]
) -> Iterator[Any]:
    """Yield the queues of a topic on one broker."""
    is_readable, is_writable = data.perm & PERM_READ, data.perm & PERM_WRITE
    reads = data.read_queue_nums if is_readable else 0
    writes = data.write_queue_nums if is_writable else 0
    for queue_id in range(max(reads, writes)):
        perm = (PERM_READ if queue_id < reads else 0) | (
            PERM_WRITE if queue_id < writes else 0
        )
        queue = schema.MessageQueue(
            id=queue_id,
            permission=_PERMISSIONS[perm],
            broker=broker,
            accept_message_types=kinds,
        )
        queue.topic.name = topic
        yield queue


def _route_status(topic: str, queues: list[Any]) -> Any:
    if queues:
        return status()
    return status(Code.TOPIC_NOT_FOUND, f"topic {topic} does not exist")
