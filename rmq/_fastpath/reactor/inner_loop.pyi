from typing import Self, final

from rmq._fastpath.reactor.reactor import Reactor

@final
class InnerLoop:
    """An instrument of trio that waits for a reactor."""

    signal_fd: int
    is_broken: bool
    waits: int
    rounds: int
    def __new__(cls, reactor: Reactor, trio_fd: int, now_ms: int) -> Self:
        """`trio_fd` becomes readable when trio has work; `now_ms` is as in `poll`."""

    def before_io_wait(self, timeout: float) -> None:
        """Wait instead of trio, for at most `timeout` seconds.

        A `timeout` of 0 means that other tasks are ready. Even then it serves the
        requests that have come: a busy program must not starve the reactor.
        """

    def stop_waiting(self) -> None:
        """Stop: trio waits itself from now on."""

    def drain_signal(self) -> None:
        """Clear the signal: its owner is awake."""
