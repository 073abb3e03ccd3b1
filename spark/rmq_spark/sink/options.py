"""The options of the sink: one table, as for the source."""

from typing import Final, NamedTuple

from rmq.core.errors import ConfigError, RequestRejected
from rmq.protocol.topics import is_retry_topic, is_sendable, validate_topic
from rmq_spark import option_values as values
from rmq_spark.options import CONNECTION_OPTIONS, Option, Options


def topic_fault(name: str | None) -> str | None:
    """Return why a topic accepts no messages; None if it does."""
    try:
        validate_topic(name)
    except RequestRejected as error:
        return error.remark
    assert name is not None
    if is_retry_topic(name) or not is_sendable(name):
        return f"topic {name} is a system topic"
    return None


def _topic(value: str) -> str:
    if (fault := topic_fault(value)) is not None:
        raise ValueError(f"the name of a topic: {fault}")
    return value


class BadRows(NamedTuple):
    """The policy for rows that cannot be sent; `topic` gets them if it is set."""

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
"""Limit of frames in flight: each is in memory until its answer arrives."""

MAX_FRAME_BYTES: Final = 8 << 20
"""Limit of a frame: half of the limit of the client's codec."""

# fmt: off
SINK_OPTIONS: Final[tuple[Option, ...]] = (
    *(option._replace(modes=SINK) for option in CONNECTION_OPTIONS),
    Option("topic", _topic, None, "topic of all rows; without it each row needs a "
        "column `topic`"),
    Option("producerGroup", values.parse_text, "rmq-spark",
        "name of the producers' group"),
    Option("ackPolicy", values.one_of("durable", "stored"), "durable",
        "`durable`: a row counts as sent when the broker reports SEND_OK; after a "
        "timeout of disk or slave the row is sent again. `stored`: a row counts as "
        "sent when the broker has it in memory"),
    Option("badRows", _bad_rows, BadRows("fail"),
        "action for rows that cannot be sent: `fail` the task before it sends any of "
        "their Arrow batch, `skip` them with a warning, or send their bodies to "
        "`topic:NAME`"),
    Option("dedupKey", values.one_of("row", "none"), "row",
        "`row`: UNIQ_KEY has the position of the row, so that a repeated row has the "
        "same value; `none`: the broker generates it"),
    Option("sendTimeoutMs", values.parse_positive, 3_000,
        "time limit of an answer, in ms"),
    Option("retries", values.up_to(100, values.parse_count), 10,
        "maximum number of repetitions of a frame; pauses grow from 50 ms to 5 s"),
    Option("maxInFlight", values.up_to(MAX_FRAMES, values.parse_positive), 4,
        "frames of a task in flight"),
    Option("batchBytes", values.up_to(MAX_FRAME_BYTES, values.parse_bytes), 256 << 10,
        "size of a frame"),
    Option("maxMessageSize", values.up_to(MAX_FRAME_BYTES, values.parse_bytes), 4 << 20,
        "maximum size of a body; brokers have a key with this name"),
    Option("compressThreshold", values.parse_bytes, None,
        "a body of at least this size is compressed, and sent as a single message, not "
        "in a batch"),
    Option("checkpointLocation", values.parse_text, None,
        "folder of a stream's checkpoints, which Spark needs"),
)
# fmt: on


class SinkOptions(Options):
    """The checked options of the sink."""

    table = SINK_OPTIONS

    def check_options(self) -> None:
        """Raise a ConfigError for options that contradict each other."""
        if not self["nameServer"]:
            raise ConfigError(
                "option nameServer is missing: set it to host:port of a name server"
            )
