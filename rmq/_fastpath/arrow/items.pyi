from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Self, TypeAlias, final

class RowFault(IntEnum):
    """Why a row cannot be sent."""

    NO_BODY = -1
    LARGE_BODY = -2
    SEPARATOR = -3
    NOT_UTF8 = -4
    NO_NAME = -5
    RESERVED_NAME = -6
    LARGE_PROPERTIES = -7

TextBuffers: TypeAlias = tuple[int, int, int, int]
"""First element; addresses of validity bits, offsets, bytes; 0: there is none."""

MapBuffers: TypeAlias = tuple[int, int, int, TextBuffers, TextBuffers]
"""First element; addresses of validity bits and offsets; names; values."""

@final
class ItemWriter:
    """Turns rows into items, batch by batch.

    `names` are the properties that columns of text stand for. `task` has 20 digits:
    rows get a UNIQ_KEY from it and their number. `known` are names that a map may not
    bring: True refuses the row, False leaves the pair out.
    """

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
    ) -> list[tuple[int, RowFault]]:
        """Check rows; return (row, fault) of those that cannot be sent."""

    def write(self, order: int, start: int, end: int, limit: int) -> tuple[bytes, int]:
        """Return a body of good rows from `start` on, and where it ends.

        Row numbers are those in the u64 array `order`; address 0: the rows themselves.
        The body ends before `end`, and before `limit` bytes unless one row is larger.
        ValueError for a row with a fault.
        """
