"""ClientCodec: its frames, and its pairing beside `Peer`, the slow and obvious one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq._fastpath.client.codec import (
    ANSWER_TO_SEND,
    ClientCodec,
    PullResult,
    PullTemplate,
    SendTemplate,
)
from rmq._fastpath.client.messages import SendResult, SendStatus
from rmq.client.core.routes import MessageQueue
from rmq.core.errors import LocalProtocolError, RemoteProtocolError
from rmq.outgoing.signing import pull_command, send_command
from rmq.protocol.codes import SerializeType
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import decode, encode
from rmq.protocol.peer import LateResponse, Peer, ResponseReceived, Role

QUEUE = MessageQueue("Orders", "broker-a", 3)
SEND = SendTemplate("group", "Orders", 3, QUEUE)
BATCH = SendTemplate("group", "Orders", 3, QUEUE, is_batch=True)
PULL = PullTemplate("group", "Orders", 3, expression="a || b", version=7)
STORED = {"msgId": "7F" * 16, "queueId": "3", "queueOffset": "41"}
FORMS = st.sampled_from(SerializeType)
TEXT = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=9)


def codec(**options):
    return ClientCodec(decode, encode, **options)


def answer(number, code=0, fields=None, *, form=SerializeType.ROCKETMQ, **others):
    command = Command(code, fields or {}, flag=1, opaque=number, **others)
    command.serialize_type = form
    return encode(command)


def send(it, waiter="waiter", template=SEND, ids="ID", body=b"body"):
    return it.send(template, b"UNIQ_KEY\x01ID\x02", body, waiter, 9, ids, born_ms=5)


# -- what is written


def test_a_send_is_the_frame_of_its_command():
    it = codec()
    number = it.send(
        SEND, b"A\x01b\x02", b"body", "waiter", 9, "ID", born_ms=1_700, sys_flag=4
    )
    written = decode(it.take_output())
    assert not it.has_output
    expected = send_command(SEND, b"A\x01b\x02", b"body", 1_700, 4)
    assert written.ext_fields == expected.ext_fields
    assert (written.code, written.body, written.opaque) == (310, b"body", number)
    assert (written.language, written.version, written.flag) == (3, 513, 0)
    assert written.serialize_type == SerializeType.ROCKETMQ


def test_a_golden_send():
    it = codec()
    it.send(
        SendTemplate("g", "T", 0, None), b"A\x01b\x02", b"!", None, 0, "", born_ms=7
    )
    assert it.take_output().hex() == (
        "0000008a01000085013603020100000001000000020000000000000070000161"
        "0000000167000162000000015400016300000006544257313032000164000000"
        "0134000165000000013000016600000001300001670000000137000168000000"
        "013000016a000000013000016b0000000566616c736500016d0000000566616c"
        "7365000169000000044101620221"
    )


def test_a_batch_and_a_oneway():
    it = codec()
    send(it, template=BATCH, ids=["A", "B"])
    send(it, waiter=None)
    batch, oneway = (decode(part) for part in split_frames(it.take_output()))
    assert (batch.code, batch.ext_fields["m"]) == (320, "true")
    assert oneway.flag == FLAG_ONEWAY
    assert it.pending_count == 1


@given(
    st.integers(0, 2**62),
    st.integers(1, 1_024),
    st.integers(0, 20_000),
    st.integers(0, 7),
)
def test_a_pull_is_the_frame_of_its_command(offset, count, hold_ms, sys_flag):
    it = codec()
    it.pull(PULL, 1, 9, offset=offset, count=count, hold_ms=hold_ms, sys_flag=sys_flag)
    written = decode(it.take_output())
    expected = pull_command(PULL, offset, count, hold_ms, sys_flag)
    assert written.ext_fields == expected.ext_fields
    assert written.code == 11


def test_what_does_not_fit_is_refused():
    it = codec(max_frame_size=1_000)
    with pytest.raises(LocalProtocolError, match="larger than 1000"):
        send(it, body=bytes(1_000))
    assert it.pending_count == 0


def test_a_command_that_cannot_be_written_does_not_wait():
    it = codec()
    command = Command(99_999)
    command.serialize_type = SerializeType.ROCKETMQ
    with pytest.raises(LocalProtocolError):
        it.request(command, "waiter", 9)
    assert it.pending_count == 0


# -- what is read


@given(FORMS, st.sampled_from([0, 10, 11, 12]), TEXT)
def test_the_result_of_a_send(form, code, transaction):
    it = codec()
    number = send(it)
    fields = STORED | {"transactionId": transaction, "MSG_REGION": "DefaultRegion"}
    ((waiter, result),) = it.feed(answer(number, code, fields, form=form))
    assert waiter == "waiter"
    assert isinstance(result, SendResult)
    assert (result.msg_id, result.offset_msg_id) == ("ID", "7F" * 16)
    assert (result.queue, result.queue_offset) == (QUEUE, 41)
    assert (result.status, result.transaction_id or "") == (code, transaction)
    assert it.pending_count == 0


@pytest.mark.parametrize("form", SerializeType)
def test_the_results_of_a_batch(form):
    it = codec()
    number = send(it, template=BATCH, ids=["A", "B"])
    fields = STORED | {"msgId": "X,Y"}
    ((_, results),) = it.feed(answer(number, 0, fields, form=form))
    found = [(each.msg_id, each.offset_msg_id, each.queue_offset) for each in results]
    assert found == [("A", "X", 41), ("B", "Y", 42)]
    assert results[0].status is SendStatus.SEND_OK


@pytest.mark.parametrize("form", SerializeType)
def test_a_refusal_is_the_command(form):
    it = codec()
    number = send(it)
    ((_, refusal),) = it.feed(answer(number, 2, remark="busy", form=form))
    assert (refusal.code, refusal.remark) == (2, "busy")


def test_another_queue_than_that_of_the_template():
    it = codec()
    number = send(it)
    ((_, result),) = it.feed(answer(number, 0, STORED | {"queueId": "1"}))
    assert result.queue == QUEUE._replace(queue_id=1)


@given(FORMS, st.sampled_from([0, 19, 20, 21]), st.none() | TEXT, st.binary())
def test_the_answer_to_a_pull(form, code, remark, body):
    it = codec()
    number = it.pull(PULL, "waiter", 9, offset=1, count=1, hold_ms=0, sys_flag=0)
    fields = {
        "nextBeginOffset": "42",
        "minOffset": "1",
        "maxOffset": "50",
        "suggestWhichBrokerId": "1",
    }
    sent = answer(number, code, fields, form=form, remark=remark, body=body)
    ((_, pulled),) = it.feed(sent)
    assert isinstance(pulled, PullResult)
    assert (pulled.code, pulled.body) == (code, body)
    assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (42, 1, 50)
    assert pulled.suggested_broker_id == 1


def test_answers_that_make_no_sense_end_the_stream():
    for fields in ({}, STORED | {"queueOffset": "many"}):
        it = codec()
        number = send(it)
        with pytest.raises(RemoteProtocolError, match="answer to a send"):
            it.feed(answer(number, 0, fields))


@pytest.mark.parametrize(
    "data", [b"\x7f\xff\xff\xff", b"\0\0\0\1", b"\0\0\0\4\0\xff\0\0", b"HTTP/1.1 400"]
)
def test_what_cannot_be_cut_ends_the_stream(data):
    with pytest.raises(RemoteProtocolError):
        codec().feed(data)


def test_a_request_of_the_server():
    request = Command(40, {"consumerGroup": "g"}, opaque=1)
    ((waiter, found),) = codec().feed(encode(request))
    assert waiter is None
    assert (found.code, found.ext_fields) == (40, {"consumerGroup": "g"})


def test_deadlines():
    it = codec()
    send(it, "a")
    it.request(Command(34), "b", 20)
    assert it.next_deadline_ms == 9
    assert it.expire(8) == []
    assert it.expire(9) == ["a"]
    assert it.next_deadline_ms == 20
    assert it.expire(50) == ["b"]
    assert it.next_deadline_ms > 2**60


def split_frames(data):
    frames = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[:end])
        data = data[end:]
    return frames


class Pairing(RuleBasedStateMachine):
    """Answers late, doubled, foreign and cut anywhere: each request ends once."""

    def __init__(self):
        super().__init__()
        self.fast = codec()
        self.slow = Peer(Role.CLIENT, lambda: 0)
        self.ended = []
        self.sent = []
        self.stream = bytearray()
        self.now_ms = 0

    @rule(timeout_ms=st.integers(1, 100))
    def request(self, timeout_ms):
        command = Command(34)
        self.slow.request(command, self.now_ms + timeout_ms)
        waiter = command.opaque
        number = self.fast.request(Command(34), waiter, self.now_ms + timeout_ms)
        self.sent.append((number, waiter))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), form=FORMS)
    def answer(self, data, form):
        number, waiter = data.draw(st.sampled_from(self.sent))
        self.stream += answer(number, form=form)
        reply = Command(0, flag=1, opaque=waiter)
        (event,) = self.slow.receive(reply)
        if isinstance(event, ResponseReceived):
            self.ended.append(waiter)
        else:
            assert isinstance(event, LateResponse)

    @rule(number=st.integers(10_000, 20_000))
    def answer_a_foreign_number(self, number):
        self.stream += answer(number)

    @rule(data=st.data())
    def deliver_all(self, data):
        found = []
        while self.stream:
            size = data.draw(st.integers(1, len(self.stream)))
            found += self.fast.feed(bytes(self.stream[:size]))
            del self.stream[:size]
        assert [waiter for waiter, _ in found] == self.ended
        self.ended.clear()

    @precondition(lambda self: not self.stream)
    @rule(step_ms=st.integers(0, 60))
    def pass_time(self, step_ms):
        self.now_ms += step_ms
        slow = {each.opaque for each in self.slow.expire(self.now_ms)}
        assert set(self.fast.expire(self.now_ms)) == slow

    @precondition(lambda self: not self.stream)
    @invariant()
    def the_same_ones_wait(self):
        assert self.fast.pending_count == self.slow.statistics().pending_count


TestPairing = Pairing.TestCase


def test_a_given_up_request_shifts_no_answer():
    it = codec()
    first, second = send(it, "first"), send(it, "second")
    it.cancel(first)
    found = it.feed(answer(first, 0, STORED) + answer(second, 0, STORED))
    assert [waiter for waiter, _ in found] == ["second"]
    assert (it.late_answers, it.answers) == (1, 1)


def test_the_end_returns_all_that_wait():
    it = codec()
    send(it, "a")
    it.request(Command(34), "b", 9, kind=ANSWER_TO_SEND, queue=QUEUE, msg_ids="ID")
    assert it.close() == ["a", "b"]
    assert (it.pending_count, it.has_output) == (0, False)
