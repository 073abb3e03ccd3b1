"""kill -9 of a broker whose clients try again: each message is there, and once.

The topic stores each key once. The client sends everything that was not acknowledged
again, with the same key, to the broker that was started after the kill.
"""

import signal
import socket
import time

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.properties import UNIQ_KEY, encode_properties
from tests.crash.laboratory import IN_FLIGHT, body_of, broker, dice, kept, rounds
from tests.history import History, Place

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]
REPEATED = 0.05
"""Share of the acknowledged messages that are sent once more: the answer was lost."""


class RetryingLoad:
    """A client that sends each number until it is acknowledged, some of them longer."""

    def __init__(self, chance):
        self.history = History()
        self.acknowledged = {}
        self.retries = self.moved = 0
        self._chance = chance
        self._unanswered = {}
        self._next = 0

    def run(self, address, duration_s, before_end=lambda: None):
        """Send for so long, first what has no answer; return when the broker ends."""
        decoder, waiting = FrameDecoder(), {}
        queued = list(self._unanswered)
        self.retries += len(queued)
        end = time.monotonic() + duration_s
        try:
            with socket.create_connection(address, timeout=10) as connection:
                while time.monotonic() < end or queued:
                    frames = []
                    while len(waiting) < IN_FLIGHT:
                        number = queued.pop() if queued else self._new_number()
                        waiting[number] = None
                        frames.append(frame_of(number))
                    connection.sendall(b"".join(frames))
                    self._take(connection.recv(65536), decoder, waiting, queued)
                before_end()
                while waiting:
                    data = connection.recv(65536)
                    if not data:
                        return
                    self._take(data, decoder, waiting, queued)
        except OSError:
            return

    def _new_number(self):
        number, self._next = self._next, self._next + 1
        self._unanswered[number] = None
        self.history.invoke(number)
        return number

    def _take(self, data, decoder, waiting, queued):
        for answer in decoder.feed(data):
            number = answer.opaque
            waiting.pop(number, None)
            if answer.code != 0:
                continue
            fields = answer.ext_fields
            place = Place("Once", int(fields["queueId"]), int(fields["queueOffset"]))
            if number in self._unanswered:
                del self._unanswered[number]
                self.history.answer(number, 0, place)
                self.acknowledged[number] = place
                if self._chance.random() < REPEATED:
                    queued.append(number)
                    self.retries += 1
            self.moved += self.acknowledged[number] != place


def frame_of(number):
    fields = {
        "producerGroup": "P", "topic": "Once", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "2", "queueId": str(number % 2), "sysFlag": "0",
        "bornTimestamp": "1", "flag": "0", "reconsumeTimes": "0", "unitMode": "false",
        "batch": "false", "properties": encode_properties({UNIQ_KEY: f"K{number}"}),
    }  # fmt: skip
    command = Command(RequestCode.SEND_MESSAGE, fields, body_of(number), opaque=number)
    return encode(command)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_is_sent_again_after_a_kill_is_stored_once(tmp_path, flush):
    chance, root = dice(), tmp_path / "store"
    load, killed = RetryingLoad(chance), rounds(20)
    settings = {"rmq.onceWindowMs": 86_400_000}
    for number in range(killed):
        with broker(root, flush, **settings) as (child, address):
            load.run(
                address,
                chance.uniform(0.02, 0.5),
                lambda: child.send_signal(signal.SIGKILL),
            )
            child.wait(20)
        with kept(root, load, tmp_path / "copy" / str(number)):
            pass
    with broker(root, flush, **settings) as (child, address):
        load.run(address, 0.01)
        child.send_signal(signal.SIGTERM)
        child.wait(20)
    with kept(root, load, tmp_path / "copy" / "end"):
        pass
    print(  # noqa: T201
        f"{flush}: {killed} kills, {len(load.acknowledged)} acknowledged, "
        f"{load.retries} sent again, 0 lost, 0 doubled"
    )
    assert load.moved == 0
    assert load.retries > killed
    assert len(load.acknowledged) > 100 * killed
