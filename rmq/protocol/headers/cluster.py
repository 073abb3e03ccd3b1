"""Headers about the brokers of a cluster and their replicas."""

from rmq.protocol.headers import I32, I64, Header


class GetBrokerMemberGroupRequestHeader(Header, kw_only=True):
    """Request 901 GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


class AddBrokerRequestHeader(Header, kw_only=True):
    """Request 902 ADD_BROKER."""

    config_path: str | None = None


class RemoveBrokerRequestHeader(Header, kw_only=True):
    """Request 903 REMOVE_BROKER."""

    broker_cluster_name: str
    broker_name: str
    broker_id: I64


class BrokerHeartbeatRequestHeader(Header, kw_only=True):
    """Request 904 BROKER_HEARTBEAT."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: I64 | None = None
    epoch: I32 | None = None
    max_offset: I64 | None = None
    confirm_offset: I64 | None = None
    heartbeat_timeout_mills: I64 | None = None
    election_priority: I32 | None = None
    rmq_set: str | None = None
    """The newest sync state set that the broker knows; only rmq reads it."""


class GetTopicsByClusterRequestHeader(Header, kw_only=True):
    """Request 224 GET_TOPICS_BY_CLUSTER."""

    cluster: str


class NotifyMinBrokerIdChangeRequestHeader(Header, kw_only=True):
    """Request 905 NOTIFY_MIN_BROKER_ID_CHANGE."""

    min_broker_id: I64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class ExchangeHAInfoRequestHeader(Header, kw_only=True):
    """Request 906 EXCHANGE_BROKER_HA_INFO."""

    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(Header, kw_only=True):
    """The answer to 906 EXCHANGE_BROKER_HA_INFO."""

    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetHeader(Header, kw_only=True):
    """Request 908 RESET_MASTER_FLUSH_OFFSET."""

    master_flush_offset: I64
