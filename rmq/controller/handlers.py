"""The controller's requests, one function each.

Known in Java as `ControllerRequestProcessor`. Only the leader answers requests about
groups. Every controller accepts heartbeats and names the leader.
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from rmq.config.changes import (
    apply_changes,
    as_properties,
    check_refusals,
    read_changes,
)
from rmq.controller import groups
from rmq.controller.config import ControllerConfig
from rmq.controller.election import Alive
from rmq.controller.engine import MAX_GROUPS
from rmq.controller.groups import Group, Outcome
from rmq.controller.leadership import Lead
from rmq.controller.liveness import Liveness
from rmq.controller.request_gate import ControllerGate, host_of
from rmq.controller.statistics import Counts
from rmq.core.errors import (
    ConfigError,
    EngineAway,
    RemoteProtocolError,
    RequestRejected,
)
from rmq.core.logs import Foreign, SparseLog
from rmq.protocol import fastjson
from rmq.protocol.bodies.controller import BrokerReplicasInfo, SyncStateSet
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers import controller as headers
from rmq.protocol.headers.cluster import BrokerHeartbeatRequestHeader
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import HandlerTable

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

Answering = Coroutine[Any, Any, Command]

NO_ANSWER_REMARK: Final = "not set any response code"


class ControllerParts(NamedTuple):
    """The parts that the handlers use."""

    config: ControllerConfig
    lead: Lead
    liveness: Liveness
    gate: ControllerGate
    address: Callable[[], str]
    """The address of this controller for other hosts."""

    announce: Callable[[Group], None]
    """Sends notices about a new master to the members of its group."""


class ControllerHandlers:
    """Handlers over the groups of one controller."""

    def __init__(self, parts: ControllerParts) -> None:
        self._config, self._lead, self._liveness = parts[:3]
        self._gate, self._address, self._announce = parts[3:]
        self.counts = Counts()

    def table(self) -> HandlerTable:
        """Return code to handler."""
        table = HandlerTable()
        for code, handler in (
            (RequestCode.BROKER_HEARTBEAT, self.heartbeat),
            (RequestCode.CONTROLLER_GET_METADATA_INFO, self.metadata),
            (RequestCode.GET_CONTROLLER_CONFIG, self.get_config),
            (RequestCode.UPDATE_CONTROLLER_CONFIG, self.update_config),
        ):
            table.register(code, handler)
        for code, later in (
            (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, self.alter_sync_state_set),
            (RequestCode.CONTROLLER_ELECT_MASTER, self.elect_master),
            (RequestCode.CONTROLLER_REGISTER_BROKER, self.register_broker),
            (RequestCode.CONTROLLER_GET_REPLICA_INFO, self.replica_info),
            (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, self.sync_state_data),
            (RequestCode.CLEAN_BROKER_DATA, self.clean_broker_data),
            (RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, self.next_broker_id),
            (RequestCode.CONTROLLER_APPLY_BROKER_ID, self.apply_broker_id),
        ):
            table.register(code, partial(self._answer_confirmed, later))
        return table

    async def _answer_confirmed(
        self,
        handler: Callable[[Command, Connection], Answering],
        request: Command,
        connection: Connection,
    ) -> Command:
        """Run a handler; if the engine is away, answer with the reason."""
        try:
            return await handler(request, connection)
        except EngineAway as error:
            self.counts.unconfirmed += 1
            logger.warning(
                "request %d has no confirmed result: %s", request.code, error
            )
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error

    def leader_address(self) -> str | None:
        """Return the address of the leader, as far as this controller knows it."""
        if self._lead.is_leading:
            return self._address()
        leader = self._lead.view.leader
        # without this, the controller could name itself until its lease ends
        return leader if leader != self._address() else None

    def alive_members(self, group: Group | None) -> Alive:
        """Return the live members of a group, and whether its state is doubtful."""
        if group is None:
            return Alive({})
        alive = self._liveness.alive_members(group)
        return alive._replace(is_doubtful=group.name in self._lead.view.doubtful)

    def _check_speaker(
        self, name: str | None, broker_id: int | None, connection: Connection
    ) -> None:
        if name is not None and broker_id is not None:
            host = self._liveness.host_of((name, broker_id))
            self._gate.check_speaker(f"{name} {broker_id}", host, connection)

    async def _change_group(
        self, name: str | None, act: Callable[[Group | None, Alive], Outcome]
    ) -> Outcome:
        """Apply one of the functions of `groups` to a group."""
        doubtful: Group | None = None

        def act_on(group: Group | None) -> Outcome:
            nonlocal doubtful
            alive = self.alive_members(group)
            doubtful = group if group and group.is_doubtful(alive) else None
            return act(group, alive)

        outcome = await self._lead.change_group(name or "", act_on)
        if doubtful and outcome.group and outcome.group.term > doubtful.term:
            logger.warning(
                "the state of %s was doubtful, at epoch %d and set %d; its members "
                "have reported, and it is at epoch %d and set %d now: brokers %s",
                Foreign(doubtful.name),
                *doubtful.term,
                *outcome.group.term,
                ", ".join(map(str, outcome.group.sync_set)),
            )
        return outcome

    # -- brokers

    def heartbeat(self, request: Command, connection: Connection) -> Command:
        """904: a registered broker is alive."""
        header = request.header(BrokerHeartbeatRequestHeader)
        invalid = ResponseCode.CONTROLLER_INVALID_REQUEST
        if header.broker_id is None:
            return request.reply(invalid, "Heart beat with empty brokerId")
        group = self._lead.known_group(header.broker_name)
        member = group.members.get(header.broker_id) if group else None
        if group is None or member is None or group.cluster != header.cluster_name:
            code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
            return request.reply(code, "the broker is not registered")
        if member.address != header.broker_addr:
            remark = (
                f"broker {header.broker_id} of {group.name} is registered at "
                f"{member.address}, not {header.broker_addr}"
            )
            logger.warning("%s", Foreign(remark))
            return request.reply(invalid, remark)
        self._check_speaker(group.name, header.broker_id, connection)
        self._liveness.record_heartbeat(header, host_of(connection), connection)
        return request.reply(ResponseCode.SUCCESS, "Heart beat success")

    async def register_broker(
        self, request: Command, connection: Connection
    ) -> Command:
        """1003: a broker with an id starts."""
        header = request.header(headers.RegisterBrokerToControllerRequestHeader)
        name = header.broker_name
        self._check_speaker(name, header.broker_id, connection)
        outcome = await self._change_group(
            name, lambda group, alive: groups.register(group, header, alive)
        )
        return _reply(request, outcome)

    async def next_broker_id(self, request: Command, connection: Connection) -> Command:
        """1012: the id that a new broker may request."""
        header = request.header(headers.GetNextBrokerIdRequestHeader)
        group = await self._lead.group(header.broker_name or "")
        return _reply(request, groups.next_broker_id(group, header))

    async def apply_broker_id(
        self, request: Command, connection: Connection
    ) -> Command:
        """1013: a new broker requests its id."""
        header = request.header(headers.ApplyBrokerIdRequestHeader)
        outcome = await self._change_group(
            header.broker_name, lambda group, _: groups.apply_broker_id(group, header)
        )
        return _reply(request, outcome)

    async def alter_sync_state_set(
        self, request: Command, connection: Connection
    ) -> Command:
        """1001: a master changes the set of its group."""
        header = request.header(headers.AlterSyncStateSetRequestHeader)
        wanted = SyncStateSet.decode(request.body)
        self._check_speaker(header.broker_name, header.master_broker_id, connection)
        outcome = await self._change_group(
            header.broker_name,
            lambda group, alive: groups.alter_sync_state_set(
                group, header, wanted, alive
            ),
        )
        if outcome.group and outcome.code == ResponseCode.SUCCESS:
            members = ", ".join(map(str, outcome.group.sync_set))
            logger.info("group %s is in sync: %s", Foreign(outcome.group.name), members)
        return _reply(request, outcome)

    async def elect_master(self, request: Command, connection: Connection) -> Command:
        """1002: a broker or an operator asks for a master."""
        header = request.header(headers.ElectMasterRequestHeader)
        if not header.designate_elect:
            self._check_speaker(header.broker_name, header.broker_id, connection)
        return _reply(request, await self.elect(header))

    async def elect(self, header: headers.ElectMasterRequestHeader) -> Outcome:
        """Elect a master, and notify its group."""
        name = header.broker_name
        outcome = await self._change_group(
            name,
            lambda group, alive: groups.elect_master(
                group, header, alive, is_unclean=self._config.elects_unclean
            ),
        )
        group = outcome.group
        if group is not None and outcome.code == ResponseCode.SUCCESS:
            self.counts.elected += 1
            facts = group.master_id, group.address_of(group.master_id)
            logger.warning(
                "broker %s (%s) is master of %s now, in epoch %d",
                facts[0],
                Foreign(facts[1]),
                Foreign(name),
                group.master_epoch,
            )
            if self._config.notifies_brokers:
                self._announce(group)
        elif outcome.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
            self.counts.kept += 1
        else:
            self.counts.failed += 1
            logger.warning("%s: %s", Foreign(name), Foreign(outcome.remark))
        return outcome

    async def save_confirmed(self, name: str) -> None:
        """Save the confirmed offset of a group's log, as its members report it."""
        await self._change_group(
            name,
            lambda group, alive: Outcome(group and group.with_confirmed(alive)),
        )

    async def replica_info(self, request: Command, connection: Connection) -> Command:
        """1004: master and set of a group."""
        header = request.header(headers.GetReplicaInfoRequestHeader)
        group = await self._lead.group(header.broker_name or "")
        return _reply(request, groups.replica_info(group))

    # -- tools

    def metadata(self, request: Command, connection: Connection) -> Command:
        """1005: the leader; every controller answers."""
        leader = self.leader_address()
        header = headers.GetMetaDataResponseHeader(
            group=self._config.controller_group,
            controller_leader_id=leader,
            controller_leader_address=leader,
            is_leader=self._lead.is_leading,
            peers="".join(f"{each};" for each in self._lead.view.controllers),
        )
        return request.reply(header=header)

    async def sync_state_data(
        self, request: Command, connection: Connection
    ) -> Command:
        """1006: groups by name, as tools show them."""
        names = _names(request.body)
        if not names:
            return request.reply(ResponseCode.SYSTEM_ERROR, NO_ANSWER_REMARK)
        body = BrokerReplicasInfo()
        for name in names:
            group = await self._lead.group(name)
            if group is not None:
                replicas = groups.replicas_of(group, self.alive_members(group))
                body.replicas_info_table[name] = replicas
        return request.reply(body=body.encode())

    async def clean_broker_data(
        self, request: Command, connection: Connection
    ) -> Command:
        """1011: remove brokers that are gone."""
        header = request.header(headers.CleanControllerBrokerDataRequestHeader)
        outcome = await self._change_group(
            header.broker_name, lambda group, alive: groups.clean(group, header, alive)
        )
        return _reply(request, outcome)

    def get_config(self, request: Command, connection: Connection) -> Command:
        """1010: every key and its value."""
        return request.reply(body=as_properties((self._config,)))

    def update_config(self, request: Command, connection: Connection) -> Command:
        """1009: change live keys: all of them, or no key after an error."""
        try:
            changes, path = read_changes(request.body), self._config.config_store_path
            outcome = apply_changes(changes, (self._config,), path)
        except ConfigError as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
        check_refusals(outcome)
        return request.reply()


def _reply(request: Command, outcome: Outcome) -> Command:
    code, remark, header, body = outcome[1:]
    return request.reply(code, remark, header=header, body=body)


def _names(body: bytes) -> list[str]:
    """Read the list of groups of request 1006."""
    try:
        names = fastjson.load_json(body) if body else []
    except RemoteProtocolError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, "a list of names is expected")
    return list(dict.fromkeys(names))[:MAX_GROUPS]
