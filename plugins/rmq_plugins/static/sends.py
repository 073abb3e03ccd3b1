"""Sends to logical queues: the broker stores the message in the leader's queue.

The answer has the logical queue and offset, -1 while the leader is undecided. For a
half message the answer has the offset in the half queue, which the producer sends with
the end of the transaction.
"""

import random
from collections.abc import Mapping
from typing import Final

import msgspec

from rmq.plugin import BrokerContext, Connection, Handler, Result
from rmq.protocol.bodies.queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers import Header
from rmq.protocol.headers.send import decode_send_header
from rmq.protocol.properties import TRAN_MSG, decode_properties

_LONG: Final = "topic", "queueId"
_SHORT: Final = "b", "e"


class MappedSend(Command, kw_only=True):
    """A send to the leader; its answer has the logical queue and offset."""

    queue_id: int
    leader: LogicQueueMappingItem
    mapping: TopicQueueMappingDetail
    is_half: bool

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        *,
        header: Header | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Command:
        """Build the answer, see `Command.reply`."""
        fields = {**(ext_fields or {})}
        if "queueOffset" in fields:
            queue_id, part = self._find_part(int(fields["queueId"]))
            fields["queueId"] = str(queue_id)
            if not self.is_half:
                offset = int(fields["queueOffset"])
                fields["queueOffset"] = str(part.reported_offset(offset))
        return super().reply(code, remark, header=header, ext_fields=fields, body=body)

    def _find_part(self, stored_in: int) -> tuple[int, LogicQueueMappingItem]:
        """Return the logical queue and the part whose messages are in `stored_in`.

        Usually this is the queue of the leading part. It may be another queue if a
        retried send gets the answer of the first attempt.
        """
        if stored_in != self.leader.queue_id:
            for queue_id, parts in self.mapping.hosted_queues.items():
                for part in parts:
                    if (part.bname, part.queue_id) == (self.mapping.bname, stored_in):
                        return queue_id, part
        return self.queue_id, self.leader


class StaticSends:
    """Serves sends to logical queues before the handler of sends."""

    def __init__(self, broker: BrokerContext) -> None:
        self._mappings = broker.queue_mappings

    def send(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Send to the leader of a logical queue."""
        fields, is_long = request.ext_fields, request.code == RequestCode.SEND_MESSAGE
        topic, queue = _LONG if is_long else _SHORT
        mapping = self._mappings.get(fields.get(topic, ""))
        if mapping is None or (is_long and fields.get("lo") == "false"):
            return handler(request, connection)
        header = decode_send_header(request.code, fields)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = _choose_led_queue(mapping)
        leader = mapping.leader_of(queue_id)
        if leader is None:
            return request.reply(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"{mapping.topic}-{queue_id} does not exit in request process of "
                f"current broker {mapping.bname}",
            )
        properties = decode_properties(header.properties or "")
        mapped = MappedSend(
            *msgspec.structs.astuple(request),
            queue_id=queue_id,
            leader=leader,
            mapping=mapping,
            is_half=properties.get(TRAN_MSG, "").lower() == "true",
        )
        mapped.ext_fields = {**fields, queue: str(leader.queue_id)}
        return handler(mapped, connection)


def _choose_led_queue(mapping: TopicQueueMappingDetail) -> int:
    """Return one of the logical queues that this broker leads, -1 if there is none."""
    led = [
        each for each in mapping.hosted_queues if mapping.leader_of(each) is not None
    ]
    return random.choice(led) if led else -1
