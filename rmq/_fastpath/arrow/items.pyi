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
"""First element; addresses of validity bits, offsets, bytes; 0: no such buffer."""

MapBuffers: TypeAlias = tuple[int, int, int, TextBuffers, TextBuffers]
"""First element; addresses of validity bits and offsets; names; values."""

@final
class ItemWriter:
    """Encodes rows to items, batch by batch.

    `names` are the properties of the text columns.  `task` has 20 digits, from which
    rows get a UNIQ_KEY with their number.  `known` has names that a map may not have:
    True refuses the row, False drops the pair.
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
        """Check rows; returns (row, fault) of those that cannot be sent."""

    def write(self, order: int, start: int, end: int, limit: int) -> tuple[bytes, int]:
        """Return a body of good rows from `start` on, and the index after its last row.

        `order` is the address of a u64 array of row numbers; 0: rows in their order.
        The body ends before `end`, and before `limit` bytes unless one row is larger.
        ValueError for a row with a fault.
        """
