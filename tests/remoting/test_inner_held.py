"""Answers that wait for the disk and have no frames: their order, times and limit."""

import random
import time

import pytest

from rmq._fastpath.log.claim import Claim
from rmq._fastpath.log.watermark import Watermark
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.remoting import inner_held
from rmq.remoting.inner_held import FEW, InnerHeld

OK, BUSY = ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY
DISK, SLAVE = ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT


class Calls:
    """A caller that keeps its answers, and the watermarks that release them."""

    def __init__(self, monkeypatch):
        self.now_ms = 0
        monkeypatch.setattr(inner_held, "now_ms", lambda: self.now_ms)
        self.durable, self.replicated = Watermark(0), Watermark(1 << 40)
        acknowledged = Watermark.minimum_of(self.durable, self.replicated)
        self.claim = Claim(bytearray(4096), bytes(16))
        self.claim.begin(0, 1 << 40, Watermark(0))
        self.claim.confirm_by(acknowledged)
        self.held = InnerHeld()
        self.held.attach(acknowledged, self.replicated, self.claim)
        self.answers = []

    def send_nowait(self, command):
        self.answers.append((command.opaque, command.code))

    def add(self, opaque, end_offset, timeout_ms=1_000, on_timeout=None):
        request = Command.request(10)
        request.opaque = opaque
        return self.held.add(
            self,
            request,
            request.reply(OK),
            end_offset=end_offset,
            timeout_ms=timeout_ms,
            on_timeout=on_timeout,
        )

    def release(self, *, durable=0, replicated=0, now_ms=0):
        """Advance, look once, and return the answers that were sent."""
        self.durable.advance(durable)
        self.replicated.advance(replicated)
        self.now_ms = max(now_ms, self.now_ms)
        self.held.release()
        answers, self.answers = self.answers, []
        return answers


@pytest.fixture
def calls(monkeypatch):
    return Calls(monkeypatch)


def test_the_claim_has_what_an_answer_promises(calls):
    calls.add(1, 50)
    assert calls.release(durable=70) == [(1, OK)]
    assert calls.claim.confirmed_offset == 70


def test_answers_leave_in_the_order_of_the_log(calls):
    for opaque, end_offset in ((1, 300), (2, 100), (3, 200), (4, 100)):
        calls.add(opaque, end_offset)
    assert calls.release(durable=99) == []
    assert calls.release(durable=200) == [(2, OK), (4, OK), (3, OK)]
    assert calls.release(durable=400) == [(1, OK)]
    assert calls.held.count == 0


def test_a_late_answer_names_the_part_that_lags(calls):
    calls.replicated.reset(100)
    calls.add(1, 100, timeout_ms=50)
    calls.add(2, 200, timeout_ms=20)
    assert calls.release(now_ms=19) == []
    assert calls.release(now_ms=20) == [(2, SLAVE)]
    calls.add(3, 300, timeout_ms=20)
    assert calls.release(now_ms=100, durable=50, replicated=400) == [
        (3, DISK),
        (1, DISK),
    ]


def test_an_answer_of_its_own_is_sent_as_it_is(calls):
    own = Command(BUSY, opaque=7)
    calls.add(1, 100, timeout_ms=10, on_timeout=own)
    assert calls.release(now_ms=10) == [(7, BUSY)]
    assert calls.release(durable=100) == []


def test_beyond_the_limit_nothing_is_held(calls, monkeypatch):
    monkeypatch.setattr(inner_held, "HELD_LIMIT", 2)
    assert [calls.add(opaque, 100) for opaque in range(3)] == [True, True, False]
    assert calls.release(durable=100) == [(0, OK), (1, OK)]
    has_room = calls.add(4, 200)
    assert has_room


def test_many_that_wait_do_not_delay_a_look(calls):
    """A look touches only the answers that it sends; a scan is 1,000 times as slow."""

    def look_s():
        began = time.perf_counter()
        for _ in range(50):
            assert calls.release(durable=999, now_ms=10) == []
        return time.perf_counter() - began

    calls.add(0, 1_000, timeout_ms=60_000)
    few_s = min(look_s() for _ in range(5))
    for opaque in range(20_000):
        calls.add(opaque, 1_000 + opaque, timeout_ms=60_000)
    assert min(look_s() for _ in range(5)) < 50 * few_s


def test_a_disk_that_hangs_fills_no_memory(calls):
    """Answers that were sent late leave the order of the log, too."""
    for turn in range(1, 21):
        for opaque in range(100):
            calls.add(opaque, 1_000 + opaque, timeout_ms=1)
        assert len(calls.release(now_ms=2 * turn)) == 100
    assert calls.held.count == 0
    assert calls.held.size <= 2 * FEW


def test_each_call_gets_one_answer(calls):
    chance, expected, got = random.Random(57), 0, []
    for step in range(2_000):
        for _ in range(chance.randrange(4)):
            calls.add(expected, step + chance.randrange(50), chance.randrange(1, 40))
            expected += 1
        got += calls.release(durable=step - chance.randrange(30), now_ms=step)
    got += calls.release(durable=1 << 30)
    assert sorted(opaque for opaque, _ in got) == list(range(expected))
