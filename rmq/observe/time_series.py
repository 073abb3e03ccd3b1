"""Rings: an hour of numbers, one each 20 s, for the groups and topics that matter.

A ring is an array of 180 numbers, 720 bytes.  Groups have one while something waits
for them, and keep it for an hour after that: what waited.  Topics have one while
somebody looks at them: messages that came.  At most `MAX_RINGS` of each kind are kept,
288 kB in all; the one that changed longest ago goes.  Nobody pays for all others.
"""

from array import array
from collections.abc import Callable, Mapping
from typing import Final

POINTS: Final = 180
STEP_MS: Final = 20_000
MAX_RINGS: Final = 200
UNKNOWN: Final = 0xFFFF_FFFF
"""No sample was taken then; more than can be written is one less."""


class Ring:
    """The last hour of one number."""

    __slots__ = ("_last", "_values")

    def __init__(self, now_ms: int) -> None:
        self._values = array("I", [UNKNOWN]) * POINTS
        self._last = now_ms // STEP_MS

    def put(self, now_ms: int, value: int) -> None:
        """Set the number of this step."""
        self._turn(now_ms)
        self._values[self._last % POINTS] = min(max(0, value), UNKNOWN - 1)

    def add(self, now_ms: int, count: int) -> None:
        """Add to the number of this step."""
        self._turn(now_ms)
        before = self._values[self._last % POINTS]
        self.put(now_ms, count if before == UNKNOWN else before + count)

    def values(self, now_ms: int) -> list[int | None]:
        """Return the hour, the oldest first; None where no sample was taken."""
        self._turn(now_ms)
        at = self._last % POINTS + 1
        ordered = self._values[at:] + self._values[:at]
        return [None if each == UNKNOWN else each for each in ordered]

    def is_silent(self, now_ms: int) -> bool:
        """Whether nothing but zero was put within the hour."""
        self._turn(now_ms)
        return self._values.count(0) + self._values.count(UNKNOWN) == POINTS

    def _turn(self, now_ms: int) -> None:
        """Go on to the step of this time; a clock that goes back stays there."""
        now = now_ms // STEP_MS
        for step in range(max(self._last + 1, now - POINTS + 1), now + 1):
            self._values[step % POINTS] = UNKNOWN
        self._last = max(self._last, now)


class Rings:
    """Rings by name; the one that was wanted longest ago is the first to go."""

    def __init__(self) -> None:
        self._rings: dict[str, Ring] = {}
        self._totals: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rings)

    def want(self, name: str, now_ms: int) -> Ring:
        """Return the ring of a name, a new one if it has none."""
        ring = self._rings.pop(name, None)
        if ring is None:
            ring = Ring(now_ms)
            if len(self._rings) >= MAX_RINGS:
                gone = next(iter(self._rings))
                del self._rings[gone]
                self._totals.pop(gone, None)
        self._rings[name] = ring
        return ring

    def values(self, name: str, now_ms: int) -> list[int | None] | None:
        """Return the hour of a name; None if it has no ring."""
        ring = self._rings.get(name)
        return None if ring is None else ring.values(now_ms)

    def put_all(self, amounts: Mapping[str, int], now_ms: int) -> None:
        """Put these amounts, and 0 for all other rings; drop those silent for an hour.

        A name whose amount is 0 gets no new ring.
        """
        for name, amount in amounts.items():
            if amount or name in self._rings:
                self.want(name, now_ms).put(now_ms, amount)
        for name, ring in list(self._rings.items()):
            if not amounts.get(name):
                ring.put(now_ms, 0)
                if ring.is_silent(now_ms):
                    del self._rings[name]

    def add_all(self, total: Callable[[str], int], now_ms: int) -> None:
        """Add to each ring how much its total, which only grows, has grown."""
        for name, ring in self._rings.items():
            now = total(name)
            ring.add(now_ms, max(0, now - self._totals.get(name, now)))
            self._totals[name] = now
