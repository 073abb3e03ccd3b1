"""Held pulls of the compiled handler: kept, woken and ended as Python does."""

import math
import os
import random
import socket
import time

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq._fastpath.reactor.connections import EventKind
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.records import decode_stored
from rmq.store.config import FlushDiskType
from rmq.store.durability import RefusalKind
from rmq.testing import BrokerThread, RawClient
from rmq_plugins.consume.pull.handler import PullHandler
from rmq_plugins.consume.pull.held_pulls import MAX_SUSPEND_MS
from tests.plugins.consume.pull.test_compiled_pulls import (
    PLAIN,
    fill,
    request,
    subscribe,
)
from tests.plugins.sides import LOOP_EPOCH_MS, sides

__all__ = ["sides"]

WAITS = {**PLAIN, "sysFlag": "6"}
SUSPEND_MS = 15_000


class Waiter:
    """One side with pulls that wait; its answers by opaque number."""

    def __init__(self, side):
        self.side = side
        self.pulls = side.caller.find(PullHandler)
        side.connection.token = side.token
        subscribe(side)
        fill(side, 12)
        self._opaque = 1_000

    @property
    def compiled(self):
        """What waits compiled; None on the Python side."""
        native = self.pulls.native
        return None if native is None else native.table.held

    def pull(self, offset, queue=0, kind="plain", **fields):
        """Send one pull."""
        self._opaque += 1
        wanted = {**WAITS, "queueOffset": str(offset), "queueId": str(queue), **fields}
        self.side.play([request(wanted, opaque=self._opaque, kind=kind)])
        return self._opaque

    def warm(self, **fields):
        """Have every queue shown to the compiled path."""
        for queue in range(3):
            self.pull(0, queue, sysFlag="4", **fields)

    def send(self, count=1, queue=0, tag=""):
        """Store messages, and let everybody hear of them."""
        for _ in range(count):
            text = f"UNIQ_KEY\x01k\x02TAGS\x01{tag}\x02" if tag else "UNIQ_KEY\x01k\x02"
            self.side.caller.send("T", b"news", queueId=queue, properties=text)
        self.turn()

    def turn(self):
        """Have everything run that can run now."""
        self.side.broker.arrivals.flush()
        self.side.play([b""])

    def pass_time(self, ms):
        """Let time pass, and end the pulls whose time is over."""
        self.side.broker.clock.ms += ms
        self.pulls.held.sweep()
        self.turn()

    def answers(self):
        """Return the frames of all answers by opaque number."""
        sent = {
            each.opaque: encode(each)
            for each in self.side.connection.sent
            if each.is_response
        }
        assert not sent.keys() & self.side.replies.keys(), "answered twice"
        return {**self.side.replies, **sent}

    def answer(self, opaque):
        """Return one answer, or None."""
        frame = self.answers().get(opaque)
        return None if frame is None else FrameDecoder().feed(frame)[0]


@pytest.fixture
def pair(sides):
    waiters = [Waiter(side) for side in sides()]
    for waiter in waiters:
        waiter.warm()
    return waiters


@pytest.fixture
def compiled(pair):
    return pair[1]


@pytest.mark.parametrize("kind", ["plain", "numbers", "binary"])
def test_a_pull_waits_and_is_answered_without_python(pair, kind):
    opaques = [waiter.pull(4, kind=kind) for waiter in pair]
    python, compiled = pair
    assert compiled.compiled.waiting == 1
    assert python.pulls.held.statistics().waiting == 1
    assert compiled.pulls.held.statistics().waiting == 0
    for waiter in pair:
        waiter.send()
    assert python.answers() == compiled.answers()
    found = compiled.answer(opaques[1])
    assert found.code == ResponseCode.SUCCESS
    assert [record.body for record in decode_stored(found.body)] == [b"news"]
    assert compiled.compiled.counts()._asdict() == {
        "waiting": 0, "held": 1, "refused": 0, "woken": 1, "expired": 0,
        "dropped": 0, "returned": 0,
    }  # fmt: skip


