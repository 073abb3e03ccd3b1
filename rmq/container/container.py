"""Container: its brokers, their start and stop, and the rights to change them.

Known in Java as `BrokerContainer`, its handlers as `BrokerContainerProcessor`.
Requests: 902 ADD_BROKER and 903 REMOVE_BROKER, with Java's remarks; request 26 shows
the container's keys.  The addition or removal of a broker is valid until the next
start. Stop: slaves first, then masters, each group together, then the name server.
"""

import logging
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import trio

from rmq.access.config import AuthConfig
from rmq.access.networks import LOOPBACK, are_within, parse_networks
from rmq.config.broker import BrokerConfig
from rmq.config.changes import as_properties
from rmq.config.option import MetricsExporter, build, read_properties
from rmq.container.child import BrokerIdentity, Child
from rmq.container.config import ContainerConfig
from rmq.container.pages import container_pages
from rmq.core.address import FAST_PORT_DISTANCE
from rmq.core.clock import SystemClock
from rmq.core.errors import ConfigError, RequestRejected
from rmq.core.logs import Foreign
from rmq.core.threads import in_thread
from rmq.http.server import HttpServer
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.namesrv.server import NameServer
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.cluster import (
    AddBrokerRequestHeader,
    RemoveBrokerRequestHeader,
)
from rmq.remoting.client import RemotingClient
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.server import RemotingServer
from rmq.remoting.tls import read_tls_config
from rmq.store.config import BrokerRole, StoreConfig

logger = logging.getLogger(__name__)

MAX_BROKERS = 64
"""Maximum number of brokers of a container; each is a process with tens of megabytes.
"""

START_LIMIT_S = 15.0
"""Time that ADD_BROKER waits until a broker is ready; mqadmin waits no longer."""

FIRST_START_LIMIT_S = 60.0
"""Time that the start of a container waits for its brokers."""

WriteLine = Callable[[str, str], None]


class BrokerStart(NamedTuple):
    """A broker to start: its identity, and the arguments of `rmq broker`."""

    identity: BrokerIdentity
    arguments: Sequence[str]
    is_slave: bool = False
    has_name_servers: bool = False

    @classmethod
    def of_values(
        cls, values: Mapping[str, str], arguments: Sequence[str]
    ) -> "BrokerStart":
        """Read the identity from settings; ConfigError if they are not valid."""
        config, store = build(BrokerConfig, values), build(StoreConfig, values)
        identity = BrokerIdentity(
            config.broker_cluster_name, config.broker_name, config.broker_id
        )
        return cls(
            identity,
            arguments,
            store.broker_role is BrokerRole.SLAVE,
            bool(config.name_server_sources),
        )

    @classmethod
    def of_file(cls, path: str) -> "BrokerStart":
        """Read a broker's file; ConfigError if it is not valid."""
        return cls.of_values(read_properties(path), ["-c", path])


