"""`rmq broker`: starts a broker, or several."""

import gc
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import click
import trio

from rmq.cli.config.places import REMEDY
from rmq.cli.config.sources import (
    find_file,
    gather_values,
    load_plugins,
    read_sources,
    refuse_broken_promises,
    report_findings,
)
from rmq.cli.name_server_option import add_name_server_option
from rmq.cli.server import greeting
from rmq.cli.server.process import (
    check_platform,
    common_options,
    exit_server,
    run_to_end,
    start_logging,
    strict_arguments,
)
from rmq.cli.server.reload import reload_config
from rmq.cli.server.service_manager import notify
from rmq.config.broker import BrokerConfig
from rmq.config.option import build, describe
from rmq.core.address import Address, is_loopback
from rmq.core.errors import RmqError
from rmq.core.garbage import keep_survivors
from rmq.node.broker import run_broker
from rmq.node.name_server import embedded_values
from rmq.node.node import Node
from rmq.node.roles import BROKER_OPTIONS
from rmq.node.signals import until_signalled
from rmq.store.config import StoreConfig

logger = logging.getLogger("rmq")

PURPOSES: Final[Mapping[str, dict[str, str]]] = {
    "tasks": {
        "flushConsumerOffsetInterval": "500",
        "popFromRetryProbabilityForPriority": "20",
        "recallMessageEnable": "true",
        "rmq.popMemoryMs": "500",
    }
}
"""Keys of `--for`; docs/clients/celery.md has the reasons."""


@click.command("broker")
@common_options
@add_name_server_option(
    "Name servers. [default: the broker starts its own]", "--namesrv"
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="Address to which clients connect. [default: detected]",
)
@click.option(
    "--for",
    "purpose",
    type=click.Choice(sorted(PURPOSES)),
    help="Start with default keys for this use; the file and --set override them.",
)
@click.option(
    "--strict-store",
    is_flag=True,
    help="Refuse to start with a store that uses features without support in rmq.",
)
@click.option(
    "--brokers",
    "count",
    metavar="N|auto",
    help="Start N brokers, each in its own process; auto: one for each core.",
)
@click.option(
    "-p", "print_all", is_flag=True, help="Print every configuration key and exit."
)
@click.option(
    "-m",
    "print_some",
    is_flag=True,
    help="Print the configuration keys that differ from their default and exit.",
)
def broker_command(  # noqa: PLR0913 - one parameter for each option
    path: str | None,
    settings: tuple[str, ...],
    namesrv: str | None,
    advertise: str | None,
    purpose: str | None,
    log_level: str,
    log_format: str,
    *,
    strict_config: bool | None,
    strict_store: bool,
    count: str | None,
    print_all: bool,
    print_some: bool,
) -> None:
    """Start a broker; without a configured name server it starts one, too.

    \b
    rmq broker                              on loopback, ports 10911 and 9876
    rmq broker -c broker.conf               with this configuration file
    rmq broker --set listenPort=0           on a free port
    rmq broker --brokers auto               one for each core, as one cluster
    rmq broker --for tasks                  for Celery and other task queues
    """  # noqa: D301 - click wants the character itself
    gc.disable()  # until the start ends: most new objects stay in use
    click.get_current_context().call_on_close(gc.enable)
    click.get_current_context().call_on_close(keep_survivors())
    start_logging(log_level, log_format)
    flags = {"namesrvAddr": namesrv or "", "rmq.advertise": advertise or ""}
    flags["rmq.strictStore"] = "true" if strict_store else ""
    try:
        check_platform()
        stored, overrides = read_sources(path, settings, BROKER_OPTIONS)
        if not (path or count or print_all or print_some):
            flags |= default_console(overrides)
        plugins = load_plugins(stored | overrides)
        classes = (*BROKER_OPTIONS, *plugins.config_classes())
        gather = partial(_read_settings, path, settings, classes, flags, purpose)
        values = gather()
        report_findings(values, classes, strict=strict_config, path=path)
        refuse_broken_promises(values)
        configs = build(BrokerConfig, values), build(StoreConfig, values)
    except RmqError as error:
        exit_server(error)
    if others := plugins.foreign_names():
        logger.info("plugins that are not of rmq: %s", ", ".join(others))
    if print_all or print_some:
        for config in configs:
            for key, value, is_default in describe(config):
                if print_all or not is_default:
                    click.echo(f"{key}={value}")
        return
    if count:
        # imported on use: most starts are of one broker
        from rmq.cli.server.container import run_brokers

        arguments = _child_arguments(click.get_current_context().params)
        run_brokers(count, values, arguments, log_level, log_format)
        return
    _run(partial(run_broker, *configs, plugins=plugins, values=values), gather)


