"""One meaning: heartbeats answered compiled and by the Python handler do the same.

Two brokers get the same heartbeats over a socket; one of them answers those that say
nothing new compiled. Replies, members and their times must be equal.
"""

import base64
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq._fastpath.handlers.heartbeat_path import HeartbeatPath
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.codes import LanguageCode, RequestCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import FrameDecoder, encode
from tests.golden.recordings import frame_files, read_rows
from tests.plugins.sides import sides

__all__ = ["sides"]


def consumer(group="G", *topics, version=1, **more):
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [
            {"topic": topic, "subString": "*", "subVersion": version}
            for topic in topics or ("T",)
        ],
        **more,
    }


def body(*consumers, client="c@1", producers=(), **more):
    content = {
        "clientID": client,
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": name} for name in producers],
        **more,
    }
    return json.dumps(content).encode()


def frame(content, *, opaque, kind=0, flag=0, version=513, language="JAVA"):
    number = LanguageCode[language]
    return encode(
        Command(
            34, body=content, opaque=opaque, flag=flag, version=version,
            language=language if kind == 0 else number, serialize_type=kind,
        )
    )  # fmt: skip


def name_of(language):
    return language if isinstance(language, str) else LanguageCode(language).name


def members(side):
    return [
        [
            (
                group,
                member.client_id,
                member.version,
                name_of(member.language),
                member.last_heartbeat_ms,
            )
            for group, _, member in table.all()
        ]
        for table in (side.broker.consumers, side.broker.producers)
    ]


def group_of(side, name="G"):
    group = side.broker.consumers.group(name)
    return group and (
        group.consume_type, group.consume_from_where, group.message_model,
        {t: (s.sub_string, s.sub_version) for t, s in group.subscriptions.items()},
    )  # fmt: skip


def selectors(side):
    found = [side.broker.filters.get(topic, group) for topic in "TM" for group in "GH"]
    return [
        each and (each.expression, each.is_dead, each.client_version, each.dead_time)
        for each in found
    ]


def assert_equal(python, compiled):
    assert compiled.replies == python.replies
    assert members(compiled) == members(python)
    assert group_of(compiled) == group_of(python)
    assert set(compiled.broker.groups.all()) == set(python.broker.groups.all())
    assert set(compiled.broker.topics.all()) == set(python.broker.topics.all())
    assert selectors(compiled) == selectors(python)
    assert python.served == 0


def selecting(text, version=1, topic="T"):
    """Return a consumer that subscribes by SQL92."""
    subscription = {
        "topic": topic, "subString": text, "subVersion": version,
        "expressionType": "SQL92",
    }  # fmt: skip
    return consumer(subscriptionDataSet=[subscription])


BODIES = (
    body(consumer()),
    body(consumer(), producers=["P"]),
    body(selecting("a > 5")),
    body(selecting("a > 5"), client="c@2"),
    body(selecting("a > 6", version=2)),
    body(selecting("= 6")),
    body(selecting("a > 5", topic="M")),
    body(consumer("G", "T", "M")),
    body(consumer("G", version=2), consumer("H")),
    body(consumer("G", consumeType="CONSUME_ACTIVELY")),
    body(consumer("G", consumeFromWhere="CONSUME_FROM_LAST_OFFSET")),
    body(consumer("G", messageModel="BROADCASTING")),
    body(consumer(), client="c@2"),
    body(producers=["P", "Q"]),
    body(consumer(), heartbeatFingerprint=7, withoutSub=False),
    body(consumer(), heartbeatFingerprint=7, withoutSub=True),
    body(consumer("bad group")),
    body(consumer(), client=""),
    b"{",
    b"",
)


def wait(side):
    side.broker.clock.ms += 30_000


def delete_group(side):
    side.broker.groups.delete("G")


def update_group(side):
    side.broker.groups.update(
        SubscriptionGroupConfig(group_name="G", retry_queue_nums=2)
    )


def unregister(side):
    fields = {"clientID": "c@1", "consumerGroup": "G", "producerGroup": "P"}
    side.caller.call(RequestCode.UNREGISTER_CLIENT, fields, connection=side.connection)