@pytest.fixture
def cold_pair(sides):
    """Two sides of which no queue was shown to compiled code."""
    return [Waiter(side) for side in sides()]


@pytest.mark.parametrize("kind", ["plain", "numbers", "binary"])
@pytest.mark.parametrize("ends", ["message", "time", "other tag"])
def test_the_first_pull_of_a_queue_waits_compiled(cold_pair, kind, ends):
    python, compiled = cold_pair
    for waiter in cold_pair:
        waiter.warm()  # the queue is known, this view of it is not
        waiter.pull(4, kind=kind, subscription="TagB", maxMsgBytes="1000")
    assert compiled.compiled.waiting == 1
    assert compiled.pulls.held.statistics().waiting == 0
    for waiter in cold_pair:
        if ends == "time":
            waiter.pass_time(SUSPEND_MS + 100)
        else:
            waiter.send(1, tag="TagB" if ends == "message" else "TagA")
    assert python.answers() == compiled.answers()
    assert (compiled.compiled.waiting == 1) == (ends == "other tag")


def test_it_is_counted_once_and_commits_once(cold_pair):
    for waiter in cold_pair:
        waiter.warm()
        waiter.pull(4, subscription="TagB", sysFlag="7", commitOffset="3")
        waiter.side.broker.offsets.commit("somebody", "G", "T", 0, 2)
        waiter.turn()
        assert waiter.side.broker.offsets.query("G", "T", 0) == 2
    python, compiled = (waiter.side.store.statistics() for waiter in cold_pair)
    assert (compiled.get_found, compiled.get_missed) == (
        python.get_found, python.get_missed,
    )  # fmt: skip


def test_it_comes_back_whole_when_its_topic_changes(cold_pair):
    python, compiled = cold_pair
    for waiter in cold_pair:
        waiter.warm()
        waiter.pull(4, subscription="TagB")
        waiter.side.caller.topic("T", queues=3, topic_sys_flag=1)
        waiter.turn()
        waiter.send(1, tag="TagB")
    assert compiled.compiled.counts().returned == 1
    assert python.answers() == compiled.answers()


def test_where_there_is_no_place_it_waits_in_python(cold_pair):
    for waiter in cold_pair:
        waiter.warm()
    _, compiled = cold_pair
    compiled.compiled.set_limits(
        total=0, per_connection=9, per_view=9, suspend_ms=9_000
    )
    compiled.pull(4, subscription="TagB")
    assert compiled.compiled.waiting == 0
    assert compiled.pulls.held.statistics().waiting == 1


def test_all_messages_of_a_poll_are_one_answer(pair):
    for waiter in pair:
        waiter.pull(4)
        waiter.send(5)
    assert pair[0].answers() == pair[1].answers()


def test_other_tags_wake_nobody_and_are_not_read_twice(pair):
    for waiter in pair:
        waiter.warm(subscription="TagB")
        waiter.pull(4, subscription="TagB")
        waiter.send(3, tag="TagA")
    assert pair[1].compiled.waiting == 1
    for waiter in pair:
        waiter.send(1, tag="TagB")
    assert pair[0].answers() == pair[1].answers()
    assert pair[1].compiled.counts().woken == 1


def test_time_over_answers_not_found(pair):
    for waiter in pair:
        opaque = waiter.pull(4)
        waiter.pass_time(SUSPEND_MS - 200)
        assert waiter.answer(opaque) is None
        waiter.pass_time(300)
        assert waiter.answer(opaque).code == ResponseCode.PULL_NOT_FOUND
    assert pair[0].answers() == pair[1].answers()
    assert pair[1].compiled.counts().expired == 1


