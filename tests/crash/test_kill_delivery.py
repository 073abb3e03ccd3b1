"""kill -9 inside send-backs, delayed and timed deliveries and ends of transactions.

Nothing that was acknowledged is lost, nothing that was rolled back is served, and no
transaction is committed twice. A delivery whose progress was not saved is repeated:
delayed, timed messages and retries come at least once, and how often is counted.
"""

import signal
import socket
import threading
import time
from collections import Counter

import pytest

from rmq._fastpath import decode_record
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from tests.crash.laboratory import (
    body_of,
    broker,
    damages_of,
    dice,
    number_of,
    open_store,
    rounds,
)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

PLAIN, DELAYED, COMMITTED, RETRIED = "Plain", "Delayed", "Committed", "%RETRY%G"
TIMED = "Timed"
TOPICS = PLAIN, DELAYED, COMMITTED, RETRIED, TIMED
SETTINGS = {"messageDelayLevel": "1s", "flushDelayOffsetInterval": 200}
COMMIT, ROLLBACK = 8, 12
LEAST_S, MOST_S = 0.1, 1.8
"""When a broker is killed; deliveries begin after the first second."""


class Traffic:
    """One request after the other; what was acknowledged."""

    def __init__(self):
        self.wanted = {topic: set() for topic in TOPICS}
        self.rolled_back = set()
        self._number = 0

    def run(self, address, child, duration_s):
        """Send until the broker is killed, after so long."""
        timer = threading.Timer(duration_s, child.send_signal, [signal.SIGKILL])
        timer.start()
        try:
            with socket.create_connection(address, timeout=10) as connection:
                while True:
                    self._round(connection)
        except OSError:
            timer.join()
            child.wait(20)

    def _round(self, connection):
        number, sent = self._send(connection, PLAIN)
        self.wanted[PLAIN].add(number)
        fields = {"offset": _log_offset(sent), "group": "G", "delayLevel": 1}
        _call(connection, RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        self.wanted[RETRIED].add(number)
        number, _ = self._send(connection, DELAYED, DELAY=1)
        self.wanted[DELAYED].add(number)
        number, _ = self._send(connection, TIMED, TIMER_DELAY_MS=number % 3_000)
        self.wanted[TIMED].add(number)
        self._transaction(connection, COMMIT, self.wanted[COMMITTED])
        self._transaction(connection, ROLLBACK, self.rolled_back)

    def _transaction(self, connection, ending, numbers):
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
        _call(connection, RequestCode.END_TRANSACTION, fields)
        numbers.add(number)

    def _send(self, connection, topic, *, flag=0, **properties):
        number = self._number
        self._number += 1
        fields = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 2, "queueId": number % 2, "sysFlag": flag,
            "bornTimestamp": 1, "flag": 0, "reconsumeTimes": 0, "unitMode": "false",
            "properties": "".join(f"{k}\x01{v}\x02" for k, v in properties.items()),
        }  # fmt: skip
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
    """How often each number is served, by topic."""
    found = {}
    for queue in store.queues:
        if queue.topic in TOPICS:
            numbers = found.setdefault(queue.topic, Counter())
            for offset in range(queue.min_offset, queue.next_offset):
                result = store.reads.get(queue.topic, queue.queue_id, offset, 1)
                numbers[number_of(decode_record(result.body).body)] += 1
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
        found = served(store)
    finally:
        store.close()
    lost = {topic: traffic.wanted[topic] - found[topic].keys() for topic in found}
    again = {topic: found[topic].total() - len(found[topic]) for topic in found}
    assert not any(lost.values()), lost
    assert not traffic.rolled_back & found[COMMITTED].keys()
    assert again[PLAIN] == again[COMMITTED] == 0
    assert not damages_of(root)
    wanted = ", ".join(f"{topic} {len(n)}" for topic, n in traffic.wanted.items())
    print(f"{count} kills; acknowledged: {wanted}; 0 lost; repeated: {again}")  # noqa: T201
    assert all(len(numbers) > count for numbers in traffic.wanted.values())
