"""`rmq health`: checks that the server of this container or machine answers.

It reads the listening ports of the process from /proc, so it needs no configuration,
and can check every kind of server. An answer is enough, also a refusal.
"""

import os
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import click

from rmq.cli.entry import RootGroup
from rmq.core.errors import InvokeTimeout, PeerError, TlsWanted
from rmq.core.exit_codes import FAILED, UNREACHABLE

LISTEN: Final = "0A"
LOOPBACKS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
PROC: Final = Path("/proc")


@click.command("health")
@click.option(
    "--pid", type=int, help="Process of the server. [default: 1, or the only server]"
)
@click.option(
    "--timeout", type=click.FloatRange(0.1), default=4.0, show_default=True,
    metavar="SECONDS", help="Timeout of a request.",
)  # fmt: skip
def health_command(pid: int | None, timeout: float) -> None:
    """Check that the server of this container or machine answers.

    Exit code 0 if it answers, 1 if there is no server, 3 if it does not answer. The
    server may be a broker, a name server, a controller or a container.
    """
    found = pid or find_server()
    if found is None:
        click.echo("rmq: no server of rmq runs here", err=True)
        sys.exit(FAILED)
    addresses = sorted(set(listening_addresses(found)))
    if not addresses:
        click.echo(f"rmq: process {found} listens on no port yet", err=True)
        sys.exit(UNREACHABLE)
    answering = [each for each in addresses if has_answer(each, timeout)]
    if not answering:
        click.echo(f"rmq: {', '.join(addresses)}: no answer", err=True)
        sys.exit(UNREACHABLE)
    verb = "answers" if len(answering) == 1 else "answer"
    click.echo(f"{', '.join(answering)} {verb}")


def find_server() -> int | None:
    """Return process 1 if it is a server of rmq, or the first server of this user."""
    for pid in sorted(
        int(each.name) for each in PROC.iterdir() if each.name.isdecimal()
    ):
        with suppress(OSError):
            is_own = (PROC / str(pid)).stat().st_uid == os.getuid()
            if is_own and _is_server(pid):
                return pid
    return None


def _is_server(pid: int) -> bool:
    words = (PROC / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace")
    parts = words.split("\0")
    names = [Path(each).name for each in parts[:4]]
    return any(
        name == "rmq" and command in RootGroup.servers
        for name, command in pairwise(names)
    )


def listening_addresses(pid: int) -> Iterator[str]:
    """Yield the addresses of a process's ports, as this machine reaches them."""
    inodes = set()
    for link in (PROC / str(pid) / "fd").iterdir():
        with suppress(OSError):
            name = os.readlink(link)
            if name.startswith("socket:["):
                inodes.add(name[8:-1])
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            lines = (PROC / str(pid) / "net" / table).read_text().splitlines()[1:]
            for line in lines:
                fields = line.split()
                if fields[3] == LISTEN and fields[9] in inodes:
                    yield _address_text(fields[1])


def _address_text(field: str) -> str:
    """Return `127.0.0.1:80` for the field `0100007F:0050` of /proc/net/tcp."""
    host, _, port = field.partition(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    # imported on use: usage errors need no sockets
    import socket

    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    text = socket.inet_ntop(family, packed)
    shown = LOOPBACKS.get(text, text)
    return f"[{shown}]:{int(port, 16)}" if ":" in shown else f"{shown}:{int(port, 16)}"


def has_answer(address: str, timeout_s: float) -> bool:
    """Whether a server answers a request in RocketMQ's protocol."""
    # imported on use: help needs no connections
    from rmq.client.admin import make_request
    from rmq.outgoing.link import Link
    from rmq.protocol.codes import RequestCode

    try:
        with Link(address, timeout_s) as link:
            link.request(make_request(RequestCode.GET_BROKER_RUNTIME_INFO))
    except TlsWanted:
        return True
    except InvokeTimeout as error:
        click.echo(f"rmq: {error}", err=True)
        sys.exit(UNREACHABLE)
    except PeerError:
        return False
    return True
