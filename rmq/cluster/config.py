"""ReplicationConfig: the keys of replication, with Java's names and defaults."""

import enum
import ipaddress

from rmq.config.option import DAY_MS, INT_MAX, LONG_MAX, Configuration, option
from rmq.core.errors import BadValue
from rmq.remoting.tls import TlsMode
from rmq.store.config import BrokerRole, StoreConfig


class RecoverFromReplicas(enum.Enum):
    """Whether a SYNC_MASTER takes back what it lost."""

    ON = "ON"
    OFF = "OFF"
    REQUIRED = "REQUIRED"


class ReplicationConfig(Configuration):
    """The part of Java's `MessageStoreConfig` that begins with ha, and ours."""

    ha_listen_port: int = option(
        0,
        key="haListenPort",
        low=0,
        high=65535,
        doc="port from which replicas read the log; 0: the one after listenPort",
    )
    ha_master_address: str = option(
        "",
        key="haMasterAddress",
        doc="address of the master's haListenPort; empty: name servers know it",
    )
    ha_heartbeat_interval_ms: int = option(
        5_000,
        key="haSendHeartbeatInterval",
        low=1,
        high=DAY_MS,
        doc="master and replica say that they are there after such a silence",
    )
    ha_silence_limit_ms: int = option(
        20_000,
        key="haHousekeepingInterval",
        low=1,
        high=DAY_MS,
        doc="a connection between master and replica ends after such a silence",
    )
    ha_first_frame_size: int = option(
        32_768,
        key="haTransferBatchSize",
        low=1,
        high=4 << 20,
        doc="most bytes of the log in the first frames of a connection",
    )
    ha_frame_size: int = option(
        256 << 10,
        key="rmq.haFrameSize",
        low=1,
        high=(4 << 20) - 12,
        doc="most bytes of the log in one frame",
    )
    ha_flow_control: bool = option(
        False,
        key="haFlowControlEnable",
        doc="send each replica at most maxHaTransferByteInSecond",
    )
    ha_bytes_per_second: int = option(
        104_857_600,
        key="maxHaTransferByteInSecond",
        low=1,
        high=LONG_MAX,
        doc="most bytes of the log that a replica gets in a second, with "
        "haFlowControlEnable",
    )
    in_sync_replicas: int = option(
        1,
        key="inSyncReplicas",
        low=1,
        high=64,
        doc="brokers, the master included, that have a message of a SYNC_MASTER before "
        "its sender is answered",
    )
    replica_timeout_ms: int = option(
        3_000,
        key="slaveTimeout",
        low=1,
        high=DAY_MS,
        doc="how long a SYNC_MASTER's sender waits for replicas: then the answer is "
        "FLUSH_SLAVE_TIMEOUT",
    )
    in_sync_gap: int = option(
        256 << 20,
        key="haMaxGapNotInSync",
        low=1,
        high=LONG_MAX,
        doc="a replica that lacks fewer bytes than this is shown as in sync",
    )
    cut_limit: int = option(
        256 << 20,
        key="maxSlaveResendLength",
        low=0,
        high=LONG_MAX,
        doc="a slave whose log went on differently from its master's cuts at most so "
        "many bytes, and gets the master's instead",
    )
    may_discard: bool = option(
        False,
        key="rmq.replicaMayDiscard",
        doc="a slave cuts messages, too, that may have been acknowledged, and keeps "
        "them in cut/: set it for one start, when you have decided",
    )
    may_reseed: bool = option(
        False,
        key="rmq.replicaReseed",
        doc="a slave whose log has nothing in common with its master's, or ends before "
        "that begins, sets it aside in aside/ and gets the master's: once, and for one "
        "start, when you have decided",
    )
    recover_from_replicas: RecoverFromReplicas = option(
        RecoverFromReplicas.ON,
        key="rmq.recoverFromReplicas",
        doc="a SYNC_MASTER that waits for slaves gets from these what it has lost, "
        "before it takes messages; REQUIRED: it takes none without them",
    )
    ha_peers: str = option(
        "",
        key="rmq.haPeers",
        doc="addresses and networks, separated by commas, that may read the log beside "
        "the registered brokers of the group, and acknowledge it",
    )
    ha_tls: TlsMode = option(
        TlsMode.disabled,
        key="rmq.haTls",
        doc="TLS between the brokers of a group, which Java's lack, with the keys "
        "tls.server.* and tls.client.*; permissive: slaves may also read the log "
        "without, enforcing: only with it; a slave uses TLS with both",
    )

    is_controlled: bool = option(
        False,
        key="enableControllerMode",
        doc="a controller decides who is the master of this broker's group, and makes "
        "another one when it dies; brokerRole and brokerId have no effect then",
    )
    controller_addresses: str = option(
        "",
        key="controllerAddr",
        doc="addresses of the controllers, with ; between them",
    )
    needs_all: bool = option(
        True,
        key="allAckInSyncStateSet",
        doc="a sender is answered when all brokers of the sync-state set have its "
        "message; false, Java's default: when inSyncReplicas have it, so that a "
        "failover may lose it",
    )
    least_in_sync: int = option(
        1,
        key="minInSyncReplicas",
        low=1,
        high=64,
        doc="a master whose sync-state set has fewer brokers takes no messages",
    )
    max_lag_ms: int = option(
        15_000,
        key="haMaxTimeSlaveNotCatchup",
        low=1,
        high=DAY_MS,
        doc="a slave that was not at the end of the log for so long leaves the "
        "sync-state set",
    )
    wants_newest_file: bool = option(
        False,
        key="syncFromLastFile",
        doc="a new member of the group begins with the newest file of the log",
    )
    is_learner: bool = option(
        False,
        key="asyncLearner",
        doc="this broker gets the log, but is never in the sync-state set, and never "
        "the master",
    )
    controller_heartbeat_ms: int = option(
        1_000,
        key="brokerHeartbeatInterval",
        low=10,
        high=DAY_MS,
        doc="pause between heartbeats to the controllers",
    )
    controller_timeout_ms: int = option(
        10_000,
        key="controllerHeartBeatTimeoutMills",
        low=100,
        high=DAY_MS,
        doc="a broker without a heartbeat for so long is dead for the controller",
    )
    group_period_ms: int = option(
        5_000,
        key="syncBrokerMetadataPeriod",
        low=10,
        high=DAY_MS,
        doc="how often the controller is asked for master and sync-state set",
    )
    leader_period_ms: int = option(
        10_000,
        key="syncControllerMetadataPeriod",
        low=10,
        high=DAY_MS,
        doc="how often the controllers are asked which of them leads",
    )
    set_period_ms: int = option(
        5_000,
        key="checkSyncStateSetPeriod",
        low=10,
        high=DAY_MS,
        doc="how often a master looks for slaves that have to leave the sync-state set",
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
        """Refuse what is no address, and a group without its controllers."""
        self.peer_networks()
        if self.is_controlled and not self.controller_list():
            raise BadValue(
                "enableControllerMode",
                "true",
                "set controllerAddr to the addresses of the controllers",
            )

    def controller_list(self) -> tuple[str, ...]:
        """Return the addresses of the controllers."""
        texts = (text.strip() for text in self.controller_addresses.split(";"))
        return tuple(text for text in texts if text)

    def recovers_from_slaves(self, store: StoreConfig) -> bool:
        """Whether a start asks the slaves for what this broker has lost."""
        return (
            not self.is_controlled
            and store.broker_role is BrokerRole.SYNC_MASTER
            and self.in_sync_replicas > 1
            and self.recover_from_replicas is not RecoverFromReplicas.OFF
        )

    def peer_networks(
        self,
    ) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """Return what `ha_peers` names."""
        texts = [text.strip() for text in self.ha_peers.split(",") if text.strip()]
        try:
            return tuple(ipaddress.ip_network(text, strict=False) for text in texts)
        except ValueError as error:
            raise BadValue("rmq.haPeers", self.ha_peers, error) from error
