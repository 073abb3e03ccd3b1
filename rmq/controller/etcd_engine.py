"""EtcdEngine: groups in etcd, through its JSON gateway.

Java's `DLedgerController` and `JRaftController` contain their own consensus.
Keys, below `/rmq/<rmq.controllerGroup>/`:

    group/<brokerName>      one group as JSON
    leader                  the address of the controller that leads
    controller/<address>    one for each controller that runs

The last two keys belong to the lease of their controller. etcd removes them when the
lease ends, `LEASE_S` after its last renewal. The number of a term is the revision that
created `leader`.

A request goes to one endpoint, and also to the next endpoint if the first fails, or is
silent for `NEXT_S`. A write may be sent twice: the second copy finds another revision,
so it has no effect.
"""

import base64
import logging
import math
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import httpx
import msgspec
import trio

from rmq.controller.config import ControllerConfig
from rmq.controller.engine import Stored, Term, View, decode_group, encode_group
from rmq.controller.groups import Group
from rmq.core.errors import ConfigError, EngineAway, TermLost
from rmq.core.logs import SparseLog

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())
logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each request

LEASE_S: Final = 5
MARGIN_S: Final = 1.0
"""A leader stops this time before the end of its lease, because the clocks of machines
differ.
"""

BEAT_S: Final = 1.0
ENDPOINT_S: Final = 1.0
"""Time limit of one endpoint. Brokers wait 3 s for an answer."""

NEXT_S: Final = 0.3
"""Pause before the next endpoint is asked, too; the first answer is used."""

WATCH_S: Final = 20.0
"""Time without events after which a watch begins again, because its endpoint may
hang.
"""

LEAST_WATCH_S: Final = 3.0
"""Minimum age of a watch before it moves to the endpoint of other requests."""

RETRY_S: Final = 1.0
OVER_S: Final = -math.inf
"""End of a term that is over."""

MAX_LINE: Final = 16 * 1024 * 1024
"""Maximum bytes of one message of a watch."""

_Answer = dict[str, Any]


