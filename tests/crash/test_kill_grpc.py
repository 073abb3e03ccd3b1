"""kill -9 while clients of gRPC send, receive, ack, hide and renew messages.

Every message whose send was answered is stored once, and received until somebody acks
it. Acks and committed offsets of the last moments are in the memory of the broker that
died: `rmq.popMemoryMs` and `flushConsumerOffsetInterval` are the limits. An acked
message comes again for two reasons only, which are checked and counted:

* from its topic: the group got it there last so shortly before a kill
* from the retry topic: an earlier delivery of it has no ack, or such a late one

A run may be too short to deliver again what the kill before it made the broker forget.
"""

import signal
import time
from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

import pytest

from rmq_plugins.grpc import schema
from tests.crash.laboratory import (
    body_of,
    broker,
    damages_of,
    dice,
    killed_after,
    number_of,
    open_store,
    rounds,
)
from tests.crash.laboratory import messages_of as stored_messages
from tests.history import History
from tests.interop import wire
from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import ack_of
from tests.plugins.grpc.speaker import Speaker, messages_of, receive_call, register

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

LEAST_S, MOST_S = 0.1, 3.0
TOGETHER = 8
INVISIBLE_S = 10
LAST_POLL_S = 20
OK = 20000

SETTINGS = {"rmq.popMemoryMs": 500, "flushConsumerOffsetInterval": 200}
IN_MEMORY_S = 0.5 + 0.2
LATE_S = 2.0
"""How late a busy machine runs the broker's timers."""


class Delivery(NamedTuple):
    """One delivery of a message."""

    is_retry: bool
    handle: str
    at_s: float


class Client:
    """Sends and receives on one connection; acks two of three messages."""

    def __init__(self):
        self.history = History()
        self.acked = {}
        """Time of the ack of each number."""

        self.again = Counter()
        self.unexplained = []
        self._deliveries = {}
        self._acks = {}
        """Time of the ack of each handle."""

        self._kills_s = []
        self._number = self._turn = 0

    def run(self, port, child, duration_s):
        """Work until the broker is killed, after some seconds."""
        self._use_broker(port, child, duration_s)
        self._kills_s.append(time.monotonic())

    def _use_broker(self, port, child, duration_s):
        with killed_after(child, duration_s):
            speaker = Speaker(port)
            with speaker.socket:
                register(speaker, "G")
                while True:
                    self._send(speaker)
                    self._turn += 1
                    self.receive(speaker, auto_renew=self._turn % 4 == 0)

    def _send(self, speaker):
        numbers = range(self._number, self._number + TOGETHER)
        self._number += TOGETHER
        calls = []
        for number in numbers:
            self.history.invoke(number)
            calls.append(("SendMessage", sent("T", body_of(number))))
        for number, answer in zip(numbers, speaker.ask(*calls), strict=True):
            found = schema.SendMessageResponse.FromString(answer[0])
            assert found.status.code == OK, found
            self.history.answer(number)

    def receive(self, speaker, *, takes_all=False, **options):
        """Receive once; return how many messages came."""
        options = {"invisible_s": INVISIBLE_S, **options}
        [answer] = speaker.ask(receive_call("T", "G", **options))
        calls, acked = [], []
        messages = messages_of(answer)
        for message in messages:
            number = number_of(message.body)
            handle = message.system_properties.receipt_handle
            self._record(number, handle)
            if takes_all or number % 3:
                calls.append(("AckMessage", ack_of(handle)))
                acked.append((number, handle))
            elif number % 2:
                change = schema.ChangeInvisibleDurationRequest(receipt_handle=handle)
                change.topic.name, change.group.name = "T", "G"
                change.invisible_duration.seconds = 1
                calls.append(("ChangeInvisibleDuration", change))
        for (method, _), [data] in zip(calls, speaker.ask(*calls), strict=True):
            found = schema.CLASSES[f"{method}Response"].FromString(data)
            assert found.status.code == OK, found
        now_s = time.monotonic()
        for number, handle in acked:
            self.acked[number] = self._acks[handle] = now_s
        return len(messages)

    def _record(self, number, handle):
        """Record a delivery, and the reason if the message was acked before."""
        is_retry = handle.split()[4] != "0"
        earlier = self._deliveries.setdefault(number, [])
        if number in self.acked:
            if is_retry:
                acks = [self._acks.get(each.handle) for each in earlier]
                is_explained = any(
                    each is None or self._may_lose(each) for each in acks
                )
            else:
                from_topic = [each.at_s for each in earlier if not each.is_retry]
                # an answer that the kill cut off is no delivery
                is_explained = not from_topic or self._may_lose(from_topic[-1])
            self.again["from the retry topic" if is_retry else "from the topic"] += 1
            if not is_explained:
                self.unexplained.append((number, handle, self._kills_s[-1], earlier))
        earlier.append(Delivery(is_retry, handle, time.monotonic()))

    def _may_lose(self, at_s):
        """Whether a kill came so soon that the broker may have forgotten a moment."""
        following = bisect_left(self._kills_s, at_s)
        if following == len(self._kills_s):
            return False
        return at_s >= self._kills_s[following] - IN_MEMORY_S - LATE_S


def stored(root):
    """The numbers of the messages that the topic has."""
    store = open_store(root)
    try:
        return [number for number, _ in stored_messages(store, ["T"])]
    finally:
        store.close()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_clients_of_grpc_lose_nothing(tmp_path, flush):
    chance, client, root = dice(), Client(), tmp_path / "store"
    count = rounds(8)
    with broker(root, flush, **SETTINGS) as (_, (host, port)):
        wire.make_topic(f"{host}:{port}", "T", 2)
    for _ in range(count):
        with broker(root, flush, **SETTINGS) as (child, (_, port)):
            client.run(port, child, chance.uniform(LEAST_S, MOST_S))
    with broker(root, flush, **SETTINGS) as (child, (_, port)):
        speaker, empty = Speaker(port, timeout_s=60), 0
        with speaker.socket:
            register(speaker, "G")
            while empty < 4:  # messages that were renewed come after a minute
                found = client.receive(speaker, poll_s=LAST_POLL_S, takes_all=True)
                empty = 0 if found else empty + 1
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
    assert set(Counter(stored(root)).values()) == {1}, "a message was stored twice"
    assert not client.history.faults((number, None) for number in client.acked)
    assert not client.unexplained, (len(client.unexplained), client.unexplained[:3])
    assert not damages_of(root)
    print(  # noqa: T201
        f"{flush}: {count} kills; {len(client.acked)} acked, 0 lost, 0 stored twice; "
        f"came again: {dict(client.again)}"
    )
