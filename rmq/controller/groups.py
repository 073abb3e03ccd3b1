"""Groups: a controller's data about each group of brokers, and how requests change it.

Known in Java as `ReplicasInfoManager`, `BrokerReplicaInfo` and `SyncStateInfo`. Each
function takes the state of one group (None: unknown), a request and the live members.
It returns an `Outcome` with the next state and the answer. These functions have no
memory, no clock and no I/O. Checks, codes and remarks are Java's, also mistakes of the
remarks. Where Java would lose data or ids, the docstring of the function has the
difference.

Invariants of a state: the master is a member and in the sync state set. The set has
members only. Master epoch and set epoch never decrease. Each change of the master
raises the master's epoch, so an epoch has one master.
"""

# tidy: long — one function for each request about a group

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rmq.controller.election import Alive, KnownSet, choose
from rmq.protocol.bodies.controller import (
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from rmq.protocol.bodies.route import BrokerMemberGroup
from rmq.protocol.codes import ResponseCode as Code
from rmq.protocol.headers import Header
from rmq.protocol.headers import controller as headers

FIRST_ID: Final = 1
NOBODY: Final = -1
"""The id with which a controller itself asks for an election."""

MAX_MEMBERS: Final = 100
"""Maximum number of members of a group: each takes memory and room in every answer."""

MAX_NAME_LENGTH: Final = 255
"""Maximum characters of names, addresses and codes: they are stored without a time
limit.
"""

MAX_EPOCH: Final = 2**31 - 1


class Member(msgspec.Struct, frozen=True):
    """A broker: its address, and the code with which it asked for its id."""

    address: str
    check_code: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The brokers with one name."""

    cluster: str
    name: str
    members: dict[int, Member]
    next_id: int
    master_id: int | None = None
    master_epoch: int = 0
    sync_set: tuple[int, ...] = ()
    set_epoch: int = 0
    confirmed: tuple[int, int] = (0, 0)
    """An epoch, and the offset that the master of this epoch has reported as
    confirmed.
    """

    def address_of(self, broker_id: int | None) -> str | None:
        """Return the address of a member."""
        member = self.members.get(broker_id) if broker_id is not None else None
        return member.address if member else None

    def set_body(self) -> bytes:
        """Return the set as answers contain it."""
        return SyncStateSet(
            sync_state_set=list(self.sync_set), sync_state_set_epoch=self.set_epoch
        ).encode()

    @property
    def term(self) -> tuple[int, int]:
        """The epoch of the master, and the number of the set."""
        return self.master_epoch, self.set_epoch

    def with_confirmed(self, alive: Alive) -> "Group":
        """Return this state with the newest confirmed offset of its members."""
        return replace(self, confirmed=max(self.confirmed, alive.confirmed))

    def newest_set(self, alive: Alive) -> KnownSet:
        """Return the newest set that this state or a live member knows."""
        own = KnownSet(*self.term, self.master_id or 0, self.sync_set)
        others = (live.known_set for live in alive.heard.values())
        known = [own, *(each for each in others if each is not None)]
        return max(known, key=lambda each: each[:2])

    def is_doubtful(self, alive: Alive) -> bool:
        """Whether this state may be an old copy, so members of its set may lack
        messages. Reasons: the engine doubts the state; a member's log has a newer
        epoch; a member knows a newer set.
        """
        if self.newest_set(alive)[:2] > self.term:
            return True
        if not self.master_epoch:
            return False
        epochs = [live.epoch for live in alive.heard.values()]
        return alive.is_doubtful or max(epochs, default=0) > self.master_epoch

    def without_doubt(self, alive: Alive) -> "Group | None":
        """Return the newest state, if all brokers that may know a newer state have
        reported. These brokers are the members of the newest set, because only they can
        make a later set.
        """
        newest = self.newest_set(alive)
        epochs = [live.epoch for live in alive.heard.values()]
        members = set(newest.members)
        if not members or not members <= alive.heard.keys():
            return None
        if max(epochs) > newest.master_epoch or newest.number >= MAX_EPOCH - 1:
            return None
        master = newest.master_id if newest.master_id in self.members else None
        return replace(
            self,
            master_id=master,
            master_epoch=newest.master_epoch,
            sync_set=tuple(sorted(members)),
            set_epoch=newest.number + 1,
        )


class Outcome(NamedTuple):
    """The next state of a group, and the answer."""

    group: Group | None
    code: int = Code.SUCCESS
    remark: str | None = None
    header: Header | None = None
    body: bytes = b""


Act = Callable[[Group | None], Outcome]
"""One of the functions below, with its request; it maps a state to an outcome."""


def alter_sync_state_set(
    group: Group | None,
    request: headers.AlterSyncStateSetRequestHeader,
    wanted: SyncStateSet,
    alive: Alive,
) -> Outcome:
    """1001: the master changes the set."""
    if group is None:
        return Outcome(
            None, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            "Broker metadata is not existed",
        )  # fmt: skip
    ids = tuple(sorted(set(wanted.sync_state_set)))
    is_doubtful = group.is_doubtful(alive)
    sure = group.without_doubt(alive) if is_doubtful else None
    group = sure or group
    if refusal := _refusal_of_set(group, request, ids, wanted, alive):
        return Outcome(group, *refusal)
    if is_doubtful and sure is None:
        code = Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        return Outcome(group, code, _why_stale(group, alive))
    epoch = max(group.set_epoch, wanted.sync_state_set_epoch) + 1
    changed = replace(group, sync_set=ids, set_epoch=epoch).with_confirmed(alive)
    header = headers.AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=epoch)
    return Outcome(changed, header=header, body=changed.set_body())


def _refusal_of_set(
    group: Group,
    request: headers.AlterSyncStateSetRequestHeader,
    ids: tuple[int, ...],
    wanted: SyncStateSet,
    alive: Alive,
) -> tuple[Code, str] | None:
    """Return code and remark, in the order of Java's checks.

    Java refuses every other epoch of the set. A larger epoch of the set from the master
    of this epoch proves that the controller's state is an old copy. So the master is
    right.
    """
    rejecting = "Rejecting alter syncStateSet request because"
    known = f"{rejecting} the current"
    if ids == group.sync_set:
        return (
            Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            "The newSyncStateSet is equal with oldSyncStateSet, no needed to update "
            "syncStateSet",
        )
    if group.master_id is None or request.master_broker_id != group.master_id:
        leader, other = (
            _java_text(group.master_id),
            _java_text(request.master_broker_id),
        )
        why = f"{known} leader is:{{{leader}}}, not {{{other}}}"
        return Code.CONTROLLER_INVALID_MASTER, why
    if request.master_epoch != group.master_epoch:
        epochs = f"{{{group.master_epoch}}}, not {{{_java_text(request.master_epoch)}}}"
        why = f"{known} master epoch is:{epochs}"
        return Code.CONTROLLER_FENCED_MASTER_EPOCH, why
    if not group.set_epoch <= wanted.sync_state_set_epoch < MAX_EPOCH:
        epochs = f"{{{group.set_epoch}}}, not {{{wanted.sync_state_set_epoch}}}"
        why = f"{known} syncStateSet epoch is:{epochs}"
        return Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, why
    for each in ids:
        if each not in group.members:
            why = f"{rejecting} the replicas {{{each}}} don't exist"
            return Code.CONTROLLER_INVALID_REPLICAS, why
        if not alive.is_alive(each):
            why = f"{rejecting} the replicas {{{each}}} don't alive"
            return Code.CONTROLLER_BROKER_NOT_ALIVE, why
    if group.master_id not in ids:
        return (
            Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"{rejecting} the newSyncStateSet don't contains origin leader "
            f"{{{group.master_id}}}",
        )
    return None


def elect_master(
    group: Group | None,
    request: headers.ElectMasterRequestHeader,
    alive: Alive,
    *,
    is_unclean: bool,
) -> Outcome:
    """1002: a broker, an operator or the controller (id -1) asks for a master.

    is_unclean: members outside of the set may become master; messages that they lack
    are lost. Java's first master may be an unregistered broker; here it is a member.
    """
    if group is None:
        remark = "Broker hasn't been registered"
        return Outcome(None, Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark)
    is_doubtful = group.is_doubtful(alive)
    if is_doubtful and not request.designate_elect:
        sure = group.without_doubt(alive)
        if sure is None:
            remark = _why_stale(group, alive)
            return Outcome(group, Code.CONTROLLER_ELECT_MASTER_FAILED, remark)
        group, is_doubtful = sure, False
    chosen = _choose_master(group, request, alive, is_unclean=is_unclean)
    if chosen is not None and chosen == group.master_id and not is_doubtful:
        return _answer_kept(group)
    if chosen is not None:
        return _elect_member(group, chosen, alive)
    if request.broker_id == NOBODY and group.master_epoch < MAX_EPOCH:
        changed = replace(group, master_id=None, master_epoch=group.master_epoch + 1)
        remark = "Old master has down and failed to elect a new broker master"
        return Outcome(changed, Code.CONTROLLER_MASTER_NOT_AVAILABLE, remark)
    remark = "Failed to elect a new master"
    return Outcome(group, Code.CONTROLLER_ELECT_MASTER_FAILED, remark)


def _choose_master(
    group: Group,
    request: headers.ElectMasterRequestHeader,
    alive: Alive,
    *,
    is_unclean: bool,
) -> int | None:
    asker = request.broker_id
    if group.master_epoch == 0 and asker in group.members:
        return asker
    wanted = asker if request.designate_elect and asker != NOBODY else None
    chosen = choose(group.sync_set, group.master_id, wanted, alive)
    if chosen is None and is_unclean:
        return choose(tuple(group.members), group.master_id, wanted, alive)
    return chosen


def _why_stale(group: Group, alive: Alive) -> str:
    known = [live.epoch for live in alive.heard.values()]
    newest = group.newest_set(alive)
    epoch = max([newest.master_epoch, *known])
    what = f"the controller's state of {group.name} may be an old copy"
    if epoch > group.master_epoch:
        what = (
            f"brokers of {group.name} know master epoch {epoch}, the controller knows "
            f"{group.master_epoch}: the controller's state is an old copy"
        )
    missing = sorted(set(newest.members) - alive.heard.keys())
    waits = f" It waits for brokers {', '.join(map(str, missing))}." if missing else ""
    return (
        f"{what}.{waits} Find the broker with all messages "
        "(getBrokerEpoch) and make it master with electMaster"
    )


def _answer_kept(group: Group) -> Outcome:
    remark = (
        f"The old master {group.master_id} is still alive, not need to elect new "
        f"master for broker {group.name}"
    )
    body = ElectMasterResponseBody(sync_state_set=list(group.sync_set))
    header = _master_header(group)
    code = Code.CONTROLLER_MASTER_STILL_EXIST
    return Outcome(group, code, remark, header, body.encode())


def _elect_member(group: Group, chosen: int, alive: Alive) -> Outcome:
    """Make a member the master: alone in the set, in an epoch above all known ones."""
    known = [live.epoch for live in alive.heard.values()]
    known.append(group.newest_set(alive).master_epoch)
    if max(known) >= MAX_EPOCH or group.set_epoch >= MAX_EPOCH:
        remark = f"the epochs of {group.name} are used up"
        return Outcome(group, Code.CONTROLLER_ELECT_MASTER_FAILED, remark)
    changed = replace(
        group,
        master_id=chosen,
        master_epoch=max(known) + 1,
        sync_set=(chosen,),
        set_epoch=group.set_epoch + 1,
    ).with_confirmed(alive)
    addresses = {each: member.address for each, member in group.members.items()}
    members = BrokerMemberGroup(
        cluster=group.cluster, broker_name=group.name, broker_addrs=addresses
    )
    body = ElectMasterResponseBody(
        cluster=group.cluster,
        broker_name=group.name,
        broker_addrs=addresses,
        broker_member_group=members,
        sync_state_set=[chosen],
    )
    return Outcome(changed, header=_master_header(changed), body=body.encode())


def _master_header(group: Group) -> headers.ElectMasterResponseHeader:
    return headers.ElectMasterResponseHeader(
        master_broker_id=group.master_id,
        master_address=group.address_of(group.master_id),
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.set_epoch,
    )


def needs_election(group: Group, alive: Alive) -> bool:
    """Whether the master is dead and another member is alive."""
    if group.is_doubtful(alive):
        return group.without_doubt(alive) is not None
    is_orphan = group.master_id is not None and not alive.is_alive(group.master_id)
    return is_orphan and bool(alive.heard)


def register(
    group: Group | None,
    request: headers.RegisterBrokerToControllerRequestHeader,
    alive: Alive,
) -> Outcome:
    """1003: a broker with an id starts; the answer names the master if it is alive.

    In Java a second broker with a copied id replaces the address of the first broker.
    rmq refuses it while the first broker is alive.
    """
    needed = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    name, broker_id = request.broker_name, request.broker_id
    if group is None:
        remark = f"Broker-set: {name} hasn't been registered in controller"
        return Outcome(None, needed, remark)
    member = group.members.get(broker_id) if broker_id is not None else None
    if member is None:
        remark = (
            f"BrokerId: {_java_text(broker_id)} hasn't been registered in broker-set: "
        )
        return Outcome(group, needed, remark + group.name)
    if refusal := _refusal_of_place(group, request.cluster_name):
        return Outcome(group, Code.CONTROLLER_INVALID_REQUEST, refusal)
    address = request.broker_address or ""
    if not 0 < len(address) <= MAX_NAME_LENGTH:
        return Outcome(
            group, Code.CONTROLLER_INVALID_REQUEST, _bad_field("brokerAddress")
        )
    if address != member.address and broker_id in alive.heard:
        remark = (
            f"broker {broker_id} of {group.name} is alive at {member.address}; "
            f"{address} has a copy of its brokerIdentity file: remove the copy, and "
            f"{address} gets an id of its own"
        )
        return Outcome(group, Code.CONTROLLER_INVALID_REQUEST, remark)
    assert broker_id is not None, "it is a member"
    moved = Member(address, member.check_code)
    changed = replace(group, members={**group.members, broker_id: moved})
    header = headers.RegisterBrokerToControllerResponseHeader(
        cluster_name=request.cluster_name, broker_name=group.name
    )
    if alive.is_alive(changed.master_id):
        header.master_broker_id = changed.master_id
        header.master_address = changed.address_of(changed.master_id)
        header.master_epoch = changed.master_epoch
        header.sync_state_set_epoch = changed.set_epoch
    return Outcome(changed, header=header, body=changed.set_body())


def next_broker_id(
    group: Group | None, request: headers.GetNextBrokerIdRequestHeader
) -> Outcome:
    """1012: the id that a new broker may request."""
    header = headers.GetNextBrokerIdResponseHeader(
        cluster_name=request.cluster_name,
        broker_name=request.broker_name,
        next_broker_id=group.next_id if group else FIRST_ID,
    )
    return Outcome(group, header=header)


def apply_broker_id(
    group: Group | None, request: headers.ApplyBrokerIdRequestHeader
) -> Outcome:
    """1013: a new broker gets an id; with the same code it may ask again.

    The next id is larger than all assigned ids. Java counts the assigned ids: after a
    larger id was taken, it offers ids that it refuses.
    """
    invalid = Code.CONTROLLER_BROKER_ID_INVALID
    name, cluster = request.broker_name or "", request.cluster_name or ""
    broker_id, code = request.applied_broker_id, request.register_check_code or ""
    address = code.partition(";")[0]
    for field, text in (
        ("clusterName", cluster), ("brokerName", name), ("registerCheckCode", address),
    ):  # fmt: skip
        if not 0 < len(text) <= MAX_NAME_LENGTH:
            return Outcome(group, Code.CONTROLLER_INVALID_REQUEST, _bad_field(field))
    if broker_id is None or not FIRST_ID <= broker_id < MAX_EPOCH:
        return Outcome(group, invalid, _bad_field("appliedBrokerId"))
    header = headers.ApplyBrokerIdResponseHeader(cluster_name=cluster, broker_name=name)
    member = Member(address, code[: 2 * MAX_NAME_LENGTH])
    if group is None:
        if broker_id != FIRST_ID:
            remark = (
                f"Broker-set: {name} hasn't been registered in controller, but broker "
                f"try to apply brokerId: {broker_id}"
            )
            return Outcome(None, invalid, remark)
        members, following = {broker_id: member}, broker_id + 1
        new = Group(cluster=cluster, name=name, members=members, next_id=following)
        return Outcome(new, header=header)
    if refusal := _refusal_of_place(group, cluster):
        return Outcome(group, Code.CONTROLLER_INVALID_REQUEST, refusal)
    known = group.members.get(broker_id)
    if known is not None and known.check_code == member.check_code:
        return Outcome(group, header=header)
    if known is not None:
        remark = f"Fail to apply brokerId: {broker_id} in broker-set: {name}"
        return Outcome(group, invalid, remark)
    if len(group.members) >= MAX_MEMBERS:
        remark = f"broker-set {name} has {MAX_MEMBERS} brokers: remove dead brokers"
        return Outcome(group, invalid, remark)
    changed = replace(
        group,
        members={**group.members, broker_id: member},
        next_id=max(group.next_id, broker_id + 1),
    )
    return Outcome(changed, header=header)


def _refusal_of_place(group: Group, cluster: str | None) -> str:
    """Return the reason why a broker of this cluster cannot be in the group; empty if
    there is no reason.
    """
    if cluster == group.cluster:
        return ""
    return f"broker-set {group.name} belongs to cluster {group.cluster}, not {cluster}"


def replica_info(group: Group | None) -> Outcome:
    """1004: master and set, as brokers ask for them."""
    if group is None:
        remark = "Broker metadata is not existed"
        return Outcome(None, Code.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark)
    header = headers.GetReplicaInfoResponseHeader(
        master_broker_id=group.master_id,
        master_address=group.address_of(group.master_id),
        master_epoch=group.master_epoch,
    )
    return Outcome(group, header=header, body=group.set_body())


def replicas_of(group: Group, alive: Alive) -> ReplicasInfo:
    """Return the group for 1006, as tools show it."""
    return ReplicasInfo(
        master_broker_id=group.master_id,
        master_address=group.address_of(group.master_id),
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.set_epoch,
        in_sync_replicas=_member_identities(group, group.sync_set, alive),
        not_in_sync_replicas=_member_identities(
            group, sorted(group.members.keys() - set(group.sync_set)), alive
        ),
    )


def _member_identities(
    group: Group, ids: Iterable[int], alive: Alive
) -> list[ReplicaIdentity]:
    return [
        ReplicaIdentity(
            broker_name=group.name,
            broker_id=each,
            broker_address=group.address_of(each),
            alive=each in alive.heard,
        )
        for each in ids
    ]


def clean(
    group: Group | None,
    request: headers.CleanControllerBrokerDataRequestHeader,
    alive: Alive,
) -> Outcome:
    """1011: remove brokers that are gone, or the whole group.

    With `is_clean_living_broker` Java removes the group even if ids are named.
    """
    invalid = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    listed = (request.broker_controller_ids_to_clean or "").strip()
    try:
        ids = {int(text) for text in listed.split(";")} if listed else set()
    except ValueError:
        remark = (
            "Please set the option <brokerControllerIdsToClean> according to the "
            f"format, exception: {listed[:MAX_NAME_LENGTH]}"
        )
        return Outcome(group, invalid, remark)
    name = request.broker_name
    if group is None:
        remark = f"Broker {name} is not existed,clean broker data failure."
        return Outcome(None, invalid, remark)
    if not request.is_clean_living_broker:
        if not ids and group.master_id is not None:
            remark = f"Broker {name} is still alive, clean up failure"
            return Outcome(group, invalid, remark)
        for each in sorted(ids):
            if alive.is_alive(each):
                remark = f"Broker [{name},  {each}] is still alive, clean up failure"
                return Outcome(group, invalid, remark)
    return Outcome(_remove_members(group, ids))


def _remove_members(group: Group, ids: set[int]) -> Group | None:
    """Remove members; the whole group if no ids are given or no set is left."""
    members = {
        each: member for each, member in group.members.items() if each not in ids
    }
    left = tuple(each for each in group.sync_set if each not in ids)
    if not ids or not members or (group.sync_set and not left):
        return None
    changed = replace(group, members=members, sync_set=left)
    if left != group.sync_set:
        changed = replace(changed, set_epoch=group.set_epoch + 1)
    if group.master_id in ids:
        epoch = group.master_epoch + 1
        changed = replace(changed, master_id=None, master_epoch=epoch)
    return changed


def _bad_field(field: str) -> str:
    return f"{field} is empty, too long or too large"


def _java_text(value: int | None) -> str:
    """Write a number as Java's texts write a boxed one."""
    return "null" if value is None else str(value)