class EtcdEngine:
    """An engine for any number of controllers."""

    warning = ""

    def __init__(
        self,
        config: ControllerConfig,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._endpoints = config.etcd_addresses()
        self._at = 0
        self._watches_at = 0
        self._watches_since_s = math.inf
        self._line_wait = trio.CancelScope()
        """Scope of the wait for the next line of the watch; its cancellation ends the
        wait.
        """

        self._user, self._password = config.etcd_user, config.etcd_password
        self._token: str | None = None
        root = f"/rmq/{config.controller_group}/"
        self._root = root.encode()
        self._leader_key = f"{root}leader".encode()
        self._http = httpx.AsyncClient(
            verify=_context(config),
            timeout=ENDPOINT_S,
            trust_env=False,
            transport=transport,
        )

    # -- state

    async def load(self) -> View:
        """Read all keys; etcd asks its members, so that no key is missing."""
        return (await self._load())[0]

    async def _load(self) -> tuple[View, int]:
        answer = await self._request_any("kv/range", self._read_all())
        view = View()
        for pair in answer.get("kvs", ()):
            self._put(view, _key(pair), pair)
        return view, int(answer["header"]["revision"])

    def _read_all(self) -> _Answer:
        end = self._root[:-1] + bytes([self._root[-1] + 1])
        return {"key": _text(self._root), "range_end": _text(end)}

    def _put(self, view: View, key: bytes, pair: _Answer | None) -> None:
        """Store one key in the view; remove it without a pair."""
        kind, _, name = key[len(self._root) :].decode().partition("/")
        data = base64.b64decode(pair.get("value", "")) if pair else b""
        if kind == "group" and pair:
            group = decode_group(name, data)
            view.groups[name] = Stored(group, int(pair["mod_revision"]))
        elif kind == "group":
            view.groups.pop(name, None)
        elif kind == "leader":
            view.leader = data.decode() or None
        elif kind == "controller":
            others = {each for each in view.controllers if each != name}
            view.controllers = tuple(sorted(others | {name} if pair else others))

    async def swap(
        self, name: str, group: Group | None, revision: int, term: Term
    ) -> int | None:
        """Compare the revisions of group and leader, and write, in one transaction."""
        key = _text(self._root + f"group/{name}".encode())
        if group is None:
            change = {"request_delete_range": {"key": key}}
        else:
            change = {"request_put": {"key": key, "value": _text(encode_group(group))}}
        leader = _text(self._leader_key)
        compare = [
            {"key": leader, "target": "CREATE", "create_revision": str(term.number)},
            {"key": key, "target": "MOD", "mod_revision": str(revision)},
        ]
        answer = await self._request_any(
            "kv/txn",
            {
                "compare": compare,
                "success": [change],
                "failure": [{"request_range": {"key": leader}}],
            },
        )
        if answer.get("succeeded"):
            return int(answer["header"]["revision"])
        if _found_pair(answer).get("create_revision") != str(term.number):
            term.until_s = OVER_S
            raise TermLost("another controller leads now")
        return None

    async def watch(self) -> AsyncIterator[View]:
        """Read the state, then its changes; begin again if the watch breaks."""
        while True:
            try:
                view, revision = await self._load()
                yield view
                async for event in self._watch_events(revision + 1):
                    pair = event["kv"]
                    removed = event.get("type") == "DELETE"
                    self._put(view, _key(pair), None if removed else pair)
                    yield view
            except EngineAway as error:
                logger.warning(
                    "the state of other controllers may be outdated: %s", error
                )
                await trio.sleep(RETRY_S)

    async def _watch_events(self, revision: int) -> AsyncIterator[_Answer]:
        """Yield the changes from a revision on, until the watch breaks."""
        request = {**self._read_all(), "start_revision": str(revision)}
        self._watches_at, self._watches_since_s = self._at, trio.current_time()
        endpoint = self._endpoints[self._at]
        stream = self._http.stream(
            "POST",
            f"{endpoint}/v3/watch",
            content=msgspec.json.encode({"create_request": request}),
            headers=self._auth_headers(),
            timeout=httpx.Timeout(ENDPOINT_S, read=WATCH_S),
        )
        with suppress(httpx.ReadTimeout):
            try:
                async with stream as answer:
                    lines = _lines(answer)
                    while (line := await self._next(lines)) is not None:
                        result = msgspec.json.decode(line).get("result", {})
                        if result.get("canceled"):
                            return
                        for event in result.get("events", ()):
                            yield event
            except httpx.ReadTimeout:
                raise
            except (httpx.HTTPError, msgspec.DecodeError) as error:
                raise EngineAway(f"{endpoint}: {_error_text(error)}") from error

    async def _next(self, lines: AsyncIterator[bytes]) -> bytes | None:
        """Return the next line of a watch; None at the end of the watch, also after
        `_leave_watch`.
        """
        with trio.CancelScope() as self._line_wait:
            return await anext(lines, None)
        return None

    def _leave_watch(self) -> None:
        """End a watch at an endpoint that other requests no longer use, because the
        endpoint may hang. Otherwise this controller could name an earlier leader.
        """
        age_s = trio.current_time() - self._watches_since_s
        if self._watches_at != self._at and age_s >= LEAST_WATCH_S:
            self._line_wait.cancel()

    # -- the lead

    async def campaign(
        self, address: str, on_term: Callable[[Term | None], None]
    ) -> None:
        """Hold a lease, and become the leader with this lease when there is no
        leader.
        """
        while True:
            try:
                answer = await self._request_any("lease/grant", {"TTL": str(LEASE_S)})
                await self._hold_lease(answer["ID"], address, on_term)
            except EngineAway as error:
                logger.warning("no lease: %s", error)
            await trio.sleep(RETRY_S)

    async def _hold_lease(
        self, lease: str, address: str, on_term: Callable[[Term | None], None]
    ) -> None:
        """Renew a lease until it has ended, and be the leader meanwhile if possible."""
        term: Term | None = None
        is_listed = False
        try:
            while True:
                asked_s = trio.current_time()
                try:
                    if not await self._keep(lease):
                        return
                    self._leave_watch()
                    is_listed = is_listed or await self._put_member(lease, address)
                    number = await self._take_lead(lease, address)
                except EngineAway as error:
                    logger.warning("cannot renew the lease: %s", error)
                else:
                    until_s = asked_s + LEASE_S - MARGIN_S
                    if term is not None and term.number == number:
                        term.until_s = until_s
                    elif term is not None or number:
                        term = _next_term(term, number, until_s)
                        on_term(term)
                await trio.sleep(BEAT_S)
        finally:
            if term is not None:
                term.until_s = OVER_S
                on_term(None)
            with trio.move_on_after(ENDPOINT_S) as scope, suppress(EngineAway):
                scope.shield = True
                await self._request_any("lease/revoke", {"ID": lease})

    async def _keep(self, lease: str) -> bool:
        answer = await self._request_any("lease/keepalive", {"ID": lease})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def _put_member(self, lease: str, address: str) -> bool:
        key = _text(self._root + f"controller/{address}".encode())
        await self._request_any("kv/put", {"key": key, "value": "", "lease": lease})
        return True

    async def _take_lead(self, lease: str, address: str) -> int:
        """Return the number of this controller's term; 0 if another controller leads.

        It first reads the leader, and writes only if there is none: a full etcd still
        answers reads.
        """
        key = _text(self._leader_key)
        found = await self._request_any("kv/range", {"key": key})
        leader: _Answer = next(iter(found.get("kvs", ())), {})
        if leader:
            is_own = leader.get("lease") == lease
            return int(leader["create_revision"]) if is_own else 0
        put = {"key": key, "value": _text(address.encode()), "lease": lease}
        answer = await self._request_any(
            "kv/txn",
            {
                "compare": [{"key": key, "target": "CREATE", "create_revision": "0"}],
                "success": [{"request_put": put}],
            },
        )
        return int(answer["header"]["revision"]) if answer.get("succeeded") else 0

    # -- requests

    async def _request_any(self, path: str, body: Mapping[str, object]) -> _Answer:
        """Ask one endpoint after the other; EngineAway with the reason of the last one.

        Requests begin with the endpoint that answered last.
        """
        answers: list[_Answer] = []
        errors: list[EngineAway] = []

        async def try_endpoint(at: int, has_failed: trio.Event) -> None:
            try:
                answers.append(await self._ask_one(self._endpoints[at], path, body))
            except EngineAway as error:
                errors.append(error)
                has_failed.set()
            else:
                self._at = at
                nursery.cancel_scope.cancel()

        first, count = self._at, len(self._endpoints)
        async with trio.open_nursery() as nursery:
            for number in range(count):
                has_failed = trio.Event()
                at = (first + number) % count
                nursery.start_soon(try_endpoint, at, has_failed)
                with trio.move_on_after(NEXT_S):
                    await has_failed.wait()
        if answers:
            return answers[0]
        raise errors[-1]

    async def _ask_one(
        self, endpoint: str, path: str, body: Mapping[str, object]
    ) -> _Answer:
        with trio.move_on_after(ENDPOINT_S):
            if self._user and self._token is None:
                user = {"name": self._user, "password": self._password}
                answer = await self._post(endpoint, "auth/authenticate", user)
                self._token = str(answer.get("token", ""))
            return await self._post(endpoint, path, body)
        raise EngineAway(f"{endpoint} did not answer within {ENDPOINT_S:.0f} s")

    async def _post(
        self, endpoint: str, path: str, body: Mapping[str, object]
    ) -> _Answer:
        try:
            answer = await self._http.post(
                f"{endpoint}/v3/{path}",
                content=msgspec.json.encode(body),
                headers=self._auth_headers(),
            )
            value = msgspec.json.decode(answer.content)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            raise EngineAway(f"{endpoint}: {_error_text(error)}") from error
        if answer.status_code != httpx.codes.OK or not isinstance(value, dict):
            self._token = None  # the token may have expired
            why = value.get("error") if isinstance(value, dict) else answer.status_code
            raise EngineAway(f"{endpoint} refuses {path}: {why}")
        return value

    def _auth_headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}


