"""A queue of tasks without Celery: functions that are called later, in other processes.

A task is a message: its tag names the function, its body has the arguments as JSON.
Without an argument this program does what there is for a group of workers; start as
many as there are cores. `worker.py demo` sends two tasks, does them and ends.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

from rmq.client import Consumer, Message, Producer, ReceivedMessage

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "Tasks"
GROUP = "workers"

Task = Callable[..., Awaitable[None]]
TASKS: dict[str, Task] = {}


def task(function: Task) -> Task:
    """Let a function be called by its name."""
    TASKS[function.__name__] = function
    return function


async def call_later(
    producer: Producer,
    name: str,
    /,
    *,
    delay: timedelta | None = None,
    **arguments: object,
) -> str:
    """Have a task done by some worker, once a delay has passed; return its id."""
    if name not in TASKS:
        raise ValueError(f"{name!r} is no task: there are {', '.join(sorted(TASKS))}")
    message = Message(TOPIC, json.dumps(arguments).encode(), tags=name)
    return (await producer.send(message, delay=delay)).msg_id


async def perform(message: ReceivedMessage) -> None:
    """Do one task: an exception has it done again later, at most five times."""
    await TASKS[message.tags](**json.loads(message.body))


@task
async def greet(name: str) -> None:
    """Stand for work."""
    print("hello", name, flush=True)


async def work() -> None:
    """Do tasks until the process is stopped: twenty at once, those with known names."""
    known = {TOPIC: " || ".join(TASKS)}
    async with Consumer(
        NAME_SERVER, GROUP, known, start="first", max_attempts=5
    ) as consumer:
        await consumer.run(perform, concurrency=20)


async def demo() -> None:
    """Send two tasks, and do them."""
    async with Producer(NAME_SERVER) as producer:
        await call_later(producer, "greet", name="apples")
        await call_later(producer, "greet", name="bread", delay=timedelta(seconds=1))
    done: list[str] = []
    async with Consumer(
        NAME_SERVER, f"{GROUP}-demo", {TOPIC: "greet"}, start="first"
    ) as consumer:

        async def perform_two(message: ReceivedMessage) -> None:
            await perform(message)
            done.append(message.msg_id)
            if len(done) == 2:
                consumer.stop()

        await consumer.run(perform_two)


if sys.argv[1:] == ["demo"]:
    asyncio.run(asyncio.wait_for(demo(), 30))
else:
    asyncio.run(work())
