"""StopLimit: the time limit of a stop, and a log line per second with the parts that
are not finished.

A thread writes the lines, because the last steps of a stop block the event loop.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("rmq.broker")

LINE_INTERVAL_S: Final = 1.0
START_LIMIT_S: Final = 3.0
"""The limit if the broker ends without a stop: a start or a service has failed."""


class StopLimit:
    """The limit of one broker; it counts from `begin` on."""

    def __init__(self) -> None:
        self._deadline_s = 0.0
        self._waits_for: Callable[[], str] = str
        self._has_ended = threading.Event()

    def begin(self, limit_s: float, *, writes_lines: bool) -> None:
        """Begin to count, and to write lines."""
        self._deadline_s = time.monotonic() + limit_s
        if writes_lines:
            threading.Thread(target=self._write_lines, daemon=True).start()

    def end(self) -> None:
        """Write no more lines."""
        self._has_ended.set()

    def left_s(self, share: float = 1.0) -> float:
        """Return a share of the seconds that are left."""
        if not self._deadline_s:
            self._deadline_s = time.monotonic() + START_LIMIT_S
        return share * max(0.0, self._deadline_s - time.monotonic())

    def wait_for(self, what: str | Callable[[], str]) -> None:
        """Name the next step, for the lines: "requests", not "waits for requests"."""
        self._waits_for = what if callable(what) else lambda: what

    def _write_lines(self) -> None:
        while not self._has_ended.wait(LINE_INTERVAL_S):
            left_s = self.left_s()
            limit = f"{left_s:.0f} s are left" if left_s else "its time is over"
            logger.info("the stop waits for %s; %s", self._waits_for(), limit)
