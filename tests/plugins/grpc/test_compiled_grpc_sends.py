"""Compiled and Python calls of SendMessage, and request 310, leave the same bytes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq._fastpath.reactor.connections import EventKind
from rmq.protocol.records import decode_stored
from rmq.store.config import FlushDiskType
from rmq_plugins.grpc import messages
from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import make_pair
from tests.plugins.send.frames import ONCE, log_that_fails, request
from tests.plugins.sides import Side

OK = 20000
BORN_MS = 1_795_230_112_758


@pytest.fixture
def sides(tmp_path):
    """Return a function that makes (Python's side, compiled side)."""
    made = []

    def make(**options):
        folder = tmp_path / str(len(made))
        pair = make_pair(folder, **options)
        made.extend(pair)
        for side in pair:
            kinds = {"T": "NORMAL", "M": "NORMAL", "F": "FIFO", "D": "DELAY"}
            side.caller.topic("F", queues=5)
            side.caller.topic("D", queues=2)
            for name, kind in kinds.items():
                side.broker.topics.get(name).attributes["message.type"] = kind
        return pair

    yield make
    for side in made:
        side.close()


def message_of(
    topic="T", body=b"body", kind=1, message_id="01AB", properties=None, **system
):
    made = sent(topic, body, kind, message_id, properties, **system)
    born = made.messages[0].system_properties.born_timestamp
    born.seconds, born.nanos = BORN_MS // 1000, BORN_MS % 1000 * 1_000_000
    return made


def records_of(side, topic, queue_id):
    return decode_stored(side.store.reads.get(topic, queue_id, 0, 32).body)


def assert_equal(python, compiled):
    assert compiled.files() == python.files()
    assert compiled.data == python.data
    assert compiled.endings == python.endings


def test_plain_messages_are_served_compiled(sides):
    python, compiled = sides()
    for number in range(60):
        for side in (python, compiled):
            answer = side.call(
                message_of(
                    message_id=f"01{number:032X}",
                    tag="TagA",
                    keys=["k1", "k2"],
                    properties={"colour": "blue", "size": "7"},
                    trace_context="00-1-2",
                )
            )
            assert answer.status.code == answer.entries[0].status.code == OK
            assert answer.entries[0].transaction_id == f"01{number:032X}"
    assert_equal(python, compiled)
    assert compiled.sends.served == 57  # the first message of each queue is Python's
    assert python.sends.served == 0


def test_a_message_group_has_one_queue(sides):
    python, compiled = sides()
    for number in range(40):
        for side in (python, compiled):
            side.call(message_of("F", kind=2, message_group=f"group-{number % 8}"))
    assert_equal(python, compiled)
    assert compiled.sends.served >= 30


def test_messages_with_a_time_wait_in_the_timer(sides):
    python, compiled = sides()
    now_ms = compiled.broker.clock.now_ms()
    for seconds in (10, 20, 3600, 86_300, 86_500, 0, -5):
        for side in (python, compiled):
            due_ms = now_ms + 1000 * seconds
            answer = side.call(message_of("D", kind=3, delivery_ms=due_ms))
            assert (answer.status.code == OK) == (seconds < 86_400)
    assert_equal(python, compiled)
    assert compiled.sends.served == 2


def remoting_request(made, opaque, kind):
    """The frame by which a remoting client sends the same message."""
    message = made.messages[0]
    fields = {
        "producerGroup": "T",
        "topic": "T",
        "defaultTopic": "x",
        "defaultTopicQueueNums": "0",
        "queueId": str(message.system_properties.queue_id),
        "sysFlag": "0",
        "bornTimestamp": str(BORN_MS),
        "flag": "0",
        "properties": messages.properties_of(message, 1),
    }
    return request(fields, opaque=opaque, body=message.body, kind=kind)


@pytest.mark.parametrize("kind", ["plain", "binary"])
def test_a_remoting_client_makes_the_same_record(sides, tmp_path, kind):
    _, compiled = sides()
    remoting = Side(tmp_path / "remoting", compiled=True)
    for number in range(6):
        made = message_of(
            tag="A",
            keys=["k"],
            queue_id=2,
            properties={"own": str(number)},
            message_id=f"7F{number:030X}",
        )
        compiled.call(made)
        remoting.play([remoting_request(made, number, kind)])
    assert compiled.sends.served == 5
    assert compiled.files() == remoting.files()
    remoting.close()


def test_python_serves_what_it_may_refuse(sides):
    python, compiled = sides()
    compiled.call(message_of(queue_id=1))
    python.call(message_of(queue_id=1))
    for made in (
        message_of(queue_id=1, body=b""),
        message_of(queue_id=1, body=bytes(5000)),
        message_of(queue_id=1, message_id=" \u00e9"),
        message_of(queue_id=1, tag="a|b"),
        message_of(queue_id=1, tag=" "),
        message_of(queue_id=1, tag="\u4e2d"),
        message_of(queue_id=1, properties={"TAGS": "x"}),
        message_of(queue_id=1, properties={"a": "\n"}),
        message_of(queue_id=1, properties={"a": ""}),
        message_of(queue_id=1, keys=["a\x02b"]),
        message_of(queue_id=1, kind=2, message_group="g"),
        message_of(queue_id=1, kind=2),
        message_of(queue_id=1, kind=4),
        message_of(queue_id=1, kind=0),
        message_of(queue_id=1, priority=3),
        message_of("F", kind=2, message_group="g" * 65),
        message_of("none"),
    ):
        for side in (python, compiled):
            side.call(made)
    assert_equal(python, compiled)
    assert compiled.sends.served == 0


class Raw:
    def __init__(self, data):
        self._data = data

    def SerializeToString(self):
        return self._data


def field(number, data):
    """A short field of protobuf."""
    return bytes([number << 3 | 2, len(data)]) + data


def raw_message(properties=b"", system=b""):
    """A plain message with more bytes in its parts than protobuf would write."""
    made = message_of(queue_id=1).messages[0]
    made.system_properties.ClearField("born_timestamp")
    system = made.system_properties.SerializeToString() + system
    made.ClearField("system_properties")
    return Raw(field(1, made.SerializeToString() + properties + field(3, system)))


def test_the_last_value_of_a_repeated_field_counts(sides):
    """Compiled sends once added the seconds, and stored a property twice."""
    python, compiled = sides()
    two_ms, second, five = b"\x10\x80\x89\x7a", b"\x10\x80\x94\xeb\xdc\x03", b"\x08\x05"
    for side in (python, compiled):
        side.call(message_of(queue_id=1))
        for made in (
            raw_message(system=field(7, five + b"\x08\x07" + two_ms)),
            raw_message(system=field(7, second + two_ms)),
            raw_message(system=field(7, five) + field(7, two_ms)),
            raw_message(
                field(2, b"\x0a\x01a\x12\x01b") + field(2, b"\x0a\x01a\x12\x01c")
            ),
        ):
            side.call(made)
    assert_equal(python, compiled)
    records = records_of(compiled, "T", 1)
    assert [each.born_timestamp for each in records[1:4]] == [7_002, 2, 5_002]
    assert records[4].properties["a"] == "c"
    assert compiled.sends.served == 2


def test_no_client_id(sides):
    _, compiled = sides()
    for _ in range(2):
        compiled.call(message_of(queue_id=1))
    answer = compiled.call(message_of(queue_id=1), x_mq_client_id=None)
    assert answer.status.code == 40017


def test_a_change_of_the_topic_ends_its_compiled_sends(sides):
    _, compiled = sides()
    for _ in range(2):
        compiled.call(message_of(queue_id=1))
    assert compiled.sends.served == 1
    compiled.caller.topic("T", queues=3)
    compiled.broker.topics.get("T").attributes["message.type"] = "FIFO"
    assert compiled.call(message_of(queue_id=1)).status.code == 40014


def test_sends_after_a_call_of_python_keep_their_order(sides):
    python, compiled = sides()
    bodies = [b"1", b"2", b"3", b"4"]
    for side in (python, compiled):
        side.call(message_of(queue_id=1))
        tags = ["a", "\u4e2d", "a", "a"]
        frames = [
            side.frames_of("SendMessage", message_of(queue_id=1, body=body, tag=tag))
            for body, tag in zip(bodies, tags, strict=True)
        ]
        side.play([b"".join(frames)])
        assert [each.body for each in records_of(side, "T", 1)][1:] == bodies
    assert_equal(python, compiled)
    assert compiled.sends.served == 1


def test_an_answer_waits_for_the_disk(sides):
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    held = compiled.reactor.held
    compiled.call(message_of(queue_id=1))
    for _ in range(2):
        compiled.play([compiled.frames_of("SendMessage", message_of(queue_id=1))])
    assert compiled.sends.served == 2
    assert held.count == 2
    assert compiled.stream not in compiled.data
    compiled.store.durability.flush()
    compiled.play([b""])
    assert compiled.answer_of(compiled.stream).status.code == OK
    assert held.count == 0


def test_an_answer_that_waits_in_vain(sides):
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    compiled.call(message_of(queue_id=1))
    compiled.play([compiled.frames_of("SendMessage", message_of(queue_id=1))])
    assert compiled.reactor.expire_held(1 << 50) == []
    compiled.collect()
    answer = compiled.answer_of(compiled.stream)
    assert answer.status.code == answer.entries[0].status.code == 50401
    assert answer.status.message == "MASTER_PERSISTENCE_TIMEOUT"
    assert answer.entries[0].message_id == "01AB"


@pytest.mark.usefixtures("without_ring")
def test_a_failed_write_answers_no_call(sides):
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    compiled.call(message_of(queue_id=1))
    end = compiled.store.log.end_offset
    compiled.peer.sendall(compiled.frames_of("SendMessage", message_of(queue_id=1)))
    with log_that_fails(compiled):
        compiled.reactor.poll(0)
    [(kind, _, _)] = compiled.reactor.take_events()
    assert kind == EventKind.NOT_STORED
    compiled.collect()
    assert compiled.stream not in compiled.data
    assert compiled.store.log.end_offset == end


TEXTS = st.text(st.sampled_from("ab |\x01\x02\u00e9\u4e2d~\n0"), max_size=5)
SYSTEM = {
    "tag": TEXTS,
    "keys": st.lists(TEXTS, max_size=3),
    "queue_id": st.integers(-1, 4),
    "message_group": TEXTS,
    "delivery_ms": st.integers(0, 1 << 41),
    "trace_context": TEXTS,
    "born_host": TEXTS,
    "body_encoding": st.integers(0, 3),
    "store_host": TEXTS,
    "queue_offset": st.integers(0, 9),
    "priority": st.integers(0, 3),
    "lite_topic": TEXTS,
}


@st.composite
def made_messages(draw):
    names = draw(st.lists(st.sampled_from(sorted(SYSTEM)), max_size=4, unique=True))
    return message_of(
        draw(st.sampled_from(["T", "T", "M", "F", "D", "", "new"])),
        draw(st.sampled_from([b"x", b"y" * 128, b"", b"z" * 5000])),
        draw(st.integers(0, 4)),
        draw(st.sampled_from(["01AB", "7F", "\u00e9", "x y"])),
        draw(
            st.dictionaries(
                st.sampled_from(["a", "b", "TAGS", "\u4e2d", "c d"]), TEXTS, max_size=3
            )
        ),
        **{name: draw(SYSTEM[name]) for name in names},
    )


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_messages_of_any_kind_leave_the_same_bytes(sides, data):
    python, compiled = sides(**data.draw(st.sampled_from([{}, ONCE])))
    for _ in range(data.draw(st.integers(1, 3))):
        made = data.draw(st.lists(made_messages(), min_size=1, max_size=6))
        for side in (python, compiled):
            for topic, kind in (("T", 1), ("F", 2)):
                side.call(
                    message_of(topic, kind=kind, queue_id=1, message_group="g")
                    if kind == 2
                    else message_of(topic, queue_id=1)
                )
            side.play([b"".join(side.frames_of("SendMessage", each) for each in made)])
    assert_equal(python, compiled)


@settings(
    max_examples=settings.default.max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_damaged_messages_leave_the_same_bytes(sides, data):
    """The compiled reader reads no message that protobuf refuses or reads otherwise."""
    python, compiled = sides()
    made = message_of(
        queue_id=1,
        tag="a",
        keys=["k"],
        properties={"a": "b"},
        trace_context="c",
        store_host="d",
    )
    whole = made.SerializeToString()
    frames = []
    for _ in range(data.draw(st.integers(1, 12))):
        damaged = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(whole) - 1))
            damaged[place] = data.draw(st.integers(0, 255))
        end = data.draw(st.sampled_from([len(whole), len(whole), len(whole) - 1, 40]))
        frames.append(Raw(bytes(damaged[:end])))
    for side in (python, compiled):
        side.call(made)
        for each in frames:
            side.play([side.frames_of("SendMessage", each)])
    assert_equal(python, compiled)


