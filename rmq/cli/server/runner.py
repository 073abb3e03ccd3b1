"""Run a name server or a controller from start to stop."""

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import click
import trio

from rmq.access.config import AuthConfig
from rmq.cli.config.places import REMEDY
from rmq.cli.config.sources import find_file, gather_values
from rmq.cli.server.process import run_to_end
from rmq.cli.server.reload import reload_config
from rmq.cli.server.service_manager import notify
from rmq.config.option import build
from rmq.core.address import Address, is_loopback
from rmq.node.node import Node
from rmq.node.signals import until_signalled

logger = logging.getLogger("rmq")


def settings_reader(
    path: str | None, settings: Iterable[str], classes: Iterable[type]
) -> Callable[[], dict[str, str]]:
    """Return a function that reads all sources of settings at each call.

    Requests that change the configuration rewrite the file at `path`.
    """

    def read_settings() -> dict[str, str]:
        values = gather_values(path, settings, classes)
        if path:
            values.setdefault("configStorePath", os.path.abspath(find_file(path)))
        return values

    return read_settings


def run_server(
    run: Callable[..., Awaitable[Any]],
    gather: Callable[[], Mapping[str, str]],
    values: Mapping[str, str],
    addresses_of: Callable[[Node], dict[str, str]],
) -> None:
    """Run until a signal; `gather` reads the settings again at SIGHUP.

    `addresses_of` returns the addresses in the line `ready`, by name of server.
    """

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            node: Node = await nursery.start(run)
            await nursery.start(
                until_signalled,
                node,
                nursery.cancel_scope,
                partial(reload_config, gather, node),
                partial(notify, "STOPPING=1"),
            )
            ready = addresses_of(node)
            warn_open_ports(values, ready)
            text = " ".join(f"{name}={address}" for name, address in ready.items())
            click.echo(f"ready {text}", err=True)
            notify("READY=1")

    run_to_end(main)


def warn_open_ports(values: Mapping[str, str], ready: Mapping[str, str]) -> None:
    """Log the ports that other machines reach without authentication."""
    host = values.get("bindAddress", "127.0.0.1")
    auth = build(AuthConfig, values)
    if is_loopback(host) or auth.authentication_enabled or auth.allow_open:
        return
    for address in ready.values():
        port = Address.parse(address).port
        logger.warning(
            "port %d is open on %s without authentication: %s", port, host, REMEDY
        )
