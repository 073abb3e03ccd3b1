"""Registrations: all functions and tables that the plugins of one broker have
registered.

An interceptor of puts is known in Java as `PutMessageHook`.
`Register` adds them while plugins are set up; after that the broker reads them.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from rmq._fastpath.handlers.diversion import Diversion
from rmq._fastpath.reactor.grants import Grants
from rmq._fastpath.reactor.native import NativeHandler
from rmq.config.json_table import JsonTable
from rmq.core.errors import PluginError
from rmq.plugin.broker import Facts, PluginInfo
from rmq.plugin.rights import RequestRights
from rmq.protocol.command import Command
from rmq.protocol.message import Message
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import Guard, Handler, Result
from rmq.store.queues.consume_queues import QueueKey

PORTS: Final = ("main", "fast")

SAVE_INTERVAL_S = 0.2
"""Minimum time between two saves of a table. The broker saves a change after this time
at once.
"""

ArrivalListener = Callable[[Mapping[QueueKey, int]], None]
"""Function that gets the new ends of queues: {(topic, queue id): queue offset}."""

Service = Callable[[], Awaitable[Any]]
"""An async function that runs as long as the broker."""

PopProgress = Callable[[str, str, int], int]
"""Function that returns an offset for a group, a topic and a queue id."""

SendFields = Callable[[Message], Mapping[str, str]]
"""Function that returns fields for the answer to a send, for a stored message."""

MakeNative = Callable[[], NativeHandler]

Around = Callable[[Handler, Command, Connection], Result]
"""Function that serves a request by its handler, and may pass another request to it."""


class PutInterceptor(NamedTuple):
    """A function that may change a message, or refuse it with `RequestRejected`."""

    triggers: frozenset[str]
    intercept: Callable[[Message], object]
    native: Diversion | None = None
    """The interceptor for compiled sends, with the same rule."""


class Claim(NamedTuple):
    """A request code that a plugin serves on one port."""

    plugin: str
    port: str
    code: int
    handler: Handler
    max_running: int
    max_waiting: int
    replaces: str | None


class NativeClaim(NamedTuple):
    """A compiled handler that a plugin offers for a code."""

    plugin: str
    ports: tuple[str, ...]
    code: int
    make: MakeNative


class PluginService(NamedTuple):
    """A service, and whether it is started again after an error."""

    plugin: str
    run: Service
    restart: bool
    masters_only: bool


class Registrations:
    """All registrations of the plugins of one broker, in their order."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = values or {}
        self.claims: dict[tuple[str, int], Claim] = {}
        self.natives: list[NativeClaim] = []
        self.around: list[tuple[str, str, int, Around]] = []
        self.interceptors: list[PutInterceptor] = []
        self.first_count = 0
        self.guards: list[Guard] = []
        self.rights: tuple[str, RequestRights] | None = None
        self.grants: list[Grants | None] = []
        self.services: list[PluginService] = []
        self.listeners: list[ArrivalListener] = []
        self.tables: list[tuple[JsonTable, float]] = []
        self.copied: list[tuple[str, int, Callable[[bytes], object]]] = []
        self.taken_back: list[tuple[int, Callable[[bytes], object]]] = []
        self.configs: dict[tuple[str, type[Any]], Any] = {}
        self.on_close: list[Callable[[Connection], object]] = []
        self.on_stop: list[Callable[[], object]] = []
        self.on_config: list[Callable[[Collection[str]], object]] = []
        self.facts: dict[str, tuple[str, Callable[[], Facts]]] = {}
        self.pop_progress: tuple[str, PopProgress] | None = None
        self.send_fields: dict[str, tuple[str, SendFields]] = {}
        self.holds: list[Callable[[], int | None]] = []
        self.calls: dict[str, dict[str, None]] = {}
        self.grpc: tuple[str, Callable[[], Any], Callable[[], object]] | None = None
        self.is_open = True
        self._versions: Callable[[], Mapping[str, str]] = dict

    def close(self, versions: Callable[[], Mapping[str, str]]) -> None:
        """End the setup of plugins, and check the rules for all plugins together.

        `versions()` returns the loaded plugins with their versions.
        """
        self._versions = versions
        self._check_natives()
        for plugin, port, code, _ in self.around:
            if (port, code) not in self.claims:
                raise PluginError(plugin, f"no plugin serves request code {code}")
        self.is_open = False

    def served_by(self, claim: Claim) -> Handler:
        """Return the handler of a claim, inside the wrappers of other plugins."""
        handler = claim.handler
        for _, port, code, around in self.around:
            if (port, code) == (claim.port, claim.code):
                handler = partial(around, handler)
        return handler

    def _check_natives(self) -> None:
        for claim in self.natives:
            for port in claim.ports:
                if (port, claim.code) not in self.claims:
                    raise PluginError(
                        claim.plugin,
                        f"request code {claim.code} has no Python handler on the port "
                        f"{port}; register a Python handler too: it serves the "
                        "requests that the compiled handler declines",
                    )

    def made_natives(self) -> Iterable[tuple[str, int, NativeHandler]]:
        """Make the compiled handlers: port, request code, handler. There is no handler
        for a code that another plugin serves by `replaces`.
        """
        for plugin, ports, code, make in self.natives:
            own = [port for port in ports if self.claims[port, code].plugin == plugin]
            if not own:
                continue
            handler = make()
            if not isinstance(handler, NativeHandler):
                raise PluginError(
                    plugin,
                    f"{handler!r}, made for request code {code}, is no NativeHandler",
                )
            for port in own:
                yield port, code, handler

    def plugins(self) -> list[PluginInfo]:
        """Return the loaded plugins in the order of loading."""
        codes: dict[str, set[int]] = {}
        for claim in self.claims.values():
            codes.setdefault(claim.plugin, set()).add(int(claim.code))
        return [
            PluginInfo(
                name,
                version,
                tuple(self.calls.get(name, ())),
                tuple(sorted(codes.get(name, ()))),
            )
            for name, version in self._versions().items()
        ]

    def needed_from(self) -> int | None:
        """Return the smallest physical offset that a plugin needs, or None."""
        offsets = [needed() for needed in self.holds]
        assert all(each is None or each >= 0 for each in offsets), offsets
        return min((each for each in offsets if each is not None), default=None)
