"""QueueFiles: the mapped files of queues that are read now.

The newest entries of a queue are in memory, see `log/queue_tail.pyx`; readers of
older ones map their file.  The number of mapped files has a bound that does not depend
on the number of queues.  Above it, or without a free descriptor, the least recently
used files are unmapped.
Belongs to the trio thread.
"""

import itertools
import resource
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.errors import StoreError
from rmq.store.descriptors import SHORTAGES, DescriptorReserve

T = TypeVar("T")

MAPPED_FILES_LIMIT = 256
"""Maximum number of mapped files.

Each mapped file needs a descriptor and a mapping; mapping a file again takes 20 us.
"""

DESCRIPTOR_SHARE = 4
"""Queue files may use this part (a quarter) of the process's descriptors."""

GIVEN_UP_AT_ONCE = 16
"""Number of files that are unmapped if there is no descriptor for another file."""


class QueueFiles:
    """Mapped files by path, the least recently used first."""

    def __init__(self, file_size: int, reserve: DescriptorReserve) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = max(16, min(MAPPED_FILES_LIMIT, soft // DESCRIPTOR_SHARE))
        self.file_size = file_size
        self.reserve = reserve
        self._mapped: OrderedDict[str, MappedFile] = OrderedDict()

    def __len__(self) -> int:
        """Count the mapped files."""
        return len(self._mapped)

    def open(self, path: str, base: int) -> MappedFile:
        """Map the file that starts at byte `base`, or take it from the table."""
        file = self._mapped.get(path)
        if file is not None:
            self._mapped.move_to_end(path)
            return file
        opener = partial(
            MappedFile, path, self.file_size, base_offset=base, writable=False
        )
        try:
            file = self._make_room(opener)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from error
        except ValueError as error:
            raise StoreError(f"{error}: repair it with `rmq store repair`") from error
        self._mapped[path] = file
        if len(self._mapped) > self.limit:
            self._give_up(len(self._mapped) - self.limit)
        return file

    def _make_room(self, opener: Callable[[], T]) -> T:
        """Call `opener`; if there is no room, unmap other files and call it again."""
        try:
            return opener()
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
        self._give_up(GIVEN_UP_AT_ONCE)
        return self.reserve.open(opener)

    def _give_up(self, count: int) -> None:
        """Unmap the least recently used files, except files that are held."""
        for path in list(itertools.islice(self._mapped, count)):
            file = self._mapped[path]
            if file.holders:
                self._mapped.move_to_end(path)
            else:
                del self._mapped[path]
                file.close()

    def unmap_file(self, path: str) -> None:
        """Unmap a file; a file that is held is unmapped when it is released."""
        file = self._mapped.pop(path, None)
        if file is not None:
            with suppress(BufferError):
                file.close()

    def close(self) -> None:
        """Unmap everything."""
        for path in list(self._mapped):
            self.unmap_file(path)
