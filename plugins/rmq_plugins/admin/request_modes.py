"""Requests 401 and 402: whether a group pulls a topic or pops it.

File `config/messageRequestMode.json`: {"messageRequestModeMap": {topic: {group:
{"consumerGroup", "mode", "popShareQueueNum", "topic"}}}}.
"""

from pathlib import Path
from typing import Any, Final

from rmq.plugin import BrokerContext, Clock, Connection, JsonTable, RequestRejected
from rmq.protocol.bodies.queues import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.topics import is_retry_topic

MODES: Final = "PULL", "POP"
MAX_MODES: Final = 100_000


class RequestModes(JsonTable):
    """Known in Java as `MessageRequestModeManager`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder / "messageRequestMode.json", clock)
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def _read(self, value: dict[str, Any]) -> None:
        wrapper = MessageRequestModeSerializeWrapper.from_value(value)
        self._modes.update(wrapper.message_request_mode_map)

    def _content(self) -> MessageRequestModeSerializeWrapper:
        return MessageRequestModeSerializeWrapper(message_request_mode_map=self._modes)

    def replace_modes(self, body: bytes) -> None:
        """Replace the table by the master's table; RequestRejected if the answer is
        invalid.
        """
        theirs = MessageRequestModeSerializeWrapper.decode(body)
        if sum(map(len, theirs.message_request_mode_map.values())) > MAX_MODES:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the master has more than {MAX_MODES} request modes",
            )
        if theirs.message_request_mode_map != self._modes:
            self._modes = theirs.message_request_mode_map
            self.touch()

    def get_modes(self) -> dict[str, dict[str, SetMessageRequestModeRequestBody]]:
        """Return the modes by topic and group."""
        return self._modes

    def set_mode(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Store the mode of a group in a topic."""
        if sum(map(len, self._modes.values())) >= MAX_MODES:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"there are already {MAX_MODES} request modes, the limit",
            )
        self._modes.setdefault(mode.topic or "", {})[mode.consumer_group or ""] = mode
        self.touch()


class RequestModeHandler:
    """The part of Java's `QueryAssignmentProcessor` that tools use."""

    def __init__(self, broker: BrokerContext) -> None:
        self._topics = broker.topics
        self._groups = broker.groups
        self.table = RequestModes(broker.config_folder, broker.clock)

    def set_mode(self, request: Command, connection: Connection) -> Command:
        """Set the mode of a group in a topic."""
        mode = SetMessageRequestModeRequestBody.decode(request.body)
        topic, group = mode.topic or "", mode.consumer_group or ""
        if is_retry_topic(topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"
            )
        if self._topics.get(topic) is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist"
            )
        if mode.mode not in MODES:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the mode {mode.mode} is unknown; there are {' and '.join(MODES)}",
            )
        if self._groups.find(group, connection.remote_address) is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                "subscription group does not exist",
            )
        self.table.set_mode(mode)
        return request.reply()

    def list_modes(self, request: Command, connection: Connection) -> Command:
        """Answer the table of modes."""
        return request.reply(body=self.table.text())
