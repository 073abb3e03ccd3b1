"""Receipt handles of popped messages, and their acks.

The ack of a message needs its handle: its checkpoint and its queue offset. A checkpoint
is the first queue offset of one POP, and the time of that POP. `rmq.protocol.handles`
and the header of the answer define the texts.
"""

import base64
from collections.abc import Iterable
from typing import Final, NamedTuple

from rmq.protocol.bodies.pop import BatchAck, BatchAckRequestBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.handles import PopHandle
from rmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageResponseHeader,
)
from rmq.protocol.topics import pop_retry_topic

RETRY_FLAGS: Final = {"1": 1, "2": 2}
"""The version of the name of a retry topic, by its flag."""

MAX_SPAN: Final = 4_096
"""Maximum number of bits in one ack of several messages; a message beyond the last bit
gets its own ack.
"""

KNOWN_FIELDS: Final = 8


class ReceiptHandle(NamedTuple):
    """A popped message, as its broker identifies it; Java has the same name."""

    checkpoint: PopHandle
    queue_id: int
    offset: int

    @property
    def text(self) -> str:
        """The text `extraInfo`."""
        return self.checkpoint.encode(self.queue_id, self.offset)

    def apply_change(
        self, answer: ChangeInvisibleTimeResponseHeader
    ) -> "ReceiptHandle":
        """Return the handle after a change of the invisible time."""
        checkpoint = self.checkpoint._replace(
            start=self.offset,
            pop_ms=answer.pop_time,
            invisible_ms=answer.invisible_time,
            revive_queue=answer.revive_qid,
        )
        return self._replace(checkpoint=checkpoint)

    @property
    def can_join(self) -> bool:
        """Whether an ack of several messages may include it."""
        return 0 <= self.offset - self.checkpoint.start < MAX_SPAN

    def topic(self, topic: str, group: str) -> str:
        """Return the topic that stores the message: `topic`, or its retry topic.

        >>> handle = PopHandle(0, 1, 60_000, 2, "1", "b")
        >>> ReceiptHandle(handle, 0, 7).topic("T", "G")
        '%RETRY%G_T'
        """
        version = RETRY_FLAGS.get(self.checkpoint.flag)
        return topic if version is None else pop_retry_topic(topic, group, version)


class PopResult:
    """The header of an answer to a POP; ValueError if it is damaged."""

    def __init__(self, header: PopMessageResponseHeader, broker: str) -> None:
        self._header = header
        self._broker = broker
        self._starts = dict(_parse_infos(header.start_offset_info))
        self._offsets = {
            key: frozenset(map(int, text.split(",")))
            for key, text in _parse_infos(header.msg_offset_info)
        }

    def handle_of(
        self, queue_id: int, offset: int, *, is_retry: bool, checkpoint: str | None
    ) -> ReceiptHandle:
        """Return the handle of a message; `checkpoint` is its property `POP_CK`.

        Only redelivered messages have this property, unless a program has copied the
        property.
        """
        if is_retry and checkpoint is not None:
            handle, fields = PopHandle.decode(checkpoint), checkpoint.split(" ")
            if handle is None or len(fields) < KNOWN_FIELDS:
                raise ValueError(f"the handle {checkpoint!r} of a message is damaged")
            return ReceiptHandle(handle, int(fields[6]), int(fields[7]))
        for flag in (*RETRY_FLAGS, "0") if is_retry else ("0", *RETRY_FLAGS):
            if offset in self._offsets.get((flag, queue_id), ()):
                start = int(self._starts[flag, queue_id])
                return ReceiptHandle(self._handle(flag, start), queue_id, offset)
        raise ValueError(
            f"the answer has no handle for offset {offset} of queue {queue_id}"
        )

    def _handle(self, flag: str, start: int) -> PopHandle:
        header = self._header
        return PopHandle(
            start,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            flag,
            self._broker,
        )


def _parse_infos(text: str | None) -> Iterable[tuple[tuple[str, int], str]]:
    """Read `flag queue value;flag queue value`."""
    for each in (text or "").split(";"):
        if each:
            flag, queue_id, value = each.split(" ")
            yield (flag, int(queue_id)), value


def ack_requests(
    handles: Iterable[ReceiptHandle], topic: str, group: str, broker: str
) -> list[tuple[Command, list[ReceiptHandle]]]:
    """Return requests that acknowledge messages of one topic, with their handles.

    One request has all acks that can join a batch; each other ack has its own request.
    """
    joined: list[ReceiptHandle] = []
    single: list[ReceiptHandle] = []
    for handle in handles:
        (joined if handle.can_join else single).append(handle)
    if len(joined) < 2:
        single, joined = joined + single, []
    requests = [(_ack_request(each, topic, group), [each]) for each in single]
    if joined:
        body = BatchAckRequestBody(
            broker_name=broker, acks=acks_of(joined, topic, group)
        )
        batch = Command.request(RequestCode.BATCH_ACK_MESSAGE, body=body.encode())
        requests.insert(0, (batch, joined))
    return requests


def _ack_request(handle: ReceiptHandle, topic: str, group: str) -> Command:
    header = AckMessageRequestHeader(
        consumer_group=group,
        topic=handle.topic(topic, group),
        queue_id=handle.queue_id,
        extra_info=handle.text,
        offset=handle.offset,
    )
    return Command.request(RequestCode.ACK_MESSAGE, header)


def change_request(
    handle: ReceiptHandle, topic: str, group: str, invisible_ms: int
) -> Command:
    """Return the request that changes when a message becomes visible again."""
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=handle.topic(topic, group),
        queue_id=handle.queue_id,
        extra_info=handle.text,
        offset=handle.offset,
        invisible_time=invisible_ms,
    )
    return Command.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)


def acks_of(handles: Iterable[ReceiptHandle], topic: str, group: str) -> list[BatchAck]:
    """Return acks with one entry for each checkpoint; all handles `can_join`."""
    joined: dict[tuple[PopHandle, int], int] = {}
    for handle, queue_id, offset in handles:
        key = handle, queue_id
        joined[key] = joined.get(key, 0) | 1 << (offset - handle.start)
    return [
        BatchAck(
            group=group,
            topic=topic,
            retry=handle.flag,
            start=handle.start,
            queue_id=queue_id,
            revive_queue=handle.revive_queue,
            pop_ms=handle.pop_ms,
            invisible_ms=handle.invisible_ms,
            bits=_bit_set(bits),
        )
        for (handle, queue_id), bits in joined.items()
    ]


def _bit_set(bits: int) -> str:
    """Return the bytes of Java's `BitSet` in Base64: the lowest bit is the first."""
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return base64.b64encode(data).decode()
