"""The records that POP writes: checkpoints, acks, and messages to be popped again.

`ck`, `ack` and `bAck` are timed messages for a queue of the revive topic, with the
bodies, tags and unique keys of Java. The reviver writes the records of a checkpoint
when it gets old. The timer delivers the records when the checkpoint is due, and the
broker that has the store at that time revives the messages.
"""

from typing import Final

from msgspec.structs import replace

from rmq.plugin import (
    BrokerContext,
    PutResult,
    PutStatus,
    RemoteProtocolError,
    RequestRejected,
)
from rmq.plugin.native import Checkpoint
from rmq.protocol import fastjson
from rmq.protocol import properties as names
from rmq.protocol.bodies import Body
from rmq.protocol.bodies.pop import AckRecord, CheckpointRecord
from rmq.protocol.codes import ResponseCode
from rmq.protocol.flags import BORN_HOST_V6, PERM_READ_WRITE, born_host_flag
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage
from rmq.protocol.topics import (
    RETRY_PREFIX,
    plain_topic,
    pop_retry_topic,
    revive_topic,
)

CK: Final = "ck"
ACK: Final = "ack"
BATCH_ACK: Final = "bAck"
CK_EARLIER_MS: Final = 1_000
"""Time between the delivery of a checkpoint by the timer and the delivery of its acks.
"""

_LONG_NAMES: Final = {
    "ackOffset": "ao", "ackOffsetList": "aol", "startOffset": "so",
    "consumerGroup": "c", "topic": "t", "queueId": "q", "popTime": "pt",
    "brokerName": "bn", "bitMap": "bm", "num": "n", "invisibleTime": "it",
    "queueOffsetDiff": "d", "rePutTimes": "rp", "reviveOffset": "ro", "suspend": "sp",
}  # fmt: skip


