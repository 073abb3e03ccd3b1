"""Typed bodies: JSON documents as structs with Java's names, types and defaults.

A class here has the name of the Java class of the document; its fields are Java's
property names in snake case. Reading is as lenient as fastjson: unknown names are
ignored, missing and null members have Java's default, numbers may be text. Enums stay
text, since a newer peer may know more names. Writing: see `fastjson`; fields that are
None are left out.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final, Self, TypeVar

import msgspec

from rmq.core.errors import RemoteProtocolError, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.codes import ResponseCode
from rmq.protocol.json_dialect import standard_json

MAX_OBJECTS: Final = 250_000
"""Maximum number of objects: two bytes of a document can become 200 bytes of a value.
"""


T = TypeVar("T")

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_STRUCTURES: Final = (dict, list)


class Body(msgspec.Struct, kw_only=True, rename="camel"):
    """Base of bodies and their parts. Known in Java as `RemotingSerializable`."""

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the document; RequestRejected if it is not JSON, or has another
        structure.
        """
        if data.count(b"{") > MAX_OBJECTS:
            raise _body_rejection(
                cls, f"more than {MAX_OBJECTS} objects: send them in parts"
            )
        try:
            body = decode_quickly(cls, data)
            return cls._decode_leniently(data) if body is None else body
        except RemoteProtocolError as error:
            raise _body_rejection(cls, error) from error

    @classmethod
    def _decode_leniently(cls, data: bytes) -> Self:
        """Read a document with nulls, references, objects as names or other types."""
        value = fastjson.StrangeBudget().load_json(data)
        return cls._build(_without_nulls(value) if b"null" in data else value)

    @classmethod
    def from_value(cls, value: object) -> Self:
        """Build from the result of `fastjson.load_json`."""
        return cls._build(_without_nulls(value))

    @classmethod
    def _build(cls, value: object) -> Self:
        """Build from a document without nulls."""
        try:
            return msgspec.convert(value, cls, strict=False)
        except msgspec.ValidationError as error:
            raise _body_rejection(cls, error) from error

    def encode(self) -> bytes:
        """Write the document compactly."""
        return fastjson.dump_json(self)


def decode_quickly(kind: type[T], data: bytes) -> T | None:
    """Read a document by the typed parser; None if that fails, for example on nulls.

    Text that is not standard JSON is rewritten first; both steps take a few ns per
    byte.
    """
    if b"$ref" in data:
        return None
    decode: Callable[[bytes], T] = _decoder_of(kind).decode  # type: ignore[arg-type] # a class is hashable
    with suppress(*_UNREADABLE):
        return decode(data)
    with suppress(*_UNREADABLE, RemoteProtocolError):
        return decode(standard_json(data))
    return None


@cache
def _decoder_of(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


def _without_nulls(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Drop members that are null: they mean the same as absence."""
    if isinstance(value, dict):
        return {
            name: _without_nulls(item) if type(item) in _STRUCTURES else item
            for name, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [
            _without_nulls(item) if type(item) in _STRUCTURES else item
            for item in value
        ]
    return value


def _body_rejection(kind: type[Body], error: Exception | str) -> RequestRejected:
    remark = f"{kind.__name__}: {error}"
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
