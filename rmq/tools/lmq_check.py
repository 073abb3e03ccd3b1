"""LmqCheck: checks that the entries of light message queues point to records.

Such an entry names a record of another topic.  All entries are sorted by their offset
in the log, so that a block of records finds its entries among the entries of 20,000
queues.
"""

import numpy as np
from numpy.typing import NDArray

from rmq.store.queues.consume_queue import FILLER_SIZE
from rmq.tools.queue_view import QueueView, view_queue
from rmq.tools.store_files import QueueFolder
from rmq.tools.survey import Block, Column


class LmqCheck:
    """The entries of all light message queues of a store."""

    def __init__(self, folders: list[QueueFolder]) -> None:
        self.folders = folders
        self.views: list[QueueView] = [view_queue(folder.path) for folder in folders]
        counts = [len(view.entries) for view in self.views]
        offsets = self._join_arrays("offset")
        self._order = np.argsort(offsets, kind="stable")
        self._offsets = offsets[self._order]
        self._sizes = self._join_arrays("size")[self._order]
        self._owners = np.repeat(np.arange(len(folders)), counts)[self._order]
        self._places = np.concatenate(
            [np.arange(count) for count in counts] or [np.zeros(0, np.int64)]
        )[self._order]
        self._claimed = self._sizes == FILLER_SIZE

    def _join_arrays(self, name: str) -> NDArray[np.int64]:
        parts = [view.entries[name].astype(np.int64) for view in self.views]
        return np.concatenate(parts or [np.zeros(0, np.int64)])

    def match(self, block: Block) -> None:
        """Claim the entries of the records in a block."""
        records = block[:, Column.OFFSET]
        low, high = np.searchsorted(self._offsets, [records[0], records[-1] + 1])
        mine = slice(low, high)
        at = np.searchsorted(records, self._offsets[mine])
        is_same = records[at] == self._offsets[mine]
        is_same &= block[at, Column.SIZE] == self._sizes[mine]
        self._claimed[mine] |= is_same

    def unclaimed_entries(
        self, start: int, end: int | None
    ) -> list[tuple[int, int, int, int]]:
        """Return (number of the folder, entry, physical offset, size) of entries
        without a record.

        Entries of deleted records, before `start`, do not count, nor do the entries of
        a running broker that end after `end`.
        """
        found = ~self._claimed & (self._offsets >= start)
        if end is not None:
            found &= self._offsets + self._sizes <= end
        parts = self._owners, self._places, self._offsets, self._sizes
        rows = np.stack([part[found] for part in parts], axis=1)
        return [(a, b, c, d) for a, b, c, d in rows.tolist()]
