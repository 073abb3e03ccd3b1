"""`rmq reply`: answer the requests of a topic, with a text or by a command."""

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from rmq.cli import completion
from rmq.cli.end_signals import run_until_ended
from rmq.cli.failures import Subject, exit_with_error
from rmq.cli.terminal.text import escape_body
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.core.errors import RmqError

if TYPE_CHECKING:
    from rmq._fastpath.client.messages import ReceivedMessage

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

    It consumes as a member of its group, so several of them share the requests.

    \b
    rmq reply Prices 3.20
    rmq reply Prices --exec 'jq .fruit'
    """  # noqa: D301 - click wants the character itself
    if (body is not None) + echo + (program is not None) != 1:
        raise click.UsageError("give BODY, --echo or --exec")
    # imported on use: usage errors need no event loop
    from rmq.cli.consume.stream import mute_client_log, wait_for_topic
    from rmq.client import Consumer, Producer

    async def answer_request(producer: Producer, message: "ReceivedMessage") -> bool:
        """Answer a message; False if its sender wants no reply."""
        text = await _reply_to(message, body, program)
        try:
            await producer.reply(message, text)
        except ValueError:  # it was sent, and is no request
            return False
        shown = f"{escape_body(message.body[:200])} -> {escape_body(text[:200])}"
        click.echo(shown)
        sys.stdout.flush()
        return True

    async def serve() -> None:
        async with (
            settings.async_client() as client,
            Producer(client, group=group) as producer,
            Consumer(client, group, [topic], start="last") as consumer,
        ):
            await _serve(consumer, producer)

    async def _serve(consumer: Consumer, producer: Producer) -> None:
        left = count
        while (message := await consumer.next_message()) is not None:
            is_answered = await answer_request(producer, message)
            message.ack()
            if left is not None and is_answered:
                left -= 1
                if not left:
                    return

    with settings.admin_client() as admin, suppress(KeyboardInterrupt):
        try:
            wait_for_topic(admin, topic)
            mute_client_log()
            run_until_ended(serve())
        except RmqError as error:
            exit_with_error(error, admin, Subject(topic, group, action="Get,Sub"))


async def _reply_to(
    message: "ReceivedMessage", body: str | None, program: str | None
) -> bytes:
    if program is None:
        return message.body if body is None else body.encode("utf-8", "surrogateescape")
    process = await asyncio.create_subprocess_shell(
        program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate(message.body)
    return output.removesuffix(b"\n")
