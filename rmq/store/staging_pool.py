"""StagingPool: memory in which the ends of log files wait for their commit.

A new log file is lent a buffer of its own size; what is appended goes there, and
`CommitLog.commit_staged` moves it to the file and gives the buffer back once the file
is full.  If all buffers are lent, a file is written to directly.
Crash contract: what was not committed is lost by a kill, also if it was acknowledged.
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
        """Let appends to a new file wait in memory, if there is any left."""
        assert file.write_position == 0, file.path
        if not self._free:
            if not self._unused:
                return
            self._unused -= 1
            self._free.append(mmap.mmap(-1, self._file_size))
        buffer = self._lent[file.base_offset] = self._free.pop()
        file.stage_in(buffer)

    def take_back(self, file: MappedFile) -> None:
        """Use the buffer of a full file again."""
        file.end_staging()
        self._free.append(self._lent.pop(file.base_offset))
