"""Receives by compiled POPs, and by the Python handler, bring the same messages."""

import socket
from contextlib import contextmanager
from copy import copy
from functools import partial
from types import SimpleNamespace

import pytest

from rmq.protocol.codes import RequestCode
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.waits import MAX_WAITING
from tests.fastpath.http2 import caller as h2
from tests.plugins.client.test_compiled_commits import frame
from tests.plugins.consume.pop.popping import Popping
from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import ack_of, make_pair
from tests.plugins.sides import MAIN

OK = 20000
POP = 200_050
POP_FIELDS = {
    "consumerGroup": "G", "topic": "T", "queueId": "-1", "maxMsgNums": "1",
    "invisibleTime": "60000", "pollTime": "9000", "bornTime": "0", "initMode": "0",
    "order": "false", "expType": "TAG", "exp": "*",
}  # fmt: skip


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


def receive_request(batch=2, **fields):
    request = schema.ReceiveMessageRequest(batch_size=batch, **fields)
    request.group.name = "G"
    request.message_queue.topic.name = "T"
    if not request.auto_renew:
        request.invisible_duration.seconds = 30
    return request


def receive(side, batch=32, poll_s=0, language=b"PYTHON", **fields):
    """The messages of a receive, and all bytes of its answer."""
    request = receive_request(batch, **fields)
    request.long_polling_timeout.seconds = poll_s
    frames = side.frames_of("ReceiveMessage", request, x_mq_language=language)
    side.play([frames])
    return side.messages(), side.data.get(side.stream)


def pops(side):
    counts = side.reactor.natives.counts()
    return counts[MAIN, POP][0] if (MAIN, POP) in counts else 0


def receives(side):
    """The receives that compiled code has served."""
    return side.grpc.service.compiled["ReceiveMessage"].served


def wake(side):
    """Let Python serve the waiting receives that compiled code does not serve."""
    held = Popping(side.caller).handler.held
    while held.has_ready:
        held.resume_next()
    side.play([b""])


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
    assert pops(python) == receives(python) == 0
    assert pops(compiled) >= 4
    assert receives(compiled) >= 6


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
    assert receives(sides[0]) == 0
    assert receives(sides[1]) >= 3


def test_push_consumers_and_simple_consumers_get_the_same(sides):
    answers = []
    for side in sides:
        prepare_receives(side)
        send(side, 4, 3)
        count = receives(side)
        for is_renewed in True, False, True:
            found, data = receive(side, 1, auto_renew=is_renewed)
            handle = found[0].system_properties.receipt_handle
            assert (" 60000 " in handle) == is_renewed
            answers.append(data)
        assert receives(side) == count + 3 * (side is sides[1])
        assert len(side.grpc.service.renewals) == 2
    assert answers[:3] == answers[3:]


def test_messages_of_waiting_push_consumers_are_renewed(sides):
    for side in sides:
        prepare_receives(side)
        assert receive(side, poll_s=20, auto_renew=True)[1] is None
        waiting = side.stream
        send(side, 4, 1)
        if side is sides[0]:
            wake(side)
        _, message, _ = side.answers_of(waiting, "ReceiveMessageResponse")
        assert message.message.body == b"body"
        assert len(side.grpc.service.renewals) == 1


def test_messages_that_python_encodes_are_renewed_once(sides):
    """Compiled code that declines an answer leaves nothing in the table."""
    for side in sides:
        prepare_receives(side)
        send(side, 4, 1)
        side.caller.send("T", b"forged", properties="POP_CK\x01x\x02")
        found = [*receive(side, auto_renew=True)[0], *receive(side, auto_renew=True)[0]]
        assert len(found) == len(side.grpc.service.renewals) == 2


def test_a_receive_that_finds_nothing_waits(sides):
    for side in sides:
        send(side, 0, 1)
        receive(side)
        found, data = receive(side, poll_s=20)
        assert (found, data) == ([], None)
        send(side, 1, 1)
        waiting = side.stream - 2
        wake(side)
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


def prepare_receives(side):
    """Let compiled code know the receives of the client."""
    send(side, 0, 4)
    for _ in range(4):
        receive(side, 1)


def test_waiting_receives_are_served_by_compiled_code(sides):
    answers = []
    for side in sides:
        prepare_receives(side)
        assert receive(side, poll_s=20)[1] is None
        waiting, count = side.stream, receives(side)
        assert side.grpc.statistics().open_calls == 1
        send(side, 4, 1)
        if side is sides[0]:
            wake(side)
        parts = side.answers_of(waiting, "ReceiveMessageResponse")
        # each look at the queues takes the next revive queue: it is in the handle
        assert parts[1].message.system_properties.receipt_handle
        parts[1].message.system_properties.receipt_handle = ""
        answers.append(parts)
        assert receives(side) == count
        statistics = side.grpc.statistics()
        assert statistics.open_calls == 0
        assert receive(side, poll_s=20)[1] is None
    assert answers[0] == answers[1]


