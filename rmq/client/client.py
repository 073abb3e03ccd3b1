# tidy: long — connections, routes and heartbeats share one state
"""Client: connections, routes and heartbeats, which producers and consumers share.

Known in Java as `MQClientInstance`. It fetches each route again every 30 s, and after a
failure at most once a second. Heartbeats go to every broker of a known route.

While a server is away, calls wait for it until their time-out.
"""

import itertools
import logging
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread

from rmq.client.core.routes import MessageQueue, Route, offered_route, route_of
from rmq.client.errors import (
    ClientClosed,
    ClientError,
    ClientForked,
    NameServerUnreachable,
    NoBroker,
    NoRoute,
    NotAuthorized,
    Refused,
    TlsFailed,
    client_error_of,
    refusal_of,
)
from rmq.client.hooks import Hook, Hooks
from rmq.client.lifecycle import LIFE, Lifecycle
from rmq.client.name_server_lookup import NameServerLookup
from rmq.client.namespaces import wrap
from rmq.client.options import check_text
from rmq.client.shared_retries import SharedRetries
from rmq.client.troubles import Troubles
from rmq.core.address import Address, check_source, host_of, is_lookup
from rmq.core.errors import (
    ConfigError,
    ConnectFailed,
    PeerClosed,
    PeerError,
    RmqError,
    TlsWanted,
    WrongProtocol,
)
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import Connection, steady_ms
from rmq.outgoing.connections import CONNECT_TIMEOUT_MS, Connections
from rmq.outgoing.event_loop import current_wires
from rmq.outgoing.identity import ANY_NAME, Trust, offers_tls
from rmq.outgoing.signing import Credentials, make_signer
from rmq.outgoing.wire import Tls, Wires
from rmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rmq.protocol.bodies.route import ClusterInfo, TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.route import GetRouteInfoRequestHeader
from rmq.protocol.hosts import host_bytes
from rmq.protocol.topics import DEFAULT_TOPIC

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

NAMESRV_ADDR: Final = "NAMESRV_ADDR"
REQUEST_TIMEOUT_MS: Final = 3_000
ROUTE_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 1_000
"""Longest pause before the next attempt to connect to a server that is away."""

PROBE_S: Final = 1.0
"""Time limit of the TLS handshake that finds out why a server has closed a connection.
"""

MIN_TICK_MS: Final = 50
"""Minimum pause between two checks of deadlines: one timer serves all calls."""

MAX_REQUESTS: Final = 16
"""Limit of requests of brokers that are handled at once; more are refused as busy."""

_numbers = itertools.count()


class Member(Protocol):
    """A producer or consumer, as its client sees it."""

    def producer_data(self) -> ProducerData | None:
        """Return the entry of a producer in heartbeats."""

    def consumer_data(self) -> ConsumerData | None:
        """Return the entry of a consumer in heartbeats."""

    def on_route(self, route: Route) -> None:
        """Handle the change of a route."""

    def on_lost(self, address: str) -> None:
        """Handle the end of a connection."""

    is_accepted: bool
    """Whether a broker has accepted a heartbeat with this member."""

    def on_refused(self, error: RmqError) -> None:
        """Handle the refusal of the first heartbeat."""

    async def on_request(
        self, connection: Connection, request: Command
    ) -> Command | None:
        """Answer a request of a broker; None if it is not for this member."""


LookUp = Callable[[str], Awaitable[Route]]
"""Returns the route of a topic."""


