"""A node inside the test's process, with free ports and small files.

It starts and stops like `rmq broker`, but handles no signals.
"""

import gc
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from rmq.config.broker import BrokerConfig
from rmq.config.option import build, check_settings
from rmq.core.clock import Clock
from rmq.core.errors import ConfigError
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.node.broker import run_broker
from rmq.node.controller import run_controller
from rmq.node.name_server import run_name_server
from rmq.node.node import Node
from rmq.node.roles import BROKER_OPTIONS, CONTROLLER_OPTIONS, NAME_SERVER_OPTIONS
from rmq.plugin.registry import PluginSet
from rmq.store.config import StoreConfig

SMALL_SETTINGS = {
    "brokerName": "broker-test",
    "listenPort": "0",
    "rmq.namesrv.listenPort": "0",
    "namesrvAddr": "",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
}
"""An empty `namesrvAddr` overrides a variable in the tester's environment."""


@asynccontextmanager
async def running_node(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    clock: Clock | None = None,
    plugins: Mapping[str, object] | None = None,
) -> AsyncIterator[Node]:
    """Run a broker with its own name server; `settings` are Java's keys.

    Its files are in `folder`; the broker shuts down cleanly at the end. `plugins` are
    modules by name, for plugins that are not installed.
    """
    given = dict(settings or {})
    values = SMALL_SETTINGS | {"storePathRootDir": str(folder)} | given
    config, store = build(BrokerConfig, values), build(StoreConfig, values)
    loaded = PluginSet()
    loaded.load(config.plugins_disabled, plugins)
    _check_keys(given, (*BROKER_OPTIONS, *loaded.config_classes()))
    interval_s = sys.getswitchinterval()
    async with trio.open_nursery() as nursery:
        run = partial(
            run_broker, config, store, plugins=loaded, values=values, clock=clock
        )
        node: Node = await nursery.start(run)
        try:
            yield node
        finally:
            node.stop()
            with trio.CancelScope(shield=True):
                await node.finished.wait()
            _restore_process(interval_s)


@asynccontextmanager
async def running_name_server(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    clock: Clock | None = None,
) -> AsyncIterator[Node]:
    """Run a name server alone; its address is the only one in `name_servers`."""
    values = {"listenPort": "0", "kvConfigPath": str(folder / "kvConfig.json")}
    given = dict(settings or {})
    _check_keys(given, NAME_SERVER_OPTIONS)
    values |= given
    config, listen = build(NamesrvConfig, values), build(NamesrvListenConfig, values)
    interval_s = sys.getswitchinterval()
    async with trio.open_nursery() as nursery:
        run = partial(run_name_server, config, listen, values=values, clock=clock)
        node: Node = await nursery.start(run)
        try:
            yield node
        finally:
            nursery.cancel_scope.cancel()
            _restore_process(interval_s)


@asynccontextmanager
async def running_controller(
    folder: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Node]:
    """Run a controller whose state is in a file of `folder`."""
    given = dict(settings or {})
    _check_keys(given, CONTROLLER_OPTIONS)
    values = {
        "rmq.controller.listenPort": "0",
        "controllerStorePath": str(folder),
        **given,
    }
    interval_s = sys.getswitchinterval()
    async with trio.open_nursery() as nursery:
        node = await nursery.start(partial(run_controller, values=values))
        try:
            yield node
        finally:
            nursery.cancel_scope.cancel()
            _restore_process(interval_s)


def _check_keys(settings: Mapping[str, str], options: Iterable[type]) -> None:
    """Raise ConfigError for keys of a test that rmq and Java do not know."""
    found = [
        finding for finding in check_settings(settings, options) if finding.is_unknown
    ]
    if found:
        raise ConfigError(
            "\n".join(finding.text for finding in found),
            *(finding.key for finding in found),
        )


def _restore_process(interval_s: float) -> None:
    """Restore the settings of the process that a node changes at its start."""
    sys.setswitchinterval(interval_s)
    gc.unfreeze()
