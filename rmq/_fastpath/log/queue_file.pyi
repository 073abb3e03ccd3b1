def write_entries(
    writes: list[tuple[bytes, int, bytes, bool]], folders: list[bytes], file_size: int
) -> list[int]:
    """Write to files of `file_size` bytes and wait for the disk; return their errnos.

    `writes` are (path, position, entries, is new); a new file is created, with its
    folder. An errno is 0 for a file that was written. The names in `folders` become
    durable, too; an OSError of that means that no file counts as written.
    """

def find_entries_end(
    path: bytes, file_size: int, known: int, durable_offset: int
) -> tuple[int, bool, int, int, int]:
    """Return (end, data, first, last offset, last size) of a queue file.

    `end` is the position after its valid entries: at least `known`, and all of records
    before `durable_offset`. `data` is True if a later byte is not zero. `first` is the
    physical offset of the first entry, the last two are those of the last entry; -1
    without entries.
    """

def read_entry_at(path: bytes, file_size: int, position: int) -> tuple[int, int]:
    """Return (physical offset, size) of the entry at `position`; size 0 without one."""

def clear_entries(path: bytes, file_size: int, position: int) -> None:
    """Make zeros of all bytes from `position` on, durably."""
