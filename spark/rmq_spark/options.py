"""The options of the source: one table that names, parses, checks and describes them.

Names are those of Spark's Kafka source where it has the option.  Spark hands over
strings; the case of a name does not matter.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from rmq.errors import ConfigError

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BYTES: Final = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def _count(value: str) -> int:
    if not value.isdecimal():
        raise ValueError("a whole number, not below 0")
    return int(value)


def _positive(value: str) -> int:
    if not value.isdecimal() or int(value) == 0:
        raise ValueError("a whole number above 0")
    return int(value)


def parse_bytes(value: str) -> int:
    """A size such as 128m; a ValueError says what it must be."""
    match = _BYTES.fullmatch(value.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError("a size such as 128m or 1g")
    return int(match[1]) * _UNITS[match[2].lower()]


def _names(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise ValueError("names with commas between them")
    return names


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(" or ".join(choices))
        return value

    return parse


def _json_table(value: str) -> dict[str, Any]:
    try:
        table = json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"JSON ({error})") from error
    if not isinstance(table, dict) or not table:
        raise ValueError('a JSON object such as {"topic": {"broker-a": {"0": 23}}}')
    return table


QueueNumbers = dict[tuple[str, str, int], int]
"""A number for each (topic, broker name, queue id)."""


class Position(NamedTuple):
    """Where to start or end: a word, a physical offset, or one offset per queue."""

    word: str = ""
    physical_offset: int | None = None
    queues: QueueNumbers | None = None


def _queue_numbers(value: str) -> QueueNumbers:
    return _read_queues(_json_table(value))


def _read_queues(table: dict[str, Any]) -> QueueNumbers:
    try:
        return {
            (topic, broker, int(queue)): _whole(number)
            for topic, brokers in table.items()
            for broker, queues in brokers.items()
            for queue, number in queues.items()
        }
    except (AttributeError, ValueError, TypeError) as error:
        raise ValueError('{"topic": {"broker-a": {"0": 23, "1": -2}}}') from error


def _position(value: str) -> Position:
    if value in ("earliest", "latest"):
        return Position(word=value)
    table = _json_table(value) if value.lstrip().startswith("{") else None
    if table is None:
        raise ValueError('earliest, latest, {"broker-a": 1024} or offsets of queues')
    numbers = list(table.values())
    if len(numbers) == 1 and isinstance(numbers[0], int):
        return Position(physical_offset=_whole(numbers[0]))
    return Position(queues=_read_queues(table))


def _whole(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < -2:
        raise ValueError("whole numbers; -2 is the earliest, -1 the latest")
    return number


def _assignment(value: str) -> frozenset[tuple[str, str, int]]:
    try:
        return frozenset(
            (topic, broker, int(queue))
            for topic, brokers in _json_table(value).items()
            for broker, queues in brokers.items()
            for queue in queues
        )
    except (AttributeError, TypeError) as error:
        raise ValueError('{"topic": {"broker-a": [0, 1]}}') from error


class Option(NamedTuple):
    """One row of the table; `live` options take effect with live topics only."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    meaning: str
    aliases: tuple[str, ...] = ()
    live: bool = False


