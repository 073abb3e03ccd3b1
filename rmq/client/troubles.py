"""Troubles: log lines for failures that may end without a remedy, such as a broker that
is away.

A trouble has a line when it begins, a line per minute while it lasts, and a line when
it ends. The lines have the level WARNING.
"""

import logging
from collections.abc import Hashable
from typing import Final

from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

INTERVAL_MS: Final = 60_000
MAX_TROUBLES: Final = 1_000
"""Maximum number of troubles that are remembered: their keys come from name servers."""


class Troubles:
    """The troubles of one client, by key."""

    def __init__(self) -> None:
        self._open: dict[Hashable, tuple[int, int]] = {}
        """The time when each trouble began, and the time of its last line."""

    def report(self, key: Hashable, what: str, reason: object) -> None:
        """Write a line if the trouble is new, or if its last line is a minute old.

        With too many troubles it forgets the trouble with the oldest line.
        """
        now_ms = steady_ms()
        begun_ms, written_ms = self._open.get(key, (now_ms, -INTERVAL_MS))
        if now_ms - written_ms < INTERVAL_MS:
            return
        self._open.pop(key, None)
        if len(self._open) >= MAX_TROUBLES:
            del self._open[next(iter(self._open))]
        self._open[key] = begun_ms, now_ms
        if begun_ms == now_ms:
            logger.warning("%s: %s", what, Foreign(reason))
        else:
            seconds = (now_ms - begun_ms) // 1_000
            logger.warning("%s for %d s: %s", what, seconds, Foreign(reason))

    def end(self, key: Hashable, what: str) -> None:
        """Write the last line of a trouble, if it has begun."""
        known = self._open.pop(key, None)
        if known is not None:
            logger.warning("%s, after %.1f s", what, (steady_ms() - known[0]) / 1_000)
