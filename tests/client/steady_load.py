"""A steady load of a default client during an outage: sends, and what arrives."""

import asyncio
import os
import threading
import time

from rmq.client import Consumer, Message, Producer, blocking

RATE = int(os.environ.get("RMQ_RESTART_RATE", "1000"))
"""Sends in a second."""

RUN_S = 1.0
"""How long it sends before and after the outage."""

THREADS = 4


async def send_and_consume(name_server, outage, seen, errors):
    """Send at a steady rate while `outage` runs in a thread; return what was stored."""
    stored, has_ended = [], asyncio.Event()
    async with (
        Producer(name_server) as producer,
        Consumer(name_server, "group", "T", start="first") as consumer,
    ):

        async def send(number, key=None):
            try:
                await producer.send(Message("T", b"%d" % number), key=key)
            except Exception as error:
                errors.append(error)
            else:
                stored.append(b"%d" % number)

        async def send_keyed(number):
            await send(number, key=f"key {number % 10}")

        async def enqueue(number):
            await producer.enqueue(Message("T", b"%d" % number))
            stored.append(b"%d" % number)

        async def send_all():
            begun, tasks = time.monotonic(), []
            while not has_ended.is_set():
                due = int((time.monotonic() - begun) * RATE)
                for number in range(len(tasks), due):
                    call = (enqueue, send, send_keyed, send)[number % 4]
                    tasks.append(asyncio.create_task(call(number)))
                await asyncio.sleep(0.005)
            await asyncio.gather(*tasks)
            await producer.flush()

        async def receive():
            async for message in consumer:
                seen.add(message.body)

        receiving = asyncio.create_task(receive())
        sending = asyncio.create_task(send_all())
        await asyncio.sleep(RUN_S)
        await asyncio.to_thread(outage)
        await asyncio.sleep(RUN_S)
        has_ended.set()
        await sending
        while not seen.issuperset(stored):
            assert not receiving.done()
            await asyncio.sleep(0.05)
        consumer.stop()
        await receiving
    return stored


def send_and_consume_in_threads(name_server, outage, errors):
    """Do the same with the blocking classes, in threads; return what was stored."""
    seen, stored = set(), set()
    has_ended = threading.Event()
    with (
        blocking.Producer(name_server) as producer,
        blocking.Consumer(name_server, "group", "T", start="first") as consumer,
    ):

        def send(thread):
            number, begun = 0, time.monotonic()
            while not has_ended.is_set():
                body = b"%d-%d" % (thread, number)
                try:
                    if number % 3 == 0:
                        producer.send(Message("T", body))
                    elif number % 3 == 1:
                        producer.send(Message("T", body), key=f"key {thread}")
                    else:
                        producer.enqueue(Message("T", body))
                except Exception as error:
                    errors.append(error)
                stored.add(body)
                number += 1
                due = begun + number * THREADS / RATE
                time.sleep(max(0, due - time.monotonic()))

        def receive():
            for message in consumer:
                seen.add(message.body)

        threads = [threading.Thread(target=send, args=[n]) for n in range(THREADS)]
        receiver = threading.Thread(target=receive)
        for each in (*threads, receiver):
            each.start()
        time.sleep(RUN_S)
        outage()
        time.sleep(RUN_S)
        has_ended.set()
        for each in threads:
            each.join()
        producer.flush()
        while not seen >= stored:
            assert receiver.is_alive()
            time.sleep(0.05)
        consumer.stop()
        receiver.join()
    return stored
