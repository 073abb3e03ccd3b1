"""Mistakes in the production code, each of which the simulation has to find.

`put_in` replaces functions in the nodes of this process; there is no other way to these
mistakes.  ARCHITECTURE.md, Simulation by seed, names the rules.
"""

from typing import Any, NamedTuple

from rmq._fastpath.log.block_digests import BlockDigests
from rmq.cluster.controller_role import Term
from rmq.cluster.fetcher import ReplicaFetcher
from rmq.cluster.healing import LogHealer
from rmq.cluster.log_server import LogServer
from rmq.cluster.membership import Membership
from rmq.cluster.replication import Replication
from rmq.cluster.session import ReplicaSession
from rmq.cluster.slave_acks import SetAcks
from rmq.cluster.sync_set import SyncSet
from rmq.controller import groups
from rmq.controller.election import choose
from rmq.store import entry_check, log_digests
from rmq.store.claim import ClaimFile
from rmq.store.log_digests import LogDigests
from rmq.store.positions import LogPositions
from rmq.store.queues.consume_queue import ENTRY_SIZE, ConsumeQueue
from rmq.store.recovery import Recovery
from rmq_plugins.send.store_once import StoreOnce
from tests.simulation.damage import FORGET, LIE, ROT, ROT_OLD, UNLINK

MINUTES = 2.0
"""Simulated time in which each mistake is found."""


class Mutation(NamedTuple):
    """A mistake, and a seed that has found it: where the search for one begins."""

    rule: str
    mistake: str
    place: object
    name: str
    fault: Any
    """What is there instead."""

    seed: int
    steps: int
    """So many disturbances sufficed."""

    damages: tuple[str, ...] = ()
    """Further kinds of disturbances that it takes."""


def counts_the_connected(group: SyncSet) -> frozenset[int]:
    everybody = group.members | (group.requested or group.members)
    return everybody & (group._ack_offsets.keys() | {group.own_id})


def leaves_entries(_queue: ConsumeQueue, _end: int) -> int:
    return 0


def reports_what_is_written(replica: ReplicaFetcher) -> int:
    return replica._writer.whole_offset


def takes_what_was_sent(
    primary: LogServer, follower: ReplicaSession, _offset: int
) -> None:
    sent = follower.next_offset
    primary.acks.report(follower, sent, sent=sent)
    primary.acknowledge()
    primary._push_soon()


awaits_replicas = LogPositions.await_replicas


def waits_for_replicas_alone(positions: LogPositions, *, is_disk_awaited: bool) -> Any:
    del is_disk_awaited
    return awaits_replicas(positions, is_disk_awaited=False)


def comes_forward(_term: Term) -> bool:
    return False


joins = Replication._join_group


def joins_without_limit(replication: Replication, membership: Membership) -> None:
    joins(replication, membership)
    replication._store.positions.visible_limit = None


def has_acknowledged_all(acks: SetAcks) -> int:
    return acks._end()


def cuts_there(_self: Any, _argument: Any) -> None:
    pass


def believes_its_state(_group: groups.Group, _alive: Any) -> bool:
    return False


def reads_no_claim(_file: ClaimFile, _checkpoint: Any) -> int:
    return 0


async def opens_damaged(_healer: LogHealer, open_store: Any) -> Any:
    return open_store()


def cuts_confirmed(_replica: ReplicaFetcher, _point: int) -> None:
    pass


def reads_no_digests(_digests: LogDigests, file: Any) -> BlockDigests:
    return BlockDigests(file.size)


def believes_entries(_file: Any, entries: bytes, *_: Any, **_settings: Any) -> int:
    return len(entries) // ENTRY_SIZE


def takes_any_bytes(*_: Any) -> bool:
    return True


def chooses_any_member(
    group: groups.Group, request: Any, alive: Any, *, is_unclean: bool
) -> int | None:
    asker = request.broker_id
    if group.master_epoch == 0 and asker in group.members:
        return asker
    return choose(tuple(group.members), group.master_id, None, alive)


