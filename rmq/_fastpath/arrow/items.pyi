from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Self, TypeAlias, final

class RowFault(IntEnum):
    NO_BODY = -1
    LARGE_BODY = -2
    SEPARATOR = -3
    NOT_UTF8 = -4
    NO_NAME = -5
    RESERVED_NAME = -6
    LARGE_PROPERTIES = -7

TextBuffers: TypeAlias = tuple[int, int, int, int]
"""First element; addresses of validity bits, offsets, bytes; 0: no such buffer."""

MapBuffers: TypeAlias = tuple[int, int, int, TextBuffers, TextBuffers]
"""First element; addresses of validity bits and offsets; names; values."""

@final
class ItemWriter:
    def __new__(
        cls,
        names: Sequence[bytes],
        *,
        task: bytes | None = None,
        known: Mapping[bytes, bool] | None = None,
        body_limit: int = ...,
    ) -> Self: ...
    def measure(
        self,
        rows: int,
        *,
        body: TextBuffers,
        texts: Sequence[TextBuffers],
        flags: tuple[int, int, int] | None = None,
        pairs: MapBuffers | None = None,
        first_row: int = 0,
    ) -> list[tuple[int, RowFault]]: ...
    def write(
        self, order: int, start: int, end: int, limit: int
    ) -> tuple[bytes, int]: ...
