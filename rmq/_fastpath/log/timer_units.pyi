from collections.abc import Callable, Mapping

from typing_extensions import Buffer

from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail

def walk_units(
    files: list[MappedFile], position: int, after: int, most: int
) -> tuple[bytes, int]:
    """Follow a slot's chain from `position` back to `after`.

    Returns at most `most` positions, newest first, as bytes of int64, and the position
    to continue from, -1 at the end.
    """

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
) -> tuple[int, int, list[tuple[str, int, int]]] | None:
    """Write units for plain records from `position` on, and add them to their slots.

    Stops before a record that is not plain, or whose slot is not in `slots` or not in
    [first_slot, end_slot). It also stops at the end of the allocated part of the file.
    `now` is the current slot. Returns the position and the queue offset after the last
    record, and (topic, hash, records) of each run of one topic; None if it wrote no
    unit.
    """

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
) -> tuple[list[bytes], list[bytes], list[int]]:
    """Copy the records of plain units, in the order of their positions.

    Stops before a unit that is invalid, rolls or recalls another. Also before one whose
    record has no entry in `queue` from `min_offset` on: clients cannot forge these.
    `find_file` returns the file of an entry that is not in memory. Returns the records,
    the properties that each gets at delivery, and the hashes of their topics.
    """
