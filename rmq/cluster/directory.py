"""Directory: asks the name servers for brokers and for routes of topics."""

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeVar

import trio

from rmq.access.signature import sign
from rmq.cluster.address_lookup import AddressLookup
from rmq.cluster.recent_routes import RecentRoutes
from rmq.config.broker import BrokerConfig
from rmq.core.errors import ConnectFailed, PeerError, RequestRejected
from rmq.core.logs import Foreign
from rmq.protocol.bodies.route import (
    BrokerData,
    ClusterInfo,
    GetBrokerMemberGroupResponseBody,
    TopicRouteData,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.cluster import GetBrokerMemberGroupRequestHeader
from rmq.protocol.headers.route import GetRouteInfoRequestHeader
from rmq.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

MASTER: Final = 0
"""The id of masters."""

MASTERS_KNOWN_S: Final = 30.0
"""Time for which an address of another broker is cached."""

ASK_AGAIN_S: Final = 1.0
"""Minimum time between two requests for brokers that the name servers do not know."""

NEXT_S: Final = 0.3
"""Time after which the next name server is asked, too; the first answer is used."""

T = TypeVar("T")
Ask = Callable[[str, Command, int], Awaitable[Command]]
"""Sends a request to an address, and returns the answer; PeerError without one."""


class NameServerStatus(NamedTuple):
    """Whether one name server accepted the last registration, or why not."""

    address: str
    is_registered: bool
    error: str


class Directory:
    """Asks the name servers of one broker."""

    def __init__(
        self,
        ask: Ask,
        name_servers: Collection[str],
        config: BrokerConfig,
        own_address: str,
        lookup: AddressLookup | None = None,
    ) -> None:
        """`lookup` has the addresses of the name servers, if they may change."""
        self.lookup = lookup
        self.send_request = ask
        self.name_servers = name_servers
        self.own_address = own_address
        self._config = config
        self._asking = trio.Lock()
        self._masters: dict[str, str] = {}
        self._masters_since = -math.inf
        self.recent_routes = RecentRoutes(self.route)

    async def master_of(self, broker_name: str) -> str:
        """Return the address of the master with this broker name.

        An answer is cached for MASTERS_KNOWN_S. PeerError if the name servers do not
        know the master, or if no name server answers.
        """
        async with self._asking:
            age_s = trio.current_time() - self._masters_since
            limit_s = MASTERS_KNOWN_S if broker_name in self._masters else ASK_AGAIN_S
            if age_s >= limit_s:
                self._masters = {
                    name: group.broker_addrs[MASTER]
                    for name, group in (await self._fetch_brokers()).items()
                    if MASTER in group.broker_addrs
                }
                self._masters_since = trio.current_time()
        if broker_name not in self._masters:
            raise ConnectFailed(
                f"no name server knows a master of broker {broker_name}"
            )
        return self._masters[broker_name]

    async def route(self, topic: str) -> TopicRouteData:
        """Return a topic's route; PeerError if no name server knows it."""
        if not self.name_servers:
            raise ConnectFailed("there is no name server")
        timeout_ms = self._config.register_broker_timeout_ms

        async def ask_one(address: str) -> TopicRouteData:
            header = GetRouteInfoRequestHeader(topic=topic)
            request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            answer = _check_success(
                address, await self.send_request(address, request, timeout_ms)
            )
            return TopicRouteData.decode(answer.body)

        try:
            return await _first_answer(self.name_servers, ask_one)
        except PeerError as error:
            logger.info("route of %s: %s", Foreign(topic), Foreign(error))
        raise ConnectFailed(f"no name server has a route of topic {topic}")

    async def group_members(self) -> Mapping[int, str]:
        """Return the addresses of all live brokers of this group, by their ids.

        PeerError if no name server answers. Only name servers of 5.x know the request.
        """
        timeout_ms = self._config.register_broker_timeout_ms
        header = GetBrokerMemberGroupRequestHeader(
            cluster_name=self._config.broker_cluster_name,
            broker_name=self._config.broker_name,
        )

        async def ask_one(address: str) -> Mapping[int, str]:
            request = Command.request(RequestCode.GET_BROKER_MEMBER_GROUP, header)
            answer = _check_success(
                address, await self.send_request(address, request, timeout_ms)
            )
            group = GetBrokerMemberGroupResponseBody.decode(answer.body)
            found = group.broker_member_group
            return {} if found is None else found.broker_addrs

        return await _first_answer(self.name_servers, ask_one)

    async def other_members(self) -> Mapping[int, str]:
        """Return the addresses of the other brokers of this group, by their ids.

        PeerError if no name server answers.  (The answer of 901 is shorter, but only
        5.x has it.)
        """
        group = (await self._fetch_brokers()).get(self._config.broker_name)
        if group is None or group.cluster != self._config.broker_cluster_name:
            return {}
        return {
            int(broker_id): address
            for broker_id, address in group.broker_addrs.items()
            if address != self.own_address
        }

    async def _fetch_brokers(self) -> Mapping[str, BrokerData]:
        """Ask for all brokers by name; PeerError if no name server answers."""
        timeout_ms = self._config.register_broker_timeout_ms

        async def ask_one(address: str) -> Mapping[str, BrokerData]:
            request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            answer = _check_success(
                address, await self.send_request(address, request, timeout_ms)
            )
            return ClusterInfo.decode(answer.body).broker_addr_table

        return await _first_answer(self.name_servers, ask_one)


def signed_ask(client: RemotingClient, credentials: tuple[str, str] | None) -> Ask:
    """Return a function that sends requests, signed with `credentials` if given."""

    async def send(address: str, request: Command, timeout_ms: int) -> Command:
        if credentials is not None:
            sign(request, *credentials)
        return await client.invoke(address, request, timeout_ms)

    return send


def _check_success(address: str, answer: Command) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise ConnectFailed(f"{address} answers {answer.code}")
    return answer


async def _first_answer(
    addresses: Collection[str], ask: Callable[[str], Awaitable[T]]
) -> T:
    """Return the first answer; PeerError without one.

    It asks the next address if an address has failed, or is silent for NEXT_S, because
    an unreachable machine is silent until a long time-out.
    """
    failure: PeerError = ConnectFailed("there is no name server")
    answers: list[T] = []
    async with trio.open_nursery() as nursery:

        async def ask_one(address: str, done: trio.Event) -> None:
            nonlocal failure
            try:
                answers.append(await ask(address))
                nursery.cancel_scope.cancel()
            except (PeerError, RequestRejected) as error:
                failure = ConnectFailed(str(error))
            done.set()

        for address in addresses:
            done = trio.Event()
            nursery.start_soon(ask_one, address, done)
            with trio.move_on_after(NEXT_S):
                await done.wait()
    if not answers:
        raise failure
    return answers[0]
