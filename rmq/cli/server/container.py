"""`rmq container` and `rmq broker --brokers N`: run several brokers."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import trio

from rmq.cli.config.sources import find_file, gather_values, report_findings
from rmq.cli.server.process import (
    check_platform,
    common_options,
    exit_server,
    run_to_end,
    start_logging,
    strict_arguments,
)
from rmq.cli.server.service_manager import notify
from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.container.config import CONTAINER_OPTIONS, ContainerConfig
from rmq.container.container import MAX_BROKERS, BrokerStart, Container
from rmq.core.address import Address, is_loopback
from rmq.core.errors import ConfigError, RmqError
from rmq.core.exit_codes import FAILED
from rmq.node.signals import receive_signals
from rmq.store.config import StoreConfig

logger = logging.getLogger("rmq")

PORT_STEP = 10
"""Distance of the ports of two brokers; each also uses ports near its main port."""

CONTAINER_PORT_DISTANCE = 100
"""Port of the first broker minus port of the container, as in Java."""


@click.command("container")
@common_options
@click.option(
    "-b",
    "--brokerConfigPaths",
    "paths",
    metavar="FILE:FILE…",
    help="Configuration files of the brokers; replaces the key brokerConfigPaths.",
)
def container_command(
    path: str | None,
    settings: tuple[str, ...],
    paths: str | None,
    log_level: str,
    log_format: str,
    *,
    strict_config: bool | None,
) -> None:
    """Start several brokers on one machine and keep them running.

    Each broker is a process; the container restarts a broker that ends.

    \b
    rmq container -c container.conf         the brokers of its brokerConfigPaths
    rmq container -b a.conf:b.conf          the brokers of these files
    rmq broker --brokers auto               one broker per core, without files
    """  # noqa: D301 - click wants the character itself
    start_logging(log_level, log_format)
    try:
        check_platform()
        values = gather_values(path, settings, CONTAINER_OPTIONS)
        if paths:
            values["brokerConfigPaths"] = paths
        report_findings(values, CONTAINER_OPTIONS, strict=strict_config, path=path)
        config = build(ContainerConfig, values)
        brokers = [BrokerStart.of_file(find_file(each)) for each in config.broker_paths]
    except RmqError as error:
        exit_server(error)
    arguments = _log_arguments(log_level, log_format)
    arguments += strict_arguments(strict_config)
    _run(Container(
        config, values, arguments=arguments, write_line=line_writer(log_format)
    ), brokers)  # fmt: skip


def run_brokers(
    count: str,
    values: Mapping[str, str],
    arguments: Sequence[str],
    log_level: str,
    log_format: str,
) -> None:
    """Run `rmq broker --brokers`; each broker gets `arguments`."""
    try:
        if values.get("rmq.advertise"):
            raise ConfigError(
                "--advertise has one port: use --set brokerIP1=HOST for several brokers"
            )
        brokers = list(_numbered_brokers(_parse_count(count), values, arguments))
        first = int(brokers[0].arguments[-1].rpartition("=")[2])
        port = max(0, first - CONTAINER_PORT_DISTANCE)
        own = {**values, "listenPort": str(port)}
        config = build(ContainerConfig, own)
    except RmqError as error:
        exit_server(error)
    write_line = line_writer(log_format)
    common = _log_arguments(log_level, log_format)
    _run(Container(config, own, arguments=common, write_line=write_line), brokers)


def _parse_count(text: str) -> int:
    """Parse the number of brokers; `auto` is the number of cores."""
    if text == "auto":
        return min(MAX_BROKERS, len(os.sched_getaffinity(0)))
    if not text.isdecimal() or not 1 <= int(text) <= MAX_BROKERS:
        raise ConfigError(f"--brokers {text}: write 1 to {MAX_BROKERS}, or auto")
    return int(text)


def _numbered_brokers(
    count: int, values: Mapping[str, str], arguments: Sequence[str]
) -> Iterator[BrokerStart]:
    """Yield brokers, each with its own name, folder and ports."""
    config, root = build(BrokerConfig, values), build(StoreConfig, values).root_path
    for number in range(count):
        name = f"{config.broker_name}-{number}"
        port = config.listen_port and config.listen_port + number * PORT_STEP
        own = {
            "brokerName": name,
            "storePathRootDir": str(Path(root) / name),
            "listenPort": str(port),
        }
        flags = [part for key in own for part in ("--set", f"{key}={own[key]}")]
        yield BrokerStart.of_values({**values, **own}, [*arguments, *flags])


def _log_arguments(level: str, log_format: str) -> list[str]:
    return ["--log-level", level, "--log-format", log_format]


def line_writer(log_format: str) -> Callable[[str, str], None]:
    """Return a function that writes a log line of a broker to stderr."""

    def write(name: str, line: str) -> None:
        if log_format == "json" and line.startswith("{"):
            line = f'{{"broker": "{name}", {line[1:]}'
        else:
            line = f"[{name}] {line}"
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    return write


def _run(container: Container, brokers: Sequence[BrokerStart]) -> None:
    """Run until a signal."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(_follow_signals, container)
            await nursery.start(partial(container.run, brokers))
            _report_start(container)
            notify("READY=1")
            await container.finished.wait()
            nursery.cancel_scope.cancel()

    run_to_end(main)


def _report_start(container: Container) -> None:
    config = container.config
    if not is_loopback(config.bind_address):
        logger.warning(
            "port %d is open on %s; only %s may add brokers",
            container.port,
            config.bind_address,
            config.admin_from or "this host",
        )
    names = ",".join(child.identity.name for child in container.children.values())
    line = (
        f"ready container={Address(config.bind_address, container.port)} "
        f"namesrv={container.name_servers} brokers={names}"
    )
    if container.http_port:
        line += f" metrics={Address(config.metrics_host, container.http_port)}"
    click.echo(line, err=True)


async def _follow_signals(
    container: Container,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Stop the brokers at SIGTERM or SIGINT, and kill them at a second signal."""
    with receive_signals() as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP:
                container.reload()
            elif container.is_stopping:
                sys.stderr.write("stopped at once\n")
                sys.stderr.flush()
                os._exit(FAILED)  # the kernel then sends SIGTERM to the brokers
            else:
                logger.info("%s: stopping", signal.Signals(number).name)
                container.stop()
