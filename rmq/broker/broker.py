"""Broker: builds the parts, starts them in order, stops them in the opposite order.

Start: ports, data directory and store, tables, plugins; then background services,
services of plugins, connections, registration.  A step that fails ends the start: the
broker closes everything that it has opened, and the error gives the reason.
Stop: unregister, stop accepting, answer held pulls, finish handlers, send the rest of
the log to slaves. After that: stop services, save and flush, remove `abort`, unlock the
directory.
"""

# tidy: long — the order of a start, and of a stop

import logging
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from rmq._fastpath.reactor.grants import Grants
from rmq.access.config import AuthConfig
from rmq.access.signature import ACCESS_KEY
from rmq.broker import housekeeping
from rmq.broker.assemble import (
    GroupAccess,
    assemble,
    copy_last_offsets,
    raise_offsets,
    set_up_plugins,
)
from rmq.broker.audit import add_audit
from rmq.broker.context import BrokerContext
from rmq.broker.stop_limit import StopLimit
from rmq.broker.store_owner import record_owner
from rmq.cluster.address_lookup import AddressLookup
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.directory import Directory, signed_ask
from rmq.cluster.known_members import KnownMembers
from rmq.config.advertise import Advertised, choose_address
from rmq.config.broker import BrokerConfig
from rmq.config.json_table import JsonTable
from rmq.config.option import build
from rmq.core.address import FAST_PORT_DISTANCE, HA_PORT_DISTANCE, Address
from rmq.core.clock import Clock
from rmq.core.errors import PluginError, RequestRejected, StoreError
from rmq.observe.failures import ServiceFailures
from rmq.plugin.registrations import (
    PORTS,
    SAVE_INTERVAL_S,
    PluginService,
    Registrations,
)
from rmq.plugin.registry import PluginSet
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.hosts import host_bytes
from rmq.remoting.client import RemotingClient
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.imports import import_later
from rmq.remoting.inner_caller import InnerCaller
from rmq.remoting.listener import open_listener
from rmq.remoting.server import RemotingServer
from rmq.remoting.tls import TlsMode, read_tls_config
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from rmq.cluster.link_tls import LinkTls
    from rmq.cluster.membership import Membership

logger = logging.getLogger(__name__)

LISTENERS = (*PORTS, "grpc")
"""The listeners for clients; "grpc" exists only with `rmq.grpc.listenPort`."""

REPLICAS_WAIT_S = 3.0
"""Time that a stop waits until the slaves have the whole log."""

NAME_SERVERS_SHARE, REQUESTS_SHARE, REPLICAS_SHARE = 0.3, 0.7, 0.7
"""Maximum share of the remaining time that each step of a stop may use."""

INDEX_WAIT_S = 1.0
"""Time limit of a stop for indexing the log; the next start indexes the remaining
records.
"""

ROLE_OVER_WAIT_S = 0.2
"""Time limit of running requests when the role of the broker changes."""

RESOLVE_S = 60.0
"""Time limit of a start for the look-up of the advertised host."""

RESOLVE_PAUSE_S = 2.0
SERVICE_PAUSE_S = 1.0
"""Pause before the restart of a service that was registered with `restart`."""


class Ports(NamedTuple):
    """The bound ports, and the address advertised to clients."""

    main: int
    fast: int
    advertised: Advertised
    replicas: socket.socket

    @property
    def for_replicas(self) -> int:
        """The port from which slaves read the log."""
        return int(self.replicas.getsockname()[1])


@asynccontextmanager
async def open_broker(  # noqa: PLR0913 - a broker's parts from outside
    config: BrokerConfig,
    store_config: StoreConfig,
    *,
    clock: Clock,
    server: RemotingServer,
    client: RemotingClient,
    plugins: PluginSet,
    values: Mapping[str, str],
    name_servers: tuple[str, ...],
    lookup: AddressLookup | None = None,
    membership: "Membership | None" = None,
) -> "AsyncIterator[Broker]":
    """Bind the ports, open the store and set up the plugins; at the end, save all.

    The ports accept no client before `Broker.run`. `membership` has the role that a
    controller assigned.
    """
    tables = {name: HandlerTable() for name in PORTS}
    replication = build(ReplicationConfig, values)
    link_tls = _link_tls(replication, values)
    ports = await _bind(config, replication, server, tables)
    with ports.replicas:
        address = ports.advertised.address
        ask = signed_ask(client, build(AuthConfig, values).inner_credentials())
        directory = Directory(ask, name_servers, config, address, lookup)
        host, port = Address.parse(address)
        ha_address = Address(config.broker_ip2 or host, ports.for_replicas)
        group = GroupAccess(
            replication,
            directory,
            store_host=host_bytes(await _resolve_host(host), port),
            ha_address=ha_address.java_text,
            link_tls=link_tls,
            membership=membership,
        )
        recovers = replication.recovers_from_slaves(store_config)
        if membership is not None:
            recovers = membership.is_master_again
        is_copy = bool(name_servers) and recovers
        store = await _open_store(
            config, store_config, group, ports.replicas, clock=clock, is_copy=is_copy
        )
        saved: list[JsonTable] = []
        limit = StopLimit()
        try:
            if is_copy:
                await _recover_records(group, store)
            context = assemble(config, store, group, clock=clock, server=server)
            saved += context.topics, context.groups, context.filters, context.offsets
            saved += context.audit, context.local_commits, context.queue_mappings
            if context.role.is_master:
                await _fetch_offsets(context, membership)
                context.local_commits.remove_all()
            registered = set_up_plugins(context, plugins, values)
            saved += (table for table, _ in registered.tables)
            await _fetch_from_acting_master(context, registered.taken_back)
            yield Broker(context, server, ports, tables, limit)
        finally:
            await _save_and_close(store, saved, limit)


