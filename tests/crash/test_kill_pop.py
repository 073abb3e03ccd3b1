"""kill -9 while consumers pop, ack and hide messages.

Every message whose send was answered is popped until somebody acks it, however often
the broker dies. How often a message came again after its ack is counted.
"""

import signal
import socket
from collections import Counter

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.records import decode_stored
from tests.crash.laboratory import (
    body_of,
    broker,
    damages_of,
    dice,
    killed_after,
    number_of,
    rounds,
)
from tests.history import History
from tests.interop import wire

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SETTINGS = {"brokerName": "b"}
LEAST_S, MOST_S = 0.1, 3.0
INVISIBLE_MS = 2_000


class Consumer:
    """Sends and pops on one connection; acks two of three messages."""

    def __init__(self):
        self.history = History()
        self.acked = set()
        self.again = Counter()
        self._number = 0

    def run(self, address, child, duration_s):
        """Work until the broker is killed, after so long."""
        with (
            killed_after(child, duration_s),
            socket.create_connection(address, timeout=10) as connection,
        ):
            while True:
                for _ in range(8):
                    self._send(connection)
                self.pop(connection)

    def _send(self, connection):
        number, self._number = self._number, self._number + 1
        fields = {
            "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 2, "queueId": number % 2, "sysFlag": 0,
            "bornTimestamp": 1, "flag": 0, "reconsumeTimes": 0, "unitMode": "false",
            "properties": "",
        }  # fmt: skip
        self.history.invoke(number)
        call(connection, RequestCode.SEND_MESSAGE, fields, body_of(number))
        self.history.answer(number)

    def pop(self, connection, poll_ms=0, *, takes_all=False):
        """Pop once; return how many messages came."""
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 32,
            "invisibleTime": INVISIBLE_MS, "pollTime": poll_ms, "bornTime": 0,
            "initMode": 0, "order": "false",
        }  # fmt: skip
        answer = call(connection, RequestCode.POP_MESSAGE, fields)
        if answer.code:
            return 0
        records = decode_stored(answer.body)
        for record, (topic, queue_id, offset, handle) in zip(
            records, handles(answer.ext_fields), strict=True
        ):
            number = number_of(record.body)
            self.again[number] += number in self.acked
            kept = {
                "consumerGroup": "G", "topic": topic, "queueId": queue_id,
                "offset": offset, "extraInfo": handle,
            }  # fmt: skip
            if takes_all or number % 3:
                call(connection, RequestCode.ACK_MESSAGE, kept)
                self.acked.add(number)
            elif number % 2:
                kept["invisibleTime"] = 1_000
                call(connection, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, kept)
        return len(records)


def handles(fields):
    """Topic, queue, offset and handle of each message of an answer."""
    return wire.pop_handles(fields, "b", "T", "%RETRY%G_T")


def call(connection, code, fields, body=b""):
    texts = {name: str(value) for name, value in fields.items()}
    connection.sendall(encode(Command(code, texts, body, opaque=1)))
    decoder = FrameDecoder()
    while True:
        data = connection.recv(1 << 20)
        if not data:
            raise ConnectionResetError("killed")
        for answer in decoder.feed(data):
            assert answer.code in (0, 209, 210), answer
            return answer


def test_what_nobody_acked_comes_again(tmp_path):
    chance, consumer, root = dice(), Consumer(), tmp_path / "store"
    count = rounds(8)
    for _ in range(count):
        with broker(root, **SETTINGS) as (child, address):
            consumer.run(address, child, chance.uniform(LEAST_S, MOST_S))
    with broker(root, **SETTINGS) as (child, address):
        with socket.create_connection(address, timeout=10) as connection:
            empty = 0
            while empty < 2:
                found = consumer.pop(connection, 4 * INVISIBLE_MS, takes_all=True)
                empty = 0 if found else empty + 1
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
    again = consumer.again.total()
    assert not consumer.history.faults((number, None) for number in consumer.acked)
    assert not damages_of(root)
    print(f"{count} kills; {len(consumer.acked)} acked, 0 lost; {again} came again")  # noqa: T201
