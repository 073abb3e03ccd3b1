"""Pulls by SQL92: the compiled and the Python handler give the same bytes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.codes import ResponseCode
from rmq.protocol.frames import FrameDecoder
from rmq.protocol.records import decode_stored
from tests.plugins.consume.pull.test_compiled_held_pulls import Waiter
from tests.plugins.consume.pull.test_compiled_pulls import (
    JAVA_PUSH,
    PLAIN,
    VERSION,
    forget_oldest,
    look_again,
    request,
    state,
    subscribe,
)
from tests.plugins.sides import sides

__all__ = ["sides"]

SELECTORS = (
    "n > 6", "n > 5 AND kind = 'a'", "n IS NULL", "kind IN ('b', 'c')", "n = 100",
    "kind LIKE 'x'", "", "n >", "TAGS = 'TagA' OR n BETWEEN 2 AND 4",
)  # fmt: skip
SQL = {**PLAIN, "expressionType": "SQL92", "subscription": "n > 6"}


@pytest.fixture
def allowing(sides):
    """Makes pairs that serve SQL92."""

    def make(**options):
        return sides(broker_options={"enable_property_filter": True}, **options)

    return make


def fill(side, count, *, size=100, first=0):
    """Messages with a number below ten and a kind, in turn to each queue."""
    for each in range(first, first + count):
        properties = f"UNIQ_KEY\x01{each}\x02kind\x01{'abc'[each % 3]}\x02"
        if each % 4:
            properties += f"n\x01{each % 10}\x02"
        if each % 5 == 0:
            properties += "TAGS\x01TagA\x02"
        side.caller.send(
            "T", bytes(1 + each * 37 % size), queueId=each % 3, properties=properties
        )
    side.broker.arrivals.flush()


def announce(side, expression, version=VERSION):
    """Let a heartbeat subscribe by SQL92, as its handler does."""
    subscribe(side, version, expression, "SQL92")
    wanted = SubscriptionData(
        topic="T", sub_string=expression, sub_version=version, expression_type="SQL92"
    )
    side.broker.filters.register("G", [wanted])


def assert_equal(python, compiled):
    """Compare what clients and tables see, but not the reads of the store: Python reads
    in batches.
    """
    both = [list(state(side)) for side in (python, compiled)]
    for each in both:
        del each[3]
    assert both[1] == both[0]
    assert python.served == 0


def reply_of(side, opaque):
    [reply] = FrameDecoder().feed(side.replies[opaque])
    return reply


@st.composite
def sql_pulls(draw):
    fields = dict(draw(st.sampled_from([SQL, JAVA_PUSH])))
    fields |= {
        "queueId": draw(st.sampled_from("0123")),
        "queueOffset": str(draw(st.integers(0, 45))),
        "maxMsgNums": draw(st.sampled_from(["32", "1", "3", "0", "-1", "999", "9999"])),
        "sysFlag": str(int(fields["sysFlag"]) & 4 | draw(st.integers(0, 3))),
        "commitOffset": str(draw(st.integers(0, 9))),
        "maxMsgBytes": draw(st.sampled_from(["262144", "1", "700", "0"])),
        "subVersion": str(VERSION + draw(st.integers(-1, 2))),
    }
    if "subscription" in fields:
        fields["subscription"] = draw(st.sampled_from(SELECTORS))
        fields["expressionType"] = draw(st.sampled_from(["SQL92", "SQL92", "TAG", ""]))
    return fields


CHANGES = {
    "more": lambda side: fill(side, 20, first=60),
    "tags": lambda side: subscribe(side, VERSION + 1, "TagA"),
    "newer": lambda side: announce(side, "n < 3", VERSION + 1),
    "other": lambda side: announce(side, "n IS NOT NULL"),
    "not announced": lambda side: subscribe(side, VERSION + 2, "n = 7", "SQL92"),
    "dead": lambda side: side.broker.filters.unregister("G"),
    "old files go": forget_oldest,
    "nothing": lambda _: None,
}


@settings(
    max_examples=settings.default.max_examples // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    data=st.data(),
    scanned=st.sampled_from([20, 100, 16_000]),
    size=st.sampled_from([100, 900]),
)
def test_any_pull_gets_the_same_bytes(allowing, data, scanned, size):
    """Also a pull that ends after few entries, and one of a file that is gone."""
    pair = allowing(
        commit_log_file_size=1 << 15, max_message_size=4_000, filter_scan_bytes=scanned
    )
    for side in pair:
        announce(side, "n > 6")
        fill(side, 60, size=size)
    opaque = 0
    for _ in range(data.draw(st.integers(1, 5))):
        frames = []
        for fields in data.draw(st.lists(sql_pulls(), min_size=1, max_size=8)):
            kind = data.draw(st.sampled_from(["plain", "numbers", "binary"]))
            if kind == "binary":
                fields = {name: value for name, value in fields.items() if value}
            opaque += 1
            frames.append(request(fields, opaque=opaque, kind=kind))
        change = data.draw(st.sampled_from(sorted(CHANGES)))
        for side in pair:
            side.play(frames)
            CHANGES[change](side)
            look_again(side)
            side.play([b""])
    assert_equal(*pair)


@pytest.mark.parametrize("fields", [SQL, JAVA_PUSH], ids=["own", "announced"])
@pytest.mark.parametrize("kind", ["plain", "binary"])
def test_they_are_served_compiled(allowing, fields, kind):
    """Each of a queue's pulls but the first: some find messages, some find none."""
    pair = python, compiled = allowing(commit_log_file_size=1 << 16)
    for side in pair:
        announce(side, "n > 6")
        fill(side, 600, size=300)
        for offset in range(100):
            wanted = {**fields, "queueOffset": str(offset), "maxMsgNums": "2"}
            side.play([request(wanted, opaque=offset, kind=kind)])
    codes = {reply_of(compiled, offset).code for offset in range(100)}
    assert codes == {ResponseCode.SUCCESS}
    assert_equal(python, compiled)
    assert compiled.served > 80


