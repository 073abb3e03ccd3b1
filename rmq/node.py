"""A node: name server, broker or controller, started and stopped in order.

`cli` and `testing` both use this module, so that tests run what users run.
"""

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from rmq.access.config import AuthConfig
from rmq.broker.broker import Broker, open_broker
from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.config.option import MetricsExporter, build
from rmq.console.config import ConsoleConfig, ConsoleTls
from rmq.core.clock import Clock, SystemClock
from rmq.core.errors import BadValue
from rmq.core.garbage import exempt_start
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.namesrv.server import NameServer
from rmq.plugin.registry import PluginSet
from rmq.remoting.client import RemotingClient
from rmq.remoting.server import RemotingServer
from rmq.remoting.tls import TlsConfig, read_tls_config
from rmq.store.config import BrokerRole, StoreConfig

if TYPE_CHECKING:
    from rmq.cluster.membership import Membership
    from rmq.cluster.role import Term
    from rmq.console.server import ConsoleServer
    from rmq.controller.config import ControllerConfig
    from rmq.controller.server import Controller
    from rmq.http.server import HttpServer

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005
"""A worker thread that waits for the GIL gets it after this time (Python: 5 ms)."""

FORCED_EXIT_CODE = 1


class Node(msgspec.Struct):
    """The servers of this process."""

    server: RemotingServer
    name_server: NameServer | None
    broker: Broker | None
    name_servers: tuple[str, ...]
    finished: trio.Event = msgspec.field(default_factory=trio.Event)
    is_stopping: bool = False
    http_port: int = 0
    """Port of metrics and health; 0 if they are not served."""
    console_port: int = 0
    """Port of the console; 0 if it is not served."""
    controller: "Controller | None" = None

    @property
    def address(self) -> str:
        """The address advertised to clients."""
        assert self.broker is not None
        return self.broker.advertised.address

    def configs(self) -> tuple[object, ...]:
        """The live configurations: of name server, broker, store, plugins."""
        configs: tuple[object, ...] = ()
        if self.name_server is not None:
            configs += (self.name_server.config,)
        if self.broker is not None:
            configs += self.broker.context.configs()
        if self.controller is not None:
            configs += (self.controller.config,)
        return configs

    def config_changed(self, keys: Collection[str]) -> None:
        """Let all parts use the new values of these keys."""
        assert keys, "nothing has changed"
        if self.name_server is not None:
            self.name_server.config_changed()
        if self.broker is not None:
            self.broker.context.config_changed(keys)

    def stop(self) -> None:
        """Ask the broker for an orderly stop."""
        assert self.broker is not None
        self.is_stopping = True
        self.broker.stop()