async def _recover_records(group: GroupAccess, store: MessageStore) -> None:
    """Copy lost records back from slaves, and open the store of a master."""
    # imported on use: a master without slaves has no log to recover
    from rmq.cluster.healing import GroupPeers
    from rmq.cluster.member_recovery import MemberRecovery
    from rmq.cluster.recovery import ReplicaRecovery

    directory, membership = group.directory, group.membership
    if membership is None:
        recovery = ReplicaRecovery(group.config, directory, group.link_tls)
        await recovery.run(store)
        return
    known = KnownMembers(store.directory.root, store.clock)
    await MemberRecovery(
        group.config,
        GroupPeers(directory, known),
        membership.find_set_addresses,
        directory.send_request,
        membership.place,
        membership.running_term.epoch,
        group.link_tls,
        hold_back=membership.hold_back,
    ).run(store)


async def _open_store(
    config: BrokerConfig,
    store_config: StoreConfig,
    group: GroupAccess,
    listener: socket.socket,
    *,
    clock: Clock,
    is_copy: bool,
) -> MessageStore:
    """Recover and open the store; other brokers of the group replace damaged bytes."""
    open_store = partial(
        MessageStore.open,
        store_config,
        clock=clock,
        store_host=group.store_host,
        is_copy=is_copy,
    )
    known = KnownMembers(store_config.root_path, clock)
    if group.config.heals_log(known.addresses):
        # imported on use: most brokers are in no group
        from rmq.cluster.healing import GroupPeers, LogHealer

        own = group.directory
        servers = config.name_servers or own.name_servers
        asked = Directory(
            own.send_request, servers, config, own.own_address, own.lookup
        )
        healer = LogHealer(
            group.config,
            store_config,
            GroupPeers(asked, known),
            listener,
            place=None if group.membership is None else group.membership.place,
            tls=group.link_tls,
        )
        store = await healer.open(open_store)
    else:
        store = open_store()
    for line in store.recovery.lines():
        logger.warning("%s", line)
    record_owner(store.directory.config, config)
    return store


async def _save_and_close(
    store: MessageStore, saved: Sequence[JsonTable], limit: StopLimit
) -> None:
    """Save the tables and close the store, also if the broker was cancelled."""
    with trio.CancelScope(shield=True):
        limit.wait_for("its tables")
        await housekeeping.save_now(saved)
    limit.wait_for("log, queues and index")
    try:
        store.close(index_limit_s=min(limit.left_s(), INDEX_WAIT_S))
    except OSError as error:
        logger.error("closing the store failed: %s", error)
    limit.end()


def _link_tls(config: ReplicationConfig, values: Mapping[str, str]) -> "LinkTls | None":
    if config.ha_tls is TlsMode.disabled:
        return None
    # imported on use: most groups are inside one network
    from rmq.cluster.link_tls import LinkTls

    return LinkTls(config.ha_tls, read_tls_config(values))


async def _fetch_offsets(
    context: BrokerContext, membership: "Membership | None"
) -> None:
    """Fetch the offsets that consumers committed last: at the previous master, or at
    slaves that acted as the master.
    """
    if membership is None:
        table = (
            int(RequestCode.GET_ALL_CONSUMER_OFFSET),
            partial(raise_offsets, context),
        )
        await _fetch_from_acting_master(context, [table])
    elif membership.master_before:
        # imported on use: most groups have no controller
        from rmq.cluster.last_offsets import fetch_last_offsets

        ask = context.name_servers.send_request
        apply = partial(copy_last_offsets, context)
        await fetch_last_offsets(ask, membership.master_before, apply)


