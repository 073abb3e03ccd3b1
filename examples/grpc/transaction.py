"""transaction.py TOPIC: one message committed, one rolled back, one asked about."""

import os
import sys
import threading

from rocketmq import (
    ClientConfiguration,
    Credentials,
    Message,
    Producer,
    TransactionChecker,
    TransactionResolution,
)

asked = threading.Event()


class Checker(TransactionChecker):
    """Answers when the broker asks how a transaction ended."""

    def check(self, message: Message) -> TransactionResolution:
        """Say that it ended well."""
        print("asked about:", message.body.decode())
        asked.set()
        return TransactionResolution.COMMIT


topic = sys.argv[1]
endpoints = os.environ.get("ENDPOINTS", "127.0.0.1:10911")
configuration = ClientConfiguration(endpoints, Credentials())
producer = Producer(configuration, (topic,), checker=Checker())
producer.startup()
for text in ("committed", "rolled back", "unknown at first"):
    message = Message()
    message.topic = topic
    message.body = text.encode()
    transaction = producer.begin_transaction()
    producer.send(message, transaction)
    if text == "committed":
        transaction.commit()
    if text == "rolled back":
        transaction.rollback()
if not asked.wait(60):
    raise SystemExit("the broker did not ask in 60 s")
producer.shutdown()
