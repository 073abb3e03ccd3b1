"""rmq_driver.py send|push|pull NAMESRV TOPIC COUNT [name=value ...], see drivers.py.

The driver of `rmq.client`, under asyncio; `loop=trio` runs it under trio.
"""

import hashlib
import json
import sys
import time

import anyio
import anyio.to_thread

from rmq.client import (
    Client,
    ClientError,
    Consumer,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    Sql,
    Trust,
)

NAME = "日本 é 😀"
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
BATCH = 10

Options = dict[str, str]


def say(**report: object) -> None:
    print(json.dumps(report), flush=True)


def body_of(number: int, size: int) -> bytes:
    body = bytearray(f"message {number} 日本語 é 😀 {'x' * (number % 200)}".encode())
    state = number
    while len(body) < size:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        body.append(LETTERS[(state >> 16) & 63])
    return bytes(body)


def make(topic: str, number: int, options: Options) -> Message:
    return Message(
        topic,
        body_of(number, int(options.get("size", 0))),
        tags=f"Tag{number % 3}",
        keys=[f"Key{number}"],
        properties={"number": str(number), "name": NAME},
    )


def digest(body: bytes, message: ReceivedMessage) -> str:
    properties = message.properties
    parts = [properties.get(each, "") for each in ("TAGS", "KEYS", "number", "name")]
    texts = [body, *(part.strip().encode() for part in parts)]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def say_received(message: ReceivedMessage) -> None:
    say(
        event="received",
        number=int(message.properties["number"]),
        digest=digest(message.body, message),
        queue=message.queue.queue_id,
        offset=message.queue_offset,
        times=message.attempt - 1,
        age=int(time.time() * 1_000) - message.born_ms,
    )


def client_of(namesrv: str, options: Options, default: str) -> Client:
    return Client(
        namesrv,
        client_id=f"127.0.0.1@{options.get('instance', default)}",
        namespace=options.get("namespace", ""),
        tls=Trust(ca=options["authority"]) if "authority" in options else None,
        heartbeat_interval_s=int(options.get("heartbeat", 30_000)) / 1_000,
    )


async def send(namesrv: str, topic: str, count: int, options: Options) -> None:
    mode, first = options.get("mode", "sync"), int(options.get("first", 0))
    numbers = range(first, first + count)
    client = client_of(namesrv, options, f"out-{time.time_ns()}")
    group = "interop-transactions" if mode == "transaction" else "interop-producer"

    def check(message: ReceivedMessage) -> bool:
        number = int(message.properties["number"])
        say(event="checked", number=number)
        return number % 3 != 1

    async with (
        client,
        Producer(client, group=group, timeout_ms=10_000, checker=check) as producer,
    ):
        if mode == "transaction":
            sent = await send_transactions(producer, topic, numbers, options)
            say(event="sent")
            await anyio.to_thread.run_sync(sys.stdin.read)
        elif mode == "request":
            sent = await send_requests(producer, topic, numbers, options)
        else:
            sent = await send_plainly(producer, topic, numbers, mode, options)
    say(event="done", count=sent)


async def send_plainly(
    producer: Producer, topic: str, numbers: range, mode: str, options: Options
) -> int:
    messages = [make(topic, number, options) for number in numbers]
    level = int(options["delay"]) if "delay" in options else None
    if mode == "batch":
        for start in range(0, len(messages), BATCH):
            await producer.send_many(messages[start : start + BATCH])
    elif mode == "async":
        for message in messages:
            await producer.enqueue(message)
        await producer.flush()
    elif mode == "oneway":
        for message in messages:
            await producer.send_oneway(message)
    elif mode == "orderly":
        for number, message in zip(numbers, messages, strict=True):
            queue_id = number % int(options["queues"])
            queue = MessageQueue(topic, options["broker"], queue_id)
            await producer.send(message, queue=queue)
    else:
        for message in messages:
            await until_sent(producer, message, level)
    return len(messages)


async def until_sent(producer: Producer, message: Message, level: int | None) -> None:
    try:
        await producer.send(message, delay_level=level)
    except ClientError as error:
        say(event="warned", error=str(error))
        await anyio.sleep(1)
        await producer.send(message, delay_level=level)


async def send_transactions(
    producer: Producer, topic: str, numbers: range, options: Options
) -> int:
    for number in numbers:
        message = make(topic, number, options)
        async with producer.transaction(message) as transaction:
            if number % 3 == 1:
                transaction.rollback()
            elif number % 3 == 2:
                transaction.leave_open()
    return len(numbers)


async def send_requests(
    producer: Producer, topic: str, numbers: range, options: Options
) -> int:
    for number in numbers:
        message = make(topic, number, options)
        reply = await producer.request(message, timeout_s=20)
        found = bytes(reply.body)
        texts = [f"Tag{number % 3}", f"Key{number}", str(number), NAME]
        parts = [found, *(text.encode() for text in texts)]
        say(
            event="received",
            number=number,
            digest=hashlib.sha256(b"\0".join(parts)).hexdigest(),
        )
    return len(numbers)


async def push(namesrv: str, topic: str, _count: int, options: Options) -> None:
    failures = int(options.get("fail", 0))
    wanted: str = options.get("tags", "*")
    if "sql" in options:
        wanted = Sql(options["sql"])
    client = client_of(namesrv, options, "one")
    ages: list[int] = []
    async with (
        client,
        Producer(client, group="interop-replies") as replier,
        Consumer(
            client,
            options.get("group", "interop"),
            {topic: wanted},
            start="first",
            ordered=options.get("order") == "true",
            broadcast=options.get("model") == "BROADCASTING",
            mode="pop" if options.get("pop") == "true" else "auto",
            max_attempts=int(options["max"]) if "max" in options else None,
        ) as consumer,
        anyio.create_task_group() as tasks,
    ):

        async def handle(message: ReceivedMessage) -> None:
            if "timed" in options:
                began_ns = int.from_bytes(message.body[:8], "big")
                ages.append(time.monotonic_ns() - began_ns)
                return
            say_received(message)
            if options.get("reply") == "true":
                await replier.reply(message, message.body)
            if message.attempt <= failures:
                raise ValueError("it is to fail")

        async def until_input_ends() -> None:
            await anyio.to_thread.run_sync(sys.stdin.read)
            consumer.stop()

        tasks.start_soon(until_input_ends)
        say(event="ready")
        await consumer.run(handle)
    timed = sorted(ages[int(options.get("timed", 0)) :]) or [0]
    p50, p99 = (timed[len(timed) * part // 100] for part in (50, 99))
    say(event="done", count=len(ages), p50_ns=p50, p99_ns=p99)


async def pull(namesrv: str, topic: str, count: int, options: Options) -> None:
    client = client_of(namesrv, options, "one")
    received = 0
    async with client, Consumer(client, options.get("group", "interop")) as consumer:
        queues = await consumer.queues(topic)
        consumer.assign(queues)
        for queue in queues:
            await consumer.seek(queue, int(options.get("offset", 0)))
        while received < count:
            for message in await consumer.fetch():
                say_received(message)
                received += 1
        await consumer.commit()
    say(event="done", count=received)


if __name__ == "__main__":
    scenario, address, topic_name, message_count = sys.argv[1:5]
    choices = dict(option.split("=", 1) for option in sys.argv[5:])
    anyio.run(
        {"send": send, "push": push, "pull": pull}[scenario],
        address,
        topic_name,
        int(message_count),
        choices,
        backend=choices.get("loop", "asyncio"),
    )
