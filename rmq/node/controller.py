"""Controllers: one that runs alone, and one in a name server's process."""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from rmq.access.config import AuthConfig
from rmq.config.option import build
from rmq.core.address import Address
from rmq.core.clock import Clock, SystemClock
from rmq.node.node import Node, prepare_process
from rmq.node.pages import open_http, start_exports
from rmq.remoting.client import RemotingClient
from rmq.remoting.server import RemotingServer
from rmq.remoting.tls import read_tls_config

if TYPE_CHECKING:
    from rmq.controller.server import Controller
    from rmq.observe.metrics.exposition import Meter

logger = logging.getLogger(__name__)


async def run_controller(
    *,
    values: Mapping[str, str],
    clock: Clock | None = None,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a controller alone, until cancelled."""
    async with open_remoting(values) as (server, client):
        node = Node(server, None, None, ())
        async with serve_controller(node, values, clock or SystemClock(), client):
            prepare_process()
            task_status.started(node)
            await trio.sleep_forever()


@asynccontextmanager
async def open_remoting(
    values: Mapping[str, str],
) -> AsyncIterator[tuple[RemotingServer, RemotingClient]]:
    """Run a server and a client of the remoting protocol."""
    tls = read_tls_config(values)
    client, server = RemotingClient(tls=tls), RemotingServer(tls=tls)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await nursery.start(client.run)
        yield server, client


@asynccontextmanager
async def serve_controller(
    node: Node, values: Mapping[str, str], clock: Clock, client: RemotingClient
) -> AsyncIterator[None]:
    """Run the controller of a node, with its pages if they are enabled."""
    # imported on use: most nodes have no controller
    from rmq.controller.config import ControllerConfig
    from rmq.controller.server import Controller

    config, auth = build(ControllerConfig, values), build(AuthConfig, values)
    one = Controller(config, auth, clock=clock, server=node.server, client=client)
    node.controller = one
    async with open_http(config) as http, trio.open_nursery() as nursery:
        await nursery.start(one.run)
        kind = config.metrics_exporter
        start_exports(nursery, kind, values, lambda: _list_scopes(node, one), clock)
        if http is not None:
            from rmq.controller.pages import controller_pages

            logger.info(
                "metrics are on http://%s", Address(config.metrics_host, http.port)
            )
            nursery.start_soon(http.run, controller_pages(one, node.server))
            node.http_port = http.port
        yield


def _list_scopes(node: Node, controller: "Controller") -> "Iterable[Meter]":
    from rmq.controller.pages import controller_scopes

    return controller_scopes(controller, node.server)