def test_a_waiting_receive_gets_messages_that_come_again(sides):
    """Compiled code declines them, and Python runs the request."""
    answers = []
    for side in sides:
        prepare_receives(side)
        assert receive(side, poll_s=20)[1] is None
        waiting = side.stream
        Popping(side.caller).work(40_000)
        side.play([b""])  # reports the messages
        wake(side)
        _, *messages, _ = side.answers_of(waiting, "ReceiveMessageResponse")
        answers.append(
            [each.message.system_properties.delivery_attempt for each in messages]
        )
        assert side.grpc.statistics().open_calls == 0
    assert answers[0] == answers[1]
    assert answers[0]
    assert set(answers[0]) == {2}


def test_a_receive_is_refused_if_too_many_wait(sides):
    for side in sides:
        prepare_receives(side)
        body = b"maxPopPollingSize=1\n"
        side.caller.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        prepare_receives(side)
        assert receive(side, poll_s=20)[1] is None
        receive(side, poll_s=20)
        status, _ = side.answers_of(side.stream, "ReceiveMessageResponse")
        assert status.status.code == 42900
        assert side.grpc.statistics().open_calls == 1


def test_a_waiting_receive_that_is_reset_takes_no_message(sides):
    side = sides[1]
    prepare_receives(side)
    receive(side, poll_s=20)
    assert side.grpc.statistics().open_calls == 1
    side.play([h2.reset(side.stream)])
    assert side.grpc.statistics().open_calls == 0
    send(side, 4, 1)
    assert len(receive(side)[0]) == 1


def test_a_waiting_receive_ends_in_time(sides):
    answers = []
    for side in sides:
        prepare_receives(side)
        receive(side, poll_s=6)
        held = Popping(side.caller).handler.held
        for passed_ms, is_over in (5_750, False), (250, True):
            side.broker.clock.ms += passed_ms
            held.expire()
            side.play([b""])
            assert (side.stream in side.data) == is_over
        answers.append(side.data[side.stream])
        status, _ = side.answers_of(side.stream, "ReceiveMessageResponse")
        assert status.status.code == 40401
    assert answers[0] == answers[1]


def test_a_client_has_some_waiting_receives(sides):
    side = sides[1]
    prepare_receives(side)
    for _ in range(MAX_WAITING):
        assert receive(side, poll_s=20)[1] is None
    receive(side, poll_s=20)
    (status,) = side.answers_of(side.stream, "ReceiveMessageResponse")
    assert status.status.code == 42900


def wait(side, **fields):
    """Let a receive wait; return its stream."""
    assert receive(side, poll_s=20, **fields)[1] is None
    return side.stream


def held(side):
    """The table of the receives that wait in compiled code."""
    return side.caller.handlers[POP].made().views.path.held


def bodies_of(side, stream):
    answer = side.answers_of(stream, "ReceiveMessageResponse")
    return [each.message.body for each in answer if each.HasField("message")]


def test_each_message_ends_the_oldest_receive(sides):
    side = sides[1]
    prepare_receives(side)
    streams = [wait(side, batch=1) for _ in range(4)]
    assert held(side).calls == held(side).waiting == 4
    send(side, 4, 1)
    assert [stream in side.data for stream in streams] == [True, False, False, False]
    made = [sent("T", b"body", message_id=f"01{number:030X}") for number in (5, 6)]
    side.play([b"".join(side.frames_of("SendMessage", each) for each in made)])
    assert [stream in side.data for stream in streams] == [True, True, True, False]
    assert held(side).calls == 1


def test_a_receive_that_waits_does_not_go_to_python(sides):
    side = sides[1]
    prepare_receives(side)
    calls = side.grpc.statistics().calls
    stream = wait(side)
    send(side, 4, 1)
    assert bodies_of(side, stream) == [b"body"]
    assert side.grpc.statistics().calls == calls


def test_a_receive_that_is_reset_leaves_the_message_to_the_next(sides):
    side = sides[1]
    prepare_receives(side)
    first, second = wait(side, batch=1), wait(side, batch=1)
    side.play([h2.reset(first)])
    assert held(side).calls == 1
    send(side, 4, 1)
    assert bodies_of(side, second) == [b"body"]


def test_a_receive_waits_on_when_another_call_of_its_connection_ends(sides):
    """Each call in Python has a caller, with the token of the connection."""
    side = sides[1]
    prepare_receives(side)
    stream = wait(side)
    caller = side.broker.open_caller(side.connection, lambda _command: None)
    side.caller.handlers[POP].made().waits.drop(caller)
    send(side, 4, 1)
    assert bodies_of(side, stream) == [b"body"]


