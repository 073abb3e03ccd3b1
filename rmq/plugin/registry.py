"""PluginSet: finds plugins by entry points, checks them, sets them up once at start.

`plugins.disabled` names plugins to leave out. The environment variable
RMQ_LOAD_PLUGINS, if it is set, names the only plugins to load. pluggy keeps the
plugins, blocks names, and orders the setups. The start ends with a sentence that names
the plugin if one cannot be loaded or has no `rmq_setup`. A function that only looks
like a hook also ends the start.
"""

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

import pluggy

from rmq.config.option import options
from rmq.core.errors import ConfigError, PluginError, RmqError
from rmq.plugin import hookspecs
from rmq.plugin.broker import BrokerContext
from rmq.plugin.register import Register
from rmq.plugin.registrations import Registrations

GROUP = "rmq.plugins"
ONLY_VARIABLE = "RMQ_LOAD_PLUGINS"
HOOK_PREFIX = "rmq_"
OWN_PACKAGE = "rmq_plugins."
OTHERS_CONFIG = ("rmq.config.", "rmq.store.")
"""Packages whose option classes a plugin may import without owning them."""

SETUP = "rmq_setup"
MARK = "rmq_impl"
"""Attribute by which `hookimpl` marks a function as a hook."""

PARAMETERS = ("broker", "register")
NAME_TAKEN = "another plugin has this name"
REPLACED_HOOKS = {
    "rmq_config": "config(Kind)",
    "rmq_handlers": "handler(code, handler)",
    "rmq_native_handlers": "native(code, make)",
    "rmq_put_interceptors": "interceptor(properties, intercept)",
    "rmq_request_guards": "guard(check)",
    "rmq_services": "service(run)",
    "rmq_arrival_listeners": "arrivals(listener)",
}
"""Hooks of releases before `rmq_setup`, each with the call of `register` that replaces
it.
"""


class Adapter:
    """Holds a plugin whose setup pluggy ignores because it is no plain function, as in
    compiled modules.
    """

    def __init__(self, plugin: object) -> None:
        self.plugin = plugin
        setup = getattr(plugin, SETUP)
        taken = inspect.signature(setup).parameters

        def rmq_setup(broker: object, register: object) -> None:
            given = {"broker": broker, "register": register}
            setup(**{each: given[each] for each in taken})

        setattr(rmq_setup, MARK, getattr(setup, MARK))
        self.rmq_setup = rmq_setup


