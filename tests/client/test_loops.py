"""Every way to run a program: asyncio, uvloop, trio, anyio."""

import asyncio

import anyio
import pytest
import trio

from rmq.client import Consumer, Message, Producer


async def scenario(address, topic):
    with anyio.fail_after(10):
        async with Producer(address) as producer:
            await producer.send(Message(topic, b"x"), key="a")
            await producer.enqueue(Message(topic, b"y"))
        async with Consumer(address, f"g-{topic}", topic, start="first") as consumer:
            seen = set()
            async for message in consumer:
                seen.add(message.body)
                if len(seen) == 2:
                    return seen


def with_uvloop(function, *arguments):
    uvloop = pytest.importorskip("uvloop")
    return uvloop.run(function(*arguments))


RUNS = {
    "asyncio": lambda function, *arguments: asyncio.run(function(*arguments)),
    "uvloop": with_uvloop,
    "trio": trio.run,
    "anyio": anyio.run,
}


@pytest.mark.parametrize("name", RUNS)
def test_a_program_runs(broker, name):
    found = RUNS[name](scenario, broker.name_server, f"loops-{name}")
    assert found == {b"x", b"y"}
