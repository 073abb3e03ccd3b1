"""Decompresses message bodies as consumers do.

Bits 8 to 10 of the system flag name the method: 0 and 3 zlib, 1 LZ4 frame, 2 Zstandard.
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

MAX_BODY_BYTES: Final = 64 << 20
"""Limit of a decompressed body, against bombs; brokers accept 4 MiB by default."""


def open_body(sys_flag: int, body: bytes) -> bytes:
    """Return the decompressed body; ValueError if it cannot be decompressed."""
    method = sys_flag & COMPRESSION_MASK
    if method in (COMPRESSION_LEGACY, COMPRESSION_ZLIB):
        return _inflate(body)
    if method == COMPRESSION_LZ4:
        return _open_lz4(body)
    if method == COMPRESSION_ZSTD:
        return _open_zstd(body)
    raise ValueError(f"its body is compressed by an unknown method {method:#x}")


def keep_if_broken(sys_flag: int, body: bytes) -> bytes:
    """Return the decompressed body; the stored one if it cannot be decompressed."""
    try:
        return open_body(sys_flag, body)
    except ValueError:
        return body


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        opened = inflater.decompress(body, MAX_BODY_BYTES)
    except zlib.error as error:
        raise ValueError(f"its body is no valid zlib data: {error}") from error
    if not inflater.eof:
        raise ValueError("its zlib body is cut short, or too large")
    return opened


def _open_lz4(body: bytes) -> bytes:
    try:
        from lz4.frame import LZ4FrameDecompressor
    except ImportError as error:
        raise ValueError(_missing("LZ4", "lz4")) from error
    opener = LZ4FrameDecompressor()
    try:
        opened = opener.decompress(body, max_length=MAX_BODY_BYTES)
    except RuntimeError as error:
        raise ValueError(f"its body is no valid LZ4 frame: {error}") from error
    if not opener.eof:
        raise ValueError("its LZ4 body is cut short, or too large")
    return bytes(opened)


def _open_zstd(body: bytes) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        raise ValueError(_missing("Zstandard", "zstandard")) from error
    reader = zstandard.ZstdDecompressor(max_window_size=MAX_BODY_BYTES).stream_reader(
        body
    )
    try:
        opened: bytes = reader.read(MAX_BODY_BYTES + 1)
    except zstandard.ZstdError as error:
        raise ValueError(f"its body is no valid Zstandard frame: {error}") from error
    if len(opened) > MAX_BODY_BYTES or not opened:
        raise ValueError("its Zstandard body is cut short, or too large")
    return opened


def _missing(method: str, package: str) -> str:
    return (
        f"its body is compressed with {method}: install {package} where the workers "
        "run (pip install 'rmq[spark]'), or read with decompress=false"
    )
