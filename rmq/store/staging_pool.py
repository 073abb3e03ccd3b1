"""StagingPool: buffers that hold the ends of log files until their commit.

A new log file gets a buffer of its own size; appended bytes go there.
`CommitLog.commit_staged` moves them to the file, and returns the buffer when the file
is full.  If all buffers are in use, appended bytes go directly to the file.
Crash contract: a kill loses uncommitted messages, also acknowledged ones.
`lend` belongs to the trio thread, `take_back` to a worker.
"""

import mmap

from rmq._fastpath import MappedFile


class StagingPool:
    """Known in Java as `TransientStorePool`; its memory is not locked."""

    def __init__(self, size: int, file_size: int) -> None:
        self._file_size = file_size
        self._unused = size
        self._free: list[mmap.mmap] = []
        self._lent: dict[int, mmap.mmap] = {}

    def lend(self, file: MappedFile) -> None:
        """Give a new file a buffer, if there is one left."""
        assert file.write_position == 0, file.path
        if not self._free:
            if not self._unused:
                return
            self._unused -= 1
            self._free.append(mmap.mmap(-1, self._file_size))
        buffer = self._lent[file.base_offset] = self._free.pop()
        file.stage_in(buffer)

    def take_back(self, file: MappedFile) -> None:
        """Make the buffer of a full file available again."""
        file.end_staging()
        self._free.append(self._lent.pop(file.base_offset))
