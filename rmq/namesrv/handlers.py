"""Requests of a name server. Known in Java as `DefaultRequestProcessor`."""

import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import trio

from rmq._fastpath.bytes.checksum import body_crc
from rmq.config.changes import (
    apply_changes,
    as_properties,
    check_refusals,
    read_changes,
)
from rmq.core.errors import ConfigError, RequestRejected
from rmq.core.logs import Foreign, SparseLog
from rmq.core.threads import in_thread
from rmq.namesrv.answers import AddressFor, RouteAnswers
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.namesrv.kv_config import MAX_WAITING, ORDER_TOPIC_CONFIG, KVConfig
from rmq.namesrv.registration import (
    DEFAULT_TIMEOUT_MS,
    Caller,
    Registered,
    Registration,
)
from rmq.namesrv.routes import RouteTable
from rmq.namesrv.rules import free_topics
from rmq.protocol.bodies.common import KVTable, TopicList
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.register import MAX_PART_SIZE, RegisterBrokerBody, inflate
from rmq.protocol.bodies.route import (
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    TopicRouteData,
)
from rmq.protocol.codes import FAQ, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import TOPIC_UNIT, TOPIC_UNIT_SUB
from rmq.protocol.headers import cluster as cluster_headers
from rmq.protocol.headers import route as headers
from rmq.protocol.topics import validate_topic
from rmq.remoting.changes import NOT_SHOWN, Change, report_changes
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import Handler, HandlerTable

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

T = TypeVar("T")

MAX_NAME_LENGTH = 255
"""Maximum characters of broker names, cluster names and addresses: keys of tables."""

MAX_WAITING_REGISTRATIONS: Final = 64
"""Maximum number of large registrations that wait; further brokers try again."""

Answering = Coroutine[Any, Any, Command]
"""Result of a handler that has made a change; the answer waits for the save."""

ZONE_MODE, ZONE_NAME = "__ZONE_MODE", "__ZONE_NAME"
"""Fields that clients and brokers of a zone add to requests 105 and 103."""


class NameServerParts(NamedTuple):
    """The parts that the handlers use."""

    config: NamesrvConfig
    routes: RouteTable
    kv_config: KVConfig
    address_for: AddressFor
    """Function that returns the address at which a caller reaches a broker."""

    now_ms: Callable[[], int]
    listen: NamesrvListenConfig
    caller_of: Callable[[Connection], Caller]
    """Function that returns the brokers for which a caller may send requests."""


CHANGES: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)  # fmt: skip
"""Names of tools' requests that change the state, for the log."""


def _request_content(request: Command) -> dict[str, None]:
    """Return the fields and the body of a request, without user and signature."""
    shown = {k: v for k, v in request.ext_fields.items() if k not in NOT_SHOWN}
    words = [f"{name}={value}" for name, value in shown.items()]
    return {" ".join([*words, request.body[:200].decode("utf-8", "replace")]): None}


def _log_change(change: Change) -> None:
    user = Foreign(change.user or "somebody")
    subject = Foreign(change.subject)
    logger.info("%s from %s: %s %s", user, change.source, change.action, subject)


