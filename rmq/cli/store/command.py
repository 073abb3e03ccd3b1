"""`rmq store`: inspect, verify, repair, settle and dump a store without a broker.

The tools need numpy and are imported on use.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmq.cli.server.process import exit_server
from rmq.cli.terminal.progress import Progress
from rmq.cli.terminal.text import escape_controls, escape_json
from rmq.config.option import read_properties
from rmq.core.errors import ConfigError, RmqError
from rmq.core.exit_codes import FAILED
from rmq.core.extras import install_command
from rmq.core.humanize import count_text
from rmq.store.log_folders import split_folders

if TYPE_CHECKING:
    from rmq.tools.store_files import StoreFiles
    from rmq.tools.verify import Verdict


@click.group("store")
def store_command() -> None:
    """Show, check and repair a store; no broker is needed."""


_root = click.argument(
    "root", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
_commit_log = click.option(
    "--commit-log",
    default="",
    metavar="DIRS",
    help="Folders of the log, separated by commas, if storePathCommitLog is set.",
)


_configuration = click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(exists=True, dir_okay=False),
    help="Configuration of the broker, for its delay levels.",
)
_as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object."
)


@store_command.command()
@_root
@_commit_log
@_as_json
def inspect(root: Path, commit_log: str, *, as_json: bool) -> None:
    """Show the content of a store: log, queues, index, and features that rmq does not
    serve.

    Reads a few pages of each file: rmq store inspect ~/store
    """
    tool = _load_tool("inspect")
    with _exit_on_error():
        report = tool.inspect(_files(root, commit_log))
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
        return
    for line in report.lines():
        click.echo(escape_controls(line))


@store_command.command()
@_root
@_commit_log
@_as_json
@click.option("--no-crc", is_flag=True, help="Skip the CRC check of bodies.")
@click.option(
    "--index-slots",
    type=click.IntRange(0),
    default=0,
    help="maxHashSlotNum of the store. [default: a quarter of maxIndexNum]",
)
def verify(
    root: Path,
    commit_log: str,
    *,
    as_json: bool,
    no_crc: bool,
    index_slots: int,
) -> None:
    """Check every record, queue entry and index entry; change nothing.

    Prints file and offset of each damage; exit code 1 if there is any. The broker may
    run meanwhile: rmq store verify ~/store
    """
    tool = _load_tool("verify")
    with _exit_on_error():
        files = _files(root, commit_log)
        with Progress("checked") as progress:
            verdict = tool.Verification(
                files,
                check_crc=not no_crc,
                index_slots=index_slots,
                progress=progress,
            ).run()
    if as_json:
        _print_verdict(verdict)
        return
    for damage in verdict.damages:
        click.echo(escape_controls(f"damaged: {damage}"))
    for note in verdict.notes:
        click.echo(escape_controls(f"note: {note}"))
    places = len(verdict.damages)
    click.echo(
        f"{root}: log {verdict.start_offset} to {verdict.end_offset}, "
        f"{count_text(verdict.record_count, 'record')}, queue entries: "
        f"{verdict.entry_count:,}, index entries: {verdict.index_entry_count:,}, "
        + (count_text(places, "damaged place") if places else "no damaged places")
    )
    if verdict.damages:
        sys.exit(FAILED)


def _print_verdict(verdict: "Verdict") -> None:
    """Print a verdict as JSON; exit code 1 if there is damage."""
    figures = {
        "startOffset": verdict.start_offset, "endOffset": verdict.end_offset,
        "records": verdict.record_count, "queueEntries": verdict.entry_count,
        "indexEntries": verdict.index_entry_count,
        "damages": [str(each) for each in verdict.damages],
        "notes": [str(each) for each in verdict.notes],
    }  # fmt: skip
    click.echo(json.dumps(figures, indent=2))
    if verdict.damages:
        sys.exit(FAILED)


@store_command.command()
@_root
@_commit_log
@click.option("--dry-run", is_flag=True, help="Print the steps without doing them.")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask first.")
@_as_json
@click.option(
    "--restore",
    is_flag=True,
    help="Store the intact records of DIR/cut as new messages.",
)
@_configuration
def repair(
    root: Path,
    commit_log: str,
    path: str | None,
    *,
    dry_run: bool,
    is_sure: bool,
    restore: bool,
    as_json: bool,
) -> None:
    """Truncate a damaged end of the log and rebuild queues; delete nothing.

    The broker must be stopped. It moves the removed and replaced parts to DIR/cut. On a
    terminal it asks for confirmation first: rmq store repair --dry-run ~/store
    """
    tool = _load_tool("repair")
    with _exit_on_error():
        files = _files(root, commit_log)
        if not (dry_run or is_sure) and is_interactive():
            with Progress("checked") as progress:
                steps = tool.plan_repair(files, progress=progress).lines()
            _confirm_repair(steps)
        values = read_properties(path) if path else {}
        with Progress("checked") as progress:
            if dry_run:
                lines = tool.plan_repair(files, progress=progress).lines()
            else:
                lines = tool.repair(files, values, restore=restore, progress=progress)
    if as_json:
        click.echo(json.dumps({"isPlan": dry_run, "steps": lines}, indent=2))
        return
    if dry_run:
        click.echo("dry run, nothing changed; a repair would take these steps:")
    for line in lines:
        click.echo(escape_controls(line))


def is_interactive() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty()


def _confirm_repair(lines: list[str]) -> None:
    """Print a plan and ask for confirmation; abort without it."""
    for line in lines:
        click.echo(line, err=True)
    click.confirm("Repair the store with these steps?", abort=True, err=True)


@store_command.command("settle")
@_root
@_commit_log
@_configuration
def settle_ring(root: Path, commit_log: str, path: str | None) -> None:
    """Move the end of the log from the ring to the files after a kill.

    The broker must be stopped. rmq does this at its start; run it before a Java broker
    starts in this directory: rmq store settle ~/store
    """
    tool = _load_tool("settle")
    with _exit_on_error():
        values = read_properties(path) if path else {}
        lines = tool.recover_store(_files(root, commit_log), values)
    for line in lines:
        click.echo(escape_controls(line))


@store_command.command("heal")
@_root
@_commit_log
@click.option(
    "--from",
    "source",
    metavar="HOST:PORT",
    required=True,
    help="haListenPort of a broker that has the bytes; its default is listenPort + 1.",
)
@_configuration
def heal_log(root: Path, commit_log: str, source: str, path: str | None) -> None:
    """Replace damaged bytes of the log by another broker's.

    The broker of DIR must be stopped. A broker of a group does this at its start:
    rmq store heal ~/store --from 10.0.0.2:10912
    """
    tool = _load_tool("heal")
    with _exit_on_error():
        values = read_properties(path) if path else {}
        lines = tool.heal(_files(root, commit_log), values, source)
    for line in lines:
        click.echo(escape_controls(line))


@store_command.command("accept-loss")
@_root
@_commit_log
@click.option("--dry-run", is_flag=True, help="Print the messages that would be lost.")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask first.")
@_configuration
def accept_loss_of_log(
    root: Path,
    commit_log: str,
    path: str | None,
    *,
    dry_run: bool,
    is_sure: bool,
) -> None:
    """Open a damaged log again without the bytes that no broker has.

    The broker must be stopped. Prints the range, and the lost messages by topic and
    queue. Queues keep their offsets: rmq store accept-loss ~/store
    """
    tool = _load_tool("accept_loss")
    is_any = False
    with _exit_on_error():
        files = _files(root, commit_log)
        values = read_properties(path) if path else {}
        while (loss := tool.find_loss(files, values)) is not None:
            is_any = True
            if dry_run:
                lines = [str(loss.damage), *loss.lines()]
            else:
                if not is_sure:
                    for line in (str(loss.damage), *loss.lines()):
                        click.echo(escape_controls(line), err=True)
                    click.confirm("Accept this loss?", abort=True, err=True)
                lines = tool.accept_loss(files, values, loss)
            for line in lines:
                click.echo(escape_controls(line))
            if dry_run:
                return
    click.echo(f"{root}: the log is whole" if is_any else f"{root}: nothing is missing")


@store_command.command()
@_root
@_commit_log
@click.option("--topic", help="Only this topic, queue by queue.")
@click.option("--queue", "queue_id", type=int, help="Only this queue of the topic.")
@click.option("--key", help="Only messages with this key or unique key.")
@click.option("--offset", type=int, help="Only the record at this offset of the log.")
@click.option(
    "--limit", type=click.IntRange(1), help="Stop after this number of messages."
)
def dump(
    root: Path,
    commit_log: str,
    topic: str | None,
    queue_id: int | None,
    key: str | None,
    offset: int | None,
    limit: int | None,
) -> None:
    """Print messages as JSON, one per line.

    The broker may be running: rmq store dump ~/store --topic Orders --limit 10
    """
    tool = _load_tool("dump")
    choice = tool.Choice(topic, queue_id, key, offset)
    with _exit_on_error():
        records = tool.dump(_files(root, commit_log), choice)
        for record in itertools.islice(records, limit):
            click.echo(escape_json(record))


def _load_tool(name: str) -> Any:  # noqa: ANN401 - a module
    """Import a tool; exit if numpy is missing."""
    try:
        return import_module(f"rmq.tools.{name}")
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        exit_server(ConfigError(f"rmq store needs numpy: {install_command('tools')}"))


def _files(root: Path, commit_log: str) -> "StoreFiles":
    folders = split_folders(commit_log)
    files: StoreFiles = _load_tool("store_files").StoreFiles(root, folders)
    return files


@contextmanager
def _exit_on_error() -> Iterator[None]:
    try:
        yield
    except RmqError as error:
        exit_server(error)
