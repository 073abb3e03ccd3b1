"""Broker: builds the parts, starts them in order, stops them in the opposite order.

Start: data directory and store, tables, handlers, background services, listeners,
plugin services, registration.  A step that fails ends the start: what was opened is
closed, and the error says why.
Stop: unregister, stop accepting, answer held pulls, finish handlers, stop services,
flush and save, remove `abort`, give the directory back.
"""

import logging
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

import trio

from rmq.access.config import AuthConfig
from rmq.broker import housekeeping
from rmq.broker.advertise import Advertised, choose_address
from rmq.broker.assemble import assemble, set_up_plugins
from rmq.broker.config import BrokerConfig
from rmq.broker.context import BrokerContext
from rmq.broker.register import PluginService
from rmq.clock import Clock
from rmq.config import build
from rmq.errors import PluginError, StoreError
from rmq.plugins import PluginSet
from rmq.protocol.hosts import host_bytes
from rmq.remoting.client import RemotingClient
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.server import RemotingServer
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

FAST_PORT_DISTANCE = 2
SERVICE_PAUSE_S = 1.0
"""Pause before a service that wants it is started again."""


class Broker:
    """Known in Java as `BrokerController`."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        clock: Clock,
        server: RemotingServer,
        client: RemotingClient,
        plugins: PluginSet,
        values: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.store_config = store_config
        self.port = 0
        self.fast_port = 0
        self.advertised = Advertised("", "", False)
        self.is_guarded = False
        self._clock = clock
        self._server = server
        self._client = client
        self._plugins = plugins
        self._values = values or {}
        self._stop_wanted = trio.Event()
        self.context: BrokerContext

    def stop(self) -> None:
        """Ask for an orderly stop; `run` returns when it is done."""
        self._stop_wanted.set()

    async def run(
        self,
        name_servers: tuple[str, ...],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `stop`, or until a service fails."""
        tables = {"main": HandlerTable(), "fast": HandlerTable()}
        await self._bind(tables)
        store = self._open_store()
        try:
            context = self.context = assemble(
                self.config,
                store,
                clock=self._clock,
                client=self._client,
                address=self.advertised.address,
                store_host=self._store_host,
                name_servers=name_servers,
                credentials=build(AuthConfig, self._values).inner_credentials(),
                native_counts=self._server.native_counts,
                next_turn=self._server.next_turn,
            )
            self._set_up_plugins(context, tables)
            self._server.attach_watermark(
                store.durability.durable, self.store_config.sync_flush_timeout_ms
            )
            self._server.after_poll.append(context.arrivals.flush)
            async with trio.open_nursery() as nursery:
                await self._start_services(nursery)
                for name in tables:
                    self._server.start_accepting(name)
                await nursery.start(context.name_servers.run)
                task_status.started()
                await self._stop_wanted.wait()
                await self._wind_down()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._close(store)

    # -- start

    async def _bind(self, tables: dict[str, HandlerTable]) -> None:
        """Take both ports; nobody is served before everything else runs."""
        config = self.config
        bind = partial(
            self._server.bind,
            idle_timeout_s=config.idle_timeout_s,
            on_close=self._on_close,
        )
        host = config.bind_address
        self.port = await bind("main", host, config.listen_port, tables["main"])
        fast = self.port - FAST_PORT_DISTANCE if config.listen_port else 0
        self.fast_port = await bind("fast", host, fast, tables["fast"])
        assert self.port != self.fast_port, self.port
        self.advertised = choose_address(config, self.port)

    def _open_store(self) -> MessageStore:
        host, _, port = self.advertised.address.rpartition(":")
        self._store_host = host_bytes(_numeric(host), int(port))
        store = MessageStore.open(
            self.store_config, clock=self._clock, store_host=self._store_host
        )
        for line in store.recovery.lines():
            logger.warning("%s", line)
        return store

    def _set_up_plugins(
        self, context: BrokerContext, tables: dict[str, HandlerTable]
    ) -> None:
        """Set the plugins up, and serve what they registered."""
        registered = set_up_plugins(context, self._plugins, self._values)
        for claim in registered.claims.values():
            tables[claim.port].register(
                claim.code,
                claim.handler,
                max_running=claim.max_running,
                max_waiting=claim.max_waiting,
                owner=claim.plugin,
            )
        self.is_guarded = bool(registered.guards)
        if self.config.native_handlers and not self.is_guarded:
            for port, code, handler in registered.made_natives():
                self._server.register_native(port, code, handler)
        for table in tables.values():
            table.guards.extend(registered.guards)

    async def _start_services(self, nursery: trio.Nursery) -> None:
        context, config = self.context, self.config
        await nursery.start(context.store_service.run)
        if context.store.durability.confirm not in (
            None,
            context.store.durability.durable,
        ):
            nursery.start_soon(context.arrivals.follow_visible)
        nursery.start_soon(
            housekeeping.evict_idle_clients,
            context.producers,
            context.consumers,
            self._clock,
            config.channel_expired_timeout_ms,
        )
        nursery.start_soon(context.consumers.notices.run, context.next_turn)
        for table, interval_s in (
            (context.topics, housekeeping.SAVE_INTERVAL_S),
            (context.groups, housekeeping.SAVE_INTERVAL_S),
            (context.filters, housekeeping.SAVE_INTERVAL_S),
            (context.offsets, config.flush_consumer_offset_interval_ms / 1000),
            *context.registered.tables,
        ):
            nursery.start_soon(housekeeping.save_changes, table, interval_s)
        for service in context.registered.services:
            await nursery.start(_supervise, service)

    def _on_close(self, connection: Connection) -> None:
        """Forget a connection in every table that knows it."""
        context = getattr(self, "context", None)
        if context is None:
            return
        context.producers.on_close(connection)
        context.consumers.on_close(connection)
        for listener in context.registered.on_close:
            listener(connection)

    # -- stop

    async def _wind_down(self) -> None:
        """Leave the routes, then let everybody finish."""
        assert self._stop_wanted.is_set(), "nobody asked for a stop"
        await self.context.name_servers.unregister_all()
        for name in ("main", "fast"):
            self._server.stop_accepting(name)
        for callback in self.context.registered.on_stop:
            callback()
        if not await self._server.drain(self.config.stop_timeout_s):
            logger.warning("some requests did not finish in time")

    async def _close(self, store: MessageStore) -> None:
        """Save and close; `abort` stays if the stop was not orderly."""
        self._server.detach_watermark()
        context = getattr(self, "context", None)
        if context is not None:
            if context.arrivals.flush in self._server.after_poll:
                self._server.after_poll.remove(context.arrivals.flush)
            tables = (
                context.topics,
                context.groups,
                context.filters,
                context.offsets,
                *(table for table, _ in context.registered.tables),
            )
            await housekeeping.save_now(tables)
        try:
            store.close()
        except OSError as error:
            logger.error("closing the store failed: %s", error)


async def _supervise(
    service: PluginService,
    *,
    task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a plugin's service; an error ends the broker unless it may be restarted."""
    task_status.started()
    while True:
        try:
            await service.run()
        except Exception as error:  # the supervisor of services
            failure = PluginError(
                service.plugin, f"the service {service.run!r} failed: {error!r}"
            )
            logger.exception("%s", failure)
            if not service.restart:
                raise failure from error
        else:
            return
        await trio.sleep(SERVICE_PAUSE_S)


def _numeric(host: str) -> str:
    """Return an IP address for a host name: records store addresses."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise StoreError(
            f"the advertised host {host} has no address: {error}"
        ) from error