def default_console(given: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of the console for a broker without a configuration file.

    The broker serves it on loopback, and on any free port if another process has the
    default port.
    """
    if "rmq.console" in given:
        return {}
    keys = {"rmq.console": "true"}
    if given.keys().isdisjoint(("rmq.consolePort", "rmq.consoleAnyPort")):
        keys["rmq.consoleAnyPort"] = "true"
    return keys


def _child_arguments(given: Mapping[str, Any]) -> list[str]:
    """Return the arguments to pass on to each of several brokers."""
    arguments = ["--set", "rmq.console=false"]  # one port is for one broker
    arguments += [part for each in given["settings"] for part in ("--set", each)]
    for option, name in (("-c", "path"), ("-n", "namesrv"), ("--for", "purpose")):
        if given[name]:
            arguments += [option, given[name]]
    if given["strict_store"]:
        arguments.append("--strict-store")
    return arguments + strict_arguments(given["strict_config"])


def _read_settings(
    path: str | None,
    settings: tuple[str, ...],
    classes: tuple[type, ...],
    flags: Mapping[str, str],
    purpose: str | None,
) -> dict[str, str]:
    """Return the settings of all sources; also called for a reload."""
    values = PURPOSES.get(purpose or "", {}) | gather_values(path, settings, classes)
    values |= {key: value for key, value in flags.items() if value}
    if path:
        values.setdefault("brokerConfigPath", os.path.abspath(find_file(path)))
    return embedded_values(values, build(StoreConfig, values))


def _run(
    run: Callable[..., Awaitable[None]], gather: Callable[[], dict[str, str]]
) -> None:
    """Serve until a signal; report the reason of any other end."""

    async def main() -> None:
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            node: Node = await nursery.start(run)

            await nursery.start(
                until_signalled,
                node,
                nursery.cancel_scope,
                partial(reload_config, gather, node),
                partial(notify, "STOPPING=1"),
            )
            _report_start(node)
            await node.finished.wait()
            nursery.cancel_scope.cancel()
        logger.info(greeting.stop_line(node, trio.current_time() - started))

    run_to_end(main)


def _report_start(node: Node) -> None:
    broker_command = node.broker
    assert broker_command is not None
    config = broker_command.config
    advertised = broker_command.advertised
    logger.info("advertised address %s: %s", advertised.address, advertised.reason)
    is_local = is_loopback(config.bind_address)
    if not (is_local or broker_command.is_guarded or config.allow_open):
        logger.warning(
            "ports %d and %d are open on %s without authentication: %s",
            broker_command.port,
            broker_command.fast_port,
            config.bind_address,
            REMEDY,
        )
    if not is_local:
        logger.warning(
            "port %d on %s sends the whole log, without authentication, to the "
            "registered brokers of the group and to rmq.haPeers%s",
            broker_command.ha_port,
            config.bind_address,
            ", in plain text" if broker_command.is_log_plain else "",
        )
    if greeting.is_terminal():
        click.echo("\n" + greeting.start_line(node), err=True)
    click.echo(
        f"ready broker={config.broker_name} address={advertised.address} "
        f"namesrv={';'.join(node.name_servers)}"
        + (
            f" metrics={Address(config.metrics_host, node.http_port)}"
            if node.http_port
            else ""
        ),
        err=True,
    )
    if greeting.is_terminal():
        click.echo(
            greeting.next_steps(node.name_servers, node.console_address), err=True
        )
    notify("READY=1")
