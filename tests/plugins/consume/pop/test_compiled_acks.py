"""One meaning: acks served compiled and by the Python handler give the same bytes.

Two brokers get the same POPs and acks; one of them serves what it can compiled.
Replies, checkpoints, committed offsets and records must be equal after each poll.
Headers are JSON: a binary one has no room for the code 200051.
"""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY
from rmq.protocol.frames import FrameDecoder
from tests.plugins.client.test_compiled_commits import frame
from tests.plugins.consume.pop.popping import INVISIBLE_MS, Popping
from tests.plugins.sides import sides

__all__ = ["sides"]

ACK = RequestCode.ACK_MESSAGE
TIMER_TOPIC = "rmq_sys_wheel_timer"


class Pair:
    """A broker in Python, one with compiled handlers, and a consumer of each."""

    def __init__(self, sides, **options):
        self.python, self.compiled = self.sides = sides(**options)
        self.consumers = [Popping(side.caller) for side in self.sides]
        self.popped = []
        self.opaque = 0
        for side in self.sides:
            side.broker.groups.find("G")
            for number in range(8):
                side.caller.send("T", b"%d" % number, queueId=number % 2)
            side.broker.arrivals.flush()

    def pop(self, **more):
        """Pop on both sides; the handles of the first are those of both."""
        found = []
        for consumer in self.consumers:
            random.seed(3)
            found.append(consumer.pop(**more))
        assert [each.handle for each in found[0]] == [each.handle for each in found[1]]
        self.popped += found[0]
        return found[0]

    def fields(self, message, **more):
        fields = {
            "consumerGroup": "G", "topic": message.topic,
            "queueId": str(message.queue_id), "extraInfo": message.handle,
            "offset": str(message.offset), "bname": "broker-a",
        }  # fmt: skip
        return fields | more

    def ack(self, fields, **more):
        """Return one ack as a frame of its own."""
        self.opaque += 1
        return frame(fields, opaque=self.opaque, code=ACK, **more)

    def play(self, *chunks):
        for side in self.sides:
            side.play(chunks)
        assert self.compiled.replies == self.python.replies
        assert state(self.compiled) == state(self.python)
        assert self.python.served == 0

    def each(self, change):
        for side, consumer in zip(self.sides, self.consumers, strict=True):
            random.seed(5)
            change(side, consumer)

    def last(self):
        """Return the last answer."""
        [answer] = FrameDecoder().feed(self.compiled.replies[self.opaque])
        return answer

    @property
    def declined(self):
        return self.compiled.reactor.natives.counts()[0, ACK][1]


def key_of(checkpoint):
    queue = checkpoint.queue
    key = queue.topic, queue.group, queue.queue_id
    return *key, checkpoint.start, checkpoint.pop_ms


def state(side):
    """What acks can change."""
    reviver = side.caller.handlers[RequestCode.POP_MESSAGE].made().reviver
    checkpoints = {
        key_of(each): (each.open_offsets(), each.is_written, each.acked)
        for each in reviver.checkpoints.table.all()
    }
    records = side.broker.store.reads.max_offset(TIMER_TOPIC, 0)
    return checkpoints, json.loads(b"".join(side.broker.offsets.snapshot())), records


def handle_with(number, value):
    """Return a change of one part of a handle."""

    def changed(fields):
        parts = fields["extraInfo"].split(" ")
        parts[number] = value(parts[number]) if callable(value) else value
        fields["extraInfo"] = " ".join(parts)

    return changed


def with_field(name, value):
    def changed(fields):
        fields[name] = value(fields[name]) if callable(value) else value

    return changed


ODD = {
    **{
        f"{number} of the handle is {value}": handle_with(number, value)
        for number in range(4)
        for value in ("", "x", "-1", "00", "9" * 18, "9" * 19, "1e3", "\u0661")
    },
    "another start": handle_with(0, lambda text: str(int(text) + 1)),
    "start with a zero": handle_with(0, lambda text: "0" + text),
    "time with a zero": handle_with(1, lambda text: "0" + text),
    "ordered": handle_with(3, "999"),
    "another flag": handle_with(4, "1"),
    "no flag": handle_with(4, ""),
    "another broker": handle_with(5, "broker-b"),
    "longer broker": handle_with(5, "broker-a2"),
    "no broker": handle_with(5, ""),
    "cut": with_field("extraInfo", lambda text: " ".join(text.split(" ")[:5])),
    "short": with_field("extraInfo", lambda text: " ".join(text.split(" ")[:6])),
    "with its place": with_field("extraInfo", lambda text: text + " 123456"),
    "tab": with_field("extraInfo", lambda text: text.replace(" ", "\t", 1)),
    "escaped": with_field("extraInfo", lambda text: text + ' "\\'),
    "huge": with_field("extraInfo", lambda text: text + " " + "7" * 5_000),
    "nothing": with_field("extraInfo", ""),
    "absent": with_field("extraInfo", None),
    **{
        f"offset {value}": with_field("offset", value)
        for value in ("-1", "007", "99", "9" * 19, "x", "", None)
    },
    "next offset": with_field("offset", lambda text: str(int(text) + 1)),
    **{
        f"queue {value}": with_field("queueId", value)
        for value in ("-1", "+1", "01", "2", "9", "x", "", None)
    },
    **{
        f"topic {value}": with_field("topic", value)
        for value in ("M", "Nowhere", "", None)
    },
    **{
        f"group {value}": with_field("consumerGroup", value)
        for value in ("H", "G\u00e9", "", None)
    },
    "lite": with_field("liteTopic", "L"),
    "no lite": with_field("liteTopic", ""),
    "lo": with_field("lo", "maybe"),
}


