"""Sessions: the users that are signed in, checked by access control.

A sign-in signs a request for a view with user and password, as `rmq top` does, and
access control checks it.  The session keeps this signed request, not the password.
Access control checks it again at each use: a session ends when user, password or rules
change.
"""

import secrets
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from rmq.access.actions import Action
from rmq.access.signature import sign
from rmq.core.address import host_of
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import OwnRequestCode
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext

SESSION_MS: Final = 8 * 3_600_000
MAX_SESSIONS: Final = 1_000
MAX_WRONG: Final = 5
"""Maximum number of wrong passwords of an address in `WRONG_MS`; then the address must
wait.
"""

WRONG_MS: Final = 60_000
MAX_ADDRESSES: Final = 1_000
MAX_NAME: Final = 128
REFUSED: Final = (
    "User or password is wrong, or this user has no right to read (Get on the "
    "cluster). After {MAX_WRONG} failures this address must wait for a minute."
)


class Caller(NamedTuple):
    """A browser, as rules about source addresses see it."""

    remote_address: str

    @property
    def source_host(self) -> str:
        """The host of the browser."""
        return host_of(self.remote_address)


class Session(NamedTuple):
    """A signed request, and the time when the session ends."""

    user: str
    proof: Command
    ends_ms: int


class Sessions:
    """All sessions.

    Without access control every browser may see the views, and users have no names.
    """

    def __init__(self, broker: "BrokerContext") -> None:
        self._rights = broker.rights
        self._clock: Clock = broker.clock
        self.is_needed = bool(broker.registered.guards)
        self._sessions: dict[str, Session] = {}
        self._wrong: dict[str, deque[int]] = {}

    def sign_in(self, user: str, password: str, address: str) -> str:
        """Return the key of a new session; RequestRejected with a sentence."""
        self._check_pace(address)
        proof = Command.request(OwnRequestCode.GET_VIEW)
        if 0 < len(user) <= MAX_NAME and 0 < len(password) <= MAX_NAME:
            sign(proof, user, password)
        try:
            self._check_rights(proof, address)
        except RequestRejected as refusal:
            self._count_wrong(address)
            raise RequestRejected(refusal.code, REFUSED) from None
        now_ms = self._clock.now_ms()
        for key in [k for k, s in self._sessions.items() if s.ends_ms <= now_ms]:
            del self._sessions[key]
        if len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        key = secrets.token_urlsafe(32)
        self._sessions[key] = Session(user, proof, now_ms + SESSION_MS)
        return key

    def sign_out(self, key: str) -> None:
        """End a session, which may be unknown."""
        self._sessions.pop(key, None)

    def user(self, key: str, address: str) -> str | None:
        """Return the user of a session that may see the views; None if there is no such
        session.
        """
        if not self.is_needed:
            return ""
        session = self._sessions.get(key)
        if session is None:
            return None
        is_over = session.ends_ms <= self._clock.now_ms()
        if is_over or not self._may_look(session.proof, address):
            del self._sessions[key]
            return None
        return session.user

    def require(self, key: str, address: str, topic: str) -> None:
        """Raise RequestRejected unless the user of a session may read a topic."""
        session = self._sessions.get(key)
        if session is not None:
            connection = cast("Connection", Caller(address))
            actions = Action.GET, Action.SUB
            self._rights.require(session.proof, connection, topic, *actions)

    def _may_look(self, proof: Command, address: str) -> bool:
        try:
            self._check_rights(proof, address)
        except RequestRejected:
            return False
        return True

    def _check_rights(self, proof: Command, address: str) -> None:
        # a guard reads only the address of a connection
        self._rights.check_request(proof, cast("Connection", Caller(address)))

    def _check_pace(self, address: str) -> None:
        wrong = self._wrong.get(host_of(address), deque())
        now_ms = self._clock.steady_ms()
        if len(wrong) == MAX_WRONG and now_ms - wrong[0] < WRONG_MS:
            raise RequestRejected(
                1, "Too many wrong passwords. Wait for a minute, then try again."
            )

    def _count_wrong(self, address: str) -> None:
        host = host_of(address)
        wrong = self._wrong.pop(host, None) or deque(maxlen=MAX_WRONG)
        wrong.append(self._clock.steady_ms())
        if len(self._wrong) >= MAX_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[host] = wrong
