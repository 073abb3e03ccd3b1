"""assemble: put the parts of a broker together on an open store.

A broker comes through here when it starts, and so do the tests of plugins.
"""

from collections.abc import Mapping

from rmq.broker.arrivals import Arrivals
from rmq.broker.audit import AuditTable
from rmq.broker.clients import ConsumerTable, ProducerTable
from rmq.broker.config import BrokerConfig
from rmq.broker.context import BrokerContext
from rmq.broker.nameservers import NameServers
from rmq.broker.put import PutPipeline
from rmq.broker.queue_locks import QueueLocks
from rmq.broker.register import Registrations
from rmq.broker.statistics import BrokerStatistics
from rmq.broker.tables.filters import FilterTable
from rmq.broker.tables.groups import GroupTable
from rmq.broker.tables.offsets import OffsetTable
from rmq.broker.tables.topics import TopicTable
from rmq.clock import Clock
from rmq.plugins import PluginSet
from rmq.remoting.client import RemotingClient
from rmq.remoting.server import RemotingServer
from rmq.store.message_store import MessageStore
from rmq.store.service import StoreService

HA_PORT_DISTANCE = 1


def assemble(  # noqa: PLR0913 - what a broker gets from outside
    config: BrokerConfig,
    store: MessageStore,
    *,
    clock: Clock,
    client: RemotingClient,
    address: str,
    store_host: bytes,
    name_servers: tuple[str, ...] = (),
    credentials: tuple[str, str] | None = None,
    server: RemotingServer | None = None,
) -> BrokerContext:
    """Return the context of a broker that is reached at `address`, "host:port".

    It signs its requests to name servers with `credentials`, an access key and its
    secret.  Its tables are loaded; plugins are not set up yet.
    """
    folder = store.directory.config
    topics = TopicTable(folder, clock, config)
    groups = GroupTable(folder, clock, config)
    filters = FilterTable(folder, clock, config)
    offsets = OffsetTable(folder, clock, config.consumer_offset_update_version_step)
    audit = AuditTable(folder, clock)
    for table in (topics, groups, filters, offsets, audit):
        table.load()
    names = NameServers(config, topics, client, credentials)
    names.addresses = name_servers
    names.address = address
    host, _, port = address.rpartition(":")
    names.ha_address = f"{config.broker_ip2 or host}:{int(port) + HA_PORT_DISTANCE}"
    topics.on_change.append(names.topic_changed)
    context = BrokerContext(
        config=config,
        store_config=store.config,
        clock=clock,
        store=store,
        store_service=StoreService(store),
        put=PutPipeline(store),
        arrivals=Arrivals(store),
        topics=topics,
        offsets=offsets,
        groups=groups,
        audit=audit,
        filters=filters,
        producers=ProducerTable(),
        consumers=ConsumerTable(
            groups,
            notifies=config.notify_consumer_ids_changed_enable,
            on_gone=filters.unregister,
        ),
        queue_locks=QueueLocks(clock),
        name_servers=names,
        store_host=store_host,
        address=address,
        boot_ms=clock.now_ms(),
        statistics=BrokerStatistics(store, clock, config.broker_cluster_name),
    )
    if server is not None:
        _serve_through(server, context)
    return context


def _serve_through(server: RemotingServer, context: BrokerContext) -> None:
    """Let plugins reach what only the server knows."""
    context.native_counts = server.native_counts
    context.next_turn = server.next_turn
    context.poll_soon = server.poll_soon
    context.connection_of = server.connection_of


def set_up_plugins(
    context: BrokerContext, plugins: PluginSet, values: Mapping[str, str]
) -> Registrations:
    """Set up the plugins, and connect their registrations with the broker's parts.

    `values` are texts by configuration key.  The caller, who has a server and a
    nursery, connects handlers, guards, compiled handlers and services.
    """
    registered = context.registered = Registrations(values)
    registered.set_up(plugins, context)
    context.put.intercept(registered.interceptors)
    if registered.rights is not None:
        _, context.rights = registered.rights
    context.arrivals.listen(tuple(registered.listeners))
    if registered.holds:
        context.store.cleaner.needed_from = registered.needed_from
    return registered
