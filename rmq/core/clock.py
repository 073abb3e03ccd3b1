"""Time as a parameter: code that needs the time takes a `Clock`; no test sleeps.

The date can jump, for example when an operator sets it. Deadlines use `steady_ms`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds since some moment; never goes back and never jumps."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Milliseconds since some moment; never goes back and never jumps."""
        return time.monotonic_ns() // 1_000_000
