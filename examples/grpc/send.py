"""send.py TOPIC TEXT [GROUP]: send one message, to a FIFO topic with its group."""

import os
import sys

from rocketmq import ClientConfiguration, Credentials, Message, Producer

topic, text, *group = sys.argv[1:]
endpoints = os.environ.get("ENDPOINTS", "127.0.0.1:10911")
producer = Producer(ClientConfiguration(endpoints, Credentials()), (topic,))
producer.startup()
message = Message()
message.topic = topic
message.body = text.encode()
message.tag = "greeting"
if group:
    message.message_group = group[0]
print("sent", producer.send(message).message_id)
producer.shutdown()
