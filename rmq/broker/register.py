"""Register: how a plugin adds its functions to a broker; Registrations: of all plugins.

Every call knows the plugin's name, and every error names it: errors of the call, and
later errors of the registered function.  The effect of such an error:

    a handler, guard, interceptor, fact   the request is answered SYSTEM_ERROR
    a service, listener or callback       the broker stops in order
"""

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import cache, partial, wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from rmq.broker.arrivals import ArrivalListener
from rmq.broker.housekeeping import SAVE_INTERVAL_S
from rmq.broker.put import PutInterceptor
from rmq.broker.rights import RequestRights
from rmq.config.json_table import JsonTable
from rmq.config.option import build
from rmq.core.errors import PluginError, RequestRejected
from rmq.native import Grants, NativeHandler, TimedSends
from rmq.plugins import PluginSet
from rmq.protocol.command import Command
from rmq.protocol.message import Message
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import MAX_RUNNING, MAX_WAITING, Guard, Handler, Result

PORTS: Final = ("main", "fast")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Service = Callable[[], Awaitable[Any]]
"""An async function that runs as long as the broker."""

Facts = Mapping[str, Any]
"""Facts that a plugin publishes to others, as values of JSON."""

MakeNative = Callable[[], NativeHandler]

Around = Callable[[Handler, Command, Connection], Result]
"""Serves a request by its handler, which it may give another request."""


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


class PluginInfo(NamedTuple):
    """A loaded plugin: what it registered, by name of the call, and its codes."""

    name: str
    version: str
    registered: tuple[str, ...]
    codes: tuple[int, ...]


