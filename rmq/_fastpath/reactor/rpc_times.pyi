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
        """Count answers that took as long."""

    def rows(self) -> list[RpcTime]:
        """Return a picture of every histogram that has something."""
