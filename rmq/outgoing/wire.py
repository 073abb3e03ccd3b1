"""Wire: the byte stream of a connection under an event loop, asyncio or trio.

A wire connects, writes the output of its `Receiver`, and passes on the bytes that
arrive. One task awaits a waiter. `wire_asyncio` and `wire_trio` implement wire and
waiter. No other module of the client depends on the event loop. Output is written once
per turn of the loop.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import ssl


class Receiver(Protocol):
    """The user of a wire; a `Connection`."""

    def take_output(self) -> bytes:
        """Remove and return the bytes to write."""

    def on_data(self, data: bytes) -> None:
        """Handle received bytes; raises nothing."""

    def on_wire_lost(self, reason: str) -> None:
        """Handle the end of the wire; called once."""


class Completion(Protocol):
    """Gets the end of a call; a Future of asyncio is one."""

    def done(self) -> bool:
        """Whether it has its result, or was cancelled."""

    def set_result(self, value: Any, /) -> None:  # noqa: ANN401 - of any call
        """Give the task its result."""

    def set_exception(self, error: BaseException, /) -> None:
        """Raise an error in the task."""


class Waiter(Completion, Protocol):
    """A completion that one task awaits."""

    def __await__(self) -> Any:  # noqa: ANN401 - of any call
        """Wait for it."""


class Wire(Protocol):
    """An open connection."""

    @property
    def is_full(self) -> bool:
        """Whether the peer reads more slowly than this side writes."""

    @property
    def local_address(self) -> tuple[str, int]:
        """The IP address and the port of this end."""

    def wake(self) -> None:
        """Write the output of the receiver in this turn of the loop."""

    async def wait_drained(self) -> None:
        """Wait until it is not full, or lost."""

    def close(self) -> None:
        """End it at once; calls `on_wire_lost` unless it has ended before."""

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, for a second at most."""


class Tls(NamedTuple):
    """The settings of TLS; with `name` None any name in a certificate is valid."""

    context: "ssl.SSLContext"
    name: str | None


class Lock(Protocol):
    """Lets one task at a time into an `async with` block."""

    async def __aenter__(self) -> None:
        """Wait until it is free, and acquire it."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Release it for the next task."""


Connect = Callable[[tuple[str, int], Tls | None, Receiver, float], Awaitable[Wire]]
"""Opens a wire to a host and a port within a time in seconds; raises OSError."""


class Wires(NamedTuple):
    """The wires of one loop, its locks and its time in seconds."""

    connect: Connect
    waiter: Callable[[], Waiter]
    lock: Callable[[], Lock]
    now: Callable[[], float]
