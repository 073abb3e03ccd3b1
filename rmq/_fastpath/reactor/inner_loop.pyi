from collections.abc import Callable
from typing import Self, final

from rmq._fastpath.reactor.reactor import Reactor

@final
class InnerLoop:
    signal_fd: int
    is_broken: bool
    waits: int
    rounds: int
    turns: int
    def __new__(
        cls,
        reactor: Reactor,
        trio_fd: int,
        now_ms: int,
        serve_events: Callable[[], object],
        seconds_left: Callable[[], float],
    ) -> Self: ...
    def before_io_wait(self, timeout: float) -> None: ...
    def stop_waiting(self) -> None: ...
    def drain_signal(self) -> None: ...
