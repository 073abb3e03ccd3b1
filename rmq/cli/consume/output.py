"""Received messages as lines for people, columns for pipes, JSON or a format."""

import base64
import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from rmq.cli.terminal.text import (
    escape_body,
    escape_controls,
    escape_json,
    fit_line,
    time_of_day,
    utc_time,
)

if TYPE_CHECKING:
    from rmq._fastpath.client.messages import ReceivedMessage

_FIELD: Final = re.compile(r"%(.)|\\([nt0\\])", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}

Write = Callable[["ReceivedMessage"], None]


def message_writer(form: str | None, *, as_json: bool, is_raw: bool) -> Write:
    """Return a function that writes one message to stdout."""
    if as_json:
        return lambda message: click.echo(escape_json(message_object(message)))
    if form is not None:
        return lambda message: _write_form(form, message, is_raw=is_raw)
    if is_raw:
        return _write_raw
    if sys.stdout.isatty():
        return lambda message: click.echo(fit_line(_terminal_line(message)))
    return lambda message: click.echo(_pipe_line(message))


def _write_raw(message: "ReceivedMessage") -> None:
    sys.stdout.buffer.write(message.body + b"\n")
    sys.stdout.buffer.flush()


def _write_form(form: str, message: "ReceivedMessage", *, is_raw: bool) -> None:
    text = _FIELD.sub(lambda match: _field_text(match, message, is_raw=is_raw), form)
    click.echo(text.encode("utf-8", "surrogateescape") if is_raw else text, nl=False)


def _field_text(
    match: re.Match[str], message: "ReceivedMessage", *, is_raw: bool
) -> str:
    letter, escape = match.groups()
    if escape:
        return _ESCAPES[escape]
    properties = message.properties
    if letter == "v":
        body = message.body
        return body.decode("utf-8", "surrogateescape") if is_raw else escape_body(body)
    if letter == "p":
        return json.dumps(dict(properties))
    texts = {
        "t": message.topic, "q": str(message.queue.queue_id),
        "o": str(message.queue_offset), "k": properties.get("KEYS", ""),
        "g": properties.get("TAGS", ""), "i": message.msg_id,
        "d": utc_time(message.stored_ms), "s": str(len(message.body)), "%": "%",
    }  # fmt: skip
    return escape_controls(texts.get(letter, match[0]))


def _terminal_line(message: "ReceivedMessage") -> str:
    place = f"{message.queue.queue_id}:{message.queue_offset}"
    parts = [time_of_day(message.stored_ms), place, *_message_texts(message)]
    return "  ".join(part for part in parts if part)


def _pipe_line(message: "ReceivedMessage") -> str:
    place = str(message.queue.queue_id), str(message.queue_offset)
    return "\t".join((utc_time(message.stored_ms), *place, *_message_texts(message)))


def _message_texts(message: "ReceivedMessage") -> tuple[str, str, str]:
    """Return keys, tags and body with escaped control characters."""
    properties = message.properties
    keys, tags = properties.get("KEYS", ""), properties.get("TAGS", "")
    return escape_controls(keys), escape_controls(tags), escape_body(message.body)


def message_object(message: "ReceivedMessage") -> dict[str, object]:
    """Return a message as a JSON object; `bodyBase64` has a body that is not UTF-8."""
    return {
        "topic": message.topic, "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset, "msgId": message.msg_id,
        "keys": message.properties.get("KEYS"), "tags": message.properties.get("TAGS"),
        "storeTime": utc_time(message.stored_ms),
        "properties": dict(message.properties), **body_fields(message.body),
    }  # fmt: skip


def body_fields(body: bytes) -> dict[str, str]:
    """Return a body as a field of a JSON object."""
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}