def test_after_a_long_silence_a_pull_waits_as_long_as_it_says(compiled):
    """No poll had told the ring of deadlines how late it was: it went round."""
    clock, wait_ms = compiled.side.broker.clock, MAX_SUSPEND_MS
    first = compiled.pull(4, suspendTimeoutMillis=wait_ms)
    clock.ms += wait_ms - 1_000
    second = compiled.pull(4, suspendTimeoutMillis=wait_ms)
    compiled.pass_time(1_100)
    assert compiled.answer(first).code == ResponseCode.PULL_NOT_FOUND
    compiled.pass_time(wait_ms - 1_200)
    assert compiled.answer(second) is None
    compiled.pass_time(200)
    assert compiled.answer(second).code == ResponseCode.PULL_NOT_FOUND


def test_python_hears_of_a_pull_that_ends_before_all_others(compiled):
    alarm, held = compiled.pulls.held.alarm, compiled.compiled
    for suspend_ms, is_heard in ((5_000, True), (9_000, False), (2_000, True)):
        alarm.at_ms = math.inf
        compiled.pull(4, suspendTimeoutMillis=suspend_ms)
        assert (alarm.at_ms == 0) == is_heard
    now_ms = compiled.side.broker.clock.now_ms() - LOOP_EPOCH_MS
    assert [held.next_deadline(now_ms + ms) for ms in (0, 2_000, 9_000)] == [
        2_000, 3_000, -1,
    ]  # fmt: skip


def test_time_over_after_other_tags_moves_the_offset(pair):
    for waiter in pair:
        waiter.warm(subscription="TagB")
        opaque = waiter.pull(4, subscription="TagB")
        waiter.send(3, tag="TagA")
        waiter.pass_time(SUSPEND_MS + 100)
        assert waiter.answer(opaque).ext_fields["nextBeginOffset"] == "7"
    assert pair[0].answers() == pair[1].answers()


def test_an_offset_that_comes_with_the_pull_is_committed_once(pair):
    for waiter in pair:
        waiter.pull(4, sysFlag="7", commitOffset="3")
        offsets = waiter.side.broker.offsets
        assert offsets.query("G", "T", 0) == 3
        offsets.commit("somebody", "G", "T", 0, 2)
        waiter.send()
        assert offsets.query("G", "T", 0) == 2


def test_a_closed_connection_drops_its_pulls(compiled):
    compiled.pull(4)
    compiled.pulls.drop(compiled.side.connection)
    assert compiled.compiled.counts().dropped == 1
    compiled.send()
    assert compiled.compiled.waiting == 0


def test_a_view_that_is_forgotten_gives_its_pulls_to_python(pair):
    for waiter in pair:
        waiter.pull(4)
        waiter.side.caller.topic("T", queues=3, topic_sys_flag=1)
        waiter.turn()
    assert pair[1].compiled.counts().returned == 1
    assert pair[1].pulls.held.statistics().waiting == 1
    for waiter in pair:
        waiter.send()
    assert pair[0].answers() == pair[1].answers()


def test_a_topic_that_is_shut_ends_them_with_its_refusal(pair):
    for waiter in pair:
        opaque = waiter.pull(4)
        waiter.side.caller.topic("T", queues=3, perm=2)
        waiter.send()
        waiter.turn()
        assert waiter.answer(opaque).code == ResponseCode.NO_PERMISSION
    assert pair[0].answers() == pair[1].answers()


def test_a_stop_answers_all_and_holds_no_more(pair):
    for waiter in pair:
        waiter.pull(4, 0)
        waiter.pull(4, 1)
        waiter.pulls.end_all()
        waiter.side.play([b""])
    assert pair[0].answers() == pair[1].answers()
    assert pair[1].compiled.waiting == 0


def test_messages_wake_when_they_are_durable(sides):
    pair = [Waiter(side) for side in sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)]
    for waiter in pair:
        waiter.side.store.durability.flush()
        waiter.warm()
        opaque = waiter.pull(4)
        waiter.send()
        assert waiter.answer(opaque) is None
        waiter.side.store.durability.flush()
        waiter.turn()
        assert waiter.answer(opaque).code == ResponseCode.SUCCESS
    assert pair[1].compiled.counts().woken == 1


