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

    The store times are those of the records; without records the least one is greater
    than the greatest.
    """

    status: RecordStatus
    position: int
    records: int
    least_ms: int
    greatest_ms: int

@final
class ColumnReader:
    """Turns log bytes into the wanted columns, batch by batch.

    `wants_topic` is asked for each topic, and its answer remembered.  `open_body` gives
    the opened form of a compressed body, or a ValueError that says why there is none;
    without it bodies stay as stored.  `unwrap` makes rows of the items of an inner
    batch.  `skip_unqueued` leaves out prepared and rolled-back records, which no
    consumer ever sees.
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
        """Take records of data[position:end] until one of the limits is reached.

        `base_offset` is the physical offset of data[0]; negative: not compared.  The
        status is OK between records, else it tells why the records end at `position`,
        and `reason` may say more.  `sizes` are the bytes of the buffers to allocate,
        for each column in the order of the module's head.
        """

    def fill(
        self, addresses: list[tuple[int, ...]]
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Write the measured rows to buffers at these addresses, as large as asked for.

        Gives for each column how many nulls it has, and how many bytes of each buffer
        are used.
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
    """Follow record sizes from `position` to the first record at or after `stop_at`.

    Ends also at `end`, or where there is no record.
    """

def find_record(data: Buffer, position: int, end: int, *, base_offset: int) -> int:
    """The first place from `position` on where records seem to start; `end` if none.

    A hint: a body may hold records that are well-formed and of the right place.
    """
