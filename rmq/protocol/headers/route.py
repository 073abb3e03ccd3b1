"""Headers of the name server: routes, registration, key-value configuration."""

from typing import Final

from rmq.protocol.headers import I32, I64, Header, TopicHeader

DELETED_TOPICS: Final = "rmq.deletedTopics"
"""Field of request 103: topics that the broker has deleted, with commas between."""


class GetRouteInfoRequestHeader(TopicHeader, kw_only=True):
    """Request 105 GET_ROUTEINFO_BY_TOPIC; a request without a topic gets the answer for
    a topic without a route.
    """

    topic: str = ""
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """Request 103 REGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    heartbeat_timeout_millis: I64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: I32 = 0


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """The answer to 103 REGISTER_BROKER."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header, kw_only=True):
    """Request 104 UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """Request 322 QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """The answer to 322 QUERY_DATA_VERSION."""

    changed: bool


class DeleteTopicFromNamesrvRequestHeader(TopicHeader, kw_only=True):
    """Request 216 DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(TopicHeader, kw_only=True):
    """Request 217 REGISTER_TOPIC_IN_NAMESRV."""

    topic: str


class PutKVConfigRequestHeader(Header, kw_only=True):
    """Request 100 PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, kw_only=True):
    """Request 101 GET_KV_CONFIG."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, kw_only=True):
    """The answer to 101 GET_KV_CONFIG."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, kw_only=True):
    """Request 102 DELETE_KV_CONFIG."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, kw_only=True):
    """Request 219 GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class AddWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """Request 327 ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """The answer to 327 ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: I32


class WipeWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """Request 205 WIPE_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """The answer to 205 WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: I32
