"""Controller: groups, their requests, the search for dead masters, and notices.

If the connection of a master ends, the controller tries its port. If the port is
closed, too, the group gets a new master at once. A broker that only becomes silent is
dead when its heartbeats expire.
"""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec
import trio

from rmq.access.config import AuthConfig
from rmq.access.signature import sign
from rmq.controller.config import ControllerConfig, EngineKind
from rmq.controller.engine import Engine
from rmq.controller.file_engine import FileEngine
from rmq.controller.groups import Group, needs_election
from rmq.controller.handlers import ControllerHandlers, ControllerParts
from rmq.controller.leadership import Lead
from rmq.controller.liveness import Key, Liveness
from rmq.controller.request_gate import ControllerGate
from rmq.controller.statistics import ControllerStatistics, groups_of
from rmq.core.address import Address
from rmq.core.clock import Clock
from rmq.core.errors import EngineAway, PeerError, RequestRejected
from rmq.core.logs import Foreign, SparseLog
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.controller import (
    ElectMasterRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
)
from rmq.remoting.client import RemotingClient
from rmq.remoting.connection import Connection
from rmq.remoting.server import RemotingServer

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

LISTENER: Final = "controller"
NOTICE_TIMEOUT_MS: Final = 3_000
NOTICE_TRIES: Final = 3
NOTICE_PAUSE_S: Final = 1.0
KNOCK_S: Final = 0.5
"""Time limit of a connection to a broker's port, and the pause between two attempts."""

KNOCKS: Final = 20
"""Number of checks of one broker's port: after the last one, the broker's heartbeats
have expired.
"""

SAVE_INTERVAL_S: Final = 60.0
"""Pause between two saves of the confirmed offsets."""

LATE_S: Final = 2.0
"""A search that is this late shows that the process could not run, so unread heartbeats
may wait.
"""


