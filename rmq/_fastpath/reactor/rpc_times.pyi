from typing import NamedTuple, Self, final

RPC_BOUNDS_MS: tuple[int, ...]

class RpcTime(NamedTuple):
    """One histogram: counts by bound, the last one above all, and the sum."""

    code: int
    response: int
    counts: tuple[int, ...]
    sum_ms: float

@final
class RpcTimes:
    """The histograms of one reactor."""

    def __new__(cls) -> Self: ...
    def observe(
        self, code: int, response: int, elapsed_ns: int, times: int = 1
    ) -> None:
        """Count `times` replies that took `elapsed_ns`."""

    def rows(self) -> list[RpcTime]:
        """Return every histogram that is not empty."""
