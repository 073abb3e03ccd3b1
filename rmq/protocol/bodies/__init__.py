"""Typed bodies: JSON documents as structs with Java's names, types and defaults.

A class here carries the name of the Java class whose document it is; its fields are
Java's property names in snake case. Reading is lenient as fastjson's reader is: unknown
names are ignored, missing and null ones have Java's default, numbers may be text.
Enums stay text, since a newer peer may know more names. Writing: see `fastjson`; fields
that are None are left out.
"""

from functools import cache
from typing import Any, Final, Self

import msgspec

from rmq.errors import RemoteProtocolError, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.codes import ResponseCode

MAX_OBJECTS: Final = 250_000
"""Two bytes of a document can make 200 bytes of a value."""


class Body(msgspec.Struct, kw_only=True, rename="camel"):
    """Base of bodies and their parts. Known in Java as `RemotingSerializable`."""

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the document; what is none, or of another shape, rejects the request."""
        if data.count(b"{") > MAX_OBJECTS:
            raise _rejected(cls, f"over {MAX_OBJECTS} objects: send them in parts")
        if b"$ref" not in data:
            try:
                body: Self = _decoder(cls).decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
            else:
                return body
        try:
            return cls.from_value(fastjson.loads_strange(data))
        except RemoteProtocolError as error:
            raise _rejected(cls, error) from error

    @classmethod
    def from_value(cls, value: object) -> Self:
        """Build from what `fastjson.loads` returned."""
        try:
            return msgspec.convert(_without_nulls(value), cls, strict=False)
        except msgspec.ValidationError as error:
            raise _rejected(cls, error) from error

    def encode(self) -> bytes:
        """Write the document compactly."""
        return fastjson.dumps(self)


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


def _without_nulls(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Drop members that are null: they mean the same as absence."""
    if isinstance(value, dict):
        return {
            name: _without_nulls(item)
            for name, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _rejected(kind: type[Body], error: Exception | str) -> RequestRejected:
    remark = f"{kind.__name__}: {error}"
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
