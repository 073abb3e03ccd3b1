"""The helpers of tests do what they say."""

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.peer import RequestReceived, ResponseReceived
from rmq.testing import ManualClock, PeerPair


def test_a_pair_carries_a_request_and_its_answer():
    pair = PeerPair()
    request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    (arrived,) = pair.to_server(pair.client.request(request, pair.clock.ms + 1_000))
    assert isinstance(arrived, RequestReceived)
    answer = pair.server.respond(arrived.command.reply(remark="here"))
    (returned,) = pair.to_client(answer)
    assert isinstance(returned, ResponseReceived)


def test_an_unanswered_request_expires_when_the_clock_says_so():
    clock = ManualClock(1_000)
    pair = PeerPair(clock)
    request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    pair.client.request(request, 2_000)
    assert pair.client.expire() == []
    clock.ms = 2_001
    assert len(pair.client.expire()) == 1
