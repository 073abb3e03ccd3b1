"""Locks of orderly consumers: the compiled and the Python way answer the same.

Two brokers get the same requests; one of them serves what it can compiled.
"""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.broker.queue_locks import LOCK_TIME_MS
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq_plugins.client.native_locks import MAX_KEPT_SIZE
from tests.plugins.client.test_locks import queue
from tests.plugins.sides import sides

__all__ = ["sides"]

LOCK, UNLOCK = int(RequestCode.LOCK_BATCH_MQ), int(RequestCode.UNLOCK_BATCH_MQ)
ODD_BODIES = [
    b"", b"{}", b"[]", b"{", b'{"consumerGroup":"G"}', b'{"clientId":"one"}',
    b'{"clientId":"one","consumerGroup":"no/group","mqSet":[]}',
    b'{"clientId":"one","consumerGroup":"G","mqSet":[{"topic":"T"}]}',
    b'{"clientId":"one","consumerGroup":"G","mqSet":[{"topic":"../T","queueId":1,'
    b'"brokerName":"b"}]}',
]  # fmt: skip


def body_of(client, numbers, group="G"):
    return json.dumps(
        {
            "clientId": client,
            "consumerGroup": group,
            "mqSet": [queue(number) for number in numbers],
            "onlyThisBroker": False,
        }
    ).encode()


def frame(code, body, opaque, *, flag=0, kind=0):
    return encode(
        Command(
            code, {}, body, opaque=opaque, flag=flag, version=513, serialize_type=kind
        )
    )


@st.composite
def requests(draw):
    body = body_of(
        draw(st.sampled_from(["one", "two"])),
        draw(st.lists(st.integers(0, 4), max_size=4)),
        draw(st.sampled_from(["G", "G", "H"])),
    )
    if not draw(st.integers(0, 5)):
        body = draw(st.sampled_from(ODD_BODIES))
    return {
        "code": draw(st.sampled_from([LOCK, LOCK, UNLOCK])),
        "body": body,
        "flag": draw(st.sampled_from([0, 0, 0, FLAG_ONEWAY])),
        "kind": draw(st.sampled_from([0, 1])),
    }


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_request_gets_the_same_answer(sides, data):
    pair = python, compiled = sides()
    opaque = 0
    for _ in range(data.draw(st.integers(1, 6))):
        frames = []
        for made in data.draw(st.lists(requests(), max_size=6)):
            opaque += 1
            frames.append(frame(opaque=opaque, **made))
        passed_ms = data.draw(st.sampled_from([0, 1, LOCK_TIME_MS - 1, LOCK_TIME_MS]))
        for side in pair:
            side.play(frames)
            side.broker.clock.ms += passed_ms
    assert compiled.replies == python.replies
    assert python.served == 0


@pytest.mark.parametrize("kind", [0, 1], ids=["json", "binary"])
def test_plain_requests_are_served_compiled(sides, kind):
    pair = python, compiled = sides()
    for side in pair:
        side.play([frame(LOCK, body_of("one", [0, 1]), 1, kind=kind)])
        side.play([frame(LOCK, body_of("two", [1, 2]), 2, kind=kind)])
        side.play([frame(UNLOCK, body_of("one", [1]), 3, kind=kind)])
        side.play([frame(LOCK, body_of("two", [1, 2]), 4, kind=kind)])
    assert compiled.replies == python.replies
    assert compiled.served == 4
    answers = [FrameDecoder().feed(compiled.replies[n])[0].body for n in (2, 4)]
    locked = [json.loads(body)["lockOKMQSet"] for body in answers]
    assert locked == [[queue(2)], [queue(1), queue(2)]]


def test_errors_and_long_bodies_are_left_to_python(sides):
    pair = python, compiled = sides()
    long = body_of("one", range(MAX_KEPT_SIZE // 40))
    assert len(long) > MAX_KEPT_SIZE
    for side in pair:
        side.play(
            frame(LOCK, body, number) for number, body in enumerate([*ODD_BODIES, long])
        )
    assert compiled.replies == python.replies
    assert compiled.served == 0
    codes = {FrameDecoder().feed(each)[0].code for each in compiled.replies.values()}
    assert ResponseCode.SYSTEM_ERROR in codes
