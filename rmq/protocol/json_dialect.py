"""Reader of the JSON dialect of Java's fastjson; what it adds to JSON is in `fastjson`.

A recursive descent over the text. It is slow and seldom needed: standard documents do
not come here. Nesting is limited by `MAX_DEPTH`; every other loop consumes text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rmq.errors import RemoteProtocolError

MAX_DEPTH: Final = 64

_SPACE: Final = re.compile(r"\s*")
_NAME: Final = re.compile(r"[A-Za-z_$@][\w$.@-]*")
_INTEGER: Final = re.compile(r"-?\d+")
_NUMBER: Final = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


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


def read_dialect(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read a document of the dialect; `RemoteProtocolError` if it is none."""
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
            return int(number) if _INTEGER.fullmatch(number) else float(number)
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
        name = self._take(_INTEGER) or self._take(_NAME)
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
        assert quote in _PLAIN, f"{quote} opens no string"
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