def test_limits_leave_the_rest_to_python(compiled):
    compiled.compiled.set_limits(
        total=2, per_connection=9, per_view=9, suspend_ms=60_000
    )
    for _ in range(3):
        compiled.pull(4)
    assert compiled.compiled.counts()[:3] == (2, 2, 1)
    assert compiled.pulls.held.statistics().waiting == 1
    compiled.send()
    assert len(compiled.answers()) == 3 + 3


@pytest.mark.parametrize("limit", ["per_connection", "per_view"])
def test_each_limit_holds(compiled, limit):
    limits = {"total": 9, "per_connection": 9, "per_view": 9, limit: 1}
    compiled.compiled.set_limits(**limits, suspend_ms=60_000)
    compiled.pull(4)
    compiled.pull(4)
    assert compiled.compiled.waiting == 1


def test_a_turn_ends_and_the_next_goes_on(compiled):
    """4,000 pulls are answered in several turns, in the order in which they came."""
    for _ in range(4_000):
        compiled.pull(4)
    compiled.send()
    counts = compiled.compiled.counts()
    assert (counts.waiting, counts.woken) == (0, 4_000)
    answered = [opaque for opaque in compiled.answers() if opaque > 1_003]
    assert answered == sorted(answered)


@pytest.mark.slow
def test_a_hundred_thousand_pulls_and_a_message_each_millisecond(compiled):
    """Turns stay short, and each pull gets one answer, in the order of arrival."""
    count, side = 100_000, compiled.side
    limits = {"total": count, "per_connection": count, "per_view": count}
    compiled.compiled.set_limits(**limits, suspend_ms=SUSPEND_MS)
    wanted = {**WAITS, "queueOffset": "4", "maxMsgNums": "1"}
    frames = [request(wanted, opaque=2_000 + n) for n in range(count)]
    for first in range(0, count, 500):
        side.play([b"".join(frames[first : first + 500])])
    assert compiled.compiled.waiting == count
    longest_s, polls = 0.0, 0
    while compiled.compiled.waiting:
        if polls % 5 == 0:
            side.caller.send("T", b"news", properties=f"UNIQ_KEY\x01{polls}\x02")
            side.broker.arrivals.flush()
        side.broker.clock.ms += 1
        began = time.thread_time()
        side.reactor.poll(side.broker.clock.now_ms() - LOOP_EPOCH_MS)
        longest_s = max(longest_s, time.thread_time() - began)
        side.collect()
        polls += 1
    while len(side.replies) < count:  # what the socket did not take at once
        side.play([b""])
    limit_s = 0.1 if "asan" in os.environ.get("LD_PRELOAD", "") else 0.02
    assert longest_s < limit_s, "a turn is half a millisecond"
    assert polls > 10
    answers = [each for each in compiled.answers().items() if each[0] >= 2_000]
    assert [opaque for opaque, _ in answers] == list(range(2_000, 2_000 + count))
    first, last = (FrameDecoder().feed(frame)[0] for _, frame in answers[:: count - 1])
    assert first.body == last.body, "each asked for the first message"
    assert side.reactor.statistics().buffer_bytes < 1 << 20


def test_a_consumer_that_never_reads_costs_its_own_connection_only(sides):
    """What waits for it is bounded; its pulls go with it, and others are served."""
    side = sides(max_message_size=1 << 20, commit_log_file_size=16 << 20)[1]
    waiter = Waiter(side)
    waiter.warm()
    ours, deaf = socket.socketpair()
    ours.setblocking(False)
    token = side.reactor.connections.add(ours.detach(), 0, bytes(8))
    wanted = {**WAITS, "queueOffset": "4"}
    deaf.sendall(b"".join(request(wanted, opaque=n) for n in range(400)))
    opaque = waiter.pull(4)
    assert waiter.compiled.waiting == 401
    side.caller.send("T", bytes(1_000_000), properties="UNIQ_KEY\x01k\x02")
    side.broker.arrivals.flush()
    kinds, most = [], 0
    for _ in range(1_000):
        side.reactor.poll(side.broker.clock.now_ms() - LOOP_EPOCH_MS)
        most = max(most, side.reactor.statistics().buffer_bytes)
        kinds += [(kind, of) for kind, of, _ in side.reactor.take_events()]
        side.reactor.flush()
        side.collect()
    assert kinds == [(EventKind.READER_TOO_SLOW, token)]
    assert most < 512 << 20
    waiter.compiled.drop_connection(token)
    side.reactor.connections.close(token)
    assert waiter.answer(opaque).code == ResponseCode.SUCCESS
    assert waiter.compiled.waiting == 0
    assert side.reactor.statistics().buffer_bytes < 8 << 20
    deaf.close()


