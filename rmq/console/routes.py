"""Routes: the paths of the console, and the right that each needs.

All paths below `/api/` are JSON; errors are `{"error": "sentence"}`. To see a view a
user needs the right for request 20003, GET_VIEW.
"""

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import trio

from rmq import __version__
from rmq.config.option import describe
from rmq.console.changes import Changes
from rmq.console.config import ConsoleConfig
from rmq.console.files import read_files
from rmq.console.headers import is_known_host, is_own_page
from rmq.console.history import TrafficHistory
from rmq.console.live import Compute, Live
from rmq.console.sessions import SESSION_MS, Sessions
from rmq.core.address import is_loopback
from rmq.core.errors import RequestRejected
from rmq.observe.message_views import MESSAGE_VIEWS, placed_record
from rmq.observe.queries import MAX_TEXT
from rmq.observe.views import VIEWS, show_view
from rmq.protocol.codes import ResponseCode
from rmq.remoting.turns import TurnTaker

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext

JSON: Final = "application/json"
MAX_FOUND: Final = 9
MAX_CHANGES: Final = 200
WHY_READ_ONLY: Final = "rmq.consoleWrite is false"
WHY_NOT_HERE: Final = "without sign-in everybody on the network could make this change"
NOT_SIGNED_IN: Final = "Sign in with a user of this broker."
STATUSES: Final[Mapping[int, HTTPStatus]] = {
    ResponseCode.QUERY_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ResponseCode.NO_PERMISSION: HTTPStatus.FORBIDDEN,
}


