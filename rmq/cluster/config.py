"""ReplicationConfig: the keys of replication, with Java's names and defaults."""

import enum
import ipaddress
from collections.abc import Collection

from rmq.config.option import DAY_MS, INT_MAX, LONG_MAX, Configuration, option
from rmq.core.address import DNS
from rmq.core.errors import BadValue
from rmq.remoting.tls import TlsMode
from rmq.store.config import BrokerRole, StoreConfig


class RecoverFromReplicas(enum.Enum):
    """Whether a SYNC_MASTER copies lost messages back from its slaves."""

    ON = "ON"
    OFF = "OFF"
    REQUIRED = "REQUIRED"


class ReplicationConfig(Configuration):
    """Keys of Java's `MessageStoreConfig` that begin with ha, and keys of rmq."""

    ha_listen_port: int = option(
        0,
        key="haListenPort",
        low=0,
        high=65535,
        doc="port from which slaves read the log; 0: listenPort + 1",
    )
    ha_master_address: str = option(
        "",
        key="haMasterAddress",
        doc="address of the master's haListenPort; empty: ask the name servers",
    )
    ha_heartbeat_interval_ms: int = option(
        5_000,
        key="haSendHeartbeatInterval",
        low=1,
        high=DAY_MS,
        doc="time without traffic after which master and slave send a heartbeat",
    )
    ha_silence_limit_ms: int = option(
        20_000,
        key="haHousekeepingInterval",
        low=1,
        high=DAY_MS,
        doc="time without traffic after which master and slave close their connection",
    )
    ha_first_frame_size: int = option(
        32_768,
        key="haTransferBatchSize",
        low=1,
        high=4 << 20,
        doc="maximum bytes of the log in each of the first frames of a connection",
    )
    ha_frame_size: int = option(
        256 << 10,
        key="rmq.haFrameSize",
        low=1,
        high=(4 << 20) - 12,
        doc="maximum bytes of the log in one frame",
    )
    ha_flow_control: bool = option(
        False,
        key="haFlowControlEnable",
        doc="send the log to each slave at most at the rate maxHaTransferByteInSecond",
    )
    ha_bytes_per_second: int = option(
        104_857_600,
        key="maxHaTransferByteInSecond",
        low=1,
        high=LONG_MAX,
        doc=(
            "maximum bytes of the log per second for each slave; needs "
            "haFlowControlEnable"
        ),
    )
    in_sync_replicas: int = option(
        1,
        key="inSyncReplicas",
        low=1,
        high=64,
        doc=(
            "number of brokers, with the master, that must have a message before a "
            "SYNC_MASTER answers its sender"
        ),
    )
    replica_timeout_ms: int = option(
        3_000,
        key="slaveTimeout",
        low=1,
        high=DAY_MS,
        doc=(
            "time that a SYNC_MASTER waits for its slaves; after it the sender gets "
            "FLUSH_SLAVE_TIMEOUT"
        ),
    )
    in_sync_gap: int = option(
        256 << 20,
        key="haMaxGapNotInSync",
        low=1,
        high=LONG_MAX,
        doc="a slave that lacks fewer bytes than this counts as in sync",
    )
    cut_limit: int = option(
        256 << 20,
        key="maxSlaveResendLength",
        low=0,
        high=LONG_MAX,
        doc=(
            "maximum bytes at the end of a slave's log that it replaces by its "
            "master's, if the logs differ; beyond this the slave does not follow"
        ),
    )
    may_discard: bool = option(
        False,
        key="rmq.replicaMayDiscard",
        doc=(
            "a slave may also truncate messages that may have been acknowledged; it "
            "saves them in cut/; set this for one start only, after a decision"
        ),
    )
    may_reseed: bool = option(
        False,
        key="rmq.replicaReseed",
        doc=(
            "a slave moves its log to aside/ and copies the master's whole log, if the "
            "two have no common record or no common offset; set this for one start "
            "only, after a decision"
        ),
    )
    recover_from_replicas: RecoverFromReplicas = option(
        RecoverFromReplicas.ON,
        key="rmq.recoverFromReplicas",
        doc=(
            "ON: a SYNC_MASTER that waits for slaves first copies lost messages back "
            "from its slaves, then accepts messages; REQUIRED: it accepts no messages "
            "until it has reached its slaves. A broker whose log is damaged first gets "
            "the damaged bytes from another broker of its group; it waits for them for "
            "rmq.damagePatienceMs with ON, without a limit with REQUIRED. OFF: neither"
        ),
    )
    heal_bytes_per_s: int = option(
        64 << 20,
        key="rmq.healBytesPerSecond",
        low=1 << 16,
        high=1 << 40,
        doc=(
            "maximum bytes of a damaged log that this broker reads from another broker "
            "per second"
        ),
    )
    ha_peers: str = option(
        "",
        key="rmq.haPeers",
        doc=(
            "addresses and networks, separated by commas, that may read and "
            "acknowledge the log in addition to the registered brokers of the group"
        ),
    )
    ha_tls: TlsMode = option(
        TlsMode.disabled,
        key="rmq.haTls",
        doc=(
            "TLS between the brokers of a group (Java has none), with the keys "
            "tls.server.* and tls.client.*; permissive: slaves may read the log with "
            "or without TLS; enforcing: only with TLS; a slave uses TLS with either "
            "value"
        ),
    )

    is_controlled: bool = option(
        False,
        key="enableControllerMode",
        doc=(
            "a controller elects the master of this broker's group, and another one "
            "when the master dies; brokerRole and brokerId then have no effect"
        ),
    )
    controller_addresses: str = option(
        "",
        key="controllerAddr",
        doc="addresses of the controllers, separated by ;",
    )
    looks_up_controllers: bool = option(
        False,
        key="fetchControllerAddrByDnsLookup",
        doc=(
            "ask every address that DNS has for the hosts of controllerAddr, and look "
            "them up every 120 s"
        ),
    )
    needs_all: bool = option(
        True,
        key="allAckInSyncStateSet",
        doc=(
            "true: answer a sender when all brokers of the sync-state set have its "
            "message; false (Java's default): when inSyncReplicas brokers have it, so "
            "a failover may lose it"
        ),
    )
    least_in_sync: int = option(
        1,
        key="minInSyncReplicas",
        low=1,
        high=64,
        doc="a master whose sync-state set has fewer brokers refuses messages",
    )
    max_lag_ms: int = option(
        15_000,
        key="haMaxTimeSlaveNotCatchup",
        low=1,
        high=DAY_MS,
        doc="time after which a slave that has not caught up leaves the sync-state set",
    )
    wants_newest_file: bool = option(
        False,
        key="syncFromLastFile",
        doc="a new member of the group copies only the newest file of the log",
    )
    is_learner: bool = option(
        False,
        key="asyncLearner",
        doc=(
            "this broker copies the log, but never joins the sync-state set and never "
            "becomes the master"
        ),
    )
    heartbeat_interval_ms: int = option(
        1_000,
        key="brokerHeartbeatInterval",
        low=10,
        high=DAY_MS,
        doc=(
            "pause between heartbeats to the controllers, or with "
            "enableSlaveActingMaster to the name servers"
        ),
    )
    acting_master_enable: bool = option(
        False,
        key="enableSlaveActingMaster",
        doc=(
            "while the master is away, the slave with the smallest id serves readers "
            "as the master; name servers need supportActingMaster"
        ),
    )
    inactive_timeout_ms: int = option(
        10_000,
        key="brokerNotActiveTimeoutMillis",
        low=100,
        high=DAY_MS,
        doc=(
            "with enableSlaveActingMaster: time without a heartbeat after which name "
            "servers remove this broker"
        ),
    )
    group_look_period_ms: int = option(
        1_000,
        key="syncBrokerMemberGroupPeriod",
        low=10,
        high=DAY_MS,
        doc=(
            "with enableSlaveActingMaster: pause between two requests of a slave for "
            "the members of its group"
        ),
    )
    skips_pre_online: bool = option(
        False,
        key="skipPreOnline",
        doc=(
            "with enableSlaveActingMaster: a master starts without the offsets that "
            "consumers committed at its slaves"
        ),
    )
    remote_escape_enable: bool = option(
        False,
        key="enableRemoteEscape",
        doc=(
            "with enableSlaveActingMaster: a slave that acts as the master sends open "
            "transactions, and delayed and timed messages when they are due, to other "
            "broker groups"
        ),
    )
    lock_in_strict_mode: bool = option(
        False,
        key="lockInStrictMode",
        doc=(
            "without a controller: an orderly consumer gets a queue only if more than "
            "half of totalReplicas brokers of the group lock it"
        ),
    )
    total_replicas: int = option(
        1,
        key="totalReplicas",
        low=1,
        high=100,
        doc="number of brokers of the group, for lockInStrictMode",
    )
    controller_timeout_ms: int = option(
        10_000,
        key="controllerHeartBeatTimeoutMills",
        low=100,
        high=DAY_MS,
        doc=(
            "time without a heartbeat after which the controller treats a broker as "
            "dead"
        ),
    )
    group_period_ms: int = option(
        5_000,
        key="syncBrokerMetadataPeriod",
        low=10,
        high=DAY_MS,
        doc="pause between two requests to the controller for the master and the "
        "sync-state set",
    )
    leader_period_ms: int = option(
        10_000,
        key="syncControllerMetadataPeriod",
        low=10,
        high=DAY_MS,
        doc="pause between two requests to the controllers for their leader",
    )
    set_period_ms: int = option(
        5_000,
        key="checkSyncStateSetPeriod",
        low=10,
        high=DAY_MS,
        doc="pause between two searches of a master for slaves that must leave the "
        "sync-state set",
    )
    election_priority: int = option(
        INT_MAX,
        key="brokerElectionPriority",
        doc="among brokers with the same log the one with the smallest number becomes "
        "the master",
    )
    epoch_path: str = option(
        "",
        key="storePathEpochFile",
        path=True,
        doc="file of the epochs; default: epochFileCheckpoint below the root",
    )
    identity_path: str = option(
        "",
        key="storePathBrokerIdentity",
        path=True,
        doc="file of the id that the controller gave; default: brokerIdentity below "
        "the root",
    )

    def __post_init__(self) -> None:
        """Refuse invalid addresses, and a group without its controllers."""
        self.peer_networks()
        if self.is_controlled and not self.controller_list():
            raise BadValue(
                "enableControllerMode",
                "true",
                "set controllerAddr to the addresses of the controllers",
            )

    def controller_list(self) -> tuple[str, ...]:
        """Return the sources of the controllers' addresses.

        See `rmq/core/address.py`.
        """
        prefix = DNS if self.looks_up_controllers else ""
        texts = (text.strip() for text in self.controller_addresses.split(";"))
        return tuple(prefix + text for text in texts if text)

    def heals_log(self, known: Collection[str]) -> bool:
        """Whether a start asks the other brokers for damaged bytes of the log.

        `known` are the addresses of the group's brokers, as name servers named them.
        """
        is_off = self.recover_from_replicas is RecoverFromReplicas.OFF
        return self.is_controlled or (bool(known) and not is_off)

    @property
    def waits_for_peers(self) -> bool:
        """Whether a start with a damaged log waits without a time limit for other
        brokers, which have the missing bytes.
        """
        is_required = self.recover_from_replicas is RecoverFromReplicas.REQUIRED
        return self.is_controlled or is_required

    def recovers_from_slaves(self, store: StoreConfig) -> bool:
        """Whether a start asks the slaves for messages that this broker has lost."""
        return (
            not self.is_controlled
            and store.broker_role is BrokerRole.SYNC_MASTER
            and self.in_sync_replicas > 1
            and self.recover_from_replicas is not RecoverFromReplicas.OFF
        )

    def peer_networks(
        self,
    ) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """Return the addresses and networks in `ha_peers`."""
        texts = [text.strip() for text in self.ha_peers.split(",") if text.strip()]
        try:
            return tuple(ipaddress.ip_network(text, strict=False) for text in texts)
        except ValueError as error:
            raise BadValue("rmq.haPeers", self.ha_peers, error) from error
