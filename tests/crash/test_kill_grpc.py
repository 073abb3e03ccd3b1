"""kill -9 while clients of gRPC send, receive, ack, hide and renew messages.

Every message whose send was answered is stored once, and received until somebody acks
it. How often a message came again after its ack is counted: acks of the last moments
are in the memory of the broker that died.
"""

import signal
from collections import Counter

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


class Client:
    """Sends and receives on one connection; acks two of three messages."""

    def __init__(self):
        self.history = History()
        self.acked = set()
        self.again = Counter()
        self._number = self._turn = 0

    def run(self, port, child, duration_s):
        """Work until the broker is killed, after so long."""
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
            self.again[number] += number in self.acked
            if takes_all or number % 3:
                calls.append(("AckMessage", ack_of(handle)))
                acked.append(number)
            elif number % 2:
                change = schema.ChangeInvisibleDurationRequest(receipt_handle=handle)
                change.topic.name, change.group.name = "T", "G"
                change.invisible_duration.seconds = 1
                calls.append(("ChangeInvisibleDuration", change))
        for (method, _), [data] in zip(calls, speaker.ask(*calls), strict=True):
            found = schema.CLASSES[f"{method}Response"].FromString(data)
            assert found.status.code == OK, found
        self.acked.update(acked)
        return len(messages)


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
    with broker(root, flush) as (_, (host, port)):
        wire.make_topic(f"{host}:{port}", "T", 2)
    for _ in range(count):
        with broker(root, flush) as (child, (_, port)):
            client.run(port, child, chance.uniform(LEAST_S, MOST_S))
    with broker(root, flush) as (child, (_, port)):
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
    assert not damages_of(root)
    print(  # noqa: T201
        f"{flush}: {count} kills; {len(client.acked)} acked, 0 lost, 0 stored twice; "
        f"{client.again.total()} came again"
    )