class Controller:
    """Known in Java as `ControllerManager`."""

    def __init__(
        self,
        config: ControllerConfig,
        auth: AuthConfig,
        *,
        clock: Clock,
        server: RemotingServer,
        client: RemotingClient,
    ) -> None:
        self.config = config
        self.port = 0
        self._server, self._client = server, client
        self._credentials = auth.inner_credentials()
        self._engine = _open_engine(config)
        self._liveness = Liveness(trio.current_time)
        self.lead = Lead(self._engine, self._liveness.begin_to_lead)
        folder = Path(auth.auth_config_path or config.folder / "auth")
        self._gate = ControllerGate(
            config, auth, folder, clock, lambda caller: client.is_own(caller.peer)
        )
        self._handlers = ControllerHandlers(
            ControllerParts(
                config,
                self.lead,
                self._liveness,
                self._gate,
                lambda: self.address,
                self._notify_members,
            )
        )
        self._nursery: trio.Nursery | None = None
        self._save_due_s = 0.0

    @property
    def address(self) -> str:
        """The address for brokers, tools and other controllers."""
        return self.config.reachable_at(self.port)

    @property
    def is_leading(self) -> bool:
        """Whether this controller leads."""
        return self.lead.is_leading

    def statistics(self) -> ControllerStatistics:
        """Return the state and the counters of this controller at one moment."""
        return ControllerStatistics(
            self.is_leading,
            self._handlers.leader_address(),
            self.lead.view.controllers,
            msgspec.structs.replace(self._handlers.counts),
            tuple(groups_of(self.lead, self._handlers.alive_members)),
        )

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve, and elect masters while this controller leads, until cancelled."""
        config = self.config
        config.reachable_at(config.controller_port)
        if self._engine.warning:
            logger.warning("%s", self._engine.warning)
        table = self._handlers.table()
        table.guards.append(self._gate.check_request)
        self.port = await self._server.bind(
            LISTENER,
            config.bind_address,
            config.controller_port,
            table,
            idle_timeout_s=config.idle_timeout_s,
            key="rmq.controller.listenPort",
        )
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._server.start_accepting(LISTENER, self._on_close)
            nursery.start_soon(self._engine.campaign, self.address, self.lead.set_term)
            nursery.start_soon(self._watch)
            nursery.start_soon(self._search)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None  # connections may end after this

    async def _watch(self) -> None:
        async for view in self._engine.watch():
            if view.doubt and view is not self.lead.view:
                logger.error(
                    "%s: the groups are doubtful; no master is elected before all "
                    "brokers of the newest sync state set were heard",
                    view.doubt,
                )
            self.lead.view = view

    # -- dead masters

    async def _search(self) -> None:
        """Elect new masters for groups with a dead master."""
        while True:
            pause_s = self.config.scan_inactive_master_interval_ms / 1000
            due_s = trio.current_time() + pause_s
            await trio.sleep(pause_s)
            if trio.current_time() - due_s > LATE_S:
                self._liveness.resume()
            known = [stored.group for stored in self.lead.groups.values()]
            self._liveness.keep_only(known)
            if self.lead.is_leading:
                await self._save_confirmed(known)
                for group in known:
                    if needs_election(group, self._handlers.alive_members(group)):
                        await self._replace_master(group.name)

    async def _save_confirmed(self, known: Collection[Group]) -> None:
        """Save the confirmed offset of each group's log once per minute."""
        now_s = trio.current_time()
        if now_s < self._save_due_s:
            return
        self._save_due_s = now_s + SAVE_INTERVAL_S
        for group in known:
            changed = group.with_confirmed(self._handlers.alive_members(group))
            if changed == group:
                continue
            try:
                await self._handlers.save_confirmed(group.name)
            except (EngineAway, RequestRejected) as error:
                logger.warning("group %s: %s", Foreign(group.name), error)

    async def _replace_master(self, name: str) -> None:
        try:
            await self._handlers.elect(ElectMasterRequestHeader(broker_name=name))
        except (EngineAway, RequestRejected) as error:
            self._handlers.counts.unconfirmed += isinstance(error, EngineAway)
            logger.warning("group %s has no new master: %s", Foreign(name), error)

    def _on_close(self, connection: Connection) -> None:
        """Check whether the brokers of a closed connection are dead."""
        if self._nursery is not None:
            for key in list(self._liveness.brokers_on(connection)):
                self._nursery.start_soon(self._check_port, key, connection)

    async def _check_port(self, key: Key, connection: Connection) -> None:
        """Mark a broker as dead if its port is closed and no new connection comes from
        it.
        """
        name, broker_id = key
        for _ in range(KNOCKS):
            group = self.lead.known_group(name)
            address = group.address_of(broker_id) if group else None
            if address is None or self._liveness.is_new_since(key, connection):
                return
            if not await _is_open(address):
                if self._liveness.is_new_since(key, connection):
                    return
                where = Foreign(f"{broker_id} of {name} at {address}")
                logger.warning("broker %s is dead: its port is closed", where)
                self._liveness.mark_dead(key)
                group = self.lead.known_group(name)
                if self.lead.is_leading and group and group.master_id == broker_id:
                    await self._replace_master(name)
                return
            await trio.sleep(KNOCK_S)

    # -- notices

    def _notify_members(self, group: Group) -> None:
        """Send 1008 to all members that are alive."""
        if self._nursery is None:
            return
        for broker_id in self._handlers.alive_members(group).heard:
            address = group.address_of(broker_id)
            assert address is not None, "only members send heartbeats"
            self._nursery.start_soon(self._notify, address, group)

    async def _notify(self, address: str, group: Group) -> None:
        """Send a notice until it is answered, or a newer notice is due."""
        header = NotifyBrokerRoleChangedRequestHeader(
            master_address=group.address_of(group.master_id),
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.set_epoch,
            master_broker_id=group.master_id,
        )
        for _ in range(NOTICE_TRIES):
            command = Command.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header)
            command.body = group.set_body()
            if self._credentials is not None:
                sign(command, *self._credentials)
            try:
                await self._client.invoke(address, command, NOTICE_TIMEOUT_MS)
            except PeerError as error:
                logger.warning(
                    "cannot notify broker %s of its new master: %s",
                    Foreign(address),
                    Foreign(error),
                )
            else:
                return
            await trio.sleep(NOTICE_PAUSE_S)
            newest = self.lead.known_group(group.name)
            if newest is None or newest.master_epoch != group.master_epoch:
                return


def _open_engine(config: ControllerConfig) -> Engine:
    if config.controller_engine is EngineKind.file:
        return FileEngine(config.folder)
    # imported on use: it needs httpx
    from rmq.controller.etcd_engine import EtcdEngine

    return EtcdEngine(config)


async def _is_open(address: str) -> bool:
    """Whether a process listens at an address."""
    with trio.move_on_after(KNOCK_S):
        try:
            stream = await trio.open_tcp_stream(*Address.parse(address))
        except (OSError, ValueError):
            return False
        await trio.aclose_forcefully(stream)
        return True
    return False
