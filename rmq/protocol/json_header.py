"""The JSON form of a command's header.

An object with the keys `code`, `extFields`, `flag`, `language`, `opaque`, `remark`,
`serializeTypeCurrentRPC` and `version`, in any order. Unknown keys are ignored, and
missing keys have Java's defaults. A header is written without blanks, in the order
above, which is Java's; empty `extFields`, `language` and `remark` are omitted.

Nearly every header passes the strict decoder. Other headers are read once more,
leniently: C++ clients send numbers in `extFields`, some clients use fastjson's dialect.
"""

from typing import Final

import msgspec
from msgspec import UNSET

from rmq.core.errors import RemoteProtocolError
from rmq.protocol import fastjson
from rmq.protocol.codes import SerializeType
from rmq.protocol.command import Command

MAX_LENIENT_SIZE: Final = 64 * 1024
"""Maximum bytes of a header that the strict decoder refused.

This is twice the maximum size of properties, which C++ clients send in addition to
numbers; decoding takes at most 4 ms of the loop.
"""

MAX_DIALECT_SIZE: Final = 4096
"""Maximum bytes of a header that is not standard JSON.

The sender of such a header is not known yet, so decoding may take only 0.2 ms, little
more than for a standard header.
"""

MAX_QUOTES: Final = 4_096
"""Maximum number of quotes that are no escapes, four per field: 1,024 fields take 1 ms
to read, and clients send up to 40.
"""

_ALWAYS_READ: Final = 16 * 1024
"""Size up to which the quotes of a header are not counted."""

_NAMES = ("code", "flag", "language", "opaque", "remark", "version")


class _Header(msgspec.Struct, gc=False):
    """The written object, in Java's order."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType
    flag: int
    language: int | str | msgspec.UnsetType
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str
    version: int


_PLAIN: Final = (str, int)
"""Types whose text is the same in Java; the text of `bool` differs."""
_JSON: Final = SerializeType.JSON
_decode_strictly = msgspec.json.Decoder(Command).decode
_encode = msgspec.json.Encoder().encode


def decode_json_header(data: bytes, body: bytes) -> Command:
    """Read a header; `RemoteProtocolError` if it is not valid in any dialect."""
    if len(data) > _ALWAYS_READ and _count_quotes(data) > MAX_QUOTES:
        raise RemoteProtocolError(
            f"a header of {len(data)} bytes has more than {MAX_QUOTES} quotes: too "
            "many fields"
        )
    try:
        command = _decode_strictly(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        command = _decode_leniently(data)
    command.body = body
    command.serialize_type = _JSON
    return command


def _count_quotes(data: bytes) -> int:
    return data.count(b'"') - data.count(b'\\"')


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
    if len(data) > MAX_LENIENT_SIZE:
        raise RemoteProtocolError(
            f"a header of {len(data)} bytes has other types than Java's: such headers "
            f"may have {MAX_LENIENT_SIZE} bytes; send text where Java sends text"
        )
    value = fastjson.load_json(
        data, max_dialect_size=MAX_DIALECT_SIZE, max_object_names=0
    )
    if not isinstance(value, dict):
        raise RemoteProtocolError("a header is not a JSON object")
    fields = {name: value[name] for name in _NAMES if value.get(name) is not None}
    fields.setdefault("code", 0)
    ext_fields = value.get("extFields")
    if isinstance(ext_fields, dict):
        fields["extFields"] = {
            name: str(item) if type(item) in _PLAIN else fastjson.java_text(item)
            for name, item in ext_fields.items()
            if item is not None
        }
    try:
        return msgspec.convert(fields, Command, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"a header is malformed: {error}") from error
