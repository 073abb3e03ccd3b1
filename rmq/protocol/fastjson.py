"""The JSON dialect of Java's fastjson: read all of it, write the part others read too.

What it adds to JSON: names without quotes or in single quotes (`{0:"a"}`, `{a:1}`),
strings in single quotes, a trailing comma, objects as names (`{{"topic":"t"}:1}`), and
`{"$ref":"$.path"}` for an object that was written before.

Reading tries the standard parser first. A name is always text, except that an object as
a name becomes an `ObjectKey`. Nesting is limited to `MAX_DEPTH`. What comes from a
stranger and is not plain has MAX_STRANGE_SIZE, because reading it costs a microsecond a
byte; files have no limit.

Writing follows the standard except for objects as names, which Java's tools demand: no
blanks, names in quotes and sorted, nulls left out (a null means the same as absence).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from rmq.errors import LocalProtocolError, RemoteProtocolError
from rmq.protocol.json_dialect import MAX_DEPTH, ObjectKey, read_dialect
from rmq.protocol.json_references import resolve_references

__all__ = [
    "MAX_DEPTH",
    "ObjectKey",
    "dumps",
    "dumps_pretty",
    "java_text",
    "loads",
    "loads_strange",
]


MAX_STRANGE_SIZE: Final = 256 * 1024


def loads_strange(data: bytes | str) -> Any:  # noqa: ANN401 - any JSON value
    """Read what a stranger sent and the strict parser refused."""
    if len(data) > MAX_STRANGE_SIZE:
        raise RemoteProtocolError(
            f"{len(data)} bytes of JSON that is not what was wanted, or not standard: "
            f"only {MAX_STRANGE_SIZE} are looked at, send less or write it plainly"
        )
    return loads(data)


def loads(data: bytes | str) -> Any:  # noqa: ANN401 - any JSON value
    """Read a document of the dialect; `RemoteProtocolError` if it is none."""
    raw = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    try:
        value = msgspec.json.decode(raw)
        _check_depth(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = read_dialect(raw)
    return resolve_references(value) if b"$ref" in raw else value


def dumps(value: object) -> bytes:
    """Write compactly, with sorted names: mappings, sequences, scalars, structs."""
    parts: list[bytes] = []
    _write(value, parts.append, None)
    return b"".join(parts)


def dumps_pretty(value: object) -> bytes:
    """Write as Java writes its configuration files: one member a line, tabs."""
    parts: list[bytes] = []
    _write(value, parts.append, b"\n")
    return b"".join(parts)


def java_text(value: object) -> str:
    """Return the text of a scalar as Java's `toString`; structures as JSON."""
    if isinstance(value, str):
        return value
    return dumps(value).decode()


def _check_depth(value: object) -> None:
    """Refuse what is nested too deep, level by level, so that others may recurse."""
    level = _structures([value])
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [item for container in level for item in _inside(container)]
    raise RemoteProtocolError(f"this JSON is nested deeper than {MAX_DEPTH}")


def _inside(container: dict[Any, Any] | list[Any]) -> list[Any]:
    """Return the dictionaries and lists directly inside."""
    items = container.values() if isinstance(container, dict) else container
    return _structures(items)


def _structures(items: Iterable[Any]) -> list[Any]:
    return [item for item in items if isinstance(item, dict | list)]


_encode_scalar = msgspec.json.Encoder().encode
_SCALARS: Final = (str, int, float, bytes, type(None))
_Emit = Callable[[bytes], None]


def _write(value: object, emit: _Emit, line: bytes | None) -> None:
    """Write a value; `line` is the line break with its tabs, None when compact."""
    if isinstance(value, msgspec.Struct):
        _write_members(_struct_members(value), emit, line)
    elif isinstance(value, Mapping):
        _write_members(_mapping_members(value), emit, line)
    elif isinstance(value, list | tuple):
        _write_items(value, emit, line)
    elif isinstance(value, set | frozenset):
        _write_items(sorted(value), emit, line)
    else:
        _write_scalar(value, emit)


def _write_scalar(value: object, emit: _Emit) -> None:
    if not isinstance(value, _SCALARS):
        raise LocalProtocolError(f"{value!r} cannot be written as JSON")
    emit(_encode_scalar(value))


def _write_members(
    members: list[tuple[bytes, object]], emit: _Emit, line: bytes | None
) -> None:
    inner = None if line is None else line + b"\t"
    separator = b"{"
    for name, value in members:
        emit(separator)
        if inner is not None:
            emit(inner)
        emit(name)
        _write(value, emit, inner)
        separator = b","
    _close(b"{}", emit, line, is_empty=not members)


def _write_items(
    items: list[object] | tuple[object, ...], emit: _Emit, line: bytes | None
) -> None:
    inner = None if line is None else line + b"\t"
    separator = b"["
    for value in items:
        emit(separator)
        if inner is not None:
            emit(inner)
        _write(value, emit, inner)
        separator = b","
    _close(b"[]", emit, line, is_empty=not items)


def _close(brackets: bytes, emit: _Emit, line: bytes | None, *, is_empty: bool) -> None:
    if is_empty:
        emit(brackets)
        return
    if line is not None:
        emit(line)
    emit(brackets[1:])


def _struct_members(value: msgspec.Struct) -> list[tuple[bytes, object]]:
    """Return the members that are set, with their names ready to write."""
    members = []
    for attribute, name in _struct_names(type(value)):
        item = getattr(value, attribute)
        if item is not None:
            members.append((name, item))
    return members


@cache
def _struct_names(kind: type[msgspec.Struct]) -> list[tuple[str, bytes]]:
    """Return each attribute and its written name, sorted by the latter."""
    pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return [
        (attribute, _encode_scalar(name) + b":") for name, attribute in sorted(pairs)
    ]


def _mapping_members(value: Mapping[Any, object]) -> list[tuple[bytes, object]]:
    """Return the members that are set: numbers in order, then text, then objects."""
    members = [
        (_order(name), _written_name(name), item)
        for name, item in value.items()
        if item is not None
    ]
    members.sort(key=lambda member: member[:2])
    return [(name, item) for _, name, item in members]


def _order(name: object) -> tuple[int, int]:
    if isinstance(name, int):
        return 0, name
    return (1, 0) if isinstance(name, str) else (2, 0)


def _written_name(name: object) -> bytes:
    if isinstance(name, str):
        return _encode_scalar(name) + b":"
    if isinstance(name, int) and not isinstance(name, bool):
        return b'"%d":' % name
    if isinstance(name, msgspec.Struct | Mapping):
        return dumps(name) + b":"
    raise LocalProtocolError(f"{name!r} cannot be a name in JSON")