class Request(NamedTuple):
    """A request with a size within the limits."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    address: str


class Answer(NamedTuple):
    """A whole answer."""

    body: bytes
    status: int = HTTPStatus.OK
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = (("Cache-Control", "no-store"),)


class Stream(NamedTuple):
    """An event stream; it ends when `user` is no longer signed in."""

    view: str
    query: Mapping[str, str]
    compute: Compute
    key: str


def error_answer(status: HTTPStatus, sentence: str) -> Answer:
    """Return an error as the page shows it."""
    return Answer(msgspec.json.encode({"error": sentence}), status)


class Routes:
    """The answers of one broker's console."""

    def __init__(self, config: ConsoleConfig, broker: "BrokerContext") -> None:
        self._names = config.names()
        self._is_https = config.is_https
        self._broker = broker
        self._files = read_files()
        self.sessions = Sessions(broker)
        self.live = Live()
        self.history = TrafficHistory(broker)
        self.port = config.console_port
        refusal = "" if config.console_write else WHY_READ_ONLY
        if not self.sessions.is_needed and not is_loopback(config.console_host):
            refusal = refusal or WHY_NOT_HERE
        self.changes = Changes(broker, refusal)

    async def answer_request(self, request: Request) -> Answer | Stream:
        """Answer a request; the caller handles errors of the console itself."""
        if not is_known_host(request.headers.get("host", ""), self._names):
            return error_answer(
                HTTPStatus.MISDIRECTED_REQUEST,
                "The console does not know this name: add it to rmq.consoleHosts.",
            )
        if request.method == "POST":
            return await self._answer_post(request)
        if request.method not in ("GET", "HEAD"):
            return error_answer(
                HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and POST are known."
            )
        if not request.path.startswith("/api/"):
            return self._file_answer(request)
        key = self.key_of(request)
        user = self.sessions.user(key, request.address)
        if user is None:
            return error_answer(HTTPStatus.UNAUTHORIZED, NOT_SIGNED_IN)
        try:
            return await self._answer_api(request, user, key)
        except RequestRejected as error:
            return _rejection_answer(error)

    def key_of(self, request: Request) -> str:
        """Return the key of the session that the cookie names."""
        wanted = self._cookie_name
        for part in request.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == wanted:
                return value
        return ""

    @property
    def _cookie_name(self) -> str:
        # the port is in the name: browsers keep cookies of all ports of a host together
        return f"{'__Host-' if self._is_https else ''}rmq-{self.port}"

    # -- files

    def _file_answer(self, request: Request) -> Answer:
        file = self._files.get(request.path)
        if file is None:
            return error_answer(HTTPStatus.NOT_FOUND, "There is no such page.")
        headers = [("Cache-Control", "no-cache"), ("ETag", file.etag)]
        headers.append(("Vary", "Accept-Encoding"))
        if request.headers.get("if-none-match") == file.etag:
            return Answer(
                b"", HTTPStatus.NOT_MODIFIED, file.content_type, tuple(headers)
            )
        body = file.content
        if "gzip" in request.headers.get("accept-encoding", ""):
            body = file.packed
            headers.append(("Content-Encoding", "gzip"))
        return Answer(body, HTTPStatus.OK, file.content_type, tuple(headers))

    # -- data

    async def _answer_api(
        self, request: Request, user: str, key: str
    ) -> Answer | Stream:
        name = request.path.removeprefix("/api/")
        if name == "live":
            view = request.query.get("view", "")
            query = {k: v for k, v in request.query.items() if k != "view"}
            compute = self._view_function(view, query)
            await compute()  # an error is an answer, not the end of a stream
            return Stream(view, query, compute, key)
        if name == "session":
            await trio.lowlevel.checkpoint()
            return _json_answer(self._session_state(user))
        if name == "find":
            return _json_answer(
                await self._find_names(request.query.get("q", "")[:MAX_TEXT])
            )
        if name == "config":
            await trio.lowlevel.checkpoint()
            return _json_answer(self._config_rows())
        if name == "audit":
            await trio.lowlevel.checkpoint()
            changes = list(self._broker.audit.all())[-MAX_CHANGES:]
            rows = [msgspec.to_builtins(each) for each in reversed(changes)]
            return _json_answer({"now": self._broker.clock.now_ms(), "rows": rows})
        if name == "replaced":
            await trio.lowlevel.checkpoint()
            rows = self.changes.replaced.resets_of(request.query.get("group", ""))
            return _json_answer({"now": self._broker.clock.now_ms(), "rows": rows})
        if name == "body":
            return await self._body_answer(request, key)
        if name in VIEWS or name in MESSAGE_VIEWS:
            require = partial(self.sessions.require, key, request.address)
            return _json_answer(
                await show_view(self._broker, name, request.query, require)
            )
        return error_answer(HTTPStatus.NOT_FOUND, "There is no such path.")

    def _view_function(self, name: str, query: Mapping[str, str]) -> Compute:
        view = VIEWS.get(name)
        if view is None:
            raise RequestRejected(
                ResponseCode.QUERY_NOT_FOUND, f"no view is called {name[:20]}"
            )

        async def compute_state() -> dict[str, Any]:
            state = await view(self._broker, query)
            if name == "overview":
                state["incoming"] = list(self.history.incoming)
                state["outgoing"] = list(self.history.outgoing)
            return state

        return compute_state

    def _session_state(self, user: str) -> dict[str, Any]:
        config = self._broker.config
        return {
            "user": user, "signed_in": self.sessions.is_needed,
            "write": not self.changes.refusal,
            "reason": self.changes.refusal,
            "node": config.broker_name,
            "cluster": config.broker_cluster_name, "version": __version__,
            "now": self._broker.clock.now_ms(),
            "problems": len(self._broker.monitor.problems),
        }  # fmt: skip

    async def _find_names(self, text: str) -> dict[str, Any]:
        """Return names that contain a text; names that begin with it come first."""
        wanted, turns = text.lower(), TurnTaker(self._broker.next_turn)
        found: list[tuple[bool, str, str]] = []
        groups = dict.fromkeys(self._broker.offsets.group_names())
        groups |= dict.fromkeys(self._broker.consumers.group_names())
        for kind, names in (("topic", self._broker.topics.all()), ("group", groups)):
            for name in names if wanted else ():
                if wanted in name.lower():
                    found.append((not name.lower().startswith(wanted), name, kind))
                await turns()
        found.sort()
        rows = [{"kind": kind, "name": name} for _, name, kind in found[:MAX_FOUND]]
        return {"rows": rows, "found": len(found)}

    async def _body_answer(self, request: Request, key: str) -> Answer:
        """Answer the stored bytes of a body, for a file; a browser never shows them."""
        require = partial(self.sessions.require, key, request.address)
        record = await placed_record(self._broker, request.query, require)
        headers = (
            ("Cache-Control", "no-store"),
            ("Content-Disposition", 'attachment; filename="body.bin"'),
        )
        return Answer(record.body, HTTPStatus.OK, "application/octet-stream", headers)

    def _config_rows(self) -> dict[str, Any]:
        rows = [
            {"key": key, "value": value, "is_default": is_default}
            for config in self._broker.configs()
            for key, value, is_default in describe(config)
        ]
        return {"now": self._broker.clock.now_ms(), "rows": rows}

    # -- changes

    async def _answer_post(self, request: Request) -> Answer:
        headers = request.headers
        is_ours = is_own_page(
            headers.get("origin", ""),
            headers.get("host", ""),
            headers.get("sec-fetch-site", ""),
        )
        is_json = headers.get("content-type", "").partition(";")[0].strip() == JSON
        if not is_ours or headers.get("x-rmq") != "1" or not is_json:
            return error_answer(
                HTTPStatus.FORBIDDEN, "This request does not come from the console."
            )
        if request.path.startswith("/api/do/"):
            return await self._answer_change(request)
        await trio.lowlevel.checkpoint()
        if request.path == "/api/sign-out":
            self.sessions.sign_out(self.key_of(request))
            return self._cookie_answer("", 0)
        if request.path != "/api/sign-in":
            return error_answer(HTTPStatus.NOT_FOUND, "There is no such path.")
        try:
            given = msgspec.json.decode(request.body, type=Credentials)
            key = self.sessions.sign_in(given.user, given.password, request.address)
        except msgspec.MsgspecError:
            return error_answer(
                HTTPStatus.BAD_REQUEST, "user and password are required."
            )
        except RequestRejected as error:
            return error_answer(HTTPStatus.FORBIDDEN, error.remark)
        return self._cookie_answer(key, SESSION_MS // 1_000)

    async def _answer_change(self, request: Request) -> Answer:
        """Plan a change, or apply it."""
        user = self.sessions.user(self.key_of(request), request.address)
        if user is None:
            return error_answer(HTTPStatus.UNAUTHORIZED, NOT_SIGNED_IN)
        name = request.path.removeprefix("/api/do/")
        try:
            fields = msgspec.json.decode(request.body, type=dict[str, Any])
            found = await self.changes.plan_or_apply(
                name, fields, user, request.address
            )
        except msgspec.MsgspecError:
            return error_answer(HTTPStatus.BAD_REQUEST, "A JSON object is required.")
        except RequestRejected as error:
            return _rejection_answer(error)
        return _json_answer(found)

    def _cookie_answer(self, key: str, seconds: int) -> Answer:
        cookie = (
            f"{self._cookie_name}={key}; HttpOnly; SameSite=Strict; Path=/; "
            f"Max-Age={seconds}{'; Secure' if self._is_https else ''}"
        )
        headers = (("Cache-Control", "no-store"), ("Set-Cookie", cookie))
        return Answer(b"{}", headers=headers)


class Credentials(msgspec.Struct):
    """The fields of the sign-in form."""

    user: str
    password: str


def _rejection_answer(error: RequestRejected) -> Answer:
    status = STATUSES.get(error.code, HTTPStatus.BAD_REQUEST)
    return error_answer(status, f"{error.remark[:1].upper()}{error.remark[1:]}.")


def _json_answer(value: object) -> Answer:
    return Answer(msgspec.json.encode(value))
