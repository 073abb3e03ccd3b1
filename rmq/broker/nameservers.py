"""NameServers: telling every name server which topics this broker has.

Each name server is called by itself: one that is down neither blocks nor stops the
others, and the next periodic registration reaches it.  A changed topic is sent alone; a
name server that does not know this broker yet gets the full table, because it refuses a
registration of one topic.  Known in Java as `BrokerOuterAPI`.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec
import trio

from rmq._fastpath import body_crc
from rmq.broker.config import BrokerConfig
from rmq.broker.tables.topics import TopicTable
from rmq.errors import PeerError
from rmq.protocol.bodies.common import DataVersion
from rmq.protocol.bodies.register import RegisterBrokerBody
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.route import (
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from rmq.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

_Call = Callable[[str, dict[str, TopicConfig]], Awaitable[object]]

UNREGISTER_TIMEOUT_MS = 3_000
TOPICS_AT_ONCE = 20_000
"""Topics of one registration: a frame has 16 MiB, a topic 150 to 500 bytes."""

CHANGE_QUEUE_LIMIT = 1024
"""Changed topics waiting to be sent; beyond it the full table goes instead."""


class NameServers:
    """The name servers of one broker."""

    def __init__(
        self, config: BrokerConfig, topics: TopicTable, client: RemotingClient
    ) -> None:
        self.addresses: tuple[str, ...] = config.name_servers
        self.address = ""
        self.ha_address = ""
        self._config = config
        self._topics = topics
        self._client = client
        self._changed: dict[str, TopicConfig] = {}
        self._wake = trio.Event()
        self._silent: set[str] = set()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Register now, on each change, and periodically."""
        await self.register_all()
        task_status.started()
        period_s = self._config.register_name_server_period_ms / 1000
        while True:
            with trio.move_on_after(period_s) as scope:
                await self._wake.wait()
            self._wake = trio.Event()
            changed, self._changed = self._changed, {}
            if scope.cancelled_caught or len(changed) >= CHANGE_QUEUE_LIMIT:
                await self.register_all()
            elif changed:
                await self._to_each(self._register_changed, changed)

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Send this topic soon; one that is gone leaves with the next full table."""
        if topic is None:
            return
        if len(self._changed) < CHANGE_QUEUE_LIMIT:
            self._changed[name] = topic
        self._wake.set()

    async def register_all(self) -> None:
        """Send the full table to every name server."""
        await self._to_each(self._register_in_parts, self._topics.all())

    async def unregister_all(self) -> None:
        """Say goodbye to every name server."""
        await self._to_each(self._unregister, {})

    async def _to_each(self, call: _Call, topics: dict[str, TopicConfig]) -> None:
        async with trio.open_nursery() as nursery:
            for address in self.addresses:
                nursery.start_soon(self._guarded, call, address, topics)

    async def _guarded(
        self, call: _Call, address: str, topics: dict[str, TopicConfig]
    ) -> None:
        """Call one name server; say once that it is silent, once that it is back."""
        try:
            await call(address, topics)
        except PeerError as error:
            if address not in self._silent:
                self._silent.add(address)
                logger.warning("name server %s: %s", address, error)
        else:
            if address in self._silent:
                self._silent.discard(address)
                logger.info("name server %s answers again", address)

    async def _register_changed(
        self, address: str, topics: dict[str, TopicConfig]
    ) -> None:
        if not await self._register(address, topics):
            await self._register_in_parts(address, self._topics.all())

    async def _register_in_parts(
        self, address: str, topics: dict[str, TopicConfig]
    ) -> None:
        """Send a full table; a large one goes in several frames.

        Name servers read the topics of a version once, so that each part has its own.
        """
        names = list(topics)
        for part in range(len(names) // TOPICS_AT_ONCE + 1):
            some = names[part * TOPICS_AT_ONCE : (part + 1) * TOPICS_AT_ONCE]
            table = {name: topics[name] for name in some}
            if not await self._register(address, table, part):
                return

    async def _register(
        self, address: str, topics: dict[str, TopicConfig], part: int = 0
    ) -> bool:
        assert self.address, "register after the ports are bound"
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                data_version=self._version(part),
                topic_config_table=self._permitted(topics),
            )
        ).encode()
        config = self._config
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self.ha_address,
            broker_id=config.broker_id,
            compressed=False,
            body_crc32=body_crc(body),
        )
        request = Command.request(RequestCode.REGISTER_BROKER, header, body)
        timeout_ms = config.register_broker_timeout_ms
        answer = await self._client.invoke(address, request, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            logger.warning("name server %s refused: %s", address, answer.remark)
        return answer.code == ResponseCode.SUCCESS

    def _version(self, part: int) -> DataVersion:
        version = self._topics.data_version
        counter = version.counter + (part << 40)
        return msgspec.structs.replace(version, counter=counter) if part else version

    def _permitted(self, topics: dict[str, TopicConfig]) -> dict[str, TopicConfig]:
        """Take away from every topic what the broker as a whole may not do."""
        permission = self._config.broker_permission
        return {
            name: topic
            if topic.perm & permission == topic.perm & 6
            else msgspec.structs.replace(topic, perm=topic.perm & permission)
            for name, topic in topics.items()
        }

    async def _unregister(self, address: str, _: dict[str, TopicConfig]) -> None:
        config = self._config
        header = UnRegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )
        request = Command.request(RequestCode.UNREGISTER_BROKER, header)
        await self._client.invoke(address, request, UNREGISTER_TIMEOUT_MS)