class Registrations:
    """Everything that the plugins of one broker registered, in their order."""

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
        self.configs: dict[tuple[str, type[Any]], Any] = {}
        self.on_close: list[Callable[[Connection], object]] = []
        self.on_stop: list[Callable[[], object]] = []
        self.on_config: list[Callable[[Collection[str]], object]] = []
        self.facts: dict[str, tuple[str, Callable[[], Facts]]] = {}
        self.holds: list[Callable[[], int | None]] = []
        self.calls: dict[str, dict[str, None]] = {}
        self.is_open = True
        self._loaded = PluginSet()

    def set_up(self, plugins: PluginSet, broker: object) -> None:
        """Set up every plugin; call once."""
        assert self.is_open, "plugins are set up once"
        self._loaded = plugins
        plugins.set_up(
            broker, lambda name: Register(self, name, plugins.config_classes(name))
        )
        self._check_natives()
        for plugin, port, code, _ in self.around:
            if (port, code) not in self.claims:
                raise PluginError(plugin, f"no plugin serves request code {code}")
        self.is_open = False

    def served_by(self, claim: Claim) -> Handler:
        """Return the handler of a claim with what other plugins put around it."""
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
                        f"{port}; register one too: it takes what the compiled handler "
                        "declines",
                    )

    def made_natives(self) -> Iterable[tuple[str, int, NativeHandler]]:
        """Make the compiled handlers: port, request code, handler.

        None for a code that another plugin has taken over.
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
            for name, version in self._loaded.versions().items()
        ]

    def needed_from(self) -> int | None:
        """Return the smallest physical offset that a plugin needs, or None."""
        offsets = [needed() for needed in self.holds]
        assert all(each is None or each >= 0 for each in offsets), offsets
        return min((each for each in offsets if each is not None), default=None)


class MethodOnUse:
    """A handler that is a method of an object, which `made` makes once."""

    __slots__ = ("made", "name")

    def __init__(self, made: Callable[[], object], name: str) -> None:
        self.made = made
        self.name = name

    def method(self) -> Handler:
        """Return the handler itself."""
        handler: Handler = getattr(self.made(), self.name)
        return handler

    def __call__(self, request: Command, connection: Connection) -> Result:
        """Handle a request."""
        return self.method()(request, connection)


class Register:
    """The argument of `rmq_setup`: one method for each thing that a plugin can do.

    A call after the end of `rmq_setup` is an error.
    """

    def __init__(
        self, all_of_them: Registrations, plugin: str, kinds: Collection[type[Any]]
    ) -> None:
        self.plugin = plugin
        self._all = all_of_them
        self._kinds = kinds

    def handler(
        self,
        code: int,
        handler: Handler,
        *,
        ports: Collection[str] = PORTS,
        max_running: int = MAX_RUNNING,
        max_waiting: int = MAX_WAITING,
        replaces: str | None = None,
    ) -> None:
        """Serve a request code.

        `handler(request, connection)` returns the answer, None (it answers later),
        `Held`, or a coroutine that ends with one of these; it raises `RequestRejected`
        to refuse the request.  At most `max_running` coroutines of a code run at the
        same time and `max_waiting` wait.  Two plugins on one code are an error unless
        one of them names the other in `replaces`.
        """
        self._check_call("handler", handler)
        self._check_ports(ports)
        for port in ports:
            claim = Claim(
                self.plugin, port, code, handler, max_running, max_waiting, replaces
            )
            holder = self._all.claims.get((port, code))
            if holder is None or holder.plugin == replaces:
                self._all.claims[port, code] = claim
            elif holder.replaces != self.plugin:
                raise self._error(
                    f"request code {code} belongs to plugin {holder.plugin}; use "
                    f'replaces="{holder.plugin}" to take it over'
                )

    def handlers(
        self,
        make: Callable[[], object],
        methods: Mapping[int, str],
        *,
        ports: Collection[str] = PORTS,
        max_running: int = MAX_RUNNING,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        """Serve request codes by methods of an object that the first request makes.

        `make()` imports what it needs: a start takes no time for requests that few
        brokers get.  `methods` has the name of the object's method for each code; a
        method is a handler as in `handler`.
        """
        self._check_call("handlers", make)
        made = cache(make)
        for code, name in methods.items():
            self.handler(
                code,
                MethodOnUse(made, name),
                ports=ports,
                max_running=max_running,
                max_waiting=max_waiting,
            )

    def around(
        self, code: int, around: Around, *, ports: Collection[str] = PORTS
    ) -> None:
        """See the requests of a code before the handler of another plugin.

        `around(handler, request, connection)` returns what a handler returns; it may
        call `handler(request, connection)`, also with a request of its own.  Compiled
        handlers do not ask it: it concerns requests that they leave to Python.
        """
        self._check_call("around", around)
        self._check_ports(ports)
        self._all.around += [(self.plugin, port, code, around) for port in ports]

    def native(
        self, code: int, make: MakeNative, *, ports: Collection[str] = PORTS
    ) -> None:
        """Let a compiled handler see the frames of a code first.

        `make()` returns a `rmq.native.NativeHandler`.  It is called after all plugins
        are set up, and only on a broker that uses compiled handlers: not with
        `rmq.nativeHandlers=false` and not with a guard without grants.  The code needs
        a Python handler of the same plugin, for the frames that the compiled handler
        declines.
        """
        self._check_call("native", make)
        self._check_ports(ports)
        named = self._named(f"the compiled handler of {int(code)}", make)
        self._all.natives.append(NativeClaim(self.plugin, tuple(ports), code, named))

    def interceptor(
        self,
        properties: Collection[str],
        intercept: Callable[[Message], object],
        *,
        first: bool = False,
        native: TimedSends | None = None,
    ) -> None:
        """Check or change messages with one of these properties before they are stored.

        `intercept(message)` may change the message, or refuse it with
        `RequestRejected`.  Interceptors with `first` run before the others.  Compiled
        sends do what `native` says with messages that have just one of the properties,
        and with others that it does not decline; there is one for all plugins.
        """
        self._check_call("interceptor", intercept)
        names = frozenset(() if isinstance(properties, str) else properties)
        if not names:
            raise self._error(
                "an interceptor names the properties that concern it as a set, such "
                f'as {{"level"}}, not {properties!r}'
            )
        named = self._named(f"the interceptor of {', '.join(sorted(names))}", intercept)
        interceptors, firsts = self._all.interceptors, self._all.first_count
        place = firsts if first else len(interceptors)
        interceptors.insert(place, PutInterceptor(names, named, native))
        self._all.first_count += first

    def guard(
        self,
        check: Guard,
        *,
        rights: RequestRights | None = None,
        grants: Grants | None = None,
    ) -> None:
        """Check requests before any handler; every request of every code pays for it.

        `check(request, connection)` raises `RequestRejected` to refuse a request.
        `rights` answer handlers that ask `broker.rights` about a topic that the request
        does not name.  Compiled handlers serve what is in `grants`, to which `check`
        adds; without them, or with a second guard, no compiled handler is used.
        """
        self._check_call("guard", check)
        if rights is not None and self._all.rights is not None:
            raise self._error(f"the rights belong to plugin {self._all.rights[0]}")
        if rights is not None:
            self._all.rights = self.plugin, rights
        self._all.grants.append(grants)
        self._all.guards.append(self._named("a guard", check))

    def service(
        self, run: Service, *, restart: bool = False, masters_only: bool = False
    ) -> None:
        """Run an async function as long as the broker.

        If it fails, the broker shuts down in order; with `restart` the broker logs the
        error and calls the function again after 1 s.  A service that works for longer
        than 0.1 ms awaits `broker.next_turn()` in between.  A slave does not run those
        that are for `masters_only`, such as all that store messages.
        """
        self._check_call("service", run)
        if not inspect.iscoroutinefunction(inspect.unwrap(run)):
            raise self._error(f"the service {run!r} is not an async function")
        self._all.services.append(
            PluginService(self.plugin, run, restart, masters_only)
        )

    def arrivals(self, listener: ArrivalListener) -> None:
        """Call `listener` once in each poll that brought messages.

        Its argument is {(topic, queue id): visible end offset} of the touched queues.
        """
        self._check_call("arrivals", listener)
        self._all.listeners.append(self._named("a listener of arrivals", listener))

    def table(self, table: JsonTable, *, interval_s: float = SAVE_INTERVAL_S) -> None:
        """Load a table now; save it after changes at this interval, and at the stop."""
        self._check_call("table")
        if not isinstance(table, JsonTable):
            raise self._error(f"the table {table!r} is no JsonTable")
        table.load()
        self._all.tables.append((table, interval_s))

    def copied(self, code: int, apply: Callable[[bytes], object]) -> None:
        """On a slave, copy a table from the master, again and again.

        `apply(body)` takes the body of the master's answer to the request `code`, which
        has no fields; it raises `RequestRejected` if the body cannot be used.
        """
        self._check_call("copied", apply)
        what = f"the copy of {int(code)}"
        self._all.copied.append((what, int(code), self._named(what, apply)))

    def config(self, kind: type[T]) -> T:
        """Return the plugin's keys with their values: an instance of `kind`.

        `kind` is a `Configuration` (or a frozen dataclass) of `option()` fields and a
        name of the plugin's module, so that `rmq config check` finds its keys there
        without a broker.
        """
        self._check_call("config")
        if kind not in self._kinds:
            raise self._error(
                f"{kind!r} is no class of option() fields that is defined in or "
                "imported into the plugin's module; without that, nobody would know "
                "its keys"
            )
        key = self.plugin, kind
        if key not in self._all.configs:
            self._all.configs[key] = build(kind, self._all.values)
        built: T = self._all.configs[key]
        return built

    def on_close(self, forget: Callable[[Connection], object]) -> None:
        """Call `forget(connection)` when a connection is closed."""
        self._check_call("on_close", forget)
        self._all.on_close.append(self._named("a listener of on_close", forget))

    def on_stop(self, end: Callable[[], object]) -> None:
        """Call `end()` at the begin of a stop, while services still run."""
        self._check_call("on_stop", end)
        self._all.on_stop.append(self._named("a listener of on_stop", end))

    def on_config(self, changed: Callable[[Collection[str]], object]) -> None:
        """Call `changed(keys)` when keys get new values while the broker runs."""
        self._check_call("on_config", changed)
        self._all.on_config.append(self._named("a listener of on_config", changed))

    def facts(self, name: str, tell: Callable[[], Facts]) -> None:
        """Let `broker.facts(name)` return the result of `tell()` to other plugins."""
        self._check_call("facts", tell)
        holder = self._all.facts.get(name)
        if holder is not None:
            raise self._error(f"the facts {name} belong to plugin {holder[0]}")
        self._all.facts[name] = self.plugin, self._named(f"the facts {name}", tell)

    def hold_log(self, needed_from: Callable[[], int | None]) -> None:
        """Keep the log from a physical offset on, unless the disk is full.

        `needed_from()` returns that offset, or None to keep nothing; the broker calls
        it before it deletes a file of the log.
        """
        self._check_call("hold_log", needed_from)
        self._all.holds.append(self._named("hold_log", needed_from))

    def _check_call(self, call: str, function: object = print) -> None:
        """Make the checks that hold for every call, and count the call."""
        if not self._all.is_open:
            raise self._error(
                f"register.{call} was called after rmq_setup had returned; call it "
                "in rmq_setup"
            )
        if not callable(function):
            raise self._error(f"register.{call}: {function!r} cannot be called")
        self._all.calls.setdefault(self.plugin, {})[call] = None

    def _check_ports(self, ports: Collection[str]) -> None:
        if not ports or isinstance(ports, str) or not set(ports) <= set(PORTS):
            raise self._error(f"ports={ports!r}; the ports are {' and '.join(PORTS)}")

    def _error(self, reason: str) -> PluginError:
        return PluginError(self.plugin, reason)

    def _named(self, what: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function; its errors name the plugin."""
        plugin = self.plugin

        @wraps(function)
        def named(*arguments: P.args, **keywords: P.kwargs) -> R:
            try:
                return function(*arguments, **keywords)
            except (RequestRejected, PluginError):
                raise
            except Exception as error:  # the supervisor of what plugins registered
                raise PluginError(plugin, f"{what} failed: {error!r}") from error

        return named
