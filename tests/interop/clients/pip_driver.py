"""pip_driver.py send|push|pull NAMESRV TOPIC COUNT [name=value ...], see drivers.py.

Runs in a virtual environment of its own, with the C++ core behind PyPI `rocketmq`.
"""

import hashlib
import json
import sys
import threading
import time
from ctypes import CFUNCTYPE, c_void_p, string_at
from typing import NamedTuple

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import MessageModel, _CConsumeStatus, dll

NAME = "日本 é 😀"
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
MAX_MESSAGE_SIZE = 4 << 20
BATCH = 10


class Queue(NamedTuple):
    """As the client names the parts of a queue."""

    topic: bytes
    queueId: int


_printing = threading.Lock()

_body_at = CFUNCTYPE(c_void_p, c_void_p)(("GetMessageBody", dll))
"""Where a body begins: as text, as the wrapper has it, it ends at its first zero."""


def say(**report) -> None:
    with _printing:
        print(json.dumps(report), flush=True)


def body_of(number: int, size: int) -> bytes:
    body = bytearray(f"message {number} 日本語 é 😀 {'x' * (number % 200)}".encode())
    state = number
    while len(body) < size:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        body.append(LETTERS[(state >> 16) & 63])
    return bytes(body)


def make(topic: str, number: int, options: dict[str, str]) -> Message:
    message = Message(topic)
    message.set_tags(f"Tag{number % 3}")
    message.set_keys(f"Key{number}")
    message.set_property("number", str(number))
    message.set_property("name", NAME)
    message.set_body(body_of(number, int(options.get("size", 0))))
    if "delay" in options:
        message.set_delay_time_level(int(options["delay"]))
    return message


def say_received(message) -> None:
    number, name = bytes(message["number"]), bytes(message["name"])
    parts = (
        bytes(message.body),
        bytes(message.tags),
        bytes(message.keys),
        number,
        name,
    )
    say(
        event="received",
        number=int(number),
        digest=hashlib.sha256(b"\0".join(parts)).hexdigest(),
        queue=message.queue_id,
        offset=message.queue_offset,
        times=message.reconsume_times,
        age=int(time.time() * 1_000) - message.born_timestamp,
    )


def send(namesrv: str, topic: str, count: int, options: dict[str, str]) -> None:
    producer = Producer("interop-producer", timeout=10_000)
    producer.set_max_message_size(MAX_MESSAGE_SIZE)
    producer.set_namesrv_addr(namesrv)
    producer.start()
    mode, first = options.get("mode", "sync"), int(options.get("first", 0))
    messages = [make(topic, number, options) for number in range(first, first + count)]
    sent = 0
    if mode == "batch":
        for start in range(0, count, BATCH):
            batch = messages[start : start + BATCH]
            sent += len(batch) * (producer.send_batch(batch).status == 0)
    elif mode == "oneway":
        for message in messages:
            producer.send_oneway(message)
            sent += 1
        time.sleep(1)
    elif mode == "async":
        sent = send_async(producer, messages)
    elif mode == "orderly":
        for number, message in enumerate(messages, first):
            sent += producer.send_orderly(message, number).status == 0
    else:
        for message in messages:
            sent += producer.send_sync(message).status == 0
    producer.shutdown()
    say(event="done", count=sent)


def send_async(producer: Producer, messages: list[Message]) -> int:
    left = threading.Semaphore(0)
    good = []

    def succeeded(result) -> None:
        good.append(result)
        left.release()

    def failed(error) -> None:
        say(event="failed", error=str(error))
        left.release()

    for message in messages:
        producer.send_async(message, succeeded, failed)
    for _ in messages:
        if not left.acquire(timeout=30):
            break
    return len(good)


def say_times(ages: list[int], first: int) -> None:
    timed = sorted(ages[first:]) or [0]
    p50, p99 = (timed[len(timed) * part // 100] for part in (50, 99))
    say(event="done", count=len(ages), p50_ns=p50, p99_ns=p99)


def push(namesrv: str, topic: str, _count: int, options: dict[str, str]) -> None:
    consumer = PushConsumer(
        options.get("group", "interop"),
        orderly=options.get("order") == "true",
        message_model=MessageModel[options.get("model", "CLUSTERING")],
    )
    consumer.set_instance_name(options.get("instance", "one"))
    consumer.set_namesrv_addr(namesrv)
    ages: list[int] = []
    subscribe(consumer, topic, options, ages)
    consumer.start()
    say(event="ready")
    sys.stdin.read()
    consumer.shutdown()
    say_times(ages, int(options.get("timed", 0)))


def subscribe(
    consumer: PushConsumer, topic: str, options: dict[str, str], ages: list[int]
) -> None:
    """As `PushConsumer.subscribe`, whose listeners succeed even where they raise."""
    failures = int(options.get("fail", 0))

    def listen(_consumer: object, handle: object) -> int:
        message = RecvMessage(handle)
        if "timed" in options:
            began_ns = int.from_bytes(string_at(_body_at(message._handle), 8), "big")
            ages.append(time.monotonic_ns() - began_ns)
        else:
            say_received(message)
        is_failing = message.reconsume_times < failures
        status = "RECONSUME_LATER" if is_failing else "CONSUME_SUCCESS"
        return _CConsumeStatus[status].value

    expression = options.get("tags", "*")
    ffi_check(dll.Subscribe(consumer._handle, topic.encode(), expression.encode()))
    consumer._register_callback(listen)


def pull(namesrv: str, topic: str, _count: int, options: dict[str, str]) -> None:
    consumer = PullConsumer(options.get("group", "interop"))
    consumer.set_namesrv_addr(namesrv)
    consumer.start()
    for queue_id in range(int(options.get("queues", 4))):
        queue = Queue(topic.encode(), queue_id)
        consumer.set_message_queue_offset(queue, int(options.get("offset", 0)))
    received = 0
    for message in consumer.pull(topic):
        say_received(message)
        received += 1
    consumer.shutdown()
    say(event="done", count=received)


if __name__ == "__main__":
    scenario, address, topic_name, message_count = sys.argv[1:5]
    choices = dict(option.split("=", 1) for option in sys.argv[5:])
    {"send": send, "push": push, "pull": pull}[scenario](
        address, topic_name, int(message_count), choices
    )
