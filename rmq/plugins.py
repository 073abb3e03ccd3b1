"""PluginSet: finds plugins by entry points, checks them, sets them up once at start.

`plugins.disabled` names plugins to leave out; if the environment variable
RMQ_LOAD_PLUGINS is set, it names the only plugins to load.  A plugin that cannot be
loaded, has no `rmq_setup`, or has a function that only looks like a hook, stops the
start with a sentence that names it.
"""

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

from rmq.config.option import options
from rmq.core.errors import ConfigError, PluginError, RmqError

GROUP = "rmq.plugins"
ONLY_VARIABLE = "RMQ_LOAD_PLUGINS"
HOOK_PREFIX = "rmq_"
OWN_PACKAGE = "rmq_plugins."
BROKER_PACKAGES = ("rmq.broker.", "rmq.store.")
SETUP = "rmq_setup"
MARK = "rmq_impl"
"""Attribute by which `hookimpl` marks a function as a hook."""

PARAMETERS = ("broker", "register")
REPLACED_HOOKS = {
    "rmq_config": "config(Kind)",
    "rmq_handlers": "handler(code, handler)",
    "rmq_native_handlers": "native(code, make)",
    "rmq_put_interceptors": "interceptor(properties, intercept)",
    "rmq_request_guards": "guard(check)",
    "rmq_services": "service(run)",
    "rmq_arrival_listeners": "arrivals(listener)",
}
"""Hooks from before `rmq_setup`, and the call of `register` that replaces each."""


class PluginSet:
    """The loaded plugins of one process."""

    def __init__(self) -> None:
        self._plugins: dict[str, object] = {}
        self._distributions: dict[str, Distribution | None] = {}
        self._config_classes: dict[str, list[type[Any]]] = {}

    def load(self, disabled: str = "") -> None:
        """Load the installed plugins in the order of their names.

        `disabled`: names to leave out, separated by commas.
        """
        left_out = {name.strip() for name in disabled.split(",")}
        only = os.environ.get(ONLY_VARIABLE)
        wanted = {name.strip() for name in only.split(",")} if only else None
        installed = installed_plugins()
        if not installed:
            raise ConfigError(
                f"no plugin is installed (no entry point of the group {GROUP}), so "
                "that no request can be served: install the package, or run `make dev`"
            )
        for point in installed:
            is_wanted = wanted is None or point.name in wanted
            if is_wanted and point.name not in left_out:
                self._load_one(point)

    def _load_one(self, point: EntryPoint) -> None:
        try:
            module = point.load()
        except Exception as error:  # the loader's supervisor: name the plugin
            raise PluginError(point.name, f"cannot be loaded: {error!r}") from error
        self.add(module, name=point.name)
        self._distributions[point.name] = point.dist

    def add(self, module: object, *, name: str) -> None:
        """Add a module or object with `rmq_setup`; PluginError if it is not valid."""
        for problem in (*hook_problems(module), *key_problems(module, name)):
            raise PluginError(name, problem)
        if name in self._plugins:
            raise PluginError(name, "another plugin has this name")
        self._plugins[name] = module
        self._config_classes[name] = list(config_classes_of(module))

    def get(self, name: str) -> object | None:
        """Return the plugin of this name; None if it is not loaded."""
        return self._plugins.get(name)

    def config_classes(self, name: str | None = None) -> list[type[Any]]:
        """Return the option classes of one plugin, or of all of them."""
        return [
            kind
            for plugin, classes in self._config_classes.items()
            for kind in classes
            if name in (None, plugin)
        ]

    def set_up(self, broker: object, register_for: Callable[[str], object]) -> None:
        """Call `rmq_setup` of every plugin; `register_for` creates its `register`."""
        for name, plugin in sorted(self._plugins.items(), key=_rank):
            setup = getattr(plugin, SETUP)
            given = dict(zip(PARAMETERS, (broker, register_for(name)), strict=True))
            taken = inspect.signature(setup).parameters
            try:
                setup(**{each: given[each] for each in taken})
            except (PluginError, ConfigError):
                raise
            except RmqError as error:
                raise PluginError(name, str(error)) from error
            except Exception as error:  # the supervisor of setups: name the plugin
                raise PluginError(name, f"{SETUP} failed: {error!r}") from error

    def versions(self) -> dict[str, str]:
        """Return the plugins' names, in the order of loading, with their versions.

        It takes milliseconds, because it reads the metadata of packages.
        """
        known: dict[Distribution | None, str] = {None: "unknown"}
        for distribution in self._distributions.values():
            if distribution is not None and distribution not in known:
                known[distribution] = distribution.version
        return {name: known[self._distributions.get(name)] for name in self._plugins}


def _rank(item: tuple[str, object]) -> int:
    """Return the sort key of a plugin, from the marks of its setup."""
    mark = getattr(getattr(item[1], SETUP), MARK)
    return int(mark["trylast"]) - int(mark["tryfirst"])


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
        yield f"it has no function {SETUP}, so it would do nothing"


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
            and not value.__module__.startswith(BROKER_PACKAGES)
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
    return _installed(tuple(sys.path))


@cache
def _installed(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Search the path once, because that is slow."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: point.name))
