"""Runs the programs of docs/clients/python.md as they stand: `page.py PAGE LOOP`.

LOOP is asyncio, uvloop, trio or threads. The programs use names that a reader would
fill in (`book`, `rows`, `database`); they are filled in here. A program that never ends
is cancelled when it has done what it is for. It needs nothing but rmq and a loop.
"""

import ast
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio

from rmq.client import Consumer, Message, Producer
from rmq.testing import BrokerThread
from rmq.testing.client import TestClient

FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
LIMIT_S = 30
SETTINGS = {"traceTopicEnable": "true"}
REPLY = "await producer.reply("
"""This line belongs into the consumer of the requests."""

NEEDS_TLS = "ca.pem"
"""A program with this needs certificates; `test_identity.py` has one."""


class Enough(Exception):
    """Ends a program for threads."""


class World:
    """The names that the programs use, and what became of them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.done: list[str] = []

    def did(self, what: str) -> Callable[..., Coroutine[Any, Any, None]]:
        async def do(*_: object) -> None:
            self.done.append(what)

        return do

    def names(self) -> dict[str, Any]:
        """Return what a program finds; `producer` and `question` come later."""

        async def endless_rows() -> AsyncIterator[bytes]:
            for number in range(5):
                yield b"%d" % number

        class database:
            execute = self.did("database")

        return {
            "NS": self.address, "Consumer": Consumer, "Producer": Producer,
            "Message": Message, "UTC": UTC, "datetime": datetime,
            "timedelta": timedelta, "rows": [b"a", b"b"],
            "endless_rows": endless_rows(), "book": self.did("book"),
            "post": self.did("post"), "entry": b"100", "account": "alice",
            "write": lambda _: self.done.append("write"), "database": database,
            "INSERT": "", "was_it_booked": lambda _: None,
            "message": Message("Orders", b"later"),
        }  # fmt: skip


def expected(program: str) -> str | None:
    """Return what a program does before it may be cancelled; None: it ends itself."""
    if "Ledger" in program:
        return "post"
    return "book" if re.search(r"\bbook\b", program) else None


async def run_program(program: str, world: World, names: dict[str, Any]) -> None:
    """Run one program of the page."""
    found = eval(compile(program, "client.md", "exec", FLAGS), names)
    wanted = expected(program)
    world.done.clear()
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                if found is not None:
                    await found
                if wanted is None:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(run)
            while wanted is None or wanted not in world.done:  # noqa: ASYNC110
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
    if "rmq_client" in program:
        with tempfile.TemporaryDirectory() as folder, BrokerThread(Path(folder)) as own:
            test = names["test_a_bill_is_written"]
            await test(lambda: TestClient(own.name_server))


async def feed(producer: Producer) -> None:
    """Send what the consumers of the page wait for."""
    while True:
        for topic in ("Orders", "Ledger"):
            await producer.send(Message(topic, b"bread", tags="fruit"))
        await anyio.sleep(0.05)


async def answer(reply: str, world: World, names: dict[str, Any]) -> None:
    """Run the line of the page that answers its request."""
    async with Consumer(world.address, "prices", "Prices", start="first") as consumer:
        async for question in consumer:
            if question.body == b"apple":
                names["question"] = question
                await eval(compile(reply, "client.md", "exec", FLAGS), names)


async def follow(programs: list[str], world: World) -> None:
    """Run the programs one after another."""
    async with Producer(world.address) as producer:
        await producer.send(Message("Prices", b"first"))
        names: dict[str, Any] = {}  # what a program imports, later ones have
        for program in programs:
            names |= {**world.names(), "producer": producer}
            async with anyio.create_task_group() as beside:
                if "fetch" not in program:
                    beside.start_soon(feed, producer)
                asking, found, reply = program.partition(REPLY)
                if found:
                    beside.start_soon(answer, REPLY + reply, world, names)
                await run_program(asking, world, names)
                beside.cancel_scope.cancel()
            print("ran", program.split("\n")[0], flush=True)  # noqa: T201 - a program


def follow_in_threads(programs: list[str], world: World) -> None:
    """Run the programs for threads."""

    def book(_: bytes) -> None:
        raise Enough

    for program in programs:
        try:
            exec(compile(program, "client.md", "exec"), {**world.names(), "book": book})
        except Enough:
            print("ran", program.split("\n")[0], flush=True)  # noqa: T201 - a program


def main(page: str, loop: str) -> None:
    """Run what the page has for this loop."""
    blocks = re.findall(r"```python\n(.*?)```", Path(page).read_text(), re.DOTALL)
    blocks = [each for each in blocks if NEEDS_TLS not in each]
    first, *programs = blocks
    of_threads = [each for each in programs if "rmq.client.blocking" in each]
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerThread(Path(folder), SETTINGS) as broker,
    ):
        world = World(broker.name_server)
        if loop == "threads":
            follow_in_threads(of_threads, world)
            return
        call = "trio.run(main)" if loop == "trio" else f"{loop}.run(main())"
        first = first.replace("asyncio.run(main())", f"import {loop}\n{call}")
        exec(first.replace("127.0.0.1:9876", broker.name_server), {})
        backend = "trio" if loop == "trio" else "asyncio"
        options = {"use_uvloop": True} if loop == "uvloop" else {}
        rest = [each for each in programs if each not in of_threads]
        anyio.run(follow, rest, world, backend=backend, backend_options=options)


if __name__ == "__main__":
    main(*sys.argv[1:])