async def _fetch_from_acting_master(
    context: BrokerContext,
    tables: Collection[tuple[int, Callable[[bytes], object]]],
) -> None:
    """Fetch tables that the slaves changed while this master was away."""
    role, directory = context.role, context.name_servers.directory
    is_skipped = context.replication.config.skips_pre_online
    if not (role.is_master and role.may_act) or is_skipped:
        return
    if directory.name_servers:
        # imported on use: most groups have no acting masters
        from rmq.cluster.acting_master import fetch_offsets

        await fetch_offsets(directory, tables)


async def _bind(
    config: BrokerConfig,
    replication: ReplicationConfig,
    server: RemotingServer,
    tables: Mapping[str, HandlerTable],
) -> Ports:
    """Bind the ports for clients and for slaves."""
    bind = partial(server.bind, idle_timeout_s=config.idle_timeout_s)
    host = config.bind_address
    main = await bind("main", host, config.listen_port, tables["main"])
    fast_wanted = main - FAST_PORT_DISTANCE if config.listen_port else 0
    fast = await bind("fast", host, fast_wanted, tables["fast"])
    assert main != fast, main
    if config.grpc_listen_port:
        wanted, key = config.grpc_listen_port, "rmq.grpc.listenPort"
        await bind("grpc", host, wanted, tables["main"], key=key)
    ha_wanted = replication.ha_listen_port
    if not ha_wanted and config.listen_port:
        ha_wanted = main + HA_PORT_DISTANCE
    replicas = await open_listener(host, ha_wanted, "haListenPort")
    return Ports(main, fast, choose_address(config, main), replicas)


