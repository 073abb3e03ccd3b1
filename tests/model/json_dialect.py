"""The JSON dialect by recursive descent: slow, obvious, without shared code.

The twin of `rmq/_fastpath/bytes/json_dialect.pyx` with the strict parser after it.
Objects as names become frozen sets of their members.
"""

import re

MAX_DEPTH = 64

_SPACE = re.compile(r"[ \t\n\v\f\r]*")
_NAME = re.compile(r"[A-Za-z_$@][\w$.@-]*")
_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def read_dialect(data):
    """Read a document; ValueError or IndexError where it is none."""
    return _Reader(data.decode()).read_document()


class _Reader:
    """A recursive descent over the text; `ValueError` where the dialect ends."""

    def __init__(self, text):
        self._text = text
        self._position = 0

    def read_document(self):
        value = self._read_value(0)
        if self._peek():
            raise self._unexpected("the end")
        return value

    def _peek(self):
        """Skip blanks; return the next character, nothing at the end."""
        match = _SPACE.match(self._text, self._position)
        assert match is not None
        self._position = match.end()
        return self._text[self._position : self._position + 1]

    def _accept(self, character):
        if self._peek() != character:
            return False
        self._position += 1
        return True

    def _expect(self, character):
        if not self._accept(character):
            raise self._unexpected(character)

    def _unexpected(self, wanted):
        found = self._text[self._position : self._position + 10]
        return ValueError(f"{wanted} wanted at {self._position}, not {found!r}")

    def _take(self, pattern):
        match = pattern.match(self._text, self._position)
        if match is None:
            return None
        self._position = match.end()
        return match.group()

    def _read_value(self, depth):
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

    def _read_array(self, depth):
        self._expect("[")
        values = []
        while not self._accept("]"):
            values.append(self._read_value(depth + 1))
            if not self._accept(",") and self._peek() != "]":
                raise self._unexpected(", or ]")
        return values

    def _read_object(self, depth):
        self._expect("{")
        members = {}
        while not self._accept("}"):
            name = self._read_name(depth)
            self._expect(":")
            members[name] = self._read_value(depth + 1)
            if not self._accept(",") and self._peek() != "}":
                raise self._unexpected(", or }")
        return members

    def _read_name(self, depth):
        character = self._peek()
        if character in ('"', "'"):
            return self._read_string()
        if character == "{":
            return self._read_object_name(depth)
        name = self._take(_INTEGER) or self._take(_NAME)
        if name is None:
            raise self._unexpected("a name")
        return name

    def _read_object_name(self, depth):
        members = self._read_value(depth + 1)
        parts = (*members, *members.values())
        if any(isinstance(part, dict | list | frozenset) for part in parts):
            raise ValueError("a structure inside an object as a name")
        return frozenset(members.items())

    def _read_string(self):
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

    def _read_escape(self):
        character = self._text[self._position]
        self._position += 1
        if character == "u":
            return self._read_unicode()
        if character == "x":
            return chr(self._read_hex(2))
        return _ESCAPES.get(character, character)

    def _read_unicode(self):
        """Read one code unit, or two that make a character beyond the first plane."""
        unit = self._read_hex(4)
        if 0xD800 <= unit < 0xDC00 and self._text.startswith("\\u", self._position):
            self._position += 2
            pair = unit.to_bytes(2, "big") + self._read_hex(4).to_bytes(2, "big")
            return pair.decode("utf-16-be")
        if 0xD800 <= unit < 0xE000:
            raise ValueError("half a surrogate pair")
        return chr(unit)

    def _read_hex(self, size):
        digits = self._text[self._position : self._position + size]
        self._position += size
        if len(digits) != size or not digits.isalnum():
            raise ValueError(f"{digits!r} is no escape")
        return int(digits, 16)
