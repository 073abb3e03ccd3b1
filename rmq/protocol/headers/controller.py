"""Headers between brokers, tools and a controller: requests 1001 to 1013.

Java's controllers on JRaft use `invoke_time`, the sender's time in ms, as the time of
the request; other controllers ignore it. A field that Java boxes may be absent: an
answer without `master_broker_id` means that the group has no master.
"""

from rmq.protocol.headers import I32, I64, Header


class AlterSyncStateSetRequestHeader(Header, kw_only=True):
    """Request 1001 CONTROLLER_ALTER_SYNC_STATE_SET; the body is a `SyncStateSet`."""

    broker_name: str | None = None
    master_broker_id: I64 | None = None
    master_epoch: I32 | None = None
    invoke_time: I64 | None = None


class AlterSyncStateSetResponseHeader(Header, kw_only=True):
    """The answer to 1001; the body is the new `SyncStateSet`."""

    new_sync_state_set_epoch: I32 = 0


class ElectMasterRequestHeader(Header, kw_only=True):
    """Request 1002 CONTROLLER_ELECT_MASTER.

    A broker sends its own id. A tool sends the wanted id, with `designate_elect`. A
    controller uses -1.
    """

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: I64 = -1
    designate_elect: bool = False
    invoke_time: I64 | None = None


class ElectMasterResponseHeader(Header, kw_only=True):
    """The answer to 1002; the body is an `ElectMasterResponseBody`."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


class RegisterBrokerToControllerRequestHeader(Header, kw_only=True):
    """Request 1003 CONTROLLER_REGISTER_BROKER."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: I64 | None = None
    broker_address: str | None = None
    invoke_time: I64 | None = None


class RegisterBrokerToControllerResponseHeader(Header, kw_only=True):
    """The answer to 1003; the body is a `SyncStateSet`."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


class GetReplicaInfoRequestHeader(Header, kw_only=True):
    """Request 1004 CONTROLLER_GET_REPLICA_INFO."""

    broker_name: str | None = None


class GetReplicaInfoResponseHeader(Header, kw_only=True):
    """The answer to 1004; the body is a `SyncStateSet`."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None


class GetMetaDataResponseHeader(Header, kw_only=True):
    """The answer to 1005 CONTROLLER_GET_METADATA_INFO, which has no request header.

    peers: `id:address;…` from DLedger, `address;…` from other controllers.
    """

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class NotifyBrokerRoleChangedRequestHeader(Header, kw_only=True):
    """Request 1008 NOTIFY_BROKER_ROLE_CHANGED, from a controller to brokers; the
    body is a `SyncStateSet`.
    """

    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None
    master_broker_id: I64 | None = None


class CleanControllerBrokerDataRequestHeader(Header, kw_only=True):
    """Request 1011 CLEAN_BROKER_DATA.

    broker_controller_ids_to_clean: ids with `;` between them; without this field the
    whole group is removed.
    """

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: I64 | None = None


class GetNextBrokerIdRequestHeader(Header, kw_only=True):
    """Request 1012 CONTROLLER_GET_NEXT_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None


class GetNextBrokerIdResponseHeader(Header, kw_only=True):
    """The answer to 1012."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: I64 | None = None


class ApplyBrokerIdRequestHeader(Header, kw_only=True):
    """Request 1013 CONTROLLER_APPLY_BROKER_ID.

    register_check_code: `address;ms`; a repeated request with the same code gets the
    same answer.
    """

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: I64 | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResponseHeader(Header, kw_only=True):
    """The answer to 1013."""

    cluster_name: str | None = None
    broker_name: str | None = None
