"""delay.py TOPIC: two messages for later; one of them is recalled."""

import os
import sys
import time

from rocketmq import ClientConfiguration, Credentials, Message, Producer

topic = sys.argv[1]
endpoints = os.environ.get("ENDPOINTS", "127.0.0.1:10911")
producer = Producer(ClientConfiguration(endpoints, Credentials()), (topic,))
producer.startup()
for text in ("in five seconds", "never"):
    message = Message()
    message.topic = topic
    message.body = text.encode()
    message.delivery_timestamp = int(time.time()) + 5
    receipt = producer.send(message)
    print("sent", receipt.message_id)
    if text == "never":
        print("recalled", producer.recall_message(topic, receipt.recall_handle))
producer.shutdown()
