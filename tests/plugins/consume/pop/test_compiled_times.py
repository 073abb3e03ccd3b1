"""One meaning: new invisible times compiled and by the Python handler.

Two brokers get the same POPs, acks and new times; one of them serves what it can
compiled. Replies, checkpoints, committed offsets and records must be equal.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY
from rmq.protocol.frames import FrameDecoder
from tests.plugins.client.test_compiled_commits import frame
from tests.plugins.consume.pop import test_compiled_acks as acks
from tests.plugins.sides import sides

__all__ = ["sides"]

CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

ODD = {
    **acks.ODD,
    **{
        f"time {value}": acks.with_field("invisibleTime", value)
        for value in (
            "0", "1", "-1", "007", "86400000", "86400001", "9" * 19, "x", "", None,
        )
    },
    **{
        f"suspend {value}": acks.with_field("suspend", value)
        for value in ("true", "false", "True", "", "maybe")
    },
    "another revive queue": acks.handle_with(3, "7"),
    "a large revive queue": acks.handle_with(3, str(1 << 31)),
}  # fmt: skip


class Pair(acks.Pair):
    """Two brokers and their consumers, which change invisible times."""

    def change(self, fields, ms=30_000, **more):
        self.opaque += 1
        fields = {"invisibleTime": str(ms), **fields}
        return frame(fields, opaque=self.opaque, code=CHANGE, **more)

    def play(self, *chunks):
        super().play(*chunks)
        assert times(self.compiled) == times(self.python)

    def follow(self, message):
        """Give a message the handle of the last answer."""
        [answer] = FrameDecoder().feed(self.compiled.replies[self.opaque])
        if answer.code == 0 and answer.ext_fields:
            parts = message.handle.split(" ")
            own = answer.ext_fields
            parts[0] = str(message.offset)
            parts[1:4] = own["popTime"], own["invisibleTime"], own["reviveQid"]
            message.handle = " ".join(parts)

    @property
    def served(self):
        return self.compiled.reactor.natives.counts()[0, CHANGE][0]


def times(side):
    """What else a new time can change."""
    reviver = side.caller.handlers[RequestCode.POP_MESSAGE].made().reviver
    return {
        acks.key_of(each): (each.due_ms, each.suspend, each.revive_queue, each.log_end)
        for each in reviver.checkpoints.table.all()
    }


def test_a_message_moves_to_a_checkpoint_of_its_own(sides):
    pair = Pair(sides)
    messages = pair.pop()
    for message in messages:
        pair.play(pair.change(pair.fields(message)))
        pair.follow(message)
    assert pair.served == len(messages) == 8
    assert len(times(pair.compiled)) == 8
    for message in messages:
        pair.play(pair.change(pair.fields(message), 10_000))
        pair.follow(message)
        pair.play(pair.ack(pair.fields(message)))
    assert (pair.served, times(pair.compiled)) == (16, {})
    assert pair.consumers[1].committed(0) == pair.consumers[1].committed(1) == 4


def test_times_of_one_poll(sides):
    """The first one moves the message; the others come late and change nothing."""
    pair = Pair(sides)
    messages = pair.pop()
    wanted = [pair.fields(each) for each in messages[:3] + messages[:2]]
    pair.play(b"".join(map(pair.change, wanted)))
    assert pair.served == 5
    assert len(times(pair.compiled)) == 5


def test_a_new_time_without_an_answer(sides):
    pair = Pair(sides)
    [message, *_] = pair.pop()
    pair.play(pair.change(pair.fields(message), flag=FLAG_ONEWAY))
    assert (pair.served, pair.compiled.replies) == (1, {})


def test_python_writes_the_new_time_of_a_written_checkpoint(sides):
    pair = Pair(sides)
    [message, *_] = pair.pop()
    pair.each(acks.CHANGES["much time"])
    pair.play(pair.change(pair.fields(message)))
    assert pair.last().code == 0
    assert pair.served == 0


@pytest.mark.parametrize("name", sorted(ODD))
def test_odd_times_get_the_same_answer(sides, name):
    pair = Pair(sides)
    [message, *_] = pair.pop()
    for flag in 0, FLAG_ONEWAY:
        fields = {"invisibleTime": "30000", **pair.fields(message)}
        ODD[name](fields)
        pair.play(pair.change(fields, flag=flag))


def test_the_message_comes_again_at_its_new_time(sides):
    pair = Pair(sides)
    [message, *_] = pair.pop()
    pair.play(pair.change(pair.fields(message), 5_000))
    pair.each(lambda _, consumer: consumer.work(5_001))
    again = pair.pop()
    assert [each.body for each in again] == [message.body]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("fewer queues", ResponseCode.MESSAGE_ILLEGAL),
        ("delete topic", ResponseCode.TOPIC_NOT_EXIST),
        ("head", ResponseCode.NO_MESSAGE),
        ("no merge", 0),
        ("stop", 0),
    ],
)
def test_after_a_change_python_looks_again(sides, change, code):
    pair = Pair(sides)
    message = next(each for each in pair.pop() if each.queue_id == 1)
    pair.each(acks.CHANGES[change])
    pair.play(pair.change(pair.fields(message)))
    assert pair.last().code == code
    assert pair.served == 0


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_comes_gets_the_same_bytes(sides, data):
    pair = Pair(sides)
    pair.pop(maxMsgNums=data.draw(st.integers(1, 8)))
    for _ in range(data.draw(st.integers(1, 8))):
        for _ in range(data.draw(st.integers(0, 4)) if pair.popped else 0):
            message = data.draw(st.sampled_from(pair.popped))
            fields = pair.fields(message)
            for name in data.draw(st.lists(st.sampled_from(sorted(ODD)), max_size=1)):
                ODD[name](fields)
            if data.draw(st.booleans()):
                ms = data.draw(st.sampled_from([0, 1, 5_000, 70_000]))
                pair.play(pair.change(fields, ms))
                if data.draw(st.booleans()):
                    pair.follow(message)
            else:
                pair.play(pair.ack(fields))
        pair.each(acks.CHANGES[data.draw(st.sampled_from(sorted(acks.CHANGES)))])
        if pair.sides[0].broker.topics.get("T") and data.draw(st.booleans()):
            pair.pop(maxMsgNums=data.draw(st.integers(1, 32)))
    pair.play()
