"""Receives by compiled POPs, and by the Python handler, bring the same messages."""

import pytest

from rmq_plugins.grpc import schema
from tests.plugins.consume.pop.popping import Popping
from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import ack_of, make_pair
from tests.plugins.sides import MAIN

OK = 20000
POP = 200_050


@pytest.fixture
def sides(tmp_path):
    """(Python's side, compiled side) with a topic of two queues."""
    pair = make_pair(tmp_path)
    for side in pair:
        side.caller.topic("T", queues=2)
    yield pair
    for side in pair:
        side.close()


def send(side, first, count, body=b"body", **fields):
    for number in range(first, first + count):
        made = sent("T", body, message_id=f"01{number:030X}", **fields)
        made.messages[0].system_properties.born_timestamp.seconds = 1_795_230_112
        assert side.call(made).status.code == OK


def receive(side, batch=32, poll_s=0, language=b"PYTHON", **fields):
    """The messages of a receive, and all bytes of its answer."""
    request = schema.ReceiveMessageRequest(batch_size=batch, **fields)
    request.group.name = "G"
    request.message_queue.topic.name = "T"
    if not fields.get("auto_renew"):
        request.invisible_duration.seconds = 30
    request.long_polling_timeout.seconds = poll_s
    frames = side.frames_of("ReceiveMessage", request, x_mq_language=language)
    side.play([frames])
    return side.messages(), side.data.get(side.stream)


def pops(side):
    counts = side.reactor.natives.counts()
    return counts[MAIN, POP][0] if (MAIN, POP) in counts else 0


def test_receives_are_served_by_compiled_pops(sides):
    python, compiled = sides
    for turn in range(4):
        answers = []
        for side in sides:
            send(side, 40 * turn, 40, tag="TagA", keys=["k"], properties={"a": "b"})
            found, data = receive(side)
            assert len(found) == 32
            handles = [each.system_properties.receipt_handle for each in found]
            answer = side.call(ack_of(*handles), "AckMessage")
            assert answer.status.code == OK
            answers.append((data, answer, receive(side)[1]))
        assert answers[0] == answers[1]
    assert pops(python) == 0
    assert pops(compiled) >= 4


@pytest.mark.parametrize("language", [b"PYTHON", b"JAVA", b"CPP"])
def test_each_language_gets_its_digest(sides, language):
    answers = []
    for side in sides:
        send(side, 0, 2)
        receive(side, 1)
        found, data = receive(side, 1, language=language)
        assert len(found) == 1
        answers.append(data)
    assert answers[0] == answers[1]


def test_messages_of_push_consumers_are_renewed(sides):
    for side in sides:
        send(side, 0, 6)
        for _ in range(6):
            receive(side, 1, auto_renew=True)
        assert len(side.grpc.service.renewals) == 6
    assert pops(sides[1]) >= 3


def test_a_receive_that_finds_nothing_waits(sides):
    for side in sides:
        send(side, 0, 1)
        receive(side)
        found, data = receive(side, poll_s=20)
        assert (found, data) == ([], None)
        send(side, 1, 1)
        waiting = side.stream - 2
        held = Popping(side.caller).handler.held
        while held.has_ready:
            held.resume_next()
        side.play([b""])
        _, message, _ = side.answers_of(waiting, "ReceiveMessageResponse")
        assert message.message.body == b"body"


def test_a_message_that_failed_too_often_is_a_dead_letter(sides):
    for side in sides:
        popping = Popping(side.caller)
        group = side.broker.groups.find("G")
        group.retry_max_times = 1
        send(side, 0, 1)
        for attempt in (1, 2):
            found, _ = receive(side)
            assert [each.system_properties.delivery_attempt for each in found] == [
                attempt
            ]
            popping.work(40_000)
        assert receive(side)[0] == []
        assert side.store.queues.get("%DLQ%G", 0).next_offset == 1


@pytest.mark.parametrize("forged", ["x", "0 1 2 3 1 b 0 0", "0 1 2 3 1 b x y", "0 1 2"])
def test_a_message_with_a_handle_of_its_producer_is_acked(sides, forged):
    """Such a property once ended each receive of its queue with an error."""
    for side in sides:
        send(side, 0, 1)
        (message,), _ = receive(side)
        handle = message.system_properties.receipt_handle
        assert side.call(ack_of(handle), "AckMessage").status.code == OK
        side.caller.send("T", b"forged", properties=f"POP_CK\x01{forged}\x02")
        (message,), _ = receive(side)
        assert message.body == b"forged"
        handle = message.system_properties.receipt_handle
        assert side.call(ack_of(handle), "AckMessage").status.code == OK
        Popping(side.caller).work(60_000)
        assert receive(side)[0] == []
