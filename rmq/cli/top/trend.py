"""Trend: draws the lag of groups in the last two minutes, with the characters ▁ to █.

`rmq top` takes the samples itself: brokers of rmq keep an hour in steps of 20 s, and
brokers of Java keep no history.
"""

from collections.abc import Iterable
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
CELLS: Final = 16
CELL_MS: Final = 7_500
MAX_NAMES: Final = 1_000
"""Maximum number of groups with a trend; other groups get one when there is room again.
"""


class Trends:
    """The largest lag of each cell, by group; a cell without a sample is a gap."""

    def __init__(self) -> None:
        self._cells: dict[str, list[int | None]] = {}
        self._number = 0

    def add(self, now_ms: int, lags: Iterable[tuple[str, int]]) -> None:
        """Record the current lags; a group without recent samples is dropped."""
        number = now_ms // CELL_MS
        for _ in range(min(CELLS, max(0, number - self._number))):
            for cells in self._cells.values():
                cells.append(None)
                del cells[0]
        self._number = max(self._number, number)
        for name, cells in list(self._cells.items()):
            if all(each is None for each in cells):
                del self._cells[name]
        for name, lag in lags:
            known = self._cells.get(name)
            if known is None:
                if len(self._cells) >= MAX_NAMES:
                    continue
                known = self._cells[name] = [None] * CELLS
            known[-1] = max(lag, known[-1] or 0)

    def render_all(self) -> dict[str, str]:
        """Return the cells of each group as text; its largest lag is the tallest."""
        return {name: _cells_text(cells) for name, cells in self._cells.items()}


def _cells_text(cells: list[int | None]) -> str:
    most = max((each for each in cells if each is not None), default=0)
    top = len(BLOCKS) - 1
    return "".join(
        " " if each is None else BLOCKS[each * top // most if most else 0]
        for each in cells
    )
