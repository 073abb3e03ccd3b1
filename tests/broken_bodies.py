"""Compressed bodies, whole and broken, for the tests of all readers.

The frames are constants: tests need no package to make them.
"""

import sys
import zlib

import pytest

from rmq.protocol import compression

PLAIN = b"plain " * 20
LIMIT = 1_000
"""The largest body with `with_low_limit`; the bombs have 5,000 zeros."""

ZLIB, LZ4, ZSTD = 0x301, 0x101, 0x201
WHOLE = {
    "zlib": (ZLIB, zlib.compress(PLAIN)),
    "zlib of old clients": (0x1, zlib.compress(PLAIN)),
    "lz4": (LZ4, bytes.fromhex(
        "04224d18604082100000006f706c61696e2006005a506c61696e2000000000")),
    "zstd": (ZSTD, bytes.fromhex("28b52ffd00586d000030706c61696e2001002f692902")),
    "zstd with its size": (ZSTD, bytes.fromhex(
        "28b52ffd20786d000030706c61696e2001002f692902")),
}  # fmt: skip
BOMBS = {
    "zlib": (ZLIB, zlib.compress(bytes(5_000))),
    "lz4": (LZ4, bytes.fromhex(
        "04224d186040821e0000001f000100" + "ff" * 19 + "8250000000000000000000")),
    "zstd": (ZSTD, bytes.fromhex("28b52ffd00584d0000100000010083d3032c")),
    "zstd with its size": (ZSTD, bytes.fromhex(
        "28b52ffd6088124d0000100000010083d3032c")),
}  # fmt: skip
BROKEN = {
    **{f"cut {name}": (flag, body[:-5]) for name, (flag, body) in WHOLE.items()},
    **{f"empty {flag:#x}": (flag, b"") for flag in (1, ZLIB, LZ4, ZSTD)},
    **{f"garbage {flag:#x}": (flag, b"garbage") for flag in (1, ZLIB, LZ4, ZSTD)},
    **{f"bomb of {name}": each for name, each in BOMBS.items()},
    **{f"unknown {flag:#x}": (flag, b"what") for flag in (0x401, 0x501, 0x601, 0x701)},
    "another method": (ZSTD, WHOLE["lz4"][1]),
    "a size beyond all": (ZSTD, bytes.fromhex("28b52ffd" + "e0" + "ff" * 7 + "7f")),
}
PACKAGES = ("lz4", "zstandard")


@pytest.fixture(params=["with packages", "without packages"])
def packages(request, monkeypatch):
    """Whether lz4 and zstandard are there; what takes 1000 bytes is a bomb."""
    monkeypatch.setattr(compression, "MAX_BODY", LIMIT)
    if request.param == "with packages":
        for name in PACKAGES:
            pytest.importorskip(name)
        return True
    for name in (*PACKAGES, "lz4.frame"):
        monkeypatch.setitem(sys.modules, name, None)
    return False
