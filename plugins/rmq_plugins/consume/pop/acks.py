"""Requests 200051, 200151 and 200053: acks, and a new invisible time.

If the checkpoint is in memory, an ack clears a bit. A checkpoint of an earlier run or
of a Java broker is not in memory. The handler writes its acks as records, which the
timer delivers when the checkpoint is due. Late and repeated acks get code 0, too: the
message may be revived already. The handler refuses an ack only if the log must have it
and the store is busy.
"""

import base64
import binascii
from typing import Final

from rmq.plugin import BrokerContext, Connection, PutStatus, RequestRejected
from rmq.plugin.native import AckMarks
from rmq.protocol.bodies.pop import BatchAck, BatchAckRequestBody
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import ORDERED_REVIVE_QUEUE, PopHandle
from rmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
)
from rmq.protocol.topics import pop_retry_topic
from rmq_plugins.consume.answers import answer_invisible_time
from rmq_plugins.consume.checks import (
    MAX_INVISIBLE_MS,
    ConsumeChecks,
    check_invisible_time,
    decode_handle,
)
from rmq_plugins.consume.held_pops import HeldPops
from rmq_plugins.consume.pop.checkpoints import Checkpoint, Checkpoints, PopQueue
from rmq_plugins.consume.pop.orders import Orders
from rmq_plugins.consume.pop.records import PopRecords
from rmq_plugins.consume.pop.revive import Reviver
from rmq_plugins.consume.queue_order import ANOTHER_POP, NOT_POPPED

MAX_BITS: Final = 1 << 13
"""Size of the bit set in an ack of several messages; a checkpoint has at most 32."""

GRACE_MS: Final = 2_000
"""Time after the due time in which an ack of an unknown checkpoint is written."""


class AckHandler:
    """Known in Java as `AckMessageProcessor` and `ChangeInvisibleTimeProcessor`."""

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
        handle = self._check_handle(header, connection)
        low, high = self._offset_range(header.topic, header.queue_id)
        if not low <= header.offset <= high:
            raise _no_message(header, low, high)
        if handle.revive_queue == ORDERED_REVIVE_QUEUE:
            self._ack_in_order(header, handle)
        else:
            self._ack_one(header, handle, [header.offset])
        return request.reply()

    def ack_batch(self, request: Command, connection: Connection) -> Command:
        """Ack messages of several checkpoints."""
        body = BatchAckRequestBody.decode(request.body)
        if not body.acks:
            raise RequestRejected(
                ResponseCode.NO_MESSAGE, "batch ack has no acks: send ackMessage"
            )
        for each in body.acks:
            self._ack_entry(each)
        return request.reply()

    def _ack_entry(self, ack: BatchAck) -> None:
        """Ack the messages of one checkpoint; skip those that do not exist."""
        topic, group = ack.topic or "", ack.group or ""
        if ack.retry in ("1", "2"):
            topic = pop_retry_topic(topic, group, int(ack.retry))
        config = self._topics.get(topic)
        if config is None or not 0 <= ack.queue_id < config.read_queue_nums:
            return
        low, high = self._offset_range(topic, ack.queue_id)
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
            self._ack_one(header, handle, offsets)

    def _ack_one(
        self, header: AckMessageRequestHeader, handle: PopHandle, offsets: list[int]
    ) -> None:
        """Ack messages of one checkpoint, in memory or by a record."""
        checkpoint = self._find_checkpoint(header, handle)
        is_stored = True
        if checkpoint is not None:
            for offset in offsets:
                is_stored &= self._reviver.ack(checkpoint, offset)
        elif self._clock.now_ms() < handle.pop_ms + handle.invisible_ms + GRACE_MS:
            result = self._records.put_acks(
                self._rebuild_checkpoint(header, handle), offsets
            )
            is_stored = result.status in (PutStatus.PUT_OK, PutStatus.MESSAGE_ILLEGAL)
        if not is_stored:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "the ack is not stored: the store is busy"
            )

    def _find_checkpoint(
        self, header: AckMessageRequestHeader, handle: PopHandle
    ) -> Checkpoint | None:
        queue = header.topic, header.consumer_group, header.queue_id
        return self._checkpoints.by_key.get((*queue, handle.start, handle.pop_ms))

    def _rebuild_checkpoint(
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
            AckMarks((), 0, is_written=True),
            self._log.end_offset,
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

    # -- a new invisible time

    def change_invisible_time(
        self, request: Command, connection: Connection
    ) -> Command:
        """Set the time at which a message becomes visible again."""
        header = request.header(ChangeInvisibleTimeRequestHeader)
        handle = self._check_handle(header, connection)
        low, high = self._offset_range(header.topic, header.queue_id)
        if not low <= header.offset < high:
            raise _no_message(header, low, high)
        invisible_ms = header.invisible_time
        check_invisible_time(invisible_ms)
        if handle.revive_queue == ORDERED_REVIVE_QUEUE:
            return self._change_in_order(request, header, handle)
        pop_ms = self._replace_checkpoint(header, handle)
        if pop_ms is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "append checkpoint error: the store is busy"
            )
        return answer_invisible_time(request, pop_ms, invisible_ms, handle.revive_queue)

    def _replace_checkpoint(
        self, header: ChangeInvisibleTimeRequestHeader, handle: PopHandle
    ) -> int | None:
        """Move a message from its checkpoint to a new one.

        Return the time of POP in its new handle; None if the store is busy.
        """
        pop_ms = max(self._clock.now_ms(), handle.pop_ms + 1)
        old = self._find_checkpoint(header, handle)
        if old is not None and header.offset not in old.marks.open_offsets():
            return pop_ms  # acked or revived already
        queue = (
            old.queue
            if old is not None
            else self._rebuild_checkpoint(header, handle).queue
        )
        while self._checkpoints.is_taken(queue, header.offset, pop_ms):
            pop_ms += 1
        new = Checkpoint(
            queue,
            header.offset,
            pop_ms,
            header.invisible_time,
            handle.revive_queue % self._config.revive_queue_nums,
            AckMarks((header.offset,), 1),
            self._log.end_offset,
            suspend=header.suspend,
        )
        in_memory = old is not None and not old.is_written
        keep = (
            self._reviver.add_checkpoint
            if in_memory
            else self._reviver.write_checkpoint
        )
        if not keep(new):
            return None
        self._ack_one(header, handle, [header.offset])
        return pop_ms

    def _change_in_order(
        self,
        request: Command,
        header: ChangeInvisibleTimeRequestHeader,
        handle: PopHandle,
    ) -> Command:
        key = header.topic, header.consumer_group, header.queue_id
        if header.offset < self._offsets.query(key[1], key[0], key[2]):
            return answer_invisible_time(request, 0, 0, ORDERED_REVIVE_QUEUE)
        until_ms = self._clock.now_ms() + header.invisible_time
        self._orders.extend(key, header.offset, handle.pop_ms, until_ms)
        left_ms = until_ms - handle.pop_ms
        return answer_invisible_time(
            request, handle.pop_ms, left_ms, ORDERED_REVIVE_QUEUE
        )

    # -- checks

    def _check_handle(
        self, header: AckMessageRequestHeader, connection: Connection
    ) -> PopHandle:
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

    def _offset_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        return (
            self._messages.min_offset(topic, queue_id),
            self._messages.max_offset(topic, queue_id),
        )


def _no_message(
    header: AckMessageRequestHeader, low: int, high: int
) -> RequestRejected:
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
