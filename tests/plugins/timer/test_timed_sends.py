"""The compiled and the Python intake of timed messages leave the same bytes.

As in `tests/plugins/send/test_compiled_sends.py`: two brokers with the same clock get
the same frames; replies, log, queues and, after the timer's turn, its own log and all
deliveries must be equal.
"""

import base64
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.plugin.native import TimedSends
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import FLAG_ONEWAY
from rmq.protocol.frames import FrameDecoder
from rmq.protocol.handles import RecallHandle
from rmq.store.config import FlushDiskType
from rmq.testing import ManualClock
from rmq_plugins.timer.intake import out_time
from tests.plugins.send.frames import ONCE, PLAIN, assert_equal, cut, request
from tests.plugins.sides import sides, without_maker
from tests.plugins.timer.timing import work

__all__ = ["sides"]

NOW_MS = ManualClock().ms
MAX_MS = 259_200_000
HANDLE = re.compile(rb"djEg[A-Za-z0-9_=-]+")
"""A recall handle: `v1 ` in Base64, and the rest."""

NUMBERS = [
    "0", "1", "2", "999", "1000", "1500", "259200", "259201", str(MAX_MS),
    str(MAX_MS + 1), "-1", "+5", "05", " 5", "5 ", "1e3", "x", "\u0665", "9" * 15,
    "9" * 18, "9" * 19, "9" * 20, str(NOW_MS - 1), str(NOW_MS), str(NOW_MS + 1),
    str(NOW_MS + 1_000), str(NOW_MS + 77_777), str(NOW_MS + MAX_MS),
    str(NOW_MS + MAX_MS + 1),
]  # fmt: skip
TIMES = st.tuples(
    st.sampled_from(["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"]),
    st.sampled_from(NUMBERS),
).map("\x01".join)
PIECES = st.sampled_from(
    [
        "TAGS\x01A",
        "KEYS\x01a b",
        "WAIT\x01false",
        "WAIT\x01TRUE",
        'q\x01say "hi" \\ back',
        "own\x01v\x01w",
        "TAGS\x01\u4e2d\U0001f600",
        "__SHARDINGKEY\x01s",
        "_SYS_MSG_PRIORITY_\x011",
        "POP_CK\x01x",
        "DELAY\x010",
        "DELAY\x013",
        "TRAN_MSG\x01false",
        "TRAN_MSG\x01true",
        "TIMER_OUT_MS\x01" + str(NOW_MS + 5_000),
        "TIMER_DEL_UNIQKEY\x01K",
        "TIMER_ENQUEUE_MS\x017",
        "REAL_TOPIC\x01M",
        "REAL_QID\x010",
        "XREAL_QID\x010",
        "INNER_MULTI_DISPATCH\x01%LMQ%a",
        "junk",
        "\x01novalue",
    ]
)
KEYS = st.sampled_from(["UNIQ_KEY\x017F01", 'UNIQ_KEY\x01q"\\', "UNIQ_KEY\x01\u00e9"])
DIFFERENT = [
    {},
    {"timer_wheel_enable": False},
    {"timer_most_in_slot": 2},
    {"timer_max_delay_s": 60},
    {"timer_precision_ms": 100},
    {"lmq_enabled": True, "multi_dispatch_enabled": True},
    ONCE,
]


@st.composite
def frames(draw):
    pieces = [
        *draw(st.lists(TIMES, min_size=1, max_size=draw(st.sampled_from([1, 1, 2])))),
        *draw(st.lists(KEYS, max_size=1)),
        *draw(st.lists(PIECES, max_size=2)),
    ]
    text = "\x02".join(draw(st.permutations(pieces)))
    fields = {
        **PLAIN,
        "topic": draw(st.sampled_from(["T", "T", "T", "M", "%RETRY%G"])),
        "queueId": draw(st.sampled_from(["0", "1", "2", "3", "-1"])),
        "sysFlag": draw(st.sampled_from(["0", "0", "1", "4", "16"])),
        "properties": text + draw(st.sampled_from(["\x02", ""])),
        "batch": draw(st.sampled_from(["false"] * 5 + ["true"])),
    }
    return {
        "fields": fields,
        "kind": draw(st.sampled_from(["plain", "escaped", "binary"])),
        "code": draw(st.sampled_from([10, 310])),
        "body": draw(st.sampled_from([b"x", b"y" * 300, b"", b"w" * 5000])),
        "flag": draw(st.sampled_from([0, 0, 0, FLAG_ONEWAY])),
    }


