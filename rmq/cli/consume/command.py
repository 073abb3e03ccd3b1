"""`rmq consume`: show messages of a topic, or consume them in a group."""

import sys
from collections.abc import Iterator

import click

from rmq.cli import completion
from rmq.cli.consume.output import message_writer
from rmq.cli.failures import Subject, exit_with_error
from rmq.cli.terminal.text import parse_time_ms
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.core.errors import RmqError


@click.command("consume")
@click.argument("topic", shell_complete=completion.topics)
@click.option(
    "-g", "--group", shell_complete=completion.groups,
    help="Consume as a member of this group, and commit.",
)  # fmt: skip
@click.option(
    "-c", "--count", type=click.IntRange(1), help="Stop after this number of messages."
)
@click.option(
    "-e", "--end", "stops_at_end", is_flag=True, help="Stop at the current end."
)
@click.option(
    "--from", "begin", metavar="TIME",
    help="Start at first, last, 10m (ago), 2026-11-21T03:01:54 or milliseconds.",
)  # fmt: skip
@click.option(
    "-o", "--offset", type=click.IntRange(0), help="Start at this offset. Needs -q."
)
@click.option(
    "-q", "--queue", "queue_id", type=click.IntRange(0), help="Only this queue."
)
@click.option("-t", "--tags", metavar="'A || B'", help="Only messages with these tags.")
@click.option(
    "--sql", metavar="EXPRESSION", help="Only messages that match this SQL92 filter."
)
@click.option(
    "-f", "--format", "form", metavar="FORMAT",
    help="%t topic, %q queue, %o offset, %k key, %g tag, %i id, %d time, %s size, "
    "%v body, %p properties as JSON, %%; \\n, \\t.",
)  # fmt: skip
@click.option(
    "-J", "--json", "as_json", is_flag=True, help="Print one JSON object per message."
)
@click.option(
    "--raw", "is_raw", is_flag=True, help="Print bodies unescaped; not to a terminal."
)
@with_settings
def consume_command(  # noqa: PLR0913 - one parameter for each option
    settings: ToolSettings,
    topic: str,
    group: str | None,
    count: int | None,
    begin: str | None,
    offset: int | None,
    queue_id: int | None,
    tags: str | None,
    sql: str | None,
    form: str | None,
    *,
    stops_at_end: bool,
    as_json: bool,
    is_raw: bool,
) -> None:
    """Show the newest messages of a topic, then new ones. Ctrl-C stops it.

    It waits for a topic that does not exist yet, except with --end. Without a group it
    commits nothing and does not affect consumers.

    \b
    rmq consume Hello                       the newest 10, then new messages
    rmq consume Hello --from first -e       all stored messages
    rmq consume Hello -g billing -c 2 -f '%q:%o %k %v\\n'
    """  # noqa: D301 - click wants the character itself
    _check_options(group, begin, queue_id, offset, tags, sql, is_raw=is_raw)
    # imported on use: completion and usage errors need no event loop
    from rmq.cli.consume.stream import Choice, TopicReader
    from rmq.client.subscription import Sql, parse_subscription

    if sql and (rest := find_unread(sql)):
        click.echo(f"rmq: brokers ignore the end of the filter: {rest!r}", err=True)
    expression = Sql(sql) if sql else tags or "*"
    parse_subscription(topic, expression)  # a wrong expression fails here
    start = begin if begin in (None, "first", "last") else parse_time_ms(str(begin))
    choice = Choice(topic, expression, group, start, queue_id, offset, stops_at_end)
    write = message_writer(form, as_json=as_json, is_raw=is_raw)
    with settings.admin_client() as admin:
        try:
            TopicReader(settings, admin, choice).run(write, count)
        except RmqError as error:
            exit_with_error(error, admin, Subject(topic, group or "", action="Get,Sub"))


def find_unread(expression: str) -> str:
    """Return the token at which a filter ends early, as Java's parser does; or empty.

    A wrong expression has no such token: the broker refuses it.
    """
    # imported on use: few commands have a filter
    from rmq.filters.parser import parse
    from rmq.filters.sql import SelectorError, tokenize_selector

    last, is_read = "", False

    def watch_tokens() -> Iterator[tuple[str, str]]:
        nonlocal last, is_read
        for kind, text in tokenize_selector(expression):
            last = text
            yield kind, text
        is_read = True

    try:
        parse(watch_tokens(), SelectorError)
    except SelectorError:
        return ""
    return "" if is_read else last


def _check_options(
    group: str | None,
    begin: str | None,
    queue_id: int | None,
    offset: int | None,
    tags: str | None,
    sql: str | None,
    *,
    is_raw: bool,
) -> None:
    if offset is not None and queue_id is None:
        raise click.UsageError("-o needs -q: each queue has offsets of its own")
    if group and (queue_id is not None or offset is not None):
        raise click.UsageError(
            "-q and -o exclude -g: a group assigns the queues itself"
        )
    if tags and sql:
        raise click.UsageError("give --tags or --sql, not both")
    if is_raw and sys.stdout.isatty():
        raise click.UsageError(
            "--raw is for pipes and files: a body could control a terminal"
        )
