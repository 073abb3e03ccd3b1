"""POPs that wait in compiled code, and what ends their wait.

A broker in Python gets the same requests, and gives the same answers.
"""

import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.frames import FrameDecoder
from rmq.store.config import FlushDiskType
from tests.plugins.consume.pop.test_compiled_acks import CHANGES
from tests.plugins.consume.pop.test_compiled_notifications import (
    EARLIEST_END_MS,
    LATEST_END_MS,
    WAIT_MS,
    Waiting,
)
from tests.plugins.consume.pop.test_compiled_pops import POP, resume
from tests.plugins.sides import LOOP_EPOCH_MS, MAIN, sides

__all__ = ["sides"]


class Popping(Waiting):
    """Both brokers have served a POP, so that POPs wait in compiled code in one."""

    def __init__(self, sides, **options):
        super().__init__(sides, **options)
        self.counts_misses = False

    @property
    def parts(self):
        return self.compiled.caller.handlers[POP].made()

    @property
    def held(self):
        return self.parts.views.path.held

    def wait(self, **more):
        """Let a POP wait in compiled code; return its number."""
        before = self.held.waiting
        self.play(self.pop(pollTime=str(WAIT_MS), **more))
        assert self.held.waiting == before + 1
        assert not self.answered(self.opaque)
        return self.opaque

    def store_and_wake(self, queue):
        self.store(queue)
        self.play()

    def position(self, queue_id):
        """Where the next POP of a queue reads."""
        queues = [
            side.caller.handlers[POP].made().reviver.checkpoints for side in self.sides
        ]
        [offset] = {each.find_queue("T", "G", queue_id).next_offset for each in queues}
        return offset

    def states_of(self, waits):
        return [self.answered(each) for each in waits]

    def answer_to(self, opaque):
        """Return the answer of the compiled broker."""
        late = [e for e in self.compiled.connection.sent if e.opaque == opaque]
        return (late or FrameDecoder().feed(self.compiled.replies[opaque]))[0]

    def flush_arrivals(self):
        for side in self.sides:
            side.broker.arrivals.flush()
        self.play()


def test_a_compiled_send_ends_the_wait_without_python(sides):
    pair = Popping(sides)
    number = pair.wait()
    pair.store(1, one_poll=True)
    pair.python.play([b""])
    assert pair.answer_to(number).ext_fields["msgOffsetInfo"] == "0 1 1"
    assert not pair.compiled.reactor.has_events
    assert pair.held.waiting == 0
    pair.flush_arrivals()


def test_a_send_before_the_pop_in_one_poll_is_found(sides):
    pair = Popping(sides)
    frame = pair.pop(pollTime=str(WAIT_MS))
    number = pair.opaque
    pair.store(1, with_frame=frame)
    pair.play()
    assert pair.held.waiting == 0
    assert pair.answer_to(number).ext_fields["msgOffsetInfo"] == "0 1 1"


def test_each_message_ends_the_oldest_wait(sides):
    pair = Popping(sides)
    waits = [pair.wait(maxMsgNums="1") for _ in range(4)]
    pair.store_and_wake(0)
    assert pair.states_of(waits) == [True, False, False, False]
    pair.send((0, ""), (1, ""))
    pair.play()
    assert pair.states_of(waits) == [True, True, True, False]
    assert pair.held.waiting == 1


def test_a_pop_of_one_queue_waits_for_this_queue(sides):
    pair = Popping(sides)
    number = pair.wait(queueId="1")
    pair.store_and_wake(0)
    assert not pair.answered(number)
    pair.store_and_wake(1)
    assert pair.answer_to(number).ext_fields["msgOffsetInfo"] == "0 1 1"


def test_pops_of_one_queue_and_of_any_queue_share_the_messages(sides):
    pair = Popping(sides)
    waits = [
        pair.wait(maxMsgNums="1", **fields)
        for fields in ({"queueId": "1"}, {}, {"queueId": "1"}, {}, {"queueId": "0"})
    ]
    for _ in range(4):
        pair.compiled.caller.send("T", b"x", queueId=1)
    resume(pair.compiled)
    answered = [each in pair.compiled.replies for each in waits]
    assert answered == [True, True, True, True, False]


def test_a_pop_of_a_queue_that_is_new_waits_in_python(sides):
    pair = Popping(sides)
    pair.play(pair.pop(queueId="2", pollTime=str(WAIT_MS)))
    assert pair.held.waiting == 0
    pair.send((2, ""))
    pair.play()
    assert pair.last().code == ResponseCode.SUCCESS


