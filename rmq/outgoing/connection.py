"""Connection: requests over one wire, and the tasks that wait for their answers.

A call ends in one of three ways: its answer arrives, its deadline passes, or the wire
is lost. The end of a wire ends all its calls. Only the loop that opened a connection
may use it.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from rmq._fastpath.client.codec import (
    ANSWER_TO_PULL,
    ANSWER_TO_SEND,
    ClientCodec,
    PullTemplate,
    SendTemplate,
)
from rmq._fastpath.client.messages import SendResult
from rmq.core.errors import (
    InvokeTimeout,
    PeerClosed,
    RemoteProtocolError,
    WrongProtocol,
)
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.outgoing.signing import pull_command, send_command
from rmq.outgoing.wire import Completion, Waiter, Wire
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

NANOSECONDS: Final = 1_000_000
NO_LIMIT_MS: Final = 1 << 60
"""The timeout of a request that only its answer, its wire or its task ends."""


def steady_ms() -> int:
    """Return milliseconds since some moment; never goes back and never jumps."""
    return time.monotonic_ns() // NANOSECONDS


def date_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // NANOSECONDS


SendAnswer = SendResult | list[SendResult] | Command


class Connection:
    """A wire with its codec; `sign`, if not None, adds a signature to a command."""

    wire: Wire

    def __init__(
        self,
        address: str,
        new_waiter: Callable[[], Waiter],
        on_request: "Callable[[Connection, Command], None]",
        on_lost: "Callable[[Connection, str], None]",
        on_deadline: Callable[[int], None],
    ) -> None:
        self.address = address
        self.is_open = True
        self.new_waiter = new_waiter
        self.codec = ClientCodec(decode, encode)
        self.sign: Callable[[Command], None] | None = None
        self._on_request = on_request
        self._on_lost = on_lost
        self._on_deadline = on_deadline
        self._end_reason = ""
        self._end_kind = PeerClosed

    # -- calls

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """Return the answer to a request; InvokeTimeout or PeerClosed without one."""
        self._check_open()
        waiter = self.new_waiter()
        number = self.start(command, waiter, timeout_ms)
        try:
            answer: Command = await waiter
        finally:
            self.codec.cancel(number)
        return answer

    def start(self, command: Command, waiter: Completion, timeout_ms: int) -> int:
        """Send a request; the waiter gets its answer."""
        if self.sign is not None:
            self.sign(command)
        deadline_ms = steady_ms() + timeout_ms
        number = self.codec.request(command, waiter, deadline_ms)
        self._schedule_write(deadline_ms)
        return number

    def oneway(self, command: Command) -> None:
        """Send a request without an answer."""
        self._check_open()
        if self.sign is not None:
            self.sign(command)
        self.codec.request(command, None, 0)
        self.wire.wake()

    def respond(self, command: Command) -> None:
        """Answer a request of the server."""
        if self.is_open:
            self.codec.respond(command)
            self.wire.wake()

    def send(
        self,
        template: SendTemplate,
        properties: bytes,
        body: bytes,
        waiter: Completion | None,
        deadline_ms: int,
        msg_ids: str | list[str],
        sys_flag: int = 0,
    ) -> int:
        """Send messages; the waiter gets a `SendAnswer`. Without a waiter it is oneway.

        `deadline_ms` is a time of `steady_ms`.
        """
        if not self.is_open:
            self._check_open()
        if self.sign is None:
            codec = self.codec
            number = codec.send(
                template,
                properties,
                body,
                waiter,
                deadline_ms,
                msg_ids,
                born_ms=time.time_ns() // NANOSECONDS,
                sys_flag=sys_flag,
            )
            self.wire.wake()
            if deadline_ms <= codec.next_deadline_ms:
                self._on_deadline(deadline_ms)
        else:
            command = send_command(template, properties, body, date_ms(), sys_flag)
            self.sign(command)
            number = self.codec.request(
                command,
                waiter,
                deadline_ms,
                kind=ANSWER_TO_SEND,
                queue=template.queue,
                msg_ids=msg_ids,
            )
            self._schedule_write(deadline_ms)
        return number

    def pull(
        self,
        template: PullTemplate,
        waiter: Completion,
        timeout_ms: int,
        *,
        offset: int,
        count: int,
        hold_ms: int,
        sys_flag: int,
    ) -> None:
        """Request messages; the waiter gets a PullResult."""
        self._check_open()
        deadline_ms = steady_ms() + timeout_ms
        if self.sign is None:
            self.codec.pull(
                template,
                waiter,
                deadline_ms,
                offset=offset,
                count=count,
                hold_ms=hold_ms,
                sys_flag=sys_flag,
            )
        else:
            command = pull_command(template, offset, count, hold_ms, sys_flag)
            self.sign(command)
            self.codec.request(command, waiter, deadline_ms, kind=ANSWER_TO_PULL)
        self._schedule_write(deadline_ms)

    def _schedule_write(self, deadline_ms: int) -> None:
        self.wire.wake()
        if deadline_ms <= self.codec.next_deadline_ms:  # it is the earliest deadline
            self._on_deadline(deadline_ms)

    def _check_open(self) -> None:
        if not self.is_open:
            raise PeerClosed(
                f"the connection to {self.address} ended: {self._end_reason}"
            )

    def expire(self, now_ms: int) -> None:
        """End the calls whose deadline has passed."""
        for waiter in self.codec.expire(now_ms):
            _fail(waiter, InvokeTimeout(f"{self.address} did not answer in time"))

    def close(self) -> None:
        """End the connection."""
        if self.is_open:
            self.wire.close()

    # -- called by the wire

    def take_output(self) -> bytes:
        """Remove and return the bytes to write."""
        return self.codec.take_output()

    def on_data(self, data: bytes) -> None:
        """Read answers, and pass each to its waiter."""
        try:
            for waiter, answer in self.codec.feed(data):
                if waiter is None:
                    assert isinstance(answer, Command)
                    self._on_request(self, answer)
                elif not waiter.done():
                    waiter.set_result(answer)
        except RemoteProtocolError as error:
            logger.warning(
                "closing %s: the peer does not speak the protocol of RocketMQ: %s",
                self.address,
                Foreign(error),
                extra=caused_by(self.address),
            )
            self._end_kind = WrongProtocol
            self.on_wire_lost(
                f"the peer does not speak the protocol of RocketMQ: {error}"
            )
            self.wire.close()

    def on_wire_lost(self, reason: str) -> None:
        """End all calls: no more answers will arrive."""
        if not self.is_open:
            return
        self.is_open = False
        self._end_reason = reason
        error = f"the connection to {self.address} ended before the answer: {reason}"
        for waiter in self.codec.close():
            _fail(waiter, self._end_kind(error))
        self._on_lost(self, reason)


def _fail(waiter: Completion, error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
