"""kill -9 inside send-backs, delayed and timed deliveries and ends of transactions.

Nothing that was acknowledged is lost, nothing that was rolled back is served, nothing
is delivered before its time, and no transaction is committed twice. A delivery whose
progress was not saved is repeated: delayed, timed messages and retries come at least
once, and how often is counted.
"""

import signal
import socket
import time
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
    messages_of,
    number_of,
    open_store,
    rounds,
)
from tests.history import History, Place

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

PLAIN, DELAYED, COMMITTED, RETRIED = "Plain", "Delayed", "Committed", "%RETRY%G"
TIMED = "Timed"
TOPICS = PLAIN, DELAYED, COMMITTED, RETRIED, TIMED
SETTINGS = {"messageDelayLevel": "1s", "flushDelayOffsetInterval": 200}
LEVEL_MS = 1_000
LONGEST_MS = 3_000
COMMIT, ROLLBACK = 8, 12
LEAST_S, MOST_S = 0.1, 1.8
"""When a broker is killed; deliveries begin after the first second."""


class Traffic:
    """One request after the other; a message is known by its topic and number."""

    def __init__(self):
        self.history = History()
        self.wanted = Counter()
        self._number = 0

    def run(self, address, child, duration_s):
        """Send until the broker is killed, after so long."""
        with (
            killed_after(child, duration_s),
            socket.create_connection(address, timeout=10) as connection,
        ):
            while True:
                self._round(connection)

    def _round(self, connection):
        number, sent = self._send(connection, PLAIN)
        place = Place(PLAIN, int(sent["queueId"]), int(sent["queueOffset"]))
        self._acknowledge(PLAIN, number, place)
        fields = {"offset": _log_offset(sent), "group": "G", "delayLevel": 1}
        self.history.invoke((RETRIED, number))
        _call(connection, RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        self._acknowledge(RETRIED, number)
        number, _ = self._send(connection, DELAYED, DELAY=1)
        self._acknowledge(DELAYED, number)
        number, _ = self._send(connection, TIMED, TIMER_DELAY_MS=number % LONGEST_MS)
        self._acknowledge(TIMED, number)
        self._transaction(connection, COMMIT)
        self._transaction(connection, ROLLBACK)

    def _acknowledge(self, topic, number, place=None):
        self.history.answer((topic, number), 0, place)
        self.wanted[topic] += 1

    def _transaction(self, connection, ending):
        number, half = self._send(
            connection, COMMITTED, flag=4, TRAN_MSG="true", PGROUP="P"
        )
        fields = {
            "producerGroup": "P",
            "tranStateTableOffset": half["queueOffset"],
            "commitLogOffset": _log_offset(half),
            "commitOrRollback": ending,
            "fromTransactionCheck": "false",
            "msgId": half["msgId"],
        }
        if ending == COMMIT:
            self.history.invoke((COMMITTED, number))
        _call(connection, RequestCode.END_TRANSACTION, fields)
        if ending == COMMIT:
            self._acknowledge(COMMITTED, number)

    def _send(self, connection, topic, *, flag=0, **properties):
        number = self._number
        self._number += 1
        fields = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 2, "queueId": number % 2, "sysFlag": flag,
            "bornTimestamp": time.time_ns() // 1_000_000, "flag": 0,
            "reconsumeTimes": 0, "unitMode": "false",
            "properties": "".join(f"{k}\x01{v}\x02" for k, v in properties.items()),
        }  # fmt: skip
        if topic != COMMITTED:
            self.history.invoke((topic, number))
        body = body_of(number)
        return number, _call(connection, RequestCode.SEND_MESSAGE, fields, body)


def _log_offset(sent):
    return int(sent["msgId"][16:32], 16)


def _call(connection, code, fields, body=b""):
    texts = {name: str(value) for name, value in fields.items()}
    connection.sendall(encode(Command(code, texts, body, opaque=1)))
    decoder = FrameDecoder()
    while True:
        data = connection.recv(65536)
        if not data:
            raise ConnectionResetError("killed")
        for answer in decoder.feed(data):
            assert answer.code == 0, answer
            return answer.ext_fields


def max_offsets(address):
    """Ends of the queues that are delivered to."""
    with socket.create_connection(address, timeout=10) as connection:
        return [
            _call(
                connection, RequestCode.GET_MAX_OFFSET,
                {"topic": topic, "queueId": queue_id},
            )["offset"]
            for topic, queue_id in (
                (DELAYED, 0), (DELAYED, 1), (RETRIED, 0), (TIMED, 0), (TIMED, 1),
            )
        ]  # fmt: skip


def deliver_the_rest(root):
    """Start once more until nothing is delivered for a time; stop in order."""
    with broker(root, **SETTINGS) as (child, address):
        before = None
        while before != (before := max_offsets(address)):
            time.sleep(3.5)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0


def served(store):
    """Everything in the queues that are delivered to, with its place."""
    found = messages_of(store, TOPICS)
    return [((place.topic, number), place) for number, place in found]


def early(store):
    """Topics and numbers of messages that were delivered before their time."""
    found = []
    for queue in store.queues:
        if queue.topic not in (DELAYED, RETRIED, TIMED):
            continue
        for offset in range(queue.min_offset, queue.next_offset):
            body = store.reads.get(queue.topic, queue.queue_id, offset, 1).body
            [record] = decode_stored(body)
            delay_ms = int(record.properties.get("TIMER_DELAY_MS", LEVEL_MS))
            if record.store_timestamp - record.born_timestamp < delay_ms:
                found.append((queue.topic, number_of(record.body)))
    return found


def test_nothing_is_lost_between_a_promise_and_its_delivery(tmp_path):
    chance, traffic, root = dice(), Traffic(), tmp_path / "store"
    count = rounds(8)
    for _ in range(count):
        with broker(root, **SETTINGS) as (child, address):
            traffic.run(address, child, chance.uniform(LEAST_S, MOST_S))
    deliver_the_rest(root)
    store = open_store(root)
    try:
        found, too_early = served(store), early(store)
    finally:
        store.close()
    assert not traffic.history.faults(found, delayed=(DELAYED, RETRIED, TIMED))
    assert not too_early
    assert not damages_of(root)
    again = len(found) - len(dict(found))
    print(  # noqa: T201
        f"{count} kills; acknowledged: {dict(traffic.wanted)}; "
        f"0 lost; 0 early; {again} repeated"
    )
    assert min(traffic.wanted[topic] for topic in TOPICS) > count
