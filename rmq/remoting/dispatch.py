"""Dispatch: passes a frame to its handler, and the handler's result to the wire.

A handler is a function of (request, connection). It returns one of

    a Command      the answer
    None           no answer yet; the handler keeps the request and may answer later
    a Held         an answer to be sent once the log is durable up to an offset
    a coroutine    more work, run in the nursery; its result is one of the three above

and raises `RequestRejected` to refuse a request. Only this module turns errors into
responses and drops the answers of oneway requests. Call it from the loop task.
"""

import logging
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final, NamedTuple, Never

import trio

from rmq._fastpath.reactor.reactor import Reactor
from rmq.core.errors import (
    LocalProtocolError,
    PluginError,
    RecordDamaged,
    RemoteProtocolError,
    RequestRejected,
)
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.core.threads import in_thread
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, Command
from rmq.protocol.frames import decode, encode
from rmq.remoting.connection import Connection
from rmq.remoting.inner_held import InnerHeld
from rmq.remoting.loop_clock import now_ms
from rmq.remoting.overload import (
    MAX_RUNNING,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    NO_MEMORY,
    answer_busy,
)

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

LONG_BODY: Final = 1 << 20
"""A thread writes the frame of an answer whose body has at least this size."""

_OPAQUE = re.compile(rb'"opaque"\s*:\s*"?(-?\d{1,10})')
_OPAQUE_WITHIN = 4096

SECRET_FIELDS = frozenset({"Signature", "SecurityToken"})


class Held(NamedTuple):
    """An answer that waits until disk and replicas have the log up to an offset.

    Without `on_timeout` the answer after the time limit has the code of the part that
    lags: FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT.
    """

    response: Command
    end_offset: int
    on_timeout: Command | None
    timeout_ms: int


Answer = Command | Held | None

Later = Coroutine[object, Never, Answer]
"""An answer that takes some time; other requests are served meanwhile."""

Result = Answer | Later
Handler = Callable[[Command, Connection], Result]
Guard = Callable[[Command, Connection], None]


class Entry:
    """A handler with the bounds on its coroutines."""

    __slots__ = ("handler", "limiter", "max_waiting", "owner", "unfinished")

    def __init__(
        self, handler: Handler, max_running: int, max_waiting: int, owner: str
    ) -> None:
        self.handler = handler
        self.owner = owner
        self.limiter = trio.CapacityLimiter(max_running)
        self.max_waiting = max_running + max_waiting
        self.unfinished = 0

    @property
    def waiting_count(self) -> int:
        """Number of requests that wait until other requests of their code are done."""
        return self.unfinished - self.limiter.borrowed_tokens


