from collections.abc import Mapping

from typing_extensions import Buffer

from rmq._fastpath.mapped_file import MappedFile

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
