"""What every driver sends as message number i, and how it digests what it got."""

import hashlib
import zlib
from collections.abc import Iterable

from rmq.protocol.flags import COMPRESSED
from rmq.protocol.records import StoredMessage

NAME = "日本 é 😀"
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def body_of(number: int, size: int = 0) -> bytes:
    """Text of several scripts, then letters that do not compress up to `size` bytes."""
    body = bytearray(f"message {number} 日本語 é 😀 {'x' * (number % 200)}".encode())
    state = number
    while len(body) < size:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        body.append(LETTERS[(state >> 16) & 63])
    return bytes(body)


def digest(body: bytes, *texts: str) -> str:
    parts = (body, *(text.encode() for text in texts))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def digest_of(number: int, size: int = 0) -> str:
    body = body_of(number, size)
    return digest(body, f"Tag{number % 3}", f"Key{number}", str(number), NAME)


def digests(numbers: Iterable[int], size: int = 0) -> list[str]:
    return sorted(digest_of(number, size) for number in numbers)


def digest_of_stored(record: StoredMessage) -> str:
    properties = record.properties
    body = zlib.decompress(record.body) if record.sys_flag & COMPRESSED else record.body
    texts = ("TAGS", "KEYS", "number", "name")
    return digest(body, *(properties.get(text, "").strip() for text in texts))
