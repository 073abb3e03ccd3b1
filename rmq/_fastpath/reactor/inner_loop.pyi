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
        """`trio_fd` becomes readable when trio has work; `now_ms` as in `poll`."""

    def before_io_wait(self, timeout: float) -> None:
        """Wait in trio's place, for `timeout` seconds at most.

        With 0, as other tasks are ready, what has come is served all the same: a busy
        program must not make the reactor deaf.
        """

    def stop_waiting(self) -> None:
        """Wait no more: trio waits itself from now on."""

    def drain_signal(self) -> None:
        """Take the signal back: its owner is awake."""
