"""`rmq controller`: starts a controller."""

from functools import partial

import click

from rmq.cli.config.sources import report_findings
from rmq.cli.server.process import (
    check_platform,
    common_options,
    exit_server,
    start_logging,
)
from rmq.cli.server.runner import run_server, settings_reader
from rmq.config.option import build
from rmq.controller.config import ControllerConfig
from rmq.core.errors import RmqError
from rmq.core.garbage import keep_survivors
from rmq.node.controller import run_controller
from rmq.node.node import Node
from rmq.node.roles import CONTROLLER_OPTIONS


@click.command("controller")
@common_options
def controller_command(
    path: str | None,
    settings: tuple[str, ...],
    log_level: str,
    log_format: str,
    *,
    strict_config: bool | None,
) -> None:
    """Start a controller, which elects the masters of broker groups.

    \b
    rmq controller                          on loopback, port 9878
    rmq controller -c controller.conf       with this configuration file
    """  # noqa: D301 - click wants the character itself
    click.get_current_context().call_on_close(keep_survivors())
    start_logging(log_level, log_format)
    gather = settings_reader(path, settings, CONTROLLER_OPTIONS)
    try:
        check_platform()
        values = gather()
        report_findings(values, CONTROLLER_OPTIONS, strict=strict_config, path=path)
        build(ControllerConfig, values)
    except RmqError as error:
        exit_server(error)

    def list_addresses(node: Node) -> dict[str, str]:
        assert node.controller is not None
        return {"controller": node.controller.address}

    run_server(partial(run_controller, values=values), gather, values, list_addresses)
