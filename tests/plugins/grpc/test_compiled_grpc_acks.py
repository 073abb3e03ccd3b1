"""Compiled and Python calls of AckMessage do the same."""

import pytest

from rmq_plugins.grpc import schema
from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import ack_of, make_pair

OK = 20000


@pytest.fixture
def sides(tmp_path):
    """(Python's side, compiled side) with ten messages that a client has received."""
    pair = make_pair(tmp_path)
    for side in pair:
        side.caller.topic("T", queues=1)
        for number in range(10):
            side.call(sent("T", b"%d" % number, message_id=f"01{number:030X}"))
        side.handles = receive(side)
        assert len(side.handles) == 10
    yield pair
    for side in pair:
        side.close()


def receive(side):
    request = schema.ReceiveMessageRequest(batch_size=32)
    request.group.name = "G"
    request.message_queue.topic.name = "T"
    request.invisible_duration.seconds = 30
    side.play([side.frames_of("ReceiveMessage", request)])
    return [each.system_properties.receipt_handle for each in side.messages()]


def compiled_acks(side):
    return side.grpc.service.compiled["AckMessage"].served


def test_acks_are_served_compiled(sides):
    python, compiled = sides
    answers = [
        [
            side.call(ack_of(handle), "AckMessage").SerializeToString()
            for handle in side.handles
        ]
        for side in sides
    ]
    assert answers[0] == answers[1]
    # the last one ends the checkpoint: then it is not in memory any more
    assert compiled_acks(compiled) == 10
    assert compiled_acks(python) == 0
    again = [side.call(ack_of(side.handles[0]), "AckMessage") for side in sides]
    assert again[0] == again[1]


def test_several_messages_of_a_call(sides):
    answers = [side.call(ack_of(*side.handles[:5]), "AckMessage") for side in sides]
    assert answers[0] == answers[1]
    assert answers[0].status.code == OK
    assert [each.message_id for each in answers[0].entries] == [
        "id0",
        "id1",
        "id2",
        "id3",
        "id4",
    ]
    assert compiled_acks(sides[1]) == 1


def test_python_serves_all_other_acks(sides):
    for change in (
        lambda handle: handle.rsplit(" ", 1)[0],
        lambda handle: handle + " 7",
        lambda handle: handle.replace("broker-a", "broker-b"),
        lambda handle: handle.replace(" 0 broker-a", " 1 broker-a"),
        lambda handle: handle.replace(" ", "  ", 1),
        lambda _handle: "",
        lambda _handle: "no handle",
    ):
        answers = [
            side.call(ack_of(side.handles[1], change(side.handles[2])), "AckMessage")
            for side in sides
        ]
        assert answers[0] == answers[1]
    for request in (
        ack_of(),
        ack_of(sides[0].handles[0], topic="other"),
        ack_of(sides[0].handles[0], group="other"),
        ack_of(sides[0].handles[0], topic=""),
    ):
        answers = [side.call(request, "AckMessage") for side in sides]
        assert answers[0] == answers[1]
    assert compiled_acks(sides[1]) == 0
