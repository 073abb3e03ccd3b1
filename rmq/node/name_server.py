"""Name servers: one that runs alone, and one inside a broker.

Known in Java as `NamesrvStartup`.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack

import trio

from rmq.access.config import AuthConfig
from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.clock import Clock, SystemClock
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.namesrv.server import NameServer
from rmq.node.controller import open_remoting, serve_controller
from rmq.node.node import Node, prepare_process
from rmq.store.config import StoreConfig


async def run_name_server(
    config: NamesrvConfig,
    listen: NamesrvListenConfig,
    *,
    values: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a name server without a broker, until cancelled."""
    clock, values = clock or SystemClock(), values or {}
    async with open_remoting(values) as (server, client):
        name_server = NameServer(
            config,
            listen,
            build(AuthConfig, values),
            clock=clock,
            server=server,
            client=client,
        )
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            await nursery.start(name_server.run)
            address = f"{listen.bind_address}:{name_server.port}"
            node = Node(server, name_server, None, (address,))
            if config.enable_controller:
                controlling = serve_controller(node, values, clock, client)
                await stack.enter_async_context(controlling)
            prepare_process()
            task_status.started(node)
            await trio.sleep_forever()


def embedded_configs(
    config: BrokerConfig, store_config: StoreConfig, values: Mapping[str, str]
) -> tuple[NamesrvConfig, NamesrvListenConfig, AuthConfig]:
    """Return the configurations of a broker's embedded name server."""
    values = embedded_values(values, store_config)
    listen = NamesrvListenConfig(
        listen_port=config.embedded_namesrv_port,
        bind_address=config.bind_address,
        idle_timeout_s=config.idle_timeout_s,
    )
    return build(NamesrvConfig, values), listen, build(AuthConfig, values)


def embedded_values(
    values: Mapping[str, str], store_config: StoreConfig
) -> dict[str, str]:
    """Return a broker's settings for its embedded name server.

    The name server's file is in the folder of the store's tables. It uses the broker's
    settings and users.
    """
    folder = store_config.root_path / "config"
    return {
        "kvConfigPath": str(folder / "kvConfig.json"),
        "authConfigPath": str(folder / "auth"),
        "configStorePath": values.get("brokerConfigPath", ""),
        **values,
    }
