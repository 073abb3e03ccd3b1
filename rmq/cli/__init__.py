"""The command line: `rmq broker`, `rmq send`, `rmq admin` and others.

A command's module is imported when it is called: `rmq admin` needs no broker.
"""

import gc
from importlib import import_module
from typing import Final

import click

from rmq import __version__
from rmq.cli.entry import RootGroup
from rmq.cli.nouns.catalogue import NOUNS, SUMMARIES

COMMANDS: Final = {
    "admin": "Inspect and change running servers: the commands of mqadmin.",
    "bench": "Measure rate and latency of sends or reads.",
    "broker": "Start a broker; without a configured name server it starts one, too.",
    "config": "Check or print a configuration before it is used.",
    "consume": "Show messages of a topic, or consume them in a group.",
    "container": "Start several brokers on one machine and keep them running.",
    "context": SUMMARIES["context"],
    "controller": "Start a controller, which elects the masters of broker groups.",
    "demo": "Show a broker with traffic; delete its store at the end.",
    "doctor": "Check configuration, machine and running brokers.",
    "group": SUMMARIES["group"],
    "health": "Check that the server of this container or machine answers.",
    "message": SUMMARIES["message"],
    "namesrv": "Start a name server alone.",
    "plugins": SUMMARIES["plugins"],
    "reply": "Answer the requests of a topic.",
    "request": "Send a request and print the reply.",
    "send": "Send one message, or one message per line.",
    "sql": "Query the log of a store in SQL; no broker is needed.",
    "store": "Show, check and repair a store; no broker is needed.",
    "tail": "Show new messages, clients, problems and changes of all topics.",
    "top": "Show problems, groups and topics of running brokers every second.",
    "topic": SUMMARIES["topic"],
    "user": SUMMARIES["user"],
}
"""Summaries of the commands."""


def load(name: str) -> click.Command:
    """Import a command: `NAME_command` in `rmq.cli.server.NAME` or `NAME.command`.

    Nouns have a group of verbs. A command that is not in `rmq` has an entry point of
    its name.
    """
    gc.disable()  # imported modules are never garbage
    if name == "sql":
        command = _load_entry_point(name)
    elif name in NOUNS:
        command = import_module("rmq.cli.nouns.command").load_noun(name)
    else:
        module = f"server.{name}" if name in RootGroup.servers else f"{name}.command"
        command = getattr(import_module(f"rmq.cli.{module}"), f"{name}_command")
    gc.freeze()
    gc.enable()
    assert isinstance(command, click.Command), name
    return command


def _load_entry_point(name: str) -> object:
    # imported on use: it takes 20 ms
    from importlib.metadata import entry_points

    for found in entry_points(group="rmq.commands", name=name):
        return found.load()
    raise click.ClickException(f"rmq {name} is not installed: install rmq again")


@click.group(
    cls=RootGroup,
    summaries=COMMANDS,
    load=load,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="rmq")
def main() -> None:
    """Run a RocketMQ-compatible message broker and name server.

    \b
    rmq broker                  start a broker with a name server, on loopback
    rmq send Hello "hello"      send a message; creates the topic
    rmq consume Hello           show the newest messages, then new ones
    rmq topic ls                list topics; rmq topic --help has more
    rmq tail                    show messages, clients, problems and changes

    Completion in bash: eval "$(_RMQ_COMPLETE=bash_source rmq)"
    """  # noqa: D301 - click wants the character itself
