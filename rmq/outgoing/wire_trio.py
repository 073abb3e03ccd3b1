"""The wire of trio: two tasks on a stream, and a waiter.

The `Event` of trio would wake a list of tasks; a waiter has one task and one state
less. A cancelled task leaves its waiter at once, so that a later answer does not wake a
task that runs already.
"""

from collections.abc import Generator
from typing import Any, Final

import outcome
import trio

from rmq.outgoing.wire import Receiver, Tls, Wire, Wires

RECEIVE_SIZE: Final = 1 << 18
FULL_BYTES: Final = 1 << 20
"""The wire is full while an unfinished write has at least this size."""

CLOSE_LIMIT_S: Final = 1.0
GIVEN_UP: Final = outcome.Error(trio.ClosedResourceError("the waiter was cancelled"))


class TrioWaiter:
    """A `Waiter` for trio; a result wakes the task directly."""

    __slots__ = ("_outcome", "_task")

    def __init__(self) -> None:
        self._outcome: outcome.Outcome[Any] | None = None
        self._task: trio.lowlevel.Task | None = None

    def done(self) -> bool:
        """Whether it has its result, or was cancelled."""
        return self._outcome is not None

    def set_result(self, value: object) -> None:
        """Give the task its result."""
        self._end(outcome.Value(value))

    def set_exception(self, error: BaseException) -> None:
        """Raise an error in the task."""
        self._end(outcome.Error(error))

    def _end(self, result: outcome.Outcome[Any]) -> None:
        assert self._outcome is None, "a waiter ends once"
        self._outcome = result
        if self._task is not None:
            trio.lowlevel.reschedule(self._task, result)

    def __await__(self) -> Generator[Any, Any, Any]:
        """Wait for it; a checkpoint of trio."""
        if self._outcome is not None:
            return self._outcome.unwrap()
        self._task = trio.lowlevel.current_task()
        sleeping = trio.lowlevel.wait_task_rescheduled(self._abort)  # noqa: ASYNC105 - below
        return (yield from sleeping.__await__())

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        self._outcome = GIVEN_UP
        return trio.lowlevel.Abort.SUCCEEDED


class TrioWire:
    """A `Wire` for trio.

    The wire runs in a system task, because a cancellation of the program must not end
    the connection. A consumer needs the connection to commit and to leave its group.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        receiver: Receiver,
        local_address: tuple[str, int],
    ) -> None:
        self.local_address = local_address
        self._stream = stream
        self._receiver = receiver
        self._is_lost = False
        self._output = trio.Event()
        self._writing_bytes = 0
        self._scope = trio.CancelScope()
        self._drained: trio.Event | None = None
        self._closed = trio.Event()

    @property
    def is_full(self) -> bool:
        """Whether a large write runs, or any write while more output waits."""
        if self._is_lost or not self._writing_bytes:
            return False
        return self._writing_bytes > FULL_BYTES or self._output.is_set()

    def wake(self) -> None:
        """Wake the writing task in this turn of the loop."""
        self._output.set()

    async def wait_drained(self) -> None:
        """Wait until it is not full, or lost."""
        while self.is_full:
            if self._drained is None:
                self._drained = trio.Event()
            await self._drained.wait()

    def close(self) -> None:
        """End it at once."""
        self._end("closed here")

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, for a second at most."""
        with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
            await self._closed.wait()

    async def run(self) -> None:
        """Read and write until the stream ends."""
        reason = "the server closed the connection"
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._read()
                    nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as errors:
            cause = errors.exceptions[0]
            reason = str(cause.__cause__ or cause) or reason
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)
            self._end(reason)
            self._closed.set()

    async def _read(self) -> None:
        receive, received = self._stream.receive_some, self._receiver.on_data
        while data := await receive(RECEIVE_SIZE):
            received(bytes(data))

    async def _write(self) -> None:
        while True:
            await self._output.wait()
            self._output = trio.Event()
            data = self._receiver.take_output()
            if data:
                self._writing_bytes = len(data)
                await self._stream.send_all(data)
                self._writing_bytes = 0
                self._wake_drained()

    def _wake_drained(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _end(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._wake_drained()
            self._scope.cancel()
            self._receiver.on_wire_lost(reason)


async def connect(
    address: tuple[str, int], tls: Tls | None, receiver: Receiver, limit_s: float
) -> Wire:
    """Open a wire; raises OSError, of which ssl.SSLError and TimeoutError are kinds."""
    with trio.move_on_after(limit_s):
        return await _connect(address, tls, receiver)
    raise TimeoutError


async def _connect(
    address: tuple[str, int], tls: Tls | None, receiver: Receiver
) -> Wire:
    plain = await trio.open_tcp_stream(*address)
    plain.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    host, port = plain.socket.getsockname()[:2]
    stream: trio.abc.Stream = plain
    if tls is not None:
        stream = await _do_handshake(plain, tls)
    wire = TrioWire(stream, receiver, (str(host), port))
    trio.lowlevel.spawn_system_task(wire.run)
    return wire


async def _do_handshake(plain: trio.SocketStream, tls: Tls) -> trio.abc.Stream:
    stream = trio.SSLStream(plain, tls.context, server_hostname=tls.name)
    is_secure = False
    failure: BaseException
    try:
        await stream.do_handshake()
        is_secure = True
    except trio.BrokenResourceError as error:
        failure = error.__cause__ or error
    finally:
        if not is_secure:
            await trio.aclose_forcefully(plain)
    if is_secure:
        return stream
    # outside of `except`: an error must not be the cause of its own context
    if isinstance(failure, OSError):  # as errors of OpenSSL are
        raise failure
    raise ConnectionError(f"no TLS handshake: {failure}") from failure


def make_wires() -> Wires:
    """Return the wires of the current run."""
    return Wires(connect, TrioWaiter, trio.Lock, trio.current_time)