@pytest.mark.parametrize("kind", ["WRITE_FAILED", "FLUSH_FAILED"])
def test_a_disk_that_fails_while_pulls_wake_delivers_nothing_that_is_not_safe(
    sides, kind
):
    """The message is stored, its flush fails: pulls wait on, and end in time."""
    _, side = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    waiter = Waiter(side)
    durability = side.store.durability
    durability.flush()
    waiter.warm()
    opaque = waiter.pull(4)
    waiter.send()
    durability.refuse(RefusalKind[kind], "the disk is gone")
    waiter.turn()
    assert waiter.answer(opaque) is None
    assert waiter.compiled.waiting == 1
    waiter.pass_time(SUSPEND_MS + 100)
    assert waiter.answer(opaque).code == ResponseCode.PULL_NOT_FOUND


STEPS = st.one_of(
    st.tuples(st.just("pull"), st.integers(0, 2), st.sampled_from(["*", "TagA"])),
    st.tuples(
        st.just("send"), st.integers(0, 2), st.sampled_from(["", "TagA", "TagB"])
    ),
    st.tuples(st.just("time"), st.integers(0, 20_000)),
    st.tuples(st.just("forget")),
)


@settings(
    max_examples=settings.default.max_examples // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, max_size=40))
def test_any_history_ends_in_the_same_answers(sides, steps):
    pair = [Waiter(side) for side in sides()]
    for waiter in pair:
        for tag in ("*", "TagA"):
            waiter.warm(subscription=tag)
        for step in steps:
            play(waiter, *step)
        waiter.pass_time(60_000)
    python, compiled = pair
    # a pull that was given back may find its time over a sweep later
    assert compiled.answers().keys() == python.answers().keys()
    assert compiled.answers() == python.answers()
    assert compiled.compiled.waiting == 0


def play(waiter, step, *arguments):
    random.seed(7)
    if step == "pull":
        queue, tag = arguments
        end = waiter.side.store.reads.max_offset("T", queue)
        waiter.pull(end, queue, subscription=tag)
    elif step == "send":
        queue, tag = arguments
        waiter.send(1, queue, tag)
    elif step == "time":
        waiter.pass_time(*arguments)
    else:
        waiter.side.broker.groups.update(
            waiter.side.broker.groups.find("G")
        ) if waiter.side.broker.groups.get("G") else None
        waiter.turn()


@pytest.mark.slow
def test_a_real_broker_holds_a_pull_as_long_as_it_asks(tmp_path):
    """The wall's clock and that of the polls have nothing in common."""
    with BrokerThread(tmp_path) as broker:
        broker.send("T", b"first")
        took = broker.run(second_wait_s, broker.address)
    assert 1.4 < took < 3


async def second_wait_s(address):
    """Return how long a compiled pull waits that asks for 1.5 s."""
    fields = {**WAITS, "subscription": "*"}
    async with RawClient.connect(address) as client:
        await client.call(Command(11, {**fields, "sysFlag": "4"}), 5)
        ends = {**fields, "queueOffset": "1", "suspendTimeoutMillis": "1500"}
        began = trio.current_time()
        answer = await client.call(Command(11, ends), 5)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        return trio.current_time() - began
