"""One meaning: commits served compiled and by the Python handler give the same bytes.

Two brokers get the same commits, alone and with pulls, over a socket; one of them
serves what it can compiled. Replies and offsets must be equal after each poll.
"""

import functools
import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import FrameDecoder, encode
from tests.plugins.sides import sides

__all__ = ["sides"]

COMMIT = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "7"}
PULL = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "5",
    "commitOffset": "3",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "1",
    "expressionType": "TAG",
}


def frame(fields, *, opaque, flag=0, kind=0, code=15):
    fields = {name: value for name, value in fields.items() if value is not None}
    if kind == 2:  # numbers, as Node writes them
        texts = {name: number(value) for name, value in fields.items()}
        header = json.dumps(
            {
                "code": code, "language": "JAVA", "opaque": opaque, "flag": flag,
                "version": 121, "remark": "", "extFields": texts,
            }
        ).encode()  # fmt: skip
        size = (4 + len(header)).to_bytes(4, "big")
        return size + len(header).to_bytes(4, "big") + header
    if kind == 1:
        fields = {name: value for name, value in fields.items() if value}
    return encode(
        Command(
            code, fields, opaque=opaque, flag=flag, language="JAVA" if not kind else 0,
            version=513, serialize_type=kind,
        )
    )  # fmt: skip


def number(text):
    return int(text) if text.isdecimal() and text == str(int(text)) else text


def prepare(side):
    for group in ("G", "H", "G\u00e9"):
        side.broker.groups.find(group)
    for queue_id in range(3):
        for _ in range(4):
            side.caller.send("T", queueId=queue_id)
    side.broker.arrivals.flush()


def offsets(side):
    return json.loads(b"".join(side.broker.offsets.snapshot()))


def assert_equal(python, compiled):
    assert compiled.replies == python.replies
    assert offsets(compiled) == offsets(python)
    assert python.served == 0


ODD = {
    "consumerGroup": st.sampled_from(["G", "H", "G\u00e9", "Nobody", "", None]),
    "topic": st.sampled_from(["T", "M", "Nowhere", "", None]),
    "queueId": st.sampled_from(
        ["1", "2", "9", "-1", "+1", "01", "1023", "1024", "65535", "65536", "x", None]
    ),
    "commitOffset": st.sampled_from(
        ["0", "-1", "-0", "007", "1e3", "9" * 18, "9" * 19, "null", "", None]
    ),
    "lo": st.just("maybe"),
    "bname": st.just("broker-a"),
}


@st.composite
def requests(draw):
    code = draw(st.sampled_from([15, 15, 15, 11]))
    fields = dict(COMMIT if code == 15 else PULL)
    fields["queueId"] = draw(st.sampled_from(["0", "1"]))
    fields["commitOffset"] = str(draw(st.integers(0, 9)))
    for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)):
        if code == 15:
            fields[name] = draw(ODD[name])
    return {
        "fields": fields,
        "code": code,
        "kind": draw(st.sampled_from([0, 0, 1, 2])),
        "flag": draw(st.sampled_from([0, 0, FLAG_ONEWAY])) if code == 15 else 0,
    }


def delete_topic(side):
    side.broker.topics.delete("T")
    side.broker.offsets.remove_topic("T")
    side.store.delete_topic("T")()


def delete_group(side):
    side.broker.groups.delete("G")


def forget_group(side):
    side.broker.groups.delete("G")
    side.broker.offsets.remove_group("G")


CHANGES = {
    "reset": lambda side: side.broker.offsets.reset("G", "T", 0, 2),
    "reset is taken": lambda side: side.broker.offsets.take_reset("G", "T", 0),
    "delete topic": delete_topic,
    "topic": lambda side: side.caller.topic("T", queues=3),
    "delete group": delete_group,
    "forget group": forget_group,
    "group": lambda side: side.broker.groups.find("G"),
    "clone": lambda side: side.broker.offsets.clone("G", "H", "T"),
    "nothing": lambda _: None,
}


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_comes_gets_the_same_bytes(sides, data):
    pair = sides()
    for side in pair:
        prepare(side)
    opaque = 0
    for _ in range(data.draw(st.integers(1, 8))):
        chunks = []
        for each in data.draw(st.lists(requests(), min_size=1, max_size=8)):
            opaque += 1
            chunks.append(frame(opaque=opaque, **each))
        if data.draw(st.booleans()):
            chunks = [b"".join(chunks)]
        change = data.draw(st.sampled_from(sorted(CHANGES)))
        for side in pair:
            side.play(chunks)
        assert_equal(*pair)
        for side in pair:
            CHANGES[change](side)
    assert_equal(*pair)


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["plain", "binary", "numbers"])
@pytest.mark.parametrize("flag", [0, FLAG_ONEWAY], ids=["answered", "oneway"])
def test_commits_after_the_first_of_a_queue_are_served_compiled(sides, kind, flag):
    pair = python, compiled = sides()
    for side in pair:
        prepare(side)
        for n in range(20):
            wanted = {**COMMIT, "queueId": str(n % 2), "commitOffset": str(50 - n)}
            side.play([frame(wanted, opaque=n, kind=kind, flag=flag)])
    assert_equal(python, compiled)
    assert compiled.served == 18
    assert len(compiled.replies) == (0 if flag else 20)
    assert compiled.broker.offsets.queues("G", "T") == {0: 32, 1: 31}


