"""The columns of the source: Spark type, Arrow type, and decoded column of each.

Spark checks that the Arrow types are exactly its own: `timestamp[us, UTC]`, `string`,
`binary`, and maps whose keys are not null.  This module does not import pyspark: Spark
accepts a schema as text.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

from rmq.core.errors import ConfigError
from rmq_spark.options import Options

_STRING_MAP: Final = pa.map_(pa.field("key", pa.string(), nullable=False), pa.string())
_HEADERS: Final = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]),
    )
)
ARROW: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": _STRING_MAP,
    "array<struct<key:string,value:binary>>": _HEADERS,
}


class Column(NamedTuple):
    """A column of a table: name, Spark type, and the decoded column it comes from."""

    name: str
    spark_type: str
    source: str

    @property
    def arrow_field(self) -> pa.Field:
        """The Arrow field that Spark expects."""
        return pa.field(self.name, ARROW[self.spark_type])


BROKER_NAME: Final = "brokerName"
OFFSET_ID: Final = "offsetMsgId"
"""Column that `full` leaves out: it follows from `storeHost` and `physicalOffset`, and
is long.
"""
TIMESTAMP_TYPE: Final = "timestampType"
CONSTANTS: Final = frozenset({BROKER_NAME, TIMESTAMP_TYPE})
"""Columns that have one value for all rows of a broker."""

_MAP: Final = Column("properties", "map<string,string>", "properties")
_TEXT: Final = Column("properties", "string", "propertiesText")
_FULL: Final = (
    Column("topic", "string", "topic"),
    Column(BROKER_NAME, "string", BROKER_NAME),
    Column("queueId", "int", "queueId"),
    Column("queueOffset", "bigint", "queueOffset"),
    Column("keys", "string", "keys"),
    Column("tags", "string", "tags"),
    Column("body", "binary", "body"),
    _MAP,
    Column("msgId", "string", "msgId"),
    Column(OFFSET_ID, "string", OFFSET_ID),
    Column("bornTimestamp", "timestamp", "bornTimestamp"),
    Column("storeTimestamp", "timestamp", "storeTimestamp"),
    Column("bornHost", "string", "bornHost"),
    Column("storeHost", "string", "storeHost"),
    Column("flag", "int", "flag"),
    Column("sysFlag", "int", "sysFlag"),
    Column("bodyCrc", "int", "bodyCrc"),
    Column("reconsumeTimes", "int", "reconsumeTimes"),
    Column("storeSize", "int", "storeSize"),
    Column("physicalOffset", "bigint", "physicalOffset"),
    Column("preparedTransactionOffset", "bigint", "preparedTransactionOffset"),
)
SLIM: Final = (
    "topic",
    "queueId",
    "queueOffset",
    "body",
    "tags",
    "keys",
    "storeTimestamp",
)
EXPORTED: Final = tuple(
    column.name
    for column in _FULL
    if column.name not in (BROKER_NAME, OFFSET_ID, "bodyCrc")
)
"""Default columns of an export; file names have the broker instead of a column."""
_KAFKA: Final = (
    Column("key", "binary", "keys"),
    Column("value", "binary", "body"),
    Column("topic", "string", "topic"),
    Column("partition", "int", "queueId"),
    Column("offset", "bigint", "queueOffset"),
    Column("timestamp", "timestamp", "storeTimestamp"),
    Column(TIMESTAMP_TYPE, "int", TIMESTAMP_TYPE),
)
_KAFKA_HEADERS: Final = Column(
    "headers", "array<struct<key:string,value:binary>>", "properties"
)


def _available_columns(options: Options) -> tuple[Column, ...]:
    if options["schema"] == "kafka":
        return (*_KAFKA, _KAFKA_HEADERS) if options["includeHeaders"] else _KAFKA
    chosen = {"map": _MAP, "string": _TEXT, "none": None}[options["propertiesFormat"]]
    columns = (chosen if column is _MAP else column for column in _FULL)
    return tuple(column for column in columns if column is not None)


def columns_of(options: Options) -> tuple[Column, ...]:
    """Return the columns that the options select."""
    available = _available_columns(options)
    wanted = options["columns"]
    if wanted == ("full",):
        return tuple(column for column in available if column.name != OFFSET_ID)
    if wanted == ("slim",):
        wanted = SLIM
    return _select_columns(available, wanted)


def _select_columns(
    available: Iterable[Column], names: Iterable[str]
) -> tuple[Column, ...]:
    by_name = {column.name.lower(): column for column in available}
    unknown = [name for name in names if name.lower() not in by_name]
    if unknown:
        raise ConfigError(
            f"there is no column {', '.join(unknown)}; there are "
            f"{', '.join(column.name for column in by_name.values())}"
        )
    return tuple(by_name[name.lower()] for name in names)


def columns_of_schema(
    options: Options, wanted: Iterable[tuple[str, str]]
) -> tuple[Column, ...]:
    """Return the columns of a schema of (name, Spark type), in its order.

    A schema may declare a string as binary, and `properties` as map or as string.
    """
    available = {column.name.lower(): column for column in _available_columns(options)}
    chosen = []
    for name, spark_type in wanted:
        column = available.get(name.lower())
        if column is None:
            (column,) = _select_columns(available.values(), [name])
        chosen.append(_cast_column(column, name, spark_type))
    return tuple(chosen)


def _cast_column(column: Column, name: str, spark_type: str) -> Column:
    if spark_type == column.spark_type:
        return column._replace(name=name)
    if column.name == "properties" and spark_type in ("string", "map<string,string>"):
        return (_TEXT if spark_type == "string" else _MAP)._replace(name=name)
    if {spark_type, column.spark_type} == {"string", "binary"} and (
        column.source not in CONSTANTS
    ):
        return column._replace(name=name, spark_type=spark_type)
    raise ConfigError(
        f"column {name} is {column.spark_type}, it cannot be read as {spark_type}"
    )


def spark_schema(columns: Iterable[Column]) -> str:
    """Return the schema as text that Spark parses."""
    return ", ".join(f"`{column.name}` {column.spark_type}" for column in columns)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the schema of the batches."""
    return pa.schema([column.arrow_field for column in columns])
