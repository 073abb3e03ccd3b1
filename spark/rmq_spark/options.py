"""The options of the data source: one table names, parses, checks and describes them.

An option that Spark's Kafka source has, too, has the same name here.  Spark passes all
values as text.  The case of a name does not matter.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from rmq.core.errors import ConfigError
from rmq_spark import option_values as values

SEGMENTS: Final = "segments"
LIVE: Final = "live"


class Option(NamedTuple):
    """A row of the table; the option has an effect only in `modes`."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    meaning: str
    aliases: tuple[str, ...] = ()
    modes: tuple[str, ...] = (SEGMENTS, LIVE)


_live = partial(Option, modes=(LIVE,))
_segments = partial(Option, modes=(SEGMENTS,))

# fmt: off
CONNECTION_OPTIONS: Final = (
    _live("nameServer", values.parse_addresses, None,
        "name servers: `host:port`, several with `;` between them",
        ("kafka.bootstrap.servers",)),
    _live("accessKey", values.parse_text, "", "user, for brokers with access control"),
    _live("secretKey", values.parse_text, "", "password of the user"),
    _live("tlsCa", values.parse_text, None,
        "TLS: PEM file of the CA certificates that sign certificates of brokers and "
        "name servers, on all executors; `system`: the system's CA certificates"),
    _live("tlsCertificate", values.parse_text, "", "PEM file of a certificate"),
    _live("tlsKey", values.parse_text, "", "PEM file of its key"),
)
# fmt: on
"""Options of connections to brokers: for the sink and for live topics."""

# fmt: off
OPTIONS: Final = (
    _segments("store", values.parse_text, None,
        "store folder with `commitlog/` in it, or a folder of segments", ("path",)),
    Option("mode", values.one_of(SEGMENTS, LIVE), None,
        "`segments` of a store, or `live` topics of brokers; the default depends on "
        "`store` and `nameServer`"),
    *CONNECTION_OPTIONS,
    Option("subscribe", values.parse_names, None, "topics, separated by commas",
        ("topic",)),
    Option("subscribePattern", values.parse_pattern, None,
        "regular expression for topics"),
    Option("assign", values.parse_assignment, None,
        'queues: `{"T": {"broker-a": [0, 1]}}`'),
    _live("subExpression", values.parse_text, "*", "tags or SQL92"),
    Option("startingOffsets", values.parse_position, None,
        '`earliest`, `latest`, `{"broker-a": physicalOffset}` or `{"T": {"broker-a": '
        '{"0": 23, "1": -2}}}` (-2 earliest, -1 latest); a batch starts at the '
        "earliest, a stream at the latest"),
    Option("endingOffsets", values.parse_position, values.Position(word="latest"),
        "like `startingOffsets`, for the end of a batch"),
    Option("startingTimestamp", values.parse_count, None,
        "first store time to read, in ms"),
    Option("endingTimestamp", values.parse_count, None,
        "store time at which to end, in ms; not included"),
    Option("startingOffsetsByTimestamp", values.parse_queue_numbers, None,
        'store times of queues: `{"T": {"broker-a": {"0": 1700000000000}}}`'),
    Option("endingOffsetsByTimestamp", values.parse_queue_numbers, None,
        "like `startingOffsetsByTimestamp`, for the end"),
    _live("startingOffsetsByTimestampStrategy", values.one_of("error", "latest"),
        "error",
        "action if a queue has no message of this time or later: `error`, or `latest`: "
        "begin at the end of the queue"),
    Option("maxOffsetsPerTrigger", values.parse_count, None,
        "records of one micro-batch, 0: no limit; 5000000 for live topics"),
    _segments("maxBytesPerTrigger", values.parse_bytes, 1 << 30,
        "log bytes of one micro-batch"),
    _segments("splitBytes", values.parse_bytes, 128 << 20, "log bytes of one task",
        ("maxPartitionBytes",)),
    Option("minPartitions", values.parse_positive, None,
        "desired minimum number of tasks"),
    Option("failOnDataLoss", values.parse_flag, True,
        "true: fail if messages are missing; false: log the gap and continue after it"),
    _live("pullBatchSize", values.up_to(65_536, values.parse_positive), 1024,
        "maximum messages of a pull; brokers return 32 or less unless their limits are "
        "raised"),
    _live("pullsInFlight", values.up_to(1_024, values.parse_positive), 64,
        "pulls of a task in flight"),
    _live("rowsPerPartition", values.parse_positive, 250_000, "rows of one task"),
    _live("readFromSlave", values.parse_flag, False, "read from slaves if there are "
        "slaves"),
    _live("includeBrokers", values.parse_names, (), "only these brokers"),
    _live("pullTimeoutMs", values.parse_positive, 30_000,
        "time limit of a pull, in ms"),
    _live("fetchOffset.numRetries", values.parse_count, 3, "retries for offsets"),
    _live("fetchOffset.retryIntervalMs", values.parse_count, 10,
        "pause between retries, in ms"),
    _live("consumerGroup", values.parse_text, None,
        "group under which brokers show the progress of a stream", ("groupIdPrefix",)),
    _segments("readFrom", values.one_of("log", "queues"), "log",
        "`queues`: a batch reads the records of `subscribe` or `assign` by their "
        "consume queues, which may lag behind the log"),
    Option("columns", values.parse_names, ("full",),
        "`full`, `slim`, or names of columns"),
    Option("schema", values.one_of("rmq", "kafka"), "rmq",
        "`kafka`: names and types of Kafka's source"),
    Option("propertiesFormat", values.one_of("map", "string", "none"), "map",
        "column `properties`: a map, one string as stored, or `none` for no column"),
    Option("includeSystemTopics", values.parse_flag, False,
        "also schedule, half, retry, dead-letter and other topics of the system, and "
        "prepared and rolled-back records"),
    Option("includeHeaders", values.parse_flag, False,
        "column `headers` with `schema=kafka`"),
    Option("decompress", values.parse_flag, True, "decompress bodies, as consumers do"),
    Option("unwrapBatch", values.parse_flag, True,
        "make rows of the messages of an inner batch"),
    _segments("verifyCrc", values.one_of("tail", "all", "none"), "tail",
        "check the CRC of bodies: `tail`: in the last segment, `all`: in all segments, "
        "`none`: in no segment"),
    Option("corruptRecords", values.one_of("fail", "skip"), "fail",
        "`skip`: log a bad record with its offset and continue at the next good "
        "record. A body that cannot be decompressed is no bad record: it is logged, "
        "and the row has the body as stored"),
    _segments("pushFilters", values.parse_flag, False,
        "accept pushed-down filters `topic = …`; needs "
        "spark.sql.python.filterPushdown.enabled"),
    _segments("brokerName", values.parse_text, "broker-a",
        "value of column `brokerName`, and name in offsets"),
    _segments("confirmOffset", values.parse_count, None,
        "physical offset at which the readable log ends"),
    _segments("broker", values.parse_text, None,
        "`host:port` of a broker; the source asks it where its log ends"),
)
# fmt: on


