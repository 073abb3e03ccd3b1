from typing import final

FLUSH_BOUNDS_S: tuple[float, ...]

@final
class FlushTimes:
    counts: list[int]
    sum_s: float
    def observe(self, elapsed_ns: int) -> None: ...
