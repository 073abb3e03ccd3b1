"""Frames: commands with their lengths, as they are on the wire.

Byte layout, big-endian:

    i32 length of all that follows (4 + header + body)
    u8 serialize type · u24 header length
    header (JSON or binary) · body

Invariants: lengths are checked before any copy, so a decoder never holds more than one
frame in addition to the bytes of the last call. A stream that cannot be split into
frames is broken: close the connection. A complete frame with wrong content gets an
answer.

Known in Java as `NettyDecoder` and `NettyEncoder`. A server cuts the frames of its
connections in `_fastpath/reactor/frame_decoder.pyx`.
"""

import struct
from typing import Final

from rmq.core.errors import LocalProtocolError, RemoteProtocolError
from rmq.protocol.binary_header import decode_binary_header, encode_binary_header
from rmq.protocol.codes import SerializeType
from rmq.protocol.command import Command
from rmq.protocol.json_header import decode_json_header, encode_json_header

MAX_FRAME_SIZE: Final = 16_777_216
"""Java's limit for the bytes after the length word.

This limit also refuses broken lengths.
"""

_LENGTHS: Final = struct.Struct(">iI")
_LENGTH: Final = struct.Struct(">i")
_LENGTH_SIZE: Final = 4
_PREFIX_SIZE: Final = 8
_HEADER_SIZE_MASK: Final = 0xFF_FFFF
_TYPE_SHIFT: Final = 24
_JSON: Final = SerializeType.JSON
_BINARY: Final = SerializeType.ROCKETMQ


def encode(command: Command) -> bytes:
    """Write one frame with its length word.

    Other threads run while a long body is copied.
    """
    header_word = 0
    if command.serialize_type == _JSON:
        header = encode_json_header(command)
    else:
        header = encode_binary_header(command)
        header_word = _BINARY << _TYPE_SHIFT
    body = command.body
    length = _LENGTH_SIZE + len(header) + len(body)
    if length > MAX_FRAME_SIZE or len(header) > _HEADER_SIZE_MASK:
        raise LocalProtocolError(
            f"command {command.code} takes {length} bytes, more than {MAX_FRAME_SIZE}"
        )
    return b"".join((_LENGTHS.pack(length, header_word | len(header)), header, body))


def decode(frame: bytes) -> Command:
    """Read one complete frame with its length word."""
    if len(frame) < _PREFIX_SIZE:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes has no header")
    length, header_word = _LENGTHS.unpack_from(frame)
    if length != len(frame) - _LENGTH_SIZE:
        raise RemoteProtocolError(
            f"a frame of {len(frame)} bytes announces {length} after its length word"
        )
    header_end = _PREFIX_SIZE + (header_word & _HEADER_SIZE_MASK)
    if header_end > len(frame):
        raise RemoteProtocolError(
            f"a frame of {len(frame)} bytes announces a header up to {header_end}"
        )
    header, body = frame[_PREFIX_SIZE:header_end], frame[header_end:]
    serialize_type = header_word >> _TYPE_SHIFT
    if serialize_type == _JSON:
        return decode_json_header(header, body)
    if serialize_type == _BINARY:
        return decode_binary_header(header, body)
    raise RemoteProtocolError(f"serialize type {serialize_type} is unknown")


class FrameDecoder:
    """Cuts a stream of bytes into commands, for any size of chunks."""

    def __init__(self, max_frame_size: int = MAX_FRAME_SIZE) -> None:
        assert max_frame_size >= _LENGTH_SIZE, f"no frame fits into {max_frame_size}"
        self._max_frame_size = max_frame_size
        self._buffer = bytearray()
        self._is_broken = False

    def feed(self, data: bytes) -> list[Command]:
        """Add bytes to the stream; return the commands that are complete now.

        `RemoteProtocolError` means that the stream is lost, together with all commands
        of the same chunk.
        """
        if self._is_broken:
            raise RemoteProtocolError("the stream had an invalid frame before")
        self._buffer += data
        try:
            return self._cut_frames()
        except RemoteProtocolError:
            self._is_broken = True
            self._buffer.clear()
            raise

    def _cut_frames(self) -> list[Command]:
        buffer, commands, start = self._buffer, [], 0
        while len(buffer) - start >= _LENGTH_SIZE:
            end = start + _LENGTH_SIZE + self._announced_length(start)
            if end > len(buffer):
                break
            commands.append(decode(bytes(memoryview(buffer)[start:end])))
            start = end
        del buffer[:start]
        assert len(buffer) < _LENGTH_SIZE + self._max_frame_size
        return commands

    def _announced_length(self, start: int) -> int:
        """Return the announced length of the frame at `start`, after a check."""
        length: int = _LENGTH.unpack_from(self._buffer, start)[0]
        if not _LENGTH_SIZE <= length <= self._max_frame_size:
            raise RemoteProtocolError(
                f"a frame announces {length} bytes, "
                f"allowed are {_LENGTH_SIZE} to {self._max_frame_size}"
            )
        return length
