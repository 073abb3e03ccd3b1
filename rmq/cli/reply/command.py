"""`rmq reply`: answer the requests of a topic, with a text or by a command."""

from contextlib import suppress

import click

from rmq.cli import completion
from rmq.cli.end_signals import run_until_ended
from rmq.cli.failures import Subject, exit_with_error
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.core.errors import RmqError

GROUP = "rmq-reply"


@click.command("reply")
@click.argument("topic", shell_complete=completion.topics)
@click.argument("body", required=False)
@click.option(
    "-g", "--group", default=GROUP, show_default=True,
    shell_complete=completion.groups, help="Consumer group.",
)  # fmt: skip
@click.option("--echo", is_flag=True, help="Reply with the body of the request.")
@click.option(
    "--exec", "program", metavar="COMMAND",
    help="Run this in a shell for each request: stdin is its body, stdout the reply.",
)  # fmt: skip
@click.option(
    "-c", "--count", type=click.IntRange(1), help="Stop after this number of requests."
)
@with_settings
def reply_command(
    settings: ToolSettings,
    topic: str,
    body: str | None,
    group: str,
    program: str | None,
    count: int | None,
    *,
    echo: bool,
) -> None:
    """Answer the requests of a topic with BODY, an echo or a command. Ctrl-C stops it.

    It is a member of its group, so several processes share the requests.

    \b
    rmq reply Prices 3.20
    rmq reply Prices --exec 'jq .fruit'
    """  # noqa: D301 - click wants the character itself
    if (body is not None) + echo + (program is not None) != 1:
        raise click.UsageError("give BODY, --echo or --exec")
    # imported on use: usage errors need no event loop
    from rmq.cli.consume.stream import mute_client_log, wait_for_topic
    from rmq.cli.reply.replier import Replier

    replier = Replier(settings, topic, group, body, program, count)
    with settings.admin_client() as admin, suppress(KeyboardInterrupt):
        try:
            wait_for_topic(admin, topic)
            mute_client_log()
            run_until_ended(replier.run())
        except RmqError as error:
            exit_with_error(error, admin, Subject(topic, group, action="Get,Sub"))