def test_messages_that_do_not_match_are_skipped(sides):
    pair = Popping(sides)
    pair.play(pair.pop(exp="A"))
    number = pair.wait(exp="A")
    pair.send((0, "B"), (1, "B"))
    pair.play()
    assert pair.held.waiting == 1
    assert pair.position(1) == 2
    pair.send((0, "B"), (0, "A"))
    pair.play()
    assert pair.answer_to(number).ext_fields["msgOffsetInfo"] == "0 0 4"
    pair.send((0, "B"))
    pair.wait(exp="A")
    assert pair.position(0) == 6


def test_a_wait_ends_a_little_before_the_time_of_the_client(sides):
    pair = Popping(sides)
    number = pair.wait()
    pair.pass_ms(EARLIEST_END_MS)
    assert number not in pair.compiled.replies
    pair.pass_ms(LATEST_END_MS - EARLIEST_END_MS)
    pair.play()
    assert pair.answer_to(number).code == ResponseCode.POLLING_TIMEOUT


def test_the_time_on_the_way_counts(sides):
    pair = Popping(sides)
    born_ms = pair.compiled.broker.clock.now_ms() - 4_000
    number = pair.wait(bornTime=str(born_ms))
    pair.pass_ms(LATEST_END_MS - 4_000)
    assert pair.answered(number)


def test_the_task_wakes_up_for_the_first_deadline(sides):
    pair = Popping(sides)
    pair.wait()
    now_ms = pair.compiled.broker.clock.now_ms() - LOOP_EPOCH_MS
    left_ms = pair.held.next_deadline(now_ms)
    assert EARLIEST_END_MS <= left_ms <= LATEST_END_MS


@pytest.mark.parametrize(
    "limit", [{"pop_polling_size": 2}, {"max_pop_polling_size": 3}]
)
def test_more_than_the_limit_are_refused(sides, limit):
    pair = Popping(sides, broker_options=limit.items())
    waits = [pair.wait() for _ in range(3)]
    pair.play(pair.pop(pollTime=str(WAIT_MS)))
    assert pair.last().code == ResponseCode.POLLING_FULL
    pair.store_and_wake(0)
    assert pair.answered(waits[0])
    pair.wait()


def test_the_limit_of_all_counts_the_pops_in_python(sides):
    pair = Popping(sides, broker_options={"max_pop_polling_size": 2}.items())
    in_order = {"order": "true", "pollTime": str(WAIT_MS), "consumerGroup": "O"}
    pair.play(pair.pop(**in_order), pair.pop(**in_order))  # the second one waits
    pair.wait()
    for fields in {}, in_order:
        pair.play(pair.pop(**{"pollTime": str(WAIT_MS)} | fields))
        assert pair.last().code == ResponseCode.POLLING_FULL


def test_tools_see_the_number_that_waits(sides):
    pair = Popping(sides)
    for queue in "-1", "-1", "0":
        pair.wait(queueId=queue)
    for queue, count in ("-1", "2"), ("0", "1"), ("1", "0"):
        fields = {"consumerGroup": "G", "topic": "T", "queueId": queue}
        for side in pair.sides:
            answer = side.caller.call(RequestCode.POLLING_INFO, fields)
            assert answer.ext_fields["pollingNum"] == count


def test_the_end_of_a_connection_ends_its_waits(sides):
    pair = Popping(sides)
    pair.wait()
    pair.parts.waits.drop(pair.compiled.connection)
    assert pair.held.waiting == 0


def test_a_message_passes_a_closed_connection(sides):
    """Python has not heard of its end yet."""
    pair = Popping(sides)
    side = pair.compiled
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    token = side.reactor.connections.add(
        ours.detach(), MAIN, side.connection.remote_host
    )
    theirs.sendall(pair.pop(pollTime=str(WAIT_MS)))
    side.poll()
    assert pair.held.waiting == 1
    number = pair.wait()
    side.reactor.connections.close(token)
    pair.store(0, one_poll=True)
    assert number in side.replies
    assert pair.held.waiting == 0
    theirs.close()


@pytest.mark.parametrize("change", ["fewer queues", "no merge"])
def test_python_continues_a_wait_after_a_change(sides, change):
    pair = Popping(sides)
    number = pair.wait()
    pair.each(CHANGES[change])
    assert pair.held.waiting == 0
    pair.play()
    pair.send((0, ""))
    pair.play()
    assert pair.answer_to(number).code == ResponseCode.SUCCESS


def test_a_wait_ends_after_a_reset_to_older_messages(sides):
    pair = Popping(sides)
    number = pair.wait()
    CHANGES["reset"](pair.compiled, pair.consumers[1])
    resume(pair.compiled)
    assert pair.answer_to(number).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("count", [1, 2, 3])
