"""Bodies of POP: acks of several messages, and the records that POP writes."""

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.headers import I32, I64


class BatchAck(Body, kw_only=True):
    """Acks of one checkpoint; bit i of `bits` (Base64) is the offset start + i."""

    group: str | None = field(default=None, name="c")
    topic: str | None = field(default=None, name="t")
    retry: str | None = field(default=None, name="r")
    start: I64 = field(default=0, name="so")
    queue_id: I32 = field(default=0, name="q")
    revive_queue: I32 = field(default=0, name="rq")
    pop_ms: I64 = field(default=0, name="pt")
    invisible_ms: I64 = field(default=0, name="it")
    bits: str | None = field(default=None, name="b")


class BatchAckRequestBody(Body, kw_only=True):
    """Request 200151 BATCH_ACK_MESSAGE."""

    broker_name: str | None = None
    acks: list[BatchAck] = field(default_factory=list)


class CheckpointRecord(Body, kw_only=True):
    """Body of a record with the tag `ck`. Known in Java as `PopCheckPoint`.

    `diffs` are offsets after `start`; without them the offsets follow one another.
    """

    bits: I32 = field(default=0, name="bm")
    broker: str | None = field(default=None, name="bn")
    group: str | None = field(default=None, name="c")
    diffs: list[I32] = field(default_factory=list, name="d")
    invisible_ms: I64 = field(default=0, name="it")
    count: I32 = field(default=0, name="n")
    pop_ms: I64 = field(default=0, name="pt")
    queue_id: I32 = field(default=0, name="q")
    revive_ms: I64 = field(default=0, name="reviveTime")
    revive_offset: I64 = field(default=0, name="ro")
    retries: str | None = field(default=None, name="rp")
    start: I64 = field(default=0, name="so")
    suspend: bool = field(default=False, name="sp")
    topic: str | None = field(default=None, name="t")


class AckRecord(Body, kw_only=True):
    """Body of a record with the tag `ack`, or `bAck` if it has a list.

    Known in Java as `AckMsg` and `BatchAckMsg`.
    """

    offset: I64 = field(default=0, name="ao")
    offsets: list[I64] | None = field(default=None, name="aol")
    broker: str | None = field(default=None, name="bn")
    group: str | None = field(default=None, name="c")
    pop_ms: I64 = field(default=0, name="pt")
    queue_id: I32 = field(default=0, name="q")
    start: I64 = field(default=0, name="so")
    topic: str | None = field(default=None, name="t")
