"""The command line: `rmq broker`, `rmq namesrv`, `rmq admin` and the others.

A command's module is imported when it is called: `rmq admin` needs no broker.
"""

import gc
from importlib import import_module
from typing import Final

import click

from rmq import __version__

COMMANDS: Final = ("admin", "bench", "broker", "config", "doctor", "namesrv", "store")
"""Commands: each is an object in the module of the same name."""


class MainGroup(click.Group):
    """Commands that are loaded on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # imported modules are never garbage
        command = getattr(import_module(f"rmq.cli.{cmd_name}"), cmd_name)
        gc.freeze()
        gc.enable()
        assert isinstance(command, click.Command), cmd_name
        return command


@click.group(cls=MainGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rmq")
def main() -> None:
    """Run a RocketMQ-compatible message broker and name server.

    Start one with its own name server on loopback: rmq broker
    """