class Container:
    """The brokers of one machine."""

    def __init__(
        self,
        config: ContainerConfig,
        values: Mapping[str, str],
        *,
        arguments: Sequence[str],
        write_line: WriteLine,
    ) -> None:
        """`arguments` are for every broker, after its own."""
        self.config = config
        self.children: dict[BrokerIdentity, Child] = {}
        self.name_servers = config.namesrv_addr
        self.port = self.http_port = 0
        self.is_stopping = False
        self._values = values
        self._arguments = arguments
        self._write_line = write_line
        self._admins = LOOPBACK + parse_networks(
            "rmq.container.adminFrom", config.admin_from
        )
        self.finished = trio.Event()
        self._starting = trio.CancelScope()
        self._stop = trio.Event()
        self._nursery: trio.Nursery | None = None

    def stop(self) -> None:
        """Request a clean shutdown."""
        self.is_stopping = True
        self._starting.cancel()
        self._stop.set()

    def reload(self) -> None:
        """Let every broker read its configuration again."""
        for child in self.children.values():
            child.send(signal.SIGHUP)

    async def run(
        self,
        brokers: Iterable[BrokerStart],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run all brokers until `stop`."""
        tls = read_tls_config(self._values)
        server, client = RemotingServer(tls=tls), RemotingClient(tls=tls)
        async with trio.open_nursery() as servers:
            await servers.start(server.run)
            await servers.start(client.run)
            if not self.name_servers:
                await self._start_name_server(servers, server, client)
            await self._listen(server)
            if self.config.metrics_exporter is MetricsExporter.PROM:
                await self._start_http(servers)
            try:
                async with trio.open_nursery() as self._nursery:
                    for wanted in brokers:
                        self._add(wanted)
                    self._starting.deadline = trio.current_time() + FIRST_START_LIMIT_S
                    with self._starting:
                        for child in list(self.children.values()):
                            await child.settled.wait()
                    task_status.started()
                    await self._stop.wait()
                    await self._stop_all()
            finally:
                self.finished.set()
            servers.cancel_scope.cancel()

    async def _start_name_server(
        self, nursery: trio.Nursery, server: RemotingServer, client: RemotingClient
    ) -> None:
        host = self.config.bind_address
        name_server = NameServer(
            build(NamesrvConfig, self._values),
            NamesrvListenConfig(
                listen_port=self.config.embedded_namesrv_port, bind_address=host
            ),
            build(AuthConfig, self._values),
            clock=SystemClock(),
            server=server,
            client=client,
            port_key="rmq.namesrv.listenPort",
        )
        await nursery.start(name_server.run)
        reached = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
        self.name_servers = f"{reached}:{name_server.port}"

    async def _listen(self, server: RemotingServer) -> None:
        table = HandlerTable()
        table.guards.append(self._check_admin)
        table.register(RequestCode.ADD_BROKER, self._add_broker)
        table.register(RequestCode.REMOVE_BROKER, self._remove_broker)
        table.register(RequestCode.GET_BROKER_CONFIG, self._get_config)
        host, wanted = self.config.bind_address, self.config.listen_port
        self.port = await server.bind("container", host, wanted, table)
        server.start_accepting("container")
        if wanted > FAST_PORT_DISTANCE:
            await server.bind(
                "container-fast", host, wanted - FAST_PORT_DISTANCE, table
            )
            server.start_accepting("container-fast")

    async def _start_http(self, nursery: trio.Nursery) -> None:
        http = HttpServer(self.config.metrics_host, self.config.metrics_port)
        await http.open()
        self.http_port = http.port
        nursery.start_soon(
            http.run, container_pages(self.children, lambda: self.is_stopping)
        )

    # -- brokers

    def _add(self, wanted: BrokerStart) -> Child:
        """Start a broker; ConfigError if there is one of its name already."""
        if wanted.identity in self.children:
            raise ConfigError(
                f"{wanted.identity} has already been added to current broker container"
            )
        if len(self.children) >= MAX_BROKERS:
            raise ConfigError(f"a container has at most {MAX_BROKERS} brokers")
        assert self._nursery is not None
        arguments = [*wanted.arguments, *self._arguments]
        if not wanted.has_name_servers:
            arguments += ["--namesrv", self.name_servers]
        if self.config.metrics_exporter is MetricsExporter.PROM:
            for key, value in (
                ("metricsExporterType", "PROM"),
                ("metricsPromExporterHost", "127.0.0.1"),
                ("metricsPromExporterPort", "0"),
            ):
                arguments += ["--set", f"{key}={value}"]
        child = Child(
            wanted.identity, arguments, self._write_line, is_slave=wanted.is_slave
        )
        self.children[wanted.identity] = child
        self._nursery.start_soon(child.run)
        return child

    async def _remove(self, child: Child) -> None:
        await child.stop(self.config.stop_timeout_s)
        self.children.pop(child.identity, None)

    async def _stop_all(self) -> None:
        """Stop slaves, then masters."""
        for is_slave in (True, False):
            async with trio.open_nursery() as nursery:
                for child in list(self.children.values()):
                    if child.is_slave is is_slave:
                        nursery.start_soon(self._remove, child)

    # -- requests

    def _check_admin(self, request: Command, connection: Connection) -> None:
        hosts = connection.source_host, connection.peer_host
        for host in hosts:
            if not are_within([host], self._admins):
                raise RequestRejected(
                    ResponseCode.NO_PERMISSION,
                    f"the container accepts request {request.code} from its own host "
                    f"only, not from {host}: add this address to "
                    "rmq.container.adminFrom",
                )

    async def _add_broker(self, request: Command, connection: Connection) -> Command:
        """902: start the broker of a file, and wait until it serves."""
        path = request.header(AddBrokerRequestHeader).config_path
        logger.info("%s adds broker %s", connection.remote_address, Foreign(path or ""))
        if not path:
            raise _system_error("addBroker config path is empty")
        if self.is_stopping:
            raise _system_error("the container stops")
        try:
            child = self._add(await in_thread(BrokerStart.of_file, path))
        except ConfigError as error:
            raise _system_error(str(error)) from error
        with trio.move_on_after(START_LIMIT_S):
            await child.settled.wait()
        if not child.address:
            reason = (
                child.last_line
                or f"the broker is not ready after {START_LIMIT_S:.0f} s"
            )
            await self._remove(child)
            raise _system_error(f"start broker failed: {reason}")
        return request.reply()

    async def _remove_broker(self, request: Command, connection: Connection) -> Command:
        """903: stop a broker cleanly, and remove it."""
        header = request.header(RemoveBrokerRequestHeader)
        identity = BrokerIdentity(
            header.broker_cluster_name, header.broker_name, header.broker_id
        )
        logger.info(
            "%s removes broker %s", connection.remote_address, Foreign(identity)
        )
        child = self.children.get(identity)
        if child is None:
            raise RequestRejected(ResponseCode.BROKER_NOT_EXIST, "Broker not exist")
        await self._remove(child)
        return request.reply()

    def _get_config(self, request: Command, _: Connection) -> Command:
        """26: the keys of the container."""
        return request.reply(body=as_properties([self.config]))


def _system_error(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
