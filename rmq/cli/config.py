"""`rmq config check`, `rmq config print` and `rmq config document`."""

import json
import sys
from collections.abc import Mapping

import click

from rmq.access.config import AuthConfig
from rmq.broker.config import BrokerConfig
from rmq.cli.config_files import size_findings
from rmq.cli.options import (
    FAILED,
    fail,
    gather_values,
    read_sources,
    wanted_plugins,
)
from rmq.config import Finding, build, check, describe, read_properties
from rmq.config_document import document
from rmq.errors import ConfigError, RmqError
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.remoting.tls import TlsConfig
from rmq.store.config import StoreConfig

ROLES: dict[str, tuple[type, ...]] = {
    "broker": (BrokerConfig, StoreConfig, TlsConfig, NamesrvConfig),
    "namesrv": (NamesrvConfig, NamesrvListenConfig, TlsConfig, AuthConfig),
}


def _classes(role: str, values: Mapping[str, str]) -> tuple[type, ...]:
    if role != "broker":
        return ROLES[role]
    return (*ROLES[role], *wanted_plugins(values).config_classes())


@click.group()
def config() -> None:
    """Check or print a configuration before it is used."""


_role = click.option(
    "--role",
    type=click.Choice(list(ROLES)),
    default="broker",
    show_default=True,
    help="The server that the configuration is for.",
)


@config.command("check")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@_role
def check_file(path: str, role: str) -> None:
    """Check a file for typos, limits, swallowed comments and sizes of files.

    Exit code 1 if there is a problem: rmq config check broker.conf
    """
    try:
        values = read_properties(path)
        classes = _classes(role, values)
        findings = check(values, classes)
    except RmqError as error:
        fail(error)
    for kind in classes:
        try:
            built: object = build(kind, values)
        except ConfigError as error:
            findings.append(Finding(kind.__name__, str(error), True))
            continue
        if isinstance(built, StoreConfig):
            findings += size_findings(built)
    for finding in findings:
        click.echo(("problem: " if finding.is_problem else "note: ") + finding.text)
    if any(finding.is_problem for finding in findings):
        sys.exit(FAILED)
    plural = "" if len(values) == 1 else "s"
    click.echo(f"{path}: {len(values)} key{plural}, no problem")


@config.command("print")
@click.option("-c", "--config", "path", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--diff-defaults", is_flag=True, help="Only keys that differ from the default."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@_role
def print_all(
    path: str | None, role: str, *, diff_defaults: bool, as_json: bool
) -> None:
    """Print the configuration in effect: file, environment and defaults.

    rmq config print -c broker.conf --diff-defaults
    """
    try:
        stored, said = read_sources(path, (), ROLES[role])
        classes = _classes(role, stored | said)
        values = gather_values(path, (), classes)
        built: list[object] = [build(kind, values) for kind in classes]
    except RmqError as error:
        fail(error)
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


@config.command("document")
def print_document() -> None:
    """Print the page of all keys, docs/configuration.md.

    rmq config document > docs/configuration.md
    """
    sections = (
        ("Keys of the broker", [BrokerConfig]),
        ("Keys of the store", [StoreConfig]),
        ("Keys of TLS, of both", [TlsConfig]),
        ("Keys of plugins", wanted_plugins({}).config_classes()),
        ("Keys of the name server", [NamesrvConfig, NamesrvListenConfig]),
    )
    click.echo(document(sections), nl=False)
