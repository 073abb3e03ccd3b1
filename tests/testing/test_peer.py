"""The helpers of tests do what their docstrings promise."""

import pytest
import trio

from rmq.core.errors import PeerClosed
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.peer import RequestReceived, ResponseReceived
from rmq.testing import ManualClock, PeerPair, RawClient


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


async def answering(stream, answers):
    """Answer the first request with these bytes, in one piece."""
    (request,) = FrameDecoder().feed(await stream.receive_some())
    await stream.send_all(answers(request))


async def called(answers):
    """What a raw client returns and keeps when the server answers like this."""
    ours, theirs = trio.testing.memory_stream_pair()
    client = RawClient(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answering, theirs, answers)
        answer = await client.call(Command.request(RequestCode.GET_BROKER_CLUSTER_INFO))
    return answer, client.pushed


async def test_a_raw_client_keeps_what_comes_before_and_after_its_answer():
    def answers(request):
        push = [Command.request(code) for code in (1, 2)]
        answer = request.reply(remark="mine")
        return b"".join(map(encode, (push[0], answer, push[1])))

    answer, pushed = await called(answers)
    assert answer.remark == "mine"
    assert [command.code for command in pushed] == [1, 2]


async def test_a_raw_client_is_told_of_the_end():
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_eof()
    with pytest.raises(PeerClosed, match="the server closed"):
        await RawClient(ours).call(Command.request(1))
