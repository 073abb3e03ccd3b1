"""Compiled and Python calls of Heartbeat do the same."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq_plugins.grpc import schema
from tests.plugins.client.test_compiled_heartbeats import members
from tests.plugins.grpc.grpc_sides import make_pair, open_stream

OK = 20000


@pytest.fixture
def sides(tmp_path):
    """Return a function that makes (Python's side, compiled side)."""
    made = []

    def make():
        pair = make_pair(tmp_path / str(len(made)))
        made.extend(pair)
        return pair

    yield make
    for side in made:
        side.close()


def beat(side, group="G", kind=3, client_id=b"me", language=b"JAVA"):
    request = schema.HeartbeatRequest(client_type=kind)
    request.group.name = group
    return side.call(
        request, "Heartbeat", x_mq_client_id=client_id, x_mq_language=language
    )


def send_settings(side, *topics, client_id=b"me", kind=3):
    command = schema.TelemetryCommand()
    command.settings.client_type = kind
    if kind == 1:
        for topic in topics:
            command.settings.publishing.topics.add(name=topic)
    else:
        command.settings.subscription.group.name = "G"
        for topic in topics:
            entry = command.settings.subscription.subscriptions.add()
            entry.topic.name = topic
    frames = side.frames_of("Telemetry", command, x_mq_client_id=client_id)
    side.play([open_stream(frames)])


def remove_silent(side):
    """What the broker does with a client whose heartbeats have ended."""
    (connection,) = side.broker.consumers.members("G")
    connection.mark_closed("silent")
    side.broker.consumers.on_close(connection)


def served(side):
    return side.grpc.service.compiled["Heartbeat"].served


def assert_equal(python, compiled):
    assert members(compiled) == members(python)
    assert compiled.data == python.data
    assert compiled.endings == python.endings
    assert served(python) == 0


def test_heartbeats_that_repeat_are_served_compiled(sides):
    python, compiled = sides()
    for _ in range(5):
        for side in (python, compiled):
            assert beat(side).status.code == OK
            side.broker.clock.ms += 10_000
    assert_equal(python, compiled)
    assert served(compiled) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda side: beat(side, group="H"),
        lambda side: beat(side, client_id=b"other"),
        lambda side: send_settings(side, "T"),
        lambda side: side.grpc.service.end_connection(side.token),
        lambda side: remove_silent(side),
    ],
    ids=["group", "client", "settings", "connection", "silent"],
)
def test_python_serves_the_heartbeat_after_a_change(sides, change):
    python, compiled = sides()
    for side in (python, compiled):
        beat(side)
        beat(side)
        change(side)
        beat(side)
    assert_equal(python, compiled)
    assert served(compiled) == 1
    for side in (python, compiled):
        beat(side)
    assert served(compiled) == 2


def test_a_producer_registers_its_topics(sides):
    python, compiled = sides()
    for side in (python, compiled):
        send_settings(side, "T", "M", kind=1)
        for _ in range(3):
            beat(side, "", 1)
    assert_equal(python, compiled)
    assert served(compiled) == 2
    assert {name for name, _, _ in compiled.broker.producers.all()} == {"T", "M"}


STEPS = st.one_of(
    st.tuples(
        st.just(beat),
        st.sampled_from(["G", "G", "H", "", "a b"]),
        st.sampled_from([3, 3, 2, 1, 0]),
        st.sampled_from([b"me", b"me", b"you"]),
        st.sampled_from([b"JAVA", b"JAVA", b"GOLANG", b"?"]),
    ),
    st.tuples(st.just(send_settings), st.sampled_from(["T", "M", "none"])),
)


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, max_size=12))
def test_heartbeats_of_any_kind_do_the_same(sides, steps):
    python, compiled = sides()
    for step, *arguments in steps:
        for side in (python, compiled):
            step(side, *arguments)
            side.broker.clock.ms += 1_000
    assert_equal(python, compiled)
