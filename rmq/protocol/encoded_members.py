"""EncodedMembers: members of a large JSON object, each encoded once after it changed.

A table of ten thousand entries is written often, and few entries change. The text of
the table joins the texts of the entries, sorted by name as `fastjson` sorts them:

    member = separator · name in quotes · ":" · value

A separator is a comma and, in the form of files, a line break with tabs.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from rmq.protocol import fastjson
from rmq.protocol.sorted_texts import SortedTexts

V = TypeVar("V")

PER_TURN: Final = 16
TURN_SIZE: Final = 16 * 1024
"""Number of entries, and of their bytes, that are encoded before other tasks run: 0.4
ms.
"""

FILE_LINE: Final = b"\n\t\t"
"""Start of a member of an object that is a member of a file's document."""


class EncodedMembers(Generic[V]):
    """The texts of the members of one object."""

    def __init__(
        self, *, line: bytes | None = None, encode: Callable[[V], bytes] | None = None
    ) -> None:
        """`line` starts each member; None for the compact form of requests.

        `encode` writes a value, by default with `fastjson`.
        """
        self._line = line
        self._encode = encode or (lambda value: fastjson.dumps_part(value, line))
        self._separator = b"," + (line or b"")
        self._texts = SortedTexts()
        self._stale: dict[str, V] = {}

    def put(self, name: str, value: V) -> None:
        """Add or replace a member; it is encoded when its text is needed."""
        self._stale[name] = value

    def remove(self, name: str) -> None:
        """Remove a member."""
        self._stale.pop(name, None)
        self._texts.discard(_encode_name(name))

    @property
    def is_empty(self) -> bool:
        """Whether there is no member."""
        return not self._texts and not self._stale

    @property
    def stale_count(self) -> int:
        """Number of members that wait to be encoded."""
        return len(self._stale)

    def encode_some(self) -> None:
        """Encode changed members, as many as one turn allows."""
        size = 0
        for _ in range(min(PER_TURN, len(self._stale))):
            size += self._encode_one()
            if size > TURN_SIZE:
                break

    def _encode_one(self) -> int:
        """Encode a member that changed; return its size."""
        name, value = self._stale.popitem()
        written = _encode_name(name)
        text = self._separator + written + self._encode(value)
        self._texts.put(written, text)
        return len(text)

    def _encode_all(self) -> None:
        while self._stale:
            self._encode_one()

    def joined_texts(self) -> list[bytes]:
        """Return the texts of the members, each with its separator, some joined."""
        self._encode_all()
        return self._texts.joined_texts()

    def text_parts(self, limit: int) -> list[list[bytes]]:
        """Return the texts of up to `limit` members at a time, see `texts`."""
        self._encode_all()
        return list(self._texts.text_parts(limit))

    def fill(self, text: bytes, name: str) -> list[bytes]:
        """Return a document in which `name` leads to these members, in pieces.

        `text` is the document with `{}` there.
        """
        return fill(text, name, self.joined_texts(), self._line)


def _encode_name(name: str) -> bytes:
    return fastjson.dump_json(name) + b":"


def fill(
    text: bytes, name: str, members: list[bytes], line: bytes | None = None
) -> list[bytes]:
    """Return a document in which `name` leads to these texts of `EncodedMembers`."""
    if not members:
        return [text]
    head, found, tail = text.rpartition(b'"%s":{}' % name.encode())
    assert found, f"there is no empty {name} in {text[:200]!r}"
    first = members[0][1:]  # without its comma
    return [head, found[:-1], first, *members[1:], (line or b"")[:-1], b"}", tail]


class LargeObject(Generic[V]):
    """The members of an object, in the formats of files and of requests."""

    def __init__(
        self,
        encode_for_file: Callable[[V], bytes] | None = None,
        encode: Callable[[V], bytes] | None = None,
    ) -> None:
        self.in_file = EncodedMembers(line=FILE_LINE, encode=encode_for_file)
        self.in_request = EncodedMembers(encode=encode)

    def put(self, name: str, value: V) -> None:
        """Add or replace a member."""
        self.in_file.put(name, value)
        self.in_request.put(name, value)

    def remove(self, name: str) -> None:
        """Remove a member."""
        self.in_file.remove(name)
        self.in_request.remove(name)