def _context(config: ControllerConfig) -> ssl.SSLContext | bool:
    """Return the TLS context for etcd; ConfigError if a file cannot be read."""
    if not any(each.startswith("https:") for each in config.etcd_addresses()):
        return False
    try:
        context = ssl.create_default_context(cafile=config.etcd_ca_file or None)
        if config.etcd_cert_file:
            context.load_cert_chain(config.etcd_cert_file, config.etcd_key_file or None)
    except OSError as error:
        raise ConfigError(f"cannot use the TLS files of rmq.etcd…: {error}") from error
    return context


async def _lines(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the lines of a stream; a line that is too long breaks it."""
    rest = b""
    async for piece in answer.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > MAX_LINE:
            raise EngineAway(f"a message of more than {MAX_LINE} bytes")


def _next_term(term: Term | None, number: int, until_s: float) -> Term | None:
    """End a term, and begin the next one if the controller leads again."""
    if term is not None:
        term.until_s = OVER_S
    return Term(number, until_s) if number else None


def _found_pair(answer: _Answer) -> _Answer:
    """Return the pair that a failed transaction has read."""
    read = answer["responses"][0]["response_range"]
    pairs = read.get("kvs") or [{}]
    pair: _Answer = pairs[0]
    return pair


def _key(pair: _Answer) -> bytes:
    return base64.b64decode(pair["key"])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
