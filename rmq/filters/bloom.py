"""Bloom filter data, which Java stores with each registered selector.

rmq only writes the filter data: its selectors read properties. A Java broker that opens
the store finds the positions that it would have computed itself: double hashing of
murmur3-128's first half over the UTF-8 of `group#topic`.
"""

import math
from typing import Final, NamedTuple

_MASK: Final = 2**64 - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


class BloomShape(NamedTuple):
    """The number of hashes and of bits."""

    hashes: int
    bits: int


def bloom_shape(error_percent: int, expected: int) -> BloomShape:
    """Return Java's shape for `maxErrorRateOfBloomFilter` and the expected groups."""
    rate = error_percent / 100.0
    hashes = math.ceil(math.log(rate) / math.log(0.5))
    bits = math.ceil(
        expected * (math.log(1 / rate) / math.log(2)) * (1.0 / math.log(2))
    )
    assert hashes > 0, f"{error_percent} percent need no hash"
    return BloomShape(hashes, 8 * math.ceil(bits / 8))


def bloom_positions(text: str, shape: BloomShape) -> list[int]:
    """Return the bits of a text; 32-bit arithmetic that wraps as in Java."""
    value = murmur3(text.encode())
    first, second = value & 0xFFFFFFFF, value >> 32
    positions = []
    for i in range(1, shape.hashes + 1):
        combined = (first + i * second) & 0xFFFFFFFF
        if combined >= 2**31:
            combined ^= 0xFFFFFFFF
        assert 0 <= combined < 2**31, combined
        positions.append(combined % shape.bits)
    return positions


def murmur3(data: bytes) -> int:
    """Return the first 64 bits of murmur3 x64-128 with seed 0."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _mix_first(int.from_bytes(data[at : at + 8], "little"))
        h1 = ((_rotate_left(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = ((_rotate_left(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    h2 ^= _mix_second(int.from_bytes(data[whole + 8 :], "little"))
    h1 ^= _mix_first(int.from_bytes(data[whole : whole + 8], "little"))
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_finish(h1) + _finish(h2)) & _MASK


def _mix_first(block: int) -> int:
    return _rotate_left(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_second(block: int) -> int:
    return _rotate_left(block * _C2 & _MASK, 33) * _C1 & _MASK


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
