"""Send a message and receive it, with the client that comes with rmq, under asyncio."""

import asyncio
import os

from rmq.client import Consumer, Message, Producer

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TEXT = b"hello from asyncio"


async def main() -> None:
    """Send, then wait for the message."""
    async with Producer(NAME_SERVER) as producer:
        result = await producer.send(Message("Hello", TEXT, keys=["hello-1"]))
        print("sent", result.msg_id)
    async with Consumer(
        NAME_SERVER, "hello-asyncio", "Hello", start="first"
    ) as consumer:
        async for message in consumer:
            if message.body == TEXT:
                print("received:", message.body.decode())
                break


asyncio.run(asyncio.wait_for(main(), 30))
