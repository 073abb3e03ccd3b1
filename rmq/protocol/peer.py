"""Peer: one end of a connection, without the connection.

It numbers outgoing requests, matches responses to requests, and returns unanswered
requests. `receive` gets the received bytes, and the methods return the bytes to send;
time is a parameter.

Invariants: a request is pending from `request` until exactly one of three ends it: its
response, `expire` or `close`. Each side counts its own opaque numbers, so the numbers
of both sides overlap; the response flag distinguishes requests from responses. At most
`max_pending` requests wait, because each takes memory.
"""

import heapq
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from rmq.core.errors import LocalProtocolError
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import MAX_FRAME_SIZE, FrameDecoder, encode

MAX_PENDING: Final = 10_000
_MAX_OPAQUE: Final = 2**31 - 1


class Role(Enum):
    """The side of a connection; both sides may send requests and answers."""

    CLIENT = "client"
    SERVER = "server"


class RequestReceived(NamedTuple):
    """A request of the other side; answer with `Peer.respond` unless it is oneway."""

    command: Command


class ResponseReceived(NamedTuple):
    """The answer of the other side to a `request` of this one."""

    command: Command
    request: Command


class LateResponse(NamedTuple):
    """An answer to a request that expired, or that was never sent."""

    command: Command


Event = RequestReceived | ResponseReceived | LateResponse


class PeerStatistics(NamedTuple):
    """Counts since the start."""

    pending_count: int
    requests_sent: int
    requests_received: int
    responses_received: int
    late_responses: int
    expired: int


class _Pending(NamedTuple):
    request: Command
    deadline_ms: int


class Peer:
    """The state of one end. Known in Java as the `ResponseFuture` table."""

    def __init__(
        self,
        role: Role,
        now_ms: Callable[[], int],
        *,
        max_pending: int = MAX_PENDING,
        max_frame_size: int = MAX_FRAME_SIZE,
    ) -> None:
        self.role = role
        self._now_ms = now_ms
        self._max_pending = max_pending
        self._decoder = FrameDecoder(max_frame_size)
        self._next_opaque = 0
        self._pending: dict[int, _Pending] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._requests_sent = 0
        self._requests_received = 0
        self._responses_received = 0
        self._late_responses = 0
        self._expired = 0

    def request(self, command: Command, deadline_ms: int) -> bytes:
        """Give the request a number and remember it until `deadline_ms`."""
        if len(self._pending) >= self._max_pending:
            raise LocalProtocolError(
                f"{self._max_pending} requests of this {self.role.value} wait already"
            )
        self._assign_number(command)
        assert not command.is_oneway, "a oneway request has no answer"
        data = encode(command)
        assert command.opaque not in self._pending
        self._pending[command.opaque] = _Pending(command, deadline_ms)
        heapq.heappush(self._deadlines, (deadline_ms, command.opaque))
        self._requests_sent += 1
        return data

    def oneway(self, command: Command) -> bytes:
        """Give a number to a request without an answer."""
        self._assign_number(command)
        command.flag |= FLAG_ONEWAY
        self._requests_sent += 1
        return encode(command)

    def respond(self, command: Command) -> bytes:
        """Encode the answer to a received request, as built by `Command.reply`."""
        assert command.is_response, f"command {command.code} is no response"
        assert not command.is_oneway, f"response {command.code} has the oneway flag"
        return encode(command)

    def receive(self, incoming: bytes | Command) -> list[Event]:
        """Take bytes, or a decoded command; return the events."""
        if isinstance(incoming, Command):
            return [self._event_of(incoming)]
        return [self._event_of(command) for command in self._decoder.feed(incoming)]

    def expire(self, now_ms: int | None = None) -> list[Command]:
        """Remove the requests whose deadline has passed, and return them."""
        now_ms = self._now_ms() if now_ms is None else now_ms
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            deadline_ms, opaque = heapq.heappop(self._deadlines)
            pending = self._pending.get(opaque)
            if pending is not None and pending.deadline_ms == deadline_ms:
                del self._pending[opaque]
                expired.append(pending.request)
        self._expired += len(expired)
        return expired

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next call of `expire`; it may be earlier than needed, never
        later.
        """
        return self._deadlines[0][0] if self._deadlines else None

    def close(self) -> list[Command]:
        """End the connection; return the requests that will get no answer."""
        unanswered = [pending.request for pending in self._pending.values()]
        self._pending.clear()
        self._deadlines.clear()
        return unanswered

    def check_invariants(self) -> None:
        """Check the invariants between calls; for tests."""
        assert len(self._pending) <= self._max_pending
        waiting = {(p.deadline_ms, opaque) for opaque, p in self._pending.items()}
        assert waiting <= set(self._deadlines), "a pending request would never expire"
        assert len(self._deadlines) <= 2 * self._max_pending + 65

    def statistics(self) -> PeerStatistics:
        """Return the counts since the start."""
        return PeerStatistics(
            len(self._pending),
            self._requests_sent,
            self._requests_received,
            self._responses_received,
            self._late_responses,
            self._expired,
        )

    def _assign_number(self, command: Command) -> None:
        """Give the command the next number that no pending request has."""
        while self._next_opaque in self._pending:
            self._advance()
        command.opaque = self._next_opaque
        self._advance()

    def _advance(self) -> None:
        last = self._next_opaque == _MAX_OPAQUE
        self._next_opaque = 0 if last else self._next_opaque + 1

    def _event_of(self, command: Command) -> Event:
        if not command.is_response:
            self._requests_received += 1
            return RequestReceived(command)
        pending = self._pending.pop(command.opaque, None)
        if pending is None:
            self._late_responses += 1
            return LateResponse(command)
        self._responses_received += 1
        self._forget_answered()
        return ResponseReceived(command, pending.request)

    def _forget_answered(self) -> None:
        """Drop the deadlines of answered requests before there are more of them than
        waiting requests.
        """
        if len(self._deadlines) > 2 * len(self._pending) + 64:
            self._deadlines = [
                (pending.deadline_ms, opaque)
                for opaque, pending in self._pending.items()
            ]
            heapq.heapify(self._deadlines)
            assert len(self._deadlines) == len(self._pending)
