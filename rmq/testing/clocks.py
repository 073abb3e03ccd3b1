"""Clocks for tests: one moves by the test, the other follows the clock of trio."""

from contextlib import suppress

import trio

START_MS = 1_795_262_400_000
"""Noon of 2026-11-21, UTC."""


class ManualClock:
    """A clock that only the test moves."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.ms = now_ms
        self.set_back_ms = 0
        """Milliseconds by which the wall clock was set back; the steady clock does not
        move.
        """

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self.ms - self.set_back_ms

    def steady_ms(self) -> int:
        """Milliseconds since some moment. The clock never goes back and never jumps."""
        return self.ms


class TrioClock:
    """The wall clock of a trio run, also under a mock clock.

    Outside of the run it does not advance.
    """

    def __init__(self) -> None:
        self._ms = START_MS

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        with suppress(RuntimeError):
            self._ms = START_MS + int(trio.current_time() * 1_000)
        return self._ms

    def steady_ms(self) -> int:
        """Milliseconds since some moment. The clock never goes back and never jumps."""
        return self.now_ms()
