"""Compressed bodies of sends: zlib, and lz4 or zstd if their package is installed.

The type is in the flags of the message. Java writes frames of LZ4 and of Zstandard.
`rmq.protocol.compression` opens them.
"""

import zlib
from collections.abc import Callable
from typing import Final, Literal

from rmq.core.errors import ConfigError
from rmq.protocol import flags

Compression = Literal["zlib", "lz4", "zstd"]
LEVEL: Final = 5
"""Java's `compressLevel`."""

FLAGS: Final[dict[str, int]] = {
    "zlib": flags.COMPRESSED | flags.COMPRESSION_ZLIB,
    "lz4": flags.COMPRESSED | flags.COMPRESSION_LZ4,
    "zstd": flags.COMPRESSED | flags.COMPRESSION_ZSTD,
}


def make_compressor(kind: Compression) -> Callable[[bytes], bytes]:
    """Return a function that compresses; ConfigError if a package is missing."""
    if kind == "zlib":
        return lambda body: zlib.compress(body, LEVEL)
    try:
        if kind == "lz4":
            import lz4.frame

            return lambda body: bytes(lz4.frame.compress(body))
        import zstandard
    except ImportError as error:
        raise ConfigError(
            f"compression {kind!r} needs a package: pip install {error.name}"
        ) from error
    return lambda body: bytes(zstandard.ZstdCompressor(level=LEVEL).compress(body))
