"""AdminClient: requests of tools to name servers and brokers.

Known in Java as `DefaultMQAdminExt`. Calls block, and the client sends one request at a
time. Answers are dictionaries and lists with Java's names. The commands in
`rmq/cli/admin/` use this client; they are known in Java as `MQAdminStartup`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq.core.errors import PeerError, RmqError
from rmq.outgoing.identity import ANONYMOUS, Identity
from rmq.outgoing.link import Link
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import WIRE_VERSION, RequestCode, ResponseCode
from rmq.protocol.command import OWN_LANGUAGE, Command
from rmq.protocol.flags import PULL_SUBSCRIPTION, is_writable
from rmq.protocol.hosts import host_bytes
from rmq.protocol.topics import (
    DEFAULT_TOPIC,
    RETRY_PREFIX,
    is_internal_topic,
    reply_topic,
)

TIMEOUT_S: Final = 5.0
MASTER: Final = "0"
DEFAULT_QUEUES: Final = 4
"""Number of queues of a topic that a send creates, as in Java's clients."""


class GroupUnknown(RmqError):
    """No broker knows a group of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no group {name}")
        self.name = name


class BrokerUnknown(RmqError):
    """No broker of that name is registered."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        names = ", ".join(known) or "none"
        super().__init__(f"there is no broker {name}; registered: {names}")


class NoBroker(RmqError):
    """The name servers know no broker, or no broker of the given cluster."""

    def __init__(self, name_servers: Sequence[str], cluster: str | None = None) -> None:
        of = f" of cluster {cluster}" if cluster else ""
        where = ", ".join(name_servers)
        super().__init__(f"no broker{of} is registered at {where}")
        self.name_server = name_servers[0]
        self.cluster = cluster


class SeveralRegistered(RmqError):
    """A request needs one cluster or broker, but several are registered."""

    def __init__(self, kind: str, names: Sequence[str], option: str) -> None:
        super().__init__(f"several {kind}s are registered: {', '.join(names)}")
        self.remedy = f"{option} {names[0]}"


class BrokerAddress(NamedTuple):
    """One broker process as the name server knows it."""

    cluster: str
    name: str
    broker_id: str
    address: str


class Queue(NamedTuple):
    """One queue of a topic, and the master that has it."""

    broker: str
    address: str
    queue_id: int


