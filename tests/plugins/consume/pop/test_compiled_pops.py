"""One meaning: POPs served compiled and by the Python handler give the same bytes.

Two brokers get the same messages, POPs and acks; one of them serves what it can
compiled. Replies, positions, checkpoints, committed offsets and counters must be equal
after each poll.
"""

import json
import random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY
from rmq.protocol.flags import BORN_HOST_V6
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.message import Message
from rmq.protocol.records import decode_stored
from rmq.store.config import FlushDiskType
from tests.plugins.client.test_compiled_commits import frame
from tests.plugins.consume.pop.popping import INVISIBLE_MS, Popping
from tests.plugins.consume.pop.test_compiled_acks import CHANGES, key_of
from tests.plugins.send.test_compaction_topics import compact
from tests.plugins.sides import sides, without_maker

__all__ = ["sides"]

POP = RequestCode.POP_MESSAGE
NOTIFICATION = RequestCode.NOTIFICATION
TAGS = ("", "A", "B")
PLAIN = {
    "consumerGroup": "G", "topic": "T", "queueId": "-1", "maxMsgNums": "32",
    "invisibleTime": str(INVISIBLE_MS), "pollTime": "0", "bornTime": "0",
    "initMode": "0", "order": "false", "bname": "broker-a",
}  # fmt: skip

WAIT_MS = 15_000
"""Time for which a POP waits."""


