from typing import final

FLUSH_BOUNDS_S: tuple[float, ...]

@final
class FlushTimes:
    """The histogram of one store."""

    @property
    def counts(self) -> list[int]:
        """Flush counts by duration: up to each of FLUSH_BOUNDS_S, then above all."""

    @property
    def sum_s(self) -> float:
        """The sum of all durations."""

    def observe(self, elapsed_ns: int) -> None:
        """Count one flush."""
