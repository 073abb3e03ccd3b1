"""Controllers: the requests of a broker to the controllers of its group.

The controllers elect a leader, which serves all requests. Every controller names the
leader. Known in Java as the part of `BrokerOuterAPI` for controllers.
"""

import logging
from collections.abc import Collection

import trio

from rmq.cluster.address_lookup import AddressLookup
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.controller_role import Refused, Term
from rmq.cluster.directory import Ask
from rmq.cluster.identity import IdRequest
from rmq.config.broker import BrokerConfig
from rmq.core.clock import Clock
from rmq.core.errors import (
    ConnectFailed,
    PeerError,
    RemoteProtocolError,
    RequestRejected,
)
from rmq.core.logs import Foreign
from rmq.core.offsets import PhysicalOffset
from rmq.protocol import fastjson
from rmq.protocol.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicasInfo,
    SyncStateSet,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers import Header
from rmq.protocol.headers.cluster import BrokerHeartbeatRequestHeader
from rmq.protocol.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)

logger = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 3_000


class MixedControllers(ConnectFailed):
    """The list has controllers of different groups."""


class Controllers:
    """The controllers of one group of brokers; each method asks the leader.

    PeerError if the leader does not answer, `Refused` if it answers with an error.
    """

    def __init__(
        self,
        config: BrokerConfig,
        replication: ReplicationConfig,
        ask: Ask,
        address: str,
        clock: Clock,
    ) -> None:
        """`address` is the address of this broker."""
        self._lookup = AddressLookup("controllers", replication.controller_list())
        self.leader = ""
        self.address = address
        self._known: dict[str, str] = {}
        """The group that each controller has named, by address; all are equal."""

        self._replication = replication
        self._ask = ask
        self._clock = clock
        self._cluster = config.broker_cluster_name
        self._broker = config.broker_name

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all controllers."""
        return self._lookup.addresses

    async def find_leader(self) -> None:
        """Ask the controllers for their leader.

        Controllers of two groups, such as Java's and rmq's, do not share their state:
        each group would elect its own master. So all controllers must have the same
        group as the first one.
        """
        if await self._lookup.update_if_due():
            self._known.clear()
        if not self._known:
            await self._compare()
        failure: PeerError = ConnectFailed("no controller knows a leader")
        for address in self.addresses:
            try:
                found = await self._metadata(address)
            except PeerError as error:
                failure = error
                continue
            leader = found.controller_leader_address
            if leader:
                if self.leader != leader:
                    logger.info("the controller is %s", Foreign(leader))
                self.leader = leader
                return
        raise failure

    async def _compare(self) -> None:
        """Ask all controllers for their group; ConnectFailed if there are two."""
        failures: list[PeerError] = []

        async def ask_one(address: str) -> None:
            try:
                await self._metadata(address)
            except PeerError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for address in self.addresses:
                nursery.start_soon(ask_one, address)
        mixed = [error for error in failures if isinstance(error, MixedControllers)]
        if mixed:
            self._known.clear()  # it is not known which of the two is wrong
            raise mixed[0]

    async def _metadata(self, address: str) -> GetMetaDataResponseHeader:
        """Ask a controller for its group and leader."""
        request = Command.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        answer = await self._ask(address, request, ASK_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ConnectFailed(f"the controller {address} answers {answer.code}")
        try:
            found = answer.header(GetMetaDataResponseHeader)
        except RequestRejected as error:
            raise ConnectFailed(str(error)) from error
        if found.group:
            first, group = next(iter(self._known.items()), (address, found.group))
            if group != found.group:
                raise MixedControllers(
                    f"controllerAddr has controllers of different groups: {first} is "
                    f"of group {group}, {address} of {found.group}; keep only the "
                    f"controllers of one group"
                )
            self._known[address] = found.group
        return found

    async def _request(
        self,
        code: RequestCode,
        header: Header | None,
        body: bytes = b"",
        known: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        if not self.leader:
            await self.find_leader()
        request = Command.request(code, header, body)
        try:
            answer = await self._ask(self.leader, request, ASK_TIMEOUT_MS)
        except PeerError:
            self.leader = ""
            raise
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self.leader = ""
        if answer.code not in known:
            raise Refused(answer)
        return answer

    # -- identity

    async def next_id(self) -> IdRequest:
        """Ask for a free id; return it with a new code, for the request to get this
        id.
        """
        header = GetNextBrokerIdRequestHeader(
            cluster_name=self._cluster, broker_name=self._broker
        )
        answer = await self._request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        found = answer.header(GetNextBrokerIdResponseHeader).next_broker_id
        if not found or found < 1:
            raise RemoteProtocolError(f"the controller gave the id {found}")
        return self.code_for(found)

    def code_for(self, broker_id: int) -> IdRequest:
        """Return an id with a code of this broker."""
        return IdRequest(broker_id, f"{self.address};{self._clock.now_ms()}")

    async def apply(self, asked: IdRequest) -> None:
        """Request an id for this broker."""
        header = ApplyBrokerIdRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._broker,
            applied_broker_id=asked.broker_id,
            register_check_code=asked.code,
        )
        await self._request(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)

    # -- roles

    async def register(self, own_id: int) -> Term:
        """Register the address of this broker; return its term, with epoch 0 if there
        is no master.
        """
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._broker,
            broker_id=own_id,
            broker_address=self.address,
            invoke_time=self._clock.now_ms(),
        )
        answer = await self._request(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        found = answer.header(RegisterBrokerToControllerResponseHeader)
        if found.master_broker_id is None or not found.master_address:
            return Term(own_id=own_id)
        return _decode_term(found, answer.body, own_id)

    async def find_role(self, own_id: int) -> Term:
        """Ask for the role; `master_id` is 0 if there is no master."""
        header = GetReplicaInfoRequestHeader(broker_name=self._broker)
        answer = await self._request(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        return _decode_term(
            answer.header(GetReplicaInfoResponseHeader), answer.body, own_id
        )

    async def find_set_addresses(self) -> list[str]:
        """Ask for the addresses of the other brokers of the sync state set."""
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        body = fastjson.dump_json([self._broker])
        answer = await self._request(code, None, body)
        groups = BrokerReplicasInfo.decode(answer.body).replicas_info_table
        members = groups.get(self._broker, ReplicasInfo()).in_sync_replicas
        found = (each.broker_address for each in members)
        return [each for each in found if each and each != self.address]

    async def elect(self, own_id: int) -> Term:
        """Ask to become the master of a group without one; return the new term."""
        header = ElectMasterRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._broker,
            broker_id=own_id,
            designate_elect=False,
            invoke_time=self._clock.now_ms(),
        )
        known = ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        code = RequestCode.CONTROLLER_ELECT_MASTER
        answer = await self._request(code, header, known=known)
        found = answer.header(ElectMasterResponseHeader)
        members = ElectMasterResponseBody.decode(answer.body or b"{}").sync_state_set
        if found.master_broker_id is None or not found.master_address:
            raise RemoteProtocolError("the controller elected no master")
        return Term(
            found.master_epoch or 0,
            found.master_broker_id,
            found.master_address,
            own_id,
            frozenset(members),
            found.sync_state_set_epoch or 0,
        )

    async def alter_set(
        self, term: Term, wanted: Collection[int], number: int
    ) -> tuple[Collection[int], int]:
        """Ask to replace the set with this number; return the new set and number."""
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._broker,
            master_broker_id=term.own_id,
            master_epoch=term.epoch,
            invoke_time=self._clock.now_ms(),
        )
        body = SyncStateSet(sync_state_set=sorted(wanted), sync_state_set_epoch=number)
        code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        answer = await self._request(code, header, body.encode())
        found = answer.header(AlterSyncStateSetResponseHeader).new_sync_state_set_epoch
        return SyncStateSet.decode(answer.body).sync_state_set, found

    # -- heartbeats

    async def send_heartbeat(
        self,
        address: str,
        own_id: int,
        *,
        epoch: int,
        end: PhysicalOffset,
        confirmed: PhysicalOffset,
        known_set: str,
        timeout_ms: int,
    ) -> None:
        """Send a heartbeat to one controller, with the epoch and the log end of this
        broker.

        `known_set` is the newest sync state set that this broker knows; only rmq's
        controllers read it. The broker is alive for them for `timeout_ms`.
        """
        replication = self._replication
        header = BrokerHeartbeatRequestHeader(
            cluster_name=self._cluster,
            broker_addr=self.address,
            broker_name=self._broker,
            broker_id=own_id,
            epoch=epoch,
            max_offset=end,
            confirm_offset=confirmed,
            heartbeat_timeout_mills=timeout_ms,
            election_priority=replication.election_priority,
            rmq_set=known_set or None,
        )
        request = Command.request(RequestCode.BROKER_HEARTBEAT, header)
        try:
            await self._ask(address, request, ASK_TIMEOUT_MS)
        except PeerError as error:
            logger.debug("heartbeat to %s: %s", address, Foreign(error))


def _decode_term(
    found: RegisterBrokerToControllerResponseHeader | GetReplicaInfoResponseHeader,
    body: bytes,
    own_id: int,
) -> Term:
    known = SyncStateSet.decode(body) if body else SyncStateSet()
    return Term(
        found.master_epoch or 0,
        found.master_broker_id or 0,
        found.master_address or "",
        own_id,
        frozenset(known.sync_state_set),
        known.sync_state_set_epoch,
    )
