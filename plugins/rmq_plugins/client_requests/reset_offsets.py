"""Requests 222 and 223: set a group's offsets, and show its consumers' offsets.

By default the broker resets offsets itself: it stores an offset, and the answer to the
next pull of the queue names this offset. Without `useServerSideResetOffset`, and for
tools in C++, it pushes the offset (220) to every member, and each member commits the
offset.
"""

from typing import Final

from rmq.plugin import (
    Boundary,
    BrokerContext,
    Connection,
    ConsumerGroup,
    InvokeTimeout,
    PeerClosed,
    RequestRejected,
)
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.queues import (
    GetConsumerStatusBody,
    QueueOffset,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.client import GetConsumerStatusRequestHeader
from rmq.protocol.headers.offsets import ResetOffsetRequestHeader

STATUS_TIMEOUT_MS: Final = 5_000
OLDEST_VERSION: Final = 28
"""Version V3_0_7_SNAPSHOT, the first client that serves 220 and 221."""

_C_LANGUAGES: Final = ("CPP", 1)


class ClientOffsets:
    """Known in Java as `Broker2Client`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._consumers = broker.consumers
        self._groups = broker.groups
        self._topics = broker.topics
        self._offsets = broker.offsets
        self._messages = broker.messages
        self._config = broker.config

    def reset_offsets(self, request: Command, _connection: Connection) -> Command:
        """Set all offsets of a group to a time, or one offset to a number."""
        header = request.header(ResetOffsetRequestHeader)
        if (
            self._config.use_server_side_reset_offset
            and request.language not in _C_LANGUAGES
        ):
            table = self._reset_at_broker(header)
        else:
            table = self._reset_at_clients(header, request.language in _C_LANGUAGES)
        return request.reply(body=ResetOffsetBody(offset_table=table).encode())

    def _reset_at_broker(
        self, header: ResetOffsetRequestHeader
    ) -> dict[MessageQueue, int]:
        """Store the offsets; consumers receive them when they pull."""
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist"
            )
        if self._groups.get(header.group) is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {header.group} does not exist",
            )
        targets = self._choose_targets(header, topic)
        if not targets:
            raise _system_error("No queues to reset.")
        table = {}
        for queue_id, offset in targets.items():
            self._offsets.reset(header.group, header.topic, queue_id, offset)
            table[self._make_queue(header.topic, queue_id)] = offset
        return table

    def _choose_targets(
        self, header: ResetOffsetRequestHeader, topic: TopicConfig
    ) -> dict[int, int]:
        """Return the new offset of each queue of the request."""
        queue_id = header.queue_id
        if queue_id < 0:
            return {
                each: self._search_offset(header.topic, each, header.timestamp)
                for each in range(topic.read_queue_nums)
            }
        if queue_id >= topic.read_queue_nums:
            return {}
        if header.offset is None or header.offset == -1:
            return {
                queue_id: self._search_offset(header.topic, queue_id, header.timestamp)
            }
        low = self._messages.min_offset(header.topic, queue_id)
        high = self._messages.max_offset(header.topic, queue_id)
        if not low <= header.offset <= high + 1:
            raise _system_error(
                f"Target offset {header.offset} not in consume queue range "
                f"[{low}-{high}]"
            )
        return {queue_id: header.offset}

    def _search_offset(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            return self._messages.max_offset(topic, queue_id)
        found = self._messages.offset_by_time(
            topic, queue_id, timestamp_ms, Boundary.LOWER
        )
        return max(found, 0)

    def _reset_at_clients(
        self, header: ResetOffsetRequestHeader, is_c: bool
    ) -> dict[MessageQueue, int]:
        """Push the offsets to every member of the group."""
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                "[reset-offset] reset offset failed, no topic in this broker. "
                f"topic={header.topic}",
            )
        table = {}
        for queue_id in range(topic.write_queue_nums):
            committed = self._offsets.query(header.group, header.topic, queue_id)
            if committed == -1:
                raise _system_error(f"THe consumer group <{header.group}> not exist")
            target = self._search_offset(header.topic, queue_id, header.timestamp)
            is_target_used = header.is_force or target < committed
            queue = self._make_queue(header.topic, queue_id)
            table[queue] = target if is_target_used else committed
        group = self._require_online(header.group, ResponseCode.CONSUMER_NOT_ONLINE)
        _check_versions(group)
        push = ResetOffsetRequestHeader(
            group=header.group, topic=header.topic, timestamp=header.timestamp
        )
        body = _make_body_for_c(table) if is_c else ResetOffsetBody(offset_table=table)
        for connection in group.members:
            connection.send_nowait(
                Command.request(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    push,
                    body.encode(),
                    oneway=True,
                )
            )
        return table

    async def get_consumer_status(
        self, request: Command, _connection: Connection
    ) -> Command:
        """Ask all members of a group, or one member, for their offsets."""
        header = request.header(GetConsumerStatusRequestHeader)
        group = self._require_online(header.group, ResponseCode.SYSTEM_ERROR)
        _check_versions(group)
        table = {}
        question = GetConsumerStatusRequestHeader(
            topic=header.topic, group=header.group
        )
        for connection, member in list(group.members.items()):
            if header.client_addr and header.client_addr != member.client_id:
                continue
            command = Command.request(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question
            )
            try:
                answer = await connection.invoke(command, STATUS_TIMEOUT_MS)
            except (InvokeTimeout, PeerClosed):
                continue
            if answer.code == ResponseCode.SUCCESS and answer.body:
                status = GetConsumerStatusBody.decode(answer.body)
                table[member.client_id] = status.message_queue_table
        return request.reply(body=GetConsumerStatusBody(consumer_table=table).encode())

    def _require_online(self, name: str, code: ResponseCode) -> ConsumerGroup:
        group = self._consumers.group(name)
        if group is None:
            raise RequestRejected(
                code,
                f"No Any Consumer online in the consumer group: [{name}]",
            )
        return group

    def _make_queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(
            topic=topic, broker_name=self._config.broker_name, queue_id=queue_id
        )


def _check_versions(group: ConsumerGroup) -> None:
    for member in group.members.values():
        if member.version < OLDEST_VERSION:
            raise _system_error(
                f"the client does not support this feature. version={member.version}"
            )


def _make_body_for_c(table: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        offset_table=[
            QueueOffset(
                topic=queue.topic,
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                offset=offset,
            )
            for queue, offset in table.items()
        ]
    )


def _system_error(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
