"""Requests to another broker about its log, for slaves and for recovery.

`RemoteBroker` is any broker at an address; a slave finds its master by name servers.
"""

from collections.abc import Callable

import trio

from rmq.cluster.config import ReplicationConfig
from rmq.cluster.directory import Ask
from rmq.cluster.group_role import GroupRole
from rmq.cluster.log_source import LogBounds
from rmq.core.address import HA_PORT_DISTANCE, Address
from rmq.core.errors import ConnectFailed, RequestRejected
from rmq.core.offsets import PhysicalOffset
from rmq.protocol.bodies.common import KVTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.cluster import ExchangeHAInfoResponseHeader
from rmq.store.config import BrokerRole

ASK_TIMEOUT_MS = 3_000
LOOK_UP_PAUSE_S = 1.0
LOOK_UP_LIMIT_S = 30.0
"""Maximum pause between two requests to name servers for a master; the pause doubles
until it has this length.
"""

OWN_FACTS = "rmq."
"""Prefix of runtime facts that only rmq has."""

LOG_ADDRESS = f"{OWN_FACTS}replica.address"
"""The fact with the address where rmq serves its log."""


class RemoteBroker:
    """A broker at an address."""

    def __init__(self, address: str, ask: Ask) -> None:
        self.address = address
        self._ask = ask

    async def request(self, code: int, fields: dict[str, str] | None = None) -> Command:
        """Send a request; PeerError if the broker does not answer."""
        request = Command(int(code), fields or {})
        return await self._ask(self.address, request, ASK_TIMEOUT_MS)

    async def find_bounds(self) -> LogBounds:
        """Ask the broker for the first and the last offset of its log."""
        answer = await self._fetch(RequestCode.GET_BROKER_RUNTIME_INFO)
        try:
            facts = KVTable.decode(answer.body).table
            oldest, end = facts["commitLogMinOffset"], facts["commitLogMaxOffset"]
            is_java = not any(name.startswith(OWN_FACTS) for name in facts)
            return LogBounds(max(0, int(oldest)), PhysicalOffset(int(end)), is_java)
        except (KeyError, ValueError, RequestRejected) as error:
            raise ConnectFailed(
                f"the master does not report the bounds of its log: {error}"
            ) from error

    async def fetch_record(self, offset: PhysicalOffset) -> bytes | None:
        """Ask for the record at an offset."""
        fields = {"offset": str(offset)}
        answer = await self.request(RequestCode.VIEW_MESSAGE_BY_ID, fields)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            return None
        self._check_success(answer)
        return answer.body

    async def fetch_config(self) -> dict[str, str]:
        """Ask for the broker's configuration; callers read no values that contain
        escapes.
        """
        answer = await self._fetch(RequestCode.GET_BROKER_CONFIG)
        lines = answer.body.decode(errors="replace").splitlines()
        pairs = (line.partition("=") for line in lines)
        return {key.strip(): value.strip() for key, _, value in pairs}

    async def find_log_address(self) -> str:
        """Ask for the address of the broker's log; Java's keys have only a port."""
        answer = await self._fetch(RequestCode.GET_BROKER_RUNTIME_INFO)
        try:
            known = KVTable.decode(answer.body).table.get(LOG_ADDRESS)
        except RequestRejected as error:
            raise ConnectFailed(
                f"the master does not report its state: {error}"
            ) from error
        if known:
            return known
        settings = await self.fetch_config()
        host, port = Address.parse(self.address)
        ha_port = int(settings.get("haListenPort", "0"))
        if ha_port <= 0:
            ha_port = port + HA_PORT_DISTANCE
        return str(Address(host, ha_port))

    async def awaits_slaves(self) -> bool:
        """Whether the broker acknowledges only messages that slaves have; Java 4.9 has
        a single key for this.
        """
        settings = await self.fetch_config()
        is_sync = settings.get("brokerRole") == BrokerRole.SYNC_MASTER.value
        return is_sync and settings.get("inSyncReplicas", "2") != "1"

    async def _fetch(self, code: int) -> Command:
        answer = await self.request(code)
        self._check_success(answer)
        return answer

    def _check_success(self, answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            raise ConnectFailed(f"it answers {answer.code}: {answer.remark}")


class AppointedMaster(RemoteBroker):
    """The master that a controller named: it reports the address of its log.

    A name server may still know the address of the previous master's log.
    """

    async def find(self) -> str:
        """Ask the broker for the address of its log; empty if it is not the master yet,
        or not any more.
        """
        if not self.address:
            return ""
        answer = await self._fetch(RequestCode.EXCHANGE_BROKER_HA_INFO)
        return answer.header(ExchangeHAInfoResponseHeader).master_ha_address or ""


class MasterSource:
    """The master of a slave."""

    def __init__(
        self,
        config: ReplicationConfig,
        role: GroupRole,
        ask: Ask,
        register_soon: Callable[[], None],
    ) -> None:
        """`register_soon` has name servers name the master again."""
        self._config = config
        self._role = role
        self._ask = ask
        self._register_soon = register_soon
        self._found = trio.Event()
        role.on_change.append(self._found.set)
        self._look_up_s = LOOK_UP_PAUSE_S
        self._tried_s = self._asked_s = -LOOK_UP_LIMIT_S

    async def find(self) -> str:
        """Return the HA address of the master, as far as it is known.

        While the master cannot be followed, the name servers are asked again.
        """
        if not self._config.ha_master_address and not self._role.master_ha_address:
            with trio.move_on_after(LOOK_UP_PAUSE_S):
                await self._found.wait()
        self._look_up()
        return self._config.ha_master_address or self._role.master_ha_address

    def _look_up(self) -> None:
        """Register soon, because the answer names the master; the pause grows with each
        call.
        """
        now = trio.current_time()
        if now - self._tried_s > LOOK_UP_LIMIT_S:
            # after a start, or after the slave has followed
            self._look_up_s, self._asked_s = LOOK_UP_PAUSE_S, now
        self._tried_s = now
        if now - self._asked_s >= self._look_up_s:
            self._asked_s = now
            self._look_up_s = min(2 * self._look_up_s, LOOK_UP_LIMIT_S)
            self._register_soon()

    def _remote_master(self) -> RemoteBroker:
        if not self._role.master_address:
            raise ConnectFailed("no name server names the master")
        return RemoteBroker(self._role.master_address, self._ask)

    async def find_bounds(self) -> LogBounds:
        """Ask the broker for the first and the last offset of its log."""
        return await self._remote_master().find_bounds()

    async def fetch_record(self, offset: PhysicalOffset) -> bytes | None:
        """Ask for the record at an offset."""
        return await self._remote_master().fetch_record(offset)

    async def awaits_slaves(self) -> bool:
        """Ask whether the broker acknowledges only messages that replicas have."""
        return await self._remote_master().awaits_slaves()