def test_the_places_of_receives_that_end_are_free(sides):
    side = sides[1]
    prepare_receives(side)
    session = side.grpc.service.sessions.find_client("me")
    streams = [wait(side) for _ in range(3)]
    assert session.waiting.count == 3
    side.play([h2.reset(streams[0])])
    send(side, 4, 1)
    assert session.waiting.count == 1
    side.caller.handlers[POP].made().waits.drop(side.connection)
    assert session.waiting.count == held(side).waiting == 0


def test_a_connection_that_ends_has_no_receive(sides):
    side = sides[1]
    prepare_receives(side)
    wait(side)
    side.grpc.end_connection(side.token)
    side.caller.handlers[POP].made().waits.drop(side.connection)
    side.play([b""])
    assert held(side).waiting == 0
    assert side.broker.queues.get("T", 0) is not None


@pytest.mark.parametrize("change", ["group", "rights", "client"])
def test_python_continues_a_receive_after_a_change(sides, change):
    for side in sides:
        prepare_receives(side)
        stream = wait(side)
        if change == "rights":
            side.caller.handlers[POP].made().views.remove_all()
        elif change == "group":
            config = copy(side.broker.groups.get("G"))
            config.retry_max_times += 1
            side.broker.groups.update(config)
        else:
            session = side.grpc.service.sessions.find_client("me")
            side.grpc.service.sessions.on_change(session)
        side.play([b""])
        assert held(side).waiting == 0
        assert side.grpc.statistics().open_calls == 1
        send(side, 4, 1)
        wake(side)
        assert bodies_of(side, stream) == [b"body"]
        assert side.grpc.statistics().open_calls == 0


def test_a_receive_of_a_client_without_room_goes_to_python(sides):
    side = sides[1]
    prepare_receives(side)
    streams = [wait(side, batch=1), wait(side, batch=1)]
    side.play([h2.settings((h2.INITIAL_WINDOW, 100))])
    for number in (4, 5):
        send(side, number, 1, bytes(4_000))
    wake(side)
    assert held(side).waiting == 0
    side.play([h2.settings((h2.INITIAL_WINDOW, 1 << 20))])
    side.play([h2.window_update(0, 1 << 20)])
    assert [bodies_of(side, each) for each in streams] == [[bytes(4_000)]] * 2


def test_a_stop_answers_the_receives_that_wait(sides):
    answers = []
    for side in sides:
        prepare_receives(side)
        streams = [wait(side), wait(side, auto_renew=True)]
        side.grpc.service.stop()
        side.play([b""])
        answers.append([side.data[each] for each in streams])
        status, _ = side.answers_of(streams[0], "ReceiveMessageResponse")
        assert status.status.message == "the broker stops"
        assert held(side).waiting == side.grpc.statistics().open_calls == 0
    assert answers[0] == answers[1]


