"""One data directory, opened by Java and by rmq in turn, and what each side serves.

Messages go by raw requests, so that every acknowledgement is known: queue, offsets,
body.  `served` reads everything back from a running broker.
"""

import hashlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.records import StoredMessage, decode_stored
from tests.history import History, Place
from tests.waiting import wait_until

from . import wire
from .processes import Server, broker_arguments, free_port
from .test_name_servers import java_server
from .toolchains import JavaServers

QUEUES = 4
TOPIC, LONG_TOPIC, TX_TOPIC, DELAY_TOPIC = "Swap", "L" * 127, "SwapTx", "SwapDelay"
GROUP = "interchange"
LONG_GROUP = "g" * 120
"""With its prefix a name of more than 127 characters: a record of version 2."""

RETRY, DLQ, LONG_RETRY = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}", f"%RETRY%{LONG_GROUP}"
TOPICS = {
    TOPIC: QUEUES, LONG_TOPIC: QUEUES, TX_TOPIC: QUEUES, DELAY_TOPIC: QUEUES,
    RETRY: 1, DLQ: 1, LONG_RETRY: 1,
}  # fmt: skip
COMMIT, ROLLBACK = 8, 12
CHECKS_S = 90
LOG_FILE_SIZE = 1 << 20
SETTINGS: dict[str, object] = {
    "brokerName": "broker-swap",
    "mappedFileSizeCommitLog": LOG_FILE_SIZE,
    "mappedFileSizeConsumeQueue": 20 * 200,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
    "flushConsumeQueueThoroughInterval": 1_000,
    "transactionTimeOut": 3_600_000,
    "transactionCheckInterval": 3_600_000,
    "timerWheelEnable": "false",
}
"""No checks of transactions: Java stores a half anew without saying of which it is."""

Row = tuple[int, str, str, str]
"""Place in the log, digest of the body, properties, born time and flags as text."""


