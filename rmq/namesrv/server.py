"""NameServer: the tables, their requests and the scan for brokers that are gone."""

import logging

import trio

from rmq.clock import Clock
from rmq.namesrv.config import NamesrvConfig
from rmq.namesrv.handlers import NameServerHandlers
from rmq.namesrv.kv_config import KVConfig
from rmq.namesrv.routes import RouteTable
from rmq.remoting.connection import Connection
from rmq.remoting.server import RemotingServer

logger = logging.getLogger(__name__)

LISTENER = "namesrv"


class NameServer:
    """Known in Java as `NamesrvController`."""

    def __init__(
        self, config: NamesrvConfig, *, clock: Clock, server: RemotingServer
    ) -> None:
        self.config = config
        self.routes = RouteTable(
            clock.now_ms,
            keeps_unregistered_topics=not config.delete_topic_with_broker_registration,
        )
        self.kv_config = KVConfig(config.kv_path)
        self.port = 0
        self.guessed_address: str | None = None
        self._server = server

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen and look for dead brokers until cancelled."""
        config = self.config
        self.kv_config.load()
        handlers = NameServerHandlers(
            config, self.routes, self.kv_config, self._address_for
        )
        self.port = await self._server.bind(
            LISTENER,
            config.bind_address,
            config.listen_port,
            handlers.table(),
            idle_timeout_s=config.idle_timeout_s,
            on_close=self.routes.on_close,
        )
        self._server.start_accepting(LISTENER)
        task_status.started()
        await self._evict_dead_brokers()

    async def _evict_dead_brokers(self) -> None:
        while True:
            await trio.sleep(self.config.scan_interval_ms / 1000)
            for address in self.routes.expire():
                logger.warning("broker %s is gone: it was silent for too long", address)

    def _address_for(self, address: str, connection: Connection) -> str:
        """Tell a caller of the embedded name server how to reach this process.

        An address that was only guessed is replaced by the one at which the caller is
        connected; what somebody configured is told as it is.
        """
        if address != self.guessed_address:
            return address
        host = connection.local_address.rpartition(":")[0]
        return f"{host}:{address.rpartition(':')[2]}"
