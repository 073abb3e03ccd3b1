"""A node inside the process of the test, with free ports and small files.

It starts and stops like `rmq broker`, without signals.
"""

import gc
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.clock import Clock
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.node.broker import run_broker
from rmq.node.controller import run_controller
from rmq.node.name_server import run_name_server
from rmq.node.node import Node
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
    values = SMALL_SETTINGS | {"storePathRootDir": str(folder)} | dict(settings or {})
    config, store = build(BrokerConfig, values), build(StoreConfig, values)
    loaded = PluginSet()
    loaded.load(config.plugins_disabled, plugins)
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
    values |= dict(settings or {})
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
    values = {
        "rmq.controller.listenPort": "0",
        "controllerStorePath": str(folder),
        **(settings or {}),
    }
    interval_s = sys.getswitchinterval()
    async with trio.open_nursery() as nursery:
        node = await nursery.start(partial(run_controller, values=values))
        try:
            yield node
        finally:
            nursery.cancel_scope.cancel()
            _restore_process(interval_s)


def _restore_process(interval_s: float) -> None:
    """Restore the settings of the process that a node changes at its start."""
    sys.setswitchinterval(interval_s)
    gc.unfreeze()
