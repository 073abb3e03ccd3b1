from collections.abc import Callable
from typing import NamedTuple, Self, final

class ReturnedPull(NamedTuple):
    """A pull that Python continues for `left_ms`, from `tested_offset` on."""

    token: int
    frame: bytes
    left_ms: int
    tested_offset: int

class HeldPullCounts(NamedTuple):
    """Number of compiled pulls that wait, and how the others ended."""

    waiting: int
    held: int
    refused: int
    woken: int
    expired: int
    dropped: int
    returned: int

__pyx_capi__: dict[str, object]

@final
class HeldPulls:
    """All pulls that compiled code holds."""

    waiting: int
    held: int
    refused: int
    woken: int
    expired: int
    dropped: int
    returned: int
    @property
    def wants_turn(self) -> bool:
        """True if a turn may have work."""

    def __new__(cls, on_work: Callable[[], object]) -> Self:
        """`on_work` is called when `take_returned` has pulls, and for a pull that ends
        before `next_deadline`.
        """

    def set_limits(
        self,
        *,
        total: int,
        per_connection: int,
        per_view: int,
        suspend_ms: int,
        short_poll_ms: int = 0,
    ) -> None:
        """Set the limits of held pulls; each waits for at most `suspend_ms`.

        `short_poll_ms` replaces the suspension that a request asks for; 0: it does not.
        """

    def drop_connection(self, token: int) -> None:
        """Remove the pulls of a closed connection."""

    def next_deadline(self, now_ms: int) -> int:
        """Make pulls due; return milliseconds until the next deadline, -1 without one.

        `on_work` is called for each later pull that ends before it.
        """

    def end_all(self) -> None:
        """Make every pull due and hold no more, because the broker stops."""

    def take_returned(self) -> list[ReturnedPull]:
        """Return the pulls that Python continues, as `ReturnedPull`."""

    def counts(self) -> HeldPullCounts:
        """Return the counters."""
