"""Producer and push consumer of the C++ core behind PyPI `rocketmq`.

Runs in a virtual environment of its own:  pip_client.py produce|consume NAMESRV TOPIC
COUNT
"""

import hashlib
import sys
import threading

from rocketmq.client import Message, Producer, PushConsumer


def body_of(number: int) -> str:
    return f"message {number} 日本語 é 😀 " + "x" * (number % 200)


def digest(body: bytes, tags: bytes, keys: bytes) -> str:
    return hashlib.sha256(b"\0".join((body, tags, keys))).hexdigest()


def produce(namesrv: str, topic: str, count: int) -> None:
    producer = Producer("interop-pip-producer")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    sent = 0
    for number in range(count):
        message = Message(topic)
        message.set_tags(f"Tag{number % 3}")
        message.set_keys(f"Key{number}")
        message.set_property("number", str(number))
        message.set_body(body_of(number))
        sent += producer.send_sync(message).status == 0
    producer.shutdown()
    print("sent", sent, flush=True)


def consume(namesrv: str, topic: str, count: int, timeout_s: float) -> None:
    consumer = PushConsumer("interop-pip-consumer")
    consumer.set_namesrv_addr(namesrv)
    seen: dict[str, str] = {}
    done = threading.Event()

    def take(message) -> None:
        seen[message.id] = digest(
            bytes(message.body), bytes(message.tags or b""), bytes(message.keys or b"")
        )
        if len(seen) >= count:
            done.set()

    consumer.subscribe(topic, take)
    consumer.start()
    done.wait(timeout_s)
    consumer.shutdown()
    for line in seen.values():
        print(line)
    print("received", len(seen), flush=True)


if __name__ == "__main__":
    mode, address, topic_name, message_count = sys.argv[1:5]
    if mode == "produce":
        produce(address, topic_name, int(message_count))
    else:
        consume(address, topic_name, int(message_count), 90)
