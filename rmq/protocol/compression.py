"""Compressed bodies, as all readers open them: consumers, tools, console, Spark.

Bits 8 to 10 of the system flag name the method: 0 and 3 zlib, 1 LZ4 frame, 2 Zstandard.
LZ4 and Zstandard need a package. A body comes from outside: it may be truncated,
garbage or a bomb. Every error of a library is a ValueError here, so that no message
stops its reader.
"""

import zlib
from typing import Final

from rmq.protocol.flags import (
    COMPRESSION_LEGACY,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

MAX_BODY: Final = 128 << 20
"""Maximum bytes of a body: the largest maxMessageSize."""

NAMES: Final = {
    COMPRESSION_LEGACY: "zlib",
    COMPRESSION_ZLIB: "zlib",
    COMPRESSION_LZ4: "lz4",
    COMPRESSION_ZSTD: "zstd",
}
"""Names of the known compression methods."""


def method_name(sys_flag: int) -> str:
    """Return the name of the method, for people."""
    method = sys_flag & COMPRESSION_MASK
    return NAMES.get(method, f"unknown method {method:#x}")


def open_body(body: bytes, sys_flag: int) -> bytes:
    """Return the decompressed body; the body itself if that fails. It never raises."""
    try:
        return decompress_body(body, sys_flag)
    except ValueError:
        return body


def decompress_body(body: bytes, sys_flag: int) -> bytes:
    """Return the decompressed body; ValueError with the reason if that fails."""
    plain, is_whole = _decompress(body, sys_flag, MAX_BODY)
    if not is_whole:
        raise ValueError(f"its {method_name(sys_flag)} body is truncated, or too large")
    return plain


def decompress_start(body: bytes, sys_flag: int, limit: int) -> bytes:
    """Return at most `limit` first bytes of the decompressed body; ValueError if the
    decompression fails.
    """
    plain, is_whole = _decompress(body, sys_flag, limit)
    if not is_whole and len(plain) < limit:
        raise ValueError(f"its {method_name(sys_flag)} body is truncated")
    return plain


def _decompress(body: bytes, sys_flag: int, limit: int) -> tuple[bytes, bool]:
    """Return the first bytes, and whether they are the whole body."""
    method = sys_flag & COMPRESSION_MASK
    if method not in NAMES:
        raise ValueError(f"its body has the {method_name(sys_flag)} of compression")
    try:
        if method == COMPRESSION_LZ4:
            return _read_lz4(body, limit)
        if method == COMPRESSION_ZSTD:
            return _read_zstd(body, limit)
        stream = zlib.decompressobj()
        return stream.decompress(body, limit), stream.eof
    except ImportError as error:
        raise ValueError(
            f"its body is compressed with {NAMES[method]}: "
            f"install the package {(error.name or '').partition('.')[0]}"
        ) from error
    except Exception as error:  # each library raises its own errors
        raise ValueError(
            f"its body cannot be decompressed with {NAMES[method]}: {error}"
        ) from error


def _read_lz4(body: bytes, limit: int) -> tuple[bytes, bool]:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    return bytes(stream.decompress(body, limit)), stream.eof


def _read_zstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    import zstandard

    stream = zstandard.ZstdDecompressor()
    if limit < MAX_BODY:
        plain: bytes = stream.stream_reader(body).read(limit)
        return plain, bool(plain)
    if zstandard.frame_content_size(body) > limit:
        return b"", False
    return stream.decompress(body, max_output_size=limit), True
