"""The JSON dialect of Java's fastjson: reads the whole dialect, writes nearly standard
JSON.

Its additions to JSON:

* names without quotes or in single quotes: `{0:"a"}`, `{a:1}`
* strings in single quotes, a trailing comma
* objects as names: `{{"topic":"t"}:1}`
* `{"$ref":"$.path"}` for an object that was written before

Reading tries the standard parser first. A name is always text, except that an object as
a name becomes an `ObjectKey`. Nesting is limited to `MAX_DEPTH`. The typed
parser cannot read some texts even when they are rewritten, for example nulls or objects
as names. `StrangeBudget` limits such text in a request; files have no limit.

Writing follows the standard except for objects as names, which Java's tools demand.
The text has no blanks; names are quoted and sorted. Nulls are left out, because a null
means the same as absence.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec

from rmq.core.errors import LocalProtocolError, RemoteProtocolError
from rmq.protocol.json_dialect import MAX_DEPTH, UNLIMITED, ObjectKey, read_dialect
from rmq.protocol.json_references import resolve_references

__all__ = [
    "MAX_DEPTH",
    "ObjectKey",
    "StrangeBudget",
    "check_depth",
    "dump_json",
    "dumps_part",
    "dumps_pretty",
    "java_text",
    "load_json",
]


MAX_STRANGE_SIZE: Final = 128 * 1024
"""Maximum bytes of such text in one request: to read them takes at most 30 ms of the
loop.
"""

MAX_STRANGE_NAMES: Final = 4096
"""Maximum number of objects as names in one document, 4 us each; a consumer has one per
queue.
"""


class StrangeBudget:
    """The budget of a request for text that the typed parser cannot read."""

    def __init__(self) -> None:
        self._left = MAX_STRANGE_SIZE

    def load_json(self, data: bytes | str) -> Any:  # noqa: ANN401 - any JSON value
        """Read a document of the dialect; `RemoteProtocolError` beyond the budget."""
        self._left -= len(data)
        if self._left < 0:
            raise RemoteProtocolError(
                f"{len(data)} bytes of unexpected or non-standard JSON: a request may "
                f"have {MAX_STRANGE_SIZE} bytes of it; send less, or standard JSON"
            )
        return load_json(data, max_object_names=MAX_STRANGE_NAMES)


def load_json(
    data: bytes | str,
    *,
    max_dialect_size: int = UNLIMITED,
    max_object_names: int = UNLIMITED,
) -> Any:  # noqa: ANN401 - any JSON value
    """Read a document of the dialect; `RemoteProtocolError` if it is not valid."""
    raw = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    try:
        value = msgspec.json.decode(raw)
        check_depth(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if len(raw) > max_dialect_size:
            raise RemoteProtocolError(
                f"{len(raw)} bytes that are not standard JSON: at most "
                f"{max_dialect_size} bytes may be in another dialect"
            ) from None
        value = read_dialect(raw, max_object_names)
    return resolve_references(value) if b"$ref" in raw else value


def dump_json(value: object) -> bytes:
    """Write compactly, with sorted names: mappings, sequences, scalars, structs."""
    return _text(value, None)


def dumps_pretty(value: object) -> bytes:
    """Write as Java writes its configuration files: one member per line, with tabs."""
    return _text(value, b"\n")


def dumps_part(value: object, line: bytes | None) -> bytes:
    """Write a part of a document; `line` is its line break with tabs, None: compact."""
    return _text(value, line)


def java_text(value: object) -> str:
    """Return the text of a scalar as Java's `toString`; structures as JSON."""
    if isinstance(value, str):
        return value
    return dump_json(value).decode()


def check_depth(value: object) -> None:
    """Refuse a value that is nested too deeply, so that other functions may recurse."""
    level = _only_containers([value])
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [item for container in level for item in _containers_in(container)]
    raise RemoteProtocolError(f"this JSON has more than {MAX_DEPTH} levels")


def _containers_in(container: dict[Any, Any] | list[Any]) -> list[Any]:
    """Return the dictionaries and lists that are direct members."""
    items = container.values() if isinstance(container, dict) else container
    return _only_containers(items)


def _only_containers(items: Iterable[Any]) -> list[Any]:
    return [item for item in items if isinstance(item, dict | list)]


_encode_scalar = msgspec.json.Encoder().encode
_SCALARS: Final = (str, int, float, bytes, type(None))
_USUAL: Final = frozenset({*_SCALARS, bool})
_PLACE: Final = itemgetter(0, 1)
_Members = list[tuple[bytes, object]]


def _text(value: object, line: bytes | None) -> bytes:
    """Write a value; `line` is the line break with its tabs, None when compact."""
    if isinstance(value, msgspec.Struct):
        return _enclose_texts(b"{}", _member_texts(_struct_members(value), line), line)
    if isinstance(value, Mapping):
        return _enclose_texts(b"{}", _member_texts(_mapping_members(value), line), line)
    if isinstance(value, list | tuple):
        if line is None and set(map(type, value)) == {str}:
            return _encode_scalar(value)  # long lists of names
        return _enclose_texts(
            b"[]", _member_texts([(b"", item) for item in value], line), line
        )
    if isinstance(value, set | frozenset):
        return _text(sorted(value), line)
    if isinstance(value, _SCALARS):
        return _encode_scalar(value)
    raise LocalProtocolError(f"{value!r} cannot be written as JSON")


def _member_texts(members: _Members, line: bytes | None) -> list[bytes]:
    """Write the members. Most are scalars, which are written without a further call."""
    inner = None if line is None else line + b"\t"
    return [
        name + (_encode_scalar(item) if type(item) in _USUAL else _text(item, inner))
        for name, item in members
    ]


def _enclose_texts(brackets: bytes, texts: list[bytes], line: bytes | None) -> bytes:
    if not texts:
        return brackets
    if line is None:
        return brackets[:1] + b",".join(texts) + brackets[1:]
    inner = line + b"\t"
    return brackets[:1] + inner + (b"," + inner).join(texts) + line + brackets[1:]


def _struct_members(value: msgspec.Struct) -> _Members:
    """Return the members that are set, with their names ready to write."""
    names, values_of = _struct_names(type(value))
    pairs = zip(names, values_of(value), strict=True)
    return [(name, item) for name, item in pairs if item is not None]


@cache
def _struct_names(
    kind: type[msgspec.Struct],
) -> tuple[list[bytes], Callable[[object], Iterable[object]]]:
    """Return the written names, sorted, and the getter of the values in this order."""
    pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    ordered = sorted(pairs)
    names = [_encode_scalar(name) + b":" for name, _ in ordered]
    attributes = [attribute for _, attribute in ordered]
    if len(attributes) > 1:
        return names, attrgetter(*attributes)
    return names, lambda value: [getattr(value, each) for each in attributes]


def _mapping_members(value: Mapping[Any, object]) -> _Members:
    """Return the members that are set: numbers in order, then text, then objects."""
    members = [
        (_order(name), _written_name(name), item)
        for name, item in value.items()
        if item is not None
    ]
    members.sort(key=_PLACE)
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
        return dump_json(name) + b":"
    raise LocalProtocolError(f"{name!r} cannot be a name in JSON")