def test_offsets_keep_their_order_with_those_in_pulls(sides):
    """A pull and a commit in one poll: the later one wins, whichever handler has it."""
    _, compiled = sides()
    prepare(compiled)
    for fields, code in ((COMMIT, 15), (PULL, 11)):
        compiled.play([frame(fields, opaque=code, code=code)])
    for first in (15, 11):
        served = compiled.served
        frames = [
            frame({**COMMIT, "commitOffset": "8"}, opaque=15 + first),
            frame({**PULL, "commitOffset": "4"}, opaque=11 + 2 * first + 40, code=11),
        ]
        compiled.replies.clear()
        compiled.play([b"".join(frames if first == 15 else frames[::-1])])
        assert compiled.served == served + 2
        assert compiled.broker.offsets.query("G", "T", 0) == (4 if first == 15 else 8)


def test_a_reset_ends_the_short_way_until_it_is_taken(sides):
    _, compiled = sides()
    prepare(compiled)
    compiled.play([frame(COMMIT, opaque=n) for n in range(2)])
    compiled.broker.offsets.reset("G", "T", 0, 2)
    compiled.play([frame(COMMIT, opaque=9)])
    [reply] = FrameDecoder().feed(compiled.replies[9])
    assert reply.remark == "Offset has been previously reset"
    assert compiled.broker.offsets.query("G", "T", 0) == 2


def test_more_commits_than_a_poll_may_have_are_all_kept(sides):
    pair = python, compiled = sides()
    for side in pair:
        prepare(side)
        side.play([frame(COMMIT, opaque=0)])
        many = [
            frame({**COMMIT, "commitOffset": str(n)}, opaque=n, flag=FLAG_ONEWAY)
            for n in range(1, 1_500)
        ]
        side.play([b"".join(many[n : n + 500]) for n in range(0, len(many), 500)])
    assert_equal(python, compiled)
    assert compiled.broker.offsets.query("G", "T", 0) == 1_499


def test_a_full_batch_leaves_the_rest_of_the_poll_to_python(sides, monkeypatch):
    """A poll brings 100 commits; 64 have a place."""
    monkeypatch.setattr(
        "rmq.broker.tables.offsets.CommitTable",
        functools.partial(CommitTable, commit_limit=64),
    )
    pair = python, compiled = sides()
    for side in pair:
        prepare(side)
        side.play([frame(COMMIT, opaque=0)])
        many = [
            frame({**COMMIT, "commitOffset": str(n)}, opaque=n, flag=FLAG_ONEWAY)
            for n in range(1, 101)
        ]
        side.play([b"".join(many)])
    assert_equal(python, compiled)
    assert compiled.broker.offsets.query("G", "T", 0) == 100
    served, declined = compiled.reactor.natives.counts()[0, 15]
    assert 64 <= served < 100  # the rest of them may be those of a second poll
    assert declined["too much"] == 1  # once one frame is Python's, those after it are


@pytest.mark.parametrize("limit", ["MAX_ENTRIES", "MAX_OFFSETS"])
def test_a_full_table_of_offsets_refuses_what_is_new_and_serves_the_rest(
    sides, monkeypatch, limit
):
    monkeypatch.setattr(f"rmq.broker.tables.offsets.{limit}", 1)
    pair = python, compiled = sides()
    new = {**COMMIT, "consumerGroup": "H", "queueId": "1"}
    for side in pair:
        prepare(side)
        side.play([
            frame({**COMMIT, "commitOffset": "5"}, opaque=0),
            frame(new, opaque=1),
            frame({**COMMIT, "commitOffset": "6"}, opaque=2),
            frame(new, opaque=3),
            frame({**COMMIT, "commitOffset": "8"}, opaque=4),
        ])  # fmt: skip
    assert_equal(python, compiled)
    assert compiled.served == 2
    for opaque, code in ((0, 0), (1, 1), (2, 0), (3, 1), (4, 0)):
        [answer] = FrameDecoder().feed(compiled.replies[opaque])
        assert answer.code == code
        if code:
            assert "1 of 1" in answer.remark
            assert "delete groups or topics" in answer.remark
    assert compiled.broker.offsets.query("G", "T", 0) == 8
    assert compiled.broker.offsets.query("H", "T", 1) == -1


def test_a_pair_that_was_forgotten_for_another_is_served_again(sides):
    """Compiled code knows 65,536 pairs; one more takes the place of any other."""
    _, compiled = sides()
    prepare(compiled)
    table = compiled.broker.offsets.commit_table
    for n in range(65_536):
        table.register(f"group-{n}", "T", 0)
    offset = itertools.count(1)

    def commit(count):
        before = compiled.served
        for n in itertools.islice(offset, count):
            compiled.play([frame({**COMMIT, "commitOffset": str(n)}, opaque=n)])
            [answer] = FrameDecoder().feed(compiled.replies[n])
            assert answer.code == 0
        return compiled.served - before

    assert commit(10) == 9
    for n in range(65_536, 67_000):
        table.register(f"group-{n}", "T", 0)
    assert len(table) == 65_536
    assert commit(10) >= 9
    assert compiled.broker.offsets.query("G", "T", 0) == 20