async def run_broker(
    config: BrokerConfig,
    store_config: StoreConfig,
    *,
    plugins: PluginSet,
    values: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker, with a name server of its own if none is configured.

    In a group with a controller it begins again with each role that it gets.
    """
    _make_root(store_config)
    values = values or {}
    tls = read_tls_config(values)
    client = RemotingClient(tls=tls)
    clock = clock or SystemClock()
    membership = _membership(config, store_config, values, client, clock)
    make_server = partial(_server, config, tls, client)
    node = Node(make_server(), None, None, config.name_servers)
    run = partial(
        _run_once,
        node,
        plugins=plugins,
        values=values,
        clock=clock,
        client=client,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        try:
            if membership is None:
                await run(config, store_config, task_status=task_status)
            else:
                nursery.start_soon(membership.run)
                run = partial(run, membership=membership)
                own = configs_of(membership.enter_term(), config, store_config)
                await run(*own, task_status=task_status)
                while not node.is_stopping:
                    node.server = make_server()
                    await run(*configs_of(membership.enter_term(), *_live(node)))
        finally:
            node.finished.set()
        nursery.cancel_scope.cancel()


def configs_of(
    term: "Term", config: BrokerConfig, store: StoreConfig
) -> tuple[BrokerConfig, StoreConfig]:
    """Return the configurations of a broker in this term."""
    kind = BrokerRole.SYNC_MASTER if term.is_master else BrokerRole.SLAVE
    broker_id = 0 if term.is_master else max(term.own_id, 1)
    return (
        BrokerConfig(**config.__dict__ | {"broker_id": broker_id}),
        StoreConfig(**store.__dict__ | {"broker_role": kind}),
    )


def _live(node: Node) -> tuple[BrokerConfig, StoreConfig]:
    """Return the configurations of a broker with the changes of its last role."""
    assert node.broker is not None, "it has run"
    return node.broker.context.config, node.broker.context.store_config


def _membership(
    config: BrokerConfig,
    store_config: StoreConfig,
    values: Mapping[str, str],
    client: RemotingClient,
    clock: Clock,
) -> "Membership | None":
    """Return the place in a group with a controller; None in a group without one."""
    if not build(ReplicationConfig, values).is_controlled:
        return None
    # imported on use: most groups have no controller
    from rmq.cluster.membership import Membership

    return Membership.from_config(config, store_config, values, client, clock)


async def _run_once(  # noqa: PLR0913 - what a broker gets from outside
    node: Node,
    config: BrokerConfig,
    store_config: StoreConfig,
    *,
    plugins: PluginSet,
    values: Mapping[str, str],
    clock: Clock,
    client: RemotingClient,
    membership: "Membership | None" = None,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker in one role.

    Before the first of a controller no name server knows it.
    """
    async with (
        _open_http(config) as http,
        _open_console(values, read_tls_config(values)) as console,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(node.server.run)
        name_servers = config.name_servers
        if not name_servers and config.embedded_namesrv:
            name_server = node.name_server = NameServer(
                *_embedded(config, store_config, values),
                clock=clock,
                server=node.server,
                client=client,
                port_key="rmq.namesrv.listenPort",
            )
            await nursery.start(name_server.run)
            name_servers = (_reached(config.bind_address, name_server.port),)
            client.plain_addresses.update(name_servers)
        node.name_servers = name_servers
        has_role = membership is None or membership.running_term.epoch
        async with (
            open_broker(
                config,
                store_config,
                clock=clock,
                server=node.server,
                client=client,
                plugins=plugins,
                values=values,
                name_servers=name_servers if has_role else (),
                membership=membership,
            ) as broker,
            trio.open_nursery() as inner,
        ):
            is_again, node.broker = node.broker is not None, broker
            await inner.start(broker.run)
            if node.name_server is not None and broker.advertised.is_guess:
                node.name_server.mark_guessed(broker.advertised.address)
            _serve_pages(nursery, node, broker, http, console)
            if membership is not None:
                nursery.start_soon(_end_with_term, node, membership, broker)
            _settle(after_another=is_again)
            task_status.started(node)
        nursery.cancel_scope.cancel()


async def _end_with_term(node: Node, membership: "Membership", broker: Broker) -> None:
    """Stop a broker when it gets another role, or when the stop came before it."""
    if node.is_stopping:
        broker.stop()
    await membership.changed.wait()
    broker.stop(is_role_over=True)


def _make_root(config: StoreConfig) -> None:
    """Make the directory of all files; ConfigError names what is in its way."""
    try:
        config.root_path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        inside = next(each for each in config.root_path.parents if each.exists())
        file = config.root_path if config.root_path.exists() else inside
        raise BadValue(
            "storePathRootDir", config.root_path, f"{file} is a file, no directory"
        ) from error
    except OSError as error:
        raise BadValue("storePathRootDir", config.root_path, error.strerror) from error


def _server(
    config: BrokerConfig, tls: TlsConfig, client: RemotingClient
) -> RemotingServer:
    """Return the server of a broker; connections of its own client stay plain."""
    return RemotingServer(
        max_buffer_bytes=config.max_buffer_bytes,
        max_connections=config.max_connections,
        max_connections_per_address=config.max_connections_per_address,
        proxy_protocol_from=config.proxy_protocol_from,
        busy_poll_us=config.busy_poll_us,
        tls=tls,
        is_own=client.is_own,
    )


@asynccontextmanager
async def _open_http(
    config: "BrokerConfig | ControllerConfig",
) -> AsyncIterator["HttpServer | None"]:
    """Bind the port of the metrics, if they are enabled."""
    if config.metrics_exporter is not MetricsExporter.PROM:
        yield None
        return
    # imported on use: most brokers do without
    from rmq.http.server import HttpServer

    http = HttpServer(config.metrics_host or "127.0.0.1", config.metrics_port)
    await http.open()
    try:
        yield http
    finally:
        with trio.CancelScope(shield=True):  # else it would hide the node's error
            await http.close()


@asynccontextmanager
async def _open_console(
    values: Mapping[str, str], tls: TlsConfig
) -> AsyncIterator["ConsoleServer | None"]:
    """Bind the port of the console, if it is enabled."""
    config = build(ConsoleConfig, values)
    if not config.console:
        yield None
        return
    # imported on use: most brokers do without
    from rmq.console.server import ConsoleServer

    console = ConsoleServer(config, tls)
    await console.open()
    scheme = "https" if config.console_tls is ConsoleTls.on else "http"
    where = config.console_host, console.port
    logger.info("the console is on %s://%s:%d", scheme, *where)
    try:
        yield console
    finally:
        with trio.CancelScope(shield=True):  # else it would hide the broker's error
            await console.close()


def _serve_pages(
    nursery: trio.Nursery,
    node: Node,
    broker: Broker,
    http: "HttpServer | None",
    console: "ConsoleServer | None",
) -> None:
    """Serve metrics, health and the console, as far as they are enabled."""
    if http is not None:
        nursery.start_soon(_serve_http, node, broker, http)
        node.http_port = http.port
    if console is not None:
        nursery.start_soon(console.run, broker.context)
        node.console_port = console.port


async def _serve_http(node: Node, broker: Broker, http: "HttpServer") -> None:
    """Serve metrics and health until cancelled."""
    from rmq.observe.pages import pages

    logger.info("metrics are on http://%s:%d", broker.config.metrics_host, http.port)
    await http.run(pages(broker.context, node.server, lambda: node.is_stopping))


def _embedded(
    config: BrokerConfig, store_config: StoreConfig, values: Mapping[str, str]
) -> tuple[NamesrvConfig, NamesrvListenConfig, AuthConfig]:
    """Return the configurations of a broker's embedded name server."""
    values = embedded_values(values, store_config)
    listen = NamesrvListenConfig(
        listen_port=config.embedded_namesrv_port,
        bind_address=config.bind_address,
        idle_timeout_s=config.idle_timeout_s,
    )
    return build(NamesrvConfig, values), listen, build(AuthConfig, values)


def embedded_values(
    values: Mapping[str, str], store_config: StoreConfig
) -> dict[str, str]:
    """Return a broker's settings as its embedded name server uses them.

    It has its file beside the store's tables, and uses the broker's files of settings
    and of users.
    """
    folder = store_config.root_path / "config"
    return {
        "kvConfigPath": str(folder / "kvConfig.json"),
        "authConfigPath": str(folder / "auth"),
        "configStorePath": values.get("brokerConfigPath", ""),
        **values,
    }


async def run_name_server(
    config: NamesrvConfig,
    listen: NamesrvListenConfig,
    *,
    values: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a name server without a broker, until cancelled."""
    clock, values = clock or SystemClock(), values or {}
    async with _open_remoting(values) as (server, client):
        name_server = NameServer(
            config,
            listen,
            build(AuthConfig, values),
            clock=clock,
            server=server,
            client=client,
        )
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            await nursery.start(name_server.run)
            address = f"{listen.bind_address}:{name_server.port}"
            node = Node(server, name_server, None, (address,))
            if config.enable_controller:
                controlling = _controlling(node, values, clock, client)
                await stack.enter_async_context(controlling)
            _settle()
            task_status.started(node)
            await trio.sleep_forever()


async def run_controller(
    *,
    values: Mapping[str, str],
    clock: Clock | None = None,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a controller alone, until cancelled."""
    async with _open_remoting(values) as (server, client):
        node = Node(server, None, None, ())
        async with _controlling(node, values, clock or SystemClock(), client):
            _settle()
            task_status.started(node)
            await trio.sleep_forever()


@asynccontextmanager
async def _open_remoting(
    values: Mapping[str, str],
) -> AsyncIterator[tuple[RemotingServer, RemotingClient]]:
    """Run a server and a client of the remoting protocol."""
    tls = read_tls_config(values)
    client, server = RemotingClient(tls=tls), RemotingServer(tls=tls)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await nursery.start(client.run)
        yield server, client


@asynccontextmanager
async def _controlling(
    node: Node, values: Mapping[str, str], clock: Clock, client: RemotingClient
) -> AsyncIterator[None]:
    """Run the controller of a node, with its pages if they are enabled."""
    # imported on use: most nodes have no controller
    from rmq.controller.config import ControllerConfig
    from rmq.controller.server import Controller

    config, auth = build(ControllerConfig, values), build(AuthConfig, values)
    one = Controller(config, auth, clock=clock, server=node.server, client=client)
    node.controller = one
    async with _open_http(config) as http, trio.open_nursery() as nursery:
        await nursery.start(one.run)
        if http is not None:
            from rmq.controller.pages import controller_pages

            logger.info("metrics are on http://%s:%d", config.metrics_host, http.port)
            nursery.start_soon(http.run, controller_pages(one, node.server))
            node.http_port = http.port
        yield


async def until_signalled(
    node: Node,
    scope: trio.CancelScope,
    on_hangup: Callable[[], None],
    on_stop: Callable[[], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Stop in order at the first SIGTERM or SIGINT, at once at the second.

    SIGHUP calls `on_hangup`; `on_stop` is called when the stop begins.
    Report that the node is ready only after this has started: a supervisor may answer
    with a signal.
    """
    wanted = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    with trio.open_signal_receiver(*wanted) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP:
                on_hangup()
                continue
            logger.info("%s: stopping", signal.Signals(number).name)
            on_stop()
            if node.broker is None:
                scope.cancel()
            else:
                node.stop()
            break
        async for number in signals:
            if number == signal.SIGHUP:
                continue
            sys.stderr.write("stopped at once; the next start checks the log\n")
            sys.stderr.flush()
            os._exit(FORCED_EXIT_CODE)


def _settle(*, after_another: bool = False) -> None:
    """Set the process up for serving, after a start that may follow another one."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    exempt_start(after_another=after_another)


def _reached(bind_address: str, port: int) -> str:
    """Return where this process reaches a port of its own."""
    host = "127.0.0.1" if _is_any(bind_address) else bind_address
    return f"{host}:{port}"


def _is_any(address: str) -> bool:
    return address in ("0.0.0.0", "::", "")
