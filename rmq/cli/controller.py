"""`rmq controller`."""

import logging
import os
from functools import partial

import click
import trio

from rmq import node as nodes
from rmq.access.config import AuthConfig
from rmq.cli.config_reload import reload_config
from rmq.cli.garbage import keep_survivors
from rmq.cli.options import (
    check_platform,
    common_options,
    fail,
    gather_values,
    located,
    report_findings,
    run_to_end,
    start_logging,
)
from rmq.cli.service_manager import notify
from rmq.config import build
from rmq.controller.config import ControllerConfig
from rmq.errors import RmqError
from rmq.remoting.tls import TlsConfig

logger = logging.getLogger("rmq")


@click.command()
@common_options
def controller(
    path: str | None,
    settings: tuple[str, ...],
    log_level: str,
    log_format: str,
    *,
    strict_config: bool,
) -> None:
    """Start a controller: it elects the masters of groups of brokers.

    \b
    rmq controller                          on loopback, port 9878, state in a file
    rmq controller -c controller.conf       with the configuration of that file
    """  # noqa: D301 - click wants the character itself
    click.get_current_context().call_on_close(keep_survivors())
    start_logging(log_level, log_format)
    classes = (ControllerConfig, TlsConfig, AuthConfig)

    def gather() -> dict[str, str]:
        values = gather_values(path, settings, classes)
        if path:
            values.setdefault("configStorePath", os.path.abspath(located(path)))
        return values

    try:
        check_platform()
        values = gather()
        report_findings(values, classes, strict=strict_config)
        config = build(ControllerConfig, values)
    except RmqError as error:
        fail(error)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            run = partial(nodes.run_controller, values=values)
            node: nodes.Node = await nursery.start(run)
            assert node.controller is not None
            await nursery.start(
                nodes.until_signalled,
                node,
                nursery.cancel_scope,
                partial(reload_config, gather, node),
                partial(notify, "STOPPING=1"),
            )
            auth = build(AuthConfig, values)
            if not (
                config.bind_address.startswith("127.") or auth.authentication_enabled
            ):
                logger.warning(
                    "port %d is open on %s without authentication",
                    node.controller.port,
                    config.bind_address,
                )
            click.echo(f"ready controller={node.controller.address}", err=True)
            notify("READY=1")

    run_to_end(main)