def test_pops_in_python_and_in_compiled_code_share_the_messages(sides, count):
    pair = Popping(sides)
    side = pair.compiled
    waits = [pair.wait(maxMsgNums="1")]
    pair.each(CHANGES["fewer queues"])  # the first one is in Python now
    pair.play(pair.pop(), pair.pop())
    waits += [pair.wait(maxMsgNums="1"), pair.wait(maxMsgNums="1")]
    for _ in range(count):
        side.caller.send("T", b"x", queueId=0)
    side.broker.arrivals.flush()
    resume(side)
    resume(side)
    late = [each.opaque for each in side.connection.sent]
    assert sum(each in side.replies or each in late for each in waits) == count
    assert pair.held.waiting + pair.parts.held.waiting == 3 - count


def test_a_first_message_of_a_queue_ends_the_wait(sides):
    """The view does not know the queue."""
    pair = Popping(sides)
    number = pair.wait()
    pair.send((2, ""))
    pair.play()
    pair.play()
    assert pair.answer_to(number).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("queue", ["-1", "1"])
def test_a_message_that_comes_again_ends_the_wait(sides, queue):
    """Python stores it in the retry topic of the group."""
    pair = Popping(sides)
    pair.wait(queueId=queue)
    pair.each(CHANGES["all is due"])
    pair.flush_arrivals()
    pair.play()
    assert pair.last().code == ResponseCode.SUCCESS


def test_a_message_that_is_not_durable_does_not_end_the_wait(sides):
    pair = Popping(sides, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    number = pair.wait()
    pair.store(0)
    assert number not in pair.compiled.replies
    pair.flush()
    pair.flush_arrivals()
    assert pair.answer_to(number).code == ResponseCode.SUCCESS


def test_a_stop_answers_all(sides):
    pair = Popping(sides)
    numbers = [pair.wait(), pair.wait(queueId="0")]
    pair.parts.waits.end_all()
    pair.compiled.play([b""])
    for number in numbers:
        assert pair.answer_to(number).code == ResponseCode.POLLING_TIMEOUT
    assert pair.held.waiting == 0
    pair.compiled.play([pair.pop(pollTime=str(WAIT_MS))])
    assert pair.held.waiting == 0


steps = st.one_of(
    st.tuples(
        st.just("wait"),
        st.tuples(st.sampled_from(["-1", "0", "1"]), st.sampled_from(["1", "3", "32"])),
    ),
    st.tuples(
        st.sampled_from(["send", "send in Python"]),
        st.lists(st.integers(0, 2), min_size=1, max_size=4),
    ),
    st.tuples(st.just("pop"), st.sampled_from(["1", "2"])),
    st.tuples(st.just("lose views"), st.none()),
    st.tuples(st.just("pass"), st.sampled_from([100, 5_000])),
    st.tuples(st.just("revive"), st.none()),
)


class History:
    """Steps on the compiled broker alone; `waits` are requests without an answer."""

    def __init__(self, sides):
        self.pair = Popping(sides)
        self.side = self.pair.compiled
        self.waits = {}

    def step(self, kind, what):
        pair, side = self.pair, self.side
        data = b""
        if kind == "wait":
            queue, count = what
            fields = {"queueId": queue, "maxMsgNums": count}
            data = pair.pop(pollTime=str(WAIT_MS), **fields)
            self.waits[pair.opaque] = queue
        elif kind == "send":
            data = b"".join(map(pair.send_frame, what))
        elif kind == "send in Python":
            for queue in what:
                side.caller.send("T", b"x", queueId=queue)
            side.broker.arrivals.flush()
        elif kind == "pop":
            data = pair.pop(maxMsgNums=what)
        elif kind == "lose views":
            pair.parts.views.remove_all()
        elif kind == "pass":
            side.broker.clock.ms += what
        else:
            CHANGES["all is due"](side, pair.consumers[1])
            side.broker.arrivals.flush()
        side.play([data])
        for _ in range(4):
            resume(side)

    def check(self):
        """No message is there for a request that waits."""
        late = {each.opaque for each in self.side.connection.sent}
        self.waits = {
            number: queue
            for number, queue in self.waits.items()
            if number not in self.side.replies and number not in late
        }
        parts = self.pair.parts
        assert len(self.waits) == self.pair.held.waiting + parts.held.waiting
        for queue in set(self.waits.values()):
            self.side.play([self.pair.ask(queueId=queue)])
            answer = self.pair.answer_to(self.pair.opaque)
            assert answer.ext_fields["hasMsg"] == "false", queue


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, max_size=16))
def test_no_message_waits_beside_a_pop(sides, steps):
    history = History(sides)
    for kind, what in steps:
        history.step(kind, what)
        history.check()
