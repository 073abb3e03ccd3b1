def write_entries(
    writes: list[tuple[bytes, int, bytes, bool]], folders: list[bytes], file_size: int
) -> list[int]:
    """Write to files of `file_size` bytes and wait for the disk; their errors, or 0.

    `writes` are (path, position, entries, is new); a new file is created, with its
    folder.  The names in `folders` are made durable, too: OSError if that fails, and
    then nothing counts as written.
    """

def find_entries_end(
    path: bytes, file_size: int, known: int, durable_offset: int
) -> tuple[int, bool, int, int, int]:
    """Return (end, data, first, last offset, last size) of a queue file.

    `end` is the position after its valid entries, of which at least `known` should be
    there, and all of records before `durable_offset`; `data` tells if something after
    them is not zero; `first` and the last two are of the first and the last entry, -1
    without one.
    """

def read_entry_at(path: bytes, file_size: int, position: int) -> tuple[int, int]:
    """(physical offset, size) of the entry at `position`; size 0 without one."""

def clear_entries(path: bytes, file_size: int, position: int) -> None:
    """Make zeros of all bytes from `position` on, durably."""
