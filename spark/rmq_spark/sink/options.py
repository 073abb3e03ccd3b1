"""The options of the sink: one table, as the source has."""

from typing import Final, NamedTuple

from rmq.core.errors import ConfigError, RequestRejected
from rmq.protocol.topics import is_retry_topic, is_sendable, validate_topic
from rmq_spark import option_values as values
from rmq_spark.options import CONNECTION_OPTIONS, Option, Options


def topic_fault(name: str | None) -> str | None:
    """Why messages cannot be sent to a topic, in words; None if they can."""
    try:
        validate_topic(name)
    except RequestRejected as error:
        return error.remark
    assert name is not None
    if is_retry_topic(name) or not is_sendable(name):
        return f"topic {name} belongs to brokers"
    return None


def _topic(value: str) -> str:
    if (fault := topic_fault(value)) is not None:
        raise ValueError(f"the name of a topic: {fault}")
    return value


class BadRows(NamedTuple):
    """What becomes of rows that cannot be sent; `topic` is where they go instead."""

    word: str
    topic: str = ""


def _bad_rows(value: str) -> BadRows:
    if value in ("fail", "skip"):
        return BadRows(value)
    word, _, topic = value.partition(":")
    if word != "topic" or not topic:
        raise ValueError("fail, skip or topic:NAME")
    return BadRows(word, _topic(topic))


SINK: Final = ("sink",)
MAX_FRAMES: Final = 256
"""Frames in flight: each is in memory until its answer comes."""

MAX_FRAME_BYTES: Final = 8 << 20
"""A frame has half of what the client's codec sends at most."""

SINK_OPTIONS: Final[tuple[Option, ...]] = (
    *(option._replace(modes=SINK) for option in CONNECTION_OPTIONS),
    Option("topic", _topic, None, "topic of all rows; without it there is a column"),
    Option("producerGroup", values.text, "rmq-spark", "name of the producers' group"),
    Option(
        "ackPolicy",
        values.one_of("durable", "stored"),
        "durable",
        "`durable`: a row is sent when it is as safe as the broker is set to make it; "
        "an answer that the disk or the slave did not follow in time is a failure, and "
        "the row is sent again. `stored`: the broker has it in memory",
    ),
    Option(
        "badRows",
        _bad_rows,
        BadRows("fail"),
        "what to do with rows that cannot be sent: `fail` the task before it sends any "
        "of their Arrow batch, `skip` them with a warning, or send their bodies to "
        "`topic:NAME`",
    ),
    Option(
        "dedupKey",
        values.one_of("row", "none"),
        "row",
        "`row`: UNIQ_KEY says where the row stands, so that a repeated row has the "
        "same; `none`: the broker gives it one",
    ),
    Option("sendTimeoutMs", values.positive, 3_000, "time limit of an answer, in ms"),
    Option(
        "retries",
        values.up_to(100, values.count),
        10,
        "how often a frame is sent again; pauses grow from 50 ms to 5 s",
    ),
    Option(
        "maxInFlight",
        values.up_to(MAX_FRAMES, values.positive),
        4,
        "frames of a task on their way",
    ),
    Option(
        "batchBytes",
        values.up_to(MAX_FRAME_BYTES, values.parse_bytes),
        256 << 10,
        "size of a frame",
    ),
    Option(
        "maxMessageSize",
        values.up_to(MAX_FRAME_BYTES, values.parse_bytes),
        4 << 20,
        "larger bodies cannot be sent; the brokers have an option of this name",
    ),
    Option(
        "compressThreshold",
        values.parse_bytes,
        None,
        "bodies from this size on are compressed, and sent one by one",
    ),
    Option("checkpointLocation", values.text, None, "of a stream, for Spark itself"),
)


class SinkOptions(Options):
    """Checked options of the sink."""

    table = SINK_OPTIONS

    def _check(self) -> None:
        if not self["nameServer"]:
            raise ConfigError("which brokers? Give option nameServer, host:port")
