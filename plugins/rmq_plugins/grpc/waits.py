"""Waits: calls that request messages, and wait for messages or for room.

Each call has its own caller: when the client resets the call, the broker also removes
the waiting request. When the broker stops, it answers the calls that wait for messages,
so that clients leave at once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmq.plugin import GrpcCall, InnerCaller
from rmq.plugin.grpc import MAX_WAITING
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers import Header
from rmq_plugins.grpc.deliveries import Deliveries, Part
from rmq_plugins.grpc.requests import send_request
from rmq_plugins.grpc.sessions import Session, Sessions
from rmq_plugins.grpc.statuses import Code, Refused

BuildParts = Callable[[], list[Part]]
Pop = Callable[[], Command | None]
Places = dict[Session, dict["Wait", None]]
"""The calls that wait, by their clients."""


class Wait:
    """A call that waits, or whose messages wait; it compares by identity."""

    __slots__ = ("_deliveries", "_places", "_session", "call", "caller",
                 "is_answered", "parts_at_stop", "parts_of", "pop")  # fmt: skip

    def __init__(
        self,
        places: Places,
        deliveries: Deliveries,
        call: GrpcCall,
        session: Session,
        parts_of: Callable[[Command], list[Part]],
        parts_at_stop: BuildParts,
    ) -> None:
        """Count a call of the client as waiting; Refused if the client has too many."""
        if session.waiting.count >= MAX_WAITING:
            raise Refused(Code.TOO_MANY_REQUESTS, f"{MAX_WAITING} calls wait already")
        session.waiting.count += 1
        places.setdefault(session, {})[self] = None
        self._places = places
        self._deliveries = deliveries
        self._session = session
        self.call = call
        self.caller: InnerCaller | None = None
        self.parts_of = parts_of
        self.parts_at_stop = parts_at_stop
        self.is_answered = False
        """True once the call has its messages, which may wait for room."""

        self.pop: Pop = lambda: None
        call.on_end = self.end

    def end(self) -> None:
        """Remove the call from the waiting calls, once."""
        own = self._places.get(self._session, {})
        if self not in own:
            return
        del own[self]
        self._session.waiting.count -= 1
        if not own:
            del self._places[self._session]
        if self.caller is not None and self.caller.is_open:
            self.caller.close("the call ended")

    @contextmanager
    def end_on_error(self) -> Iterator[None]:
        """Remove the call from the waiting calls if the block fails."""
        is_whole = False
        try:
            yield
            is_whole = True
        finally:
            if not is_whole:
                self.end()

    def take_answer(self, answer: Command) -> None:
        """Deliver the messages of an answer."""
        self.call.on_end = None
        self.is_answered = True
        with self.end_on_error():
            self._deliveries.send(self.call, self.parts_of(answer), self.end)

    def pop_again(self) -> bool:
        """Deliver messages that compiled code finds; False if Python has to search."""
        answer = self.pop()
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return False
        self.take_answer(answer)
        return True

    def stop(self) -> None:
        """Answer a call that waits for messages: the broker stops."""
        if self.is_answered:
            return
        self.call.on_end = None
        self.end()
        for data, _ in self.parts_at_stop():
            self.call.send(data)
        self.call.end()


class Waits:
    """The calls of all clients that wait."""

    def __init__(self, sessions: Sessions, deliveries: Deliveries) -> None:
        self._sessions = sessions
        self._deliveries = deliveries
        self._places: Places = {}

    def request_messages(
        self,
        call: GrpcCall,
        session: Session,
        request: tuple[RequestCode, Header],
        parts_of: Callable[[Command], list[Part]],
        parts_at_stop: BuildParts,
        pop_now: Pop = lambda: None,
        user: str | None = None,
    ) -> None:
        """Send a request, and deliver the messages that `parts_of` makes of its answer.

        `pop_now` is the answer of compiled code, None if it declines. With messages the
        request is not sent. The call gets `parts_at_stop` if the broker stops while it
        waits. `user` has signed the call; None: as the last call of the session.
        """
        wait = Wait(
            self._places, self._deliveries, call, session, parts_of, parts_at_stop
        )
        with wait.end_on_error():
            answer = pop_now()
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                wait.take_answer(answer)
                return
            wait.caller = self._sessions.open_call_caller(call, session)
            if user is not None:
                wait.caller.user = user
            if answer is not None:
                wait.pop = pop_now
                wait.caller.pop_again = wait.pop_again
            send_request(call, session, *request, wait.take_answer, caller=wait.caller)

    def stop(self) -> None:
        """Answer all calls that wait for messages: the broker stops."""
        for own in list(self._places.values()):
            for wait in list(own):
                wait.stop()
