"""Replier: answers the requests of a topic until it is ended, for `rmq reply`."""

import asyncio
import sys
from typing import Final, NamedTuple

import click

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.cli.terminal.text import escape_body
from rmq.cli.tool_settings import ToolSettings
from rmq.client import Consumer, Producer

SHOWN_BYTES: Final = 200
"""Bytes of a request and of its reply that are printed."""


class Replier(NamedTuple):
    """The reply is a text, the output of a program, or the request itself."""

    settings: ToolSettings
    topic: str
    group: str
    body: str | None
    program: str | None
    limit: int | None

    async def run(self) -> None:
        """Answer until the limit is reached or the task is cancelled."""
        async with (
            self.settings.async_client() as client,
            Producer(client, group=self.group) as producer,
            Consumer(client, self.group, [self.topic], start="last") as consumer,
        ):
            await self._answer_all(consumer, producer)

    async def _answer_all(self, consumer: Consumer, producer: Producer) -> None:
        left = self.limit
        while (message := await consumer.next_message()) is not None:
            is_answered = await self._answer_one(producer, message)
            message.ack()
            if left is not None and is_answered:
                left -= 1
                if not left:
                    return

    async def _answer_one(self, producer: Producer, message: ReceivedMessage) -> bool:
        """Answer a message; False if its sender wants no reply."""
        text = await self._make_reply(message)
        try:
            await producer.reply(message, text)
        except ValueError:  # it was sent, and is no request
            return False
        shown = (escape_body(each[:SHOWN_BYTES]) for each in (message.body, text))
        click.echo(" -> ".join(shown))
        sys.stdout.flush()
        return True

    async def _make_reply(self, message: ReceivedMessage) -> bytes:
        if self.program is None:
            if self.body is None:
                return message.body
            return self.body.encode("utf-8", "surrogateescape")
        process = await asyncio.create_subprocess_shell(
            self.program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate(message.body)
        return output.removesuffix(b"\n")
