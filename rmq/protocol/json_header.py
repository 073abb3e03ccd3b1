"""The JSON form of a command's header.

An object with the keys `code`, `extFields`, `flag`, `language`, `opaque`, `remark`,
`serializeTypeCurrentRPC` and `version`, in any order; unknown keys are ignored, missing
ones have Java's defaults. Written compactly in the order above, which is Java's;
`extFields`, `language` and `remark` are left out when there is nothing to say.

Nearly every header passes the strict decoder. The rest (C++ clients send numbers in
`extFields`, others lean on fastjson's dialect) is read once more, leniently.
"""

from typing import Final

import msgspec
from msgspec import UNSET

from rmq.errors import RemoteProtocolError
from rmq.protocol import fastjson
from rmq.protocol.codes import SerializeType
from rmq.protocol.command import Command

_NAMES = ("code", "flag", "language", "opaque", "remark", "version")


class _Header(msgspec.Struct, gc=False):
    """The object as it is written, in Java's order."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType
    flag: int
    language: int | str | msgspec.UnsetType
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str
    version: int


_JSON: Final = SerializeType.JSON
_decode_strictly = msgspec.json.Decoder(Command).decode
_encode = msgspec.json.Encoder().encode


def decode_json_header(data: bytes, body: bytes) -> Command:
    """Read a header; `RemoteProtocolError` if it is none in any dialect."""
    try:
        command = _decode_strictly(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        command = _decode_leniently(data)
    command.body = body
    command.serialize_type = _JSON
    return command


def encode_json_header(command: Command) -> bytes:
    """Write a header."""
    return _encode(
        _Header(
            command.code,
            command.ext_fields or UNSET,
            command.flag,
            UNSET if command.language is None else command.language,
            command.opaque,
            UNSET if command.remark is None else command.remark,
            "JSON",
            command.version,
        )
    )


def _decode_leniently(data: bytes) -> Command:
    value = fastjson.loads_strange(data)
    if not isinstance(value, dict):
        raise RemoteProtocolError("a header is not a JSON object")
    fields = {name: value[name] for name in _NAMES if value.get(name) is not None}
    fields.setdefault("code", 0)
    ext_fields = value.get("extFields")
    if isinstance(ext_fields, dict):
        fields["extFields"] = {
            str(name): fastjson.java_text(item)
            for name, item in ext_fields.items()
            if item is not None
        }
    try:
        return msgspec.convert(fields, Command, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"a header is malformed: {error}") from error
