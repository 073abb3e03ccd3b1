"""The binary form of a command's header. Known in Java as `RocketMQSerializable`.

Byte layout, big-endian:

    i16 code · i8 language · i16 version · i32 opaque · i32 flag
    i32 n · n bytes remark                       0: no remark
    i32 n · n bytes of pairs                     i16 k · name · i32 v · value

A pair with an empty name or an empty value is null in Java: here it does not exist. If
a name occurs several times, the last pair is used, also if it is null. Code and version
are signed 16-bit numbers: codes above 32,767 (POP) cannot be written; Java sends only
their lower 16 bits.
"""

import struct
from typing import Final

from rmq.core.errors import LocalProtocolError, RemoteProtocolError
from rmq.protocol.codes import LanguageCode, SerializeType
from rmq.protocol.command import Command

MAX_FIELDS: Final = 1_024
"""Maximum number of fields: reading them takes 1 ms. Clients send up to 40."""

_FIXED: Final = struct.Struct(">hbhiii")
_SIZE: Final = struct.Struct(">i")
_NAME_SIZE: Final = struct.Struct(">h")
_MAX_NAME_SIZE: Final = 32_767

_LANGUAGE_NUMBERS: Final = {code.name: int(code) for code in LanguageCode}


def decode_binary_header(data: bytes, body: bytes) -> Command:
    """Read a header; `RemoteProtocolError` for wrong lengths or text not in UTF-8."""
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(data)
        remark_end = _FIXED.size + _check_size(remark_size, len(data) - _FIXED.size)
        (pairs_size,) = _SIZE.unpack_from(data, remark_end)
        pairs_start = remark_end + _SIZE.size
        _check_size(pairs_size, len(data) - pairs_start)
        remark = data[_FIXED.size : remark_end].decode() or None
        ext_fields = _decode_pairs(data, pairs_start, pairs_start + pairs_size)
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"a binary header is malformed: {error}") from error
    return Command(
        code,
        ext_fields,
        body,
        remark,
        opaque,
        flag,
        language,
        version,
        SerializeType.ROCKETMQ,
    )


def encode_binary_header(command: Command) -> bytes:
    """Write a header; `LocalProtocolError` if a number or a name does not fit."""
    remark = (command.remark or "").encode()
    pairs = b"".join(
        [_encode_pair(name, value) for name, value in command.ext_fields.items()]
    )
    try:
        fixed = _FIXED.pack(
            command.code,
            _language_number(command.language),
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise LocalProtocolError(
            f"code {command.code} or version {command.version} does not fit into a "
            "binary header"
        ) from error
    assert len(fixed) == _FIXED.size
    return fixed + remark + _SIZE.pack(len(pairs)) + pairs


def _decode_pairs(data: bytes, position: int, end: int) -> dict[str, str]:
    ext_fields: dict[str, str] = {}
    read_name_size, read_size = _NAME_SIZE.unpack_from, _SIZE.unpack_from
    for _ in range(MAX_FIELDS):
        if position >= end:
            break
        (name_size,) = read_name_size(data, position)
        name_end = position + 2 + name_size
        (value_size,) = read_size(data, name_end)
        name = data[position + 2 : name_end].decode()
        position = name_end + 4 + value_size
        if position > end or name_size < 0 or value_size < 0:
            raise RemoteProtocolError("a binary header announces a pair beyond its end")
        if name_size and value_size:
            ext_fields[name] = data[position - value_size : position].decode()
        else:
            ext_fields.pop(name, None)
    if position < end:
        raise RemoteProtocolError(f"a binary header has more than {MAX_FIELDS} fields")
    return ext_fields


def _encode_pair(name: str, value: str) -> bytes:
    raw_name, raw_value = name.encode(), value.encode()
    name_size = len(raw_name)
    if name_size > _MAX_NAME_SIZE:
        raise LocalProtocolError(
            f"a field name of {name_size} bytes does not fit into a binary header"
        )
    return (
        name_size.to_bytes(2, "big")
        + raw_name
        + len(raw_value).to_bytes(4, "big")
        + raw_value
    )


def _check_size(size: int, rest: int) -> int:
    """Return `size` if at least `size` bytes are left."""
    if not 0 <= size <= rest:
        raise RemoteProtocolError(
            f"a binary header announces {size} bytes where {rest} are left"
        )
    return size


def _language_number(language: int | str | None) -> int:
    if isinstance(language, int):
        return language
    return _LANGUAGE_NUMBERS.get(language or "", LanguageCode.OTHER)