WORDS = st.text(st.sampled_from("ab ~0\u00e9\u4e2d"), min_size=1, max_size=5).filter(
    str.strip
)


@st.composite
def allowed_messages(draw):
    return message_of(
        body=draw(st.binary(min_size=1, max_size=300)),
        message_id=draw(st.sampled_from(["01AB", "7F00", "x"])),
        queue_id=draw(st.integers(1, 2)),
        properties=draw(st.dictionaries(st.sampled_from(["a", "b", "\u4e2d"]), WORDS)),
        keys=draw(st.lists(WORDS, max_size=3)),
        **({"tag": draw(WORDS)} if draw(st.booleans()) else {}),
    )


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    made=st.lists(allowed_messages(), min_size=1, max_size=8),
    kind=st.sampled_from(["plain", "binary"]),
)
def test_three_players_leave_the_same_bytes(sides, tmp_path_factory, made, kind):
    """gRPC by Python, gRPC by compiled code, and a remoting client."""
    python, compiled = sides()
    remoting = Side(tmp_path_factory.mktemp("remoting"), compiled=True)
    for number, each in enumerate(made):
        for side in (python, compiled):
            assert side.call(each).status.code == OK
        remoting.play([remoting_request(each, number, kind)])
    assert python.files() == compiled.files() == remoting.files()
    remoting.close()
