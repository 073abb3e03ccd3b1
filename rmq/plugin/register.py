"""Register: the calls by which a plugin adds its functions to a broker.

Every error names the plugin: errors of the call, and later errors of the registered
function. The effect of such an error:

    a handler, guard, interceptor, fact   the request is answered SYSTEM_ERROR
    a service, listener or callback       the broker shuts down cleanly
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from rmq._fastpath.handlers.diversion import Diversion
from rmq._fastpath.reactor.grants import Grants
from rmq.config.json_table import JsonTable
from rmq.config.option import build
from rmq.core.errors import PluginError, RequestRejected
from rmq.plugin.broker import Facts
from rmq.plugin.registrations import (
    PORTS,
    SAVE_INTERVAL_S,
    Around,
    ArrivalListener,
    Claim,
    MakeNative,
    NativeClaim,
    PluginService,
    PopProgress,
    PutInterceptor,
    Registrations,
    SendFields,
    Service,
)
from rmq.plugin.rights import RequestRights
from rmq.protocol.command import Command
from rmq.protocol.message import Message
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import Guard, Handler, Result
from rmq.remoting.overload import MAX_RUNNING, MAX_WAITING

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class MethodOnUse:
    """A handler that is a method of an object, which `made` creates at the first
    request.
    """

    __slots__ = ("made", "name")

    def __init__(self, made: Callable[[], object], name: str) -> None:
        self.made = made
        self.name = name

    def resolve(self) -> Handler:
        """Return the handler itself."""
        handler: Handler = getattr(self.made(), self.name)
        return handler

    def __call__(self, request: Command, connection: Connection) -> Result:
        """Handle a request."""
        return self.resolve()(request, connection)


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
        to refuse the request. At most `max_running` coroutines of a code run at the
        same time and `max_waiting` wait. If two plugins serve one code, this is an
        error unless one of them names the other in `replaces`.
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

        `make()` imports the modules, so a start takes no time for requests that few
        brokers get. `methods` has the name of the object's method for each code; a
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

        `around(handler, request, connection)` returns the same values as a handler; it
        may call `handler(request, connection)`, also with another request. Compiled
        handlers do not call it: `around` gets only the requests that they leave to
        Python.
        """
        self._check_call("around", around)
        self._check_ports(ports)
        self._all.around += [(self.plugin, port, code, around) for port in ports]

    def native(
        self, code: int, make: MakeNative, *, ports: Collection[str] = PORTS
    ) -> None:
        """Let a compiled handler serve the frames of a code before the Python handler.

        `make()` returns a `rmq.plugin.native.NativeHandler`.  The broker calls it after
        all plugins are set up, if it uses compiled handlers. With
        `rmq.nativeHandlers=false`, or with a guard without grants, it does not call
        `make`. The code needs a Python handler of the same plugin, for the frames that
        the compiled handler declines.
        """
        self._check_call("native", make)
        self._check_ports(ports)
        named = self._with_name(f"the compiled handler of {int(code)}", make)
        self._all.natives.append(NativeClaim(self.plugin, tuple(ports), code, named))

    def interceptor(
        self,
        properties: Collection[str],
        intercept: Callable[[Message], object],
        *,
        first: bool = False,
        native: Diversion | None = None,
    ) -> None:
        """Check or change messages with one of these properties before they are stored.

        `intercept(message)` may change the message, or refuse it with
        `RequestRejected`. Interceptors with `first` run before the others. `native` is
        the same rule for compiled sends, which apply it to messages with exactly one of
        the properties of such rules.
        """
        self._check_call("interceptor", intercept)
        names = frozenset(() if isinstance(properties, str) else properties)
        if not names:
            raise self._error(
                "an interceptor names the properties that concern it as a set, such "
                f'as {{"level"}}, not {properties!r}'
            )
        named = self._with_name(
            f"the interceptor of {', '.join(sorted(names))}", intercept
        )
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
        """Check requests before any handler; the check adds its time to every request
        of every code.

        `check(request, connection)` raises `RequestRejected` to refuse a request.
        `rights` answer handlers that ask `broker.rights` about a topic that the request
        does not name.  Compiled handlers serve the requests in `grants`, to which
        `check` adds; without them, or with a second guard, no compiled handler is used.
        """
        self._check_call("guard", check)
        if rights is not None and self._all.rights is not None:
            raise self._error(f"the rights belong to plugin {self._all.rights[0]}")
        if rights is not None:
            self._all.rights = self.plugin, rights
        self._all.grants.append(grants)
        self._all.guards.append(self._with_name("a guard", check))

    def service(
        self, run: Service, *, restart: bool = False, masters_only: bool = False
    ) -> None:
        """Run an async function while the broker runs.

        If it fails, the broker shuts down cleanly; with `restart` the broker logs the
        error and calls the function again after 1 s.  A service that works for longer
        than 0.1 ms awaits `broker.next_turn()` in between. A slave does not run a
        service with `masters_only`; every service that stores messages needs it.
        """
        self._check_call("service", run)
        if not inspect.iscoroutinefunction(inspect.unwrap(run)):
            raise self._error(f"the service {run!r} is not an async function")
        self._all.services.append(
            PluginService(self.plugin, run, restart, masters_only)
        )

    def arrivals(self, listener: ArrivalListener) -> None:
        """Call `listener` once after each poll in which messages were stored.

        Its argument is {(topic, queue id): visible end offset} of the touched queues.
        """
        self._check_call("arrivals", listener)
        self._all.listeners.append(self._with_name("a listener of arrivals", listener))

    def table(self, table: JsonTable, *, interval_s: float = SAVE_INTERVAL_S) -> None:
        """Load a table now; save it after changes at this interval, and at the stop."""
        self._check_call("table")
        if not isinstance(table, JsonTable):
            raise self._error(f"the table {table!r} is no JsonTable")
        table.load()
        self._all.tables.append((table, interval_s))

    def copied_table(
        self,
        code: int,
        apply: Callable[[bytes], object],
        *,
        take_back: Callable[[bytes], object] | None = None,
    ) -> None:
        """Copy a table from the master periodically, on a slave.

        `apply(body)` takes the body of the master's answer to the request `code`, which
        has no fields; it raises `RequestRejected` if the body cannot be used.
        On a master that comes back, `take_back(body)` gets the answer of a slave that
        acted as the master.
        """
        self._check_call("copied_table", apply)
        what = f"the copy of {int(code)}"
        self._all.copied.append((what, int(code), self._with_name(what, apply)))
        if take_back is not None:
            self._check_call("copied_table", take_back)
            what = f"the taking back of {int(code)}"
            named = self._with_name(what, take_back)
            self._all.taken_back.append((int(code), named))

    def config(self, kind: type[T]) -> T:
        """Return the plugin's keys with their values: an instance of `kind`.

        `kind` is a `Configuration` (or a frozen dataclass) of `option()` fields. The
        plugin's module must have this class as a name, because `rmq config check` finds
        the keys there without a broker.
        """
        self._check_call("config")
        if kind not in self._kinds:
            raise self._error(
                f"{kind!r} is no class of option() fields that is defined in or "
                "imported into the plugin's module; without it, the keys would be "
                "unknown"
            )
        key = self.plugin, kind
        if key not in self._all.configs:
            self._all.configs[key] = build(kind, self._all.values)
        built: T = self._all.configs[key]
        return built

    def on_close(self, forget: Callable[[Connection], object]) -> None:
        """Call `forget(connection)` when a connection is closed."""
        self._check_call("on_close", forget)
        self._all.on_close.append(self._with_name("a listener of on_close", forget))

    def on_stop(self, end: Callable[[], object]) -> None:
        """Call `end()` at the begin of a stop, while services still run."""
        self._check_call("on_stop", end)
        self._all.on_stop.append(self._with_name("a listener of on_stop", end))

    def on_config(self, changed: Callable[[Collection[str]], object]) -> None:
        """Call `changed(keys)` when keys get new values while the broker runs."""
        self._check_call("on_config", changed)
        self._all.on_config.append(self._with_name("a listener of on_config", changed))

    def facts(self, name: str, collect: Callable[[], Facts]) -> None:
        """Let `broker.facts(name)` return `collect()` to other plugins."""
        self._check_call("facts", collect)
        holder = self._all.facts.get(name)
        if holder is not None:
            raise self._error(f"the facts {name} belong to plugin {holder[0]}")
        self._all.facts[name] = (
            self.plugin,
            self._with_name(f"the facts {name}", collect),
        )

    def pop_progress(self, progress: PopProgress) -> None:
        """Let `broker.offsets.next_offset_of` use the offsets up to which groups have
        popped a queue.

        `progress(group, topic, queue_id)` returns the offset after the last message
        that the group popped, or -1.
        """
        self._check_call("pop_progress", progress)
        if self._all.pop_progress is not None:
            holder = self._all.pop_progress[0]
            raise self._error(f"the progress of POP belongs to plugin {holder}")
        named = self._with_name("pop_progress", progress)
        self._all.pop_progress = self.plugin, named

    def send_fields(self, topic: str, fields: SendFields) -> None:
        """Add fields to the answers of sends whose message is stored in a topic.

        An interceptor of the plugin moves the messages to this topic. `fields(message)`
        gets the stored message. Compiled handlers do not call it.
        """
        self._check_call("send_fields", fields)
        holder = self._all.send_fields.get(topic)
        if holder is not None:
            raise self._error(f"the topic {topic} belongs to plugin {holder[0]}")
        named = self._with_name(f"the fields of sends to {topic}", fields)
        self._all.send_fields[topic] = self.plugin, named

    def grpc_service(
        self,
        make_service: Callable[[], Any],
        load_libraries: Callable[[], object] = lambda: None,
    ) -> None:
        """Serve gRPC on the port of clients by a `GrpcService`.

        When the first client speaks HTTP/2, the broker calls `load_libraries()` in
        another thread, then `make_service()`. `load_libraries()` raises ImportError if
        the plugin's libraries are not installed.
        """
        self._check_call("grpc_service", make_service)
        self._check_call("grpc_service", load_libraries)
        if self._all.grpc is not None:
            raise self._error(f"gRPC belongs to plugin {self._all.grpc[0]}")
        self._all.grpc = self.plugin, make_service, load_libraries

    def hold_log(self, needed_from: Callable[[], int | None]) -> None:
        """Prevent the deletion of the log from a physical offset on, unless the disk is
        full. `needed_from()` returns that offset, or None if the plugin needs no part
        of the log. The broker calls it before it deletes a file of the log.
        """
        self._check_call("hold_log", needed_from)
        self._all.holds.append(self._with_name("hold_log", needed_from))

    def _check_call(self, call: str, function: object = print) -> None:
        """Make the checks of every call, and count the call."""
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

    def _with_name(self, what: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function; its errors name the plugin."""
        plugin = self.plugin

        @wraps(function)
        def name_errors(*arguments: P.args, **keywords: P.kwargs) -> R:
            try:
                return function(*arguments, **keywords)
            except (RequestRejected, PluginError):
                raise
            except Exception as error:  # supervises the plugins' callbacks
                raise PluginError(plugin, f"{what} failed: {error!r}") from error

        return name_errors
