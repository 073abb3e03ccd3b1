from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self, final

from typing_extensions import Buffer

from rmq._fastpath.log.decode import RecordStatus

COLUMNS: Final[dict[str, int]]

class Measured(NamedTuple):
    status: RecordStatus
    position: int
    records: int
    rows: int
    sizes: list[tuple[int, ...]]
    reason: str
    unopened: list[str]

class Walked(NamedTuple):
    status: RecordStatus
    position: int
    records: int
    least_ms: int
    greatest_ms: int

@final
class ColumnReader:
    def __new__(
        cls,
        columns: Sequence[str],
        *,
        wants_topic: Callable[[str], bool] | None = None,
        open_body: Callable[[bytes, int], bytes] | None = None,
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
    ) -> Measured: ...
    def fill(
        self, addresses: list[tuple[int, ...]]
    ) -> list[tuple[int, tuple[int, ...]]]: ...

def walk_chain(
    data: Buffer,
    position: int,
    end: int,
    *,
    base_offset: int,
    check_crc: bool = False,
    stop_at: int = ...,
) -> Walked: ...
def find_record(data: Buffer, position: int, end: int, *, base_offset: int) -> int: ...
