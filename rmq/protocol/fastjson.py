"""The JSON dialect of Java's fastjson: read all of it, write the part others read too.

What it adds to JSON: names without quotes or in single quotes (`{0:"a"}`, `{a:1}`),
strings in single quotes, a trailing comma, objects as names (`{{"topic":"t"}:1}`), and
`{"$ref":"$.path"}` for an object that was written before.

Reading tries the standard parser first. A name is always text, except that an object as
a name becomes an `ObjectKey`. References are resolved by copying.

Writing follows the standard except for objects as names, which Java's tools demand: no
blanks, names in quotes and sorted, nulls left out (a null means the same as absence).

Limits: nesting `MAX_DEPTH`, values copied through references `MAX_REFERENCED_VALUES`,
since a few references to each other multiply.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from rmq.errors import LocalProtocolError, RemoteProtocolError

MAX_DEPTH: Final = 64
MAX_REFERENCED_VALUES: Final = 100_000

_REFERENCE: Final = "$ref"
_SPACE: Final = re.compile(r"\s*")
_NAME: Final = re.compile(r"[A-Za-z_$@][\w$.@-]*")
_INTEGER_NAME: Final = re.compile(r"-?\d+")
_NUMBER: Final = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PATH_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[['\"]([^'\"]*)['\"]\]")


class ObjectKey(Mapping[str, Any]):
    """An object that stands as a name; hashable, because its values are scalars."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = dict(members)
        self._hash = hash(frozenset(self._members.items()))

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any JSON scalar
        """Return the value of a member."""
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"ObjectKey({self._members!r})"


def loads(data: bytes | str) -> Any:  # noqa: ANN401 - any JSON value
    """Read a document of the dialect; `RemoteProtocolError` if it is none."""
    raw = data.encode() if isinstance(data, str) else data
    try:
        value = msgspec.json.decode(raw)
        _check_depth(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _read_leniently(raw)
    return _Resolver(value).resolve(value, 0) if b"$ref" in raw else value


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


def _read_leniently(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return _Reader(data.decode()).read_document()
    except (ValueError, IndexError) as error:
        raise RemoteProtocolError(f"this is not JSON: {error}") from error


class _Reader:
    """A recursive descent over the text; `ValueError` where the dialect ends."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def read_document(self) -> Any:  # noqa: ANN401 - any JSON value
        value = self._read_value(0)
        if self._peek():
            raise self._unexpected("the end")
        return value

    def _peek(self) -> str:
        """Skip blanks; return the next character, nothing at the end."""
        match = _SPACE.match(self._text, self._position)
        assert match is not None
        self._position = match.end()
        return self._text[self._position : self._position + 1]

    def _accept(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._position += 1
        return True

    def _expect(self, character: str) -> None:
        if not self._accept(character):
            raise self._unexpected(character)

    def _unexpected(self, wanted: str) -> ValueError:
        found = self._text[self._position : self._position + 10]
        return ValueError(f"{wanted} wanted at {self._position}, not {found!r}")

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._position)
        if match is None:
            return None
        self._position = match.end()
        return match.group()

    def _read_value(self, depth: int) -> Any:  # noqa: ANN401 - any JSON value
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        character = self._peek()
        if character == "{":
            return self._read_object(depth)
        if character == "[":
            return self._read_array(depth)
        if character in ('"', "'"):
            return self._read_string()
        if (number := self._take(_NUMBER)) is not None:
            return int(number) if _INTEGER_NAME.fullmatch(number) else float(number)
        word = self._take(_NAME)
        if word not in _WORDS:
            raise self._unexpected("a value")
        return _WORDS[word]

    def _read_array(self, depth: int) -> list[Any]:
        self._expect("[")
        values: list[Any] = []
        while not self._accept("]"):
            values.append(self._read_value(depth + 1))
            if not self._accept(",") and self._peek() != "]":
                raise self._unexpected(", or ]")
        return values

    def _read_object(self, depth: int) -> dict[Any, Any]:
        self._expect("{")
        members: dict[Any, Any] = {}
        while not self._accept("}"):
            name = self._read_name(depth)
            self._expect(":")
            members[name] = self._read_value(depth + 1)
            if not self._accept(",") and self._peek() != "}":
                raise self._unexpected(", or }")
        return members

    def _read_name(self, depth: int) -> str | ObjectKey:
        character = self._peek()
        if character in ('"', "'"):
            return self._read_string()
        if character == "{":
            return self._read_object_name(depth)
        name = self._take(_INTEGER_NAME) or self._take(_NAME)
        if name is None:
            raise self._unexpected("a name")
        return name

    def _read_object_name(self, depth: int) -> ObjectKey:
        members = self._read_value(depth + 1)
        try:
            return ObjectKey(members)
        except TypeError as error:
            raise ValueError("a structure inside an object as a name") from error

    def _read_string(self) -> str:
        quote = self._text[self._position]
        self._position += 1
        parts = []
        while True:
            parts.append(self._take(_PLAIN[quote]) or "")
            character = self._text[self._position]
            self._position += 1
            if character == quote:
                return "".join(parts)
            parts.append(self._read_escape())

    def _read_escape(self) -> str:
        character = self._text[self._position]
        self._position += 1
        if character == "u":
            return self._read_unicode()
        if character == "x":
            return chr(self._read_hex(2))
        return _ESCAPES.get(character, character)

    def _read_unicode(self) -> str:
        """Read one code unit, or two that make a character beyond the first plane."""
        unit = self._read_hex(4)
        if 0xD800 <= unit < 0xDC00 and self._text.startswith("\\u", self._position):
            self._position += 2
            pair = unit.to_bytes(2, "big") + self._read_hex(4).to_bytes(2, "big")
            return pair.decode("utf-16-be")
        if 0xD800 <= unit < 0xE000:
            raise ValueError("half a surrogate pair")
        return chr(unit)

    def _read_hex(self, size: int) -> int:
        digits = self._text[self._position : self._position + size]
        self._position += size
        if len(digits) != size or not digits.isalnum():
            raise ValueError(f"{digits!r} is no escape")
        return int(digits, 16)


class _Resolver:
    """Replaces references by copies of what they mean."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._copied = 0

    def resolve(self, value: object, depth: int, *, is_copy: bool = False) -> Any:  # noqa: ANN401 - any JSON value
        """Return the value without references; cycles end at the depth limit."""
        if depth > MAX_DEPTH:
            raise RemoteProtocolError(f"references lead deeper than {MAX_DEPTH}")
        self._copied += is_copy
        if self._copied > MAX_REFERENCED_VALUES:
            raise RemoteProtocolError(
                f"references stand for more than {MAX_REFERENCED_VALUES} values"
            )
        if isinstance(value, list):
            return [self.resolve(item, depth + 1, is_copy=is_copy) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and isinstance(value.get(_REFERENCE), str):
            target = self._look_up(value[_REFERENCE])
            return self.resolve(target, depth + 1, is_copy=True)
        return {
            name: self.resolve(item, depth + 1, is_copy=is_copy)
            for name, item in value.items()
        }

    def _look_up(self, path: str) -> object:
        """Follow `$`, `$.name`, `$.list[0]`; what leads nowhere is null."""
        if not path.startswith("$"):
            return None
        target: Any = self._root
        position = 1
        while position < len(path):
            step = _PATH_STEP.match(path, position)
            if step is None:
                return None
            name, index, quoted = step.groups()
            if isinstance(target, list) and index and int(index) < len(target):
                target = target[int(index)]
            elif isinstance(target, dict):
                target = target.get(name or index or quoted)
            else:
                return None
            position = step.end()
        return target


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