class NameServerHandlers:
    """Handlers over the tables of one name server."""

    def __init__(self, parts: NameServerParts) -> None:
        self._config, self._listen = parts.config, parts.listen
        self._routes, self._kv = parts.routes, parts.kv_config
        self._address_for, self._now_ms = parts.address_for, parts.now_ms
        self._caller_of = parts.caller_of
        self._started_ms = self._now_ms()
        self.answers = RouteAnswers(
            parts.config, parts.routes, parts.kv_config, parts.address_for
        )

    def table(self) -> HandlerTable:
        """Return code to handler."""
        table = HandlerTable()
        for code, handler in (
            (RequestCode.GET_KV_CONFIG, self.get_kv),
            (RequestCode.UNREGISTER_BROKER, self.unregister_broker),
            (RequestCode.GET_ROUTEINFO_BY_TOPIC, self.route),
            (RequestCode.GET_BROKER_CLUSTER_INFO, self.cluster_info),
            (RequestCode.WIPE_WRITE_PERM_OF_BROKER, self.wipe_writes),
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.all_topics),
            (RequestCode.DELETE_TOPIC_IN_NAMESRV, self.delete_topic),
            (RequestCode.REGISTER_TOPIC_IN_NAMESRV, self.register_topic),
            (RequestCode.GET_KVLIST_BY_NAMESPACE, self.kv_namespace),
            (RequestCode.GET_TOPICS_BY_CLUSTER, self.topics_by_cluster),
            (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.system_topics),
            (RequestCode.GET_UNIT_TOPIC_LIST, self.unit_topics),
            (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, self.unit_sub_topics),
            (
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
                self.unit_sub_not_unit_topics,
            ),
            (RequestCode.UPDATE_NAMESRV_CONFIG, self.update_config),
            (RequestCode.GET_NAMESRV_CONFIG, self.get_config),
            (RequestCode.QUERY_DATA_VERSION, self.query_data_version),
            (RequestCode.ADD_WRITE_PERM_OF_BROKER, self.add_writes),
            (RequestCode.GET_BROKER_MEMBER_GROUP, self.member_group),
            (RequestCode.BROKER_HEARTBEAT, self.broker_heartbeat),
        ):
            table.register(code, self._log_changes(code, handler))
        for code, change in (
            (RequestCode.PUT_KV_CONFIG, self.put_kv),
            (RequestCode.DELETE_KV_CONFIG, self.delete_kv),
        ):
            table.register(
                code, self._log_changes(code, change), max_running=MAX_WAITING
            )
        table.register(
            RequestCode.REGISTER_BROKER,
            self.register_broker,
            max_running=1,
            max_waiting=MAX_WAITING_REGISTRATIONS,
        )
        return table

    def _log_changes(self, code: RequestCode, handler: Handler) -> Handler:
        """Return a handler that logs its change if a tool sent the request."""
        if code not in CHANGES:
            return handler
        return report_changes(
            handler, code.name, _request_content, _log_change, self._now_ms
        )

    # -- brokers

    def register_broker(
        self, request: Command, connection: Connection
    ) -> Command | Answering:
        """103: register a broker and its topics."""
        header = request.header(headers.RegisterBrokerRequestHeader)
        crc = header.body_crc32
        if crc and crc != body_crc(request.body):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        _check_names(header.cluster_name, header.broker_name, header.broker_addr)
        is_compressed = RegisterBrokerBody.is_compressed(request.body)
        if is_compressed or len(request.body) > MAX_PART_SIZE:
            return self._register_in_steps(request, header, connection)
        body = RegisterBrokerBody.decode(request.body, request.version)
        wanted = self._read_registration(request, header, body, connection)
        return self._registration_answer(
            request, self._routes.register(wanted, connection)
        )

    async def _register_in_steps(
        self,
        request: Command,
        header: headers.RegisterBrokerRequestHeader,
        connection: Connection,
    ) -> Command:
        """Register many topics; other requests are served between the steps."""
        if RegisterBrokerBody.is_compressed(request.body):
            inflated = await in_thread(inflate, request.body)
            steps = RegisterBrokerBody.inflated_steps(inflated, len(request.body))
        else:
            steps = RegisterBrokerBody.document_steps(request.body, request.version)
        body = await _last_of(steps)
        try:
            if not connection.is_open:
                raise RequestRejected(ResponseCode.SYSTEM_ERROR, "the connection ended")
            wanted = self._read_registration(request, header, body, connection)
            registered = self._routes.register_in_steps(wanted, connection)
            return self._registration_answer(request, await _last_of(registered))
        finally:
            for _ in free_topics(
                body.topic_config_serialize_wrapper.topic_config_table
            ):
                await trio.lowlevel.checkpoint()

    def _read_registration(
        self,
        request: Command,
        header: headers.RegisterBrokerRequestHeader,
        body: RegisterBrokerBody,
        connection: Connection,
    ) -> Registration:
        wrapper = body.topic_config_serialize_wrapper
        deleted = request.ext_fields.get(headers.DELETED_TOPICS)
        is_master = header.broker_id == 0
        return Registration(
            header.cluster_name,
            header.broker_addr,
            header.broker_name,
            header.broker_id,
            header.ha_server_addr,
            wrapper.topic_config_table,
            wrapper.data_version,
            header.heartbeat_timeout_millis or DEFAULT_TIMEOUT_MS,
            header.enable_acting_master,
            request.ext_fields.get(ZONE_NAME),
            wrapper.topic_queue_mapping_info_map,
            self._caller_of(connection),
            tuple(deleted.split(",")) if deleted and is_master else (),
        )

    def _registration_answer(self, request: Command, registered: Registered) -> Command:
        answer = headers.RegisterBrokerResponseHeader(
            master_addr=registered.master_address, ha_server_addr=registered.ha_address
        )
        order = b""
        if self._config.return_order_topic_config:
            table = self._kv.entries_of(ORDER_TOPIC_CONFIG)
            order = KVTable(table=table).encode() if table else b""
        return request.reply(header=answer, body=order)

    def unregister_broker(self, request: Command, connection: Connection) -> Command:
        """104: unregister a broker."""
        header = request.header(headers.UnRegisterBrokerRequestHeader)
        cluster, address = header.cluster_name, header.broker_addr
        self._check_speaker(cluster, address, connection)
        name, broker_id = header.broker_name, header.broker_id
        if self._routes.is_registered(address, name, broker_id):
            self._routes.unregister(cluster, address, name, broker_id)
        return request.reply()

    def broker_heartbeat(self, request: Command, connection: Connection) -> Command:
        """904: record the heartbeat of a broker."""
        header = request.header(cluster_headers.BrokerHeartbeatRequestHeader)
        cluster, address = header.cluster_name, header.broker_addr
        self._check_speaker(cluster, address, connection)
        self._routes.touch(cluster, address)
        return request.reply()

    def query_data_version(self, request: Command, connection: Connection) -> Command:
        """322: return whether the broker's version is not the registered version."""
        header = request.header(headers.QueryDataVersionRequestHeader)
        version = DataVersion.decode(request.body)
        cluster, address = header.cluster_name, header.broker_addr
        self._check_speaker(cluster, address, connection)
        known = self._routes.data_version(cluster, address)
        self._routes.touch(cluster, address)
        answer = headers.QueryDataVersionResponseHeader(changed=known != version)
        return request.reply(
            header=answer, body=b"" if known is None else known.encode()
        )

    def _check_speaker(
        self, cluster: str, address: str, connection: Connection
    ) -> None:
        self._routes.check_speaker(cluster, address, self._caller_of(connection))

    # -- routes

    def route(self, request: Command, connection: Connection) -> Command:
        """105: the route of a topic."""
        if self._config.need_wait_for_service and not self._is_settled():
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = request.header(headers.GetRouteInfoRequestHeader).topic
        zone = request.ext_fields.get(ZONE_NAME)
        if zone and request.ext_fields.get(ZONE_MODE, "").lower() == "true":
            body = self.answers.body_in_zone(topic, connection, zone)
        else:
            body = self.answers.body_for(topic, connection)
        if body is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}{FAQ}",
            )
        return request.reply(body=body)

    def _is_settled(self) -> bool:
        """Whether every broker has had enough time to register."""
        waited_ms = self._now_ms() - self._started_ms
        return waited_ms >= self._config.wait_seconds_for_service * 1000

    def cluster_info(self, request: Command, connection: Connection) -> Command:
        """106: all brokers."""
        info = self._routes.cluster_info()
        for broker in info.broker_addr_table.values():
            broker.broker_addrs = {
                broker_id: self._address_for(address, connection)
                for broker_id, address in broker.broker_addrs.items()
            }
        return request.reply(body=info.encode())

    def member_group(self, request: Command, connection: Connection) -> Command:
        """901: the brokers of one name."""
        header = request.header(cluster_headers.GetBrokerMemberGroupRequestHeader)
        group = self._routes.group(header.broker_name)
        members = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs={
                broker_id: self._address_for(address, connection)
                for broker_id, address in (group.addresses if group else {}).items()
            },
        )
        body = GetBrokerMemberGroupResponseBody(broker_member_group=members)
        return request.reply(body=body.encode())

    # -- topics

    def all_topics(self, request: Command, connection: Connection) -> Command:
        """206: all topics."""
        if not self._config.enable_all_topic_list:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "disable")
        return _topics(request, self._routes.topics.names())

    def _check_topic_lists(self) -> None:
        if not self._config.enable_topic_list:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "disable")

    def topics_by_cluster(self, request: Command, connection: Connection) -> Command:
        """224: the topics of a cluster."""
        self._check_topic_lists()
        cluster = request.header(
            cluster_headers.GetTopicsByClusterRequestHeader
        ).cluster
        return _topics(request, self._routes.topics_of_cluster(cluster))

    def system_topics(self, request: Command, connection: Connection) -> Command:
        """304: the names of clusters and brokers, and the address of one broker."""
        body = TopicList(
            topic_list=self._routes.system_topics(),
            broker_addr=self._routes.any_address(),
        )
        return request.reply(body=body.encode())

    def unit_topics(self, request: Command, connection: Connection) -> Command:
        """311: topics with the unit flag."""
        self._check_topic_lists()
        return _topics(
            request,
            self._routes.topics.topics_with_flag(lambda f: bool(f & TOPIC_UNIT)),
        )

    def unit_sub_topics(self, request: Command, connection: Connection) -> Command:
        """312: topics with the unit-sub flag."""
        self._check_topic_lists()
        found = self._routes.topics.topics_with_flag(lambda f: bool(f & TOPIC_UNIT_SUB))
        return _topics(request, found)

    def unit_sub_not_unit_topics(
        self, request: Command, connection: Connection
    ) -> Command:
        """313: topics with the unit-sub flag only."""
        self._check_topic_lists()
        found = self._routes.topics.topics_with_flag(
            lambda f: bool(f & TOPIC_UNIT_SUB) and not f & TOPIC_UNIT
        )
        return _topics(request, found)

    def delete_topic(self, request: Command, connection: Connection) -> Command:
        """216: remove a topic."""
        header = request.header(headers.DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return request.reply()

    def register_topic(self, request: Command, connection: Connection) -> Command:
        """217: register queues of one topic."""
        topic = request.header(headers.RegisterTopicRequestHeader).topic
        validate_topic(topic)
        route = TopicRouteData.decode(request.body)
        caller = self._caller_of(connection)
        self._routes.register_topic(topic, route.queue_datas, caller)
        return request.reply()

    async def wipe_writes(self, request: Command, connection: Connection) -> Command:
        """205: forbid sends to this broker."""
        name = request.header(headers.WipeWritePermOfBrokerRequestHeader).broker_name
        count = await _last_of(self._routes.set_writable(name, writable=False))
        header = headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return request.reply(header=header)

    async def add_writes(self, request: Command, connection: Connection) -> Command:
        """327: allow sends to this broker again."""
        name = request.header(headers.AddWritePermOfBrokerRequestHeader).broker_name
        count = await _last_of(self._routes.set_writable(name, writable=True))
        header = headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return request.reply(header=header)

    # -- key-value configuration

    def put_kv(self, request: Command, connection: Connection) -> Answering:
        """100: set a value."""
        header = request.header(headers.PutKVConfigRequestHeader)
        self._kv.put(header.namespace, header.key, header.value)
        return self._answer_saved(request, header.namespace, header.key)

    def get_kv(self, request: Command, connection: Connection) -> Command:
        """101: get a value."""
        header = request.header(headers.GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            raise RequestRejected(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return request.reply(header=headers.GetKVConfigResponseHeader(value=value))

    def delete_kv(self, request: Command, connection: Connection) -> Answering:
        """102: remove a value."""
        header = request.header(headers.DeleteKVConfigRequestHeader)
        self._kv.delete(header.namespace, header.key)
        return self._answer_saved(request, header.namespace, header.key)

    def _answer_saved(self, request: Command, namespace: str, key: str) -> Answering:
        """Apply a change to the routes now; answer when the file is saved."""
        if namespace == ORDER_TOPIC_CONFIG:
            self.answers.discard_topic(key)
        return self._kv.wait_saved(request.reply())

    def kv_namespace(self, request: Command, connection: Connection) -> Command:
        """219: all values of a namespace."""
        name = request.header(headers.GetKVListByNamespaceRequestHeader).namespace
        if not (table := self._kv.entries_of(name)):
            raise RequestRejected(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {name}"
            )
        return request.reply(body=KVTable(table=table).encode())

    # -- configuration

    def get_config(self, request: Command, connection: Connection) -> Command:
        """319: every key and its value."""
        return request.reply(body=as_properties((self._config, self._listen)))

    def update_config(self, request: Command, connection: Connection) -> Command:
        """318: change live keys: all of them, or no key after an error."""
        configs = self._config, self._listen
        path = self._config.config_store_path
        try:
            outcome = apply_changes(read_changes(request.body), configs, path)
        except ConfigError as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
        check_refusals(outcome)
        self.config_changed()
        return request.reply()

    def config_changed(self) -> None:
        """Drop the answers that were made with the old values."""
        self._routes.keeps_unregistered_topics = (
            not self._config.delete_topic_with_broker_registration
        )
        self.answers.forget_all()


async def _last_of(steps: Iterator[T | None]) -> T:
    """Return the result after the steps; other requests are served between them."""
    while (result := next(steps)) is None:
        await trio.lowlevel.checkpoint()
    return result


def _topics(request: Command, names: list[str]) -> Command:
    return request.reply(body=TopicList(topic_list=names).encode())


def _check_names(*names: str) -> None:
    for name in names:
        if not name or len(name) > MAX_NAME_LENGTH:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"names and addresses must have 1 to {MAX_NAME_LENGTH} characters",
            )
