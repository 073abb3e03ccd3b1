"""Send a message and receive it, with the Python client of RocketMQ's C++ core."""

import os
import threading

from rocketmq.client import Message, Producer, PushConsumer

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TEXT = "hello from Python"

producer = Producer("hello-python-producer")
producer.set_namesrv_addr(NAME_SERVER)
producer.start()
message = Message("Hello")
message.set_keys("hello-1")
message.set_tags("greeting")
message.set_body(TEXT)
result = producer.send_sync(message)
print("sent", result.msg_id)
producer.shutdown()

arrived = threading.Event()


def receive(received: object) -> None:
    """Print the message; others of the topic are of no interest here."""
    text = received.body.decode("utf-8", "replace")
    if text == TEXT:
        print("received:", text)
        arrived.set()


consumer = PushConsumer("hello-python-consumer")
consumer.set_namesrv_addr(NAME_SERVER)
consumer.subscribe("Hello", receive)
consumer.start()
if not arrived.wait(30):
    raise SystemExit("no message came in 30 s")
consumer.shutdown()
