from typing import final

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.new_keys import NewKeys
from rmq.core.offsets import PhysicalOffset

def index_file_size(slot_count: int, entry_limit: int) -> int:
    """Return the length of an index file."""

def find_in_log(
    log: Extent,
    position: int,
    end: int,
    topic: bytes,
    key: bytes,
    *,
    is_tags: bool,
    begin_ms: int,
    end_ms: int,
    limit: int,
    only_first: bool = False,
) -> list[PhysicalOffset]:
    """Return offsets of the last `limit` records with the key in [position, end)."""

@final
class IndexTable:
    """Header, slots and entries of one mapped file. Known in Java as `IndexFile`."""

    file: MappedFile
    slot_count: int
    entry_limit: int
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    used_slots: int
    entry_count: int
    def __new__(
        cls, file: MappedFile, slot_count: int, entry_limit: int
    ) -> IndexTable: ...
    @property
    def is_full(self) -> bool:
        """True if no entry fits any more."""

    @property
    def used_end(self) -> int:
        """Position after the last entry."""

    def load(self) -> None:
        """Read the header of the file; ValueError if its values are inconsistent."""

    def continue_from(self, before: IndexTable) -> None:
        """Begin where the previous, full file ended; the first entry sets the begin."""

    def save(self) -> None:
        """Write the header to the file."""

    def add_records(
        self,
        log: Extent,
        position: int,
        stop: int,
        end: int,
        done: int = 0,
        gives_way: bool = False,
    ) -> tuple[RecordStatus, int, int]:
        """Add the keys of the records that start in [position, stop)."""

    def add_new_keys(
        self,
        keys: NewKeys,
        start: int,
        stop: int,
        end: int,
        done: int = 0,
        gives_way: bool = False,
    ) -> tuple[int, int]:
        """Add the collected keys of the records that start in [start, stop).

        As `add_records`, without reading the log; the records end at or below `end`.
        Returns (offset, done) of the first record whose keys are not all in the file.
        """

    def find(
        self,
        topic: bytes,
        key: bytes,
        *,
        is_tags: bool,
        begin_ms: int,
        end_ms: int,
        limit: int = 4096,
    ) -> list[int]:
        """Return at most `limit` offsets that may have the key, newest first."""