class Options:
    """Checked options, read by name; `given` has the names that the user has set."""

    table: ClassVar[tuple[Option, ...]] = OPTIONS

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {option.name: option.default for option in self.table}
        self.given: set[str] = set()
        for name, value in given.items():
            option = _find(self.table, name)
            if option.name in self.given:
                raise ConfigError(f"option {option.name} is given twice")
            self._values[option.name] = _parse(option, value)
            self.given.add(option.name)
        self.check_options()

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - each row has its own type
        return self._values[name]

    @property
    def is_live(self) -> bool:
        """Whether the source pulls live topics from brokers."""
        if self["mode"] is not None:
            return bool(self["mode"] == LIVE)
        return "nameServer" in self.given and not self["store"]

    def check_options(self) -> None:
        """Raise a ConfigError for options that contradict each other."""
        mode = LIVE if self.is_live else SEGMENTS
        for option in self.table:
            if option.name in self.given and mode not in option.modes:
                kind = {LIVE: "live topics", SEGMENTS: "segments"}[option.modes[0]]
                raise ConfigError(
                    f"option {option.name} is for {kind}, and this is mode={mode}"
                )
        if self.is_live:
            self._check_live()
        elif not self["store"]:
            raise ConfigError(
                "option store is missing: pass the folder of a store to load(), or set "
                "option nameServer for live topics"
            )
        chosen = [
            n for n in ("subscribe", "subscribePattern", "assign") if n in self.given
        ]
        if len(chosen) > 1:
            raise ConfigError(f"give one of {' and '.join(chosen)}, not both")

    def _check_live(self) -> None:
        if not self["nameServer"]:
            raise ConfigError(
                "option nameServer is missing: set it to host:port of a name server"
            )
        if not {"subscribe", "subscribePattern", "assign"} & self.given:
            raise ConfigError(
                "no topics are selected: set option subscribe, subscribePattern or "
                "assign"
            )
        for name in ("startingOffsets", "endingOffsets"):
            position = self[name]
            if position is not None and position.physical_offset is not None:
                raise ConfigError(
                    f"option {name}: a physical offset is for segments; live topics "
                    'have offsets of queues, {"topic": {"broker-a": {"0": 23}}}'
                )


def _find(table: Sequence[Option], name: str) -> Option:
    by_name = {
        each.lower(): option
        for option in table
        for each in (option.name, *option.aliases)
    }
    option = by_name.get(name.lower())
    if option is not None:
        return option
    near = difflib.get_close_matches(name.lower(), by_name, n=1)
    hint = f"; did you mean {by_name[near[0]].name}?" if near else ""
    raise ConfigError(f"there is no option {name}{hint}")


def _parse(option: Option, value: str) -> Any:  # noqa: ANN401 - as its row says
    try:
        return option.parse(value)
    except ValueError as error:
        shown = "" if option.name == "secretKey" else f"={value!r}"
        raise ConfigError(
            f"option {option.name}{shown} is wrong: it must be {error}"
        ) from error


def options_table(table: Sequence[Option]) -> str:
    """Return the options as a table in Markdown, for docs/data/spark.md."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in table:
        name = f"`{option.name}`" + "".join(f", `{a}`" for a in option.aliases)
        meaning = option.meaning
        if option.modes == (LIVE,):
            meaning += " (live topics)"
        elif option.modes == (SEGMENTS,):
            meaning += " (segments)"
        lines.append(f"| {name} | {_default_text(option.default)} | {meaning} |")
    return "\n".join(lines).replace("…", "...")


def _default_text(default: object) -> str:
    if default in (None, "", ()):
        return "-"
    word = getattr(default, "word", None)
    if word is not None:
        return str(word)
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, bool):
        return str(default).lower()
    return str(default)
