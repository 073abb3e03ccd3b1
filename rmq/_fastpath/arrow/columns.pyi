from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self, final

from typing_extensions import Buffer

from rmq._fastpath.log.decode import RecordStatus

COLUMNS: Final[dict[str, int]]

class Measured(NamedTuple):
    """Outcome of `ColumnReader.measure`."""

    status: RecordStatus
    position: int
    records: int
    rows: int
    sizes: list[tuple[int, ...]]
    reason: str

class Walked(NamedTuple):
    """Outcome of `walk_chain`.

    Without records `least_ms` is greater than `greatest_ms`.
    """

    status: RecordStatus
    position: int
    records: int
    least_ms: int
    greatest_ms: int

@final
class ColumnReader:
    """Decodes log bytes to the selected columns, batch by batch.

    `wants_topic` selects topics; its results are cached.  `open_body` returns a
    decompressed body, or raises a ValueError with the reason; without it bodies stay as
    stored.  `unwrap` makes rows of the items of an inner batch.  `skip_unqueued` skips
    prepared and rolled-back records, which consumers never get.
    """

    def __new__(
        cls,
        columns: Sequence[str],
        *,
        wants_topic: Callable[[str], bool] | None = None,
        open_body: Callable[[int, bytes], bytes] | None = None,
        unwrap: bool = True,
        skip_unqueued: bool = True,
    ) -> Self: ...
    def measure(
        self,
        data: Buffer,
        position: int,
        end: int,
        *,
        base_offset: int = -1,
        check_crc: bool = False,
        max_rows: int = 16384,
        max_bytes: int = ...,
    ) -> Measured:
        """Read records of data[position:end] until one of the limits is reached.

        `base_offset` is the physical offset of data[0]; negative: not compared.  The
        status is OK at a record boundary.  Else it is the reason why the records end at
        `position`, with details in `reason`.  `sizes` has the bytes of the buffers to
        allocate for each column, in the order of the module's head.
        """

    def fill(
        self, addresses: list[tuple[int, ...]]
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Write the measured rows to buffers at these addresses, of the measured sizes.

        Returns for each column its number of nulls, and the used bytes of each buffer.
        """

def walk_chain(
    data: Buffer,
    position: int,
    end: int,
    *,
    base_offset: int,
    check_crc: bool = False,
    stop_at: int = ...,
) -> Walked:
    """Walk records from `position` to the first one at or after `stop_at`.

    Ends earlier at `end`, or where no valid record starts.
    """

def find_record(data: Buffer, position: int, end: int, *, base_offset: int) -> int:
    """Return the first index at or after `position` where records seem to start.

    Returns `end` if there is no record.  This is a hint: a body may contain records
    that are well-formed and have the expected offsets.
    """
