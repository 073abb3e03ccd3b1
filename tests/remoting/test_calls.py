"""A call ends in one of three ways, and nothing waits after that."""

import pytest
import trio

from rmq.errors import InvokeTimeout, PeerClosed
from rmq.protocol.command import Command
from rmq.protocol.frames import decode
from rmq.protocol.peer import Role
from rmq.remoting.calls import Calls


@pytest.fixture
def calls():
    return Calls(Role.CLIENT, "1.2.3.4:5")


class Outbox:
    """Takes what is sent; the other side is played by the test."""

    def __init__(self):
        self.requests = []

    async def send(self, data):
        self.requests.append(decode(data))


@pytest.fixture
def outbox():
    return Outbox()


async def test_answers_come_in_any_order(calls, outbox, nursery, autojump_clock):
    answers = {}

    async def ask(code):
        answers[code] = (await calls.invoke(Command(code), 3_000, outbox.send)).remark

    for code in (1, 2, 3):
        nursery.start_soon(ask, code)
    await trio.testing.wait_all_tasks_blocked()
    for request in sorted(outbox.requests, key=lambda each: -each.code):
        assert calls.receive(request.reply(0, f"to {request.code}")) == []
    await trio.testing.wait_all_tasks_blocked()
    assert answers == {1: "to 1", 2: "to 2", 3: "to 3"}


async def test_a_request_that_is_not_answered(calls, outbox, autojump_clock):
    with pytest.raises(InvokeTimeout, match=r"1.2.3.4:5 did not answer request 7"):
        await calls.invoke(Command(7), 3_000, outbox.send)
    assert calls.peer.statistics().pending_count == 0
    assert calls.receive(outbox.requests[0].reply()) == [], "too late"


async def test_sending_is_part_of_the_time(calls, autojump_clock):
    async def send(data):
        await trio.sleep_forever()

    with pytest.raises(InvokeTimeout):
        await calls.invoke(Command(7), 3_000, send)


async def test_the_end_wakes_those_who_wait(calls, outbox, nursery):
    errors = []

    async def ask():
        try:
            await calls.invoke(Command(7), 3_000, outbox.send)
        except PeerClosed as error:
            errors.append(str(error))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    calls.end("it left")
    await trio.testing.wait_all_tasks_blocked()
    await ask()
    assert errors == [
        "1.2.3.4:5 closed before it answered: it left",
        "1.2.3.4:5 is gone: it left",
    ]
    assert len(outbox.requests) == 1


def test_requests_of_the_peer_are_returned(calls):
    assert calls.receive(Command(39)) == [Command(39)]
