"""Trend: how far groups were behind in the last two minutes, in eighths of a block.

`rmq top` keeps it itself, from what it sees: brokers keep an hour in steps of 20 s, and
those of Java nothing.
"""

from collections.abc import Iterable
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
CELLS: Final = 16
CELL_MS: Final = 7_500
MAX_NAMES: Final = 1_000
"""Groups that are kept; others begin when there is room again."""


class Trends:
    """The largest amount of each cell, by name; a cell that nobody saw is a gap."""

    def __init__(self) -> None:
        self._cells: dict[str, list[int | None]] = {}
        self._number = 0

    def add(self, now_ms: int, amounts: Iterable[tuple[str, int]]) -> None:
        """Note what is behind now; names without an amount are forgotten in time."""
        number = now_ms // CELL_MS
        for _ in range(min(CELLS, max(0, number - self._number))):
            for cells in self._cells.values():
                cells.append(None)
                del cells[0]
        self._number = max(self._number, number)
        for name, cells in list(self._cells.items()):
            if all(each is None for each in cells):
                del self._cells[name]
        for name, amount in amounts:
            known = self._cells.get(name)
            if known is None:
                if len(self._cells) >= MAX_NAMES:
                    continue
                known = self._cells[name] = [None] * CELLS
            known[-1] = max(amount, known[-1] or 0)

    def texts(self) -> dict[str, str]:
        """Return the cells of each name as text; the tallest is its largest amount."""
        return {name: _text(cells) for name, cells in self._cells.items()}


def _text(cells: list[int | None]) -> str:
    most = max((each for each in cells if each is not None), default=0)
    top = len(BLOCKS) - 1
    return "".join(
        " " if each is None else BLOCKS[each * top // most if most else 0]
        for each in cells
    )