def reads_no_keys(keys: StoreOnce) -> None:
    keys.config_changed()


MUTATIONS = {
    "shrinks-at-once": Mutation(
        "S1", "a broker whose connection is lost no longer counts",
        SyncSet, "required_acks", property(counts_the_connected), 11, 13,
    ),
    "leaves-entries": Mutation(
        "S3", "a cut leaves the entries of queues",
        ConsumeQueue, "truncate", leaves_entries, 11, 13,
    ),
    "reports-written": Mutation(
        "S4", "under SYNC_FLUSH a slave reports what its disk does not have yet",
        ReplicaFetcher, "safe_offset", property(reports_what_is_written), 48, 24,
    ),
    "acknowledges-written": Mutation(
        "S4", "under SYNC_FLUSH a master does not wait for its own disk",
        LogPositions, "await_replicas", waits_for_replicas_alone, 48, 22,
    ),
    "takes-sent-for-stored": Mutation(
        "S4", "what was sent to a slave counts as reported",
        LogServer, "_apply_report", takes_what_was_sent, 86, 10,
    ),
    "comes-forward": Mutation(
        "S7", "a broker that lost the end of its log does not step aside",
        Term, "must_defer", property(comes_forward), 3, 40,
    ),
    "forgets-keys": Mutation(
        "S15", "a new master does not know the keys of sends that are tried again",
        StoreOnce, "_load", reads_no_keys, 1, 6,
    ),
    "master-shows-all": Mutation(
        "S10", "readers of a master see what the set does not have yet",
        Replication, "_join_group", joins_without_limit, 11, 13,
    ),
    "waits-for-nobody": Mutation(
        "S12", "senders are answered before all of the set have their messages",
        SetAcks, "replicated_offset", has_acknowledged_all, 4, 38,
    ),
    "elects-anybody": Mutation(
        "S1", "the controller elects a broker that is not in the set",
        groups, "_chosen", chooses_any_member, 4, 5,
    ),
    "cuts-damage": Mutation(
        "S13", "a start cuts a log that ends before its claim",
        Recovery, "_report_damage", cuts_there, 0, 7, (ROT,),
    ),
    "reads-no-claim": Mutation(
        "S13", "a start does not read the claim",
        ClaimFile, "promised_end", reads_no_claim, 0, 7, (ROT,),
    ),
    "opens-damaged": Mutation(
        "S13", "a member whose log is short takes part",
        LogHealer, "open", opens_damaged, 0, 9, (UNLINK,),
    ),
    "cuts-confirmed": Mutation(
        "S13", "a slave cuts what the group has confirmed",
        ReplicaFetcher, "_refuse_below_confirmed", cuts_confirmed, 0, 11, (LIE,),
    ),
    "reads-unchecked": Mutation(
        "S13", "readers compare no digests of an earlier run",
        LogDigests, "_load", reads_no_digests, 0, 8, (ROT_OLD,),
    ),
    "believes-queues": Mutation(
        "S13", "a queue alone says where the log ends",
        entry_check, "count_matching", believes_entries, 1, 21, ("rot-queue",),
    ),
    "takes-any-bytes": Mutation(
        "S13", "a block takes any bytes of another broker",
        log_digests, "matches_digest", takes_any_bytes, 1, 15, (ROT_OLD,),
    ),
    "believes-its-state": Mutation(
        "S14", "a controller believes its state, also an older copy",
        groups.Group, "is_doubtful", believes_its_state, 9, 2, (FORGET,),
    ),
}  # fmt: skip


def put_in(name: str) -> None:
    """Have the nodes of this process make a mistake."""
    mutation = MUTATIONS[name]
    assert hasattr(mutation.place, mutation.name), f"nothing is called {mutation.name}"
    setattr(mutation.place, mutation.name, mutation.fault)