def test_a_pull_without_a_match_moves_on_compiled(allowing):
    """It answers with the offset after as many entries as a pull examines."""
    pair = python, compiled = allowing(filter_scan_bytes=20 * 40)
    for side in pair:
        fill(side, 300)
        for opaque, expression in enumerate(["n > 6", "n > 60", "n > 60"]):
            side.play([request({**SQL, "subscription": expression}, opaque=opaque)])
        side.play([request({**SQL, "subscription": "TRUE"}, opaque=3)])
        for opaque in range(4, 7):
            wanted = {**SQL, "subscription": "TRUE AND n > 60", "queueOffset": "9"}
            side.play([request(wanted, opaque=opaque)])
    reply = reply_of(compiled, 6)
    assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert reply.remark == "NO_MATCHED_MESSAGE"
    assert int(reply.ext_fields["nextBeginOffset"]) == 9 + 40
    assert_equal(python, compiled)


def test_two_types_of_one_text_are_two_views(allowing):
    pair = python, compiled = allowing()
    for side in pair:
        fill(side, 60)
        for opaque in range(8):
            kind = "SQL92" if opaque % 2 else "TAG"
            fields = {**SQL, "subscription": "TagA", "expressionType": kind}
            side.play([request(fields, opaque=opaque)])
    assert_equal(python, compiled)
    assert reply_of(compiled, 6).code == ResponseCode.SUCCESS
    assert reply_of(compiled, 7).code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_a_long_selector_is_left_to_python(allowing):
    """A view's selector has a limit, because clients make views."""
    _, compiled = allowing()
    fill(compiled, 60)
    expression = " OR ".join(["n > 6"] * 60)
    for opaque in range(3):
        compiled.play([request({**SQL, "subscription": expression}, opaque=opaque)])
    assert reply_of(compiled, 2).code == ResponseCode.SUCCESS
    assert compiled.served == 0


def test_a_pull_waits_for_a_match_without_python(allowing):
    """Messages that do not match neither wake it nor are read again."""
    waiters = [Waiter(side) for side in allowing()]
    opaques = []
    for waiter in waiters:
        fill(waiter.side, 60)
        waiter.warm(expressionType="SQL92", subscription="n > 6")
        end = waiter.side.store.reads.max_offset("T", 0)
        opaques.append(
            waiter.pull(end, 0, expressionType="SQL92", subscription="n > 6")
        )
        for number in (1, 2, 7):
            assert waiter.answer(opaques[-1]) is None
            waiter.side.caller.send(
                "T",
                b"%d" % number,
                queueId=0,
                properties=f"UNIQ_KEY\x01k\x02n\x01{number}\x02",
            )
            waiter.turn()
    python, compiled = waiters
    assert python.answers() == compiled.answers()
    assert [
        record.body for record in decode_stored(compiled.answer(opaques[1]).body)
    ] == [b"7"]
    counts = compiled.compiled.counts()
    assert (counts.held, counts.woken, counts.returned) == (1, 1, 0)
