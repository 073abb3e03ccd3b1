"""Sessions: the clients of gRPC, each by its client id on a connection.

A session is made by the first call with a client id, and ends with its connection or
with NotifyClientTermination. Like a remoting client, a session is a member of the
tables of producers and consumers. The broker closes the caller of a client whose
heartbeats end; the next call of the client opens another caller.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from rmq.plugin import BrokerContext, Connection, GrpcCall, InnerCaller
from rmq.plugin.grpc import ReceiveView, WaitingCount
from rmq.protocol.codes import LanguageCode
from rmq.protocol.command import Command
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.statuses import Code, Refused

MAX_SESSIONS: Final = 64
"""Maximum number of client ids of one connection, as for a remoting connection."""

MAX_CLIENT_ID: Final = 255
MAX_SETTINGS_SIZE: Final = 512 * 1024
"""Maximum bytes of all settings on a connection; a client names some topics or a
group.
"""

LANGUAGES: Final = {each.name: each for each in LanguageCode} | {
    "GOLANG": LanguageCode.GO,
    "DOT_NET": LanguageCode.DOTNET,
}
"""Languages by their names in the header `x-mq-language`."""


class Session:
    """One client."""

    __slots__ = ("caller", "client_id", "language", "lite_topics", "received",
                 "settings_bytes", "stream", "views", "waiting")  # fmt: skip

    def __init__(self, client_id: str, language: str) -> None:
        self.client_id = client_id
        self.language = language
        self.caller: InnerCaller | None = None
        self.settings_bytes = b""
        """The last Settings that the client sent, encoded: decoded, they need a KiB."""

        self.received = 0
        """Messages that the client has received, without those of `views`."""

        self.views: dict[tuple[str, str, str], ReceiveView] = {}
        """Receives that compiled code serves, by group, topic and filter."""

        self.waiting = WaitingCount()
        self.lite_topics: frozenset[str] = frozenset()
        self.stream: GrpcCall | None = None
        """Telemetry stream of the session, while it is open."""

    @property
    def settings(self) -> Any:
        """The last Settings that the client sent; None before the first."""
        if not self.settings_bytes:
            return None
        return schema.Settings.FromString(self.settings_bytes)

    @property
    def language_code(self) -> LanguageCode:
        """Return the language that the client names, or OTHER."""
        return LANGUAGES.get(self.language.upper(), LanguageCode.OTHER)

    def count_received(self) -> int:
        """Return how many messages the client has received."""
        return self.received + sum(each.received for each in self.views.values())


class Sessions:
    """All clients that are online."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._by_connection: dict[int, dict[str, Session]] = {}
        self._by_client: dict[str, list[Session]] = {}
        self.on_request: Callable[[Session, Command], None] = lambda *_: None
        """Callback that gets the requests of the broker to a client."""

        self.on_change: Callable[[Session], None] = lambda *_: None
        """Callback that gets a session that ends, or whose settings have changed."""

        self.on_invoke: Callable[[Session, Command, int], Awaitable[Command]]
        """Callback that gets requests that the client answers, and a time limit in
        milliseconds.
        """

    def find(self, call: GrpcCall) -> Session:
        """Return the session of a call; create a session for a new client."""
        client_id = call.metadata.get("x-mq-client-id", "")
        if not client_id:
            raise Refused(
                Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing"
            )
        if len(client_id) > MAX_CLIENT_ID or not client_id.isprintable():
            raise Refused(Code.BAD_REQUEST, "the client id is too long, or is not text")
        known = self._by_connection.setdefault(call.connection.token, {})
        session = known.get(client_id)
        if session is None:
            if len(known) >= MAX_SESSIONS:
                raise Refused(
                    Code.TOO_MANY_REQUESTS,
                    f"a connection serves at most {MAX_SESSIONS} client ids",
                )
            session = Session(client_id, call.metadata.get("x-mq-language", ""))
            session.caller = self._open_own_caller(call, session)
            known[client_id] = session
            self._by_client.setdefault(client_id, []).append(session)
        elif session.caller is None or not session.caller.is_open:
            # the client was silent for too long, and the broker had removed it
            session.caller = self._open_own_caller(call, session)
        return session

    def _open_own_caller(self, call: GrpcCall, session: Session) -> InnerCaller:
        """Return the caller that is a member of the client's groups."""
        caller = self.open_caller(session, call.connection)
        caller.count_received = session.count_received
        return caller

    def open_caller(self, session: Session, connection: Connection) -> InnerCaller:
        """Return a caller whose requests from the broker go to the session."""

        def on_request(command: Command) -> None:
            self.on_request(session, command)

        caller = self._broker.open_caller(connection, on_request)
        caller.on_invoke = partial(self.on_invoke, session)
        return caller

    def open_call_caller(self, call: GrpcCall, session: Session) -> InnerCaller:
        """Return a caller for one call, with the user of the session."""
        caller = self.open_caller(session, call.connection)
        assert session.caller is not None, "a session has a caller"
        caller.user = session.caller.user
        return caller

    def keep_settings(self, session: Session, token: int, settings: Any) -> None:
        """Keep the settings of a client; Refused if a connection has too many."""
        data = settings.SerializeToString()
        known = self._by_connection.get(token, {}).values()
        others = sum(len(each.settings_bytes) for each in known if each is not session)
        if others + len(data) > MAX_SETTINGS_SIZE:
            raise Refused(
                Code.TOO_MANY_REQUESTS,
                f"the settings of a connection exceed {MAX_SETTINGS_SIZE} bytes",
            )
        session.settings_bytes = data
        self.on_change(session)

    def end(self, session: Session, token: int) -> None:
        """Remove a client from all tables."""
        known = self._by_connection.get(token, {})
        if known.get(session.client_id) is session:
            del known[session.client_id]
            self._remove_session(session)
        if session.caller is not None:
            session.caller.close("the client ended")

    def find_client(self, client_id: str) -> Session | None:
        """Return a session of a client that is online."""
        found = self._by_client.get(client_id)
        return found[-1] if found else None

    def is_last(self, session: Session) -> bool:
        """Return whether the client of a session has no other session."""
        sessions = self._by_client.get(session.client_id, ())
        return all(each is session for each in sessions)

    def _remove_session(self, session: Session) -> None:
        self.on_change(session)
        sessions = self._by_client[session.client_id]
        sessions.remove(session)
        if not sessions:
            del self._by_client[session.client_id]

    def end_streams(self) -> None:
        """End the streams of Telemetry of all clients."""
        for sessions in self._by_connection.values():
            for session in sessions.values():
                if session.stream is not None:
                    session.stream.end()
                    session.stream = None

    def count_languages(self) -> Counter[str]:
        """Return the number of clients that are online, by their language."""
        return Counter(
            session.language_code.name
            for sessions in self._by_connection.values()
            for session in sessions.values()
        )

    def end_connection(self, token: int) -> None:
        """Remove the clients of a closed connection."""
        for session in self._by_connection.pop(token, {}).values():
            self._remove_session(session)
            if session.caller is not None:
                session.caller.close("its connection is closed")
