"""Traffic: a producer, a group that keeps up, and a group that is too slow."""

import asyncio
import itertools
import random
import sys
from typing import Final

import click

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client import Client, Consumer, Message, Producer

TOPIC: Final = "Orders"
GROUP: Final = "billing"
SLOW_GROUP: Final = "mailer"
FRUITS: Final = ("apples", "bananas", "cherries", "dates")
FAILURE_RATE: Final = 0.01
"""Share of messages that a handler fails: they come again later."""

SLOWNESS: Final = 3
"""Time that the slow group needs for a message, as a multiple of the time between two
sends.
"""

LINE_PAUSE_S: Final = 5.0
"""Pause between two lines of progress, where no terminal changes a line."""


class Traffic:
    """Sends and consumes until it is cancelled, or for some seconds."""

    def __init__(self, name_server: str, rate: int, seconds: float | None) -> None:
        self._name_server = name_server
        self._rate = rate
        self._seconds = seconds
        self._sent = self._billed = self._mailed = 0

    async def run(self) -> None:
        """Run producer and consumers, and print the progress."""
        async with (
            Client(self._name_server) as client,
            Producer(client, group="shop") as producer,
        ):
            await self._send(producer, 0)
            async with (
                Consumer(client, GROUP, TOPIC, start="first") as billing,
                Consumer(client, SLOW_GROUP, TOPIC, start="first") as mailer,
                asyncio.TaskGroup() as tasks,
            ):
                running = [
                    tasks.create_task(each)
                    for each in (
                        self._send_all(producer),
                        billing.run(self._handle_bill),
                        mailer.run(self._handle_mail, concurrency=1),
                        self._report(),
                    )
                ]
                if self._seconds is not None:
                    await asyncio.sleep(self._seconds)
                    for task in running:
                        task.cancel()

    async def _send_all(self, producer: Producer) -> None:
        for number in itertools.count(1):
            await asyncio.sleep(1 / self._rate)
            await self._send(producer, number)

    async def _send(self, producer: Producer, number: int) -> None:
        fruit = random.choice(FRUITS)
        text = f'{{"order": {number}, "fruit": "{fruit}"}}'
        message = Message(TOPIC, text.encode(), tags=fruit, keys=[f"order-{number}"])
        await producer.send(message)
        self._sent += 1

    async def _handle_bill(self, _message: ReceivedMessage) -> None:
        if random.random() < FAILURE_RATE:
            raise ValueError("no such account")  # the message comes again
        self._billed += 1

    async def _handle_mail(self, _message: ReceivedMessage) -> None:
        await asyncio.sleep(SLOWNESS / self._rate)
        self._mailed += 1

    async def _report(self) -> None:
        is_terminal = sys.stdout.isatty()
        while True:
            await asyncio.sleep(1 if is_terminal else LINE_PAUSE_S)
            line = (
                f"sent {self._sent:,}   {GROUP} {self._billed:,}   "
                f"{SLOW_GROUP} {self._mailed:,}, {self._sent - self._mailed:,} behind"
            )
            click.echo(f"\r{line}   " if is_terminal else line, nl=not is_terminal)
            sys.stdout.flush()
