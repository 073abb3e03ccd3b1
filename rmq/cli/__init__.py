"""The command line: `rmq broker`, `rmq send`, `rmq admin` and the others.

A command's module is imported when it is called: `rmq admin` needs no broker.
"""

import gc
from importlib import import_module
from typing import Final

import click

from rmq import __version__
from rmq.cli.lazy_group import LazyGroup

COMMANDS: Final = {
    "admin": "Look at running brokers and name servers, and change them.",
    "bench": "Measure sends or reads: rate and latency.",
    "broker": "Start a broker, with its own name server if none is configured.",
    "config": "Check or print a configuration before it is used.",
    "consume": "Show messages of a topic, or take part in a consumer group.",
    "container": "Start several brokers on one machine and keep them running.",
    "controller": "Start a controller, which elects the masters of groups.",
    "doctor": "Check configuration, machine and running brokers.",
    "namesrv": "Start a name server alone.",
    "send": "Send a message, or one for each line.",
    "sql": "Ask the log of a store in SQL; no broker is needed.",
    "store": "Show, check and repair a store; no broker is needed.",
    "tail": "Show what happens: messages of all topics, clients, changes.",
    "top": "Show problems, groups and topics of running brokers, again and again.",
}
"""Commands with their sentences: each is an object in the module of the same name."""

ROOMS: Final = frozenset(
    {"admin", "bench", "config", "consume", "doctor", "send", "top"}
)
"""Commands that are packages: the object is in their module `command`."""

ELSEWHERE: Final = frozenset({"sql"})
"""Commands of packages above this one, which are found by entry points."""


def load(name: str) -> click.Command:
    """Import one command."""
    gc.disable()  # imported modules are never garbage
    if name in ELSEWHERE:
        command = _of_another_package(name)
    else:
        home = f"rmq.cli.{name}.command" if name in ROOMS else f"rmq.cli.{name}"
        command = getattr(import_module(home), name)
    gc.freeze()
    gc.enable()
    assert isinstance(command, click.Command), name
    return command


def _of_another_package(name: str) -> object:
    # imported on use: it takes 20 ms
    from importlib.metadata import entry_points

    for found in entry_points(group="rmq.commands", name=name):
        return found.load()
    raise click.ClickException(f"rmq {name} is not installed: install rmq again")


@click.group(
    cls=LazyGroup,
    sentences=COMMANDS,
    load=load,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="rmq")
def main() -> None:
    """Run a RocketMQ-compatible message broker and name server.

    \b
    rmq broker                  start one, with its own name server, on loopback
    rmq send Hello "hello"      send a message; makes the topic
    rmq consume Hello           see the newest messages, and those that come
    rmq tail                    see everything that happens

    Completion of names in bash: eval "$(_RMQ_COMPLETE=bash_source rmq)"
    """  # noqa: D301 - click wants the character itself