class HandlerTable:
    """Request code to handler, for one listener."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.guards: list[Guard] = []
        self.inner_guards: list[Guard] = []
        """Guards of the requests of `InnerCaller`s, which have no signatures."""

    def register(
        self,
        code: int,
        handler: Handler,
        *,
        max_running: int = MAX_RUNNING,
        max_waiting: int = MAX_WAITING,
        owner: str = "",
    ) -> None:
        """Serve `code`; PluginError if it has a handler already.

        `owner` is the name of the plugin, for the log.
        """
        if code in self.entries:
            raise PluginError(owner, f"request code {code} is taken")
        self.entries[code] = Entry(handler, max_running, max_waiting, owner)

    def __contains__(self, code: int) -> bool:
        """Return whether `code` is served."""
        return code in self.entries


def _log_result(connection: Connection, command: Command, result: Result) -> None:
    """Log a request with its fields and its answer, for --log-level debug."""
    fields = {k: v for k, v in command.ext_fields.items() if k not in SECRET_FIELDS}
    answer = "goes on" if result is None or isinstance(result, Coroutine) else "is held"
    if isinstance(result, Command):
        answer = f"{result.code} {result.remark or ''}".strip()
    logger.debug(
        "%s asked %d with %s: %s",
        connection.remote_address,
        command.code,
        Foreign(fields),
        Foreign(answer),
    )


class Dispatcher:
    """Runs handlers for all listeners of one reactor."""

    def __init__(self, reactor: Reactor, on_held: Callable[[], None]) -> None:
        """`on_held` is called after an answer began to wait for the disk."""
        self.tables: list[HandlerTable] = []
        """The handlers of each listener, by its index."""

        self._reactor = reactor
        self._on_held = on_held
        self.inner_held = InnerHeld()
        self._nursery: trio.Nursery | None = None
        self._idle = trio.Event()
        self.running = 0
        self.running_bytes = 0
        self.requests = 0
        self.failures = 0
        self._is_debug = logger.isEnabledFor(logging.DEBUG)

    def start(self, nursery: trio.Nursery) -> None:
        """Run coroutines of handlers in this nursery from now on."""
        self._nursery = nursery

    def dispatch(self, connection: Connection, frame: bytes) -> None:
        """Handle one frame."""
        try:
            command = decode(frame)
        except (RemoteProtocolError, MemoryError) as error:
            self._answer_undecodable(connection, frame, error)
            return
        if command.flag & FLAG_RESPONSE:
            connection.take_response(command)
            return
        self.serve(connection, command)

    def serve(self, connection: Connection, command: Command) -> None:
        """Handle one request, of a frame or of an `InnerCaller`."""
        self.requests += 1
        table = self.tables[connection.listener_index]
        entry = table.entries.get(command.code)
        if entry is None:
            remark = f" request type {command.code} not supported"
            answer = command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            self._finish(connection, command, answer, None)
            return
        try:
            for guard in table.inner_guards if connection.is_inner else table.guards:
                guard(command, connection)
            result = entry.handler(command, connection)
        except Exception as error:  # supervises the handlers
            result = self._error_answer(connection, command, error)
        self._finish(connection, command, result, entry)

    def _finish(
        self,
        connection: Connection,
        command: Command,
        result: Result,
        entry: Entry | None,
        begun_ns: int = 0,
        frame: bytes = b"",
    ) -> None:
        """Send a handler's result; a result that cannot be sent is an error.

        `frame` is the encoded result, if it exists already. The reactor counts the time
        since `begun_ns`; 0 means since this batch began.
        """
        if self._is_debug:
            _log_result(connection, command, result)
        if result is None:
            return
        try:
            if isinstance(result, Command):
                if connection.is_inner:
                    connection.send_nowait(result)
                elif not command.flag & FLAG_ONEWAY:
                    self._reactor.send(
                        connection.token,
                        frame or self._encode(command, result),
                        -1 if entry is None else command.code,
                        result.code,
                        begun_ns,
                    )
            elif isinstance(result, Held):
                if not command.flag & FLAG_ONEWAY:
                    self._hold_reply(connection, command, result, begun_ns)
            else:
                assert isinstance(result, Coroutine), f"{result!r} is no answer"
                assert entry is not None
                self._spawn(connection, command, result, entry)
        except Exception as error:  # supervises the answers of handlers
            answer = self._error_answer(connection, command, error)
            if connection.is_inner:
                connection.send_nowait(answer)
            elif not command.flag & FLAG_ONEWAY:
                self._reactor.send(connection.token, encode(answer))

    def _hold_reply(
        self, connection: Connection, command: Command, held: Held, begun_ns: int
    ) -> None:
        if connection.is_inner:
            if not self.inner_held.add(
                connection,
                command,
                held.response,
                end_offset=held.end_offset,
                timeout_ms=held.timeout_ms,
                on_timeout=held.on_timeout,
            ):
                connection.send_nowait(answer_busy(command))
            return
        is_held = self._reactor.hold_reply(
            connection.token,
            self._encode(command, held.response),
            held.end_offset,
            now_ms() + held.timeout_ms,
            b"" if held.on_timeout is None else self._encode(command, held.on_timeout),
            command.code,
            begun_ns,
        )
        if is_held:
            self._on_held()
        elif connection.is_open:
            self._reactor.send(connection.token, encode(answer_busy(command)))

    def _spawn(
        self, connection: Connection, command: Command, work: Later, entry: Entry
    ) -> None:
        """Run a coroutine under the limits of its code."""
        size = len(command.body)
        is_full = self.running_bytes + size > MAX_WAITING_BYTES and size > 0
        if is_full or self._nursery is None or entry.unfinished >= entry.max_waiting:
            work.close()
            self._finish(connection, command, answer_busy(command), entry)
            return
        entry.unfinished += 1
        self.running += 1
        self.running_bytes += size
        self._nursery.start_soon(
            self._run,
            connection,
            command,
            work,
            entry,
            self._reactor.connections.begun_ns,
        )

    async def _run(
        self,
        connection: Connection,
        command: Command,
        work: Later,
        entry: Entry,
        begun_ns: int,
    ) -> None:
        frame = b""
        try:
            async with entry.limiter:
                result: Answer = await work
            is_long = isinstance(result, Command) and len(result.body) >= LONG_BODY
            if is_long and not connection.is_inner:
                assert isinstance(result, Command)
                with suppress(OSError):  # there is no thread for it
                    frame = await in_thread(self._encode, command, result)
        except Exception as error:  # supervises the handlers
            result = self._error_answer(connection, command, error)
        finally:
            work.close()
            entry.unfinished -= 1
            self.running -= 1
            self.running_bytes -= len(command.body)
            if not self.running:
                self._idle.set()
                self._idle = trio.Event()
        self._finish(connection, command, result, entry, begun_ns, frame)

    async def wait_idle(self) -> None:
        """Wait until no coroutine of a handler runs."""
        while self.running:
            await self._idle.wait()

    def _encode(self, command: Command, answer: Command) -> bytes:
        try:
            return encode(answer)
        except LocalProtocolError as error:
            return encode(command.reply(ResponseCode.SYSTEM_ERROR, str(error)))

    def _error_answer(
        self, connection: Connection, command: Command, error: Exception
    ) -> Command:
        """Turn an error into the response; no other function does this."""
        if isinstance(error, RequestRejected):
            return command.reply(error.code, error.remark)
        if isinstance(error, RecordDamaged):
            # the log of the broker has one line for this error
            return command.reply(ResponseCode.SYSTEM_ERROR, str(error))
        if isinstance(error, MemoryError):
            return answer_busy(command, NO_MEMORY)
        self.failures += 1
        entry = self.tables[connection.listener_index].entries.get(command.code)
        logger.error(
            "request %d of %s failed%s, ext fields %s",
            command.code,
            connection.remote_address,
            f" in plugin {entry.owner}" if entry is not None and entry.owner else "",
            Foreign(_loggable_fields(command.ext_fields)),
            exc_info=error,
            extra=caused_by(connection.remote_address),
        )
        return command.reply(
            ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"
        )

    def _answer_undecodable(
        self,
        connection: Connection,
        frame: bytes,
        error: RemoteProtocolError | MemoryError,
    ) -> None:
        """Answer an undecodable header if its opaque number is readable; close the
        connection if it is not.
        """
        match = _OPAQUE.search(frame, 0, _OPAQUE_WITHIN)
        if match is None:
            connection.close(f"undecodable header: {error}")
            return
        opaque = int(match[1])
        if not -(2**31) <= opaque < 2**31:
            connection.close(f"undecodable header: {error}")
            return
        is_short = isinstance(error, MemoryError)
        code = ResponseCode.SYSTEM_BUSY if is_short else ResponseCode.SYSTEM_ERROR
        answer = Command.request(0).reply(code, NO_MEMORY if is_short else str(error))
        answer.opaque = opaque
        self._reactor.send(connection.token, encode(answer))


def _loggable_fields(ext_fields: dict[str, str]) -> dict[str, str]:
    """Return the fields that a log may show."""
    return {k: v for k, v in ext_fields.items() if k not in SECRET_FIELDS}