def delete_topic(side, _):
    side.broker.topics.delete("T")
    side.broker.offsets.remove_topic("T")
    side.store.delete_topic("T")()


def forget_head(side, _):
    """As cleaning does: the log begins behind the first three messages, or stays."""
    first = side.broker.store.reads.get("T", 1, 0, 1).body
    tails = side.store.queues.tails
    tails.log_start = max(tails.log_start, 3 * len(first))


def merge(on):
    def change(side, _):
        body = b"enablePopBufferMerge=%s\n" % on
        assert side.caller.call(RequestCode.UPDATE_BROKER_CONFIG, body=body).code == 0

    return change


CHANGES = {
    "time": lambda _, consumer: consumer.work(3_000),
    "much time": lambda _, consumer: consumer.work(12_000),
    "all is due": lambda _, consumer: consumer.work(INVISIBLE_MS + 2_000),
    "fewer queues": lambda side, _: side.caller.topic("T", queues=1),
    "delete topic": delete_topic,
    "topic": lambda side, _: side.caller.topic("T", queues=3),
    "delete group": lambda side, _: side.broker.groups.delete("G"),
    "group": lambda side, _: side.broker.groups.find("G"),
    "reset": lambda side, _: side.broker.offsets.reset("G", "T", 0, 1),
    "head": forget_head,
    "no merge": merge(b"false"),
    "merge": merge(b"true"),
    "stop": lambda _, consumer: consumer.reviver.stop(),
    "nothing": lambda *_: None,
}


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_comes_gets_the_same_bytes(sides, data):
    pair = Pair(sides)
    pair.pop(maxMsgNums=data.draw(st.integers(1, 4)))
    for _ in range(data.draw(st.integers(1, 6))):
        chunks = []
        for _ in range(data.draw(st.integers(0, 8)) if pair.popped else 0):
            fields = pair.fields(data.draw(st.sampled_from(pair.popped)))
            for name in data.draw(st.lists(st.sampled_from(sorted(ODD)), max_size=1)):
                ODD[name](fields)
            kind = data.draw(st.sampled_from([0, 0, 2]))
            flag = data.draw(st.sampled_from([0, 0, FLAG_ONEWAY]))
            chunks.append(pair.ack(fields, kind=kind, flag=flag))
        if data.draw(st.booleans()):
            chunks = [b"".join(chunks)]
        pair.play(*chunks)
        pair.each(CHANGES[data.draw(st.sampled_from(sorted(CHANGES)))])
        if pair.sides[0].broker.topics.get("T") and data.draw(st.booleans()):
            pair.pop(maxMsgNums=data.draw(st.integers(1, 32)))
    pair.play()


@pytest.mark.parametrize("kind", [0, 2], ids=["plain", "numbers"])
@pytest.mark.parametrize("flag", [0, FLAG_ONEWAY], ids=["answered", "oneway"])
def test_acks_of_checkpoints_in_memory_are_served_compiled(sides, kind, flag):
    pair = Pair(sides)
    messages = pair.pop()
    assert len(messages) == 8
    for message in messages:
        pair.play(pair.ack(pair.fields(message), kind=kind, flag=flag))
    assert pair.compiled.served == 8
    assert len(pair.compiled.replies) == (0 if flag else 8)
    assert pair.consumers[1].committed(0) == pair.consumers[1].committed(1) == 4


def test_acks_of_one_poll_end_their_checkpoint_once(sides):
    """Of a written one the log learns of each message; what comes later is late."""
    pair = Pair(sides)
    messages = pair.pop()
    pair.each(CHANGES["much time"])
    assert all(written for _, written, _ in state(pair.compiled)[0].values())
    wanted = [pair.fields(each) for each in messages + messages[:3]]
    pair.play(b"".join(map(pair.ack, wanted)))
    assert pair.compiled.served == 8
    assert state(pair.compiled)[0] == {}
    pair.each(CHANGES["time"])
    pair.play()


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
    pair.each(CHANGES[change])
    pair.play(pair.ack(pair.fields(message)))
    assert pair.last().code == code
    assert pair.compiled.served == 0


def test_acks_of_a_deleted_group_know_that_its_topic_is_deleted(sides):
    """Compiled code acknowledged them: the deletion of the topic did not reach it."""
    pair = Pair(sides)
    message = pair.pop()[0]
    pair.each(CHANGES["delete group"])
    pair.each(delete_topic)
    pair.play(pair.ack(pair.fields(message)))
    assert pair.last().code == ResponseCode.TOPIC_NOT_EXIST


def test_checkpoints_after_the_head_of_the_log_moved_are_served_again(sides):
    pair = Pair(sides)
    pair.pop(maxMsgNums=5)
    pair.each(forget_head)
    found = pair.pop()
    for message in found:
        pair.play(pair.ack(pair.fields(message)))
        assert pair.last().code == 0
    assert pair.compiled.served == len(found) == 2