class Client(Lifecycle):
    """Connections, routes and heartbeats of several producers and consumers.

    Args:
        name_servers (str | Sequence[str] | None, default None): addresses of name
            servers: "host:port;host:port", or a list of them. Without it the client
            reads the variable NAMESRV_ADDR. The client uses the first server that
            answers. "dns://host:port" means all addresses of a host.
            "http://host:port/path" means the addresses on the page of an address
            server. The client looks up addresses of both forms every 120 s.
        client_id (str | None, default None): the name of this client in its groups. It
            must differ from the names of all other clients. Without it the client makes
            one from its address, its process id and the time.
        tls (Trust | None, default None): the certificates for TLS to all servers.
            Without this option connections are plain.
        credentials (Credentials | None, default None): user and password, which sign
            each request. Without this option requests are not signed.
        namespace (str, default ''): the tenant: a prefix of all topics and groups on
            the wire. Programs use names without the prefix.
        hooks (Sequence[Hook], default ()): objects that are called for each send, each
            receive and each handler, such as `OpenTelemetry()` and `MessageTrace`.
        connect_timeout_ms (int, milliseconds, default 3000): time limit of one attempt
            to connect, with its TLS handshake.
        route_interval_s (float, seconds, default 30): pause between two reads of each
            route. With a shorter pause the client finds new brokers and queues sooner.
        heartbeat_interval_s (float, seconds, default 30): pause between two heartbeats
            to each broker. Brokers forget a client after 120 s without a heartbeat.
    """

    public_names = LIFE | {"client_id", "name_servers", "namespace"}

    def __init__(  # noqa: PLR0913 - options, all but one by name
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        client_id: str | None = None,
        tls: Trust | None = None,
        credentials: Credentials | None = None,
        namespace: str = "",
        hooks: Sequence[Hook] = (),
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        route_interval_s: float = 30,
        heartbeat_interval_s: float = 30,
    ) -> None:
        super().__init__()
        sources = _parse_name_servers(name_servers)
        self._lookup = NameServerLookup(sources)
        self.name_servers = tuple(each for each in sources if not is_lookup(each))
        self.namespace = namespace
        self.hooks, self.is_watched = Hooks(hooks), bool(hooks)
        self.process_id = os.getpid()
        self.members: list[Member] = []
        self.routes: dict[str, Route] = {}
        self._connections = Connections(
            connect_timeout_ms=connect_timeout_ms,
            tls_to=self._tls_to,
            on_request=self._on_request,
            on_lost=self._on_lost,
            on_deadline=self._on_deadline,
            longest_pause_ms=LONGEST_PAUSE_MS,
        )
        self.troubles = Troubles()
        self.retries = SharedRetries(self._spawn)
        self._connections.sign = make_signer(credentials) if credentials else None
        self.connections = self._connections.open
        self.is_open = False
        self.wires: Wires
        self.given_id = client_id
        self._trust = tls
        self._tls: Tls | None = None
        self._route_interval_s = route_interval_s
        self._heartbeat_interval_s = heartbeat_interval_s
        self._host = ""
        self._route_locks: dict[str, anyio.Lock] = {}
        self._route_tried_ms: dict[str, int] = {}
        self._probed: set[str] = set()
        self._offered_topics: set[str] = set()
        self._preferred = 0
        self._next_tick_ms = 0
        self._tick: anyio.Event
        self._request_count = 0
        self._number = next(_numbers)

    def __repr__(self) -> str:
        return f"<Client of {';'.join(self.name_servers)}, {self._state}>"

    @property
    def client_id(self) -> str:
        """The name of this client in its groups, `ip@pid#number`."""
        if self.given_id is not None:
            return self.given_id
        return f"{self._host or '127.0.0.1'}@{self.process_id}#{self._started_ns}"

    async def own_host(self) -> bytes:
        """Return the IP address of this host as servers see it, for unique keys.

        While no name server is reachable, return four random bytes.
        """
        await self._find_name_servers()
        if not self._host and self.name_servers:
            with suppress(PeerError):
                await self.connect(self.name_servers[0], is_broker=False)
        return host_bytes(self._host, 0) if self._host else os.urandom(4) + bytes(4)

    # -- life

    async def _open(self) -> None:
        self.wires = current_wires()
        self._started_ns = time.time_ns() + self._number
        self._tick = anyio.Event()
        if self._trust is not None:
            name = None if self._trust.name == ANY_NAME else self._trust.name or ""
            self._tls = Tls(self._trust.context(), name)
        self.is_open = True
        _clients.add(self)
        self._spawn(self._watch_deadlines)
        self._spawn(self._refresh_routes)
        self._spawn(self._send_heartbeats_periodically)

    async def _close(self, error: BaseException | None, *, is_cancelled: bool) -> None:
        self.is_open = False
        with anyio.CancelScope(shield=True):
            await self._connections.close()

    def check_open(self) -> None:
        """Raise an error unless the client is open in this process."""
        if not self.is_open:
            if os.getpid() != self.process_id:
                raise ClientForked(self.process_id)
            raise ClientClosed("this client is not open: use `async with`")

    # -- connections

    async def connect(self, address: str, *, is_broker: bool = True) -> Connection:
        """Return an open connection to an address; raise ConnectFailed if the server is
        away.
        """
        found = self.connections.get(address)
        if found is not None and found.is_open and self.is_open:
            return found
        self.check_open()
        greet = self._greet if is_broker else None
        try:
            found = await self._connections.get(address, greet)
        except ConnectFailed as error:
            if is_broker:
                self.troubles.report(address, f"broker {address} is away", error)
            raise
        except PeerClosed as error:
            raise await self._explain_end(address, error) from error
        self.troubles.end(address, f"broker {address} is back")
        self._host = self._host or found.wire.local_address[0]
        return found

    async def _explain_end(self, address: str, error: PeerClosed) -> PeerError:
        """Return TlsWanted if a server closed a plain connection and accepts TLS."""
        if self._tls is not None or isinstance(error, WrongProtocol):
            return error
        if address not in self._probed:
            self._probed.add(address)
            where = Address.parse(address)
            if await anyio.to_thread.run_sync(offers_tls, where, PROBE_S):
                self._probed.discard(address)
                return TlsWanted(f"{address} wants TLS")
        return error

    def _tls_to(self, address: str) -> Tls | None:
        tls = self._tls
        if tls is not None and tls.name == "":
            tls = Tls(tls.context, host_of(address))
        return tls

    async def request(
        self, address: str, command: Command, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Command:
        """Return the answer of a broker, with any code; raise PeerError if none
        comes.
        """
        connection = await self.connect(address)
        return await connection.request(command, timeout_ms)

    async def request_broker(
        self, queue: MessageQueue, command: Command, *, any_replica: bool = False
    ) -> Command:
        """Return the answer of the master of a queue; NoBroker if it is offline.

        With `any_replica` a slave answers in place of a master that is offline.
        """
        route = await self.route(queue.topic)
        address = route.master_of(queue.broker)
        if address is None and any_replica:
            address = route.any_of(queue.broker)
        if address is None:
            reason = f"the master of {queue.broker} is offline"
            raise NoBroker(queue.topic, self.name_servers, reason)
        return await self.request(address, command)

    def _on_lost(self, connection: Connection, reason: str) -> None:
        if self.is_open:
            logger.debug("lost %s: %s", connection.address, Foreign(reason))
        for member in self.members:
            member.on_lost(connection.address)

    # -- deadlines

    def _on_deadline(self, deadline_ms: int) -> None:
        if deadline_ms < self._next_tick_ms:
            self._next_tick_ms = deadline_ms
            self._tick.set()

    async def _watch_deadlines(self) -> None:
        while True:
            now_ms = steady_ms()
            watched = self._connections.list_all()
            for connection in watched:
                connection.expire(now_ms)
            deadlines = [each.codec.next_deadline_ms for each in watched]
            self._next_tick_ms = min([*deadlines, now_ms + 60_000])
            self._tick = anyio.Event()
            pause_ms = max(self._next_tick_ms - now_ms, MIN_TICK_MS)
            with anyio.move_on_after(pause_ms / 1_000):
                await self._tick.wait()
                await anyio.sleep(MIN_TICK_MS / 1_000)

    # -- routes

    async def route(self, topic: str) -> Route:
        """Return the route of a topic; NoRoute if no name server knows it."""
        found = self.routes.get(topic)
        if found is not None:
            return found
        self.check_open()
        async with self._route_locks.setdefault(topic, anyio.Lock()):
            return self.routes.get(topic) or await self._fetch_route(topic)

    async def route_to_send(self, topic: str) -> Route:
        """Return the route of a topic for which a broker accepts messages."""
        found = await self.route_to_join(topic)
        if not found.writable:
            reason = "no broker accepts messages for this topic"
            raise NoBroker(topic, self.name_servers, reason)
        return found

    async def route_to_join(self, topic: str) -> Route:
        """Return the route of a topic, or the route that a send would create."""
        try:
            return await self.route(topic)
        except NoRoute as error:
            try:
                default = await self.route(DEFAULT_TOPIC)
            except NoRoute:
                raise await self._explain_no_route(topic, error) from error.__cause__
            created = self.routes.get(topic)  # by another send
            if created is None:
                self._offered_topics.add(topic)
                return offered_route(topic, default)
            return created

    async def _explain_no_route(self, topic: str, error: NoRoute) -> NoRoute:
        """Return an error that depends on whether a broker is registered."""
        request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        try:
            answer = await self.request_name_server(request)
            if answer.code == ResponseCode.SUCCESS:
                brokers = ClusterInfo.decode(answer.body).broker_addr_table
                if not brokers:
                    reason = "no broker is registered there"
                    return NoBroker(topic, self.name_servers, reason)
        except RmqError:  # the name server is away now
            return error
        error.is_unknown = answer.code != ResponseCode.NO_PERMISSION
        return error

    async def route_to_read(self, topic: str) -> Route:
        """Return the route of a topic that exists."""
        try:
            return await self.route(topic)
        except NoRoute as error:
            raise await self._explain_no_route(topic, error) from error.__cause__

    async def wait_for_route(
        self, topic: str, timeout_ms: int, look_up: LookUp | None = None
    ) -> Route:
        """Return the route of a topic; while a server is away, try until the time-out.

        `look_up` is `route_to_send` or one of its siblings. Raises NoRoute,
        NameServerUnreachable, TlsFailed or NotAuthorized.
        """
        self.check_open()
        look_up = look_up or self.route_to_send
        deadline_ms = steady_ms() + timeout_ms
        try:
            return await self.retries.call(
                (look_up, topic), partial(look_up, topic), deadline_ms
            )
        except TimeoutError as error:
            raise NameServerUnreachable(self.name_servers, error) from error

    async def refresh(self, topic: str) -> None:
        """Fetch a route again, unless it was tried within the last second."""
        now_ms = steady_ms()
        if now_ms - self._route_tried_ms.get(topic, -ROUTE_PAUSE_MS) < ROUTE_PAUSE_MS:
            return
        with suppress(ClientError):
            await self._fetch_route(topic)

    async def _fetch_route(self, topic: str) -> Route:
        check_text("topic", topic)
        self._route_tried_ms[topic] = steady_ms()
        header = GetRouteInfoRequestHeader(topic=wrap(self.namespace, topic))
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        try:
            answer = await self.request_name_server(request)
            if answer.code != ResponseCode.SUCCESS:
                self._route_tried_ms.pop(topic, None)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    self.routes.pop(topic, None)
                server = ";".join(self.name_servers)
                refusal = refusal_of(server, answer.code, answer.remark)
                if isinstance(refusal, NotAuthorized):
                    raise refusal
                reason = f"{answer.code}: {refusal.remark.strip()}"
                raise NoRoute(topic, self.name_servers, reason) from refusal
            route = route_of(topic, TopicRouteData.decode(answer.body))
        except ClientError:
            raise
        except RmqError as error:
            raise NameServerUnreachable(self.name_servers, error) from error
        if route != self.routes.get(topic):
            self.routes[topic] = route
            self._offered_topics.discard(topic)
            for member in self.members:
                member.on_route(route)
        return route

    async def request_name_server(self, request: Command) -> Command:
        """Return the answer of the first name server that answers.

        Raises NameServerUnreachable or TlsFailed with the first failure as cause.
        """
        await self._find_name_servers()
        failure: RmqError | None = None if self.name_servers else self._lookup.failure
        for _ in self.name_servers:
            address = self.name_servers[self._preferred % len(self.name_servers)]
            try:
                connection = await self.connect(address, is_broker=False)
                answer = await connection.request(request, REQUEST_TIMEOUT_MS)
            except PeerClosed as error:
                failure = failure or await self._explain_end(address, error)
            except PeerError as error:
                failure = failure or error
            else:
                self.troubles.end("name server", "a name server answers again")
                return answer
            self._preferred += 1
        assert isinstance(failure, PeerError)
        failure = client_error_of(failure)
        if isinstance(failure, TlsFailed):
            raise failure
        self.troubles.report("name server", "no name server answers", failure)
        servers = self.name_servers or self._lookup.sources
        raise NameServerUnreachable(servers, failure) from failure

    async def _find_name_servers(self) -> None:
        """Look up the addresses of the name servers again, if their interval has
        passed.
        """
        if self._lookup.is_due:
            self.name_servers = await self._lookup.find(self.name_servers)

    async def _refresh_routes(self) -> None:
        while True:
            await anyio.sleep(self._route_interval_s)
            for topic in {*self.routes, *self._offered_topics}:
                with suppress(ClientError):
                    await self._fetch_route(topic)

    # -- heartbeats

    def add_member(self, member: Member) -> None:
        """Add a producer or consumer to the heartbeats."""
        self.members.append(member)

    def remove_member(self, member: Member) -> None:
        """Remove a producer or consumer from the heartbeats."""
        if member in self.members:
            self.members.remove(member)

    def broker_addresses(self) -> set[str]:
        """Return the addresses of the masters and, if the client consumes, of the
        slaves.
        """
        has_consumers = any(each.consumer_data() for each in self.members)
        return {
            address
            for route in self.routes.values()
            for known in route.addresses.values()
            for number, address in known.items()
            if number == 0 or has_consumers
        }

    async def send_heartbeats(self) -> None:
        """Send a heartbeat to every broker, also after the failure of another one."""
        async with anyio.create_task_group() as tasks:
            for address in self.broker_addresses():
                tasks.start_soon(self._send_heartbeat, address)

    async def _send_heartbeat(self, address: str) -> None:
        try:
            known = self.connections.get(address)
            connection = await self.connect(address)
            if connection is known:  # `connect` greets new ones
                await self._greet(connection)
        except (PeerError, ClientClosed) as error:
            logger.debug("cannot send a heartbeat to %s: %s", address, Foreign(error))

    async def _greet(self, connection: Connection) -> None:
        beat = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[
                data for each in self.members if (data := each.producer_data())
            ],
            consumer_data_set=[
                found for each in self.members if (found := each.consumer_data())
            ],
        )
        if beat.producer_data_set or beat.consumer_data_set:
            request = Command.request(RequestCode.HEART_BEAT, body=beat.encode())
            answer = await connection.request(request, REQUEST_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                error = refusal_of(connection.address, answer.code, answer.remark)
                self._report_refusal(connection.address, error)
                for member in list(self.members):
                    if not member.is_accepted:
                        member.on_refused(error)
            else:
                what = f"broker {connection.address} accepts the heartbeat"
                self.troubles.end(("heartbeat", connection.address), what)
                for member in self.members:
                    member.is_accepted = True

    def _report_refusal(self, address: str, error: Refused) -> None:
        what = f"broker {address} refuses the heartbeat"
        self.troubles.report(("heartbeat", address), what, error)

    async def _send_heartbeats_periodically(self) -> None:
        while True:
            await anyio.sleep(self._heartbeat_interval_s)
            if self.members:
                await self.send_heartbeats()

    # -- requests of brokers

    def _on_request(self, connection: Connection, request: Command) -> None:
        if self._request_count < MAX_REQUESTS and self.is_open:
            self._request_count += 1
            self.spawn(self._answer_request, connection, request)
        elif not request.is_oneway:
            busy = request.reply(ResponseCode.SYSTEM_BUSY, "this client is busy")
            connection.respond(busy)

    async def _answer_request(self, connection: Connection, request: Command) -> None:
        try:
            answer = None
            for member in list(self.members):
                answer = await member.on_request(connection, request)
                if answer is not None:
                    break
            else:
                answer = request.reply(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f"request type {request.code} is not for this client",
                )
        except RmqError as error:
            logger.warning("request %d failed: %s", request.code, Foreign(error))
            answer = request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        finally:
            self._request_count -= 1
        if not request.is_oneway:
            connection.respond(answer)


def _parse_name_servers(given: str | Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        given = os.environ.get(NAMESRV_ADDR, "")
        if not given:
            raise ConfigError(
                f"name_servers: give an address, or set the variable {NAMESRV_ADDR}"
            )
    if isinstance(given, str):
        given = given.replace(",", ";").split(";")
    found = tuple(each.strip() for each in given if each.strip())
    for each in found:
        try:
            check_source(each)
        except ConfigError as error:
            raise ConfigError(f"name_servers: {error}") from error
    if not found:
        raise ConfigError("name_servers: the list is empty")
    return found


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _close_in_child() -> None:
    """In a child process, close the clients of the parent without the event loop, which
    shares the parent's epoll.
    """
    for client in list(_clients):
        client.is_open = False


os.register_at_fork(after_in_child=_close_in_child)
