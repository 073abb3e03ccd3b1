"""receive.py TOPIC GROUP COUNT: receive and acknowledge messages one by one."""

import os
import sys
import time

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    SimpleConsumer,
)

topic, group, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
endpoints = os.environ.get("ENDPOINTS", "127.0.0.1:10911")
consumer = SimpleConsumer(
    ClientConfiguration(endpoints, Credentials()), group, {topic: FilterExpression()}
)
consumer.startup()
time.sleep(1)  # Java's proxy refuses a consumer until it has its settings
deadline = time.monotonic() + 60
while count and time.monotonic() < deadline:
    for message in consumer.receive(16, 15):
        print("received:", message.body.decode())
        consumer.ack(message)
        count -= 1
consumer.shutdown()
if count:
    raise SystemExit(f"{count} messages are missing after 60 s")
