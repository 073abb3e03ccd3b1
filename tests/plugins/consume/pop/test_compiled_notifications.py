"""Notifications that wait in compiled code, and what ends their wait.

Where a broker in Python has the same promise, it gets the same requests.
"""

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.store.config import FlushDiskType
from tests.plugins.consume.pop.test_compiled_acks import CHANGES
from tests.plugins.consume.pop.test_compiled_pops import POP, Pair, has_message
from tests.plugins.sides import LOOP_EPOCH_MS, sides

__all__ = ["sides"]

SEND = {
    "a": "producer", "b": "T", "c": "TBW102", "d": "4", "f": "0", "g": "1", "h": "0",
    "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
WAIT_MS = 9_000
EARLIEST_END_MS, LATEST_END_MS = WAIT_MS - 250, WAIT_MS - 50


class Waiting(Pair):
    """Both brokers have served a POP, so that notifications are compiled in one."""

    def __init__(self, sides, **options):
        super().__init__(sides, **options)
        self.send((0, ""), (1, ""))
        self.store(0)
        self.flush()
        self.play(self.pop())

    def flush(self):
        self.each(lambda side, _: side.store.durability.flush())

    @property
    def waits(self):
        """The requests of the compiled broker that wait in compiled code."""
        return self.compiled.caller.handlers[POP].made().waits

    @property
    def held(self):
        return self.compiled.caller.handlers[POP].made().views.notices.held

    def wait(self, **more):
        """Let a notification wait in compiled code; return its number."""
        before = self.held.waiting
        self.play(self.ask(pollTime=str(WAIT_MS), **more))
        assert self.held.waiting == before + 1
        assert not self.answered(self.opaque)
        return self.opaque

    def answered(self, opaque):
        return [
            opaque in side.replies or opaque in {e.opaque for e in side.connection.sent}
            for side in self.sides
        ] == [True, True]

    def store(self, queue, *, one_poll=False, with_frame=b""):
        """Send a message; with `one_poll` Python gets no turn after its poll.

        `with_frame` follows in the same poll.
        """
        data = self.send_frame(queue) + with_frame
        for side in self.sides:
            if one_poll and side is self.compiled:
                side.peer.sendall(data)
                side.reactor.poll(side.broker.clock.now_ms() - LOOP_EPOCH_MS)
                side.collect()
            else:
                side.play([data])

    def send_frame(self, queue):
        fields = SEND | {"e": str(queue)}
        self.opaque += 1
        return encode(
            Command(RequestCode.SEND_MESSAGE_V2, fields, b"x", opaque=self.opaque)
        )

    def pass_ms(self, ms):
        def pass_time(side, _):
            side.broker.clock.ms += ms

        self.each(pass_time)
        self.play()

    def flag_of(self, opaque):
        self.opaque = opaque
        return has_message(self)


def test_a_compiled_send_ends_the_wait_without_python(sides):
    pair = Waiting(sides)
    number = pair.wait()
    pair.store(1, one_poll=True)
    [answer] = FrameDecoder().feed(pair.compiled.replies[number])
    assert answer.ext_fields == {"hasMsg": "true", "pollingFull": "false"}
    assert not pair.compiled.reactor.has_events
    assert pair.held.waiting == 0


def test_one_message_ends_one_wait_and_what_a_pop_leaves_the_next(sides):
    pair = Waiting(sides)
    waits = [pair.wait() for _ in range(3)]
    pair.store(0)
    pair.play()
    assert [pair.answered(each) for each in waits] == [True, False, False]
    pair.play(pair.pop())
    pair.send((0, ""), (0, ""))
    pair.play()
    assert [pair.answered(each) for each in waits] == [True, True, False]
    pair.play(pair.pop(maxMsgNums="1"))
    assert pair.answered(waits[2])


def test_a_wait_ends_a_little_before_the_time_of_the_client(sides):
    pair = Waiting(sides)
    number = pair.wait()
    pair.pass_ms(EARLIEST_END_MS)
    assert number not in pair.compiled.replies
    pair.pass_ms(LATEST_END_MS - EARLIEST_END_MS)
    assert pair.answered(number)
    assert pair.flag_of(number) == "false"


def test_the_time_on_the_way_counts(sides):
    pair = Waiting(sides)
    born_ms = pair.compiled.broker.clock.now_ms() - 4_000
    number = pair.wait(bornTime=str(born_ms))
    pair.pass_ms(LATEST_END_MS - 4_000)
    assert pair.answered(number)


def test_the_task_wakes_up_for_the_first_deadline(sides):
    pair = Waiting(sides)
    pair.wait()
    now_ms = pair.compiled.broker.clock.now_ms() - LOOP_EPOCH_MS
    left_ms = pair.held.next_deadline(now_ms)
    assert EARLIEST_END_MS <= left_ms <= LATEST_END_MS


def test_more_than_the_limit_are_refused(sides):
    options = {"broker_options": {"pop_polling_size": 2}.items()}
    pair = Waiting(sides, **options)
    for _ in range(3):
        pair.wait()
    pair.play(pair.ask(pollTime=str(WAIT_MS)))
    answer = pair.last().ext_fields
    assert answer == {"hasMsg": "false", "pollingFull": "true"}


def test_tools_see_the_number_that_waits(sides):
    pair = Waiting(sides)
    for _ in range(3):
        pair.wait()
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "-1"}
    for side in pair.sides:
        answer = side.caller.call(RequestCode.POLLING_INFO, fields)
        assert answer.ext_fields["pollingNum"] == "3"


def test_the_end_of_a_connection_ends_its_waits(sides):
    pair = Waiting(sides)
    pair.wait()
    pair.waits.drop(pair.compiled.connection)
    assert pair.held.waiting == 0


@pytest.mark.parametrize("change", ["fewer queues", "reset", "no merge"])
def test_python_continues_a_wait_after_a_change(sides, change):
    pair = Waiting(sides)
    number = pair.wait()
    pair.each(CHANGES[change])
    assert pair.held.waiting == 0
    pair.play()
    if not pair.answered(number):  # after a reset there are messages
        pair.send((0, ""))
        pair.play()
    assert pair.answered(number)
    assert pair.flag_of(number) == "true"


def test_a_first_message_of_a_queue_ends_the_wait(sides):
    """The view does not know the queue."""
    pair = Waiting(sides)
    number = pair.wait()
    pair.send((2, ""))
    pair.play()
    assert pair.answered(number)
    assert pair.flag_of(number) == "true"


def test_a_message_that_comes_again_ends_the_wait(sides):
    """Python stores it in the retry topic of the group."""
    pair = Waiting(sides)
    pair.wait()
    pair.each(CHANGES["all is due"])
    for side in pair.sides:
        side.broker.arrivals.flush()
    pair.play()
    assert has_message(pair) == "true"


def test_a_message_that_is_not_durable_does_not_end_the_wait(sides):
    pair = Waiting(sides, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    number = pair.wait()
    pair.store(0)
    pair.compiled.play([b""])
    assert number not in pair.compiled.replies
    pair.flush()
    for side in pair.sides:
        side.broker.arrivals.flush()
    pair.play()
    assert pair.answered(number)
    assert pair.flag_of(number) == "true"


def test_a_stop_answers_all(sides):
    pair = Waiting(sides)
    number = pair.wait()
    pair.waits.end_all()
    pair.compiled.play([b""])
    assert number in pair.compiled.replies
    assert pair.held.waiting == 0
