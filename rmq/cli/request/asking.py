"""The event loop of `rmq request`."""

import sys
import time

import click

from rmq.cli.consume.output import body_fields, message_writer
from rmq.cli.consume.stream import mute_client_log
from rmq.cli.send import MAX_BODY_BYTES
from rmq.cli.terminal.text import escape_json
from rmq.cli.tool_settings import ToolSettings
from rmq.client import Message, Producer


async def send_request(
    settings: ToolSettings, message: Message, *, as_json: bool
) -> None:
    """Send a request, and print its reply."""
    mute_client_log()
    began = time.perf_counter()
    async with (
        settings.async_client() as client,
        Producer(
            client,
            group="rmq-request",
            max_message_bytes=MAX_BODY_BYTES,
            compress_over=None,
        ) as producer,
    ):
        reply = await producer.request(message, timeout_s=settings.timeout_s)
    took_ms = 1_000 * (time.perf_counter() - began)
    if as_json:
        fields = {"properties": dict(reply.properties), "tookMs": took_ms}
        click.echo(escape_json(fields | body_fields(reply.body)))
        return
    if sys.stderr.isatty():
        click.secho(f"reply after {took_ms:.1f} ms", dim=True, err=True)
    message_writer("%v\\n", as_json=False, is_raw=False)(reply)
