"""`rmq config`: check, print or document a configuration."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from rmq.cli.config.file_sizes import check_file_sizes
from rmq.cli.config.places import check_folders, open_ports
from rmq.cli.config.sources import (
    duplicate_keys,
    gather_values,
    lines_of_keys,
    load_plugins,
    plugin_findings,
    read_sources,
)
from rmq.cli.server.process import exit_server
from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.config.document import configuration_page
from rmq.config.option import (
    Finding,
    bad_values,
    build,
    check_settings,
    describe,
    known_keys,
    read_properties,
)
from rmq.console.config import ConsoleConfig
from rmq.container.config import CONTAINER_OPTIONS, ContainerConfig
from rmq.controller.config import ControllerConfig
from rmq.core.errors import ConfigError, RmqError
from rmq.core.exit_codes import FAILED
from rmq.core.humanize import count_text
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.node.roles import BROKER_OPTIONS, CONTROLLER_OPTIONS, NAME_SERVER_OPTIONS
from rmq.observe.config import ExportConfig
from rmq.remoting.tls import TlsConfig, client_context, port_context, read_tls_config
from rmq.store.config import StoreConfig

ROLES: dict[str, tuple[type, ...]] = {
    "broker": BROKER_OPTIONS,
    "container": CONTAINER_OPTIONS,
    "controller": CONTROLLER_OPTIONS,
    "namesrv": NAME_SERVER_OPTIONS,
}


LAST_LINE: Final = 1 << 31
"""Line number of findings about keys that the file does not have: they come last."""


def _config_classes(role: str, values: Mapping[str, str]) -> tuple[type, ...]:
    if role != "broker":
        return ROLES[role]
    return (*ROLES[role], *load_plugins(values).config_classes())


@click.group("config")
def config_command() -> None:
    """Check or print a configuration before it is used."""


_role = click.option(
    "--role",
    type=click.Choice(list(ROLES)),
    help="Kind of server. [default: by the keys of the file]",
)


@config_command.command("check")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@_role
def check_file(path: str, role: str | None) -> None:
    """Check a configuration file; exit code 1 if it has a problem.

    Finds typos, values out of range, comments inside values and unusable TLS files.
    Also compares the configured file sizes with the files of the store, and reports the
    ports that are open without authentication.

    rmq config check broker.conf
    """
    try:
        values = read_properties(path)
        places = lines_of_keys(path)
        role = role or find_role(path, values)
        classes = _config_classes(role, values)
        findings = [
            *check_settings(values, classes),
            *plugin_findings(values),
            *duplicate_keys(places),
        ]
    except RmqError as error:
        exit_server(error)
    bad = dict(_wrong_values(values, classes))
    findings += [Finding(key, text, True) for key, text in bad.items()]
    if not bad:
        findings += check_file_sizes(build(StoreConfig, values))
        findings += check_folders(values, classes)
        findings += open_ports(role, values)
    if not any(key.startswith("tls.") for key in bad):
        findings += _tls_findings(values)
    findings.sort(key=lambda each: places.get(each.key, [LAST_LINE])[0])
    for finding in findings:
        mark = "problem: " if finding.is_problem else "note: "
        click.echo(mark + finding.text + _lines_text(places.get(finding.key, [])))
    if any(finding.is_problem for finding in findings):
        sys.exit(FAILED)
    of_role = "" if role == "broker" else f" (role {role})"
    click.echo(f"{path}: {count_text(len(values), 'key')}, no problem{of_role}")


def _lines_text(lines: Sequence[int]) -> str:
    if not lines:
        return ""
    *some, last = map(str, lines)
    return f" (lines {', '.join(some)} and {last})" if some else f" (line {last})"


def find_role(path: str, values: Mapping[str, str]) -> str:
    """Return the kind of server to which the keys of a file belong.

    If several kinds fit, it is the kind in the name of the file, or the broker.
    """
    unknown = {
        role: len(values.keys() - known_keys(_config_classes(role, values)))
        for role in ROLES
    }
    least = min(unknown.values())
    found = [role for role in ROLES if unknown[role] == least]
    named = [role for role in found if role in Path(path).name]
    return (named or found)[0]


def _wrong_values(
    values: Mapping[str, str], classes: tuple[type, ...]
) -> Iterator[tuple[str, str]]:
    """Yield each key with an invalid value, and the error."""
    for kind in classes:
        try:
            yield from bad_values(values, (kind,)).items()
        except ConfigError as error:
            yield next(iter(error.keys), ""), str(error)


def _tls_findings(values: Mapping[str, str]) -> Iterator[Finding]:
    """Load the TLS files as a server does at its start."""
    try:
        tls = read_tls_config(values)
        port_context(tls)
        client_context(tls)
    except ConfigError as error:
        yield Finding(next(iter(error.keys), "tls.server.certPath"), str(error), True)


@config_command.command("print")
@click.option("-c", "--config", "path", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--diff-defaults",
    is_flag=True,
    help="Print only keys that differ from their default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_role
def print_config(
    path: str | None, role: str | None, *, diff_defaults: bool, as_json: bool
) -> None:
    """Print the effective configuration: file, environment and defaults.

    rmq config print -c broker.conf --diff-defaults
    """
    try:
        if role is None:
            role = find_role(path, read_properties(path)) if path else "broker"
        stored, overrides = read_sources(path, (), ROLES[role])
        classes = _config_classes(role, stored | overrides)
        values = gather_values(path, (), classes)
        built: list[object] = [build(kind, values) for kind in classes]
    except RmqError as error:
        exit_server(error)
    shown = {
        key: value
        for one in built
        for key, value, is_default in describe(one)
        if not (diff_defaults and is_default)
    }
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    for key, value in shown.items():
        click.echo(f"{key}={value}")


@config_command.command("document")
def print_document() -> None:
    """Print the reference of all keys, docs/reference/configuration.md.

    rmq config document > docs/reference/configuration.md
    """
    sections = (
        ("Keys of the broker", [BrokerConfig]),
        ("Keys of the store", [StoreConfig]),
        ("Keys of replication", [ReplicationConfig]),
        ("Keys of the console", [ConsoleConfig]),
        ("Keys of exported metrics", [ExportConfig]),
        ("Keys of TLS", [TlsConfig]),
        ("Keys of plugins", load_plugins({}).config_classes()),
        ("Keys of the name server", [NamesrvConfig, NamesrvListenConfig]),
        ("Keys of the controller", [ControllerConfig]),
        ("Keys of a container", [ContainerConfig]),
    )
    click.echo(configuration_page(sections), nl=False)
