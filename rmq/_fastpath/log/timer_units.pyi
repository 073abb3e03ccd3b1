from collections.abc import Callable, Mapping

from typing_extensions import Buffer

from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail

def walk_units(
    files: list[MappedFile], position: int, after: int, most: int
) -> tuple[bytes, int]: ...
def add_units(
    file: MappedFile,
    slots: Mapping[int, object],
    records: Buffer,
    position: int,
    *,
    precision_ms: int,
    first_slot: int,
    now: int,
    end_slot: int,
) -> tuple[int, int, list[tuple[str, int, int]]] | None: ...
def due_records(
    files: list[MappedFile],
    positions: Buffer,
    reader: LogReader,
    queue: QueueTail,
    find_file: Callable[[int], MappedFile | None],
    *,
    min_offset: int,
    confirm_offset: int,
    now_ms: int,
) -> tuple[list[bytes], list[bytes], list[int]]: ...
