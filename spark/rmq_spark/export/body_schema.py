"""The schema of bodies: declared columns such as `order bigint, sku string`.

A declaration may change while a table is in use: it may get new columns and wider types
(int to bigint, float to double).  Rows of earlier batches have null in a new column.
"""

import hashlib
from typing import Final

import msgspec
import pyarrow as pa

from rmq.config.option import nearest_name
from rmq.core.errors import ConfigError

FORMATS: Final = ("json", "avro")
ON_ERROR: Final = ("quarantine", "null")
TYPES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
"""Spark's names of the types."""
_WIDER: Final = {"int": "bigint", "float": "double"}
ERROR: Final = "error"
"""The column of the quarantine with the reason."""
MAX_FIELDS: Final = 1_000
"""Limit of columns: each has buffers in every open file."""
_DIGEST: Final = 8
"""Number of hexadecimal digits: enough to separate the declarations of one table."""


class Bodies(msgspec.Struct, frozen=True):
    """How bodies become columns; `fields` are pairs of name and type."""

    form: str
    fields: list[tuple[str, str]]
    on_error: str = "quarantine"
    max_bad: float = 0.01
    """Largest share of the bodies of a batch that may not fit."""
    schemas: str = ""
    """Folder of the Avro schemas, or the URL of a registry."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns."""
        return pa.schema([pa.field(name, TYPES[kind]) for name, kind in self.fields])

    @property
    def digest(self) -> str:
        """Identifies the declaration in file names."""
        fixed = msgspec.json.encode([self.form, self.fields, self.on_error])
        return hashlib.sha256(fixed).hexdigest()[:_DIGEST]


def parse_fields(text: str) -> list[tuple[str, str]]:
    """Parse `name type, name type`; ConfigError for anything else."""
    fields: list[tuple[str, str]] = []
    seen: set[str] = set()
    for part in text.split(","):
        words = part.split()
        if len(words) != 2:
            raise ConfigError(
                f"{part.strip()!r} is not a name and a type: order bigint"
            )
        name, kind = words[0], words[1].lower()
        if kind not in TYPES:
            near = nearest_name(kind, TYPES)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(TYPES)}"
            raise ConfigError(f"column {name} has an unknown type {kind}; {hint}")
        if name.lower() in seen:
            raise ConfigError(f"column {name} is declared twice")
        seen.add(name.lower())
        fields.append((name, kind))
    if len(fields) > MAX_FIELDS:
        raise ConfigError(f"more than {MAX_FIELDS} columns of bodies are declared")
    return fields


def why_not_continued(existing: Bodies, now: Bodies, table_format: str) -> str | None:
    """Return why a table with schema `existing` cannot continue with `now`."""
    if existing.form != now.form:
        return f"its bodies are {existing.form}, not {now.form}"
    declared = dict(now.fields)
    for name, kind in existing.fields:
        wanted = declared.get(name)
        if wanted is None:
            return (
                f"column {name} is missing: keep it in the schema; it is null for a "
                "body without it"
            )
        if wanted == kind:
            continue
        if _WIDER.get(kind) != wanted:
            return f"column {name} is {kind} and cannot become {wanted}"
        if table_format == "delta":
            return f"a Delta table cannot widen column {name} from {kind} to {wanted}"
    return None


def type_conflict(one: Bodies, other: Bodies) -> str | None:
    """Return a column whose types for two brokers are incompatible, or None."""
    types = dict(one.fields)
    for name, kind in other.fields:
        ours = types.get(name, kind)
        if kind not in (ours, _WIDER.get(ours)) and ours != _WIDER.get(kind):
            return f"column {name} is {ours} here and {kind} there"
    return None