CHANGES = {
    "later": wait,
    "delete group": delete_group,
    "update group": update_group,
    "delete retry topic": lambda side: side.broker.topics.delete("%RETRY%G"),
    "unregister": unregister,
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
    opaque = 0
    for _ in range(data.draw(st.integers(1, 12))):
        chunks = []
        for content in data.draw(
            st.lists(st.sampled_from(BODIES[:3] * 4 + BODIES), min_size=1, max_size=5)
        ):
            opaque += 1
            kind = data.draw(st.sampled_from([0, 0, 1]))
            version = data.draw(st.sampled_from([513, 513, 401]))
            flag = data.draw(st.sampled_from([0, 0, 0, FLAG_ONEWAY]))
            language = data.draw(st.sampled_from(["JAVA", "JAVA", "CPP"]))
            chunks.append(
                frame(
                    content,
                    opaque=opaque,
                    kind=kind,
                    version=version,
                    flag=flag,
                    language=language,
                )
            )
        change = data.draw(st.sampled_from(sorted(CHANGES)))
        for side in pair:
            side.play(chunks)
        assert_equal(*pair)
        for side in pair:
            CHANGES[change](side)
    assert_equal(*pair)


def test_heartbeats_with_a_selector_are_answered_compiled(sides):
    pair = _, compiled = sides()
    for n in range(5):
        for side in pair:
            wait(side)
            side.play([frame(body(selecting("a > 5")), opaque=n)])
        assert_equal(*pair)
    assert compiled.served == 4


def test_members_with_other_selectors_change_them_in_turn(sides):
    """Python serves both: each heartbeat marks the selector of the other as dead."""
    pair = _, compiled = sides()
    bodies = body(selecting("a > 5")), body(consumer(), client="c@2")
    for n in range(6):
        for side in pair:
            side.play([frame(bodies[n % 2], opaque=n)])
        assert_equal(*pair)
    assert compiled.served == 0


@pytest.mark.parametrize("kind", [0, 1], ids=["plain", "binary"])
def test_heartbeats_that_repeat_themselves_are_answered_compiled(sides, kind):
    pair = python, compiled = sides()
    for n in range(10):
        for side in pair:
            wait(side)
            side.play([frame(BODIES[1], opaque=n, kind=kind)])
        assert_equal(*pair)
    assert compiled.served == 9
    now_ms = python.broker.clock.now_ms()
    assert [each[-1] for table in members(compiled) for each in table] == [now_ms] * 2


@pytest.mark.parametrize(
    "change", ["delete group", "update group", "delete retry topic", "unregister"]
)
def test_a_change_ends_the_short_way(sides, change):
    _, compiled = sides()
    compiled.play([frame(BODIES[0], opaque=n) for n in range(3)])
    assert compiled.served == 2
    CHANGES[change](compiled)
    compiled.play([frame(BODIES[0], opaque=9)])
    assert compiled.served == 2
    assert compiled.broker.groups.get("G") is not None
    assert compiled.broker.topics.get("%RETRY%G") is not None
    assert compiled.broker.consumers.client_ids("G") == ["c@1"]


def test_another_language_is_another_client(sides):
    pair = _, compiled = sides()
    for n, language in enumerate(("JAVA", "JAVA", "CPP", "GO", "GO")):
        for side in pair:
            side.play([frame(BODIES[0], opaque=n, language=language)])
        assert_equal(*pair)
    assert compiled.served == 2
    ((_, _, _, language, _),), _ = members(compiled)
    assert language == "GO"


def test_a_closed_connection_is_forgotten(sides):
    _, compiled = sides()
    compiled.play([frame(BODIES[0], opaque=n) for n in range(2)])
    for forget in compiled.caller.registered.on_close:
        forget(compiled.connection)
    compiled.play([frame(BODIES[0], opaque=9)])
    assert compiled.served == 1


def recorded_heartbeats():
    """The last heartbeat of each recorded connection, those that differ."""
    last = {}
    for path in frame_files():
        if path.stem.startswith("probe"):
            continue
        for row in read_rows(path):
            if row["dir"] == "c2s" and row["header"]["code"] == 34:
                raw = base64.b64decode(row["raw"])
                last[path.stem, row.get("run"), row["conn"]] = raw
    bodies = {}
    for raw in last.values():
        [request] = FrameDecoder().feed(raw)
        bodies[request.body] = raw
    return bodies


def test_recorded_clients_repeat_themselves(sides):
    """Whatever a client sent last is answered compiled when it comes again."""
    pair = python, compiled = sides()
    beats = recorded_heartbeats()
    assert len(beats) > 20
    for content, raw in beats.items():
        before = compiled.served
        for side in pair:
            for _ in range(3):
                side.replies.clear()
                side.play([raw])
        assert_equal(python, compiled)
        assert compiled.served - before == 2, content


def test_an_answer_without_fields_is_refused():
    with pytest.raises(ValueError, match="has ext fields"):
        HeartbeatPath(lambda _: None, {}, 513)