class Pair:
    """A broker in Python, one with compiled handlers, and a consumer of each."""

    def __init__(self, sides, **options):
        self.python, self.compiled = self.sides = sides(**options)
        self.consumers = [Popping(side.caller) for side in self.sides]
        self.opaque = 0
        self.ours = set()
        self.counts_misses = True
        for side in self.sides:
            side.broker.groups.find("G")

    def send(self, *messages, topic="T"):
        """Store messages: queue and tag of each."""
        for side in self.sides:
            for queue, tag in messages:
                side.caller.send(
                    topic,
                    b"x" * (queue + 1),
                    queueId=queue,
                    properties=f"TAGS\x01{tag}\x02" if tag else "",
                )
            side.broker.arrivals.flush()

    def pop(self, flag=0, kind=0, **more):
        self.opaque += 1
        fields = PLAIN | more
        if fields["topic"] == "T" and fields["consumerGroup"] == "G":
            self.ours.add(self.opaque)
        return frame(fields, opaque=self.opaque, code=POP, flag=flag, kind=kind)

    def ask(self, **more):
        """Return a notification: whether there are messages to pop."""
        self.opaque += 1
        return frame(PLAIN | more, opaque=self.opaque, code=NOTIFICATION)

    def play(self, *chunks):
        for side in self.sides:
            side.play(chunks or (b"",))
            resume(side)
        self.assert_equal()

    def assert_equal(self):
        compiled, python = state(self.compiled), state(self.python)
        if not self.counts_misses:
            compiled, python = (each._replace(missed=0) for each in (compiled, python))
        assert compiled == python
        assert self.python.served == 0

    def each(self, change):
        for side, consumer in zip(self.sides, self.consumers, strict=True):
            random.seed(5)
            change(side, consumer)

    def end_waits(self):
        """Let waiting requests end before a change, which returns them to Python, and
        before another one waits: `test_compiled_held_pops` has histories of those.
        """
        if self.python.caller.handlers[POP].made().held.waiting:
            for consumer in self.consumers:
                consumer.clock.ms += WAIT_MS
            self.play()

    def send_retry(self, name):
        """Store a message in the retry topic, as nobody but a tool does."""
        for side in self.sides:
            side.caller.topic("%RETRY%G_T", queues=1)
            host = bytes(20) if "IPv6" in name else bytes(8)
            flags = BORN_HOST_V6 if "IPv6" in name else 0
            text = RETRIES[name]
            message = Message(
                "%RETRY%G_T", 0, b"r", 0, flags, 1, host, properties_text=text
            )
            side.broker.put.append(message)
            side.broker.arrivals.flush()

    def configure(self, key, value):
        """Change a key while the brokers run."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        body = f"{key}={text}\n".encode()
        for side in self.sides:
            side.caller.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)

    def ack(self, number):
        """Ack one of the messages that were popped, on both sides."""
        answers = []
        for side, consumer in zip(self.sides, self.consumers, strict=True):
            messages = popped(side, consumer, self.ours)
            if messages:
                answers.append(consumer.ack(messages[number % len(messages)]).code)
        assert len(set(answers)) <= 1

    def last(self):
        late = [
            each for each in self.compiled.connection.sent if each.opaque == self.opaque
        ]
        return (late or FrameDecoder().feed(self.compiled.replies[self.opaque]))[0]

    @property
    def counts(self):
        return self.compiled.reactor.natives.counts()[0, POP]


def resume(side):
    """Continue the POPs and notifications that wait, as their tasks do."""
    parts = side.caller.handlers[POP].made()
    while parts.held.has_ready:
        parts.held.resume_next()
    parts.held.expire()
    parts.waits.resume_returned()
    side.play([b""])


def popped(side, consumer, ours):
    """Return the messages that the group has popped from the topic."""
    found = []
    for number in sorted(side.replies.keys() & ours):
        [answer] = FrameDecoder().feed(side.replies[number])
        if answer.code == 0 and "startOffsetInfo" in answer.ext_fields:
            found += consumer.read(answer)
    return found


class State(NamedTuple):
    """What a POP can change."""

    replies: dict
    checkpoints: dict
    positions: dict
    offsets: dict
    found: int
    missed: int
    messages_out: int


def state(side):
    """What a POP can change."""
    reviver = side.caller.handlers[POP].made().reviver
    checkpoints = {
        key_of(each): (each.offsets, each.open_offsets(), each.is_written,
                       each.due_ms, each.revive_queue, each.log_end)
        for each in reviver.checkpoints.table.all()
    }  # fmt: skip
    positions = {
        key: (queue.next_offset, queue.count)
        for key, queue in reviver.checkpoints.queues.items()
    }
    found = side.store.statistics()
    late = {each.opaque: without_maker(encode(each)) for each in side.connection.sent}
    return State(
        side.replies | late,
        checkpoints,
        positions,
        json.loads(b"".join(side.broker.offsets.snapshot())),
        found.get_found,
        found.get_missed,
        side.broker.statistics.messages_out(),
    )


def test_pops_that_find_messages_are_served_compiled(sides):
    pair = Pair(sides)
    pair.send(*[(n % 3, "") for n in range(12)])
    for _ in range(3):
        pair.play(pair.pop(maxMsgNums="32"))
        pair.send(*[(n % 3, "") for n in range(7)])
    for _ in range(7):
        pair.play(pair.pop(maxMsgNums="1"))
    served, declined = pair.counts
    assert served == 9, declined


def test_pops_that_find_nothing_are_answered_compiled(sides):
    pair = Pair(sides)
    pair.send((0, ""), (1, ""))
    pair.play(pair.pop())
    for _ in range(3):
        pair.play(pair.pop())
    assert pair.last().code == ResponseCode.POLLING_TIMEOUT
    assert pair.counts[0] == 3


def test_two_pops_of_one_poll_get_different_messages(sides):
    pair = Pair(sides)
    pair.send((0, ""))
    pair.play(pair.pop())
    pair.send(*[(0, "")] * 5)
    pair.play(b"".join(pair.pop(maxMsgNums="2") for _ in range(4)))
    assert pair.counts[0] == 4


def test_a_filter_by_tags_skips_the_others(sides):
    pair = Pair(sides)
    pair.send((0, "A"), (1, "B"))
    pair.play(pair.pop(exp="A", expType="TAG"))
    pair.send((0, "B"), (0, "A"), (0, "B"), (0, "A"), (1, "B"), (1, "B"))
    pair.play(pair.pop(exp="A", expType="TAG"))
    assert pair.counts[0] == 1
    assert pair.last().ext_fields["msgOffsetInfo"].endswith("0 0 2,4")


def test_a_queue_that_is_new_is_seen(sides):
    pair = Pair(sides)
    pair.send((0, ""))
    pair.play(pair.pop(), pair.pop())
    pair.send((2, ""), (0, ""))
    pair.play(pair.pop())
    assert pair.last().ext_fields["msgOffsetInfo"].count(";") == 1


def test_a_pop_that_waits_is_held_and_served_compiled(sides):
    pair = Pair(sides)
    pair.send((0, ""), (1, ""))
    pair.play(pair.pop(), pair.pop(maxMsgNums="1", pollTime="9000"))
    assert len(pair.compiled.replies) == 1
    pair.send((1, ""))
    pair.play()
    assert pair.last().ext_fields["msgOffsetInfo"] == "0 1 1"
    assert pair.counts[0] == 1
    pair.play(pair.pop(pollTime="9000"))
    pair.each(
        lambda side, _: vars(side.broker.clock).update(ms=side.broker.clock.ms + 9_000)
    )
    pair.play()
    assert pair.last().code == ResponseCode.POLLING_TIMEOUT


def test_a_pop_that_waited_commits_at_once(sides):
    """It skips messages with other tags; the next frame of a POP committed that."""
    pair = Pair(sides)
    pair.send((0, "A"), (1, "A"))
    pair.play(pair.pop(exp="A"))
    for _ in range(2):
        pair.ack(0)
        pair.ack(1)
    pair.play(pair.pop(exp="A"), pair.pop(exp="A", pollTime="9000"))
    pair.send((1, "B"), (0, "A"))
    pair.play()
    assert pair.consumers[1].committed(1) == 2
    assert not pair.compiled.connection.sent


def test_a_pop_that_waits_is_checked_by_python_after_a_change(sides):
    pair = Pair(sides)
    pair.send((0, ""), (1, ""))
    pair.play(pair.pop(), pair.pop(pollTime="9000"))
    pair.each(CHANGES["fewer queues"])
    pair.send((0, ""), (0, ""))
    pair.play()
    assert pair.last().ext_fields["msgOffsetInfo"] == "0 0 1,2"


@pytest.mark.parametrize(
    "change",
    ["fewer queues", "reset", "no merge", "delete topic", "delete group", "stop"],
)
def test_after_a_change_python_checks_again(sides, change):
    pair = Pair(sides)
    pair.send(*[(n % 3, "") for n in range(6)])
    pair.play(pair.pop(maxMsgNums="4"))
    pair.each(CHANGES[change])
    pair.play(pair.pop())
    assert pair.counts[0] == 0


def test_a_larger_committed_offset_moves_the_position(sides):
    pair = Pair(sides)
    pair.send(*[(0, "")] * 6)
    pair.play(pair.pop(maxMsgNums="1"))
    pair.each(lambda side, _: side.broker.offsets.commit("a tool", "G", "T", 0, 4))
    pair.play(pair.pop())
    assert pair.last().ext_fields["msgOffsetInfo"] == "0 0 4,5"


ODD = {
    "in order": {"order": "true"},
    "a number as order": {"order": "0"},
    "SQL92": {"expType": "SQL92", "exp": "TAGS = 'A'"},
    "bad SQL92": {"expType": "SQL92", "exp": "= 'A'"},
    "another type": {"expType": "X", "exp": "A"},
    "a type without text": {"expType": "SQL92", "exp": ""},
    "empty filter": {"expType": "", "exp": ""},
    "all": {"expType": "TAG", "exp": "*"},
    "one tag": {"expType": "TAG", "exp": "A"},
    "two tags": {"exp": "A || B"},
    "escaped": {"exp": 'A"'},
    "no queue": {"queueId": None},
    "queue 1": {"queueId": "1"},
    "queue 2": {"queueId": "2"},
    "queue 3": {"queueId": "3"},
    "queue -2": {"queueId": "-2"},
    "queue +1": {"queueId": "+1"},
    "queue x": {"queueId": "x"},
    "no messages": {"maxMsgNums": "0"},
    "too many": {"maxMsgNums": "33"},
    "no number": {"maxMsgNums": None},
    "zero in front": {"maxMsgNums": "02"},
    "no time": {"invisibleTime": "0"},
    "a long time": {"invisibleTime": "9" * 18},
    "a longer time": {"invisibleTime": "9" * 19},
    "short time": {"invisibleTime": "1000"},
    "newest": {"initMode": "1"},
    "another mode": {"initMode": "7"},
    "bad mode": {"initMode": "x"},
    "no born time": {"bornTime": None},
    "waits": {"pollTime": str(WAIT_MS)},
    "waits in vain": {"pollTime": "-5"},
    "an attempt": {"attemptId": "a"},
    "another topic": {"topic": "M"},
    "no topic": {"topic": "Nowhere"},
    "another group": {"consumerGroup": "H"},
    "the group's retry topic": {"topic": "%RETRY%G_T"},
}


@pytest.mark.parametrize("name", sorted(ODD))
def test_odd_pops_get_the_same_answer(sides, name):
    pair = Pair(sides)
    pair.send((0, "A"), (1, "B"), (2, ""))
    pair.play(pair.pop(maxMsgNums="1"), pair.pop(maxMsgNums="1"))
    pair.send((0, "A"), (1, "B"), (2, ""))
    for kind in (0, 2):
        pair.play(pair.pop(kind=kind, **ODD[name]))
    pair.play(pair.pop(flag=FLAG_ONEWAY, **ODD[name]))
    pair.play(pair.ask(**ODD[name]))


RETRIES = {
    "plain": "KEYS\x01k\x02",
    "no properties": "",
    "from an IPv6 host": "KEYS\x01k\x02",
    "no separator at the end": "KEYS\x01k",
    "a name twice": "KEYS\x01k\x02KEYS\x01l\x02",
    "no pair": "KEYS\x02",
    "no value": "KEYS\x01\x02A\x01b\x02",
    "its handle": "POP_CK\x010 1 2 3 1 broker-a 0 0\x02",
    "more than 64": "".join(f"k{number}\x01v\x02" for number in range(70)),
}
"""Properties of messages in the retry topic."""

CONFIGS = {
    "priorityOrderAsc": True,
    "popFromRetryProbability": 100,
    "popFromRetryProbabilityForPriority": 100,
    "popResponseReturnActualRetryTopic": True,
    "enableRetryTopicV2": True,
    "retrieveMessageFromPopRetryTopicV1": False,
    "useSeparateRetryQueue": True,
}
"""Keys, and values that are not the usual ones."""

UNREADABLE = {"its handle", "popResponseReturnActualRetryTopic"}
"""The consumer of these tests expects each message under its topic and handle."""

waiting = st.fixed_dictionaries(
    {"maxMsgNums": st.sampled_from(["1", "5"]), "pollTime": st.just(str(WAIT_MS))},
    optional={"topic": st.just("M")},
)
"""POPs that wait for any queue, without a filter, one at a time: the order differs."""

steps = st.one_of(
    st.tuples(
        st.just("send"),
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from(TAGS)), max_size=8),
    ),
    st.tuples(
        st.just("pop"),
        st.lists(
            st.fixed_dictionaries(
                {"maxMsgNums": st.sampled_from(["1", "2", "5", "32"])},
                optional={
                    "queueId": st.sampled_from(["0", "1", "2"]),
                    "exp": st.sampled_from(["*", "A", "A||B"]),
                    "topic": st.just("M"),
                    "asks": st.just(True),
                },
            )
            | waiting,
            min_size=1,
            max_size=5,
        ),
    ),
    st.tuples(st.just("ack"), st.integers(0, 50)),
    st.tuples(st.just("odd"), st.sampled_from(sorted(ODD))),
    st.tuples(st.just("change"), st.sampled_from(sorted(CHANGES))),
    st.tuples(st.just("commit"), st.integers(0, 6)),
    st.tuples(st.just("retry"), st.sampled_from(sorted(RETRIES.keys() - UNREADABLE))),
    st.tuples(st.just("config"), st.sampled_from(sorted(CONFIGS.keys() - UNREADABLE))),
)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, max_size=14))
def test_any_history_gives_the_same_bytes(sides, history):
    """Each poll has one frame: time decides how many of several one poll serves, and so
    how often a waiting POP is woken and finds nothing.
    """
    pair = Pair(sides)
    pair.send((0, "A"), (1, "B"))
    pair.play(pair.pop(maxMsgNums="1"))
    for kind, what in history:
        play(pair, kind, what)
    pair.play()


def as_frame(pair, fields):
    fields = dict(fields)
    return pair.ask(**fields) if fields.pop("asks", None) else pair.pop(**fields)


def play(pair, kind, what):
    has_topic = pair.python.broker.topics.get("T") is not None
    if kind == "send" and has_topic:
        pair.send(*what)
    elif kind == "pop":
        for each in what:
            if "pollTime" in each:
                pair.end_waits()
            pair.play(as_frame(pair, each))
    elif kind == "ack" and has_topic:
        pair.ack(what)
    elif kind == "odd":
        for request in (pair.pop, pair.ask):
            pair.end_waits()
            pair.play(request(**ODD[what]))
    elif kind == "change":
        pair.end_waits()
        pair.each(CHANGES[what])
    elif kind == "commit":
        pair.each(
            lambda side, _: side.broker.offsets.commit("a tool", "G", "T", 0, what)
        )
    elif kind == "retry":
        pair.end_waits()
        pair.send_retry(what)
    elif kind == "config":
        pair.end_waits()
        pair.configure(what, CONFIGS[what])


def has_message(pair):
    return pair.last().ext_fields["hasMsg"]


def test_notifications_are_answered_compiled(sides):
    pair = Pair(sides)
    pair.send((0, ""), (2, ""))
    pair.play(pair.pop(maxMsgNums="1"))
    for queue, wanted in ("-1", "true"), ("0", "false"), ("1", "false"):
        pair.play(pair.ask(queueId=queue))
        assert has_message(pair) == wanted
    pair.play(pair.pop(), pair.ask())
    assert has_message(pair) == "false"
    pair.each(CHANGES["all is due"])
    pair.play(pair.ask(), pair.ask())
    assert has_message(pair) == "true"
    counts = pair.compiled.reactor.natives.counts()[0, NOTIFICATION]
    assert counts[0] >= 4, counts


def test_a_notification_knows_the_pops_of_another_filter(sides):
    pair = Pair(sides)
    pair.send((0, "A"), (1, "A"))
    pair.play(pair.pop(exp="A", maxMsgNums="1"), pair.pop(maxMsgNums="32"))
    pair.play(pair.ask(exp="A"), pair.ask())
    assert has_message(pair) == "false"


def test_a_notification_that_waits_is_answered(sides):
    pair = Pair(sides)
    pair.send((0, ""))
    pair.play(pair.pop(), pair.ask(pollTime="9000"))
    assert pair.compiled.reactor.natives.counts()[0, NOTIFICATION][0] == 1
    assert len(pair.compiled.replies) == 1
    pair.send((1, ""))
    pair.play()
    assert has_message(pair) == "true"
    pair.play(pair.pop(), pair.ask(pollTime="9000"))
    pair.each(
        lambda side, _: vars(side.broker.clock).update(ms=side.broker.clock.ms + 9_000)
    )
    pair.play()
    assert has_message(pair) == "false"


def test_a_notification_that_waits_is_answered_compiled(sides):
    pair = Pair(sides)
    pair.send((0, ""), (1, ""))
    pair.play(pair.pop(), pair.ask(pollTime="9000"))
    pair.send((1, ""))
    pair.play()
    assert pair.opaque in pair.compiled.replies
    assert has_message(pair) == "true"
    pair.play(pair.pop(), pair.ask(pollTime="9000"), pair.ask(pollTime="9000"))
    first = pair.opaque - 1
    pair.send((0, ""))
    pair.play()
    assert first in pair.compiled.replies
    assert pair.opaque not in pair.compiled.replies


def test_a_message_that_another_has_popped_does_not_end_a_wait(sides):
    pair = Pair(sides)
    pair.send((0, ""))
    pair.play(pair.pop(), pair.ask(pollTime="9000"))
    for side in pair.sides:
        side.caller.send("T", b"x", queueId=0)
    pair.play(pair.pop())
    for side in pair.sides:
        side.broker.arrivals.flush()
    pair.play()
    pair.send((0, ""))
    pair.play()


def revive(pair, count=6):
    """Pop messages whose invisible time ends without an ack."""
    pair.send(*[(number % 3, "A") for number in range(count)])
    pair.play(pair.pop())
    pair.each(CHANGES["all is due"])


@pytest.mark.parametrize("chance", [0, 20, 100])
def test_messages_of_a_retry_topic_are_served_compiled(sides, chance):
    pair = Pair(sides)
    pair.configure("popFromRetryProbability", chance)
    revive(pair, 30)
    pair.send(*[(number % 3, "B") for number in range(9)])
    pair.play(*[pair.pop(maxMsgNums="2") for _ in range(12)], pair.pop())
    served, declined = pair.counts
    assert served > 8, declined
    assert len(popped(pair.compiled, pair.consumers[1], pair.ours)) == 30 + 30 + 9


@pytest.mark.parametrize("key", sorted(CONFIGS))
def test_retry_topics_as_configured(sides, key):
    pair = Pair(sides)
    for side in pair.sides:
        attributes = {"message.type": "PRIORITY"}
        side.caller.topic("T", queues=3, attributes=attributes)
    pair.configure(key, CONFIGS[key])
    revive(pair)
    pair.send((0, "B"), (1, "B"))
    for _ in range(2):
        pair.play(pair.pop(maxMsgNums="2"), pair.pop(maxMsgNums="2"))
        pair.each(CHANGES["all is due"])
    pair.play(*[pair.pop(maxMsgNums="1") for _ in range(12)])
    assert pair.counts[0]


@pytest.mark.parametrize("name", sorted(RETRIES))
def test_records_of_a_retry_topic_are_addressed_to_the_topic(sides, name):
    pair = Pair(sides)
    pair.send((0, ""))
    pair.send_retry("plain")
    pair.play(pair.pop(), pair.pop())
    for _ in range(3):
        pair.send_retry(name)
        pair.play(pair.pop(maxMsgNums="1"))
        assert pair.last().code == 0
    odd = {"no separator at the end", "a name twice", "no pair", "no value"}
    declined = pair.counts[1].get("odd record", 0)
    assert declined == (3 if name in {*odd, "more than 64"} else 0)


def test_a_pop_that_waits_gets_a_message_of_its_retry_topic(sides):
    pair = Pair(sides)
    revive(pair)
    pair.play(pair.pop(), pair.pop(pollTime="200000"))
    pair.each(CHANGES["all is due"])
    for side in pair.sides:
        side.broker.arrivals.flush()
    pair.play()
    assert pair.last().code == 0


def test_a_compaction_topic_gives_its_compacted_messages(sides):
    pair = Pair(sides, compaction_file_size=4_600, compaction_queue_file_size=920)
    for side in pair.sides:
        side.caller.topic("C", queues=1, attributes={"cleanup.policy": "COMPACTION"})
        for number in range(60):
            side.caller.send("C", b"%d" % number, properties="KEYS\x01k\x02")
        side.broker.arrivals.flush()
    pair.play(pair.pop(topic="C", maxMsgNums="1"), pair.pop(topic="C", maxMsgNums="1"))
    for side in pair.sides:
        compact(side.caller)
    pair.play(pair.pop(topic="C"))
    assert int(decode_stored(pair.last().body)[0].body) > 30
    assert pair.counts[0] == 0


def test_messages_that_are_not_durable_are_not_popped(sides):
    pair = Pair(sides, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    pair.send((0, ""))
    pair.each(lambda side, _: side.store.durability.flush())
    pair.play(pair.pop())
    pair.send((0, ""))
    pair.play(pair.pop())
    assert pair.last().code == ResponseCode.POLLING_TIMEOUT
    pair.each(lambda side, _: side.store.durability.flush())
    pair.play(pair.pop())
    assert pair.last().code == 0
