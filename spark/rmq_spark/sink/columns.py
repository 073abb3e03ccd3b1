"""The columns that the sink accepts: one table of names, aliases and types.

The columns of Spark's batches are converted to bytes, numbers and maps.  A wrong type
is an error at the start.  A wrong value is a fault of its row.
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rmq.core.errors import ConfigError

Columns = dict[str, pa.Array]
Faults = dict[int, str]

TEXTS: Final = ("string", "binary")
MAPS: Final = (
    "map<string,string>",
    "map<string,binary>",
    "array<struct<key:string,value:string>>",
    "array<struct<key:string,value:binary>>",
)
WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
MAX_DELAY_LEVEL: Final = 18


class SinkColumn(NamedTuple):
    """A column of the sink: the Spark types that it may have, and its Kafka name."""

    name: str
    types: tuple[str, ...]
    meaning: str
    alias: str = ""


# fmt: off
SINK_COLUMNS: Final = (
    SinkColumn("body", TEXTS, "required", "value"),
    SinkColumn("topic", ("string",), "topic of the row; needed without option `topic`"),
    SinkColumn("tags", ("string",), "property TAGS"),
    SinkColumn("keys", (*TEXTS, "array<string>"), "property KEYS", "key"),
    SinkColumn("properties", MAPS, "more properties of the message", "headers"),
    SinkColumn("msgId", ("string",), "property UNIQ_KEY; null: a generated one"),
    SinkColumn("queueId", WHOLE, "queue to send to; null: any", "partition"),
    SinkColumn("brokerName", ("string",), "broker of `queueId`"),
    SinkColumn("shardingKey", TEXTS,
        "rows with one key go to one queue, in order; the queue is chosen as by Java's "
        "`SelectMessageQueueByHash`"),
    SinkColumn("delayTimeLevel", WHOLE, "Java's levels, 1 to 18"),
    SinkColumn("deliverTimestamp", ("timestamp", "bigint"), "delivery time, or ms"),
    SinkColumn("flag", WHOLE, "the message's flag"),
)
# fmt: on

_BY_NAME: Final = {
    name.lower(): column
    for column in SINK_COLUMNS
    for name in (column.name, column.alias)
    if name
}


def check_schema(fields: Iterable[tuple[str, str]], topic: str | None) -> list[str]:
    """Check a schema of (name, Spark type); returns the names of SINK_COLUMNS."""
    found: list[str] = []
    for name, spark_type in fields:
        column = _BY_NAME.get(name.lower())
        if column is None:
            near = difflib.get_close_matches(name.lower(), _BY_NAME, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigError(
                f"the sink has no column {name}{hint}; it has "
                f"{', '.join(each.name for each in SINK_COLUMNS)}: select these"
            )
        if spark_type not in column.types:
            raise ConfigError(
                f"column {name} is {spark_type}, the sink accepts "
                f"{' or '.join(column.types)}"
            )
        if column.name in found:
            raise ConfigError(f"column {column.name} occurs twice, also as {name}")
        found.append(column.name)
    if "body" not in found:
        raise ConfigError("there is no column body (or value) to send")
    if "topic" not in found and not topic:
        raise ConfigError("no topic is set: set option topic, or add a column topic")
    return found


def sink_columns(names: Sequence[str], batch: pa.RecordBatch) -> tuple[Columns, Faults]:
    """Convert the columns of a batch; returns them, and the faults of rows."""
    faults: Faults = {}
    columns = {}
    for name, array in zip(names, batch.columns, strict=True):
        convert = _CONVERTERS.get(name, _to_binary)
        columns[name] = convert(array, faults)
    return columns, faults


def _to_binary(array: pa.Array, _: Faults) -> pa.Array:
    return array.cast(pa.binary())


def _convert_keys(array: pa.Array, faults: Faults) -> pa.Array:
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return array.cast(pa.binary())
    joined = pc.binary_join(array.cast(pa.list_(pa.string())), " ")
    lost = pc.and_(joined.is_null(), array.is_valid())
    for row in pc.indices_nonzero(lost).to_pylist():
        faults[row] = "an element of keys is null"
    return joined.cast(pa.binary())


def _convert_map(array: pa.Array, _: Faults) -> pa.Array:
    """Convert to a map of bytes; a list of structs has the same buffers."""
    kind = pa.map_(pa.binary(), pa.binary())
    if pa.types.is_map(array.type):
        return array.cast(kind)
    names, values = array.values.flatten()
    names = pc.fill_null(names.cast(pa.binary()), b"")
    entries = pa.StructArray.from_arrays(
        [names, values.cast(pa.binary())], fields=[kind.key_field, kind.item_field]
    )
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), [validity, offsets], offset=array.offset, children=[entries]
    )


def _to_int64(array: pa.Array, _: Faults) -> pa.Array:
    return array.cast(pa.int64())


def _convert_flag(array: pa.Array, faults: Faults) -> pa.Array:
    number = array.cast(pa.int64())
    kept = number.cast(pa.int32(), safe=False)
    for row in pc.indices_nonzero(pc.not_equal(kept.cast(pa.int64()), number)):
        faults[row.as_py()] = "its flag has more than 32 bits"
    return kept


def _convert_level(array: pa.Array, faults: Faults) -> pa.Array:
    level = array.cast(pa.int64())
    wrong = pc.or_(pc.less(level, 1), pc.greater(level, MAX_DELAY_LEVEL))
    for row in pc.indices_nonzero(wrong).to_pylist():
        faults[row] = f"its delayTimeLevel is not 1 to {MAX_DELAY_LEVEL}"
    return level.cast(pa.string()).cast(pa.binary())


def _convert_time(array: pa.Array, _: Faults) -> pa.Array:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)
    return array.cast(pa.int64()).cast(pa.string()).cast(pa.binary())


_CONVERTERS: Final = {
    "keys": _convert_keys,
    "properties": _convert_map,
    "queueId": _to_int64,
    "flag": _convert_flag,
    "delayTimeLevel": _convert_level,
    "deliverTimestamp": _convert_time,
}


def columns_table() -> str:
    """Return the columns of the sink as a table in Markdown, for docs/data/spark.md."""
    lines = ["| column | type | meaning |", "|---|---|---|"]
    for column in SINK_COLUMNS:
        alias = f", `{column.alias}`" if column.alias else ""
        types = ", ".join(f"`{kind}`" for kind in column.types)
        lines.append(f"| `{column.name}`{alias} | {types} | {column.meaning} |")
    return "\n".join(lines)
