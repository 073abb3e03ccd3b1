"""`rmq namesrv`: starts a name server."""

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
from rmq.core.errors import RmqError
from rmq.core.garbage import keep_survivors
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.node.name_server import run_name_server
from rmq.node.node import Node
from rmq.node.roles import NAME_SERVER_OPTIONS


@click.command("namesrv")
@common_options
def namesrv_command(
    path: str | None,
    settings: tuple[str, ...],
    log_level: str,
    log_format: str,
    *,
    strict_config: bool | None,
) -> None:
    """Start a name server alone.

    \b
    rmq namesrv                             on loopback, port 9876
    rmq namesrv -c namesrv.conf             with this configuration file
    """  # noqa: D301 - click wants the character itself
    click.get_current_context().call_on_close(keep_survivors())
    start_logging(log_level, log_format)
    gather = settings_reader(path, settings, NAME_SERVER_OPTIONS)
    try:
        check_platform()
        values = gather()
        report_findings(values, NAME_SERVER_OPTIONS, strict=strict_config, path=path)
        config = build(NamesrvConfig, values)
        listen = build(NamesrvListenConfig, values)
    except RmqError as error:
        exit_server(error)

    def list_addresses(node: Node) -> dict[str, str]:
        controller = node.controller
        own = {"namesrv": node.name_servers[0]}
        return own | ({"controller": controller.address} if controller else {})

    run = partial(run_name_server, config, listen, values=values)
    run_server(run, gather, values, list_addresses)
