"""`rmq request`: send a request, and print the reply of its consumer."""

from typing import Final

import click

from rmq.cli.end_signals import run_until_ended
from rmq.cli.failures import ExplainedError, Failure, Subject, exit_with_error
from rmq.cli.send.command import (
    body_of,
    file_option,
    message_options,
    properties_of,
    split_keys,
)
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.core.errors import RmqError

NO_REPLY: Final = (
    "the request is stored, and a consumer may answer it later",
    "start a consumer that replies, or use a longer --timeout",
)
"""Reason and remedy of a request without a reply."""


@click.command("request")
@message_options
@file_option
@click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object.")
@with_settings
def request_command(
    settings: ToolSettings,
    topic: str,
    body: str | None,
    keys: tuple[str, ...],
    tag: str,
    pairs: tuple[str, ...],
    path: str | None,
    *,
    as_json: bool,
) -> None:
    """Send a request with BODY, a file or stdin as its body; print the reply.

    --timeout is the time for the request and its reply. `rmq reply` answers requests.

    \b
    rmq request Prices apple
    rmq request Prices --file question.json --timeout 10
    """  # noqa: D301 - click wants the character itself
    if body is not None and path is not None:
        raise click.UsageError("give BODY or --file, not both")
    properties = properties_of(pairs)
    # imported on use: usage errors need no event loop
    from rmq.cli.request.asking import send_request
    from rmq.client import Message, RequestTimeout

    with settings.admin_client() as admin:
        try:
            text = body_of(body, path)
            message = Message(
                topic, text, tags=tag, keys=split_keys(keys), properties=properties
            )
            admin.writable_queues(topic)
            run_until_ended(send_request(settings, message, as_json=as_json))
        except RequestTimeout as error:
            exit_with_error(ExplainedError(Failure(str(error), *NO_REPLY)), admin)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        except RmqError as error:
            exit_with_error(error, admin, Subject(topic, action="Pub"))
