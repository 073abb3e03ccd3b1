"""SparseLog: what strangers can cause is logged, but not as often as they like.

A filter for loggers.  In each second of the records' own time a logger writes LINES of
them; how many more there were is said with the first one of a later second.
"""

import logging
from typing import Final

LINES: Final = 20


class SparseLog(logging.Filter):
    """Passes the first lines of a second."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._passed = 0
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Count a record; False if there were too many in its second."""
        if int(record.created) != self._second:
            self._second, self._passed = int(record.created), 0
        if self._passed >= LINES:
            self._dropped += 1
            return False
        self._passed += 1
        if self._dropped:
            record.msg = f"{record.msg} ({self._dropped} more lines were left out)"
            self._dropped = 0
        return True
