"""Compiled and Python calls of AckMessage do the same."""

import pytest

from rmq_plugins.grpc import schema
from rmq_plugins.grpc.handles import Receipt
from rmq_plugins.grpc.renewals import RENEW_MS
from tests.plugins.consume.pop.popping import Popping
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


def receive(side, invisible_s=30):
    """The handles of all messages; 0 s: of a push consumer."""
    request = schema.ReceiveMessageRequest(batch_size=32)
    request.group.name = "G"
    request.message_queue.topic.name = "T"
    request.auto_renew = not invisible_s
    request.invisible_duration.seconds = invisible_s
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


@pytest.mark.parametrize("invisible_s", [60, 0])
def test_acks_of_messages_that_are_not_renewed_yet(sides, invisible_s):
    """Python once served all handles with an invisible time of a minute."""
    answers = []
    for side in sides:
        for number in range(2):
            side.call(sent("T", message_id=f"02{number:030X}"))
        handles, renewals = receive(side, invisible_s), side.grpc.service.renewals
        assert len(handles) == 2
        assert len(renewals) == (2 if invisible_s == 0 else 0)
        answers.append(side.call(ack_of(handles[0]), "AckMessage"))
        assert len(renewals) == (1 if invisible_s == 0 else 0)
        answers.append(side.call(ack_of(handles[1]), "AckMessage"))
        assert len(renewals) == 0
        assert compiled_acks(side) == 2 * (side is sides[1])
    assert answers[:2] == answers[2:]


def test_python_acks_messages_that_were_renewed(sides):
    """Their first handle is not valid any more."""
    for side in sides:
        side.call(sent("T", b"renewed", message_id=f"02{0:030X}"))
        [handle] = receive(side, 0)
        side.broker.clock.ms += RENEW_MS
        side.grpc.service.renewals.renew_due()
        answer = side.call(ack_of(handle), "AckMessage")
        assert answer.status.code == OK
        assert compiled_acks(side) == len(side.grpc.service.renewals) == 0
        Popping(side.caller).work(100_000)
        again = {each.body for each in Popping(side.caller).pop()}
        assert again == {b"%d" % number for number in range(10)}


def test_an_ack_waits_for_a_renewal_in_flight(sides):
    for side in sides:
        side.call(sent("T", message_id=f"02{0:030X}"))
        [handle] = receive(side, 0)
        renewals = side.grpc.service.renewals
        entry = renewals.table.entries[handle]
        entry.waiting = []
        side.play([side.frames_of("AckMessage", ack_of(handle))])
        assert side.stream not in side.data
        renewals.table.remove(handle)
        entry.waiting.pop()(Receipt.decode(handle))
        side.play([b""])
        answer = side.answer_of(side.stream, "AckMessageResponse")
        assert answer.status.code == OK
        assert compiled_acks(side) == 0


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