def read_handles(side):
    """Replace the handles of replies by their texts, without what the maker differs."""

    def text(handle):
        return without_maker(base64.urlsafe_b64decode(handle[0]))

    side.replies = {
        opaque: HANDLE.sub(text, reply) for opaque, reply in side.replies.items()
    }


def timer_log(side):
    return list(side.store.timer.log.read_units()) if side.store.timer.is_open else []


def assert_alike(python, compiled):
    read_handles(python)
    read_handles(compiled)
    assert_equal(python, compiled)
    assert timer_log(compiled) == timer_log(python)


def timed(name, value, more="", **fields):
    text = f"KEYS\x01k\x02{name}\x01{value}\x02{more}"
    return {**PLAIN, "properties": text, **fields}


def change(side, **values):
    body = "".join(f"{key}={value}\n" for key, value in values.items()).encode()
    answer = side.caller.call(RequestCode.UPDATE_BROKER_CONFIG, {}, body=body)
    assert answer.code == 0, answer.remark


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_comes_leaves_the_same_bytes(sides, data):
    python, compiled = sides(**data.draw(st.sampled_from(DIFFERENT)))
    opaque = 0
    for _ in range(data.draw(st.integers(1, 4))):
        made = data.draw(st.lists(frames(), min_size=1, max_size=12))
        stream = b""
        for each in made:
            opaque += 1
            stream += request(opaque=opaque, **each)
        chunks = cut(data.draw, stream)
        passes_ms = data.draw(st.sampled_from([0, 1, 700, 5_000]))
        for side in (python, compiled):
            side.play(chunks)
            if side.store.timer.is_open:
                work(side.caller, passes_ms)
    assert_alike(python, compiled)