class Acknowledged(NamedTuple):
    """What a broker said about a message that it took."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes


class Line:
    """One connection, one request at a time."""

    def __init__(self, address: str, timeout_s: float = 20) -> None:
        host, _, port = address.rpartition(":")
        where = host, int(port)
        self._stream = socket.create_connection(where, timeout=timeout_s)
        self._decoder = FrameDecoder()
        self._opaque = itertools.count(1)

    def call(self, code: int, fields: dict[str, Any], body: bytes = b"") -> Command:
        texts = {name: str(value) for name, value in fields.items()}
        opaque = next(self._opaque)
        request = Command(
            code, texts, body, opaque=opaque, language="PYTHON", version=513
        )
        self._stream.sendall(encode(request))
        while True:
            data = self._stream.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the broker is gone")
            for answer in self._decoder.feed(data):
                if answer.opaque == opaque:
                    return answer

    def asked(self) -> list[Command]:
        """Wait some time for requests of the broker."""
        self._stream.settimeout(0.5)
        try:
            return self._decoder.feed(self._stream.recv(1 << 16))
        except TimeoutError:
            return []

    def tell(self, code: int, fields: dict[str, Any], body: bytes = b"") -> None:
        """Ask without waiting for an answer, which is not wanted."""
        texts = {name: str(value) for name, value in fields.items()}
        request = Command(
            code, texts, body, opaque=next(self._opaque), flag=FLAG_ONEWAY,
            language="PYTHON", version=513,
        )  # fmt: skip
        self._stream.sendall(encode(request))

    def close(self) -> None:
        self._stream.close()


class Traffic:
    """Sends of every kind; a message is known by its topic and body.

    Java 4.9 does not know records of version 2, which a long group needs.
    """

    def __init__(self, *, has_long_group: bool = True) -> None:
        self.topics = dict(TOPICS)
        self._sent_back = [(GROUP, 1), (GROUP, -1)]
        if has_long_group:
            self._sent_back.append((LONG_GROUP, 1))
        else:
            del self.topics[LONG_RETRY]
        self.plain: list[Acknowledged] = []
        self.history = History()
        self.halves: list[tuple[dict[str, Any], bytes]] = []
        self._numbers = itertools.count()

    def run(self, address: str, count: int) -> None:
        """Plain messages, batches, delays, transactions, retries, dead letters."""
        line = Line(address)
        try:
            self._end_halves(line)
            for number in range(count):
                self._send(line, TOPIC, number % QUEUES)
                if number % 10 == 0:
                    self._send(line, LONG_TOPIC, number % QUEUES)
                    self._send_batch(line, number % QUEUES)
            self._send(line, DELAY_TOPIC, 1, DELAY=1)
            for ending in (COMMIT, ROLLBACK, None):
                self._send_half(line, ending)
            for group, level in self._sent_back:
                self._send_back(line, group, level)
            for queue_id in range(QUEUES):
                line.call(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {
                        "consumerGroup": GROUP,
                        "topic": TOPIC,
                        "queueId": queue_id,
                        "commitOffset": len(self.plain) // 8,
                    },
                )
        finally:
            line.close()

    def leave_pending(self, address: str, level: int, count: int) -> None:
        """Delayed messages, retries, and halves that nobody ends."""
        line = Line(address)
        try:
            for number in range(count):
                self._send(line, TOPIC, number % QUEUES)
                self._send_back(line, GROUP, level)
                self._send(line, DELAY_TOPIC, number % QUEUES, DELAY=level)
                self._send_half(line, None)
            self._send_back(line, LONG_GROUP, level)
            self._send_back(line, GROUP, -1)
        finally:
            line.close()

    def answer_checks(self, address: str, is_enough: Callable[[], bool]) -> None:
        """Be the producer of the open halves; every other one is rolled back."""
        endings = {}
        for number, (_, body) in enumerate(self.halves):
            endings[body] = ROLLBACK if number % 2 else COMMIT
        committed = [(TX_TOPIC, body) for body in endings if endings[body] == COMMIT]
        for key in committed:
            self.history.invoke(key)
        for key in committed:
            self.history.answer(key)
        self.halves.clear()
        line = Line(address)
        try:
            beat = b'{"clientID":"producer","producerDataSet":[{"groupName":"PG"}]}'
            self._sent(line.call(RequestCode.HEART_BEAT, {}, beat), "heartbeat")
            deadline = time.monotonic() + CHECKS_S
            while not is_enough():
                assert time.monotonic() < deadline, f"not in {CHECKS_S} s"
                for request in line.asked():
                    assert request.code == RequestCode.CHECK_TRANSACTION_STATE, request
                    (half,) = decode_stored(request.body)
                    end = {
                        "producerGroup": "PG",
                        "commitOrRollback": endings[half.body],
                        "fromTransactionCheck": "true",
                        **request.ext_fields,
                    }
                    line.tell(RequestCode.END_TRANSACTION, end)
        finally:
            line.close()

    def run_until_gone(self, address: str) -> None:
        """Plain messages one by one until the broker is gone."""
        line = Line(address)
        try:
            for number in itertools.count():
                self._send(line, TOPIC, number % QUEUES)
        except OSError:
            return
        finally:
            line.close()

    def _fields(self, topic: str, queue_id: int, text: str) -> dict[str, Any]:
        return {
            "a": "PG", "b": topic, "c": "TBW102", "d": QUEUES, "e": queue_id, "f": 0,
            "g": int(time.time() * 1000), "h": 0, "i": text, "j": 0, "k": "false",
        }  # fmt: skip

    def _message(self, **properties: object) -> tuple[bytes, str]:
        number = next(self._numbers)
        body = f"message {number} 日本語 {'x' * (number % 700)}".encode()
        known = {
            "UNIQ_KEY": f"{number:032X}",
            "KEYS": f"key{number}",
            "TAGS": f"tag{number % 3}",
            **properties,
        }
        return body, "".join(f"{k}\x01{v}\x02" for k, v in known.items())

    def _sent(self, answer: Command, what: str) -> dict[str, str]:
        assert answer.code == ResponseCode.SUCCESS, (what, answer.code, answer.remark)
        return answer.ext_fields

    def _send(
        self, line: Line, topic: str, queue_id: int, **properties: object
    ) -> None:
        body, text = self._message(**properties)
        fields = self._fields(topic, queue_id, text)
        self.history.invoke((topic, body))
        sent = self._sent(line.call(RequestCode.SEND_MESSAGE_V2, fields, body), topic)
        place = Place(topic, int(sent["queueId"]), int(sent["queueOffset"]))
        self.history.answer((topic, body), 0, None if topic == DELAY_TOPIC else place)
        if topic == TOPIC:
            self.plain.append(
                Acknowledged(
                    int(sent["queueId"]),
                    int(sent["queueOffset"]),
                    int(sent["msgId"][-16:], 16),
                    body,
                )
            )

    def _send_batch(self, line: Line, queue_id: int) -> None:
        messages = [self._message() for _ in range(3)]
        items = [BatchItem(0, body, text) for body, text in messages]
        fields = self._fields(TOPIC, queue_id, "") | {"m": "true"}
        for body, _ in messages:
            self.history.invoke((TOPIC, body))
        answer = line.call(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(items))
        self._sent(answer, "batch")
        for body, _ in messages:
            self.history.answer((TOPIC, body))

    def _send_half(self, line: Line, ending: int | None) -> None:
        """Without an ending it waits for the next broker to be committed."""
        body, text = self._message(TRAN_MSG="true", PGROUP="PG")
        fields = self._fields(TX_TOPIC, 0, text) | {"f": 4}
        sent = self._sent(line.call(RequestCode.SEND_MESSAGE_V2, fields, body), "half")
        own_key = text.partition("UNIQ_KEY\x01")[2].partition("\x02")[0]
        transaction = sent.get("transactionId", own_key)  # 4.9 does not say it
        end = {
            "producerGroup": "PG",
            "tranStateTableOffset": sent["queueOffset"],
            "commitLogOffset": int(sent["msgId"][-16:], 16),
            "commitOrRollback": ending or COMMIT,
            "fromTransactionCheck": "false",
            "msgId": transaction,
            "transactionId": transaction,
            "topic": TX_TOPIC,
        }
        if ending is None:
            self.halves.append((end, body))
            return
        if ending == ROLLBACK:
            self._sent(line.call(RequestCode.END_TRANSACTION, end), "end")
        else:
            self._commit(line, end, body)

    def _commit(self, line: Line, end: dict[str, Any], body: bytes) -> None:
        self.history.invoke((TX_TOPIC, body))
        self._sent(line.call(RequestCode.END_TRANSACTION, end), "end")
        self.history.answer((TX_TOPIC, body))

    def _end_halves(self, line: Line) -> None:
        for end, body in self.halves:
            self._commit(line, end, body)
        self.halves.clear()

    def _send_back(self, line: Line, group: str, level: int) -> None:
        message = self.plain[-1]
        fields = {
            "offset": message.physical_offset, "group": group, "delayLevel": level,
            "originMsgId": "", "originTopic": TOPIC, "unitMode": "false",
            "maxReconsumeTimes": 16,
        }  # fmt: skip
        key = f"%DLQ%{group}" if level < 0 else f"%RETRY%{group}", message.body
        self.history.invoke(key)
        self._sent(line.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields), "send back")
        self.history.answer(key)


def row_of(record: StoredMessage) -> Row:
    """What must not change when the other side reads it."""
    head = f"{record.born_timestamp} {record.sys_flag} {record.reconsume_times}"
    digest = hashlib.sha256(record.body).hexdigest()
    return record.physical_offset, digest, record.properties_text, head


def records_of(
    address: str, topics: Mapping[str, int] = TOPICS
) -> dict[tuple[str, int, int], StoredMessage]:
    """Everything in the queues of these topics, by topic, queue and offset."""
    found = {}
    for topic, queues in topics.items():
        for record in wire.pull(address, topic, queues=queues):
            place = topic, record.queue_id, record.queue_offset
            assert place not in found, f"{place} was served twice"
            found[place] = record
    return found


def served(address: str) -> dict[tuple[object, ...], object]:
    """All messages, ends of queues, committed offsets, and some look-ups by key."""
    records = records_of(address)
    state: dict[tuple[object, ...], object] = {
        place: row_of(record) for place, record in records.items()
    }
    for topic, queue_id in itertools.product((TOPIC, LONG_TOPIC), range(QUEUES)):
        fields = {"topic": topic, "queueId": queue_id}
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            answer = wire.call(address, code, fields)
            state["end", code, topic, queue_id] = answer.ext_fields["offset"]
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id}
        answer = wire.call(address, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        state["committed", queue_id] = answer.ext_fields.get("offset")
    plain = [record for place, record in records.items() if place[0] == TOPIC]
    for record in plain[:: max(1, len(plain) // 20)]:
        properties = record.properties
        for key in (properties["KEYS"], properties["UNIQ_KEY"]):
            state["key", key] = offsets_of_key(address, key)
        fields = {"offset": record.physical_offset}
        answer = wire.call(address, RequestCode.VIEW_MESSAGE_BY_ID, fields)
        assert decode_stored(answer.body) == [record], properties["KEYS"]
    return state


def offsets_of_key(address: str, key: str) -> tuple[int, ...]:
    """Where the messages of the plain topic with this key are in the log."""
    fields = {
        "topic": TOPIC, "key": key, "maxNum": 32, "beginTimestamp": 0,
        "endTimestamp": (1 << 63) - 1,
    }  # fmt: skip
    answer = wire.call(address, RequestCode.QUERY_MESSAGE, fields)
    return tuple(record.physical_offset for record in decode_stored(answer.body))


def assert_kept(address: str, traffic: Traffic) -> None:
    """Every acknowledged message is there, once, in its place; no queue has a hole.

    After a kill delayed messages and retries may arrive again, from either side.
    """
    records = records_of(address, traffic.topics)
    for sent in traffic.plain:
        record = records[TOPIC, sent.queue_id, sent.queue_offset]
        assert record.physical_offset == sent.physical_offset
    reads = [
        ((place[0], records[place].body), Place(*place)) for place in sorted(records)
    ]
    delayed = traffic.topics.keys() - {TOPIC, LONG_TOPIC, TX_TOPIC}
    faults = traffic.history.faults(reads, delayed=delayed, is_in_order=True)
    assert not faults, (len(faults), faults[:5])


class Side(NamedTuple):
    """A running broker, how it is killed, and the lines that rmq has logged."""

    address: str
    kill: Any
    lines: Sequence[str] = ()
    pid: int = 0


def on_host(host: str) -> dict[str, object]:
    """Serve at this address, and write it into the records."""
    return {"bindAddress": host, "brokerIP1": host}


@contextmanager
def java_side(
    store: Path,
    home: Path,
    host: str = "127.0.0.1",
    *,
    servers: JavaServers | None = None,
    inside: tuple[str, ...] = (),
    **more: object,
) -> Iterator[Side]:
    """Java's broker on the directory; stopped in order unless it was killed."""
    port = free_port()
    address = f"{host}:{port}"
    settings = SETTINGS | on_host(host) | more | {
        "listenPort": port, "haListenPort": port - 1, "storePathRootDir": store,
    }  # fmt: skip
    with java_server(
        home, "broker.BrokerStartup", settings, servers, inside
    ) as process:

        def kill() -> None:
            process.kill()
            process.wait()

        wait_until(lambda: is_served(address, process), "Java serves", 90)
        yield Side(address, kill, pid=process.pid)


def is_served(address: str, process: Any) -> bool:
    assert process.poll() is None, "Java's broker ended"
    try:
        wire.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    except (OSError, AssertionError):
        return False
    return True


@contextmanager
def rmq_side(
    store: Path,
    home: Path,
    host: str = "127.0.0.1",
    *,
    inside: tuple[str, ...] = (),
    **more: object,
) -> Iterator[Side]:
    """rmq on the directory; stopped in order unless it was killed."""
    settings = SETTINGS | on_host(host) | more
    del settings["timerWheelEnable"]
    texts = [f"{name}={value}" for name, value in settings.items()]
    server = Server(*broker_arguments(store, *texts), inside=inside)
    try:
        yield Side(server.address, server.kill, server.lines, server.pid)
        if server.is_running:
            assert server.stop() == 0, "".join(server.lines)
    finally:
        if server.is_running:
            server.kill()


def kill_under_load(side: Side, traffic: Traffic) -> None:
    """SIGKILL while messages arrive."""
    sender = threading.Thread(target=traffic.run_until_gone, args=(side.address,))
    known = len(traffic.plain)
    sender.start()
    wait_until(lambda: len(traffic.plain) > known + 200, "200 more messages")
    side.kill()
    sender.join(30)
    assert not sender.is_alive()
