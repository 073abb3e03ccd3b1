"""Findings about the folders and the ports that a configuration names."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rmq.access.config import AuthConfig
from rmq.cli.config.sources import ANY_ADDRESS
from rmq.config.broker import BrokerConfig
from rmq.config.option import Finding, build, options
from rmq.console.config import ConsoleConfig
from rmq.core.address import FAST_PORT_DISTANCE, is_loopback
from rmq.namesrv.config import NamesrvListenConfig

REMEDY: Final = (
    "bindAddress=127.0.0.1 closes them, authenticationEnabled and authorizationEnabled "
    "require a user (docs/operate/securing.md), rmq.allowOpen=true accepts open ports"
)
"""Remedies for open ports, in the words of the start's warning."""

FOLDER_KEYS: Final = ("storePathRootDir", "storePathCommitLog", "controllerStorePath")


def check_folders(
    values: Mapping[str, str], classes: tuple[type, ...]
) -> Iterator[Finding]:
    """Yield a problem for each folder that cannot be made or has no room for files."""
    known = {mark.key for kind in classes for _, mark in options(kind)}
    for key in FOLDER_KEYS:
        if key not in known or not values.get(key):
            continue
        folder = Path(values[key]).absolute()
        present = next(each for each in (folder, *folder.parents) if each.exists())
        reason = _why_unusable(present)
        if reason:
            yield Finding(key, f"{key}={values[key]}: {present} {reason}", True)


def _why_unusable(folder: Path) -> str:
    if not folder.is_dir():
        return "is a file, not a folder"
    found = os.statvfs(folder)
    if not found.f_blocks:
        return "is on a file system of the kernel, which keeps no files"
    if found.f_flag & os.ST_RDONLY:
        return "is on a file system that is mounted read-only"
    if not os.access(folder, os.W_OK):
        return "is not writable for this user"
    return ""


def open_ports(role: str, values: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the ports that other machines reach without a user.

    A server that reads a file listens on every address by default, as Java's.
    """
    host = values.get("bindAddress", ANY_ADDRESS)
    auth = build(AuthConfig, values)
    if auth.authentication_enabled or auth.allow_open:
        return
    if not is_loopback(host):
        yield Finding(
            "bindAddress",
            f"{_ports_text(role, values)} on {host} are open without "
            f"authentication to every machine that reaches them: {REMEDY}",
            False,
        )
    if role != "broker":
        return
    console = build(ConsoleConfig, values)
    if console.console and not is_loopback(console.console_host):
        yield Finding(
            "rmq.consoleHost",
            f"the console on {console.console_host} shows all messages to every "
            "machine that reaches it: rmq.consoleHost=127.0.0.1 closes it, access "
            "control protects it",
            False,
        )


def _ports_text(role: str, values: Mapping[str, str]) -> str:
    if role == "broker":
        port = build(BrokerConfig, values).listen_port
        return f"ports {port} and {port - FAST_PORT_DISTANCE}" if port else "its ports"
    if role == "namesrv":
        port = build(NamesrvListenConfig, values).listen_port
        return f"port {port}" if port else "its port"
    return "its ports"