@pytest.mark.parametrize("kind", ["plain", "escaped", "binary"])
@pytest.mark.parametrize("code", [10, 310])
def test_plain_timed_sends_are_served_compiled(sides, kind, code):
    """A topic without any message yet, and files of log and queues that roll."""
    python, compiled = sides(commit_log_file_size=1 << 16)
    value = {
        "TIMER_DELAY_SEC": "9",
        "TIMER_DELAY_MS": "9000",
        "TIMER_DELIVER_MS": str(NOW_MS + 9_000),
    }
    for side in (python, compiled):
        for n in range(300):
            name = sorted(value)[n % 3]
            more = f"UNIQ_KEY\x01key-{n}\x02" if n % 2 else ""
            fields = timed(name, value[name], more, queueId=str(n % 3))
            side.play([request(fields, opaque=n, code=code, kind=kind)])
        work(side.caller)
        assert side.store.timer.wheel.count_of((NOW_MS + 8_999) // 1_000) == 300
        work(side.caller, 10_000)
        assert sum(side.store.reads.max_offset("T", q) for q in range(3)) == 300
    assert_alike(python, compiled)
    assert python.served == 0
    assert compiled.served > 270


def test_the_handle_recalls_the_message(sides):
    _, compiled = sides()
    for n in range(4):
        more = f"UNIQ_KEY\x01key-{n}\x02"
        compiled.play([request(timed("TIMER_DELAY_SEC", "9", more), opaque=n)])
    assert compiled.served == 2
    [reply] = FrameDecoder().feed(compiled.replies[3])
    assert reply.ext_fields["queueId"] == "1"
    assert RecallHandle.decode(reply.ext_fields["recallHandle"]) == (
        RecallHandle("T", "broker-a", out_time(NOW_MS + 9_000, 1_000) + 1, "key-3")
    )


@pytest.mark.parametrize(
    "text",
    [
        "TIMER_DELAY_SEC\x019\x02TIMER_DELAY_MS\x019\x02",
        "TIMER_DELAY_SEC\x019\x02DELAY\x010\x02",
        "TIMER_DELAY_SEC\x019\x02TRAN_MSG\x01false\x02",
        "TIMER_DELAY_SEC\x019\x02REAL_TOPIC\x01x\x02",
        "TIMER_DELAY_SEC\x019\x02REAL_QID\x01x\x02",
        "TIMER_DELAY_SEC\x019\x02TIMER_OUT_MS\x01x\x02",
        "TIMER_DEL_UNIQKEY\x01K\x02TIMER_DELAY_SEC\x019\x02",
        "TIMER_DELAY_SEC\x010\x02",
        "TIMER_DELAY_SEC\x01259201\x02",
        "TIMER_DELAY_MS\x01x\x02",
    ],
)
def test_what_is_not_plainly_valid_is_left_to_python(sides, text):
    _, compiled = sides()
    for n in range(3):
        compiled.play([request(timed("TIMER_DELAY_SEC", "9"), opaque=n)])
    assert compiled.served == 1
    compiled.play([request({**PLAIN, "properties": text}, opaque=3)])
    assert compiled.served == 1


def test_the_queue_of_a_topic_is_not_made_before_its_first_message(sides):
    _, compiled = sides()
    for n in range(3):
        compiled.play([request(timed("TIMER_DELAY_SEC", "9"), opaque=n)])
    assert compiled.served == 1
    assert compiled.store.queues.get("T", 1) is None
    compiled.play([request(PLAIN, opaque=3)])
    assert compiled.served == 1, "a message without a time needs the queue"
    compiled.play(
        [request({**timed("TIMER_DELAY_SEC", "9"), "queueId": "3"}, opaque=4)]
    )
    assert compiled.served == 1, "there are three queues"


def test_new_limits_count_at_once(sides):
    _, compiled = sides()
    fields = timed("TIMER_DELAY_SEC", "9")
    for n in range(3):
        compiled.play([request(fields, opaque=n)])
    assert compiled.served == 1
    change(compiled, timerMaxDelaySec=8)
    compiled.play([request(fields, opaque=3)])
    assert compiled.served == 1, "it is too far"
    change(compiled, timerMaxDelaySec=9, timerCongestNumEachSlot=2)
    compiled.play([request(fields, opaque=4)])
    assert compiled.served == 2
    work(compiled.caller)
    compiled.play([request(fields, opaque=5)])
    assert compiled.served == 2, "the slot is crowded"


def test_sync_flush_holds_the_answer(sides):
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    fields = timed("TIMER_DELAY_SEC", "9")
    for n in range(3):
        compiled.play([request(fields, opaque=n)])
        compiled.store.durability.flush()
        compiled.play([b""])
    compiled.replies.clear()
    compiled.play([request(fields, opaque=3)])
    assert compiled.served == 2
    assert not compiled.replies
    compiled.store.durability.flush()
    compiled.play([b""])
    [reply] = FrameDecoder().feed(compiled.replies[3])
    assert reply.ext_fields["recallHandle"]


def test_an_interceptor_of_another_plugin_sees_its_messages(sides):
    from rmq.broker.put import PutPipeline
    from rmq.plugin import PutInterceptor

    pipeline = PutPipeline(sides()[0].store)
    form = TimedSends(
        count_of=lambda _: 0, broker_name=b"b", precision_ms=1_000, max_delay_ms=9,
        most_in_slot=9,
    )  # fmt: skip
    pipeline.set_interceptors(
        [
            PutInterceptor(frozenset({"A", "B"}), print, form),
            PutInterceptor(frozenset({"B", "C"}), print),
        ]
    )
    assert pipeline.compiled_interceptors() == {"A": form}
    pipeline.set_interceptors([])
    assert pipeline.compiled_interceptors() == {}
