import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq.core.errors import LocalProtocolError, RemoteProtocolError
from rmq.protocol import peer as peer_module
from rmq.protocol.codes import RequestCode, SerializeType
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode
from rmq.protocol.peer import (
    LateResponse,
    Peer,
    RequestReceived,
    ResponseReceived,
    Role,
)
from rmq.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock(1_000)


@pytest.fixture
def client(clock):
    return Peer(Role.CLIENT, clock.now_ms)


@pytest.fixture
def server(clock):
    return Peer(Role.SERVER, clock.now_ms)


def test_there_and_back(client, server):
    asked = Command.request(RequestCode.GET_MAX_OFFSET, body=b"question")
    (event,) = server.receive(client.request(asked, 2000))
    assert isinstance(event, RequestReceived)
    assert event.command.body == b"question"
    answer = server.respond(event.command.reply(body=b"answer"))
    (event,) = client.receive(answer)
    assert isinstance(event, ResponseReceived)
    assert event.command.body == b"answer"
    assert event.request is asked
    assert client.statistics().pending_count == 0


def test_numbers_of_both_directions_do_not_mix(client, server):
    from_client = client.request(Command.request(RequestCode.SEND_MESSAGE), 2000)
    from_server = server.request(
        Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED), 2000
    )
    assert decode(from_client).opaque == decode(from_server).opaque
    assert isinstance(client.receive(from_server)[0], RequestReceived)
    assert isinstance(server.receive(from_client)[0], RequestReceived)
    assert client.statistics().pending_count == 1


def test_answers_in_another_order(client):
    asked = [Command.request(code) for code in (1, 2, 3)]
    for command in asked:
        client.request(command, 2000)
    for command in reversed(asked):
        (event,) = client.receive(encode(command.reply()))
        assert event.request is command


def test_an_answer_is_in_the_serialisation_of_its_request(client, server):
    asked = Command.request(RequestCode.GET_MAX_OFFSET)
    asked.serialize_type = SerializeType.ROCKETMQ
    (event,) = server.receive(client.request(asked, 2000))
    answer = decode(server.respond(event.command.reply()))
    assert answer.serialize_type is SerializeType.ROCKETMQ


def test_oneway_requests_are_not_pending(client, server):
    (event,) = server.receive(
        client.oneway(Command.request(RequestCode.UPDATE_CONSUMER_OFFSET))
    )
    assert event.command.is_oneway
    assert client.statistics().pending_count == 0


def test_expiry(client, clock):
    early, late = Command.request(1), Command.request(2)
    client.request(late, 3000)
    client.request(early, 2000)
    assert client.next_deadline_ms == 2000
    assert client.expire() == []
    clock.ms = 2000
    assert client.expire() == [early]
    assert client.expire() == []
    assert client.next_deadline_ms == 3000
    (event,) = client.receive(encode(early.reply()))
    assert isinstance(event, LateResponse)
    assert client.statistics().late_responses == 1


def test_an_answer_nobody_asked_for(client):
    (event,) = client.receive(Command.request(1).reply())
    assert isinstance(event, LateResponse)


def test_a_second_answer_is_late(client):
    asked = Command.request(1)
    client.request(asked, 2000)
    assert isinstance(client.receive(asked.reply())[0], ResponseReceived)
    assert isinstance(client.receive(asked.reply())[0], LateResponse)


def test_pending_requests_are_bounded(clock):
    client = Peer(Role.CLIENT, clock, max_pending=2)
    client.request(Command.request(1), 2000)
    client.request(Command.request(1), 2000)
    with pytest.raises(LocalProtocolError, match="2 requests of this client"):
        client.request(Command.request(1), 2000)
    client.expire(2000)
    client.request(Command.request(1), 3000)


def test_a_request_that_cannot_be_written_is_not_pending(client):
    asked = Command.request(RequestCode.POP_MESSAGE)
    asked.serialize_type = SerializeType.ROCKETMQ
    with pytest.raises(LocalProtocolError):
        client.request(asked, 2000)
    assert client.statistics().pending_count == 0
    assert client.expire(9999) == []


def test_closing_returns_what_was_not_answered(client):
    asked = [Command.request(1), Command.request(2)]
    for command in asked:
        client.request(command, 2000)
    assert client.close() == asked
    assert client.close() == []
    assert client.next_deadline_ms is None


def test_numbers_start_again_and_skip_pending_ones(client, monkeypatch):
    monkeypatch.setattr(peer_module, "_MAX_OPAQUE", 2)
    asked = [Command.request(1) for _ in range(3)]
    for command in asked:
        client.request(command, 2000)
    client.receive(asked[1].reply())
    again = Command.request(1)
    client.request(again, 2000)
    assert [command.opaque for command in asked] == [0, 1, 2]
    assert again.opaque == 1


def test_a_broken_stream(client):
    with pytest.raises(RemoteProtocolError):
        client.receive(b"\xff\xff\xff\xff")


def test_only_responses_respond(server):
    with pytest.raises(AssertionError):
        server.respond(Command.request(1))


class PeerMachine(RuleBasedStateMachine):
    """A peer against a plain dictionary of what waits."""

    def __init__(self):
        super().__init__()
        self.clock = ManualClock(1_000)
        self.peer = Peer(Role.CLIENT, self.clock.now_ms, max_pending=5)
        self.waiting = {}
        self.gone = []

    @precondition(lambda self: len(self.waiting) < 5)
    @rule(patience=st.integers(1, 50))
    def ask(self, patience):
        command = Command.request(1)
        self.peer.request(command, self.clock.ms + patience)
        assert command.opaque not in self.waiting
        self.waiting[command.opaque] = (command, self.clock.ms + patience)

    @precondition(lambda self: self.waiting)
    @rule(choice=st.integers(0, 4))
    def answer(self, choice):
        opaque = sorted(self.waiting)[choice % len(self.waiting)]
        command, _ = self.waiting.pop(opaque)
        (event,) = self.peer.receive(encode(command.reply()))
        assert isinstance(event, ResponseReceived)
        assert event.request is command
        self.gone.append(command)

    @precondition(lambda self: self.gone)
    @rule()
    def answer_too_late(self):
        (event,) = self.peer.receive(self.gone[-1].reply())
        assert isinstance(event, LateResponse)

    @rule(passed=st.integers(0, 30))
    def let_time_pass(self, passed):
        self.clock.ms += passed
        due = {o: c for o, (c, at) in self.waiting.items() if at <= self.clock.ms}
        expired = self.peer.expire()
        assert sorted(c.opaque for c in expired) == sorted(due)
        for opaque in due:
            del self.waiting[opaque]
        self.gone += expired

    @invariant()
    def pending_is_what_waits(self):
        self.peer.check_invariants()
        assert self.peer.statistics().pending_count == len(self.waiting)
        if self.waiting:
            assert self.peer.next_deadline_ms <= min(
                at for _, at in self.waiting.values()
            )


TestPeerMachine = PeerMachine.TestCase
TestPeerMachine.settings = settings(max_examples=20, stateful_step_count=30)


def test_deadlines_of_answered_requests_do_not_pile_up(client):
    for _ in range(1000):
        asked = Command.request(1)
        client.request(asked, 10**9)
        client.receive(asked.reply())
        client.check_invariants()  # limits the heap of deadlines