OPTIONS: Final = (
    Option(
        "store",
        _text,
        None,
        "store folder with `commitlog/` in it, or a folder of segments",
        ("path",),
    ),
    Option(
        "mode",
        _one_of("segments", "live"),
        "segments",
        "`segments` of a store; `live` topics are not supported yet",
    ),
    Option(
        "nameServer",
        _text,
        None,
        "name servers",
        ("kafka.bootstrap.servers",),
        live=True,
    ),
    Option("subscribe", _names, None, "topics, separated by commas", ("topic",)),
    Option("subscribePattern", _pattern, None, "regular expression for topics"),
    Option("assign", _assignment, None, 'queues: `{"T": {"broker-a": [0, 1]}}`'),
    Option("subExpression", _text, "*", "tags or SQL92", live=True),
    Option(
        "startingOffsets",
        _position,
        None,
        '`earliest`, `latest`, `{"broker-a": physicalOffset}` or '
        '`{"T": {"broker-a": {"0": 23, "1": -2}}}` (-2 earliest, -1 latest); a batch '
        "starts at the earliest, a stream at the latest",
    ),
    Option(
        "endingOffsets", _position, Position(word="latest"), "the same, for a batch"
    ),
    Option("startingTimestamp", _count, None, "first store time to read, in ms"),
    Option(
        "endingTimestamp",
        _count,
        None,
        "store time at which to end, in ms; not included",
    ),
    Option(
        "startingOffsetsByTimestamp",
        _queue_numbers,
        None,
        'store times of queues: `{"T": {"broker-a": {"0": 1700000000000}}}`',
    ),
    Option("endingOffsetsByTimestamp", _queue_numbers, None, "the same, for the end"),
    Option(
        "startingOffsetsByTimestampStrategy",
        _one_of("error", "latest"),
        "error",
        "what to do if no message is that young",
        live=True,
    ),
    Option("maxOffsetsPerTrigger", _positive, None, "records of one micro-batch"),
    Option("maxBytesPerTrigger", parse_bytes, 1 << 30, "log bytes of one micro-batch"),
    Option(
        "splitBytes",
        parse_bytes,
        128 << 20,
        "log bytes of one task",
        ("maxPartitionBytes",),
    ),
    Option(
        "minPartitions",
        _positive,
        None,
        "desired minimum number of tasks",
    ),
    Option(
        "failOnDataLoss",
        _flag,
        True,
        "fail if segments are missing; else log the gap and continue after it",
    ),
    Option("pullBatchSize", _positive, 1024, "messages of a pull", live=True),
    Option(
        "pullTimeoutMs", _positive, 30_000, "time limit of a pull, in ms", live=True
    ),
    Option("fetchOffset.numRetries", _count, 3, "retries for offsets", live=True),
    Option(
        "fetchOffset.retryIntervalMs",
        _count,
        10,
        "pause between retries, in ms",
        live=True,
    ),
    Option(
        "consumerGroup",
        _text,
        "rmq-spark",
        "name under which the progress is shown",
        ("groupIdPrefix",),
        live=True,
    ),
    Option(
        "readFrom",
        _one_of("log", "queues"),
        "log",
        "`queues`: of a batch, take the records of `subscribe` or `assign` from their "
        "consume queues; these may lag behind the log",
    ),
    Option("columns", _names, ("full",), "`full`, `slim`, or names of columns"),
    Option(
        "schema",
        _one_of("rmq", "kafka"),
        "rmq",
        "`kafka`: names and types of Kafka's source",
    ),
    Option(
        "propertiesFormat",
        _one_of("map", "string", "none"),
        "map",
        "column `properties`: a map, one string as stored, or `none` for no column",
    ),
    Option(
        "includeSystemTopics",
        _flag,
        False,
        "also schedule, half, retry, dead-letter and other topics of the system, and "
        "prepared and rolled-back records",
    ),
    Option("includeHeaders", _flag, False, "column `headers` with `schema=kafka`"),
    Option("decompress", _flag, True, "decompress bodies, as consumers do"),
    Option("unwrapBatch", _flag, True, "make rows of the messages of an inner batch"),
    Option(
        "verifyCrc",
        _one_of("tail", "all", "none"),
        "tail",
        "CRC of bodies: in the last segment, everywhere, or nowhere",
    ),
    Option(
        "corruptRecords",
        _one_of("fail", "skip"),
        "fail",
        "`skip`: log a bad record with its offset and continue at the next good one",
    ),
    Option(
        "pushFilters",
        _flag,
        False,
        "take `topic = …` filters; needs spark.sql.python.filterPushdown.enabled",
    ),
    Option(
        "brokerName",
        _text,
        "broker-a",
        "value of column `brokerName`, and name in offsets",
    ),
    Option(
        "confirmOffset", _count, None, "physical offset at which the readable log ends"
    ),
    Option(
        "broker",
        _text,
        None,
        "`host:port` of a broker; the source asks it where its log ends",
    ),
)

_BY_NAME: Final = {
    name.lower(): option
    for option in OPTIONS
    for name in (option.name, *option.aliases)
}


class Options:
    """Checked options, read by name; `given` are those that somebody set."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {option.name: option.default for option in OPTIONS}
        self.given: set[str] = set()
        for name, value in given.items():
            option = _find(name)
            if option.name in self.given:
                raise ConfigError(f"option {option.name} is given twice")
            self._values[option.name] = _parse(option, value)
            self.given.add(option.name)
        self._check()

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - each row has its own type
        return self._values[name]

    def _check(self) -> None:
        live = [o.name for o in OPTIONS if o.live and o.name in self.given]
        if self["mode"] == "live" or live:
            raise ConfigError(
                f"option {live[0] if live else 'mode=live'} is for live topics, which "
                "need the Python client that rmq does not have yet: read the segments "
                "of a store with option store"
            )
        if not self["store"]:
            raise ConfigError(
                "which store? Give its folder to load(), or as option store"
            )
        chosen = [
            n for n in ("subscribe", "subscribePattern", "assign") if n in self.given
        ]
        if len(chosen) > 1:
            raise ConfigError(f"give one of {' and '.join(chosen)}, not both")


def _find(name: str) -> Option:
    option = _BY_NAME.get(name.lower())
    if option is not None:
        return option
    near = difflib.get_close_matches(name.lower(), _BY_NAME, n=1)
    hint = f"; did you mean {_BY_NAME[near[0]].name}?" if near else ""
    raise ConfigError(f"there is no option {name}{hint}")


def _parse(option: Option, value: str) -> Any:  # noqa: ANN401 - as its row says
    try:
        return option.parse(value)
    except ValueError as error:
        raise ConfigError(
            f"option {option.name}={value!r} is wrong: it must be {error}"
        ) from error


def options_table() -> str:
    """The table of all options in Markdown, as the manual has it."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in OPTIONS:
        name = f"`{option.name}`" + "".join(f", `{a}`" for a in option.aliases)
        meaning = option.meaning + (" (live topics, not yet)" if option.live else "")
        lines.append(f"| {name} | {_shown(option.default)} | {meaning} |")
    return "\n".join(lines).replace("…", "...")


def _shown(default: object) -> str:
    if isinstance(default, Position):
        return default.word
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, bool):
        return str(default).lower()
    return "-" if default is None else str(default)
