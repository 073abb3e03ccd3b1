"""Pages of a process over HTTP: metrics, health and the console."""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from rmq.broker.broker import Broker
from rmq.config.broker import BrokerConfig
from rmq.config.option import MetricsExporter, build
from rmq.console.config import ConsoleConfig
from rmq.core.address import Address
from rmq.core.clock import Clock
from rmq.node.node import Node
from rmq.remoting.tls import TlsConfig

if TYPE_CHECKING:
    from rmq.console.server import ConsoleServer
    from rmq.controller.config import ControllerConfig
    from rmq.http.server import HttpServer
    from rmq.observe.metrics.exporting import Meters
    from rmq.observe.metrics.exposition import Meter

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_http(
    config: "BrokerConfig | ControllerConfig",
) -> AsyncIterator["HttpServer | None"]:
    """Bind the port of the metrics, if they are enabled."""
    if config.metrics_exporter is not MetricsExporter.PROM:
        yield None
        return
    # imported on use: most brokers do without
    from rmq.http.server import HttpServer

    http = HttpServer(config.metrics_host or "127.0.0.1", config.metrics_port)
    await http.open()
    try:
        yield http
    finally:
        with trio.CancelScope(shield=True):  # it must not hide the node's error
            await http.close()


def start_exports(
    nursery: trio.Nursery,
    kind: MetricsExporter,
    values: Mapping[str, str],
    meters: "Meters",
    clock: Clock,
) -> None:
    """Export metrics regularly, if that is wanted; ConfigError if it cannot be done."""
    if not kind.is_regular:
        return
    # imported on use: most processes do without
    from rmq.observe.config import ExportConfig
    from rmq.observe.metrics.exporting import MetricsExport, open_exporter

    config = build(ExportConfig, values)
    export = MetricsExport(config, open_exporter(kind, config), meters, clock)
    nursery.start_soon(export.run)


@asynccontextmanager
async def open_console(
    values: Mapping[str, str], tls: TlsConfig
) -> AsyncIterator["ConsoleServer | None"]:
    """Bind the port of the console, if it is enabled."""
    config = build(ConsoleConfig, values)
    if not config.console:
        yield None
        return
    # imported on use: most brokers do without
    from rmq.console.server import ConsoleServer

    console = ConsoleServer(config, tls)
    await console.open()
    logger.info("the console is on %s", console.address)
    try:
        yield console
    finally:
        with trio.CancelScope(shield=True):  # else it would hide the broker's error
            await console.close()


def serve_pages(
    nursery: trio.Nursery,
    node: Node,
    broker: Broker,
    http: "HttpServer | None",
    console: "ConsoleServer | None",
    values: Mapping[str, str],
) -> None:
    """Serve metrics, health and the console, as far as they are enabled."""
    context = broker.context
    start_exports(
        nursery,
        context.config.metrics_exporter,
        values,
        lambda: _list_scopes(node, broker),
        context.clock,
    )
    if http is not None:
        nursery.start_soon(_serve_http, node, broker, http)
        node.http_port = http.port
    if console is not None:
        nursery.start_soon(console.run, broker.context)
        node.console_port = console.port
        node.console_address = console.address


def _list_scopes(node: Node, broker: Broker) -> "Iterable[Meter]":
    from rmq.observe.pages import broker_scopes

    return broker_scopes(broker.context, node.server)


async def _serve_http(node: Node, broker: Broker, http: "HttpServer") -> None:
    """Serve metrics and health until cancelled."""
    from rmq.observe.pages import broker_pages

    logger.info(
        "metrics are on http://%s", Address(broker.config.metrics_host, http.port)
    )
    await http.run(broker_pages(broker.context, node.server, lambda: node.is_stopping))
