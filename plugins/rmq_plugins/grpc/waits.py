"""Waits: calls that ask for messages, and wait for messages or for room.

Each call has its own caller: when the client resets the call, the broker also removes
the waiting request. A stop of the broker answers the calls that wait for messages, so
that clients leave at once.
"""

from collections.abc import Callable
from typing import Final

from rmq.plugin import GrpcCall, InnerCaller
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers import Header
from rmq_plugins.grpc.deliveries import Deliveries, Part
from rmq_plugins.grpc.requests import send_request
from rmq_plugins.grpc.sessions import Session, Sessions
from rmq_plugins.grpc.statuses import Code, Refused

MAX_WAITING: Final = 64
"""Calls of one client that may wait at the same time."""

BuildParts = Callable[[], list[Part]]


class Waits:
    """The calls of all clients that wait."""

    def __init__(self, sessions: Sessions, deliveries: Deliveries) -> None:
        self._sessions = sessions
        self._deliveries = deliveries
        self._calls: dict[Session, dict[GrpcCall, BuildParts | None]] = {}
        """The answer of a call at a stop; None: it has its messages."""

    def request_messages(
        self,
        call: GrpcCall,
        session: Session,
        request: tuple[RequestCode, Header],
        parts_of: Callable[[Command], list[Part]],
        parts_at_stop: BuildParts,
        pop_now: Callable[[], Command | None] = lambda: None,
    ) -> None:
        """Send a request, and deliver the messages that `parts_of` makes of its answer.

        `pop_now` is the answer of compiled code, None if it declines. With messages the
        request is not sent. The call gets `parts_at_stop` if the broker stops while it
        waits.
        """
        calls = self._calls.setdefault(session, {})
        if len(calls) >= MAX_WAITING:
            raise Refused(Code.TOO_MANY_REQUESTS, f"{MAX_WAITING} calls wait already")
        calls[call] = parts_at_stop
        caller: InnerCaller | None = None

        def end_wait() -> None:
            del calls[call]
            if not calls:
                del self._calls[session]
            if caller is not None:
                caller.close("the call ended")

        def on_answer(answer: Command) -> None:
            call.on_end = None
            calls[call] = None
            parts = None
            try:
                parts = parts_of(answer)
            finally:
                if parts is None:
                    end_wait()
            self._deliveries.send(call, parts, end_wait)

        def pop_again() -> bool:
            answer = pop_now()
            if answer is None or answer.code != ResponseCode.SUCCESS:
                return False
            on_answer(answer)
            return True

        call.on_end = end_wait
        answer = pop_now()
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            on_answer(answer)
            return
        caller = self._sessions.open_call_caller(call, session)
        if answer is not None:
            caller.pop_again = pop_again
        send_request(call, session, *request, on_answer, caller=caller)

    def stop(self) -> None:
        """Answer all calls that wait for messages: the broker stops."""
        for calls in list(self._calls.values()):
            for call, parts_at_stop in list(calls.items()):
                if parts_at_stop is None:
                    continue
                on_end, call.on_end = call.on_end, None
                if on_end is not None:
                    on_end()
                for data, _ in parts_at_stop():
                    call.send(data)
                call.end()
