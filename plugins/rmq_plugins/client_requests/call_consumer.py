"""Requests 307 and 309: the broker forwards them to one consumer.

The broker sends the request with its own fields, 309 with the stored message as body,
and returns the client's answer.
"""

import re
from typing import Final

from rmq.access.actions import Action
from rmq.plugin import (
    BrokerContext,
    Connection,
    InvokeTimeout,
    Member,
    PeerError,
    PhysicalOffset,
    RequestRejected,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)

TIMEOUT_MS: Final = 10_000
OLDEST_VERSION: Final = 62
"""Version V3_1_8_SNAPSHOT, the first client that answers these requests."""

_MESSAGE_ID: Final = re.compile("[0-9A-Fa-f]{16}(?:[0-9A-Fa-f]{24})?([0-9A-Fa-f]{16})")


class ConsumerCalls:
    """The part of Java's `AdminBrokerProcessor` that calls one consumer."""

    def __init__(self, broker: BrokerContext) -> None:
        self._consumers = broker.consumers
        self._groups = broker.groups
        self._topics = broker.topics
        self._broker = broker
        self._messages = broker.messages
        self._name = broker.config.broker_name

    async def get_running_info(
        self, request: Command, _connection: Connection
    ) -> Command:
        """Answer the state that a consumer reports."""
        header = request.header(GetConsumerRunningInfoRequestHeader)
        return await self._call_consumer(
            request,
            header.consumer_group,
            header.client_id,
            Command(request.code, dict(request.ext_fields), request.body),
        )

    async def consume_directly(
        self, request: Command, connection: Connection
    ) -> Command:
        """Let a consumer consume one message, and answer the result."""
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        fields = {**request.ext_fields, "brokerName": self._name}
        topic = self._topics.get(header.topic or "")
        group = self._groups.find(header.consumer_group, connection.remote_address)
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        record = self._read_message(header.msg_id or "", request, connection)
        return await self._call_consumer(
            request,
            header.consumer_group,
            header.client_id or "",
            Command(request.code, fields, record),
        )

    def _read_message(
        self, message_id: str, request: Command, connection: Connection
    ) -> bytes:
        match = _MESSAGE_ID.fullmatch(message_id)
        if match is None:
            raise _system_error(
                f"{message_id!r} is not a message id, which has 32 or 56 digits"
            )
        offset = PhysicalOffset(int(match[1], 16))
        found = self._messages.verified_message_at(offset) if offset < 1 << 63 else None
        if found is None:
            raise _system_error(f"there is no message {message_id}")
        self._broker.rights.require(request, connection, found.topic, Action.SUB)
        record = self._messages.record_at(offset)
        assert record is not None, f"{offset} was there a moment ago"
        return record

    async def _call_consumer(
        self, request: Command, group: str, client_id: str, command: Command
    ) -> Command:
        """Send the request to the client and return its answer."""
        connection, member = self._find_member(group, client_id)
        if member.version < OLDEST_VERSION:
            raise _system_error(
                f"The Consumer <{client_id}> Version <{member.version}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT"
            )
        try:
            answer = await connection.invoke(command, TIMEOUT_MS)
        except InvokeTimeout as error:
            raise RequestRejected(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {error}",
            ) from error
        except PeerError as error:
            raise _system_error(
                f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            ) from error
        return request.reply(
            answer.code, answer.remark, ext_fields=answer.ext_fields, body=answer.body
        )

    def _find_member(self, group: str, client_id: str) -> tuple[Connection, Member]:
        known = self._consumers.group(group)
        for connection, member in known.members.items() if known else ():
            if member.client_id == client_id and connection.is_open:
                return connection, member
        raise _system_error(f"The Consumer <{group}> <{client_id}> not online")


def _system_error(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
