"""Requests 200051 and 200151: acks.

If the checkpoint is in memory, an ack clears a bit. A checkpoint of an earlier run or
of a Java broker is not in memory. The handler writes acks of such a checkpoint as
records, which the timer delivers when the checkpoint is due. Late and repeated acks get
code 0, too: the message may be revived already. The handler refuses an ack only if the
log must have it and the store is busy.
"""

import base64
import binascii
from typing import Final

from rmq.plugin import BrokerContext, Connection, PutStatus, RequestRejected
from rmq.plugin.native import Checkpoint, PopQueue
from rmq.protocol.bodies.pop import BatchAck, BatchAckRequestBody
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import ORDERED_REVIVE_QUEUE, PopHandle
from rmq.protocol.headers.pop import AckMessageRequestHeader
from rmq.protocol.topics import pop_retry_topic
from rmq_plugins.consume.checks import MAX_INVISIBLE_MS, ConsumeChecks, decode_handle
from rmq_plugins.consume.held_pops import HeldPops
from rmq_plugins.consume.pop.checkpoints import Checkpoints
from rmq_plugins.consume.pop.orders import Orders
from rmq_plugins.consume.pop.records import PopRecords
from rmq_plugins.consume.pop.revive import Reviver
from rmq_plugins.consume.queue_order import ANOTHER_POP, NOT_POPPED

MAX_BITS: Final = 1 << 13
"""Maximum size of the bit set in an ack of several messages; a checkpoint has at most
32 messages.
"""

GRACE_MS: Final = 2_000
"""Time after the due time in which an ack of an unknown checkpoint is written."""


