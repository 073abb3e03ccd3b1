"""Requests that look one thing up: the compiled and the Python way answer the same."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY
from rmq.protocol.frames import FrameDecoder
from tests.plugins.client.test_compiled_commits import COMMIT, frame
from tests.plugins.sides import sides

__all__ = ["sides"]

MAX_OFFSET = int(RequestCode.GET_MAX_OFFSET)
BY_TIME = int(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
QUERY = int(RequestCode.QUERY_CONSUMER_OFFSET)
MEMBERS = int(RequestCode.GET_CONSUMER_LIST_BY_GROUP)

FIELDS = {
    MAX_OFFSET: {"topic": "T", "queueId": "1", "committed": "true"},
    BY_TIME: {"topic": "T", "queueId": "1", "boundaryType": "LOWER"},
    QUERY: {"consumerGroup": "G", "topic": "T", "queueId": "1"},
    MEMBERS: {"consumerGroup": "G"},
}
ODD = {
    "topic": st.sampled_from(["T", "M", "Nowhere", "T\u00e9", 'q"', "", None]),
    "consumerGroup": st.sampled_from(["G", "H", "G\u00e9", "Nobody", "", None]),
    "queueId": st.sampled_from(
        ["0", "2", "7", "-1", "+1", "01", "2147483648", "9" * 19, "x", "", None]
    ),
    "timestamp": st.sampled_from(["0", "-1", "9" * 18, "9" * 19, "1e3", None]),
    "boundaryType": st.sampled_from(["UPPER", "upper", "x", "", None]),
    "liteTopic": st.sampled_from(["", "lite"]),
    "setZeroIfNotFound": st.sampled_from(["false", "true"]),
    "lo": st.sampled_from(["false", "true"]),
}


def prepare(side):
    for _ in range(4):
        for queue_id in range(3):
            side.caller.send("T", queueId=queue_id)
        side.broker.clock.ms += 1_000
    side.broker.offsets.commit("peer", "G", "T", 1, 3)
    subscribe(side, "client-1")
    side.broker.arrivals.flush()


def subscribe(side, client):
    data = ConsumerData(
        group_name="G",
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        subscription_data_set=[SubscriptionData(topic="T", sub_string="*")],
    )
    side.broker.consumers.register(data, client, side.connection, "JAVA", 513, 0)


@st.composite
def requests(draw, now_ms):
    code = draw(st.sampled_from(sorted(FIELDS)))
    fields = dict(FIELDS[code])
    if code == BY_TIME:
        fields["timestamp"] = str(now_ms - draw(st.integers(-2_000, 6_000)))
    for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)):
        fields[name] = draw(ODD[name])
    return {
        "fields": fields,
        "code": code,
        "kind": draw(st.sampled_from([0, 1, 2])),
        "flag": draw(st.sampled_from([0, 0, 0, FLAG_ONEWAY])),
    }


CHANGES = {
    "": lambda side: None,
    "more": prepare,
    "delete": lambda side: side.store.delete_topic("T")(),
    "reset": lambda side: side.broker.offsets.reset("G", "T", 1, 2),
    "leave": lambda side: side.broker.consumers.unregister(
        "G", "client-1", side.connection
    ),
    "join": lambda side: subscribe(side, "client-2"),
}


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_request_gets_the_same_answer(sides, data):
    pair = sides()
    for side in pair:
        prepare(side)
    opaque = 0
    for _ in range(data.draw(st.integers(1, 4))):
        now_ms = pair[0].broker.clock.now_ms()
        frames = []
        for made in data.draw(st.lists(requests(now_ms), min_size=1, max_size=8)):
            opaque += 1
            frames.append(frame(made.pop("fields"), opaque=opaque, **made))
        change = data.draw(st.sampled_from(sorted(CHANGES)))
        for side in pair:
            side.play(frames)
            CHANGES[change](side)
    python, compiled = pair
    assert compiled.replies == python.replies
    assert python.served == 0


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["json", "binary", "numbers"])
@pytest.mark.parametrize("code", sorted(FIELDS))
def test_plain_requests_are_served_compiled(sides, code, kind):
    python, compiled = sides()
    for side in (python, compiled):
        prepare(side)
        fields = dict(FIELDS[code])
        if code == BY_TIME:
            fields["timestamp"] = str(side.broker.clock.now_ms() - 1_500)
        for opaque in range(5):
            side.play([frame(fields, opaque=opaque, kind=kind, code=code)])
    assert compiled.replies == python.replies
    assert compiled.served == 5
    [reply] = FrameDecoder().feed(compiled.replies[4])
    assert reply.code == ResponseCode.SUCCESS


def test_an_offset_of_the_same_poll_is_seen(sides):
    python, compiled = sides()
    for side in (python, compiled):
        prepare(side)
        side.broker.groups.find("G")
        side.play([frame(COMMIT, opaque=1)])
        commit = {**COMMIT, "commitOffset": "2"}
        query = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
        side.play([frame(commit, opaque=2) + frame(query, opaque=3, code=QUERY)])
    assert compiled.replies == python.replies
    assert compiled.served == 2
    [reply] = FrameDecoder().feed(compiled.replies[3])
    assert reply.ext_fields == {"offset": "2"}


def test_requests_about_static_topics_are_left_to_python(sides, monkeypatch):
    _, compiled = sides()
    prepare(compiled)
    monkeypatch.setattr(
        type(compiled.broker.queue_mappings), "__contains__", lambda *_: True
    )
    for opaque, code in enumerate((MAX_OFFSET, QUERY)):
        compiled.play([frame(FIELDS[code], opaque=opaque, code=code)])
    assert compiled.served == 0


def test_an_error_is_raised_in_python(sides, monkeypatch):
    """The compiled way asks once, and Python asks again, and answers the error."""
    _, compiled = sides()
    prepare(compiled)
    asked = []

    def fail(*_):
        asked.append(1)
        raise ValueError("broken")

    monkeypatch.setattr(compiled.store.reads, "max_offset", fail)
    with pytest.raises(ValueError, match="broken"):
        compiled.play([frame(FIELDS[MAX_OFFSET], opaque=1, code=MAX_OFFSET)])
    assert len(asked) == 2
