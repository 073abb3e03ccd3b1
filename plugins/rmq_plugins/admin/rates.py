"""Rates and daily totals of counters that only grow.

A service adds one sample per second; the samples of the last ten minutes stay.
"""

from collections import deque
from datetime import datetime
from typing import Final, NamedTuple

import trio

from rmq.plugin import BrokerContext

SAMPLE_INTERVAL_S: Final = 1
WINDOWS_S: Final = (10, 60, 600)
"""Windows of the rates in Java's runtime facts, in seconds."""


class Counts(NamedTuple):
    """The counters at one moment."""

    at_ms: int
    put: int = 0
    found: int = 0
    missed: int = 0
    transferred: int = 0
    user_put: int = 0
    user_transferred: int = 0


class DayTotals(NamedTuple):
    """Messages of users in and out until the last two midnights."""

    put_yesterday: int = 0
    put_today: int = 0
    transferred_yesterday: int = 0
    transferred_today: int = 0


class Rates:
    """Samples of the last ten minutes."""

    def __init__(self, first: Counts) -> None:
        self._samples: deque[Counts] = deque([first], maxlen=max(WINDOWS_S) + 1)
        self._day = _day_of(first.at_ms)
        self.totals = DayTotals()

    def add(self, counts: Counts) -> None:
        """Add a sample; the first sample of a day saves the totals until then."""
        before = self._samples[-1]
        assert counts.put >= before.put, f"{counts} after {before}: counters only grow"
        day = _day_of(counts.at_ms)
        if day != self._day:
            self._day = day
            self.totals = DayTotals(
                self.totals.put_today,
                counts.user_put,
                self.totals.transferred_today,
                counts.user_transferred,
            )
        self._samples.append(counts)

    def format_rates(self, name: str, now: Counts) -> str:
        """Return a counter's rates per second over each window, as Java writes them."""
        return " ".join(
            str(self._compute_rate(name, now, seconds)) for seconds in WINDOWS_S
        )

    def _compute_rate(self, name: str, now: Counts, seconds: int) -> float:
        before = self._samples[max(0, len(self._samples) - seconds)]
        elapsed_ms = now.at_ms - before.at_ms
        if elapsed_ms <= 0:
            return 0.0
        grown: int = getattr(now, name) - getattr(before, name)
        return round(grown * 1_000 / elapsed_ms, 3)


class StoreRates(Rates):
    """The rates of a broker's store."""

    def __init__(self, broker: BrokerContext) -> None:
        self._read_statistics = broker.store.statistics
        self._read_totals = broker.statistics.user_totals
        self._count_out = broker.statistics.messages_out
        self._clock = broker.clock
        super().__init__(self.read_counts())

    async def sample_every_second(self) -> None:
        """Add samples until cancelled."""
        while True:
            await trio.sleep(SAMPLE_INTERVAL_S)
            self.add(self.read_counts())

    def read_counts(self) -> Counts:
        """Return the current counters."""
        stats = self._read_statistics()
        user_put, user_transferred = self._read_totals()
        return Counts(
            at_ms=self._clock.now_ms(),
            put=stats.put_messages,
            found=stats.get_found,
            missed=stats.get_missed,
            transferred=self._count_out(),
            user_put=user_put,
            user_transferred=user_transferred,
        )


def _day_of(at_ms: int) -> int:
    return datetime.fromtimestamp(at_ms / 1_000).toordinal()