class Broker:
    """A broker whose parts are complete. Known in Java as `BrokerController`."""

    def __init__(
        self,
        context: BrokerContext,
        server: RemotingServer,
        ports: Ports,
        tables: Mapping[str, HandlerTable],
        limit: StopLimit,
    ) -> None:
        self.context = context
        self._limit = limit
        self.config = context.config
        self.port = ports.main
        self.fast_port = ports.fast
        self.ha_port = ports.for_replicas
        self.advertised = ports.advertised
        self.is_guarded = bool(context.registered.guards)
        replication = context.replication.config
        self.is_log_plain = replication.ha_tls is not TlsMode.enforcing
        self._server = server
        self._replicas = ports.replicas
        self._stop_wanted = trio.Event()
        self._is_role_over = False
        self._serve_plugins(context.registered, tables)

    def _serve_plugins(
        self, registered: Registrations, tables: Mapping[str, HandlerTable]
    ) -> None:
        """Serve the handlers of the plugins."""
        for claim in registered.claims.values():
            tables[claim.port].register(
                claim.code,
                add_audit(self.context, claim.code, registered.served_by(claim)),
                max_running=claim.max_running,
                max_waiting=claim.max_waiting,
                owner=claim.plugin,
            )
        for table in tables.values():
            table.guards.extend(registered.guards)
            if registered.guards:
                table.inner_guards.append(self._authorize_inner)
            if not self.context.role.is_master:
                table.guards.append(self.context.role.check_request)
                table.inner_guards.append(self.context.role.check_request)
        if registered.grpc is not None:
            _, make_service, load_libraries = registered.grpc
            self._server.serve_grpc(
                make_service, "main", "grpc", load_libraries=load_libraries
            )
        if self.config.native_handlers and self._let_compiled_serve(registered.grants):
            for port, code, handler in registered.made_natives():
                self._server.register_native(port, code, handler)
                if port == "main":
                    self._server.register_native("grpc", code, handler)

    def _authorize_inner(self, request: Command, caller: Connection) -> None:
        """Check the rights of the user of a client with another protocol."""
        assert isinstance(caller, InnerCaller), caller
        if not caller.user:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, "the call has no valid signature"
            )
        request.ext_fields[ACCESS_KEY] = caller.user
        self.context.rights.authorize(caller.user, request, caller)

    def _let_compiled_serve(self, grants: Sequence[Grants | None]) -> bool:
        """Return whether there is no guard, or all guards allow compiled handlers."""
        if not grants:
            return True
        if len(grants) > 1 or grants[0] is None:
            return False
        self._server.require(grants[0])
        return True

    def stop(self, *, is_role_over: bool = False) -> None:
        """Request a clean shutdown; `run` returns when it is complete.

        With `is_role_over` the broker starts again at once in another role: it stays
        registered, and waits for no slave.
        """
        self._is_role_over |= is_role_over
        self._stop_wanted.set()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until `stop`, or until a service fails."""
        context, server = self.context, self._server
        context.replication.log_warnings()
        durability, positions = context.store.durability, context.store.positions
        context.store.digests.load()
        server.attach_watermark(
            positions.acknowledged,
            durability.ack_timeout_ms,
            positions.replicated,
            context.store.claim,
        )
        writer = context.store.log.writer
        if writer is not None:
            writer.wake_when_written(server.wake_descriptor)
        log_server = context.replication.log_server
        if context.replication.term_state is not None:
            server.leave_to_replicas(True, 0.0)
        context.arrivals.expect_stored()
        server.after_poll += context.arrivals.flush, log_server.push
        try:
            async with trio.open_nursery() as nursery:
                await self._start_services(nursery)
                nursery.start_soon(context.replication.run, self._replicas)
                for name in LISTENERS:
                    server.start_accepting(name, self._on_close)
                await nursery.start(context.name_servers.run)
                task_status.started()
                if self.config.enable_property_filter:
                    nursery.start_soon(import_later, "rmq.filters.parser")
                await self._stop_wanted.wait()
                await self._wind_down()
                self._limit.wait_for("background work")
                context.replication.keep_set()
                nursery.cancel_scope.cancel()
        finally:
            server.after_poll.remove(context.arrivals.flush)
            server.after_poll.remove(log_server.push)
            if writer is not None:
                writer.wake_when_written(-1)
            server.detach_watermark()

    async def _start_services(self, nursery: trio.Nursery) -> None:
        context, config = self.context, self.config
        await nursery.start(context.store_service.run)
        nursery.start_soon(
            housekeeping.evict_idle_clients,
            context.producers,
            context.consumers,
            context.clock,
            context.clock_steps,
            config.channel_expired_timeout_ms,
            context.next_turn,
        )
        nursery.start_soon(housekeeping.watch_clock, context.clock_steps)
        nursery.start_soon(context.consumers.notices.run, context.next_turn)
        for table, interval_s in (
            (context.topics, SAVE_INTERVAL_S),
            (context.groups, SAVE_INTERVAL_S),
            (context.audit, SAVE_INTERVAL_S),
            (context.queue_mappings, SAVE_INTERVAL_S),
            (context.filters, SAVE_INTERVAL_S),
            (context.offsets, config.flush_consumer_offset_interval_ms / 1000),
            (context.local_commits, config.flush_consumer_offset_interval_ms / 1000),
            *context.registered.tables,
        ):
            nursery.start_soon(housekeeping.save_changes, table, interval_s)
        for service in context.registered.services:
            if service.masters_only and not context.role.is_master:
                continue
            await nursery.start(_run_service, service, context.monitor.failures)

    def _on_close(self, connection: Connection) -> None:
        """Remove a connection from every table that contains it."""
        context = self.context
        context.producers.on_close(connection)
        context.consumers.on_close(connection)
        for listener in context.registered.on_close:
            listener(connection)

    # -- stop

    async def _wind_down(self) -> None:
        """Unregister from the name servers, then wait for running requests."""
        assert self._stop_wanted.is_set(), "call `stop` first"
        limit, server = self._limit, self._server
        if self._is_role_over:
            limit.begin(ROLE_OVER_WAIT_S, writes_lines=False)
        else:
            limit.begin(self.config.stop_timeout_s, writes_lines=True)
            limit.wait_for("the name servers")
            with trio.move_on_after(limit.left_s(NAME_SERVERS_SHARE)):
                await self.context.name_servers.unregister_all()
        for name in LISTENERS:
            server.stop_accepting(name)
        for callback in self.context.registered.on_stop:
            callback()
        limit.wait_for(lambda: f"running requests ({server.running_requests})")
        if not await server.drain(limit.left_s(REQUESTS_SHARE)):
            logger.warning("some requests did not finish in time")
        if self._is_role_over:
            return
        limit.wait_for("slaves, which copy the rest of the log")
        wait_s = min(REPLICAS_WAIT_S, limit.left_s(REPLICAS_SHARE))
        await self.context.replication.log_server.wait_replicated(wait_s)


async def _run_service(
    service: PluginService,
    failures: ServiceFailures,
    *,
    task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a plugin's service; an error ends the broker unless `restart` is set."""
    task_status.started()
    while True:
        try:
            await service.run()
        except Exception as error:  # supervises the services
            failure = PluginError(
                service.plugin, f"the service {service.run!r} failed: {error!r}"
            )
            logger.exception("%s", failure)
            if not service.restart:
                raise failure from error
            failures.add_stop(service.plugin, error)
        else:
            return
        await trio.sleep(SERVICE_PAUSE_S)


async def _resolve_host(host: str) -> str:
    """Return an IP address of a host name, because records contain addresses.

    The name of a new pod is in the DNS some seconds after the pod has started.
    """
    deadline = trio.current_time() + RESOLVE_S
    while True:
        try:
            found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return str(found[0][4][0])
        except OSError as error:
            if trio.current_time() >= deadline:
                raise StoreError(
                    f"the advertised host {host} has no address: {error.strerror}"
                ) from error
            left_s = deadline - trio.current_time()
            logger.warning(
                "the advertised host %s has no address yet (%s); the start waits for "
                "it, at most %d s", host, error.strerror, left_s,
            )  # fmt: skip
        await trio.sleep(RESOLVE_PAUSE_S)
