"""Brokers: runs a broker in each role that a controller assigns, with a name server
inside.

Known in Java as `BrokerStartup`.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import trio

from rmq.broker.broker import Broker, open_broker
from rmq.cluster.address_lookup import AddressLookup
from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.address import Address
from rmq.core.clock import Clock, SystemClock
from rmq.core.errors import BadValue
from rmq.namesrv.server import NameServer
from rmq.node.name_server import embedded_configs
from rmq.node.node import Node, prepare_process
from rmq.node.pages import open_console, open_http, serve_pages
from rmq.plugin.registry import PluginSet
from rmq.remoting.client import RemotingClient
from rmq.remoting.server import RemotingServer
from rmq.remoting.tls import TlsConfig, read_tls_config
from rmq.store.config import BrokerRole, StoreConfig

if TYPE_CHECKING:
    from rmq.cluster.controller_role import Term
    from rmq.cluster.membership import Membership


async def run_broker(
    config: BrokerConfig,
    store_config: StoreConfig,
    *,
    plugins: PluginSet,
    values: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker; without a configured name server, run one, too.

    In a group with a controller it begins again with each role that it gets.
    """
    _make_root(store_config)
    values = values or {}
    tls = read_tls_config(values)
    client = RemotingClient(tls=tls)
    clock = clock or SystemClock()
    membership = _group_membership(config, store_config, values, client, clock)
    make_server = partial(_make_server, config, tls, client)
    node = Node(make_server(), None, None, config.name_servers)
    run = partial(
        _run_once, node, plugins=plugins, values=values, clock=clock, client=client
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
                    await run(
                        *configs_of(membership.enter_term(), *_current_configs(node))
                    )
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


def _current_configs(node: Node) -> tuple[BrokerConfig, StoreConfig]:
    """Return the configurations of a broker with the changes of its last role."""
    assert node.broker is not None, "it has run"
    return node.broker.context.config, node.broker.context.store_config


def _group_membership(
    config: BrokerConfig,
    store_config: StoreConfig,
    values: Mapping[str, str],
    client: RemotingClient,
    clock: Clock,
) -> "Membership | None":
    """Return the membership in a group with a controller; None in a group without a
    controller.
    """
    if not build(ReplicationConfig, values).is_controlled:
        return None
    # imported on use: most groups have no controller
    from rmq.cluster.membership import Membership

    return Membership.from_config(config, store_config, values, client, clock)


async def _run_once(  # noqa: PLR0913  # tidy: long — a broker's parts from outside
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

    Before the first role from a controller no name server knows the broker.
    """
    async with (
        open_http(config) as http,
        open_console(values, read_tls_config(values)) as console,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(node.server.run)
        lookup = await _find_name_servers(config)
        name_servers = lookup.addresses
        if config.has_own_name_server:
            name_server = node.name_server = NameServer(
                *embedded_configs(config, store_config, values),
                clock=clock,
                server=node.server,
                client=client,
                port_key="rmq.namesrv.listenPort",
            )
            await nursery.start(name_server.run)
            name_servers = (_own_address(config.bind_address, name_server.port),)
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
                lookup=lookup if lookup.is_wanted and has_role else None,
                membership=membership,
            ) as broker,
            trio.open_nursery() as inner,
        ):
            is_again, node.broker = node.broker is not None, broker
            await inner.start(broker.run)
            if node.name_server is not None and broker.advertised.is_guess:
                node.name_server.mark_guessed(broker.advertised.address)
            serve_pages(nursery, node, broker, http, console, values)
            if membership is not None:
                nursery.start_soon(_end_with_term, node, membership, broker)
            prepare_process(after_another=is_again)
            task_status.started(node)
        nursery.cancel_scope.cancel()


async def _find_name_servers(config: BrokerConfig) -> AddressLookup:
    """Return the name servers; they are looked up if the configuration demands it."""
    period_s = config.lookup_period_ms / 1_000
    lookup = AddressLookup("name servers", config.name_server_sources, period_s)
    await lookup.update_at_start()
    return lookup


async def _end_with_term(node: Node, membership: "Membership", broker: Broker) -> None:
    """Stop a broker when it gets another role, or if the stop was requested before."""
    if node.is_stopping:
        broker.stop()
    await membership.changed.wait()
    broker.stop(is_role_over=True)


def _make_root(config: StoreConfig) -> None:
    """Make the directory of all files; ConfigError names the obstacle."""
    try:
        config.root_path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        inside = next(each for each in config.root_path.parents if each.exists())
        file = config.root_path if config.root_path.exists() else inside
        raise BadValue(
            "storePathRootDir", config.root_path, f"{file} is a file, not a directory"
        ) from error
    except OSError as error:
        raise BadValue("storePathRootDir", config.root_path, error.strerror) from error


def _make_server(
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


def _own_address(bind_address: str, port: int) -> str:
    """Return the address at which this process reaches its own port."""
    is_any = bind_address in ("0.0.0.0", "::", "")
    return Address("127.0.0.1" if is_any else bind_address, port).java_text