class AckHandler:
    """Known in Java as `AckMessageProcessor`."""

    def __init__(
        self,
        broker: BrokerContext,
        checkpoints: Checkpoints,
        reviver: Reviver,
        records: PopRecords,
        orders: Orders,
        held: HeldPops,
    ) -> None:
        self._checks = ConsumeChecks(broker)
        self._topics = broker.topics
        self._messages = broker.messages
        self._log = broker.log
        self._offsets = broker.offsets
        self._clock = broker.clock
        self._config = broker.config
        self._checkpoints = checkpoints
        self._reviver = reviver
        self._records = records
        self._orders = orders
        self._held = held

    # -- acks

    def ack(self, request: Command, connection: Connection) -> Command:
        """Ack one message."""
        header = request.header(AckMessageRequestHeader)
        handle = self.check_handle(header, connection)
        low, high = self.offset_range(header.topic, header.queue_id)
        if not low <= header.offset <= high:
            raise no_message(header, low, high)
        if handle.revive_queue == ORDERED_REVIVE_QUEUE:
            self._ack_in_order(header, handle)
        else:
            self.ack_one(header, handle, [header.offset])
        return request.reply()

    def ack_batch(self, request: Command, connection: Connection) -> Command:
        """Ack messages of several checkpoints."""
        body = BatchAckRequestBody.decode(request.body)
        if not body.acks:
            raise RequestRejected(
                ResponseCode.NO_MESSAGE,
                "the batch ack has no entry in its list acks; "
                "ack a single message with request 200051 (ACK_MESSAGE)",
            )
        for each in body.acks:
            self._ack_entry(each)
        return request.reply()

    def _ack_entry(self, ack: BatchAck) -> None:
        """Ack the messages of one checkpoint; skip messages that do not exist."""
        topic, group = ack.topic or "", ack.group or ""
        if ack.retry in ("1", "2"):
            topic = pop_retry_topic(topic, group, int(ack.retry))
        config = self._topics.get(topic)
        if config is None or not 0 <= ack.queue_id < config.read_queue_nums:
            return
        low, high = self.offset_range(topic, ack.queue_id)
        offsets = [ack.start + bit for bit in _decode_bits(ack.bits)]
        offsets = [offset for offset in offsets if low <= offset <= high]
        if not offsets:
            return
        handle = PopHandle(
            ack.start, ack.pop_ms, ack.invisible_ms, ack.revive_queue, "0", ""
        )
        header = AckMessageRequestHeader(
            consumer_group=group, topic=topic, queue_id=ack.queue_id,
            extra_info="", offset=offsets[0],
        )  # fmt: skip
        if ack.revive_queue == ORDERED_REVIVE_QUEUE:
            for header.offset in offsets:
                self._ack_in_order(header, handle, is_strict=False)
        else:
            self.ack_one(header, handle, offsets)

    def ack_one(
        self, header: AckMessageRequestHeader, handle: PopHandle, offsets: list[int]
    ) -> None:
        """Ack messages of one checkpoint, in memory or by a record."""
        checkpoint = self.find_checkpoint(header, handle)
        is_stored = True
        if checkpoint is not None:
            for offset in offsets:
                is_stored &= self._reviver.ack(checkpoint, offset)
        elif self._clock.now_ms() < handle.pop_ms + handle.invisible_ms + GRACE_MS:
            result = self._records.put_acks(
                self.rebuild_checkpoint(header, handle), offsets
            )
            is_stored = result.status in (PutStatus.PUT_OK, PutStatus.MESSAGE_ILLEGAL)
        if not is_stored:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "the ack is not stored: the store is busy"
            )

    def find_checkpoint(
        self, header: AckMessageRequestHeader, handle: PopHandle
    ) -> Checkpoint | None:
        """Return the checkpoint of a handle if it is in memory."""
        queue = header.topic, header.consumer_group, header.queue_id
        return self._checkpoints.find(*queue, handle.start, handle.pop_ms)

    def rebuild_checkpoint(
        self, header: AckMessageRequestHeader, handle: PopHandle
    ) -> Checkpoint:
        """Return the checkpoint of a handle, which is not in memory."""
        queue = PopQueue(
            header.topic, header.consumer_group, header.queue_id, 0, is_gone=True
        )
        revive_queue = handle.revive_queue % self._config.revive_queue_nums
        return Checkpoint(
            queue,
            handle.start,
            handle.pop_ms,
            min(handle.invisible_ms, MAX_INVISIBLE_MS),
            revive_queue,
            (),
            self._log.end_offset,
            is_written=True,
        )

    def _ack_in_order(
        self,
        header: AckMessageRequestHeader,
        handle: PopHandle,
        *,
        is_strict: bool = True,
    ) -> None:
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        if header.offset < self._offsets.query(group, topic, queue_id):
            return
        next_offset = self._orders.ack(
            topic, group, queue_id, header.offset, handle.pop_ms
        )
        if next_offset == NOT_POPPED and is_strict:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, {header.offset}",
            )
        if next_offset in (NOT_POPPED, ANOTHER_POP):
            return
        if not self._offsets.is_reset(group, topic, queue_id):
            queue = self._checkpoints.find_queue(topic, group, queue_id)
            if queue is None:
                queue = self._checkpoints.begin_queue(
                    topic, group, queue_id, next_offset
                )
            queue.next_offset = max(queue.next_offset, next_offset)
            self._checkpoints.commit(queue)
        until_ms = self._orders.blocked_until_ms(
            topic, group, queue_id, attempt=None, invisible_ms=0
        )
        if until_ms <= self._clock.now_ms():
            self._held.wake(topic, group, queue_id)

    # -- checks

    def check_handle(
        self, header: AckMessageRequestHeader, connection: Connection
    ) -> PopHandle:
        """Return the handle of a request; raise RequestRejected if the request may not
        ack.
        """
        self._checks.check_ack(header, connection)
        if header.lite_topic:
            raise RequestRejected(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"lite topics are not supported, liteTopic is {header.lite_topic}",
            )
        handle = decode_handle(header.extra_info)
        if handle.broker != self._config.broker_name:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                "the receipt handle belongs to another broker: send the ack there",
            )
        return handle

    def offset_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first offset of a queue, and the offset after its last entry."""
        return (
            self._messages.min_offset(topic, queue_id),
            self._messages.max_offset(topic, queue_id),
        )


def no_message(header: AckMessageRequestHeader, low: int, high: int) -> RequestRejected:
    """Return the refusal of an offset that the queue does not have."""
    return RequestRejected(
        ResponseCode.NO_MESSAGE,
        f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:"
        f"{header.offset}, store:{low}~{high}",
    )


def _decode_bits(text: str | None) -> list[int]:
    """Return the numbers of the bits in Java's `BitSet`, from Base64."""
    try:
        data = base64.b64decode((text or "").encode(), validate=True)
    except (binascii.Error, UnicodeError):
        return []
    if len(data) * 8 > MAX_BITS:
        return []
    return [
        8 * place + bit
        for place, byte in enumerate(data)
        for bit in range(8)
        if byte >> bit & 1
    ]
