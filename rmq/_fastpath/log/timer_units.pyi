from collections.abc import Callable, Mapping

from typing_extensions import Buffer

from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail

def walk_units(
    files: list[MappedFile], position: int, after: int, most: int
) -> tuple[bytes, int]:
    """Follow a slot's chain from `position` back to `after`.

    Returns the positions, newest first, as an array's bytes, at most `most`, and where
    to go on: -1 at the end.
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
    """Write the units of plain records, from `position` on, and add them to slots.

    Ends before a record that is not plain, whose slot is not in `slots` or outside of
    [first_slot, end_slot), and where the allocated part of the file ends.  `now` is the
    present slot.  Returns the position and the queue offset that follow the last one,
    and (topic, hash, records) of each run of one topic; None if there was none.
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

    Ends before a unit that is none, rolls or recalls another, or whose record has no
    entry in `queue` from `min_offset` on: nobody can forge these.  `find_file` returns
    the file of an entry that is not in memory.  Returns the records, the properties
    that each gets when it is delivered, and the hashes of their topics.
    """