class PluginSet:
    """The loaded plugins of one process."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager("rmq")
        self._manager.add_hookspecs(hookspecs)
        self._distributions: dict[str, Distribution | None] = {}

    def load(
        self, disabled: str = "", more: Mapping[str, object] | None = None
    ) -> None:
        """Load the installed plugins, and `more` by name, in the order of names.

        `disabled`: names of installed plugins to leave out, separated by commas.
        """
        installed = {point.name: point for point in installed_plugins()}
        if not installed:
            raise ConfigError(
                f"no plugin is installed (no entry point of the group {GROUP}), so the "
                "broker can serve no request: install the package, or run `make dev`"
            )
        blocked = names_in(disabled)
        if only := os.environ.get(ONLY_VARIABLE):
            blocked |= installed.keys() - names_in(only)
        for name in blocked:
            self._manager.set_blocked(name)
        loaded = {
            name: _load(point)
            for name, point in installed.items()
            if not self._manager.is_blocked(name)
        }
        for name, plugin in (more or {}).items():
            if loaded.setdefault(name, plugin) is not plugin:
                raise PluginError(name, NAME_TAKEN)
            self._manager.unblock(name)
        self.add(dict(sorted(loaded.items())))
        self._distributions = {name: each.dist for name, each in installed.items()}

    def add(self, plugins: Mapping[str, object]) -> None:
        """Add modules or objects with `rmq_setup`, to be set up in this order.

        PluginError names the first one that is not valid.
        """
        for name, plugin in plugins.items():
            for problem in (*hook_problems(plugin), *key_problems(plugin, name)):
                raise PluginError(name, problem)
        for name, plugin in reversed([*plugins.items()]):  # pluggy calls the last first
            try:
                is_seen = self._manager.parse_hookimpl_opts(plugin, SETUP)
                self._manager.register(plugin if is_seen else Adapter(plugin), name)
                self._manager.check_pending()
            except pluggy.PluginValidationError as error:
                raise PluginError(name, str(error)) from error
            except ValueError as error:
                is_taken = self._manager.has_plugin(name)
                problem = (
                    NAME_TAKEN
                    if is_taken
                    else "the plugin is loaded under another name"
                )
                raise PluginError(name, problem) from error

    def _plugins(self) -> dict[str, object]:
        """Return the plugins by name, in the order of setup without marks."""
        return {
            name: plugin.plugin if isinstance(plugin, Adapter) else plugin
            for name, plugin in reversed(self._manager.list_name_plugin())
            if plugin is not None
        }

    def foreign_names(self) -> list[str]:
        """Return the names of the plugins that do not belong to rmq."""
        return [
            name
            for name, plugin in self._plugins().items()
            if not getattr(plugin, "__name__", "").startswith(OWN_PACKAGE)
        ]

    def config_classes(self, name: str | None = None) -> list[type[Any]]:
        """Return the option classes of one plugin, or of all plugins."""
        return [
            kind
            for plugin, module in self._plugins().items()
            if name in (None, plugin)
            for kind in config_classes_of(module)
        ]

    def set_up(self, broker: BrokerContext, registered: Registrations) -> None:
        """Call `rmq_setup` of every plugin; `registered` gets their registrations."""
        assert registered.is_open, "plugins are set up once"
        for setup in reversed(self._manager.hook.rmq_setup.get_hookimpls()):
            name = setup.plugin_name
            register = Register(registered, name, self.config_classes(name))
            given = {"broker": broker, "register": register}
            try:
                setup.function(*(given[each] for each in setup.argnames))
            except (PluginError, ConfigError):
                raise
            except RmqError as error:
                raise PluginError(name, str(error)) from error
            except Exception as error:  # supervises the setups: name the plugin
                raise PluginError(name, f"{SETUP} failed: {error!r}") from error
        registered.close(self.versions)

    def versions(self) -> dict[str, str]:
        """Return the plugins' names, in the order of loading, with their versions.

        It takes milliseconds, because it reads the metadata of packages.
        """
        known: dict[Distribution | None, str] = {None: "unknown"}
        for distribution in self._distributions.values():
            if distribution is not None and distribution not in known:
                known[distribution] = distribution.version
        return {name: known[self._distributions.get(name)] for name in self._plugins()}


def unknown_names(disabled: str) -> list[str]:
    """Return the names of `plugins.disabled` that no installed plugin has."""
    installed = {point.name for point in installed_plugins()}
    return sorted(names_in(disabled) - installed - {""})


def names_in(text: str) -> set[str]:
    """Return the names of a text that separates them by commas."""
    return {name.strip() for name in text.split(",")}


def _load(point: EntryPoint) -> object:
    try:
        return point.load()
    except Exception as error:  # the loader's supervisor: name the plugin
        raise PluginError(point.name, f"cannot be loaded: {error!r}") from error


def hook_problems(module: object) -> Iterator[str]:
    """Yield the problems of the functions of a plugin that are named like hooks."""
    functions = {
        name: value
        for name in dir(module)
        if name.startswith(HOOK_PREFIX)
        and callable(value := getattr(module, name))
        and not isinstance(value, type)
    }
    for name in functions.keys() - {SETUP}:
        yield _why_unknown(name)
    function = functions.get(SETUP)
    if function is not None:
        yield from _problems_of_setup(function)
    elif not functions:
        yield f"the module has no function {SETUP}, so the plugin would do nothing"


def _why_unknown(name: str) -> str:
    call = REPLACED_HOOKS.get(name)
    if call is not None:
        return (
            f"the hook {name} was removed: define {SETUP}(broker, register) and call "
            f"register.{call} in it"
        )
    # imported on use: most starts have no misspelt hook
    import difflib

    known = (SETUP, *REPLACED_HOOKS)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {SETUP}?" if near else ""
    return f"there is no hook {name}{hint} ({HOOK_PREFIX} is a prefix of hooks only)"


def _problems_of_setup(function: Callable[..., Any]) -> Iterator[str]:
    mark = getattr(function, MARK, None)
    if not isinstance(mark, dict):
        yield f"{SETUP} is not marked with @hookimpl of rmq.plugin"
        return
    taken = inspect.signature(function).parameters
    wrong = [
        str(each)
        for each in taken.values()
        if each.name not in PARAMETERS or each.kind is not each.POSITIONAL_OR_KEYWORD
    ]
    if wrong:
        yield (
            f"{SETUP} has the parameters {', '.join(wrong)}; it may have only "
            f"{' and '.join(PARAMETERS)}"
        )
    is_lazy = inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(
        function
    )
    if is_lazy or mark["wrapper"] or mark["hookwrapper"]:
        yield (
            f"{SETUP} is not a plain function; pass an async function to "
            "register.service to run it"
        )


def config_classes_of(module: object) -> Iterator[type[Any]]:
    """Yield the option classes among the names of a plugin, without the broker's."""
    for value in (getattr(module, name) for name in dir(module)):
        if (
            isinstance(value, type)
            and dataclasses.is_dataclass(value)
            and not value.__module__.startswith(OTHERS_CONFIG)
            and any(options(value))
        ):
            yield value


def key_problems(module: object, name: str) -> Iterator[str]:
    """Yield the problems of a plugin's configuration keys.

    A key with the plugin's name belongs neither to rmq nor to another plugin.
    """
    if getattr(module, "__name__", "").startswith(OWN_PACKAGE):
        return  # its keys are Java's, or began before there were plugins
    prefix = f"plugin.{name}."
    for kind in config_classes_of(module):
        for _, mark in options(kind):
            if not mark.key.startswith(prefix):
                yield f"the configuration key {mark.key} must start with {prefix}"


def installed_plugins() -> tuple[EntryPoint, ...]:
    """Return the entry points of installed plugins, in the order of names."""
    return _points_on_path(tuple(sys.path))


@cache
def _points_on_path(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Search the path only once, because a search is slow."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: point.name))