@contextmanager
def remoting_pop(side):
    """A client of remoting, whose POP waits."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(1)
    side.reactor.connections.add(ours.detach(), MAIN, bytes(8))
    theirs.sendall(frame(POP_FIELDS, opaque=1, code=POP))
    side.play([b""])
    with theirs:
        yield theirs


def test_receives_and_pops_of_remoting_wait_together(sides):
    side = sides[1]
    prepare_receives(side)
    stream = wait(side, batch=1)
    with remoting_pop(side) as theirs:
        assert (held(side).waiting, held(side).calls) == (2, 1)
        send(side, 4, 1)
        assert bodies_of(side, stream) == [b"body"]
        assert held(side).waiting == 1
        send(side, 5, 1)
        assert b'"remark":"FOUND"' in theirs.recv(1 << 16)


def test_a_message_passes_a_receive_without_room(sides):
    side = sides[1]
    prepare_receives(side)
    waits = [wait(side, batch=1), wait(side, batch=1)]
    with remoting_pop(side) as theirs:
        side.play([h2.settings((h2.INITIAL_WINDOW, 100))])
        send(side, 4, 2, bytes(4_000))
        assert held(side).waiting == 0
        assert b'"remark":"FOUND"' in theirs.recv(1 << 16)
    assert all(len(side.data.get(each, b"")) <= 100 for each in waits)
    assert side.grpc.statistics().open_calls == 1


def test_a_deadline_that_is_too_early_is_refused(sides):
    for side in sides:
        prepare_receives(side)
        request = receive_request()
        frames = side.frames_of("ReceiveMessage", request, grpc_timeout=b"5S")
        side.play([frames])
        (status,) = side.answers_of(side.stream, "ReceiveMessageResponse")
        assert status.status.code == 40018


def test_a_change_of_the_group_is_seen(sides):
    """Its receives are in order from then on."""
    side = sides[1]
    prepare_receives(side)
    config = copy(side.broker.groups.get("G"))
    config.consume_message_orderly = True
    side.broker.groups.update(config)
    count = receives(side)
    send(side, 4, 2)
    for _ in range(4):
        receive(side, 1)
    assert receives(side) == count


def test_a_client_that_ends_is_forgotten(sides):
    side = sides[1]
    prepare_receives(side)
    compiled = side.grpc.service.compiled["ReceiveMessage"]
    assert len(compiled) == 1
    request = schema.NotifyClientTerminationRequest()
    request.group.name = "G"
    assert side.call(request, "NotifyClientTermination").status.code == OK
    assert len(compiled) == 0
    prepare_receives(side)
    side.grpc.end_connection(side.token)
    assert len(compiled) == 0


@pytest.mark.parametrize(("size", "count"), [(1, 64), (300, 0)])
def test_a_client_has_some_receives_in_compiled_code(sides, size, count):
    side = sides[1]
    for number in range(66):
        request = receive_request()
        request.filter_expression.expression = "t" * size + str(number)
        side.play([side.frames_of("ReceiveMessage", request)])
        side.play([h2.reset(side.stream)])
    assert len(side.grpc.service.compiled["ReceiveMessage"]) == count


def test_received_messages_are_counted(sides):
    for side in sides:
        prepare_receives(side)
        session = side.grpc.service.sessions.find_client("me")
        assert session.count_received() == 4
        side.broker.groups.on_change[-1]("G")
        assert (session.views, session.count_received()) == ({}, 4)


def test_a_client_without_room_is_served_by_python(sides):
    """Messages that do not leave in time go back."""
    side = sides[1]
    prepare_receives(side)
    send(side, 4, 3, bytes(4_000))
    side.play([h2.settings((h2.INITIAL_WINDOW, 100))])
    count = receives(side)
    for _ in range(2):
        side.play([side.frames_of("ReceiveMessage", receive_request())])
        assert receives(side) == count + 1


def plain_requests():
    """Receives as SDKs write them."""
    queue = receive_request()
    queue.message_queue.id, queue.message_queue.permission = 1, 3
    queue.message_queue.broker.name = "broker-a"
    endpoints = queue.message_queue.broker.endpoints
    endpoints.scheme = 1
    endpoints.addresses.add(host="127.0.0.1", port=8081)
    queue.message_queue.accept_message_types.extend([1, 2, 3])
    tags = receive_request()
    tags.filter_expression.type, tags.filter_expression.expression = 1, "*"
    attempt = receive_request()
    attempt.attempt_id = "0A"
    attempt.long_polling_timeout.seconds = 20
    return [queue, tags, attempt]


@pytest.mark.parametrize("number", range(3))
def test_requests_of_sdks_are_plain(sides, number):
    answers = []
    for side in sides:
        prepare_receives(side)
        send(side, 4, 4)
        count = receives(side)
        side.play([side.frames_of("ReceiveMessage", plain_requests()[number])])
        assert receives(side) == count + (side is sides[1])
        answers.append(side.data[side.stream])
    assert answers[0] == answers[1]


NAME_TWICE = b"\x0a\x03\x12\x01H\x0a\x03\x12\x01G"


@pytest.mark.parametrize(
    "extra",
    [
        NAME_TWICE,
        b"\x20\x01\x20\x02",  # batch_size twice
        b"\x30\x01",  # auto_renew
        b"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a negative batch
        b"\x2a\x02\x08\x05",  # another invisible time: merged
        b"\x1a\x04\x08\x02\x12\x00",  # SQL92
        b"\x1a\x03\x12\x01\xff",  # no UTF-8
        b"\x42\x01\xff",
        b"\x12\x04\x2a\x02\x80\x80",  # a number that is not whole
        b"\x12\x06\x22\x04\x0a\x02\xff\xff",  # the name of the broker
        b"\x12\x08\x22\x06\x1a\x04\x12\x02\x0a\xff",  # its address
        b"\x50\x01",  # an unknown field
        b"\x0b",  # a group
        b"\x0a\x05\x0a\x01n\x12\x00",  # a namespace
        b"\x3a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a negative time
    ],
)
def test_odd_requests_have_the_answer_of_python(sides, extra):
    answers = []
    for side in sides:
        prepare_receives(side)
        send(side, 4, 2)
        message = receive_request().SerializeToString() + extra
        raw = SimpleNamespace(SerializeToString=partial(bytes, message))
        side.play([side.frames_of("ReceiveMessage", raw)])
        answers.append(side.data.get(side.stream))
    assert answers[0] == answers[1]
