"""Wire: the byte stream of a connection under an event loop, asyncio or trio.

A wire connects, writes the output of its `Receiver`, and passes on the bytes that
arrive. One task awaits a waiter. `wire_asyncio` and `wire_trio` implement both. No
other module of the client depends on the event loop. Output leaves once per turn of
the loop.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import ssl


class Receiver(Protocol):
    """The other side of a wire."""

    def take(self) -> bytes:
        """Return what is to be written."""

    def received(self, data: bytes) -> None:
        """Take bytes; raises nothing."""

    def lost(self, reason: str) -> None:
        """Learn that the wire has ended; called once."""


class Completion(Protocol):
    """What gets the end of a call; a Future of asyncio is one."""

    def done(self) -> bool:
        """Whether it has its result, or was given up."""

    def set_result(self, value: Any, /) -> None:  # noqa: ANN401 - of any call
        """Give the task its result."""

    def set_exception(self, error: BaseException, /) -> None:
        """Let the task raise."""


class Waiter(Completion, Protocol):
    """What a task awaits."""

    def __await__(self) -> Any:  # noqa: ANN401 - of any call
        """Wait for it."""


class Wire(Protocol):
    """An open connection."""

    @property
    def is_full(self) -> bool:
        """Whether the peer reads more slowly than we write."""

    @property
    def local_address(self) -> tuple[str, int]:
        """The IP address and the port of this end."""

    def wake(self) -> None:
        """Write what the receiver has, in this turn of the loop."""

    async def drained(self) -> None:
        """Wait until it is not full, or lost."""

    def close(self) -> None:
        """End it at once; `lost` is called unless it has been."""

    async def closed(self) -> None:
        """Wait until the socket is closed, for a second at most."""


class Tls(NamedTuple):
    """What a connection with TLS needs; `name` None: any name is believed."""

    context: "ssl.SSLContext"
    name: str | None


class Lock(Protocol):
    """Orders tasks; held inside `async with`."""

    async def __aenter__(self) -> None:
        """Wait until it is free, and take it."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Give it to the next one."""


Connect = Callable[[tuple[str, int], Tls | None, Receiver, float], Awaitable[Wire]]
"""Opens a wire to a host and a port within so many seconds; OSError if that fails."""


class Wires(NamedTuple):
    """The wires of one loop, its locks and its time in seconds."""

    connect: Connect
    waiter: Callable[[], Waiter]
    lock: Callable[[], Lock]
    now: Callable[[], float]