class AdminClient:
    """Connections to name servers and brokers, opened on use."""

    def __init__(
        self,
        name_servers: Sequence[str],
        identity: Identity = ANONYMOUS,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        assert name_servers, "a client needs a name server"
        self.name_servers = tuple(name_servers)
        self.identity = identity
        self.timeout_s = timeout_s
        self._links: dict[str, Link] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next request opens a new one."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    # -- requests

    def link(self, address: str) -> Link:
        """Return the connection to an address, opened at the first call."""
        link = self._links.get(address)
        if link is None:
            link = Link(address, self.timeout_s, self.identity)
            self._links[address] = link
        return link

    def try_request(
        self,
        address: str,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
    ) -> Command:
        """Return the answer of a server with any code."""
        link = self.link(address)
        try:
            return link.request(make_request(code, fields, body))
        except PeerError:
            self._links.pop(address).close()
            raise

    def request(
        self,
        address: str,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
    ) -> Command:
        """Return the answer of a server; raise AnswerRefused for an error code."""
        answer = self.try_request(address, code, fields, body)
        if answer.code != ResponseCode.SUCCESS:
            raise AnswerRefused(address, answer.code, answer.remark or "")
        return answer

    def request_name_server(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> Command:
        """Return the answer of the first name server that is reachable."""
        for address in self.name_servers[:-1]:
            try:
                return self.request(address, code, fields, body)
            except PeerError:
                continue
        return self.request(self.name_servers[-1], code, fields, body)

    def request_json(
        self,
        address: str,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
    ) -> Any:  # noqa: ANN401 - any JSON value
        """Return the JSON document in the answer of a server."""
        return fastjson.load_json(self.request(address, code, fields, body).body)

    # -- clusters and routes

    def cluster_info(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the brokers and clusters that the name server knows."""
        answer = self.request_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return fastjson.load_json(answer.body)

    def brokers(self, cluster: str | None = None) -> list[BrokerAddress]:
        """Return every broker of a cluster, or of all clusters."""
        info = self.cluster_info()
        table = info.get("brokerAddrTable") or {}
        return [
            BrokerAddress(name, broker, broker_id, address)
            for name, members in sorted((info.get("clusterAddrTable") or {}).items())
            if cluster in (None, name)
            for broker in sorted(members)
            for broker_id, address in sorted(
                (table.get(broker, {}).get("brokerAddrs") or {}).items()
            )
        ]

    def masters(self, cluster: str | None = None) -> list[BrokerAddress]:
        """Return the masters of a cluster, or of all clusters."""
        return [each for each in self.brokers(cluster) if each.broker_id == MASTER]

    def only_cluster(self) -> str:
        """Return the only registered cluster; NoBroker or SeveralRegistered."""
        names = sorted({each.cluster for each in self.brokers()})
        if not names:
            raise NoBroker(self.name_servers)
        if len(names) > 1:
            raise SeveralRegistered("cluster", names, "-c")
        return names[0]

    def only_master(self) -> BrokerAddress:
        """Return the only registered master; NoBroker or SeveralRegistered."""
        masters = self.masters()
        if not masters:
            raise NoBroker(self.name_servers)
        if len(masters) > 1:
            raise SeveralRegistered("broker", [each.name for each in masters], "-B")
        return masters[0]

    def route(self, topic: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return the route of a topic; raise AnswerRefused (17) if there is no
        route.
        """
        answer = self.request_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}
        )
        return fastjson.load_json(answer.body)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        answer = self.request_name_server(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        )
        return sorted(fastjson.load_json(answer.body).get("topicList") or [])

    def user_topics(self) -> list[str]:
        """Return the topics of users: no system, retry and dead-letter topics."""
        brokers = self.brokers()
        own = {name for each in brokers for name in (each.cluster, each.name)}
        own |= {reply_topic(each.cluster) for each in brokers}
        return [
            each
            for each in self.topics()
            if each not in own and not is_internal_topic(each)
        ]

    def groups(self) -> list[str]:
        """Return the groups that have a retry topic: all groups whose clients were
        online.
        """
        return [
            topic.removeprefix(RETRY_PREFIX)
            for topic in self.topics()
            if topic.startswith(RETRY_PREFIX)
        ]

    def address_of(self, name: str) -> str:
        """Return the address of the master with a broker name; raise BrokerUnknown if
        there is none.
        """
        masters = self.masters()
        for each in masters:
            if each.name == name:
                return each.address
        raise BrokerUnknown(name, sorted({each.name for each in masters}))

    def topic_brokers(self, topic: str) -> list[BrokerAddress]:
        """Return one broker of each broker name of a topic: the broker with the lowest
        id.
        """
        return [
            BrokerAddress(
                broker.get("cluster") or "", broker["brokerName"], number, address
            )
            for broker in self.route(topic).get("brokerDatas") or []
            if broker.get("brokerAddrs")
            for number, address in [
                min(broker["brokerAddrs"].items(), key=lambda each: int(each[0]))
            ]
        ]

    def queues(self, topic: str) -> Iterator[Queue]:
        """Yield the queues of a topic that can be read."""
        addresses = {each.name: each.address for each in self.topic_brokers(topic)}
        for data in self.route(topic).get("queueDatas") or []:
            name = data["brokerName"]
            if name in addresses:
                for queue_id in range(data["readQueueNums"]):
                    yield Queue(name, addresses[name], queue_id)

    def writable_queues(self, topic: str) -> list[Queue]:
        """Return the queues that producers may use now.

        An unknown topic has the queues of the default topic, if brokers create topics.
        If brokers do not create topics, it raises AnswerRefused (17).
        """
        try:
            return self._writable(topic)
        except AnswerRefused as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            try:
                offered = self._writable(DEFAULT_TOPIC)
            except AnswerRefused:
                raise error from None
            return [each for each in offered if each.queue_id < DEFAULT_QUEUES]

    def _writable(self, topic: str) -> list[Queue]:
        route = self.route(topic)
        masters = {
            broker["brokerName"]: broker["brokerAddrs"][MASTER]
            for broker in route.get("brokerDatas") or []
            if MASTER in broker["brokerAddrs"]
        }
        return [
            Queue(data["brokerName"], masters[data["brokerName"]], queue_id)
            for data in route.get("queueDatas") or []
            if data["brokerName"] in masters and is_writable(data["perm"])
            for queue_id in range(data["writeQueueNums"])
        ]

    # -- queues

    def offset(self, code: int, topic: str, queue: Queue, **fields: object) -> int:
        """Return the offset of a queue by request 29, 30 or 31."""
        assert queue.queue_id >= 0, queue
        where = {"topic": topic, "queueId": queue.queue_id, **fields}
        return int(self.request(queue.address, code, where).ext_fields["offset"])

    def pull(
        self,
        topic: str,
        queue: Queue,
        offset: int,
        *,
        count: int = 32,
        expression: str = "*",
        group: str = "TOOLS_CONSUMER",
    ) -> tuple[bytes, int, int]:
        """Return the records of one pull, the offset of the next pull, and the response
        code.
        """
        assert count > 0, f"{count} is not positive"
        fields = {
            "consumerGroup": group, "topic": topic, "queueId": queue.queue_id,
            "queueOffset": offset, "maxMsgNums": count, "sysFlag": PULL_SUBSCRIPTION,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": expression,
            "subVersion": 0, "expressionType": "TAG",
        }  # fmt: skip
        answer = self.try_request(queue.address, RequestCode.PULL_MESSAGE, fields)
        following = int(answer.ext_fields.get("nextBeginOffset", offset))
        return answer.body, following, answer.code

    def send(
        self, topic: str, queue: Queue, body: bytes, properties: str, now_ms: int
    ) -> dict[str, str]:
        """Store a message; return the fields of the answer."""
        fields = {
            "producerGroup": "TOOLS_PRODUCER", "topic": topic,
            "defaultTopic": DEFAULT_TOPIC, "defaultTopicQueueNums": DEFAULT_QUEUES,
            "queueId": queue.queue_id, "sysFlag": 0, "bornTimestamp": now_ms,
            "flag": 0, "properties": properties, "reconsumeTimes": 0,
            "unitMode": False, "batch": False,
        }  # fmt: skip
        answer = self.request(queue.address, RequestCode.SEND_MESSAGE, fields, body)
        return answer.ext_fields

    def group_connections(self, group: str) -> dict[str, Any]:
        """Return the consumers of a group on all masters.

        AnswerRefused if no broker has a consumer of the group.
        """
        refusal: AnswerRefused | None = None
        joined: dict[str, Any] | None = None
        for broker in self.masters():
            try:
                found = self.request_json(
                    broker.address,
                    RequestCode.GET_CONSUMER_CONNECTION_LIST,
                    {"consumerGroup": group},
                )
            except AnswerRefused as error:
                refusal = error
                continue
            if joined is None:
                joined = found
                continue
            known = {each["clientId"] for each in joined["connectionSet"]}
            joined["connectionSet"] += [
                each for each in found["connectionSet"] if each["clientId"] not in known
            ]
        if joined is None:
            assert refusal is not None, "there is no broker"
            raise refusal
        return joined


def message_ids(link: Link) -> UniqueKeys:
    """Return a generator of message ids, as producers have."""
    return UniqueKeys(host_bytes(link.local_host(), 0), lambda: int(time.time() * 1e3))


def make_request(
    code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
) -> Command:
    """Return a request; the values of its fields are converted to text."""
    return Command(
        code,
        {name: _text(value) for name, value in (fields or {}).items()},
        body,
        language=OWN_LANGUAGE,
        version=WIRE_VERSION,
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
