"""The time of trio's clock, for deadlines and idle times."""

import trio


def now_ms() -> int:
    """Milliseconds of trio's clock, which has no date and which tests can move."""
    return int(trio.current_time() * 1000)
