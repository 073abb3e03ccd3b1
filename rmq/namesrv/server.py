"""NameServer: the tables, their requests and the scan for inactive brokers."""

import logging
from pathlib import Path

import trio

from rmq.access.config import AuthConfig
from rmq.core.address import Address, host_of
from rmq.core.clock import Clock
from rmq.core.errors import PeerError
from rmq.core.logs import Foreign, SparseLog
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.namesrv.handlers import NameServerHandlers, NameServerParts
from rmq.namesrv.inactive_brokers import scan_inactive_brokers
from rmq.namesrv.kv_config import KVConfig
from rmq.namesrv.registration import LeastIdChange
from rmq.namesrv.request_gate import NameServerGate
from rmq.namesrv.routes import RouteTable
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.cluster import NotifyMinBrokerIdChangeRequestHeader
from rmq.remoting.client import RemotingClient
from rmq.remoting.connection import Connection
from rmq.remoting.server import RemotingServer

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

LISTENER = "namesrv"
NOTIFY_TIMEOUT_MS = 300


class NameServer:
    """Known in Java as `NamesrvController`."""

    def __init__(
        self,
        config: NamesrvConfig,
        listen: NamesrvListenConfig,
        auth: AuthConfig,
        *,
        clock: Clock,
        server: RemotingServer,
        client: RemotingClient,
        port_key: str = "listenPort",
    ) -> None:
        """`port_key` is the configuration key of its port, for an error."""
        self.config = config
        self.listen = listen
        self._port_key = port_key
        self.routes = RouteTable(
            clock.now_ms,
            keeps_unregistered_topics=not config.delete_topic_with_broker_registration,
        )
        self.kv_config = KVConfig(config.kv_path, clock)
        self.port = 0
        self._guessed_address: str | None = None
        self._server = server
        self._client = client
        self._clock = clock
        self._nursery: trio.Nursery | None = None
        folder = Path(auth.auth_config_path or config.kv_path.parent / "auth")
        self._gate = NameServerGate(
            config,
            auth,
            folder,
            clock,
            is_own=lambda connection: client.is_own(connection.peer),
        )
        self._handlers = NameServerHandlers(
            NameServerParts(
                config,
                self.routes,
                self.kv_config,
                self._address_for,
                clock.now_ms,
                listen,
                self._gate.caller_of,
            )
        )
        self.routes.on_least_id.append(self._notify_members)

    def mark_guessed(self, address: str) -> None:
        """Record that the broker guessed its address, because no key sets it."""
        self._guessed_address = address
        self._handlers.answers.forget_all()

    def config_changed(self) -> None:
        """Use the new values of keys."""
        self._handlers.config_changed()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve, and remove expired brokers, until cancelled."""
        listen = self.listen
        self.kv_config.load()
        table = self._handlers.table()
        table.guards.append(self._gate.check_request)
        self.port = await self._server.bind(
            LISTENER,
            listen.bind_address,
            listen.listen_port,
            table,
            idle_timeout_s=listen.idle_timeout_s,
            key=self._port_key,
        )
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._server.start_accepting(LISTENER, self.routes.on_close)
            nursery.start_soon(self.routes.topics.run_changes)
            task_status.started()
            await scan_inactive_brokers(self.routes, self.config, self._clock)

    def _notify_members(self, change: LeastIdChange) -> None:
        """Send 905 to a group's members, except the member that now has the smallest
        id.
        """
        if self._nursery is None or not self.config.notify_min_broker_id_changed:
            return
        addresses = change.group.addresses
        assert addresses, f"there is no broker to notify of {change.broker_name}"
        least = change.group.least_id
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=least,
            broker_name=change.broker_name,
            min_broker_addr=addresses[least],
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        is_newcomer = change.offline_address is None and len(addresses) > 1
        for broker_id, address in addresses.items():
            if not (is_newcomer and broker_id == least):
                self._nursery.start_soon(self._notify, address, header)

    async def _notify(
        self, address: str, header: NotifyMinBrokerIdChangeRequestHeader
    ) -> None:
        command = Command.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header)
        try:
            await self._client.oneway(address, command, NOTIFY_TIMEOUT_MS)
        except PeerError as error:
            logger.warning(
                "cannot notify broker %s about its group: %s",
                Foreign(address),
                Foreign(error),
            )

    def _address_for(self, address: str, connection: Connection) -> str:
        """Return the address at which a caller reaches this process.

        If the address was only guessed, it is the address to which the caller is
        connected. A configured address is returned as it is.
        """
        if address != self._guessed_address:
            return address
        host, port = host_of(connection.local_address), Address.parse(address).port
        return Address(host, port).java_text
