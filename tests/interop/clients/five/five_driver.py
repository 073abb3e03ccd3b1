"""five_driver.py send|push|simple ENDPOINTS TOPIC COUNT [name=value ...], see five.py.

five_driver.py repeat ENDPOINTS TOPIC SENDERS group=GROUP, see groups.py. Each sender
sends one number after the other until it is acknowledged. A consumer acks all messages
that it receives. The output has lines of words. With `keepalive=true` the SDK pings
silent brokers, as examples/grpc/keepalive.py lets it.

Runs in a virtual environment of its own, with PyPI `rocketmq-python-client`.
"""

import hashlib
import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "grpc"
NAME = "日本 é 😀"
RETRY_PAUSE_S = 0.5
_printing = threading.Lock()


def say(**report) -> None:
    with _printing:
        print(json.dumps(report), flush=True)


def body_of(number: int) -> bytes:
    return f"message {number} 日本語 é 😀 {'x' * (number % 200)}".encode()


def make(topic: str, number: int, options: dict[str, str]) -> Message:
    message = Message()
    message.topic = topic
    message.body = body_of(number)
    message.tag = f"Tag{number % 3}"
    message.keys = f"Key{number}"
    message.add_property("number", str(number))
    message.add_property("name", NAME)
    kind = options.get("kind", "normal")
    if kind == "fifo":
        message.message_group = f"group{number % 4}"
    if kind in ("delay", "recall"):
        message.delivery_timestamp = int(time.time()) + int(options["delay"]) // 1000
    return message


def uses_tls(options: dict[str, str]) -> bool:
    return options.get("tls") == "true"


def say_received(message: Message) -> None:
    properties = message.properties
    digest = hashlib.sha256(message.body)
    texts = (message.tag, *message.keys, properties["number"], properties["name"])
    for text in texts:
        digest.update(b"\0" + text.encode())
    say(
        event="received",
        number=int(properties["number"]),
        digest=digest.hexdigest(),
        attempt=message.delivery_attempt,
        at=int(time.time() * 1000),
        due=message.delivery_timestamp,
    )


class Checker(TransactionChecker):
    def check(self, message: Message) -> TransactionResolution:
        say(event="checked", number=int(message.properties["number"]))
        return TransactionResolution.COMMIT


def send(configuration, topic: str, count: int, options: dict[str, str]) -> None:
    kind = options.get("kind", "normal")
    checker = Checker() if kind == "transaction" else None
    producer = Producer(
        configuration, (topic,), checker=checker, tls_enable=uses_tls(options)
    )
    producer.startup()
    first = int(options.get("first", 0))
    for number in range(first, first + count):
        while not send_one(producer, topic, number, kind, options):
            time.sleep(RETRY_PAUSE_S)
        time.sleep(int(options.get("every", 0)) / 1000)
    say(event="sent")
    if kind == "transaction":
        sys.stdin.read()
    producer.shutdown()
    say(event="done", count=count)


def send_one(producer, topic: str, number: int, kind: str, options) -> bool:
    message = make(topic, number, options)
    try:
        if kind == "transaction":
            transaction = producer.begin_transaction()
            producer.send(message, transaction)
            if number % 3 == 0:
                transaction.commit()
            elif number % 3 == 1:
                transaction.rollback()
            return True
        receipt = producer.send(message)
        if kind == "recall" and number % 2:
            producer.recall_message(topic, receipt.recall_handle)
    except Exception as error:
        if "retry" not in options:
            raise
        say(event="warned", error=str(error))
        return False
    return True


def expression(options: dict[str, str]) -> FilterExpression:
    if "sql" in options:
        return FilterExpression(options["sql"], FilterType.SQL)
    return FilterExpression(options.get("tags", "*"))


class Listener(MessageListener):
    def __init__(self, failures: int) -> None:
        self._failures = failures

    def consume(self, message: Message) -> ConsumeResult:
        say_received(message)
        if message.delivery_attempt <= self._failures:
            return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS


def push(configuration, topic: str, options: dict[str, str]) -> None:
    listener = Listener(int(options.get("fail", 0)))
    wanted = {topic: expression(options)}
    consumer = PushConsumer(
        configuration,
        options["group"],
        listener,
        wanted,
        tls_enable=uses_tls(options),
    )
    consumer.startup()
    say(event="ready")
    sys.stdin.read()
    consumer.shutdown()
    say(event="done", count=0)


def simple(configuration, topic: str, count: int, options: dict[str, str]) -> None:
    consumer = SimpleConsumer(
        configuration,
        options["group"],
        {topic: expression(options)},
        5,
        tls_enable=uses_tls(options),
    )
    consumer.startup()
    say(event="ready")
    done: set[int] = set()
    while len(done) < count:
        try:
            take(consumer, done, options)
        except Exception as error:
            say(event="warned", error=str(error))
            time.sleep(RETRY_PAUSE_S)
    consumer.shutdown()
    say(event="done", count=len(done))


def take(consumer, done: set[int], options: dict[str, str]) -> None:
    """Ack what one request brings, but for what `change` and `forget` say."""
    change, forget = int(options.get("change", 0)), int(options.get("forget", 0))
    for message in consumer.receive(16, int(options.get("invisible", 15))) or ():
        say_received(message)
        if change and message.delivery_attempt == 1:
            consumer.change_invisible_duration(message, change)
        elif message.delivery_attempt > forget:
            consumer.ack(message)
            done.add(int(message.properties["number"]))


def say_line(*words: object) -> None:
    with _printing:
        print(*words, flush=True)


def repeat(configuration, topic: str, senders: int, options: dict[str, str]) -> None:
    ended = threading.Event()
    producer = Producer(configuration, (topic,))
    producer.startup()
    consumer = SimpleConsumer(
        configuration, options["group"], {topic: FilterExpression("*")}, 5
    )
    consumer.startup()
    threads = [
        threading.Thread(target=repeat_sends, args=(producer, topic, sender, ended))
        for sender in range(senders)
    ]
    threads.append(threading.Thread(target=repeat_receives, args=(consumer,)))
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads[:-1]:
        thread.join()
    say_line("sent")
    threads[-1].join()  # until this process is killed


def repeat_sends(producer, topic: str, sender: int, ended: threading.Event) -> None:
    number = 0
    while not ended.is_set():
        message = Message()
        message.topic, message.body = topic, b"%d:%d" % (sender, number)
        try:
            producer.send(message)
        except Exception:
            say_line("failed", sender)
            time.sleep(0.05)
            continue
        say_line("acknowledged", sender, number)
        number += 1
        time.sleep(0.01)


def repeat_receives(consumer) -> None:
    while True:
        try:
            for message in consumer.receive(32, 15) or ():
                consumer.ack(message)
                say_line("received", *message.body.decode().split(":"))
        except Exception:
            time.sleep(RETRY_PAUSE_S)


def main() -> None:
    scenario, endpoints, topic, count, *rest = sys.argv[1:]
    options = dict(option.split("=", 1) for option in rest)
    configuration = ClientConfiguration(endpoints, Credentials(), "", 5)
    if options.get("keepalive") == "true":
        sys.path.insert(0, str(EXAMPLES))
        importlib.import_module("keepalive")
    if "authority" in options:
        os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = options["authority"]
    if scenario == "send":
        send(configuration, topic, int(count), options)
    elif scenario == "push":
        push(configuration, topic, options)
    elif scenario == "repeat":
        repeat(configuration, topic, int(count), options)
    else:
        simple(configuration, topic, int(count), options)


main()
