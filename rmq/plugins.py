"""Plugins: found by entry points, disabled by name, checked, asked once at start.

`plugins.disabled` names those to leave out; the environment variable RMQ_LOAD_PLUGINS
names the only ones to load.  A plugin that cannot be loaded, a misspelt hook and two
plugins on one code keep the broker from starting, with the plugin's name in the error.
"""

import inspect
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any, NamedTuple

import pluggy
from pluggy import HookimplOpts

from rmq import hookspecs
from rmq.errors import ConfigError, PluginError

GROUP = "rmq.plugins"
ONLY_VARIABLE = "RMQ_LOAD_PLUGINS"
HOOK_PREFIX = "rmq_"


class PluginInfo(NamedTuple):
    """What is known of a loaded plugin."""

    name: str
    version: str
    hooks: tuple[str, ...]
    codes: tuple[int, ...]


class Claim(NamedTuple):
    """A request code that a plugin wants to serve."""

    plugin: str
    code: int
    handler: Callable[..., Any]
    ports: tuple[str, ...]
    max_running: int
    max_waiting: int


class _Manager(pluggy.PluginManager):
    """Looks at names that can be hooks only: a module has dozens of others."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> HookimplOpts | None:
        if not name.startswith(HOOK_PREFIX):
            return None
        return super().parse_hookimpl_opts(plugin, name)


class PluginSet:
    """The loaded plugins of one process."""

    def __init__(self) -> None:
        self._manager = _Manager("rmq")
        self._manager.add_hookspecs(hookspecs)
        self._distributions: dict[str, Distribution | None] = {}
        self._claims: dict[tuple[str, int], Claim] = {}

    def load(self, disabled: str = "") -> None:
        """Load what is installed, in the order of names.

        `disabled`: names to leave out, separated by commas.
        """
        left_out = {name.strip() for name in disabled.split(",")}
        only = os.environ.get(ONLY_VARIABLE)
        wanted = {name.strip() for name in only.split(",")} if only else None
        installed = _installed(tuple(sys.path))
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
        """Register a module or object that implements hooks."""
        known = {hook for hook in dir(hookspecs) if hook.startswith(HOOK_PREFIX)}
        for attribute in dir(module):
            if not attribute.startswith(HOOK_PREFIX) or attribute in known:
                continue
            if inspect.isroutine(getattr(module, attribute)):
                # imported on use: a start that goes well has no misspelt hook
                import difflib

                near = difflib.get_close_matches(attribute, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise PluginError(name, f"there is no hook {attribute}{hint}")
        if self._manager.has_plugin(name):
            raise PluginError(name, "another plugin has this name")
        try:
            self._manager.register(module, name=name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            raise PluginError(name, str(error)) from error

    def config_classes(self) -> list[type[Any]]:
        """Return the option classes of all plugins."""
        classes: list[type[Any]] = []
        self._manager.hook.rmq_config(register=classes.append)
        return classes

    def claims(self, broker: object) -> list[Claim]:
        """Ask every plugin for its handlers; one claim for each port and code."""
        self._claims.clear()
        for name, plugin in self._manager.list_name_plugin():
            hook = getattr(plugin, "rmq_handlers", None)
            if hook is not None:
                hook(broker, self._register_for(name))
        return list(self._claims.values())

    def _register_for(self, plugin: str) -> Callable[..., None]:
        def register(
            code: int,
            handler: Callable[..., Any],
            *,
            ports: tuple[str, ...] = ("main", "fast"),
            max_running: int = 64,
            max_waiting: int = 10_000,
            replaces: str | None = None,
        ) -> None:
            claim = Claim(plugin, code, handler, ports, max_running, max_waiting)
            for port in ports:
                holder = self._claims.get((port, code))
                if holder is not None and holder.plugin != replaces:
                    raise PluginError(
                        plugin,
                        f"request code {code} belongs to plugin {holder.plugin}; say "
                        f'replaces="{holder.plugin}" to take it over',
                    )
                self._claims[port, code] = claim._replace(ports=(port,))

        return register

    def native_claims(self, broker: object) -> list[tuple[str, int, Any]]:
        """Ask for compiled handlers; each code must have a Python handler too."""
        offered: list[tuple[str, int, Any]] = []
        for name, plugin in self._manager.list_name_plugin():
            hook = getattr(plugin, "rmq_native_handlers", None)
            if hook is not None:
                hook(broker, self._offer_for(name, offered))
        return offered

    def _offer_for(
        self, plugin: str, offered: "list[tuple[str, int, Any]]"
    ) -> Callable[..., None]:
        def register(
            code: int, handler: object, *, ports: tuple[str, ...] = ("main", "fast")
        ) -> None:
            for port in ports:
                claim = self._claims.get((port, code))
                if claim is None:
                    raise PluginError(
                        plugin, f"request code {code} has no Python handler"
                    )
                if claim.plugin == plugin:  # else another one took the code over
                    offered.append((port, code, handler))

        return register

    def gather(self, hook: str, broker: object) -> list[Any]:
        """Call a hook that returns a sequence, and join the answers in order."""
        answers = getattr(self._manager.hook, hook)(broker=broker)
        return [item for answer in reversed(answers) for item in answer or ()]

    def list(self) -> list[PluginInfo]:
        """Return the plugins with their hooks and codes."""
        return [
            PluginInfo(
                name,
                self._version(name),
                tuple(hook for hook in dir(plugin) if hook.startswith(HOOK_PREFIX)),
                tuple(
                    sorted({c.code for c in self._claims.values() if c.plugin == name})
                ),
            )
            for name, plugin in self._manager.list_name_plugin()
        ]

    def _version(self, name: str) -> str:
        distribution = self._distributions.get(name)
        return "unknown" if distribution is None else distribution.version


@cache
def _installed(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """What is installed on the path, in the order of names: a slow look."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: point.name))
