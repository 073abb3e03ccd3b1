"""Bodies between brokers, tools and a controller: requests 1001 to 1013.

The bodies of 1009 and 1010 are texts of properties; the body of 1006 is a JSON list of
the names of groups.
"""

from typing import Final

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.bodies.route import BrokerMemberGroup
from rmq.protocol.headers import I32, I64

LAST_EPOCH_END_OFFSET: Final = 2**63 - 1
"""The end of an epoch that is not over."""


class SyncStateSet(Body, kw_only=True):
    """Request and answer of 1001, answer of 1003 and 1004, push 1008.

    The ids of the replicas, with the master, that have all confirmed bytes. The
    epoch counts the changes of the set.
    """

    sync_state_set: list[I64] = field(default_factory=list)
    sync_state_set_epoch: I32 = 0


class ElectMasterResponseBody(BrokerMemberGroup, kw_only=True):
    """Answer to 1002.

    Brokers read `broker_member_group`; mqadmin reads the members next to it, which
    Java's controllers do not write.
    """

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[I64] = field(default_factory=list)


class ReplicaIdentity(Body, kw_only=True):
    """One broker of a group. alive: the controller gets its heartbeats."""

    broker_name: str | None = None
    broker_id: I64 | None = None
    broker_address: str | None = None
    alive: bool | None = None


class ReplicasInfo(Body, kw_only=True):
    """One group of brokers, as its controller knows it."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


class BrokerReplicasInfo(Body, kw_only=True):
    """Answer to 1006: groups by the name of their brokers."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


class EpochEntry(Body, kw_only=True):
    """The part of a log that was written in one epoch: from the start to before the
    end.
    """

    epoch: I32 = 0
    start_offset: I64 = 0
    end_offset: I64 = LAST_EPOCH_END_OFFSET


class EpochEntryCache(Body, kw_only=True):
    """Answer to 1007, by brokers: the epochs of a log, and its end."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: I64 = 0
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: I64 = 0
