"""Requests 203, 204, 300, 328, 343 and 345: clients, groups and subscriptions."""

from rmq.plugin import BrokerContext, Connection, Member, RequestRejected
from rmq.protocol.bodies import heartbeat as bodies
from rmq.protocol.bodies.common import GroupList, TopicList
from rmq.protocol.bodies.groups import QuerySubscriptionResponseBody
from rmq.protocol.codes import LanguageCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.groups import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)


class ConnectionHandler:
    """The client part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._producers = broker.producers
        self._consumers = broker.consumers
        self._offsets = broker.offsets
        self._address = broker.address

    def list_consumers(self, request: Command, connection: Connection) -> Command:
        """Answer the members of a consumer group and their subscriptions."""
        name = request.header(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._consumers.group(name)
        if group is None:
            raise RequestRejected(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{name}] not online",
            )
        body = bodies.ConsumerConnection(
            connection_set=[
                _describe_connection(*each) for each in group.members.items()
            ],
            subscription_table=dict(group.subscriptions),
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return request.reply(body=body.encode())

    def list_producers(self, request: Command, connection: Connection) -> Command:
        """Answer the members of a producer group."""
        name = request.header(GetProducerConnectionListRequestHeader).producer_group
        members = self._producers.members(name)
        if not members:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist"
            )
        body = bodies.ProducerConnection(
            connection_set=[_describe_connection(*each) for each in members.items()]
        )
        return request.reply(body=body.encode())

    def list_all_producers(self, request: Command, connection: Connection) -> Command:
        """Answer every producer by group."""
        body = bodies.ProducerTableInfo()
        for group, peer, member in self._producers.all():
            body.data.setdefault(group, []).append(
                bodies.ProducerInfo(
                    client_id=member.client_id,
                    remote_ip=f"/{peer.remote_address}",
                    language=_language_of(member),
                    version=member.version,
                    last_update_timestamp=member.last_heartbeat_ms,
                )
            )
        return request.reply(body=body.encode())

    def list_groups_of_topic(self, request: Command, connection: Connection) -> Command:
        """Answer the groups that consume a topic now or have offsets in it."""
        topic = request.header(QueryTopicConsumeByWhoRequestHeader).topic
        online = {
            group
            for group, _peer, _member in self._consumers.all()
            if self._consumers.subscription(group, topic) is not None
        }
        groups = online | set(self._offsets.groups_of(topic))
        return request.reply(body=GroupList(group_list=sorted(groups)).encode())

    def list_topics_of_group(self, request: Command, connection: Connection) -> Command:
        """Answer the topics in which a group has offsets."""
        group = request.header(QueryTopicsByConsumerRequestHeader).group
        topics = sorted(self._offsets.topics_of(group))
        body = TopicList(broker_addr=self._address, topic_list=topics)
        return request.reply(body=body.encode())

    def get_subscription(self, request: Command, connection: Connection) -> Command:
        """Answer the subscription of an online group to a topic."""
        header = request.header(QuerySubscriptionByConsumerRequestHeader)
        body = QuerySubscriptionResponseBody(
            group=header.group,
            topic=header.topic,
            subscription_data=self._consumers.subscription(
                header.group, header.topic or ""
            ),
        )
        return request.reply(body=body.encode())


def _describe_connection(peer: Connection, member: Member) -> bodies.Connection:
    return bodies.Connection(
        client_id=member.client_id,
        client_addr=peer.remote_address,
        language=_language_of(member),
        version=member.version,
    )


def _language_of(member: Member) -> str:
    """Return the name of a client's language, sent as text or number."""
    language = member.language
    if isinstance(language, str):
        return language
    if language in {int(code) for code in LanguageCode}:
        return LanguageCode(language).name
    return LanguageCode.OTHER.name
