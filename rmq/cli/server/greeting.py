"""Lines for a person at a terminal, around the line `ready`.

Scripts read the line `ready` alone, so these lines go to terminals only.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rmq import __version__
from rmq.cli.name_server_option import DEFAULT_NAME_SERVER
from rmq.core.address import is_loopback
from rmq.core.humanize import count_text
from rmq.node.node import Node

_NEXT = (
    ('send Hello "hello, rmq"', "send a message; creates the topic"),
    ("consume Hello", "show its messages"),
    ("doctor", "find problems and remedies"),
)
"""Commands to try next, with their effect."""


def is_terminal() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr.isatty()


def start_line(node: Node) -> str:
    """Return one line: version, store, address and authentication."""
    broker = node.broker
    assert broker is not None
    store = broker.context.store
    root = store.config.root_path
    figures = store.statistics()
    stored = figures.end_offset - max(figures.min_physical_offset, 0)
    content = "empty" if stored <= 0 else f"{size_text(stored)} of messages"
    free = size_text(shutil.disk_usage(root).free)
    host = broker.config.bind_address
    where = "loopback only" if is_loopback(host) else f"open on {host}"
    access = "authentication on" if broker.is_guarded else "no authentication"
    return (
        f"rmq {__version__}  store {_short_path(root)}, {content}, {free} free  "
        f"{where}, {access}"
    )


def next_steps(name_servers: Sequence[str], console: str = "") -> str:
    """Return the lines with commands to try next, which find these servers.

    `console` is the address of the console, empty if it is not served.
    """
    rmq = "rmq" if shutil.which("rmq") else _short_path(Path(sys.argv[0]))
    servers = ";".join(name_servers)
    is_found = servers == os.environ.get("NAMESRV_ADDR", DEFAULT_NAME_SERVER)
    where = "" if is_found else f" -n {shlex.quote(servers)}"
    commands = [(f"{rmq} {command}{where}", what) for command, what in _NEXT]
    if console:
        commands.append((console, "the console, in a browser"))
    width = max(len(command) for command, _ in commands)
    lines = [f"    {command:<{width}}  {what}" for command, what in commands]
    return "\n".join(
        (
            "",
            "  in another shell:",
            *lines,
            "  Ctrl-C stops the broker. No message is lost.",
            "",
        )
    )


def stop_line(node: Node, seconds: float) -> str:
    """Return one line for the end: uptime and number of messages."""
    assert node.broker is not None
    broker = node.broker.context
    return (
        f"stopped after {duration_text(seconds)}: "
        f"{count_text(broker.store.statistics().put_messages, 'message')} in, "
        f"{broker.statistics.messages_out():,} out"
    )


def _short_path(path: Path) -> str:
    """Return a path relative to the working folder, or with `~` for home."""
    for start, shown in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_absolute() and path.is_relative_to(start):
            return shown + str(path.relative_to(start))
    return str(path)


def size_text(count: float) -> str:
    """Return a size with three digits and a decimal unit: 1.25 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units: 2 h 5 min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
