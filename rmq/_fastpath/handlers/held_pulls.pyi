from collections.abc import Callable
from typing import NamedTuple, Self, final

class ReturnedPull(NamedTuple):
    """A pull that Python goes on with, for `left_ms`, from `tested_offset` on."""

    token: int
    frame: bytes
    left_ms: int
    tested_offset: int

class HeldPullCounts(NamedTuple):
    """How many compiled pulls wait, and what became of the others."""

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
    """All pulls that wait compiled."""

    waiting: int
    held: int
    refused: int
    woken: int
    expired: int
    dropped: int
    returned: int
    @property
    def wants_turn(self) -> bool:
        """Whether a turn may have something to do."""

    def __new__(cls, on_work: Callable[[], object]) -> Self:
        """`on_work` is called when `take_returned` has something, and for a pull that
        ends before `next_deadline`.
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
        """Hold at most so many from now on, each for at most `suspend_ms`.

        `short_poll_ms` is how long each is held whatever it asks for; 0: as it asks.
        """

    def drop_connection(self, token: int) -> None:
        """Forget the pulls of a connection that closed."""

    def next_deadline(self, now_ms: int) -> int:
        """Make pulls due; milliseconds until the next one is, -1 if there is none.

        `on_work` is called for each that comes and ends before it.
        """

    def end_all(self) -> None:
        """Make every pull due and hold no others, because the broker stops."""

    def take_returned(self) -> list[ReturnedPull]:
        """Return the pulls that Python goes on with, as `ReturnedPull`."""

    def counts(self) -> HeldPullCounts:
        """Return a picture of the counters."""