class PopRecords:
    """Writes the records of one broker."""

    def __init__(self, broker: BrokerContext) -> None:
        config = broker.config
        self.revive_topic = revive_topic(config.broker_cluster_name)
        self._broker_name = config.broker_name
        self._put = broker.put.put
        self._append = broker.put.append
        self._topics = broker.topics
        self._offsets = broker.offsets
        self._clock = broker.clock
        self._host = broker.store_host
        self._config = config

    def put_checkpoint(self, checkpoint: Checkpoint) -> PutResult:
        """Write the open messages of a checkpoint."""
        queue, offsets = checkpoint.queue, checkpoint.open_offsets()
        body = CheckpointRecord(
            broker=self._broker_name,
            group=queue.group,
            diffs=[offset - checkpoint.start for offset in offsets],
            invisible_ms=checkpoint.invisible_ms,
            count=len(offsets),
            pop_ms=checkpoint.pop_ms,
            queue_id=queue.queue_id,
            revive_ms=checkpoint.due_ms,
            retries=str(checkpoint.retries) if checkpoint.retries else None,
            start=checkpoint.start,
            suspend=checkpoint.suspend,
            topic=queue.topic,
        )
        at_ms = checkpoint.due_ms - CK_EARLIER_MS
        key = self._build_key(checkpoint, checkpoint.start, CK)
        return self._put_timed(checkpoint.revive_queue, body, CK, key, at_ms)

    def put_acks(self, checkpoint: Checkpoint, offsets: list[int]) -> PutResult:
        """Write one record for the acks of any number of messages."""
        queue, is_one = checkpoint.queue, len(offsets) == 1
        body = AckRecord(
            offset=offsets[0] if is_one else -1,
            offsets=None if is_one else offsets,
            broker=self._broker_name,
            group=queue.group,
            pop_ms=checkpoint.pop_ms,
            queue_id=queue.queue_id,
            start=checkpoint.start,
            topic=queue.topic,
        )
        kind = ACK if is_one else BATCH_ACK
        key = self._build_key(checkpoint, body.offset, ACK)
        at_ms = checkpoint.due_ms
        return self._put_timed(checkpoint.revive_queue, body, kind, key, at_ms)

    def _build_key(self, checkpoint: Checkpoint, offset: int, kind: str) -> str:
        queue = checkpoint.queue
        numbers = queue.queue_id, offset
        parts = queue.topic, *map(str, numbers), queue.group, str(checkpoint.pop_ms)
        return "@".join((*parts, self._broker_name, kind))

    def _put_timed(
        self, revive_queue: int, body: Body, tags: str, key: str, at_ms: int
    ) -> PutResult:
        message = self._build_message(self.revive_topic, revive_queue, body.encode())
        message.properties = {
            names.TAGS: tags,
            names.TIMER_DELIVER_MS: str(at_ms),
            names.UNIQ_KEY: key,
        }
        try:
            return self._put(message)
        except RequestRejected as refusal:
            if refusal.code == ResponseCode.MESSAGE_ILLEGAL:  # a forged time
                return PutResult(PutStatus.MESSAGE_ILLEGAL)
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)

    def _build_message(self, topic: str, queue_id: int, body: bytes) -> Message:
        flags, now_ms = born_host_flag(self._host), self._clock.now_ms()
        return Message(topic, queue_id, body, 0, flags, now_ms, self._host)

    # -- messages that become visible again

    def retry_topic(self, topic: str, group: str) -> str:
        """Return the topic in which a group pops messages of a topic again."""
        if topic.startswith(RETRY_PREFIX):
            return topic
        version = 2 if self._config.enable_retry_topic_v2 else 1
        return pop_retry_topic(topic, group, version)

    def put_retry(self, record: StoredMessage, checkpoint: Checkpoint) -> PutResult:
        """Store a message for its group again."""
        group = checkpoint.queue.group
        topic = self.retry_topic(checkpoint.queue.topic, group)
        message = record.to_message()
        try:
            queue_id = self._ensure_retry_queue(topic, group, record.queue_id)
            if self._offsets.query(group, topic, queue_id) < 0:
                self._offsets.commit("a POP", group, topic, queue_id, 0)
        except RequestRejected:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        message.topic, message.queue_id = topic, queue_id
        message.born_host = self._host
        message.sys_flag &= ~BORN_HOST_V6
        message.sys_flag |= born_host_flag(self._host)
        message.prepared_transaction_offset = 0
        if not checkpoint.suspend:
            message.reconsume_times += 1
        message.remove_property(names.POP_CK)
        if names.FIRST_POP_TIME not in message.properties:
            message.set_property(names.FIRST_POP_TIME, str(checkpoint.pop_ms))
        message.set_property(names.ORIGIN_GROUP, group)
        return self._append(message)

    def _ensure_retry_queue(self, retry: str, group: str, queue_id: int) -> int:
        """Return the queue of the retry topic for a message of this queue id.

        The retry topic grows with its topic. The retry topic never gets fewer queues,
        because its last queues may have messages.
        """
        topic = self._topics.ensure(retry, queues=1, perm=PERM_READ_WRITE)
        if not self._config.use_separate_retry_queue:
            return 0
        origin = self._topics.get(plain_topic(retry, group))
        wanted = 1 if origin is None else origin.write_queue_nums
        if topic.write_queue_nums < wanted:
            topic = replace(topic, read_queue_nums=wanted, write_queue_nums=wanted)
            self._topics.update(topic)
        return queue_id if queue_id < topic.write_queue_nums else 0


def read_checkpoint(body: bytes) -> CheckpointRecord | None:
    """Return the body of a `ck` record; None if it is not valid."""
    try:
        found = CheckpointRecord.from_value(_short_names(body))
    except RequestRejected:
        return None
    return found if found.topic and found.group and 0 <= found.count <= 32 else None


def read_acks(body: bytes) -> AckRecord | None:
    """Return the body of an `ack` or `bAck` record; None if it is not valid."""
    try:
        found = AckRecord.from_value(_short_names(body))
    except RequestRejected:
        return None
    return found if found.topic and found.group else None


def _short_names(body: bytes) -> dict[str, object]:
    """Return the members of a body by short names; older brokers wrote long ones."""
    try:
        value = fastjson.load_json(body)
    except RemoteProtocolError as error:
        raise RequestRejected(1, str(error)) from error
    if not isinstance(value, dict):
        raise RequestRejected(1, "no object")
    return {_LONG_NAMES.get(str(name), str(name)): v for name, v in value.items()}
